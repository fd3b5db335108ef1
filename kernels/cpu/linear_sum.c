/* kernels/cpu/linear_sum.c - x W^T + u B^T on the CPU: one GEMM, whose chunks are chains through both. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/shared_internal.h"

enum { PAIRS = 2, MAX_PARTS = PAIRS * WF_MAX_CHUNKS };

static const float *elements(const wf_tensor *t, int64_t first)
{
    const float *data = t->data;

    return data ? data + first : NULL; /* a plan's tensors have none */
}

/* Of a run of pairs (x, W) whose summed dims are cut in chunks alike. */
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

            parts[n_parts++] = (wf_gemm_part){.a = elements(x, at[p][l]),
                                              .a_row = k,
                                              .a_k = 1,
                                              .b = elements(w, at[p][l]),
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
                     .parts = parts,
                     .n_parts = n_parts};
}

static size_t workspace_of(const wf_call *call)
{
    wf_gemm_part parts[MAX_PARTS];
    wf_cpu *cpu = wf_cpu_of(call);
    size_t most = 0;
    wf_call run;

    for (int p = 0; p < call->n_in / 2;) {
        wf_gemm g;
        size_t bytes;

        p = wf_linear_run(call, p, &run);
        g = product(&run, parts);
        bytes = cpu->simd->gemm_workspace(&g, wf_team_size(cpu->team));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static wf_status forward(const wf_call *call, void *workspace)
{
    wf_gemm_part parts[MAX_PARTS];
    wf_cpu *cpu = wf_cpu_of(call);
    wf_call run;

    for (int p = 0; p < call->n_in / 2;) {
        wf_gemm g;

        p = wf_linear_run(call, p, &run);
        g = product(&run, parts);
        cpu->simd->gemm(cpu->team, &g, workspace);
    }
    return WF_OK;
}

const wf_kernel wf_cpu_linear2_sum = {.run = forward, .workspace = workspace_of};
