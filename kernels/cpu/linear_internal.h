/* kernels/cpu/linear_internal.h - products with weights, for the kernels that continue with
   them. */
#ifndef WF_KERNELS_CPU_LINEAR_INTERNAL_H
#define WF_KERNELS_CPU_LINEAR_INTERNAL_H

#include "kernels/cpu/cpu_internal.h"

enum { WF_LINEAR_PARTS = 3 * WF_MAX_CHUNKS }; /* at most, of a product of three members */

/* Returns t's elements from `first` on; NULL where only the workspace is asked for. */
static inline const void *wf_linear_elements(const wf_tensor *t, int64_t first)
{
    const char *data = t->data;

    return data ? data + first * (int64_t)wf_dtype_size(t->dtype) : NULL;
}

static inline bool wf_linear_is_bf16(const wf_tensor *t)
{
    return t->dtype == WF_BF16;
}

/* The product of a run of pairs of operands (wf_linear_run), whose result is out[0]; parts has
   WF_LINEAR_PARTS. */
typedef wf_gemm wf_linear_product(const wf_call *run, wf_gemm_part *parts);

/* Computes the sum over the runs of a call, rounded once. */
wf_status wf_cpu_linear_runs(const wf_call *call, void *workspace, wf_linear_product *product);
size_t wf_cpu_linear_runs_workspace(const wf_call *call, wf_linear_product *product);

/* Runs one GEMM of a call; the bytes of its workspace. */
wf_status wf_cpu_linear_run(const wf_call *call, const wf_gemm *g, void *workspace);
size_t wf_cpu_linear_bytes(const wf_call *call, const wf_gemm *g);

/* Computes y_m = x W_m^T for the first n_out weights, which are the operands after x. */
wf_status wf_cpu_linear_forward(const wf_call *call, void *workspace);
size_t wf_cpu_linear_forward_workspace(const wf_call *call);

/* Weights come as they are stored, and results go so; x does where all factors are stored as
   bf16. */
#define WF_LINEAR_KERNEL(function, weights, results)                                           \
    {                                                                                          \
        .run = (function), .workspace = function##_workspace,                                  \
        .mixed_ok = (weights) | (results), .all_bf16 = WF_IN(0) | (weights)                    \
    }

#endif
