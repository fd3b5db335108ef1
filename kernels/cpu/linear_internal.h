/* kernels/cpu/linear_internal.h - products with weights, for the kernels that go on with them. */
#ifndef WF_KERNELS_CPU_LINEAR_INTERNAL_H
#define WF_KERNELS_CPU_LINEAR_INTERNAL_H

#include "kernels/cpu/cpu_internal.h"

/* y_m = x W_m^T for the first n_out weights behind x */
wf_status wf_cpu_linear_forward(const wf_call *call, void *workspace);
size_t wf_cpu_linear_forward_workspace(const wf_call *call);

/* Weights come as they are stored, and results go so; x does where all factors are stored as bf16. */
#define WF_LINEAR_KERNEL(function, weights, results)                                           \
    {                                                                                          \
        .run = (function), .workspace = function##_workspace,                                  \
        .mixed_ok = (weights) | (results), .all_bf16 = WF_IN(0) | (weights)                    \
    }

#endif
