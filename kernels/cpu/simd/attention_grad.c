/*
 * kernels/cpu/simd/attention_grad.c - gradient of flash attention of one head, in one pass over
 * the blocks of attention.c. The probabilities are recomputed from the saved lse.
 *
 * For query i and key j <= i, or any key where the head is bidirectional (chain: one fma after
 * the other, in ascending order):
 *
 *     p      = exp(s - lse[i]), or +0 below exp(-87), s as in the forward pass
 *     g      = keep * (chain over d of v[j][d] * dout[i][d]); keep is 1 without dropout
 *     ds     = p * (g - delta[i]), delta[i] = sum over d of dout * out, in 16 lanes of fma
 *     dv[j]  = chain over i of (keep * p) * dout[i]
 *     dk[j]  = chain over i of ds * (scale * q[i])
 *     dq[i]  = scale * (chain over j of ds * k[j])
 *
 * Of bf16 numbers all chains but that of delta are bf16 products (attention_product.c), of p as
 * attention.c has it; factors are keep * p and scale * ds, rounded to bf16, and neither q nor
 * dq is scaled. Denormals are zeros.
 *
 * With a cap c, s is that under it and ds is multiplied by 1 - (s / c)^2.
 *
 * Keys before from[i] are left out, or have p = +0, as in attention.c. The gradient of a bias
 * is ds.
 *
 * A gradient of some of the tokens takes the blocks of theirs alone, as queries and as keys, in
 * the order of all.
 *
 * Queries are the outer loop. Keys and values are packed once for the head; dk and dv stay
 * packed with the caller.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/denormals_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* The state of a gradient. For the whole head: k, blocks of kt and vt. For a block of queries:
   rows q (scaled) and dout, and their columns. Scores are [BLOCK keys][BLOCK queries]. */
typedef struct grad_state {
    const wf_attention_head *head;
    token_block queries;
    int64_t keys_begin; /* beginning of the first block of keys that they see */
    block_ahead ahead;
    int64_t width;
    float *k, *kt, *vt;
    float *q, *qt, *dout, *dout_t, *dq;
    float *lse, *delta;
    float *s, *ds, *keep;
    float *dk, *dv; /* the caller's */
} grad_state;

enum { HEAD_BLOCKS = 3, QUERY_BLOCKS = 5, SCORE_BLOCKS = 3 };

static grad_state carve(const wf_attention_head *head, void *workspace)
{
    int64_t width = wf_attention_padded(head->dim), all = head_floats(head->keys, head->dim);
    float *at = align_line(workspace);
    grad_state f = {.head = head, .width = width};
    float **const whole[HEAD_BLOCKS] = {&f.k, &f.kt, &f.vt};
    float **const blocks[QUERY_BLOCKS] = {&f.q, &f.qt, &f.dout, &f.dout_t, &f.dq};
    float **const scores[SCORE_BLOCKS] = {&f.s, &f.ds, &f.keep};

    for (int b = 0; b < HEAD_BLOCKS; b++)
        *whole[b] = take(&at, all);
    for (int b = 0; b < QUERY_BLOCKS; b++)
        *blocks[b] = take(&at, BLOCK * width);
    for (int b = 0; b < SCORE_BLOCKS; b++)
        *scores[b] = take(&at, BLOCK * BLOCK);
    f.lse = take(&at, BLOCK);
    f.delta = take(&at, BLOCK);
    return f;
}

size_t WF_ISA_NAME(wf_attention_grad_workspace)(int64_t keys, int64_t dim)
{
    int64_t all = head_floats(keys, dim), packed = BLOCK * wf_attention_padded(dim);

    return workspace_of(HEAD_BLOCKS * all + QUERY_BLOCKS * packed +
                        SCORE_BLOCKS * BLOCK * BLOCK + 2 * BLOCK);
}

static void load_keys(grad_state *f, token_block t)
{
    const wf_attention_head *head = f->head;
    const token_rows k = {head->k, head->k_stride, head->bf16};
    const token_rows v = {head->v, head->v_stride, head->bf16};
    int64_t at = t.begin * f->width;

    block_pack(k, t, head->dim, 1, f->k + at);
    block_pack_columns(k, t, head->dim, 1, f->kt + at);
    block_pack_columns(v, t, head->dim, 1, f->vt + at);
}

static void load_queries(grad_state *f, token_rows out, const float *lse, token_rows dout)
{
    const wf_attention_head *head = f->head;
    const token_rows q = {head->q, head->q_stride, head->bf16};
    token_block t = f->queries;
    int64_t dim = head->dim;

    block_pack(q, t, dim, query_scale(head), f->q);
    block_pack_columns(q, t, dim, query_scale(head), f->qt);
    block_pack(dout, t, dim, 1, f->dout);
    block_pack_columns(dout, t, dim, 1, f->dout_t);
    /* Padding has scores and gradients of zero: with an lse of 0 it adds nothing anywhere. */
    for (int64_t i = 0; i < t.padded; i++)
        f->lse[i] = f->delta[i] = 0;
    for (int64_t i = 0; i < t.count; i++) {
        v16 sum = v16_zero();

        for (int64_t d = 0; d < dim; d += GRAIN)
            sum =
                v16_fma(load_numbers(out.x, out.bf16, (t.begin + i) * out.stride + d, dim - d),
                        v16_load(f->dout + i * f->width + d), sum);
        f->lse[i] = lse[t.begin + i];
        f->delta[i] = v16_sum(sum);
    }
}

