/*
 * core/together.h - calls of ops in place that a device runs by one launch: the updates of a
 * model's parameters, whose kernels would each be shorter than their launch.
 */
#ifndef WF_CORE_TOGETHER_H
#define WF_CORE_TOGETHER_H

#include "core/context.h"

WF_BEGIN_DECLS

enum { WF_TOGETHER = 64 }; /* calls of a launch, at most */

/**
 * wf_together_begin - lets calls wait for each other, from now to wf_together_end, where the
 * kernel can run several (wf_kernel.run_many)
 *
 * They run, and their tensors are held until then, at the call of another op, when WF_TOGETHER
 * of them wait, when a tensor that rests in host memory is put back, when tensors begin to move
 * between ranks (mesh/array/mesh.h), and at the end. Each call changes tensors of its own. Code
 * that reads or gives back such a tensor in between by other means than ops calls
 * wf_together_run first.
 *
 * The numbers are those of calls one by one. Calls are not nested.
 */
WF_API void wf_together_begin(wf_context *ctx);

/** wf_together_run - runs the calls that wait. Errors: the kernel's, in the context;
 * returned */
WF_API wf_status wf_together_run(wf_context *ctx);

/** wf_together_end - runs the calls that wait, and ends what wf_together_begin began. Errors:
 * those of wf_together_run */
WF_API wf_status wf_together_end(wf_context *ctx);

WF_END_DECLS

#endif
