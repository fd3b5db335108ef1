/*
 * kernels/cpu/simd/attention.c - flash attention of one head, forward, in blocks of 64
 * queries by 64 keys with an online softmax; attention_grad.c is its gradient.
 *
 * For query i, over the keys j <= i, or over all keys where the head is bidirectional (chain:
 * one fma after the other, in ascending order):
 *
 *     s[j]   = chain over d of k[j][d] * (scale * q[i][d])
 *     m      = max of s, p[j] = exp(s[j] - m), or +0 below exp(-87), l = sum of p
 *     out    = (chain over j of p[j] * v[j]) * (1 / l), with dropout of keep[j] * p[j] * v[j],
 *              where either zero is +0
 *     lse    = m + log(l)
 *
 * The keys come in blocks 0..63, 64..127, ... and m, l and the chain are renewed block by
 * block: m' = max(m, s of the block), l and out are multiplied by exp(m - m'), then the block's
 * terms are added, j ascending. A key after the query has p = 0 there. So the bits of causal
 * attention are a function of the rows 0..i alone, whatever the instruction set; only the
 * dropout mask knows seq. (A term of p = 0 can make +0 of -0, hence the rule for zeros.)
 * attention_row.c is the last row of this, for a cache.
 *
 * Where a query sees keys from[i] .. i alone, or the last of a window, blocks before that of
 * the first key that one of its 64 neighbours sees are left out, and in the others p = +0
 * before from[i]. There m is the least float, not minus infinity: a block of which a query sees
 * nothing then leaves m as it is, and l and out at +0, as if it were left out. So the bits are
 * a function of the rows from[i] .. i and of their positions in blocks of 64. Documents are
 * heads of their own (kernels/cpu/attention.c), so their blocks count from where they begin.
 *
 * With a cap c, c * tanh(s / c) replaces s, which of bf16 numbers has its factor
 * then. A bias is added to s, and a key that the mask takes has s = -infinity. A query that
 * sees no key has l = 0: its out and lse are 0.
 *
 * A sink is a term that comes before the first block: m begins with it, and l with 1.
 *
 * Of bf16 numbers q is not scaled, and p[j] = exp(s[j] * scale - m) with one rounding of what
 * is in brackets, m being the maximum of s * scale; with a bias p[j] = exp(t - m), t = s *
 * scale + bias with one rounding. The chains over d and over the 64 keys of a block are bf16
 * products (attention_product.c), with keep[j] * p[j] rounded to bf16 as a factor; l is the sum
 * of the p that are not rounded. Denormals are zeros.
 *
 * Keys and values are packed once for the head, keys as columns: every product then reads both
 * its operands at strides that a tile has as constants.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/denormals_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* The head's packed keys and values, and what one block of queries keeps while they pass by. */
typedef struct query_state {
    const wf_attention_head *head;
    token_block queries;
    int64_t keys_begin; /* beginning of the first block of keys that they see */
    block_ahead ahead;
    int64_t width;
    float *kt;        /* blocks of [width][BLOCK] */
    float *v;         /* [keys][width] */
    float *qt;        /* [width][BLOCK], scaled */
    float *s, *keep;  /* [BLOCK keys][BLOCK queries] */
    float *out;       /* [BLOCK][width], not yet divided by l */
    float *max, *sum; /* m and l of each query */
    float *rescale;   /* exp(m - m') of each query, then 1 / l */
} query_state;

static query_state carve(const wf_attention_head *head, void *workspace)
{
    int64_t width = wf_attention_padded(head->dim), all = head_floats(head->keys, head->dim);
    float *at = align_line(workspace);
    query_state f = {.head = head, .width = width};

    f.kt = take(&at, all);
    f.v = take(&at, all);
    f.qt = take(&at, BLOCK * width);
    f.out = take(&at, BLOCK * width);
    f.s = take(&at, BLOCK * BLOCK);
    f.keep = take(&at, BLOCK * BLOCK);
    f.max = take(&at, BLOCK);
    f.sum = take(&at, BLOCK);
    f.rescale = take(&at, BLOCK);
    return f;
}