/* In place: from scores to keep * p, and from the gradient of keep * p to that of scores. Where
   a bias's gradient is wanted, `keep` has ds afterwards, neither scaled nor rounded. */
static void softmax_grad(grad_state *f, token_block keys, bool diagonal)
{
    bool dropout = f->head->dropout > 0, bf16 = f->head->bf16, biased = f->head->dbias;
    v16 scale = v16_set1(score_scale(f->head)), s_scale = v16_set1(softmax_scale(f->head));

    for (int64_t i = 0; i < f->queries.padded; i += GRAIN) {
        int64_t end = diagonal && i + GRAIN < keys.padded ? i + GRAIN : keys.padded;
        v16 less = v16_neg(v16_load(f->lse + i)), delta = v16_load(f->delta + i);

        for (int64_t j = 0; j < end; j++) {
            int64_t at = j * BLOCK + i;
            v16 s = v16_load(f->s + at), p = v16_exp_or_zero(v16_fma(s, s_scale, less)),
                kept = p;
            v16 g = v16_load(f->ds + at), ds;

            if (dropout) {
                v16 keep = v16_load(f->keep + at);

                kept = v16_mul(keep, p);
                g = v16_mul(keep, g);
            }
            ds = v16_mul(p, v16_sub(g, delta));
            if (f->head->cap > 0)
                ds = v16_mul(ds, capped_slope(f->head, s));
            if (biased)
                v16_store(f->keep + at, ds);
            v16_store(f->s + at, bf16 ? v16_round_bf16(kept) : kept);
            v16_store(f->ds + at, bf16 ? v16_round_bf16(v16_mul(scale, ds)) : ds);
        }
    }
}

/* keep * p and ds of the block */
static void make_scores(grad_state *f, token_block keys, bool diagonal)
{
    block_product scores = {
        .bf16 = f->head->bf16,
        .product = f->head->product,
        .m = keys.padded,
        .n = f->queries.padded,
        .k = f->head->bf16 ? f->width : f->head->dim,
        .a = f->kt + keys.begin * f->width,
        .b = f->qt,
        .b_stride = BLOCK,
        .c = f->s,
        .c_stride = BLOCK,
        .part = diagonal ? PART_COLUMNS_FROM_ROW : PART_ALL,
        .ahead = &f->ahead,
    };

    block_product_columns(&scores);
    scores.a = f->vt + keys.begin * f->width;
    scores.b = f->dout_t;
    scores.c = f->ds;
    block_product_columns(&scores);
    if (f->head->bias)
        block_bias(f->head, f->s, f->queries, keys);
    if (f->head->cap > 0)
        block_cap(f->head, f->s, f->queries, keys);
    block_mask(f->head, f->s, f->queries, keys, -INFINITY);
    block_mask(f->head, f->ds, f->queries, keys, 0);
    if (f->head->dropout > 0)
        block_keep(f->head, f->queries, keys, f->keep);
    softmax_grad(f, keys, diagonal);
    if (f->head->dbias)
        block_bias_grad(f->head, f->keep, f->queries, keys);
}

/* Returns true for a block with tokens of which gradients are asked for. */
static bool has_own(const wf_attention_head *head, token_block t)
{
    return !head->own_end || (t.begin + BLOCK > head->own && t.begin < head->own_end);
}

/* Adds the block's share to dk and dv. */
static void add_to_keys(grad_state *f, token_block keys, bool diagonal)
{
    bool first = diagonal || f->queries.begin == 0; /* block of queries that sees these keys */
    int64_t at = keys.begin * f->width;
    block_product g = {
        .bf16 = f->head->bf16,
        .product = f->head->product,
        .m = keys.padded,
        .n = f->width,
        .k = f->queries.padded,
        .a = f->s,
        .b = f->dout,
        .b_stride = f->width,
        .c = f->dv + at,
        .c_stride = f->width,
        .add = !first,
        .part = diagonal ? PART_TERMS_FROM_ROW : PART_ALL,
        .ahead = &f->ahead,
    };

    block_product_rows(&g);
    g.a = f->ds;
    g.b = f->q;
    g.c = f->dk + at;
    block_product_rows(&g);
}

