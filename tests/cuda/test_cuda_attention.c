/*
 * tests/cuda/test_cuda_attention.c - attention on the emulated GPU, by device_parts.h.
 *
 * ctest: builds plain
 */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

/* tiny: gradients underflow. */
static void attention_parts(const int64_t shape[4], float dropout, wf_dtype dtype, bool tiny,
                            bool bidirectional, const split *forward, const split *backward)
{
    const wf_dim b = wf_dim_batch(2), t = wf_dim_chunked(shape[2]), d = wf_dim_width(shape[3]);
    const wf_dim q_dims[] = {b, t, {shape[0], 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {b, t, {shape[1], 1, WF_CHUNKS_8}, d};
    const wf_attention_attr attr = {.step = 11,
                                    .sequences = {.first = 40},
                                    .key = 9,
                                    .dropout = dropout,
                                    .site = 3,
                                    .bidirectional = bidirectional};
    const wf_call forward_call = {.op = &wf_op_attention, .n_in = 3, .n_out = 2, .attr = &attr};
    const wf_call backward_call = {
        .op = &wf_op_attention_grad, .n_in = 6, .n_out = 3, .attr = &attr};
    numbers in[6], out[3];

    open_context(false);
    in[0] = random_numbers(4, q_dims, dtype);
    in[1] = random_numbers(4, k_dims, dtype);
    in[2] = random_numbers(4, k_dims, dtype);
    in[3] = numbers_of(4, q_dims, dtype);
    in[4] = numbers_of(3, q_dims, WF_F32);
    in[5] = random_numbers(4, q_dims, dtype);
    check(&forward_call, in, &in[3], forward, false);
    out[0] = numbers_of(4, q_dims, dtype);
    out[1] = numbers_of(4, k_dims, dtype);
    out[2] = numbers_of(4, k_dims, dtype);
    if (tiny)
        fill(&in[5], -0x1p-149F);
    check(&backward_call, in, out, backward, tiny);
    for (int i = 0; i < 6; i++)
        free(in[i].host);
    for (int o = 0; o < 3; o++)
        free(out[o].host);
    close_context();
}

/* i32 [2, tokens]: documents of unequal length, with one of a single token, and a window, whose
   numbers begin below 0 */
static numbers firsts(const wf_dim *dims)
{
    numbers n = numbers_of(2, dims, WF_I32);
    int32_t *at = n.host, tokens = (int32_t)dims[1].size;

    for (int32_t i = 0; i < tokens; i++) {
        at[i] = i < 5 ? 0 : i == 5 ? 5 : i < tokens / 2 ? 6 : tokens / 2;
        at[tokens + i] = i - 9;
    }
    return n;
}

/* k and v whole: dk and dv are partial sums of the tree over query heads. */
static const split over_heads = {"attention over heads", {2, WHOLE, WHOLE}, {2, 2}, ANY};
static const split over_heads_grad = {
    "attention_grad over heads", {2, WHOLE, WHOLE, 2, 2, 2}, {2, SUM, SUM}, TREE};
/* k and v split like q: each rank has all of its groups. */
static const split over_groups = {
    "attention over groups", {2, 2, 2}, {2, 2}, 1u << 2 | 1u << 4};
static const split over_groups_grad = {
    "attention_grad over groups", {2, 2, 2, 2, 2, 2}, {2, 2, 2}, 1u << 2 | 1u << 4};
static const split over_batch = {"attention over batch", {0, 0, 0}, {0, 0}, 1u << 2};
static const split over_batch_grad = {
    "attention_grad over batch", {0, 0, 0, 0, 0, 0}, {0, 0, 0}, 1u << 2};

/* heads, groups, tokens, dim */
static void attention_heads(void)
{
    attention_parts((int64_t[]){5, 1, 70, 10}, 0, WF_F32, false, false, &over_heads,
                    &over_heads_grad);
    attention_parts((int64_t[]){3, 3, 65, 8}, 0, WF_F32, false, false, &over_heads,
                    &over_heads_grad);
    attention_parts((int64_t[]){8, 4, 33, 16}, 0, WF_F32, false, false, &over_groups,
                    &over_groups_grad);
    attention_parts((int64_t[]){2, 2, 67, 72}, 0, WF_F32, false, false, &over_batch,
                    &over_batch_grad);
    attention_parts((int64_t[]){2, 1, 35, 136}, 0, WF_F32, false, false, &over_batch,
                    &over_batch_grad);
}

/* heads, groups, tokens, dim */
static void from_first(const int64_t shape[4], int32_t window, float dropout, wf_dtype dtype,
                       const split *forward, const split *backward)
{
    const wf_dim b = wf_dim_batch(2), t = wf_dim_chunked(shape[2]), d = wf_dim_width(shape[3]);
    const wf_dim q_dims[] = {b, t, {shape[0], 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {b, t, {shape[1], 1, WF_CHUNKS_8}, d};
    const wf_attention_attr attr = {.key = 9, .dropout = dropout, .site = 3, .window = window};
    const wf_call forward_call = {
        .op = &wf_op_attention_from, .n_in = 4, .n_out = 2, .attr = &attr};
    const wf_call backward_call = {
        .op = &wf_op_attention_from_grad, .n_in = 7, .n_out = 3, .attr = &attr};
    numbers in[7], out[3];

    open_context(false);
    for (int i = 0; i < 3; i++)
        in[i] = random_numbers(4, i ? k_dims : q_dims, dtype);
    in[3] = firsts(q_dims);
    out[0] = numbers_of(4, q_dims, dtype);
    out[1] = numbers_of(3, q_dims, WF_F32);
    check(&forward_call, in, out, forward, false);
    in[6] = in[3];
    in[3] = out[0];
    in[4] = out[1];
    in[5] = random_numbers(4, q_dims, dtype);
    for (int o = 0; o < 3; o++)
        out[o] = numbers_of(4, o ? k_dims : q_dims, dtype);
    check(&backward_call, in, out, backward, false);
    for (int i = 0; i < 7; i++)
        free(in[i].host);
    for (int o = 0; o < 3; o++)
        free(out[o].host);
    close_context();
}

static void attention_from_a_first_token(void)
{
    static const split heads = {"from, over heads", {2, WHOLE, WHOLE, WHOLE}, {2, 2}, ANY};
    static const split heads_grad = {
        "from, gradient over heads", {2, WHOLE, WHOLE, 2, 2, 2, WHOLE}, {2, SUM, SUM}, TREE};
    static const split batch = {"from, over batch", {0, 0, 0, 0}, {0, 0}, 1u << 2};
    static const split batch_grad = {
        "from, gradient over batch", {0, 0, 0, 0, 0, 0, 0}, {0, 0, 0}, 1u << 2};

    from_first((int64_t[]){5, 1, 150, 10}, 0, 0, WF_F32, &heads, &heads_grad);
    from_first((int64_t[]){3, 3, 65, 8}, 11, 0.2F, WF_F32, &heads, &heads_grad);
    from_first((int64_t[]){2, 2, 67, 72}, 66, 0, WF_F32, &batch, &batch_grad);
    from_first((int64_t[]){2, 1, 99, 136}, 0, 0, WF_F32, &batch, &batch_grad);
    from_first((int64_t[]){4, 4, 70, 64}, 40, 0, WF_BF16, &batch, &batch_grad);
    from_first((int64_t[]){2, 1, 99, 72}, 11, 0.2F, WF_BF16, &batch, &batch_grad);
    from_first((int64_t[]){2, 1, 67, 136}, 0, 0, WF_BF16, &batch, &batch_grad);
}

static void attention_to_all(void)
{
    attention_parts((int64_t[]){5, 1, 70, 10}, 0, WF_F32, false, true, &over_heads,
                    &over_heads_grad);
    attention_parts((int64_t[]){8, 4, 130, 72}, 0.2F, WF_F32, false, true, &over_groups,
                    &over_groups_grad);
    attention_parts((int64_t[]){4, 4, 70, 64}, 0, WF_BF16, false, true, &over_groups,
                    &over_groups_grad);
}

static void attention_with_dropout(void)
{
    attention_parts((int64_t[]){6, 3, 37, 8}, 0.2F, WF_F32, false, false, &over_heads,
                    &over_heads_grad);
}

/* With 64 tokens no row is there that only fills a tile, and would make zeros +0. */
static void attention_of_zeros(void)
{
    attention_parts((int64_t[]){5, 1, 33, 8}, 0, WF_F32, true, false, &over_heads,
                    &over_heads_grad);
    attention_parts((int64_t[]){8, 1, 64, 8}, 0, WF_F32, true, false, &over_heads,
                    &over_heads_grad);
}

static void attention_of_bf16(void)
{
    attention_parts((int64_t[]){4, 4, 70, 64}, 0, WF_BF16, false, false, &over_groups,
                    &over_groups_grad);
    attention_parts((int64_t[]){8, 4, 33, 12}, 0.1F, WF_BF16, false, false, &over_groups,
                    &over_groups_grad);
    attention_parts((int64_t[]){8, 4, 69, 8}, 0.1F, WF_BF16, false, false, &over_groups,
                    &over_groups_grad);
    attention_parts((int64_t[]){4, 2, 130, 128}, 0, WF_BF16, false, false, &over_batch,
                    &over_batch_grad);
    attention_parts((int64_t[]){2, 1, 35, 256}, 0, WF_BF16, false, true, &over_batch,
                    &over_batch_grad);
}

enum { SLOTS = 3, ROOM = 77 };

/* i32 [2] */
static numbers positions(int32_t a, int32_t b)
{
    const wf_dim dim = wf_dim_batch(2);
    numbers n = numbers_of(1, &dim, WF_I32);

    ((int32_t *)n.host)[0] = a;
    ((int32_t *)n.host)[1] = b;
    return n;
}

/* heads, groups, tokens, dim */
static void cached(const int64_t shape[4], wf_dtype dtype, int64_t window, double cap,
                   const split *parts)
{
    const wf_cached_attr attr = {.window = window, .cap = cap};
    const wf_dim b = wf_dim_batch(2), t = wf_dim_chunked(shape[2]), d = wf_dim_width(shape[3]);
    const wf_dim q_dims[] = {b, t, {shape[0], 1, WF_CHUNKS_8}, d};
    const wf_dim cache[] = {
        wf_dim_width(SLOTS), wf_dim_width(ROOM), {shape[1], 1, WF_CHUNKS_8}, d};
    const wf_call call = {.op = &wf_op_attention_cached,
                          .n_in = window ? 6 : 5, /* sinks, too */
                          .n_out = 1,
                          .attr = &attr,
                          .attr_size = sizeof attr};
    numbers in[6], out;

    open_context(false);
    in[0] = random_numbers(4, q_dims, dtype);
    in[1] = random_numbers(4, cache, dtype);
    in[2] = random_numbers(4, cache, dtype);
    in[3] = positions((int32_t)(ROOM - shape[2]), 3);
    in[4] = positions(2, 0);
    in[5] = random_numbers(1, &q_dims[2], WF_F32);
    out = numbers_of(4, q_dims, dtype);
    check(&call, in, &out, parts, false);
    for (int i = 0; i < 6; i++)
        free(in[i].host);
    free(out.host);
    close_context();
}

static void attention_to_a_cache(void)
{
    static const split heads = {"over heads", {2, WHOLE, WHOLE, WHOLE, WHOLE, 0}, {2}, ANY};
    static const split groups = {
        "over groups", {2, 2, 2, WHOLE, WHOLE, 0}, {2}, 1u << 2 | 1u << 4};

    cached((int64_t[]){5, 1, 1, 10}, WF_F32, 0, 0, &heads);
    cached((int64_t[]){3, 3, 65, 72}, WF_F32, 20, 0, &heads);
    cached((int64_t[]){8, 4, 7, 256}, WF_F32, 1, 0.7, &groups);
    cached((int64_t[]){8, 4, 33, 64}, WF_BF16, 0, 0, &groups);
    cached((int64_t[]){5, 1, 1, 136}, WF_BF16, 20, 0.7, &heads);
    cached((int64_t[]){8, 4, 3, 12}, WF_BF16, -33, 0, &groups);
    cached((int64_t[]){3, 3, 65, 72}, WF_BF16, -33, 0, &heads);
}

/* Row `row` of cache or text t, of a token each, in elements of bf16. */
static uint16_t *row_of(const numbers *t, int64_t row)
{
    return (uint16_t *)t->host + row * t->t.dim[2].size * t->t.dim[3].size;
}

static size_t row_bytes(const numbers *t)
{
    return (size_t)(t->t.dim[2].size * t->t.dim[3].size) * sizeof(uint16_t);
}

/* Returns whether n tokens at once, at the end of the text and at its beginning, have the rows
   of the whole text; text: q, k, v, y. After a text the cache is NaN. */
static bool continues(const numbers *text, const numbers *cache, int64_t n, int32_t window)
{
    const int64_t tokens = text[0].t.dim[1].size, first[] = {tokens - n, 0};
    const wf_cached_attr attr = {.window = window};
    const wf_call call = {.op = &wf_op_attention_cached,
                          .n_in = 5,
                          .n_out = 1,
                          .attr = &attr,
                          .attr_size = sizeof attr};
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(n), text[0].t.dim[2],
                           text[0].t.dim[3]};
    numbers in[5] = {numbers_of(4, dims, WF_BF16), cache[0], cache[1],
                     positions((int32_t)first[0], 0), positions(2, 0)};
    numbers out = numbers_of(4, dims, WF_BF16);
    bool same = true;

    for (int64_t i = 0; i < 2 * n; i++)
        memcpy(row_of(&in[0], i), row_of(&text[0], first[i / n] + i % n), row_bytes(&out));
    run_on_device(&call, in, &out, false);
    for (int64_t i = 0; i < 2 * n; i++)
        same = same && memcmp(row_of(&out, i), row_of(&text[3], first[i / n] + i % n),
                              row_bytes(&out)) == 0;
    free(in[0].host);
    free(in[3].host);
    free(in[4].host);
    free(out.host);
    return same;
}

/* heads, groups, tokens, dim */
static void as_in_training(const int64_t shape[4], int32_t window)
{
    const wf_attention_attr attr = {.window = window};
    const wf_dim t = wf_dim_chunked(shape[2]), d = wf_dim_width(shape[3]);
    const wf_dim q_dims[] = {wf_dim_batch(1), t, {shape[0], 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {wf_dim_batch(1), t, {shape[1], 1, WF_CHUNKS_8}, d};
    const wf_dim room[] = {wf_dim_width(SLOTS), wf_dim_width(ROOM), k_dims[2], d};
    const wf_call call = {.op = &wf_op_attention, .n_in = 3, .n_out = 2, .attr = &attr};
    numbers text[5], cache[2]; /* q, k, v; y, lse */

    open_context(false);
    for (int i = 0; i < 4; i++)
        text[i] = random_numbers(4, i == 1 || i == 2 ? k_dims : q_dims, WF_BF16);
    text[4] = numbers_of(3, q_dims, WF_F32);
    run_on_device(&call, text, &text[3], false);
    for (int i = 0; i < 2; i++) {
        cache[i] = numbers_of(4, room, WF_BF16);
        memset(cache[i].host, 0xff, bytes_of(&cache[i].t));
        for (int slot = 0; slot < SLOTS; slot += 2)
            memcpy(row_of(&cache[i], (int64_t)slot * ROOM), text[1 + i].host,
                   bytes_of(&text[1 + i].t));
    }
    CU_ASSERT(continues(text, cache, 1, window));
    CU_ASSERT(continues(text, cache, 7, window));
    CU_ASSERT(continues(text, cache, shape[2], window));
    for (int i = 0; i < 5; i++)
        free(text[i].host);
    for (int i = 0; i < 2; i++)
        free(cache[i].host);
    close_context();
}

static void a_cache_has_the_bits_of_training(void)
{
    as_in_training((int64_t[]){6, 2, 75, 64}, 0);
    as_in_training((int64_t[]){3, 3, 70, 8}, 20);
    as_in_training((int64_t[]){2, 1, 70, 136}, -20);
}

/* Only what is written changes, in the caches alone. */
static void cache_is_written(wf_dtype dtype)
{
    const wf_dim new_dims[] = {wf_dim_batch(2), wf_dim_chunked(9), wf_dim_chunked(3),
                               wf_dim_width(5)};
    const wf_dim cache[] = {wf_dim_width(SLOTS), wf_dim_width(ROOM), wf_dim_chunked(3),
                            wf_dim_width(5)};
    const wf_call call = {.op = &wf_op_cache_write, .n_in = 6};
    const size_t first[] = {ROOM - 9, 4}, slot[] = {2, 0};
    const size_t row = 3 * 5 * wf_dtype_size(dtype);
    numbers in[6];
    char *want[2];

    open_context(false);
    for (int i = 0; i < 4; i++)
        in[i] = random_numbers(4, i < 2 ? cache : new_dims, dtype);
    in[4] = positions((int32_t)first[0], (int32_t)first[1]);
    in[5] = positions((int32_t)slot[0], (int32_t)slot[1]);
    for (int i = 0; i < 2; i++) {
        want[i] = malloc(bytes_of(&in[i].t));
        CU_ASSERT_PTR_NOT_NULL_FATAL(want[i]);
        memcpy(want[i], in[i].host, bytes_of(&in[i].t));
        for (size_t b = 0; b < 2; b++)
            memcpy(want[i] + (slot[b] * ROOM + first[b]) * row,
                   (char *)in[2 + i].host + b * 9 * row, 9 * row);
    }
    run_on_device(&call, in, NULL, false);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(memcmp(in[i].host, want[i], bytes_of(&in[i].t)), 0);
        free(want[i]);
    }
    for (int i = 0; i < 6; i++)
        free(in[i].host);
    close_context();
}

static void a_cache_is_written(void)
{
    cache_is_written(WF_F32);
    cache_is_written(WF_BF16);
}

int main(void)
{
    static const wf_test tests[] = {
        {"attention over heads, groups and sequences", attention_heads},
        {"attention to all tokens", attention_to_all},
        {"attention from a first token on", attention_from_a_first_token},
        {"attention with dropout", attention_with_dropout},
        {"attention, gradients underflow", attention_of_zeros},
        {"attention of bf16", attention_of_bf16},
        {"attention to a cache", attention_to_a_cache},
        {"a cache has the bits of training", a_cache_has_the_bits_of_training},
        {"a cache is written", a_cache_is_written},
        {NULL, NULL},
    };

    return gpu_test_main("attention on the GPU", tests);
}
