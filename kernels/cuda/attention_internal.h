/*
 * kernels/cuda/attention_internal.h - attention on the GPU: what its files share. attention.c
 * decides who serves a call, cuDNN (cudnn/) or the kernels of attention_forward.cu and
 * attention_grad.cu; attention_groups.cu serves both.
 */
#ifndef WF_KERNELS_CUDA_ATTENTION_INTERNAL_H
#define WF_KERNELS_CUDA_ATTENTION_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

enum { WF_CUDA_HEAD_DIM = 256 }; /* the most that our kernels take */

/* Tokens of each sequence that an array has. */
typedef struct wf_cuda_tokens {
    int64_t first, count;
} wf_cuda_tokens;

/* A call on this rank. q, y, lse, delta and dy have the tokens of query_tokens, k and v those
   of key_tokens, and gradients those of dq_tokens and dk_tokens: [batch, tokens, heads or
   groups, dim], lse and delta without dim. A query's first token is 0, but for
   attention_part's. */
typedef struct wf_cuda_heads {
    const void *q, *k, *v, *dy;
    void *y; /* read by the gradient */
    float *lse;
    void *dq, *dk, *dv;
    wf_dtype type;    /* the type of all but lse, masks and biases */
    wf_dtype dk_type; /* dk and dv have this one: f32 where ranks add theirs */
    wf_cuda_tokens query_tokens, key_tokens, dq_tokens, dk_tokens;
    int64_t batch, heads, groups, dim;
    int64_t first_head, first_group, per_group; /* in the whole */
    float scale, cap;                           /* cap 0: none */
    bool bidirectional;                         /* every query sees all keys */
    const int32_t *from;                        /* [batch, keys] (wf_attention_from), or NULL */
    int64_t window;                             /* as wf_attention_from takes it */
    const float *mask;  /* [batch, keys], 0 where no query sees the key; or NULL */
    const float *bias;  /* [heads, tokens, keys], or one for each sequence; or NULL */
    bool bias_of_each;  /* sequence */
    const float *sinks; /* [heads] a logit that has no value, or NULL */
    float *dbias;       /* [batch, heads, tokens, keys], or NULL */
    bool by_wgmma;      /* tensor cores multiply by Hopper's instruction */

    /* dropout: 0 for none. A score is kept where its word is at least `threshold`. */
    uint64_t key;
    uint32_t threshold, site, step;
    uint32_t first_row;          /* in the whole */
    uint32_t first, run, stride; /* wf_sequences of whole rows; run is at least 1 */
    const wf_now *now;           /* address of the step in a captured graph, or NULL */
    float kept;                  /* factor of kept scores */

    /* the gradient's: y . dy; and, where dk and dv are sums over heads, each head's */
    float *delta;
    void *dk_parts, *dv_parts;
    wf_dtype parts_type;
    int chunks;
    int64_t chunk[WF_MAX_CHUNKS + 1]; /* local heads */
} wf_cuda_heads;

cudaError_t wf_cuda_launch_attention(cudaStream_t stream, const wf_cuda_heads *a);
cudaError_t wf_cuda_launch_attention_grad(cudaStream_t stream, const wf_cuda_heads *a);

/* Returns true for what our kernels compute on tensor cores: bf16 of dims that are multiples
   of 8. */
static inline bool wf_cuda_on_tensor_cores(const wf_cuda_heads *a)
{
    return a->type == WF_BF16 && a->dim % 8 == 0;
}

/* Launches for such heads, by one instruction of the tensor cores: y and lse; dq, and each
   query head's dk and dv, from delta. */
typedef struct wf_attention_kernels {
    cudaError_t (*forward)(cudaStream_t stream, const wf_cuda_heads *a);
    cudaError_t (*gradients)(cudaStream_t stream, const wf_cuda_heads *a);
} wf_attention_kernels;

/* The kernels of every GPU, and those of compute capability 9.0 alone, with the same bits. */
extern const wf_attention_kernels wf_cuda_attention_mma, wf_cuda_attention_wgmma;

static inline const wf_attention_kernels *wf_attention_kernels_of(const wf_cuda_heads *a)
{
    return a->by_wgmma ? &wf_cuda_attention_wgmma : &wf_cuda_attention_mma;
}

cudaError_t wf_cuda_launch_tensor_delta(cudaStream_t stream, const wf_cuda_heads *a);

/* k and v of bf16, of dims that are multiples of 8, copied to each query head: [batch, tokens,
   heads, dim]. */
cudaError_t wf_cuda_launch_spread(cudaStream_t stream, const wf_cuda_heads *a, void *k,
                                  void *v);
/* Add sinks to y and lse of bf16, of dims that are multiples of 8, that were made without. */
cudaError_t wf_cuda_launch_add_sinks(cudaStream_t stream, const wf_cuda_heads *a);
/* dk and dv from dk_parts and dv_parts. */
cudaError_t wf_cuda_launch_group_sums(cudaStream_t stream, const wf_cuda_heads *a);

/* Attention of tokens that continue sequences, to a cache [slots, room, groups, dim] of keys
   and values that holds theirs as well: token 0 of sequence b is at first[b] of row slot[b].
   Read of heads are q, y, sinks, query_tokens.count, sizes, window, scale and cap. */
typedef struct wf_cuda_cached {
    wf_cuda_heads heads;
    const void *k, *v;
    const int32_t *first, *slot;
    int64_t room;
} wf_cuda_cached;

/* For heads that wf_cuda_on_tensor_cores takes: the bits of wf_cuda_attention_mma's
   forward. */
cudaError_t wf_cuda_launch_tensor_cached(cudaStream_t stream, const wf_cuda_cached *c);

WF_END_DECLS

#endif