/* Adds the block's share to dq. */
static void add_to_queries(grad_state *f, token_block keys, bool diagonal)
{
    block_product g = {
        .bf16 = f->head->bf16,
        .product = f->head->product,
        .m = f->queries.padded,
        .n = f->width,
        .k = keys.padded,
        .a = f->ds,
        .b = f->k + keys.begin * f->width,
        .b_stride = f->width,
        .c = f->dq,
        .c_stride = f->width,
        .add = keys.begin > f->keys_begin,
        .part = diagonal ? PART_TERMS_TO_ROW : PART_ALL,
        .ahead = &f->ahead,
    };

    block_product_columns(&g);
}

/* Writes dq of the tokens of a block that are asked for. */
static void give_queries(const grad_state *f, void *dq, int64_t stride)
{
    const wf_attention_head *head = f->head;
    token_block t = f->queries;
    int64_t end = t.begin + t.count, before = t.begin < head->own ? head->own - t.begin : 0;

    end = head->own_end && end > head->own_end ? head->own_end : end;
    t.count = end - t.begin - before;
    t.begin += before - head->own;
    block_unpack(f->dq + before * f->width, t, head->dim, query_scale(head), dq, stride,
                 head->bf16);
}

WF_OUT_OF_LINE static void gradients(grad_state f, token_rows out, const float *lse,
                                     token_rows dout, void *dq, int64_t dq_stride)
{
    const wf_attention_head *head = f.head;
    int64_t packed = 0;

    if (head->dbias) /* blocks that no query sees are not touched */
        memset(head->dbias, 0, (size_t)(head->seq * head->keys) * sizeof *head->dbias);
    for (int64_t begin = 0; begin < head->seq; begin += BLOCK) {
        int64_t end;
        bool own;

        f.queries = block_at(begin, head->seq);
        own = has_own(head, f.queries);
        if (!own && !head->bidirectional && begin < head->own) /* nor sees it own keys */
            continue;
        end = block_keys_end(head, f.queries);
        ahead_to(&f.ahead, head, begin);
        for (; packed < end; packed += BLOCK)
            load_keys(&f, block_at(packed, head->keys));
        load_queries(&f, out, lse, dout);
        f.keys_begin = block_keys_begin(head, f.queries);
        if (end == 0)
            memset(f.dq, 0, (size_t)(BLOCK * f.width) * sizeof *f.dq);
        for (int64_t key = f.keys_begin; key < end; key += BLOCK) {
            token_block keys = block_at(key, head->keys);
            bool diagonal = block_is_diagonal(head, f.queries, keys);

            if (!own && !has_own(head, keys))
                continue;
            make_scores(&f, keys, diagonal);
            if (has_own(head, keys))
                add_to_keys(&f, keys, diagonal);
            if (own)
                add_to_queries(&f, keys, diagonal);
        }
        if (own)
            give_queries(&f, dq, dq_stride);
    }
}

void WF_ISA_NAME(wf_attention_grad)(const wf_attention_head *head, const void *out,
                                    int64_t out_stride, const float *lse, const void *dout,
                                    int64_t dout_stride, void *dq, int64_t dq_stride, float *dk,
                                    float *dv, void *workspace)
{
    const token_rows outs = {out, out_stride, head->bf16};
    const token_rows douts = {dout, dout_stride, head->bf16};
    grad_state f = carve(head, workspace);
    uint64_t mode = wf_denormals_begin(head->bf16);

    f.dk = dk;
    f.dv = dv;
    gradients(f, outs, lse, douts, dq, dq_stride);
    wf_denormals_end(mode);
}

void WF_ISA_NAME(wf_attention_sinks)(int64_t rows, int64_t first, int64_t heads, int64_t dim,
                                     const float *y, const float *dy, const float *lse,
                                     const float *sink, float *out)
{
    for (int64_t i = 0; i < rows; i += GRAIN) {
        int64_t n = rows - i < GRAIN ? rows - i : GRAIN;
        float z[GRAIN] = {0}, product[GRAIN] = {0};
        v16 p;

        for (int64_t r = 0; r < n; r++) {
            const float *a = y + (i + r) * dim, *b = dy + (i + r) * dim;
            v16 sum = v16_zero();

            for (int64_t d = 0; d < dim; d += GRAIN)
                sum = v16_fma(v16_load_n(a + d, dim - d), v16_load_n(b + d, dim - d), sum);
            product[r] = v16_sum(sum);
            z[r] = sink[(first + i + r) % heads];
        }
        p = v16_exp_or_zero(v16_sub(v16_load(z), v16_load_n(lse + i, n)));
        v16_store_n(out + i, v16_neg(v16_mul(p, v16_load(product))), n);
    }
}

void WF_ISA_NAME(wf_attention_unpack)(const float *packed, int64_t keys, int64_t dim, void *to,
                                      int64_t stride, bool bf16)
{
    int64_t width = wf_attention_padded(dim);

    for (int64_t t = 0; t < keys; t++)
        for (int64_t d = 0; d < dim; d += GRAIN)
            store_numbers(to, bf16, t * stride + d,
                          packed ? v16_load(packed + t * width + d) : v16_zero(), dim - d);
}
