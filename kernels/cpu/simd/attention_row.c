/*
 * kernels/cpu/simd/attention_row.c - flash attention of one token, the last of those that its keys
 * and values are of: the rows of a cache. The bits are those of kernels/cpu/simd/attention.c, whose
 * header says which chains they are: the same blocks of 64 keys, from that of the first token that it
 * sees on, and in them the same order of every sum.
 *
 * Keys and values are read where they lie. 16 keys share a vector, transposed on the way, and the
 * query heads of a group read them together.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include <math.h>

#include "kernels/cpu/vec_math_internal.h"

enum {
    HEADS = 4,   /* query heads that keep their scores of 16 keys in registers */
    VECTORS = 4, /* vectors of an output that stay in registers while values pass by */
};

/* What all query heads of a group keep. */
typedef struct row_state {
    const wf_attention_head *head;
    int64_t heads, width;
    int64_t from;     /* the first key that the token sees */
    float *q;         /* [heads][width], scaled */
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
        f.max[r] = -INFINITY;
        f.sum[r] = 0;
        for (int64_t d = 0; d < head->dim; d += GRAIN)
            v16_store(f.q + r * width + d,
                      v16_mul(v16_set1(head->scale),
                              v16_load_n(head->q + r * head->dim + d, head->dim - d)));
    }
    return f;
}

/* Scores of `count` <= 16 keys from `key` on, for the heads [first, first + n), n <= HEADS. */
static void score_keys(const row_state *f, int64_t key, int64_t count, int64_t first, int64_t n,
                       float *s)
{
    const wf_attention_head *head = f->head;
    const float *k = head->k + key * head->k_stride;
    v16 sum[HEADS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};

    for (int64_t d = 0; d < head->dim; d += GRAIN) {
        int64_t features = head->dim - d < GRAIN ? head->dim - d : GRAIN;
        const float *q = f->q + first * f->width + d;
        v16 x[GRAIN];

        for (int64_t j = 0; j < GRAIN; j++)
            x[j] = j < count ? v16_load_n(k + j * head->k_stride + d, features) : v16_zero();
        v16_transpose(x);
        for (int64_t c = 0; c < features; c++) {
            UNROLL
            for (int r = 0; r < HEADS; r++)
                if (r < n)
                    sum[r] = v16_fma(x[c], v16_set1(q[r * f->width + c]), sum[r]);
        }
    }
    for (int64_t r = 0; r < n; r++)
        v16_store(s + (first + r) * BLOCK,
                  v16_select(v16m_first(count), sum[r], v16_set1(-INFINITY)));
}

/* Keys of a block that are before the first one count as little as those behind the last. */
static void score_block(const row_state *f, token_block keys)
{
    for (int64_t j = 0; j < keys.count; j += GRAIN) {
        int64_t count = keys.count - j < GRAIN ? keys.count - j : GRAIN;

        for (int64_t first = 0; first < f->heads; first += HEADS) {
            int64_t n = f->heads - first < HEADS ? f->heads - first : HEADS;

            score_keys(f, keys.begin + j, count, first, n, f->s + j);
        }
    }
    for (int64_t r = 0; r < f->heads; r++)
        for (int64_t j = keys.begin; j < f->from; j++)
            f->s[r * BLOCK + j - keys.begin] = -INFINITY;
}

/* From scores to p, in place; renews m and l. */
static void softmax(const row_state *f, token_block keys)
{
    for (int64_t r = 0; r < f->heads; r++) {
        float *s = f->s + r * BLOCK, old = f->max[r], max = old, sum;
        float one[GRAIN];

        for (int64_t j = 0; j < keys.count; j++)
            max = max > s[j] ? max : s[j];
        v16_store(one, v16_exp_or_zero(v16_sub(v16_set1(old), v16_set1(max))));
        for (int64_t j = 0; j < keys.padded; j += GRAIN)
            v16_store(s + j, v16_exp_or_zero(v16_sub(v16_load(s + j), v16_set1(max))));
        sum = f->sum[r] * one[0];
        for (int64_t j = 0; j < keys.count; j++)
            sum += s[j];
        f->max[r] = max;
        f->sum[r] = sum;
        f->rescale[r] = one[0];
    }
}

/* Adds p * v to `vectors` vectors of a head's output, from feature d on. */
static void add_values(const row_state *f, token_block keys, int64_t r, int64_t d,
                       int64_t vectors)
{
    const wf_attention_head *head = f->head;
    const float *v = head->v + keys.begin * head->v_stride + d, *p = f->s + r * BLOCK;
    float *out = f->out + r * f->width + d;
    v16 sum[VECTORS] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};

    for (int64_t i = 0; keys.begin > f->from && i < vectors; i++)
        sum[i] = v16_mul(v16_load(out + i * GRAIN), v16_set1(f->rescale[r]));
    if (vectors == VECTORS && d + VECTORS * GRAIN <= head->dim) {
        for (int64_t j = 0; j < keys.count; j++, v += head->v_stride) {
            UNROLL
            for (int i = 0; i < VECTORS; i++)
                sum[i] = v16_fma(v16_set1(p[j]), v16_load(v + i * GRAIN), sum[i]);
        }
    } else {
        for (int64_t j = 0; j < keys.count; j++, v += head->v_stride)
            for (int64_t i = 0; i < vectors; i++)
                sum[i] = v16_fma(v16_set1(p[j]),
                                 v16_load_n(v + i * GRAIN, head->dim - d - i * GRAIN), sum[i]);
    }
    for (int64_t i = 0; i < vectors; i++)
        v16_store(out + i * GRAIN, sum[i]);
}

static void finish(const row_state *f, float *out)
{
    for (int64_t r = 0; r < f->heads; r++) {
        v16 factor = v16_div(v16_set1(1), v16_set1(f->sum[r]));

        for (int64_t d = 0; d < f->head->dim; d += GRAIN)
            v16_store_n(
                out + r * f->head->dim + d,
                v16_add(v16_mul(v16_load(f->out + r * f->width + d), factor), v16_zero()),
                f->head->dim - d);
    }
}

void WF_ISA_NAME(wf_attention_row)(const wf_attention_head *head, int64_t heads, float *out,
                                   void *workspace)
{
    row_state f = begin_row(head, heads, workspace);
    int64_t vectors = f.width / GRAIN;

    for (int64_t key = f.from / BLOCK * BLOCK; key < head->seq; key += BLOCK) {
        token_block keys = block_at(key, head->seq);

        score_block(&f, keys);
        softmax(&f, keys);
        for (int64_t r = 0; r < heads; r++)
            for (int64_t i = 0; i < vectors; i += VECTORS)
                add_values(&f, keys, r, i * GRAIN,
                           vectors - i < VECTORS ? vectors - i : VECTORS);
    }
    finish(&f, out);
}
