/*
 * kernels/cpu/simd/attention_block_internal.h - what the forward and backward pass of attention
 * share: the division of a head into blocks of tokens, copies between the caller's strided rows
 * and packed blocks, and the product of two blocks.
 *
 * A block is 64 tokens; the last of a sequence is padded with zeros to a multiple of 16. Packed
 * rows are [tokens][width], packed columns [width][64], width being the head size in whole
 * vectors. Scores are kept transposed: S[j][i] for key j and query i, row stride 64. So 16
 * queries share a vector, and maxima and sums over keys need no horizontal step.
 *
 * What the causal mask takes from a block on the diagonal goes by squares of 16: those above it
 * are neither computed nor read, those on it are masked.
 *
 * Packed blocks are floats, also where a head's numbers are bf16: floats whose lower halves are
 * zero.
 */
#ifndef WF_KERNELS_CPU_SIMD_ATTENTION_BLOCK_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_ATTENTION_BLOCK_INTERNAL_H

#include "kernels/attention_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_bf16_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* Functions below, by the names that read well. */
#define block_product_rows    WF_ISA_NAME(wf_block_product_rows)
#define block_product_columns WF_ISA_NAME(wf_block_product_columns)
#define block_pack            WF_ISA_NAME(wf_block_pack)
#define block_pack_columns    WF_ISA_NAME(wf_block_pack_columns)
#define block_unpack          WF_ISA_NAME(wf_block_unpack)
#define block_mask            WF_ISA_NAME(wf_block_mask)
#define block_keep            WF_ISA_NAME(wf_block_keep)
#define block_bias            WF_ISA_NAME(wf_block_bias)
#define block_cap             WF_ISA_NAME(wf_block_cap)
#define block_bias_grad       WF_ISA_NAME(wf_block_bias_grad)

enum {
    BLOCK = 64, /* tokens; part of the numbers: it says when the running maximum is renewed */
    GRAIN = WF_ATTENTION_GRAIN,
    BF16_TERMS = 32, /* a block of a bf16 product */
};

/* Tokens begin .. begin + count - 1, computed as `padded` of them. */
typedef struct token_block {
    int64_t begin, count, padded;
} token_block;

/* Which part of a product the causal mask leaves; bounds are rounded outwards to the grain. */
typedef enum block_part {
    PART_ALL,
    PART_COLUMNS_FROM_ROW, /* elements (r, c) with c >= r */
    PART_TERMS_TO_ROW,     /* terms p <= r of row r's sum */
    PART_TERMS_FROM_ROW,   /* terms p >= r of row r's sum */
} block_part;

/* The progress of prefetching a head's rows. Tokens from its last on are the next head's. */
typedef struct block_ahead {
    const wf_attention_head *head;
    int64_t token, end;
    int row; /* the token's */
} block_ahead;

/* Rows of tokens where the caller has them: bf16 numbers, or floats. `stride` numbers lie from
   one to the next. */
typedef struct token_rows {
    const void *x;
    int64_t stride;
    bool bf16;
} token_rows;

/*
 * C(r, c) = sum_p A(r, p) * B(p, c), p ascending, from +0 or (add) from the C that is there,
 * times scale[r] where scale is not NULL: one fma chain of floats, or a bf16 product, see
 * attention_product.c. m and n are multiples of the grain; and so is k of a bf16 product.
 */
typedef struct block_product {
    bool bf16;
    void (*product)(const struct block_product *g, int64_t a_row); /* the head's */
    int64_t m, n, k;
    const float *a; /* A(r, p) = a[r * BLOCK + p], or a[p * BLOCK + r] */
    const float *b; /* B(p, c) = b[p * b_stride + c] */
    int64_t b_stride;
    float *c; /* C(r, c) = c[r * c_stride + c] */
    int64_t c_stride;
    bool add;
    const float *scale;
    block_part part;
    block_ahead *ahead; /* a few rows are prefetched with every tile */
} block_product;

static inline token_block block_at(int64_t begin, int64_t seq)
{
    int64_t left = seq - begin;
    int64_t count = left < BLOCK ? left : BLOCK;

    return (token_block){begin, count, wf_attention_padded(count)};
}

/* Returns true for a block of which some queries do not see some keys; what else they do not
   see is never touched. */
static inline bool block_is_diagonal(const wf_attention_head *head, token_block queries,
                                     token_block keys)
{
    return !head->bidirectional && keys.begin == queries.begin;
}

/* Returns the first key that query i sees. */
static inline int64_t block_first_key(const wf_attention_head *head, int64_t i)
{
    int64_t from = wf_attention_from(head->from, head->window, head->start + i) - head->start;

    return from > 0 ? from : 0;
}

/* Returns the first block of keys that a block of queries sees anything of */
static inline int64_t block_keys_begin(const wf_attention_head *head, token_block queries)
{
    bool bounded = wf_attention_is_bounded(head);
    int64_t begin = bounded ? queries.begin : 0;

    for (int64_t i = queries.begin; bounded && i < queries.begin + queries.count; i++) {
        int64_t from = block_first_key(head, i);

        begin = from < begin ? from : begin;
    }
    return begin / BLOCK * BLOCK;
}

/* Returns the end of the keys that a block of queries sees. */
static inline int64_t block_keys_end(const wf_attention_head *head, token_block queries)
{
    return head->bidirectional ? head->keys : queries.begin + queries.count;
}

