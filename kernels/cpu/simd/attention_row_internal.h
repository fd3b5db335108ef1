/*
 * kernels/cpu/simd/attention_row_internal.h - attention_row.c's state, and the scores of a
 * block of keys.
 *
 * 16 keys share a vector. They are read where they lie, four words of each at a time, which are
 * transposed on the way: features are then taken in order, and each key's sum is one chain.
 */
#ifndef WF_KERNELS_CPU_SIMD_ATTENTION_ROW_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_ATTENTION_ROW_INTERNAL_H

#include "kernels/cpu/simd/attention_block_internal.h"
#include "kernels/cpu/task_size_internal.h"

#include <math.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    HEADS = 4, /* query heads that read a key, or a value, together */
    QUADS = 4, /* words of a key that are transposed at once */
    QUAD = 16, /* their bytes */
    LINE = 64,
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    TILE = 2,        /* vectors of keys whose scores stay in registers */
    VALUE_HEADS = 4, /* heads, and vectors of theirs, whose outputs do while values pass by */
    FLOAT_VECTORS = 4,
    BF16_VECTORS = 2, /* they have an even and an odd sum each */
#else
    TILE = 1,
    VALUE_HEADS = 1,
    FLOAT_VECTORS = 4,
    BF16_VECTORS = 4,
#endif
};

/* The state of all query heads of a group. */
typedef struct row_state {
    const wf_attention_head *head;
    const void *k, *v; /* the group's */
    int64_t heads, width;
    int64_t size;     /* bytes of a number of keys and values */
    int64_t from;     /* the first key that the token sees */
    float *q;         /* [heads][width], scaled; bf16 numbers are not */
    float *out;       /* [heads][width], not yet divided by l */
    float *s;         /* [heads][BLOCK]: scores, then p */
    float *max, *sum; /* m and l of each head */
    float *rescale;   /* exp(m - m') of each head */
    float *padded;    /* [GRAIN][width]: keys of a tile that is not whole */
} row_state;

/* The rows of a tile of keys, and the bytes from one to the next. */
typedef struct key_rows {
    const char *at;
    int64_t stride;
    bool ahead; /* the rows a block further on are prefetched */
} key_rows;

/* Returns the keys from `key` on where they lie, or copies the `count` < 16 that there are, or
   rows that do not end with a quad, and fills them up with zeros. */
static key_rows rows_of_keys(const row_state *f, int64_t key, int64_t count)
{
    const wf_attention_head *head = f->head;
    int64_t row = head->dim * f->size, stride = head->k_stride * f->size;
    const char *at = (const char *)f->k + key * stride;
    char *to = (char *)f->padded;

    if (count >= GRAIN && row % (QUADS * (int64_t)sizeof(float)) == 0)
        return (key_rows){at, stride, key + BLOCK < head->seq};
    memset(to, 0, (size_t)(GRAIN * f->width * f->size));
    for (int64_t j = 0; j < wf_least(count, GRAIN); j++)
        memcpy(to + j * f->width * f->size, at + j * stride, (size_t)row);
    return (key_rows){to, f->width * f->size, false};
}

/* Prefetches a fourth of the lines that `tile` x 16 keys a block further on have at a quad:
   four quads are a line. */
ALWAYS_INLINE void prefetch_quads(key_rows keys, int64_t byte, const int tile)
{
    const char *row =
        keys.at + (BLOCK + byte / QUAD % QUADS) * keys.stride + byte / LINE * LINE;

    UNROLL
    for (int i = 0; i < tile * GRAIN / QUADS; i++, row += QUADS * keys.stride)
        __builtin_prefetch(row, 0, 2);
}

/* Loads four words of 16 keys: word i of all keys is x[i]. */
ALWAYS_INLINE void load_quads(const char *row, int64_t stride, v16u x[QUADS])
{
    UNROLL
    for (int i = 0; i < QUADS; i++, row += stride) {
        __asm__("" : "+r"(row)); /* 16 addresses would take more registers than there are */
        x[i] = v16u_load_quarters(row, stride);
    }
    v16u_transpose4(x);
}

/* Scores of `tile` x 16 keys for n heads, whose queries begin at q: s[r][keys]. */
ALWAYS_INLINE void score_floats(const row_state *f, key_rows keys, const int tile,
                                const float *q, const int n, float *s)
{
    v16 sum[TILE][HEADS];

    for (int t = 0; t < tile; t++)
        for (int r = 0; r < n; r++)
            sum[t][r] = v16_zero();
    for (int64_t d = 0; d < f->head->dim; d += QUADS) {
        int64_t byte = d * (int64_t)sizeof(float);
        v16u x[TILE][QUADS];

        if (keys.ahead)
            prefetch_quads(keys, byte, tile);
        UNROLL
        for (int t = 0; t < tile; t++)
            load_quads(keys.at + t * GRAIN * keys.stride + byte, keys.stride, x[t]);
        UNROLL
        for (int i = 0; i < QUADS; i++) {
            UNROLL
            for (int r = 0; r < n; r++) {
                UNROLL
                for (int t = 0; t < tile; t++)
                    sum[t][r] =
                        v16_fma(v16_of(x[t][i]), v16_set1(q[r * f->width + d + i]), sum[t][r]);
            }
        }
    }
    for (int t = 0; t < tile; t++)
        for (int r = 0; r < n; r++)
            v16_store(s + r * BLOCK + t * GRAIN, sum[t][r]);
}

