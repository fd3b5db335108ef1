/*
 * kernels/cuda/moe_internal.h - experts on the GPU, forward and backward: the rows of all
 * experts one after the other, and products over all of them at once (grouped products), whose
 * kernels find an expert's rows in a table on the device. The host knows no count, so nothing
 * is waited for, and all memory is of sizes that no routing changes.
 */
#ifndef WF_KERNELS_CUDA_MOE_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"
#include "kernels/moe_internal.h"

WF_BEGIN_DECLS

enum {
    WF_MOE_OTHER = -1, /* another rank's expert, or that of none (wf_route_capacity) */
    WF_MOE_NONE = -2   /* an index of no expert, or that does not ascend: NaN */
};

/* The rows of each expert; choices [tokens, k]. */
typedef struct wf_moe_lists {
    const float *index;
    int64_t choices, k, experts, first, all;
    int *expert; /* [choices]: this rank's, or one of the above */
    int *row;    /* [choices]; below 0: it has none here */
    int *begin;  /* [experts + 1]: the rows of expert e are begin[e] .. begin[e + 1] */
    int *token;  /* [choices]: of each row; they ascend in an expert's rows */
    int *choice; /* [choices]: of each row */
} wf_moe_lists;

/* Returns this rank's expert of choice c, or one of the above. Those that ascend are the ones
   that some expert takes. */
WF_HOST_DEVICE static inline int wf_moe_own_expert(const wf_moe_lists *l, int64_t c)
{
    const float e = l->index[c], none = (float)l->all;
    const int64_t own = (int64_t)e - l->first, begin = c - c % l->k;
    int64_t before = c - 1;

    while (before >= begin && l->index[before] == none)
        before--;
    if (e == none)
        return WF_MOE_OTHER;
    if (!wf_moe_is_expert(e, l->all) || (before >= begin && !(e > l->index[before])))
        return WF_MOE_NONE;
    return own < 0 || own >= l->experts ? WF_MOE_OTHER : (int)own;
}

cudaError_t wf_cuda_launch_moe_lists(cudaStream_t stream, const wf_moe_lists *lists);

/* A factor: element k of its row i is data[i * row + k * step], of expert e `each` elements
   further; token: NULL, or i (k of gradients) is the token of a row. */
typedef struct wf_moe_matrix {
    const void *data;
    int64_t row, step, each;
    const int *token;
} wf_moe_matrix;

typedef struct wf_moe_pair {
    wf_moe_matrix a, b;
} wf_moe_pair;

/* c[r, n] of each row r of an expert = scale times the tree over chunks of k, a chain through
   `pairs` pairs of factors for each; the last one ends with the `rank` terms of `low`. */
typedef struct wf_moe_row_product {
    const wf_moe_lists *lists;
    wf_dtype type, c_type;
    wf_moe_pair pair[2], low;
    int pairs, cuts;
    int64_t cut[WF_MAX_CHUNKS + 1], rank, n;
    float scale;
    void *c;       /* rows are n step */
    const int *to; /* NULL, or where each row goes */
} wf_moe_row_product;

cudaError_t wf_cuda_launch_moe_rows(cudaStream_t stream, const wf_moe_row_product *p);

/* c[e][m, n] = the tree over chunks of tokens, a chain through the rows of expert e for each:
   a's and b's rows are k. */
typedef struct wf_moe_weight_product {
    const wf_moe_lists *lists;
    wf_dtype type;
    wf_moe_matrix a, b;
    int64_t m, n;
    wf_token_cuts cuts;
    float *c;
} wf_moe_weight_product;

enum { WF_MOE_LEVELS = 16 }; /* most nodes of its tree that are open at once */

cudaError_t wf_cuda_launch_moe_weights(cudaStream_t stream, const wf_moe_weight_product *p);

WF_END_DECLS

#endif
