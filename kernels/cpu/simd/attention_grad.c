/*
 * kernels/cpu/simd/attention_grad.c - gradient of causal attention of one head, in one pass
 * over the blocks of attention.c. The probabilities are made again from the saved lse.
 *
 * For query i and key j <= i (chain: one fma after the other, in ascending order):
 *
 *     p      = exp(s - lse[i]), s as in the forward pass; keep is 1 without dropout
 *     g      = keep * (chain over d of v[j][d] * dout[i][d])
 *     ds     = p * (g - delta[i]), delta[i] = sum over d of dout * out, in 16 lanes of fma
 *     dv[j]  = chain over i of (keep * p) * dout[i]
 *     dk[j]  = chain over i of ds * (scale * q[i])
 *     dq[i]  = scale * (chain over j of ds * k[j])
 *
 * Queries are the outer loop: theirs are the operands that need a transpose. A block of dk and
 * dv is taken up from the caller's rows and put back for each block of queries, which leaves
 * the chains over i as they are and the scratch small.
 */
#include "kernels/cpu/simd/attention_block.h"

#include <math.h>

#include "kernels/cpu/vec_math.h"

/* Blocks of queries are [BLOCK][width], their transposes [dim][BLOCK], scores [keys][queries].
 */
typedef struct grad_state {
    const wf_attention_head *head;
    token_block queries;
    float *q, *qt, *dout, *dout_t; /* q is scaled */
    float *lse, *delta;
    float *k, *v;
    float *s, *ds, *keep;
    float *dq, *dk, *dv;
} grad_state;

static grad_state carve(const wf_attention_head *head, void *workspace)
{
    int64_t packed = BLOCK * to_grain(head->dim);
    float *at = align_line(workspace);
    grad_state f = {.head = head};
    float **const blocks[] = {&f.q, &f.qt, &f.dout, &f.dout_t, &f.k, &f.v, &f.dq, &f.dk, &f.dv};
    float **const scores[] = {&f.s, &f.ds, &f.keep};

    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        *blocks[b] = take(&at, packed);
    for (size_t b = 0; b < sizeof scores / sizeof *scores; b++)
        *scores[b] = take(&at, BLOCK * BLOCK);
    f.lse = take(&at, BLOCK);
    f.delta = take(&at, BLOCK);
    return f;
}

static void load_queries(grad_state *f, const float *out, int64_t out_stride, const float *lse,
                         const float *dout, int64_t dout_stride)
{
    const wf_attention_head *head = f->head;
    token_block queries = f->queries;
    int64_t dim = head->dim, width = to_grain(dim);

    block_pack(head->q, head->q_stride, queries, dim, head->scale, f->q);
    block_pack(dout, dout_stride, queries, dim, 1, f->dout);
    block_transpose(f->q, queries, dim, f->qt);
    block_transpose(f->dout, queries, dim, f->dout_t);
    /* Padding has scores and gradients of zero: with an lse of 0 it adds nothing anywhere. */
    for (int64_t i = 0; i < queries.padded; i++)
        f->lse[i] = f->delta[i] = 0;
    for (int64_t i = 0; i < queries.count; i++) {
        const float *row = out + (queries.begin + i) * out_stride;
        v16 sum = v16_zero();

        for (int64_t d = 0; d < dim; d += GRAIN) {
            v16 x = v16_load_n(row + d, dim - d < GRAIN ? dim - d : GRAIN);

            sum = v16_fma(x, v16_load(f->dout + i * width + d), sum);
        }
        f->lse[i] = lse[queries.begin + i];
        f->delta[i] = v16_sum(sum);
    }
}

