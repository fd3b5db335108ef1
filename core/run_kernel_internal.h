/* core/run_kernel_internal.h - how dispatch runs the kernel of a call whose outputs have
   memory. */
#ifndef WF_CORE_RUN_KERNEL_INTERNAL_H
#define WF_CORE_RUN_KERNEL_INTERNAL_H

#include "core/op.h"
#include "core/sharing_internal.h"

/* Returns the operands and results (WF_IN, WF_OUT) that a kernel takes as bf16, since all of
   them are: none where the context computes in fp32. */
unsigned wf_taken_as_bf16(const wf_call *call, const wf_kernel *kernel);

/* Runs the kernel of a call. WF_EUNSUPPORTED (there is none), WF_ENOMEM, or the kernel's
   status. */
wf_status wf_run_kernel(const wf_call *asked, wf_share_role role);

#endif
