/*
 * tests/cuda/test_cuda_attention_kinds.c - attention of every kind on the emulated GPU, by
 * device_parts.h: keys of another length, masks, biases and caps, and some of the tokens.
 *
 * ctest: builds plain
 */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A call of attention_general: keys of another length, a mask, a bias of some dims. */
typedef struct general {
    int64_t heads, groups, tokens, keys, dim;
    bool causal, masked;
    int bias_dims;
    float dropout, cap;
    int32_t window;
    wf_dtype dtype;
} general;

enum { OPERANDS = 8, RESULTS = 4 };

/* A third of all keys, and the second sequence sees none; a bias of -infinity takes others. */
static void hide(numbers *mask, numbers *bias, int64_t keys)
{
    for (int64_t j = 0; mask && j < 2 * keys; j++)
        ((float *)mask->host)[j] = j < keys && j % 3 != 1 ? 1.0F : 0.0F;
    for (int64_t i = 0; bias && i < wf_tensor_local_count(&bias->t); i++)
        if (i % 5 == 2)
            ((float *)bias->host)[i] = -INFINITY;
}

/* Fills in q, k, v, and from operand `at` on mask and bias; returns how many there are. */
static int general_operands(const general *g, int at, numbers *in)
{
    const wf_dim b = wf_dim_batch(2), s = wf_dim_chunked(g->tokens),
                 t = wf_dim_chunked(g->keys);
    const wf_dim h = {g->heads, 1, WF_CHUNKS_8}, d = wf_dim_width(g->dim);
    const wf_dim q_dims[] = {b, s, h, d}, k_dims[] = {b, t, {g->groups, 1, WF_CHUNKS_8}, d};
    const wf_dim scores[] = {b, h, s, t}, mask_dims[] = {b, t};
    numbers *mask = NULL, *bias = NULL;

    for (int i = 0; i < 3; i++)
        in[i] = random_numbers(4, i ? k_dims : q_dims, g->dtype);
    if (g->masked) {
        in[at] = numbers_of(2, mask_dims, WF_F32);
        mask = &in[at++];
    }
    if (g->bias_dims) {
        in[at] = random_numbers(g->bias_dims, scores + 4 - g->bias_dims, WF_F32);
        bias = &in[at++];
    }
    hide(mask, bias, g->keys);
    return at;
}

static void attention_of(const general *g)
{
    const wf_attention_attr attr = {.key = 9,
                                    .dropout = g->dropout,
                                    .site = 3,
                                    .cap = g->cap,
                                    .window = g->window,
                                    .bidirectional = !g->causal,
                                    .masked = g->masked,
                                    .bias_dims = (int8_t)g->bias_dims};
    const bool each = g->bias_dims == 4;
    const int bias_dim = g->bias_dims - 3; /* the heads' */
    wf_call call = {.op = &wf_op_attention_general, .n_out = 2, .attr = &attr};
    split heads = {"general over heads", {2, WHOLE, WHOLE}, {2, 2}, ANY};
    split batch = {"general over batch", {0, 0, 0}, {0, 0}, 1u << 2};
    split heads_grad = {
        "general, gradient over heads", {2, WHOLE, WHOLE, 2, 2, 2}, {2, SUM, SUM, 1}, TREE};
    split batch_grad = {
        "general, gradient over batch", {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0}, 1u << 2};
    numbers in[OPERANDS], out[RESULTS];
    int n;

    open_context(false);
    call.n_in = n = general_operands(g, 3, in);
    for (int i = 3; i < n; i++) {
        bool is_mask = g->masked && i == 3;

        heads.in[i] = is_mask ? WHOLE : bias_dim;
        batch.in[i] = is_mask || each ? 0 : WHOLE;
        heads_grad.in[i + 3] = heads.in[i];
        batch_grad.in[i + 3] = batch.in[i];
    }
    out[0] = numbers_of(4, in[0].t.dim, g->dtype);
    out[1] = numbers_of(3, in[0].t.dim, WF_F32);
    check(&call, in, out, &heads, false);
    check(&call, in, out, &batch, false);
    for (int i = n - 1; i >= 3; i--)
        in[i + 3] = in[i];
    in[3] = out[0];
    in[4] = out[1];
    in[5] = random_numbers(4, in[0].t.dim, g->dtype);
    call.op = &wf_op_attention_general_grad;
    call.n_in = n + 3;
    call.n_out = g->bias_dims ? 4 : 3;
    for (int o = 0; o < 3; o++)
        out[o] = numbers_of(4, in[o].t.dim, g->dtype);
    out[3] = numbers_of(
        4, (wf_dim[]){in[0].t.dim[0], in[0].t.dim[2], in[0].t.dim[1], in[1].t.dim[1]}, WF_F32);
    check(&call, in, out, g->dtype == WF_F32 ? &heads_grad : &batch_grad, false);
    for (int i = 0; i < call.n_in; i++)
        free(in[i].host);
    for (int o = 0; o < RESULTS; o++)
        free(out[o].host);
    close_context();
}