/* In place: from scores to keep * p, and from the gradient of keep * p to that of scores. */
static void softmax_grad(grad_state *f, token_block keys)
{
    bool dropout = f->head->dropout > 0;

    for (int64_t i = 0; i < f->queries.padded; i += GRAIN) {
        v16 lse = v16_load(f->lse + i), delta = v16_load(f->delta + i);

        for (int64_t j = 0; j < keys.padded; j++) {
            int64_t at = j * BLOCK + i;
            v16 p = v16_exp(v16_sub(v16_load(f->s + at), lse)), kept = p;
            v16 g = v16_load(f->ds + at);

            if (dropout) {
                v16 keep = v16_load(f->keep + at);

                kept = v16_mul(keep, p);
                g = v16_mul(keep, g);
            }
            v16_store(f->s + at, kept);
            v16_store(f->ds + at, v16_mul(p, v16_sub(g, delta)));
        }
    }
}

/* keep * p and ds of the block, from packed queries and keys */
static void make_scores(grad_state *f, token_block keys, bool diagonal)
{
    int64_t width = to_grain(f->head->dim);
    block_product scores = {
        .m = keys.padded,
        .n = f->queries.padded,
        .k = f->head->dim,
        .a = f->k,
        .a_stride = width,
        .b = f->qt,
        .b_stride = BLOCK,
        .c = f->s,
        .c_stride = BLOCK,
        .part = diagonal ? PART_COLUMNS_FROM_ROW : PART_ALL,
    };

    block_product_rows(&scores);
    scores.a = f->v;
    scores.b = f->dout_t;
    scores.c = f->ds;
    block_product_rows(&scores);
    if (diagonal) {
        block_mask(f->s, keys.padded, -INFINITY);
        block_mask(f->ds, keys.padded, 0);
    }
    if (f->head->dropout > 0)
        block_keep(f->head, f->queries, keys, f->keep);
    softmax_grad(f, keys);
}

/* Add the block's share to dq, dk and dv; the diagonal is the first that dk and dv see. */
static void add_products(grad_state *f, token_block keys, bool diagonal)
{
    int64_t width = to_grain(f->head->dim);
    block_product g = {
        .m = keys.padded,
        .n = width,
        .k = f->queries.padded,
        .a = f->s,
        .a_stride = BLOCK,
        .b = f->dout,
        .b_stride = width,
        .c = f->dv,
        .c_stride = width,
        .add = !diagonal,
        .part = diagonal ? PART_TERMS_FROM_ROW : PART_ALL,
    };

    block_product_rows(&g);
    g.a = f->ds;
    g.b = f->q;
    g.c = f->dk;
    block_product_rows(&g);
    g.m = f->queries.padded;
    g.k = keys.padded;
    g.b = f->k;
    g.c = f->dq;
    g.add = keys.begin > 0;
    g.part = diagonal ? PART_TERMS_TO_ROW : PART_ALL;
    block_product_columns(&g);
}

void WF_ISA_NAME(wf_attention_grad)(const wf_attention_head *head, const float *out,
                                    int64_t out_stride, const float *lse, const float *dout,
                                    int64_t dout_stride, float *dq, int64_t dq_stride,
                                    float *dk, int64_t dk_stride, float *dv, int64_t dv_stride,
                                    void *workspace)
{
    grad_state f = carve(head, workspace);
    int64_t dim = head->dim;

    for (int64_t begin = 0; begin < head->seq; begin += BLOCK) {
        f.queries = block_at(begin, head->seq);
        load_queries(&f, out, out_stride, lse, dout, dout_stride);
        for (int64_t key = 0; key <= begin; key += BLOCK) {
            token_block keys = block_at(key, head->seq);
            bool diagonal = key == begin;

            block_pack(head->k, head->k_stride, keys, dim, 1, f.k);
            block_pack(head->v, head->v_stride, keys, dim, 1, f.v);
            if (!diagonal) {
                block_pack(dk, dk_stride, keys, dim, 1, f.dk);
                block_pack(dv, dv_stride, keys, dim, 1, f.dv);
            }
            make_scores(&f, keys, diagonal);
            add_products(&f, keys, diagonal);
            block_unpack(f.dk, keys, dim, 1, dk, dk_stride);
            block_unpack(f.dv, keys, dim, 1, dv, dv_stride);
        }
        block_unpack(f.dq, f.queries, dim, head->scale, dq, dq_stride);
    }
}
