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
    /* for gradients of matrices, whose sums are trees over chunks of tokens: the first row of
       each of them, and where the last one ends, [experts, leaves + 1], and how many nodes are
       complete with it, [leaves]; at most `levels` nodes wait at a time */
    int64_t leaves;
    int levels, *leaf, *merges;
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
cudaError_t wf_cuda_launch_moe_leaves(cudaStream_t stream, const wf_moe_lists *lists,
                                      const wf_token_cuts *cuts);

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

enum { WF_MOE_PAIRS = 2, WF_MOE_LOW = WF_MOE_PAIRS };

/* c[r, n] of each row r of an expert = scale times the tree over chunks of k, a chain through
   `pairs` pairs of factors for each; the last one ends with the `rank` terms of the pair at
   WF_MOE_LOW. Rows of a have step 1; matrices b of a product have terms along rows, or along
   columns. */
typedef struct wf_moe_row_product {
    const wf_moe_lists *lists;
    wf_dtype c_type;
    wf_moe_pair pair[WF_MOE_PAIRS + 1];
    int pairs, cuts;
    int64_t cut[WF_MAX_CHUNKS + 1], rank, n;
    float scale;
    void *c;       /* rows are n step */
    const int *to; /* NULL, or where each row goes */
} wf_moe_row_product;

/* c[e][m, n] = the tree over chunks of tokens, a chain through the rows of expert e for each:
   a's and b's rows are k. */
typedef struct wf_moe_weight_product {
    const wf_moe_lists *lists;
    wf_moe_matrix a, b;
    int64_t m, n;
    float *c;
    float *aside;       /* wf_moe_aside floats, of products of bf16 */
    int64_t aside_each; /* a block's share of them */
} wf_moe_weight_product;

/* WF_MOE_LEVELS: most nodes of a tree that are open at once. Products of bf16 have HELD of them
   in registers, and BLOCKS blocks that have others in memory: as many as an H200 runs, on all
   GPUs, so that plans are the same. */
enum { WF_MOE_LEVELS = 16, WF_MOE_HELD = 2, WF_MOE_BLOCKS = 132 };

/* Returns how many floats these others take, where at most `levels` nodes wait at a time. */
static inline int64_t wf_moe_aside(int levels)
{
    enum { TILE = 128 * 64 };

    return levels > WF_MOE_HELD ? (int64_t)(levels - WF_MOE_HELD) * TILE * WF_MOE_BLOCKS : 0;
}

/* Launchers of both kinds of products. */
typedef struct wf_moe_products {
    cudaError_t (*rows)(cudaStream_t stream, const wf_moe_row_product *p, int processors);
    cudaError_t (*weights)(cudaStream_t stream, const wf_moe_weight_product *p, int processors);
} wf_moe_products;

/* Those of f32, by multiply-adds (moe_product.cu); of bf16 on tensor cores, of every GPU
   (moe_tensor.cu), and by Hopper's own instructions (moe_tensor_hopper.cu). */
extern const wf_moe_products wf_cuda_moe_floats, wf_cuda_moe_mma, wf_cuda_moe_wgmma;

WF_END_DECLS

#endif