static void attention_of_every_kind(void)
{
    attention_of(&(general){.heads = 5, .groups = 1, .tokens = 9, .keys = 70, .dim = 10});
    attention_of(&(general){.heads = 3,
                            .groups = 3,
                            .tokens = 67,
                            .keys = 5,
                            .dim = 8,
                            .masked = true,
                            .bias_dims = 4,
                            .dropout = 0.2F});
    attention_of(&(general){.heads = 4,
                            .groups = 2,
                            .tokens = 66,
                            .keys = 66,
                            .dim = 72,
                            .causal = true,
                            .bias_dims = 3});
    attention_of(&(general){.heads = 2,
                            .groups = 1,
                            .tokens = 40,
                            .keys = 40,
                            .dim = 136,
                            .causal = true,
                            .masked = true,
                            .window = 7,
                            .cap = 0.7F});
    attention_of(&(general){.heads = 4,
                            .groups = 4,
                            .tokens = 17,
                            .keys = 33,
                            .dim = 12,
                            .masked = true,
                            .bias_dims = 3,
                            .dtype = WF_BF16});
    attention_of(&(general){.heads = 3,
                            .groups = 3,
                            .tokens = 67,
                            .keys = 37,
                            .dim = 72,
                            .masked = true,
                            .bias_dims = 4,
                            .dropout = 0.2F,
                            .dtype = WF_BF16});
    attention_of(&(general){.heads = 4,
                            .groups = 2,
                            .tokens = 66,
                            .keys = 66,
                            .dim = 8,
                            .causal = true,
                            .masked = true,
                            .window = 7,
                            .cap = 0.7F,
                            .dtype = WF_BF16});
}

/* i32 [2, tokens]: documents of other lengths in each sequence. */
static numbers documents(const wf_dim *dims)
{
    numbers n = numbers_of(2, dims, WF_I32);
    int32_t *at = n.host, tokens = (int32_t)dims[1].size;

    for (int32_t i = 0; i < tokens; i++) {
        at[i] = i < 5 ? 0 : i < tokens / 2 ? 5 : tokens / 2;
        at[tokens + i] = i < 81 ? 0 : 81;
    }
    return n;
}

static bool equal(const numbers *a, const numbers *b)
{
    return memcmp(a->host, b->host, bytes_of(&a->t)) == 0;
}

/* Rows of some tokens are those of all, forward and back; where another op computes all, its
   bits are theirs. */
static void part_of_tokens(const general *g, bool packed)
{
    const split some = {"part over tokens", {1, WHOLE, WHOLE, WHOLE}, {1, 1}, ANY};
    const split some_grad = {"part, gradient over tokens",
                             {WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 1, WHOLE},
                             {1, 1, 1},
                             ANY};
    wf_attention_attr attr = {.key = 9,
                              .dropout = g->dropout,
                              .site = 3,
                              .window = g->window,
                              .bidirectional = !g->causal,
                              .part = true};
    wf_call call = {.op = &wf_op_attention_part, .n_out = 2, .n_in = 3 + packed, .attr = &attr};
    numbers in[OPERANDS], out[3], all[3], first;

    open_context(false);
    general_operands(g, 3, in);
    first = documents(in[0].t.dim);
    in[3] = first;
    for (int o = 0; o < 3; o++)
        all[o] = numbers_of(o == 1 ? 3 : 4, in[0].t.dim, o == 1 ? WF_F32 : g->dtype);
    check(&call, in, all, &some, false);
    for (int o = 0; o < 2; o++)
        out[o] = numbers_of(all[o].t.ndim, all[o].t.dim, all[o].t.dtype);
    attr.part = false;
    call.op = packed ? &wf_op_attention_from : &wf_op_attention;
    run_on_device(&call, in, out, false);
    CU_ASSERT(equal(&out[0], &all[0]) && equal(&out[1], &all[1]));
    in[3] = out[0];
    in[4] = out[1];
    in[5] = random_numbers(4, in[0].t.dim, g->dtype);
    in[6] = in[0];
    in[7] = first;
    attr.part = true;
    call = (wf_call){
        .op = &wf_op_attention_part_grad, .n_out = 3, .n_in = 7 + packed, .attr = &attr};
    free(all[1].host);
    all[1] = numbers_of(4, in[1].t.dim, g->dtype);
    free(all[2].host);
    all[2] = numbers_of(4, in[1].t.dim, g->dtype);
    check(&call, in, all, &some_grad, false);
    for (int i = 0; i < 6; i++)
        free(in[i].host);
    for (int o = 0; o < 3; o++)
        free(all[o].host);
    free(first.host);
    close_context();
}

