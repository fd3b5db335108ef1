/*
 * kernels/cuda/attention_internal.h - attention on the GPU: what its files share. attention.c
 * decides who serves a call, cuDNN (cudnn/) or the kernels of attention_forward.cu and
 * attention_grad.cu.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

enum { WF_CUDA_HEAD_DIM = 256 }; /* the most that our kernels take */

/* A call on this rank. q, y and their gradients are [batch, tokens, heads, dim], k, v and
   theirs [batch, tokens, groups, dim], lse and delta [batch, tokens, heads]. */
typedef struct wf_cuda_heads {
    const void *q, *k, *v, *dy;
    void *y; /* read by the gradient */
    float *lse;
    void *dq, *dk, *dv;
    wf_dtype type; /* the type of all but lse */
    int64_t batch, tokens, heads, groups, dim;
    int64_t first_head, first_group, per_group; /* in the whole */
    float scale;
    bool bidirectional;  /* every query sees all keys */
    const int32_t *from; /* [batch, tokens] (wf_attention_from), or NULL */
    int64_t window;      /* 0: none */

    /* dropout: 0 for none. A score is kept where its word is at least `threshold`. */
    uint64_t key;
    uint32_t threshold, site, step;
    uint32_t first_row;          /* in the whole */
    uint32_t first, run, stride; /* wf_sequences of whole rows; run is at least 1 */
    const wf_now *now;           /* address of the step in a captured graph, or NULL */
    float kept;                  /* factor of kept scores */

    /* the gradient's: y . dy; and, where dk and dv are sums over heads, each head's */
    float *delta, *dk_parts, *dv_parts;
    int chunks;
    int64_t chunk[WF_MAX_CHUNKS + 1]; /* local heads */
} wf_cuda_heads;

cudaError_t wf_cuda_launch_attention(cudaStream_t stream, const wf_cuda_heads *a);
cudaError_t wf_cuda_launch_attention_grad(cudaStream_t stream, const wf_cuda_heads *a);

WF_END_DECLS

#endif