size_t WF_ISA_NAME(wf_attention_workspace)(int64_t keys, int64_t dim)
{
    int64_t all = head_floats(keys, dim), packed = BLOCK * wf_attention_padded(dim);

    return workspace_of(2 * all + 2 * packed + 2 * BLOCK * BLOCK + 3 * BLOCK);
}

/* m' of each query; of a block on the diagonal, masked already, the squares that count. */
static void renew_max(query_state *f, token_block keys, bool diagonal)
{
    v16 scale = v16_set1(softmax_scale(f->head));

    for (int64_t key = 0; key < keys.padded; key += GRAIN) {
        for (int64_t i = diagonal ? key : 0; i < f->queries.padded; i += GRAIN) {
            const float *s = f->s + key * BLOCK + i;
            v16 max = v16_load(s);

            for (int64_t j = 1; j < GRAIN; j++)
                max = v16_max(max, v16_load(s + j * BLOCK));
            v16_store(f->rescale + i, v16_max(v16_load(f->rescale + i), v16_mul(scale, max)));
        }
    }
}

/* Makes p, or keep * p, of scores, in place; renews m and l, and says by what the output is to
   be rescaled. */
static void softmax(query_state *f, token_block keys, bool diagonal)
{
    bool dropout = f->head->dropout > 0, bf16 = f->head->bf16;
    v16 scale = v16_set1(softmax_scale(f->head));

    for (int64_t i = 0; i < f->queries.padded; i += GRAIN)
        v16_store(f->rescale + i, v16_load(f->max + i));
    renew_max(f, keys, diagonal);
    for (int64_t i = 0; i < f->queries.padded; i += GRAIN) {
        int64_t end = diagonal && i + GRAIN < keys.padded ? i + GRAIN : keys.padded;
        v16 max = v16_load(f->rescale + i);
        v16 rescale = v16_exp_or_zero(v16_sub(v16_load(f->max + i), max));
        v16 sum = v16_mul(v16_load(f->sum + i), rescale), less = v16_neg(max);

        for (int64_t j = 0; j < end; j++) {
            int64_t at = j * BLOCK + i;
            v16 p = v16_exp_or_zero(v16_fma(v16_load(f->s + at), scale, less));

            sum = v16_add(sum, p);
            p = dropout ? v16_mul(p, v16_load(f->keep + at)) : p;
            v16_store(f->s + at, bf16 ? v16_round_bf16(p) : p);
        }
        v16_store(f->max + i, max);
        v16_store(f->sum + i, sum);
        v16_store(f->rescale + i, rescale);
    }
}

static void add_keys(query_state *f, token_block keys)
{
    const wf_attention_head *head = f->head;
    bool diagonal = block_is_diagonal(head, f->queries, keys);
    block_product scores = {
        .bf16 = head->bf16,
        .product = head->product,
        .m = keys.padded,
        .n = f->queries.padded,
        .k = head->bf16 ? f->width : head->dim,
        .a = f->kt + keys.begin * f->width,
        .b = f->qt,
        .b_stride = BLOCK,
        .c = f->s,
        .c_stride = BLOCK,
        .part = diagonal ? PART_COLUMNS_FROM_ROW : PART_ALL,
        .ahead = &f->ahead,
    };
    block_product values = {
        .bf16 = head->bf16,
        .product = head->product,
        .m = f->queries.padded,
        .n = f->width,
        .k = keys.padded,
        .a = f->s,
        .b = f->v + keys.begin * f->width,
        .b_stride = f->width,
        .c = f->out,
        .c_stride = f->width,
        .add = keys.begin > f->keys_begin,
        .scale = keys.begin > f->keys_begin ? f->rescale : NULL,
        .part = diagonal ? PART_TERMS_TO_ROW : PART_ALL,
        .ahead = &f->ahead,
    };

    block_product_columns(&scores);
    if (head->bias)
        block_bias(head, f->s, f->queries, keys);
    if (head->cap > 0)
        block_cap(head, f->s, f->queries, keys);
    block_mask(head, f->s, f->queries, keys, -INFINITY);
    if (head->dropout > 0)
        block_keep(head, f->queries, keys, f->keep);
    softmax(f, keys, diagonal);
    block_product_columns(&values);
}

