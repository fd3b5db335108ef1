/*
 * tests/kernels/test_ops_b_parts.c - ranks that hold parts (op_parts.h): norms, rope, attention
 * and cross-entropy.
 */
#include "kernels/attention_internal.h"
#include "tests/kernels/op_parts.h"

/* tiny: gradients underflow to -0 where a probability is below 1/2; some ranks have no head. */
static void attention_parts(int64_t heads, int64_t groups, float dropout, bool tiny,
                            const split *forward, const split *backward)
{
    const wf_dim b = wf_dim_batch(2), t = wf_dim_chunked(tiny ? 64 : 70);
    const wf_dim d = wf_dim_width(10);
    const wf_dim q_dims[] = {b, t, {heads, 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {b, t, {groups, 1, WF_CHUNKS_8}, d};
    const wf_attention_attr attr = {
        .step = 11, .sequences = {.first = 40}, .key = 9, .dropout = dropout, .site = 3};
    wf_call call = {
        .op = &wf_op_attention, .n_in = 3, .n_out = 2, .attr = &attr, .attr_size = sizeof attr};
    wf_call grad = call;

    open_context(1);
    call.in[0] = random_tensor(4, q_dims);
    call.in[1] = random_tensor(4, k_dims);
    call.in[2] = random_tensor(4, k_dims);
    check(call, forward);
    wf_dispatch(&call);
    grad.op = &wf_op_attention_grad;
    grad.n_in = 6;
    grad.n_out = 3;
    memcpy(grad.in, call.in, 3 * sizeof *grad.in);
    memcpy(grad.in + 3, call.out, 2 * sizeof *grad.in);
    grad.in[5] = random_tensor(4, q_dims);
    for (int64_t i = 0; tiny && i < wf_tensor_count(grad.in[5]); i++)
        ((float *)grad.in[5]->data)[i] = -0x1p-149F;
    check(grad, backward);
    close_context();
}

/* k and v whole: dk and dv are partial sums of the tree over query heads. */
static const split over_heads = {"attention", {2, WHOLE, WHOLE}, {2, 2}, ANY};
static const split over_heads_grad = {
    "attention_grad", {2, WHOLE, WHOLE, 2, 2, 2}, {2, SUM, SUM}, TREE};

static void attention_heads(void)
{
    attention_parts(12, 3, 0, false, &over_heads, &over_heads_grad);
    attention_parts(12, 1, 0, false, &over_heads, &over_heads_grad);
    attention_parts(3, 3, 0, false, &over_heads, &over_heads_grad);
    attention_parts(5, 1, 0, false, &over_heads, &over_heads_grad);
}

static void attention_heads_dropout(void)
{
    attention_parts(12, 3, 0.2F, false, &over_heads, &over_heads_grad);
}

static void attention_heads_of_zeros(void)
{
    attention_parts(5, 1, 0, true, &over_heads, &over_heads_grad);
}

/* k and v split like q: each rank has all of its groups. */
static void attention_groups(void)
{
    const split forward = {"attention over groups", {2, 2, 2}, {2, 2}, 1u << 2 | 1u << 4};
    const split backward = {
        "attention_grad over groups", {2, 2, 2, 2, 2, 2}, {2, 2, 2}, 1u << 2 | 1u << 4};

    attention_parts(8, 4, 0, false, &forward, &backward);
    attention_parts(12, 4, 0.1F, false, &forward, &backward);
}

static void norm_parts(void)
{
    const wf_dim dims[] = {wf_dim_batch(3), wf_dim_chunked(21), wf_dim_width(37)};
    const split rows = {"layernorm", {1, WHOLE, WHOLE}, {1, 1, 1}, ANY};
    const split rows_dx = {"layernorm_dx", {1, WHOLE, 1, 1, 1}, {1}, ANY};
    const split rows_dw = {"layernorm_dw", {1, 1, 1, 1}, {SUM, SUM}, TREE};
    const split batch_dw = {"layernorm_dw", {0, 0, 0, 0}, {0, 0}, ANY};
    const split rms = {"rmsnorm", {1, WHOLE}, {1, 1}, ANY};
    const split rms_dx = {"rmsnorm_dx", {1, WHOLE, 1, 1}, {1}, ANY};
    const split rms_dw = {"rmsnorm_dw", {1, 1, 1}, {SUM}, TREE};
    const float eps = 1e-5F;
    wf_tensor *x, *gain, *bias, *dy, *mean, *rstd;

    open_context(1);
    x = random_tensor(3, dims);
    dy = random_tensor(3, dims);
    gain = random_tensor(1, &dims[2]);
    bias = random_tensor(1, &dims[2]);
    mean = random_tensor(2, dims);
    rstd = random_tensor(2, dims);
    check((wf_call){.op = &wf_op_layernorm,
                    .n_in = 3,
                    .in = {x, gain, bias},
                    .n_out = 3,
                    .attr = &eps,
                    .attr_size = sizeof eps},
          &rows);
    check(
        (wf_call){
            .op = &wf_op_layernorm_dx, .n_in = 5, .in = {x, gain, mean, rstd, dy}, .n_out = 1},
        &rows_dx);
    check(
        (wf_call){.op = &wf_op_layernorm_dw, .n_in = 4, .in = {x, mean, rstd, dy}, .n_out = 2},
        &rows_dw);
    check(
        (wf_call){.op = &wf_op_layernorm_dw, .n_in = 4, .in = {x, mean, rstd, dy}, .n_out = 2},
        &batch_dw);
    check((wf_call){.op = &wf_op_rmsnorm,
                    .n_in = 2,
                    .in = {x, gain},
                    .n_out = 2,
                    .attr = &eps,
                    .attr_size = sizeof eps},
          &rms);
    check((wf_call){.op = &wf_op_rmsnorm_dx, .n_in = 4, .in = {x, gain, rstd, dy}, .n_out = 1},
          &rms_dx);
    check((wf_call){.op = &wf_op_rmsnorm_dw, .n_in = 3, .in = {x, rstd, dy}, .n_out = 1},
          &rms_dw);
    close_context();
}

/* A gain over heads, as of norms of queries and keys: heads may be split, tokens not; and
   tokens before a dim of one chunk. */
static void norm_parts_of_heads(void)
{
    const wf_dim heads[] = {wf_dim_batch(3), wf_dim_chunked(11), wf_dim_chunked(13),
                            wf_dim_width(37)};
    const wf_dim tokens[] = {wf_dim_batch(3), wf_dim_chunked(11), wf_dim_width(5),
                             wf_dim_width(37)};
    const split of_heads[] = {{"layernorm_dw over heads", {2, 2, 2, 2}, {SUM, SUM}, TREE},
                              {"rmsnorm_dw over heads", {2, 2, 2}, {SUM}, TREE}};
    const split of_tokens[] = {{"layernorm_dw over tokens", {1, 1, 1, 1}, {SUM, SUM}, TREE},
                               {"rmsnorm_dw over tokens", {1, 1, 1}, {SUM}, TREE}};

    open_context(2);
    for (int i = 0; i < 2; i++) {
        const wf_dim *dims = i ? tokens : heads;
        const split *s = i ? of_tokens : of_heads;
        wf_tensor *x = random_tensor(4, dims), *dy = random_tensor(4, dims);
        wf_tensor *mean = random_tensor(3, dims), *rstd = random_tensor(3, dims);

        check(
            (wf_call){
                .op = &wf_op_layernorm_dw, .n_in = 4, .in = {x, mean, rstd, dy}, .n_out = 2},
            &s[0]);
        check((wf_call){.op = &wf_op_rmsnorm_dw, .n_in = 3, .in = {x, rstd, dy}, .n_out = 1},
              &s[1]);
    }
    close_context();
}

/* Products that underflow to -0: an empty part adds +0, and no zero may differ. */
static void norm_parts_of_zeros(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(8), wf_dim_width(4)};
    const split rms_dw = {"rmsnorm_dw of -0", {1, 1, 1}, {SUM}, TREE};
    const split layer_dw = {"layernorm_dw of -0", {1, 1, 1, 1}, {SUM, SUM}, TREE};
    wf_tensor *x, *dy, *mean, *rstd;

    open_context(1);
    x = random_tensor(3, dims);
    dy = random_tensor(3, dims);
    mean = random_tensor(2, dims);
    rstd = random_tensor(2, dims);
    for (int64_t i = 0; i < wf_tensor_count(x); i++) {
        ((float *)x->data)[i] = 1e-25F;
        ((float *)dy->data)[i] = -1e-25F;
    }
    for (int64_t i = 0; i < 8; i++) {
        ((float *)mean->data)[i] = 0;
        ((float *)rstd->data)[i] = 1;
    }
    check((wf_call){.op = &wf_op_rmsnorm_dw, .n_in = 3, .in = {x, rstd, dy}, .n_out = 1},
          &rms_dw);
    check(
        (wf_call){.op = &wf_op_layernorm_dw, .n_in = 4, .in = {x, mean, rstd, dy}, .n_out = 2},
        &layer_dw);
    close_context();
}

static void rope_parts(void)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(21), wf_dim_chunked(5),
                           wf_dim_width(6)};
    const wf_rope_attr attr = {.options = {.base = 10000}};
    const split tokens = {"rope over tokens", {1}, {1}, ANY};
    const split heads = {"rope over heads", {2}, {2}, ANY};

    open_context(1);
    for (int i = 0; i < 2; i++)
        check((wf_call){.op = &wf_op_rope,
                        .n_in = 1,
                        .in = {random_tensor(4, dims)},
                        .n_out = 1,
                        .attr = &attr,
                        .attr_size = sizeof attr},
              i ? &heads : &tokens);
    close_context();
}

