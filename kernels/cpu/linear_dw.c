/*
 * kernels/cpu/linear_dw.c - gradients of weights on the CPU: dW = dy^T x, a chunk per sequence,
 * or several of a long one; or a row of the result per sequence.
 */
#include "core/tape.h"
#include "kernels/cpu/linear_internal.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

enum { FEW = 64 }; /* parts, whose list needs no memory of its own */

/* Returns the chunks of dW[n, k] in each pass, of which the call has a pair of operands: those
   of each index of a batch dim (one for a short sequence, whose rows are its chain), one chunk
   of all rows for any other leading dim. The parts live at the start of the workspace. */
static wf_token_cuts dw_cuts(const wf_call *call)
{
    const wf_tensor *dy = call->in[0];

    return wf_token_cuts_of(dy, dy->ndim - 1, wf_context_exact(call->ctx));
}

static size_t dw_parts_bytes(const wf_call *call)
{
    wf_token_cuts cuts = dw_cuts(call);
    int64_t chunks = call->n_in / 2 * wf_token_chunks_of(&cuts);
    size_t n = chunks > 0 ? (size_t)chunks : 1; /* a rank without sequences has dW = 0 */

    return (n * sizeof(wf_gemm_part) + 63) / 64 * 64;
}

static wf_gemm dw_product(const wf_call *call, wf_gemm_part *parts)
{
    const wf_tensor *dy = call->in[0], *x = call->in[1];
    int last = dy->ndim - 1;
    wf_token_cuts cuts = dw_cuts(call);
    int64_t each = wf_token_chunks_of(&cuts), chunks = call->n_in / 2 * each;
    int64_t n = dy->local[last], k = x->local[last];

    for (int64_t l = 0; l < chunks; l++) {
        const wf_tensor *const *pair = (const wf_tensor *const *)&call->in[2 * (l / each)];
        int64_t row = wf_token_chunk_at(&cuts, l % each);

        parts[l] = (wf_gemm_part){.a = wf_linear_elements(pair[0], row * n),
                                  .a_row = 1,
                                  .a_k = n,
                                  .b = wf_linear_elements(pair[1], row * k),
                                  .b_k = k,
                                  .b_col = 1,
                                  .k = wf_token_chunk_rows(&cuts, l % each),
                                  .chunk = true};
    }
    return (wf_gemm){.m = n,
                     .n = k,
                     .c = call->out[0]->data,
                     .c_row = k,
                     .add = wf_linear_adds(call),
                     .bf16 = wf_linear_is_bf16(dy),
                     .parts = parts,
                     .n_parts = chunks,
                     .each = cuts.chunks};
}

static size_t dw_whole_workspace(const wf_call *call)
{
    size_t bytes = dw_parts_bytes(call), more;
    wf_gemm_part few[FEW], *parts = few; /* not the pool's memory: a plan's has none */
    wf_gemm g;

    if (bytes > sizeof few)
        parts = malloc(bytes);
    if (!parts) {
        wf_fail(call->ctx, WF_ENOMEM, "%s: no memory for the list of %zu bytes of sequences",
                call->op->name, bytes);
        return 0;
    }
    g = dw_product(call, parts);
    more = wf_cpu_linear_bytes(call, &g);
    if (parts != few)
        free(parts);
    return bytes + more;
}

static wf_status dw_whole(const wf_call *call, void *workspace)
{
    wf_gemm g = dw_product(call, workspace);

    return wf_cpu_linear_run(call, &g, (char *)workspace + dw_parts_bytes(call));
}

static size_t dw_workspace(const wf_call *call)
{
    wf_sequence_call s;

    if (!wf_linear_in_rows(call))
        return dw_whole_workspace(call);
    wf_sequence_call_of(call, 0, 0, &s);
    return dw_whole_workspace(&s.call);
}

static wf_status dw(const wf_call *call, void *workspace)
{
    return wf_linear_in_rows(call) ? wf_run_by_sequence(call, 0, dw_whole, workspace)
                                   : dw_whole(call, workspace);
}

/* Factors come as bf16 where all of every pass are stored so. */
enum { PASSES = WF_IN(2 * WF_MOST_JOINED) - 1 };

const wf_kernel wf_cpu_linear_dw = {.run = dw, .workspace = dw_workspace, .all_bf16 = PASSES};
