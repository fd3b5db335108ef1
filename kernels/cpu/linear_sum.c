/* kernels/cpu/linear_sum.c - x W^T + u B^T on the CPU: one GEMM, whose chunks are chains
   through both. */
#include "kernels/cpu/linear_internal.h"
#include "kernels/shared_internal.h"

enum { PAIRS = 2 };

/* Makes the product of a run of pairs (x, W) whose summed dims are cut in chunks alike. */
static wf_gemm product(const wf_call *call, wf_gemm_part *parts)
{
    const wf_tensor *y = call->out[0];
    int last = y->ndim - 1, pairs = call->n_in / 2, chunks = 0, n_parts = 0;
    int64_t at[PAIRS][WF_MAX_CHUNKS + 1];

    for (int p = 0; p < pairs; p++)
        chunks = wf_chunk_cuts(call->in[2 * p], last, at[p]);
    for (int l = 0; l < chunks; l++)
        for (int p = 0; p < pairs; p++) {
            const wf_tensor *x = call->in[2 * p], *w = call->in[2 * p + 1];
            int64_t k = x->local[last];

            parts[n_parts++] = (wf_gemm_part){.a = wf_linear_elements(x, at[p][l]),
                                              .a_row = k,
                                              .a_k = 1,
                                              .b = wf_linear_elements(w, at[p][l]),
                                              .b_k = 1,
                                              .b_col = k,
                                              .k = at[p][l + 1] - at[p][l],
                                              .chunk = p == 0};
        }
    return (wf_gemm){.m = wf_extent(y, 0, last),
                     .n = y->local[last],
                     .c = y->data,
                     .c_row = y->local[last],
                     .add = wf_linear_adds(call),
                     .bf16 = wf_linear_is_bf16(call->in[0]),
                     .c_bf16 = wf_linear_is_bf16(y),
                     .parts = parts,
                     .n_parts = n_parts};
}

static size_t forward_workspace(const wf_call *call)
{
    return wf_cpu_linear_runs_workspace(call, product);
}

static wf_status forward(const wf_call *call, void *workspace)
{
    return wf_cpu_linear_runs(call, workspace, product);
}

const wf_kernel wf_cpu_linear2_sum = {.run = forward,
                                      .workspace = forward_workspace,
                                      .mixed_ok = WF_OUT(0),
                                      .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3)};