static void finish(query_state *f, void *out, int64_t out_stride, float *lse)
{
    token_block t = f->queries;
    int64_t begin = t.begin - f->head->first;

    for (int64_t i = 0; i < t.padded; i += GRAIN) {
        v16 sum = v16_load(f->sum + i);
        v16 log_sum = v16_add(v16_load(f->max + i), v16_log(sum));

        v16m empty = v16_less(sum, v16_set1(FLT_MIN)); /* a sum has a term of 1, or none */

        /* v16_log knows positive numbers alone. */
        log_sum = v16_select(v16_less(v16_zero(), sum), log_sum, v16_set1(NAN));
        v16_store_n(lse + begin + i, v16_select(empty, v16_zero(), log_sum), t.count - i);
        v16_store(f->rescale + i, v16_select(empty, v16_zero(), v16_div(v16_set1(1), sum)));
    }
    for (int64_t i = 0; i < t.count; i++) {
        v16 factor = v16_set1(f->rescale[i]);

        for (int64_t d = 0; d < f->head->dim; d += GRAIN)
            store_numbers(out, f->head->bf16, (begin + i) * out_stride + d,
                          v16_mul(v16_load(f->out + i * f->width + d), factor),
                          f->head->dim - d);
    }
}

static void pack_keys(query_state *f, token_block t)
{
    const wf_attention_head *head = f->head;
    int64_t at = t.begin * f->width;

    block_pack_columns((token_rows){head->k, head->k_stride, head->bf16}, t, head->dim, 1,
                       f->kt + at);
    block_pack((token_rows){head->v, head->v_stride, head->bf16}, t, head->dim, 1, f->v + at);
}

WF_OUT_OF_LINE static void attend(const wf_attention_head *head, void *out, int64_t out_stride,
                                  float *lse, void *workspace)
{
    const token_rows q = {head->q, head->q_stride, head->bf16};
    query_state f = carve(head, workspace);
    int64_t packed = 0;

    for (int64_t begin = head->first; begin < head->seq; begin += BLOCK) {
        token_block t = block_at(begin, head->seq);
        token_block rows = {begin - head->first, t.count, t.padded};
        int64_t end = block_keys_end(head, t);

        for (; packed < end; packed += BLOCK)
            pack_keys(&f, block_at(packed, head->keys));
        block_pack_columns(q, rows, head->dim, query_scale(head), f.qt);
        f.queries = t;
        ahead_to(&f.ahead, head, begin);
        f.keys_begin = block_keys_begin(head, t);
        for (int64_t i = 0; i < BLOCK; i++) {
            f.max[i] = head->sink                        ? *head->sink
                       : wf_attention_may_be_empty(head) ? -FLT_MAX
                                                         : -INFINITY;
            f.sum[i] = head->sink ? 1 : 0;
        }
        if (end == 0)
            memset(f.out, 0, (size_t)(BLOCK * f.width) * sizeof *f.out);
        for (int64_t key = f.keys_begin; key < end; key += BLOCK)
            add_keys(&f, block_at(key, head->keys));
        finish(&f, out, out_stride, lse);
    }
}

void WF_ISA_NAME(wf_attention)(const wf_attention_head *head, void *out, int64_t out_stride,
                               float *lse, void *workspace)
{
    uint64_t mode = wf_denormals_begin(head->bf16);

    attend(head, out, out_stride, lse, workspace);
    wf_denormals_end(mode);
}
