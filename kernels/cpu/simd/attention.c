/*
 * kernels/cpu/simd/attention.c - causal attention of one head, forward, in blocks of 64 queries
 * by 64 keys; attention_grad.c is its gradient.
 *
 * For query i, over the keys j <= i (chain: one fma after the other, in ascending order):
 *
 *     s[j]   = chain over d of k[j][d] * (scale * q[i][d])
 *     m      = max of s, p[j] = exp(s[j] - m), l = sum of p
 *     out    = (chain over j of p[j] * v[j]) / l, with dropout of keep[j] * p[j] * v[j]
 *     lse    = m + log(l)
 *
 * The keys come in blocks 0..63, 64..127, ... and m, l and the chain are renewed block by
 * block: m' = max(m, s of the block), l and out are multiplied by exp(m - m'), then the block's
 * terms are added, j ascending. A key after the query has p = 0 there. So the bits are a
 * function of the rows 0..i alone, whatever the instruction set; only the dropout mask knows
 * seq.
 */
#include "kernels/cpu/simd/attention_block.h"

#include <math.h>

#include "core/math.h"
#include "kernels/cpu/vec_math.h"

/* What one block of queries keeps while its keys pass by. */
typedef struct query_state {
    const wf_attention_head *head;
    token_block queries;
    float *qt;        /* [dim][BLOCK], scaled */
    float *k, *v;     /* [BLOCK][width], of the block of keys */
    float *s, *keep;  /* [BLOCK keys][BLOCK queries] */
    float *out;       /* [BLOCK][width], not yet divided by l */
    float *max, *sum; /* m and l of each query */
    float *rescale;   /* exp(m - m') of each query */
} query_state;

size_t WF_ISA_NAME(wf_attention_workspace)(int64_t seq, int64_t dim)
{
    int64_t packed = BLOCK * to_grain(dim), scores = BLOCK * BLOCK;
    int64_t grad = 9 * packed + 3 * scores + 2 * BLOCK; /* more than the forward pass takes */

    (void)seq;
    return (size_t)(grad + GRAIN) * sizeof(float);
}

/* From scores to p, or keep * p, in place; renews m and l, and says by what the output is to be
 * rescaled. */
static void softmax(query_state *f, token_block keys)
{
    bool dropout = f->head->dropout > 0;

    for (int64_t i = 0; i < f->queries.padded; i += GRAIN) {
        v16 old = v16_load(f->max + i), max = old, sum;

        for (int64_t j = 0; j < keys.padded; j++)
            max = v16_max(max, v16_load(f->s + j * BLOCK + i));
        old = v16_exp(v16_sub(old, max));
        sum = v16_mul(v16_load(f->sum + i), old);
        for (int64_t j = 0; j < keys.padded; j++) {
            int64_t at = j * BLOCK + i;
            v16 p = v16_exp(v16_sub(v16_load(f->s + at), max));

            sum = v16_add(sum, p);
            v16_store(f->s + at, dropout ? v16_mul(p, v16_load(f->keep + at)) : p);
        }
        v16_store(f->max + i, max);
        v16_store(f->sum + i, sum);
        v16_store(f->rescale + i, old);
    }
}

static void rescale_out(query_state *f, int64_t width)
{
    for (int64_t i = 0; i < f->queries.padded; i++) {
        v16 factor = v16_set1(f->rescale[i]);
        float *row = f->out + i * width;

        for (int64_t d = 0; d < width; d += GRAIN)
            v16_store(row + d, v16_mul(v16_load(row + d), factor));
    }
}

static void add_keys(query_state *f, token_block keys)
{
    const wf_attention_head *head = f->head;
    int64_t queries = f->queries.padded, dim = head->dim, width = to_grain(dim);
    bool diagonal = keys.begin == f->queries.begin;
    block_product scores = {
        .m = keys.padded,
        .n = queries,
        .k = dim,
        .a = f->k,
        .a_stride = width,
        .b = f->qt,
        .b_stride = BLOCK,
        .c = f->s,
        .c_stride = BLOCK,
        .part = diagonal ? PART_COLUMNS_FROM_ROW : PART_ALL,
    };
    block_product values = {
        .m = queries,
        .n = width,
        .k = keys.padded,
        .a = f->s,
        .b = f->v,
        .b_stride = width,
        .c = f->out,
        .c_stride = width,
        .add = keys.begin > 0,
        .part = diagonal ? PART_TERMS_TO_ROW : PART_ALL,
    };

    block_pack(head->k, head->k_stride, keys, dim, 1, f->k);
    block_pack(head->v, head->v_stride, keys, dim, 1, f->v);
    block_product_rows(&scores);
    if (diagonal)
        block_mask(f->s, keys.padded, -INFINITY);
    if (head->dropout > 0)
        block_keep(head, f->queries, keys, f->keep);
    softmax(f, keys);
    if (keys.begin > 0)
        rescale_out(f, width);
    block_product_columns(&values);
}

static void finish(query_state *f, float *out, int64_t out_stride, float *lse)
{
    int64_t dim = f->head->dim, width = to_grain(dim);

    for (int64_t i = 0; i < f->queries.count; i++) {
        float *to = out + (f->queries.begin + i) * out_stride;
        v16 sum = v16_set1(f->sum[i]);

        for (int64_t d = 0; d < dim; d += GRAIN) {
            v16 x = v16_div(v16_load(f->out + i * width + d), sum);

            v16_store_n(to + d, x, dim - d < GRAIN ? dim - d : GRAIN);
        }
        lse[f->queries.begin + i] = f->max[i] + wf_logf(f->sum[i]);
    }
}

void WF_ISA_NAME(wf_attention)(const wf_attention_head *head, float *out, int64_t out_stride,
                               float *lse, void *workspace)
{
    int64_t packed = BLOCK * to_grain(head->dim);
    float *at = align_line(workspace);
    query_state f = {.head = head};
    float *q;

    f.qt = take(&at, packed);
    f.k = take(&at, packed);
    f.v = take(&at, packed);
    f.out = take(&at, packed);
    f.s = take(&at, BLOCK * BLOCK);
    f.keep = take(&at, BLOCK * BLOCK);
    f.max = take(&at, BLOCK);
    f.sum = take(&at, BLOCK);
    f.rescale = take(&at, BLOCK);
    q = f.out; /* free until the first block of keys */
    for (int64_t begin = 0; begin < head->seq; begin += BLOCK) {
        f.queries = block_at(begin, head->seq);
        block_pack(head->q, head->q_stride, f.queries, head->dim, head->scale, q);
        block_transpose(q, f.queries, head->dim, f.qt);
        for (int64_t i = 0; i < BLOCK; i++) {
            f.max[i] = -INFINITY;
            f.sum[i] = 0;
        }
        for (int64_t key = 0; key <= begin; key += BLOCK)
            add_keys(&f, block_at(key, head->seq));
        finish(&f, out, out_stride, lse);
    }
}
