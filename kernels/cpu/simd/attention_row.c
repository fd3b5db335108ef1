/*
 * kernels/cpu/simd/attention_row.c - flash attention of one token, the last of those that its
 * keys and values are of: the rows of a cache. The bits are those of
 * kernels/cpu/simd/attention.c, whose header says which chains they are: the same blocks of 64
 * keys, from that of the first token that it sees on, and in them the same order of every sum.
 *
 * Keys and values are read where they lie. 16 keys share a vector, transposed on the way, and
 * the query heads of a group read them together.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include <math.h>

#include "kernels/cpu/denormals_internal.h"
#include "kernels/cpu/vec_math_internal.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    HEADS = 4,   /* query heads that keep their scores of 16 keys in registers */
    VECTORS = 4, /* vectors of an output that stay in registers while values pass by */
};

/* The state of all query heads of a group. */
typedef struct row_state {
    const wf_attention_head *head;
    int64_t heads, width;
    int64_t from;     /* the first key that the token sees */
    float *q;         /* [heads][width], scaled; bf16 numbers are not */
    float *out;       /* [heads][width], not yet divided by l */
    float *s;         /* [heads][BLOCK]: scores, then p */
    float *max, *sum; /* m and l of each head */
    float *rescale;   /* exp(m - m') of each head */
} row_state;

size_t WF_ISA_NAME(wf_attention_row_workspace)(int64_t heads, int64_t dim)
{
    int64_t rows = heads * wf_attention_padded(dim), each = wf_attention_padded(heads);

    return workspace_of(2 * rows + heads * BLOCK + 3 * each);
}

static row_state begin_row(const wf_attention_head *head, int64_t heads, void *workspace)
{
    int64_t width = wf_attention_padded(head->dim);
    float *at = align_line(workspace);
    row_state f = {.head = head,
                   .heads = heads,
                   .width = width,
                   .from = wf_attention_from(NULL, head->window, head->seq - 1)};

    f.q = take(&at, heads * width);
    f.out = take(&at, heads * width);
    f.s = take(&at, heads * BLOCK);
    f.max = take(&at, heads);
    f.sum = take(&at, heads);
    f.rescale = take(&at, heads);
    for (int64_t r = 0; r < heads; r++) {
        f.max[r] = head->sink ? head->sink[r] : -INFINITY;
        f.sum[r] = head->sink ? 1 : 0;
        for (int64_t d = 0; d < head->dim; d += GRAIN)
            v16_store(
                f.q + r * width + d,
                v16_mul(v16_set1(query_scale(head)),
                        load_numbers(head->q, head->bf16, r * head->dim + d, head->dim - d)));
    }
    return f;
}

/* Transposes the features [d, d + 16) of `count` <= 16 keys from `key` on: those of a key are
   in one lane of all vectors. */
ALWAYS_INLINE void transpose_keys(const wf_attention_head *head, const bool bf16, int64_t key,
                                  int64_t count, int64_t d, v16 x[GRAIN])
{
    int64_t stride = head->k_stride, at = key * stride + d, features = head->dim - d;

    for (int64_t j = 0; j < GRAIN; j++, at += stride)
        x[j] = j < count ? load_numbers(head->k, bf16, at, features) : v16_zero();
    v16_transpose(x);
}

/* Adds the products of some features to the sums of n heads. */
ALWAYS_INLINE void add_features(const row_state *f, const float *q, int64_t n, const v16 *x,
                                int64_t first, int64_t step, int64_t features, v16 *sum)
{
    for (int64_t c = first; c < features; c += step) {
        UNROLL
        for (int r = 0; r < HEADS; r++)
            if (r < n)
                sum[r] = v16_fma(x[c], v16_set1(q[r * f->width + c]), sum[r]);
    }
}

/* Scores of `count` <= 16 keys from `key` on, for the heads [first, first + n), n <= HEADS. A
   bf16 product adds the even and the odd terms of 32 features at a time, see
   attention_product.c. */