static void loss_parts(int64_t vocabulary)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(9), wf_dim_chunked(vocabulary)};
    const split max = {"logit_max", {2}, {MAX}, ANY};
    const split sum = {"logit_sum", {2, WHOLE, WHOLE}, {SUM, SUM}, TREE};
    const split smooth = {"logit_sum, smoothed", {2, WHOLE, WHOLE}, {SUM, SUM}, TREE};
    static const float smoothing = 0.1f;
    const split grad = {"logit_sum_grad", {2, WHOLE, WHOLE, WHOLE, WHOLE}, {2}, ANY};
    wf_tensor *x, *top, *targets, *dsum, *dpicked;

    open_context(1);
    x = random_tensor(3, dims);
    ((float *)x->data)[0] = -0.0F;
    targets = random_tokens(2, dims, vocabulary);
    ((int32_t *)targets->data)[0] = 0;
    top = wf_logit_max(x);
    dsum = random_tensor(2, dims);
    dpicked = random_tensor(2, dims);
    check((wf_call){.op = &wf_op_logit_max, .n_in = 1, .in = {x}, .n_out = 1}, &max);
    check((wf_call){.op = &wf_op_logit_sum, .n_in = 3, .in = {x, top, targets}, .n_out = 2},
          &sum);
    check((wf_call){.op = &wf_op_logit_sum,
                    .n_in = 3,
                    .in = {x, top, targets},
                    .n_out = 2,
                    .attr = &smoothing,
                    .attr_size = sizeof smoothing},
          &smooth);
    for (int i = 0; i < 2; i++)
        check((wf_call){.op = &wf_op_logit_sum_grad,
                        .n_in = 5,
                        .in = {x, top, targets, dsum, dpicked},
                        .n_out = 1,
                        .attr = i ? &smoothing : NULL,
                        .attr_size = i ? sizeof smoothing : 0},
              &grad);
    close_context();
}

static void loss_parts_of_sizes(void)
{
    loss_parts(257);
    loss_parts(1000);
    loss_parts(5); /* less than one word for each rank */
}

int main(void)
{
    static const wf_test tests[] = {
        {"attention over heads", attention_heads},
        {"attention over heads with dropout", attention_heads_dropout},
        {"attention over heads, gradients underflow", attention_heads_of_zeros},
        {"attention over heads and groups", attention_groups},
        {"norms over tokens and batch", norm_parts},
        {"norms over heads", norm_parts_of_heads},
        {"norms of products that underflow", norm_parts_of_zeros},
        {"rope over tokens and heads", rope_parts},
        {"loss over the vocabulary", loss_parts_of_sizes},
        {NULL, NULL},
    };

    return wf_test_main("parts of ops b", tests);
}
