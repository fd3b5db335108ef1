/*
 * kernels/cpu/task_size_internal.h - how small a task of elementwise work is still worth a
 * thread, and which rows a chunk of a sum inside of a sequence has.
 */
#ifndef WF_KERNELS_CPU_TASK_SIZE_INTERNAL_H
#define WF_KERNELS_CPU_TASK_SIZE_INTERNAL_H

#include "kernels/cpu/simd_internal.h"
#include "kernels/row_chunks_internal.h"

enum { WF_TASK_ELEMENTS = 16384 };

/* Returns the grain for wf_thread_pool_run over rows of `width` elements. */
static inline int64_t wf_task_rows(int64_t width)
{
    return width >= WF_TASK_ELEMENTS ? 1 : WF_TASK_ELEMENTS / (width > 0 ? width : 1);
}

static inline int64_t wf_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The rows of a sequence that are summed: chunk l has those from at[l] to at[l + 1] of every
   run. */
typedef struct wf_row_sum {
    int chunks;
    int64_t runs, step; /* runs of `step` rows make up the sequence */
    int64_t at[WF_MAX_TOKEN_CHUNKS + 1];
} wf_row_sum;

/* Returns a sum over the dims [1, end) of x, which has its chunks where wf_chunk_dim says, and
   more of them where these are the tokens of long sequences. */
static inline wf_row_sum wf_row_sum_of(const wf_tensor *x, int end)
{
    int d = wf_chunk_dim(x->dim, 1, end);
    wf_row_sum s = {.chunks = 1, .runs = 1, .step = wf_extent(x, 1, end)};

    s.at[1] = s.step;
    if (d < 0)
        return s;
    s.chunks = wf_cut_tokens(x, d, wf_chunk_cuts(x, d, s.at), wf_context_exact(x->ctx), s.at);
    s.runs = wf_extent(x, 1, d);
    s.step = wf_extent(x, d, end);
    for (int l = 0; l <= s.chunks; l++)
        s.at[l] *= wf_extent(x, d + 1, end);
    return s;
}

static inline wf_chunk_rows wf_chunk_rows_of(const wf_row_sum *s, int64_t chunk)
{
    return (wf_chunk_rows){s->runs, s->step, s->at[chunk + 1] - s->at[chunk], false};
}

#endif