ALWAYS_INLINE void score_keys(const row_state *f, const bool bf16, int64_t key, int64_t count,
                              int64_t first, int64_t n, float *s)
{
    const wf_attention_head *head = f->head;
    v16 sum[HEADS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    v16 even[HEADS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    v16 odd[HEADS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};

    for (int64_t d = 0; d < head->dim; d += GRAIN) {
        int64_t features = head->dim - d < GRAIN ? head->dim - d : GRAIN;
        const float *q = f->q + first * f->width + d;
        v16 x[GRAIN];

        transpose_keys(head, bf16, key, count, d, x);
        if (!bf16) {
            add_features(f, q, n, x, 0, 1, features, sum);
            continue;
        }
        add_features(f, q, n, x, 0, 2, features, even);
        add_features(f, q, n, x, 1, 2, features, odd);
        if ((d + GRAIN) % BF16_TERMS != 0 && d + GRAIN < head->dim)
            continue;
        for (int r = 0; r < HEADS; r++) {
            sum[r] = v16_add(sum[r], v16_add(even[r], odd[r]));
            even[r] = odd[r] = v16_zero();
        }
    }
    for (int64_t r = 0; r < n && head->cap > 0; r++)
        sum[r] = capped(head, sum[r]);
    for (int64_t r = 0; r < n; r++)
        v16_store(s + (first + r) * BLOCK,
                  v16_select(v16m_first(count), sum[r], v16_set1(-INFINITY)));
}

/* Scores a block of keys; those before the first one are masked like those after the last. */
ALWAYS_INLINE void score_block(const row_state *f, const bool bf16, token_block keys)
{
    for (int64_t j = 0; j < keys.count; j += GRAIN) {
        int64_t count = keys.count - j < GRAIN ? keys.count - j : GRAIN;

        for (int64_t first = 0; first < f->heads; first += HEADS) {
            int64_t n = f->heads - first < HEADS ? f->heads - first : HEADS;

            score_keys(f, bf16, keys.begin + j, count, first, n, f->s + j);
        }
    }
    for (int64_t r = 0; r < f->heads; r++)
        for (int64_t j = keys.begin; j < f->from; j++)
            f->s[r * BLOCK + j - keys.begin] = -INFINITY;
}

/* Makes p of scores, in place; renews m and l. */
static void softmax(const row_state *f, token_block keys)
{
    float scale = softmax_scale(f->head);

    for (int64_t r = 0; r < f->heads; r++) {
        float *s = f->s + r * BLOCK, old = f->max[r], max = s[0], sum;
        float one[GRAIN];

        for (int64_t j = 1; j < keys.count; j++)
            max = max > s[j] ? max : s[j];
        max = old > max * scale ? old : max * scale;
        v16_store(one, v16_exp_or_zero(v16_sub(v16_set1(old), v16_set1(max))));
        for (int64_t j = 0; j < keys.padded; j += GRAIN)
            v16_store(s + j, v16_exp_or_zero(
                                 v16_fma(v16_load(s + j), v16_set1(scale), v16_set1(-max))));
        sum = f->sum[r] * one[0];
        for (int64_t j = 0; j < keys.count; j++)
            sum += s[j];
        for (int64_t j = 0; f->head->bf16 && j < keys.padded; j += GRAIN)
            v16_store(s + j, v16_round_bf16(v16_load(s + j)));
        f->max[r] = max;
        f->sum[r] = sum;
        f->rescale[r] = one[0];
    }
}

/* Adds p * v of the keys [first, count) of a block, or of every second one, to `vectors` sums,
   which are those of the features from d on; whole: all of VECTORS, and no feature is
   missing. */
ALWAYS_INLINE void add_terms(const wf_attention_head *head, const bool bf16, const bool whole,
                             token_block keys, const float *p, int64_t d, int64_t vectors,
                             int64_t first, const int64_t step, int64_t count, v16 sum[VECTORS])
{
    int64_t stride = step * head->v_stride, at = (keys.begin + first) * head->v_stride + d;

    for (int64_t j = first; j < count; j += step, at += stride) {
        v16 weight = v16_set1(p[j]);

        UNROLL
        for (int i = 0; i < VECTORS; i++) {
            int64_t n = whole ? GRAIN : head->dim - d - i * GRAIN;

            if (whole || i < vectors)
                sum[i] =
                    v16_fma(weight, load_numbers(head->v, bf16, at + i * GRAIN, n), sum[i]);
        }
    }
}

/* Adds a block of keys; of a bf16 product, its even and odd terms. */
ALWAYS_INLINE void add_block(const wf_attention_head *head, const bool bf16, const bool whole,
                             token_block keys, const float *p, int64_t d, int64_t vectors,
                             v16 sum[VECTORS])
{
    if (!bf16)
        add_terms(head, false, whole, keys, p, d, vectors, 0, 1, keys.count, sum);
    for (int64_t j = 0; bf16 && j < keys.count; j += BF16_TERMS) {
        int64_t end = j + BF16_TERMS < keys.count ? j + BF16_TERMS : keys.count;
        v16 even[VECTORS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
        v16 odd[VECTORS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};

        add_terms(head, true, whole, keys, p, d, vectors, j, 2, end, even);
        add_terms(head, true, whole, keys, p, d, vectors, j + 1, 2, end, odd);
        UNROLL
        for (int i = 0; i < VECTORS; i++)
            sum[i] = v16_add(sum[i], v16_add(even[i], odd[i]));
    }
}

/* Adds p * v to `vectors` vectors of a head's output, from feature d on. */
ALWAYS_INLINE void add_values(const row_state *f, const bool bf16, token_block keys, int64_t r,
                              int64_t d, int64_t vectors)
{
    const wf_attention_head *head = f->head;
    const float *p = f->s + r * BLOCK;
    float *out = f->out + r * f->width + d;
    bool add = keys.begin > f->from;
    v16 rescale = v16_set1(f->rescale[r]), sum[VECTORS];

    UNROLL
    for (int i = 0; i < VECTORS; i++)
        sum[i] = add && i < vectors ? v16_mul(v16_load(out + i * GRAIN), rescale) : v16_zero();
    if (vectors == VECTORS && d + VECTORS * GRAIN <= head->dim)
        add_block(head, bf16, true, keys, p, d, VECTORS, sum);
    else
        add_block(head, bf16, false, keys, p, d, vectors, sum);
    UNROLL
    for (int i = 0; i < VECTORS; i++)
        if (i < vectors)
            v16_store(out + i * GRAIN, sum[i]);
}

static void finish(const row_state *f, void *out)
{
    for (int64_t r = 0; r < f->heads; r++) {
        v16 factor = v16_div(v16_set1(1), v16_set1(f->sum[r]));

        for (int64_t d = 0; d < f->head->dim; d += GRAIN)
            store_numbers(out, f->head->bf16, r * f->head->dim + d,
                          v16_mul(v16_load(f->out + r * f->width + d), factor),
                          f->head->dim - d);
    }
}

/* Attends; compiled for either type: a test for every vector costs a fifth of the time. */
ALWAYS_INLINE void attend(const row_state *f, const bool bf16)
{
    const wf_attention_head *head = f->head;
    int64_t vectors = f->width / GRAIN;

    for (int64_t key = f->from / BLOCK * BLOCK; key < head->seq; key += BLOCK) {
        token_block keys = block_at(key, head->seq);

        score_block(f, bf16, keys);
        softmax(f, keys);
        for (int64_t r = 0; r < f->heads; r++)
            for (int64_t i = 0; i < vectors; i += VECTORS)
                add_values(f, bf16, keys, r, i * GRAIN,
                           vectors - i < VECTORS ? vectors - i : VECTORS);
    }
}

WF_OUT_OF_LINE static void attend_bf16(const wf_attention_head *head, int64_t heads, void *out,
                                       void *workspace)
{
    row_state f = begin_row(head, heads, workspace);

    attend(&f, true);
    finish(&f, out);
}

void WF_ISA_NAME(wf_attention_row)(const wf_attention_head *head, int64_t heads, void *out,
                                   void *workspace)
{
    if (head->bf16) {
        uint64_t mode = wf_denormals_begin(true);

        attend_bf16(head, heads, out, workspace);
        wf_denormals_end(mode);
    } else {
        row_state f = begin_row(head, heads, workspace);

        attend(&f, false);
        finish(&f, out);
    }
}
