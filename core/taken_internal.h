/* core/taken_internal.h - what of a call its kernel takes as it is stored. */
#ifndef WF_CORE_TAKEN_INTERNAL_H
#define WF_CORE_TAKEN_INTERNAL_H

#include "core/context.h"
#include "core/op.h"

/* Whether all tensors of a mask are stored as bf16, and there are some. */
static inline bool wf_all_stored(const wf_call *call, unsigned mask)
{
    bool all = mask != 0;

    for (int i = 0; i < call->n_in && all; i++)
        all = !(mask & WF_IN(i)) || call->in[i]->dtype == WF_BF16;
    for (int o = 0; o < call->n_out && all; o++)
        all = !(mask & WF_OUT(o)) || call->out[o]->dtype == WF_BF16;
    return all;
}

/* What a kernel takes as bf16, since all of it is: nothing where the context computes in fp32. */
static inline unsigned wf_taken_alike(const wf_call *call, const wf_kernel *kernel)
{
    bool bf16 = wf_context_compute(call->ctx) == WF_BF16;

    return bf16 && wf_all_stored(call, kernel->all_bf16) ? kernel->all_bf16 : 0;
}

#endif
