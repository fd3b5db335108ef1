/* tests/cuda/test_cuda_attention.c - attention on the emulated GPU, by device_parts.h. */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>

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
}

int main(void)
{
    static const wf_test tests[] = {
        {"attention over heads, groups and sequences", attention_heads},
        {"attention to all tokens", attention_to_all},
        {"attention with dropout", attention_with_dropout},
        {"attention, gradients underflow", attention_of_zeros},
        {"attention of bf16", attention_of_bf16},
        {NULL, NULL},
    };

    return gpu_test_main("attention on the GPU", tests);
}
