/*
 * kernels/cpu/simd/attention_block.c - packed blocks of tokens: copies of them and what masks
 * them; see attention_block_internal.h.
 */
#include "kernels/cpu/simd/attention_block_internal.h"

void block_pack(token_rows src, token_block t, int64_t dim, float scale, float *dst)
{
    int64_t width = wf_attention_padded(dim);
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.padded; i++, dst += width)
        for (int64_t d = 0; d < width; d += GRAIN) {
            v16 x = i < t.count
                        ? load_numbers(src.x, src.bf16, (t.begin + i) * src.stride + d, dim - d)
                        : v16_zero();

            v16_store(dst + d, src.bf16 ? x : v16_mul(s, x));
        }
}

/* Squares of 16 tokens by 16 features, one after the other */
void block_pack_columns(token_rows src, token_block t, int64_t dim, float scale, float *dst)
{
    v16 s = v16_set1(scale);

    for (int64_t i = 0; i < t.padded; i += GRAIN) {
        for (int64_t d = 0; d < dim; d += GRAIN) {
            v16 x[GRAIN];

            for (int64_t r = 0; r < GRAIN; r++) {
                x[r] = i + r < t.count
                           ? load_numbers(src.x, src.bf16, (t.begin + i + r) * src.stride + d,
                                          dim - d)
                           : v16_zero();
                x[r] = src.bf16 ? x[r] : v16_mul(s, x[r]);
            }
            v16_transpose(x);
            for (int64_t c = 0; c < GRAIN; c++)
                v16_store(dst + (d + c) * BLOCK + i, x[c]);
        }
    }
}

void block_unpack(const float *src, token_block t, int64_t dim, float scale, void *dst,
                  int64_t stride, bool bf16)
{
    int64_t width = wf_attention_padded(dim), whole = dim / GRAIN * GRAIN;
    v16 s = v16_set1(scale);

    for (int64_t i = 0; bf16 && i < t.count; i++)
        for (int64_t d = 0; d < dim; d += GRAIN)
            store_numbers(dst, true, (t.begin + i) * stride + d, v16_load(src + i * width + d),
                          dim - d);
    for (int64_t i = 0; !bf16 && i < t.count; i++, src += width) {
        float *row = (float *)dst + (t.begin + i) * stride;

        for (int64_t d = 0; d < whole; d += GRAIN)
            v16_store(row + d, v16_mul(s, v16_load(src + d)));
        if (whole < dim)
            v16_store_n(row + whole, v16_mul(s, v16_load(src + whole)), dim - whole);
    }
}

/* Keys of the block that query i of its block does not see, as they come before its first. */
static int64_t unseen_of(const wf_attention_head *head, token_block queries, token_block keys,
                         int64_t i)
{
    int64_t n = 0;

    if (i < queries.count) /* padding sees all: it is not read */
        n = block_first_key(head, queries.begin + i) - keys.begin;
    return n < keys.padded ? n : keys.padded;
}

/* Keys that 16 queries all do not see go a vector at a time. */
static void mask_before(const wf_attention_head *head, float *s, token_block queries,
                        token_block keys, float value)
{
    v16 masked = v16_set1(value);

    for (int64_t i = 0; i < queries.padded; i += GRAIN) {
        int64_t unseen[GRAIN], all = keys.padded, j = 0;

        for (int64_t r = 0; r < GRAIN; r++) {
            unseen[r] = unseen_of(head, queries, keys, i + r);
            all = unseen[r] < all ? unseen[r] : all;
        }
        for (; j < all; j++)
            v16_store(s + j * BLOCK + i, masked);
        for (int64_t r = 0; r < GRAIN; r++)
            for (int64_t key = j; key < unseen[r]; key++)
                s[key * BLOCK + i + r] = value;
    }
}

void block_mask(const wf_attention_head *head, float *s, token_block queries, token_block keys,
                float value)
{
    v16 masked = v16_set1(value);

    for (int64_t j = 0; block_is_diagonal(head, queries, keys) && j < keys.padded; j++) {
        float *row = s + j * BLOCK + j / GRAIN * GRAIN;

        v16_store(row, v16_select(v16m_first(j % GRAIN), masked, v16_load(row)));
    }
    for (int64_t j = 0; j < keys.padded; j++) {
        bool after = j >= keys.count;

        if (after ? head->bidirectional : head->mask && head->mask[keys.begin + j] == 0)
            for (int64_t i = 0; i < queries.padded; i += GRAIN)
                v16_store(s + j * BLOCK + i, masked);
    }
    if (wf_attention_is_bounded(head))
        mask_before(head, s, queries, keys, value);
}

/* Returns the keys of a block that the 16 queries from i on may see. */
static int64_t seen_end(const wf_attention_head *head, token_block queries, token_block keys,
                        int64_t i)
{
    bool cut = block_is_diagonal(head, queries, keys) && i + GRAIN < keys.padded;

    return cut ? i + GRAIN : keys.padded;
}

void block_cap(const wf_attention_head *head, float *s, token_block queries, token_block keys)
{
    for (int64_t i = 0; i < queries.padded; i += GRAIN)
        for (int64_t j = 0; j < seen_end(head, queries, keys, i); j++)
            v16_store(s + j * BLOCK + i, capped(head, v16_load(s + j * BLOCK + i)));
}

/* Adds the bias by squares of 16 queries by 16 keys, transposed. */
void block_bias(const wf_attention_head *head, float *s, token_block queries, token_block keys)
{
    v16 scale = v16_set1(score_scale(head)), x[GRAIN];

    for (int64_t i = 0; i < queries.padded; i += GRAIN)
        for (int64_t j = 0; j < seen_end(head, queries, keys, i); j += GRAIN) {
            const float *bias = head->bias + (queries.begin + i) * head->keys + keys.begin + j;

            for (int64_t r = 0; r < GRAIN; r++)
                x[r] = i + r < queries.count ? v16_load_n(bias + r * head->keys, keys.count - j)
                                             : v16_zero();
            v16_transpose(x);
            for (int64_t c = 0; c < GRAIN; c++) {
                float *at = s + (j + c) * BLOCK + i;

                v16_store(at, v16_fma(v16_load(at), scale, x[c]));
            }
        }
}

void block_bias_grad(const wf_attention_head *head, const float *ds, token_block queries,
                     token_block keys)
{
    v16 x[GRAIN];

    for (int64_t i = 0; i < queries.padded; i += GRAIN)
        for (int64_t j = 0; j < seen_end(head, queries, keys, i); j += GRAIN) {
            float *dbias = head->dbias + (queries.begin + i) * head->keys + keys.begin + j;

            for (int64_t c = 0; c < GRAIN; c++)
                x[c] = v16_load(ds + (j + c) * BLOCK + i);
            v16_transpose(x);
            for (int64_t r = 0; r < GRAIN && i + r < queries.count; r++)
                v16_store_n(dbias + r * head->keys, v16_add(x[r], v16_zero()), keys.count - j);
        }
}