static void attention_of_some_tokens(void)
{
    part_of_tokens(
        &(general){
            .heads = 2, .groups = 1, .tokens = 70, .keys = 70, .dim = 10, .causal = true},
        false);
    part_of_tokens(&(general){.heads = 1,
                              .groups = 1,
                              .tokens = 140,
                              .keys = 140,
                              .dim = 8,
                              .causal = true,
                              .window = 30,
                              .dropout = 0.1F},
                   true);
    for (int packed = 0; packed < 2; packed++) /* chunks */
        part_of_tokens(&(general){.heads = 2,
                                  .groups = 1,
                                  .tokens = 140,
                                  .keys = 140,
                                  .dim = 10,
                                  .causal = true,
                                  .window = -67},
                       packed);
    part_of_tokens(
        &(general){
            .heads = 2, .groups = 2, .tokens = 37, .keys = 37, .dim = 136, .dtype = WF_BF16},
        false);
    for (int packed = 0; packed < 2; packed++) /* chunks, windows */
        part_of_tokens(&(general){.heads = 2,
                                  .groups = 1,
                                  .tokens = 150,
                                  .keys = 150,
                                  .dim = 24,
                                  .causal = true,
                                  .window = packed ? 30 : -67,
                                  .dropout = packed ? 0.1F : 0,
                                  .dtype = WF_BF16},
                       packed);
}

/* Sinks beside all tokens and some of them, and their gradient by rows. */
static void sinks_beside(const general *g, bool packed)
{
    const split heads = {"sinks over heads", {2, WHOLE, WHOLE, 0, WHOLE}, {2, 2}, ANY};
    const split tokens = {"sinks over tokens", {1, WHOLE, WHOLE, WHOLE, WHOLE}, {1, 1}, ANY};
    const split rows = {"rows of sinks over heads", {2, 2, 2, 0}, {2}, ANY};
    wf_attention_attr attr = {.key = 9,
                              .dropout = g->dropout,
                              .site = 3,
                              .window = g->window,
                              .cap = g->cap,
                              .bidirectional = !g->causal};
    wf_call call = {
        .op = &wf_op_attention_sinks, .n_out = 2, .n_in = 4 + packed, .attr = &attr};
    numbers in[OPERANDS], y[2], part[2], dy, row;

    open_context(false);
    general_operands(g, 3, in);
    in[3] = random_numbers(1, &in[0].t.dim[2], WF_F32);
    in[4] = documents(in[0].t.dim);
    for (int o = 0; o < 2; o++) {
        y[o] = numbers_of(o == 1 ? 3 : 4, in[0].t.dim, o == 1 ? WF_F32 : g->dtype);
        part[o] = numbers_of(y[o].t.ndim, y[o].t.dim, y[o].t.dtype);
    }
    check(&call, in, y, &heads, false);
    attr.part = true;
    call.op = &wf_op_attention_part_sinks;
    check(&call, in, part, &tokens, false);
    CU_ASSERT(equal(&y[0], &part[0]) && equal(&y[1], &part[1]));
    dy = random_numbers(4, in[0].t.dim, g->dtype);
    row = numbers_of(3, in[0].t.dim, WF_F32);
    call = (wf_call){.op = &wf_op_attention_sinks_rows, .n_out = 1, .n_in = 4};
    check(&call, (numbers[]){y[0], dy, y[1], in[3]}, &row, &rows, false);
    for (int i = 0; i < 5; i++)
        free(in[i].host);
    for (int o = 0; o < 2; o++) {
        free(y[o].host);
        free(part[o].host);
    }
    free(dy.host);
    free(row.host);
    close_context();
}

static void sinks(void)
{
    sinks_beside(
        &(general){
            .heads = 4, .groups = 1, .tokens = 70, .keys = 70, .dim = 10, .causal = true},
        false);
    sinks_beside(&(general){.heads = 2,
                            .groups = 1,
                            .tokens = 140,
                            .keys = 140,
                            .dim = 8,
                            .causal = true,
                            .window = 30,
                            .cap = 0.5F,
                            .dropout = 0.1F},
                 true);
    sinks_beside(
        &(general){
            .heads = 2, .groups = 1, .tokens = 37, .keys = 37, .dim = 136, .dtype = WF_BF16},
        false);
    sinks_beside(&(general){.heads = 4,
                            .groups = 1,
                            .tokens = 90,
                            .keys = 90,
                            .dim = 64,
                            .causal = true,
                            .window = 30,
                            .dtype = WF_BF16},
                 true);
}

int main(void)
{
    static const wf_test tests[] = {
        {"attention of every kind", attention_of_every_kind},
        {"attention of some tokens", attention_of_some_tokens},
        {"attention with sinks", sinks},
        {NULL, NULL},
    };

    return gpu_test_main("kinds of attention on the GPU", tests);
}