/* Returns the factor of queries before their products, and of scores after them: bf16 numbers
   keep their bits. */
static inline float query_scale(const wf_attention_head *head)
{
    return head->bf16 ? 1 : head->scale;
}

static inline float score_scale(const wf_attention_head *head)
{
    return head->bf16 ? head->scale : 1;
}

/* Returns the factor that scores lack when their exponentials are taken: where there is a bias
   or a cap, block_bias and capped have multiplied them. */
static inline float softmax_scale(const wf_attention_head *head)
{
    return head->bias || head->cap > 0 ? 1 : score_scale(head);
}

/* Returns scores under the head's cap, with their factor. */
static inline v16 capped(const wf_attention_head *head, v16 s)
{
    v16 cap = v16_set1(head->cap);

    return v16_mul(cap, v16_tanh(v16_div(v16_mul(s, v16_set1(score_scale(head))), cap)));
}

/* Returns what gradients of scores under the head's cap are multiplied by; of what is masked 0:
   it is far below the least score there is. */
static inline v16 capped_slope(const wf_attention_head *head, v16 s)
{
    v16 t = v16_max(v16_div(s, v16_set1(head->cap)), v16_set1(-1));

    return v16_fnma(t, t, v16_set1(1));
}

/* Loads up to 16 numbers of the caller's rows, from the one at index `at` on. */
static inline v16 load_numbers(const void *x, bool bf16, int64_t at, int64_t n)
{
    return bf16 ? v16_load_bf16_n((const uint16_t *)x + at, n)
                : v16_load_n((const float *)x + at, n);
}

/* Stores an output, every zero as +0, except for numbers too small for a bf16. */
static inline void store_numbers(void *x, bool bf16, int64_t at, v16 value, int64_t n)
{
    value = v16_add(value, v16_zero());
    if (bf16)
        v16_store_bf16_n((uint16_t *)x + at, v16_narrow_bf16(value), n);
    else
        v16_store_n((float *)x + at, value, n);
}

/* Returns the first cache line of a workspace, which has room for the shift. */
static inline float *align_line(void *workspace)
{
    return (float *)(((uintptr_t)workspace + 63) / 64 * 64);
}

/* Carve `count` floats off a workspace, on a cache line of their own. */
static inline float *take(float **at, int64_t count)
{
    float *begin = *at;

    *at += wf_attention_padded(count);
    return begin;
}

/* Returns the bytes of a workspace of `floats` floats, in multiples of the grain. */
static inline size_t workspace_of(int64_t floats)
{
    return (size_t)(floats + GRAIN) * sizeof(float);
}

/* Floats of all blocks of a head, each with room for BLOCK tokens */
static inline int64_t head_floats(int64_t keys, int64_t dim)
{
    return (keys + BLOCK - 1) / BLOCK * BLOCK * wf_attention_padded(dim);
}

/* While the block at `begin` is computed, the next one is prefetched. */
static inline void ahead_to(block_ahead *a, const wf_attention_head *head, int64_t begin)
{
    int64_t seq = head->seq, next = begin + BLOCK < seq ? begin + BLOCK : seq;

    *a = (block_ahead){.head = head, .token = next, .end = next};
    if (head->rows.n > 0)
        a->end += BLOCK < seq ? BLOCK : seq;
}

/* A(r, p) = a[r * BLOCK + p]: a transposed block of scores, or of columns */
void block_product_rows(const block_product *g);
/* A(r, p) = a[p * BLOCK + r] */
void block_product_columns(const block_product *g);

/* dst[t * width + d] = scale * src[(begin + t) * stride + d], zeros where that is outside
   [count, dim]; block_pack_columns: dst[d * BLOCK + t]. The scale of bf16 numbers is 1. */
void block_pack(token_rows src, token_block t, int64_t dim, float scale, float *dst);
void block_pack_columns(token_rows src, token_block t, int64_t dim, float scale, float *dst);
/* dst[(begin + t) * stride + d] = src[t * width + d] * scale inside [count, dim]; of bf16
   numbers zeros are +0, and the scale is 1 */
void block_unpack(const float *src, token_block t, int64_t dim, float scale, void *dst,
                  int64_t stride, bool bf16);

/* s[j][i] = value where query i does not see key j: in the squares on the diagonal where the
   head is causal, and in the padding after the last key where it is not; before the first key
   that the query sees; and of keys that the mask takes */
void block_mask(const wf_attention_head *head, float *s, token_block queries, token_block keys,
                float value);
/* s[j][i] = capped(s[j][i]), but for what the causal mask leaves out; before block_mask */
void block_cap(const wf_attention_head *head, float *s, token_block queries, token_block keys);
/* s[j][i] = fma(s[j][i], score_scale, bias[i][j]), but for what the causal mask leaves out */
void block_bias(const wf_attention_head *head, float *s, token_block queries, token_block keys);
/* dbias[i][j] = ds[j][i], every zero +0, but for what the causal mask leaves out */
void block_bias_grad(const wf_attention_head *head, const float *ds, token_block queries,
                     token_block keys);
/* keep[j][i] = 1 / (1 - p) where dropout keeps the probability of key j for query i, else 0 */
void block_keep(const wf_attention_head *head, token_block queries, token_block keys,
                float *keep);

#endif