/* The same of 16 keys of bf16: a product adds the even and the odd terms of 32 features at a
   time, see attention_product.c. */
ALWAYS_INLINE void score_bf16(const row_state *f, key_rows keys, const float *q, const int n,
                              float *s)
{
    v16 sum[HEADS];

    for (int r = 0; r < n; r++)
        sum[r] = v16_zero();
    for (int64_t first = 0; first < f->head->dim; first += BF16_TERMS) {
        v16 even[HEADS], odd[HEADS];
        int64_t end = wf_least(first + BF16_TERMS, f->head->dim);

        for (int r = 0; r < n; r++)
            even[r] = odd[r] = v16_zero();
        for (int64_t d = first; d < end; d += 2 * QUADS) {
            v16u x[QUADS];

            if (keys.ahead)
                prefetch_quads(keys, d * (int64_t)sizeof(uint16_t), 1);
            load_quads(keys.at + d * (int64_t)sizeof(uint16_t), keys.stride, x);
            UNROLL
            for (int i = 0; i < QUADS; i++) {
                v16 low = v16_of(v16u_left(x[i], 16));
                v16 high = v16_of(v16u_and(x[i], v16u_set1(0xffff0000u)));
                const float *at = q + d + 2 * i;

                UNROLL
                for (int r = 0; r < n; r++) {
                    even[r] = v16_fma(low, v16_set1(at[r * f->width]), even[r]);
                    odd[r] = v16_fma(high, v16_set1(at[r * f->width + 1]), odd[r]);
                }
            }
        }
        for (int r = 0; r < n; r++)
            sum[r] = v16_add(sum[r], v16_add(even[r], odd[r]));
    }
    for (int r = 0; r < n; r++)
        v16_store(s + r * BLOCK, sum[r]);
}

/* Scores of a tile, for n heads from the first on. */
ALWAYS_INLINE void score_heads(const row_state *f, const bool bf16, key_rows keys,
                               const int tile, int64_t first, const int n, float *s)
{
    const float *q = f->q + first * f->width;

    if (bf16)
        score_bf16(f, keys, q, n, s + first * BLOCK);
    else
        score_floats(f, keys, tile, q, n, s + first * BLOCK);
}

/* Scores of a tile, for all heads. */
ALWAYS_INLINE void score_tile(const row_state *f, const bool bf16, key_rows keys,
                              const int tile, float *s)
{
    int64_t r = 0;

    for (; r + HEADS <= f->heads; r += HEADS, keys.ahead = false)
        score_heads(f, bf16, keys, tile, r, HEADS, s);
    if (f->heads - r == 3)
        score_heads(f, bf16, keys, tile, r, 3, s);
    else if (f->heads - r == 2)
        score_heads(f, bf16, keys, tile, r, 2, s);
    else if (f->heads - r == 1)
        score_heads(f, bf16, keys, tile, r, 1, s);
}

/* Scores a block of keys, and prefetches the next one; those before the first key are masked
   like those after the last. */
ALWAYS_INLINE void score_block(const row_state *f, const bool bf16, token_block keys)
{
    const wf_attention_head *head = f->head;

    for (int64_t j = 0; j < keys.count;) {
        key_rows rows = rows_of_keys(f, keys.begin + j, keys.count - j);
        bool wide = TILE > 1 && !bf16 && j + TILE * GRAIN <= keys.count &&
                    rows.at != (const char *)f->padded;
        int64_t step = wide ? TILE * GRAIN : GRAIN;

        if (wide)
            score_tile(f, bf16, rows, TILE, f->s + j);
        else
            score_tile(f, bf16, rows, 1, f->s + j);
        j += step;
    }
    for (int64_t r = 0; r < f->heads; r++) {
        float *s = f->s + r * BLOCK;

        for (int64_t j = 0; j < keys.padded && head->cap > 0; j += GRAIN)
            v16_store(s + j, capped(head, v16_load(s + j)));
        for (int64_t j = keys.count; j < keys.padded; j++)
            s[j] = -INFINITY;
        for (int64_t j = keys.begin; j < f->from; j++)
            s[j - keys.begin] = -INFINITY;
    }
}

#endif
