/*
 * core/handles.h - a mode that finds uses of tensors after their scope has closed, and kernels that write outside of their
 * outputs: WEFT_DEBUG=handles in the environment, wf_context_options.debug_handles, or a build with
 * -DWEFT_DEBUG_HANDLES=ON. Without it every use of a handle costs a comparison at most.
 *
 * In the mode the description of a tensor that nobody holds is kept with its end, and its memory is filled
 * with NaNs and used again late: a function that is given such a handle fails with WF_EINVAL and names the
 * scope that closed. Memory of outputs has zones around it that are looked at after each kernel. Of the
 * last 65,536 tensors that ended the end is known.
 */
#ifndef WF_CORE_HANDLES_H
#define WF_CORE_HANDLES_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_handle_refuse - the error of a tensor that has ended; WF_OK outside of the mode. */
WF_API wf_status wf_handle_refuse(const wf_tensor *t, const char *what);

/**
 * wf_handle_check - whether a tensor may be used
 *
 * @param t     a handle, or NULL, which is good
 * @param what  who asks, for the error: "scale: operand 0"
 * Errors:      WF_EINVAL in the context; only in the mode
 */
static inline wf_status wf_handle_check(const wf_tensor *t, const char *what)
{
    return !t || t->refs > 0 ? WF_OK : wf_handle_refuse(t, what);
}

WF_END_DECLS

#endif
