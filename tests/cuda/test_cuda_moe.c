/*
 * tests/cuda/test_cuda_moe.c - mixtures of experts on the emulated GPU (kernels/moe.h), by
 * device_parts.h: routers, what balances them, and experts have the CPU's bits.
 *
 * ctest: builds plain
 */
#include "kernels/route_balance_internal.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/mixtures.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, TOKENS = 13 };

static const split by_tokens = {"over tokens", {1, 1, 1}, {1, 1}, ANY};
static const split by_sequences = {"over sequences", {0, 0, WHOLE}, {0, 0}, 1u << 2};

/* [sequences, tokens, n] */
static numbers rows_of(wf_dim n, bool random)
{
    const wf_dim dims[] = {wf_dim_batch(SEQUENCES), wf_dim_chunked(TOKENS), n};

    return random ? random_numbers(3, dims, WF_F32) : numbers_of(3, dims, WF_F32);
}

/* A call against the reference and the CPU, in parts and whole. */
static void try_call(const wf_call *call, numbers *in, numbers *out, const split *s)
{
    check(call, in, out, s, false);
    check_cpu(call, in, out);
}

/* Weights and indices of k of n experts, and the gradient of logits by these. */
static void try_router(const wf_route_options *o, int64_t n, bool with_bias)
{
    const wf_dim experts = wf_dim_width(n);
    const split tokens = {"route over tokens", {1, WHOLE}, {1, 1}, ANY};
    const wf_call route = {.op = &wf_op_route,
                           .n_in = 1 + with_bias,
                           .n_out = 2,
                           .attr = o,
                           .attr_size = sizeof *o};
    const wf_call grad = {
        .op = &wf_op_route_grad, .n_in = 3, .n_out = 1, .attr = o, .attr_size = sizeof *o};
    numbers in[2], out[2], back[3], dlogits;

    open_context(false);
    in[0] = rows_of(experts, true);
    in[1] = random_numbers(1, &experts, WF_F32);
    out[0] = rows_of(wf_dim_width(o->k), false);
    out[1] = rows_of(wf_dim_width(o->k), false);
    try_call(&route, in, out, &tokens);
    back[0] = in[0];
    back[1] = out[1];
    back[2] = rows_of(wf_dim_width(o->k), true);
    dlogits = rows_of(experts, false);
    try_call(&grad, back, &dlogits, &by_tokens);
    free_all(in, 2);
    free_all(out, 2);
    free(back[2].host);
    free(dlogits.host);
    close_context();
}

static void routers(void)
{
    try_router(&(wf_route_options){.k = 2}, 5, false);
    try_router(&(wf_route_options){.k = 1, .normalise = true}, 8, true);
    try_router(&(wf_route_options){.k = 4, .after = true}, 19, true);
    try_router(&(wf_route_options){.k = 3, .sigmoid = true, .normalise = true, .factor = 2.5F},
               37, true);
    try_router(&(wf_route_options){.k = 6, .sigmoid = true}, 6, false);
}

/* Choices of k of n experts, ascending, drawn as a router has them. */
static numbers choices(int64_t k, int64_t n)
{
    const wf_route_options o = {.k = k};
    const wf_call route = {
        .op = &wf_op_route, .n_in = 1, .n_out = 2, .attr = &o, .attr_size = sizeof o};
    numbers logits = rows_of(wf_dim_width(n), true), out[2];

    out[0] = rows_of(wf_dim_width(k), false);
    out[1] = rows_of(wf_dim_width(k), false);
    run_on_device(&route, &logits, out, false);
    free(logits.host);
    free(out[0].host);
    return out[1];
}

static void try_balance(const wf_balance *o, int64_t k, int64_t n, bool by_counts)
{
    const wf_dim dims[] = {wf_dim_batch(SEQUENCES), wf_dim_width(n)};
    const int operands = by_counts ? 3 : 2;
    const wf_load_attr as = {.plain = by_counts};
    const wf_call load = {
        .op = &wf_op_route_load, .n_in = 2, .n_out = 1, .attr = &as, .attr_size = sizeof as};
    const wf_call losses = {.op = &wf_op_route_losses,
                            .n_in = operands,
                            .n_out = 2,
                            .attr = o,
                            .attr_size = sizeof *o};
    const wf_call balance = {.op = &wf_op_route_balance,
                             .n_in = operands,
                             .n_out = 1,
                             .attr = o,
                             .attr_size = sizeof *o};
    numbers in[3], out[4];

    open_context(false);
    in[0] = rows_of(wf_dim_width(n), true);
    in[1] = choices(k, n);
    in[2] = numbers_of(1, dims + 1, WF_F32);
    for (int64_t e = 0; e < n; e++)
        ((float *)in[2].host)[e] = (float)(e * e % 5);
    out[0] = numbers_of(2, dims, WF_F32);
    out[1] = numbers_of(1, dims, WF_F32);
    out[2] = numbers_of(1, dims, WF_F32);
    out[3] = rows_of(wf_dim_width(n), false);
    try_call(&load, in, &out[0], &by_sequences);
    try_call(&losses, in, &out[1], &by_sequences);
    try_call(&balance, in, &out[3], &by_sequences);
    free_all(in, 3);
    free_all(out, 4);
    close_context();
}

static void balances(void)
{
    try_balance(&(wf_balance){.weight = 0.01, .sequences = 4}, 2, 5, false);
    try_balance(&(wf_balance){.weight = 0.5, .z = 0.1, .sequences = 4}, 2, 5, true);
    try_balance(&(wf_balance){.z = 0.1, .sequences = 3, .sigmoid = true}, 3, 7, false);
    try_balance(&(wf_balance){.weight = 1, .z = 0.1, .sequences = 3, .sigmoid = true}, 1, 18,
                false);
}

/* A NaN chooses experts that there are, with weights that are NaN; and what is no expert has
   NaN for a gradient. Other rows do not see it. */
static void what_is_no_number(void)
{
    enum { N = 5, K = 2 };
    const wf_route_options o = {.k = K, .sigmoid = true};
    const wf_call route = {
        .op = &wf_op_route, .n_in = 1, .n_out = 2, .attr = &o, .attr_size = sizeof o};
    const wf_call grad = {
        .op = &wf_op_route_grad, .n_in = 3, .n_out = 1, .attr = &o, .attr_size = sizeof o};
    numbers logits, out[2], in[3], dlogits;

    open_context(false);
    logits = rows_of(wf_dim_width(N), true);
    ((float *)logits.host)[2 * N + 4] = NAN;
    out[0] = rows_of(wf_dim_width(K), false);
    out[1] = rows_of(wf_dim_width(K), false);
    run_on_device(&route, &logits, out, false);
    for (int i = 0; i < SEQUENCES * TOKENS * K; i++) {
        float e = ((float *)out[1].host)[i];

        CU_ASSERT(wf_moe_is_expert((double)e, N));
        CU_ASSERT(isnan(((float *)out[0].host)[i]) == (i / K == 2));
    }
    ((float *)out[1].host)[K] = 5;
    ((float *)out[1].host)[3 * K + 1] = 0.5F;
    in[0] = rows_of(wf_dim_width(N), true);
    in[1] = out[1];
    in[2] = rows_of(wf_dim_width(K), true);
    dlogits = rows_of(wf_dim_width(N), false);
    run_on_device(&grad, in, &dlogits, false);
    for (int i = 0; i < SEQUENCES * TOKENS * N; i++)
        CU_ASSERT(isnan(((float *)dlogits.host)[i]) == (i / N == 1 || i / N == 3));
    free(logits.host);
    free_all(out, 2);
    free(in[0].host);
    free(in[2].host);
    free(dlogits.host);
    close_context();
}

static void try_experts(const wf_call *call, numbers *in, numbers *out, bool gradient)
{
    const split experts = split_of(call, in, WHOLE, gradient);
    const split sequences = split_of(call, in, 0, gradient);

    check(call, in, out, &sequences, false);
    if (in[0].t.dtype == WF_F32) /* a sum that is partial is f32 */
        try_call(call, in, out, &experts);
}

/* Gradients are those of `want` where forward kept gate and up. */
static void try_kept(const mixture *m, const wf_call *grad, numbers *in, const numbers *want)
{
    const wf_call forward = {.op = &wf_op_experts, .n_in = WF_MOE_DY, .n_out = 1 + WF_MOE_KEPT};
    const wf_dim *tokens = in[WF_MOE_INDEX].t.dim;
    const wf_dim dims[] = {tokens[0], tokens[1], tokens[2], in[WF_MOE_GATE].t.dim[1]};
    wf_call call = *grad;
    numbers out[RESULTS], kept[1 + WF_MOE_KEPT];

    kept[0] = result_like(&in[WF_MOE_X], m->dtype);
    for (int i = 0; i < WF_MOE_KEPT; i++)
        kept[1 + i] = numbers_of(4, dims, m->dtype);
    run_on_device(&forward, in, kept, false);
    memcpy(in + WF_MOE_DY + 1, kept + 1, WF_MOE_KEPT * sizeof *in);
    call.n_in += WF_MOE_KEPT;
    for (int o = 0; o < call.n_out; o++)
        out[o] = result_like(&want[o], want[o].t.dtype);
    run_on_device(&call, in, out, false);
    for (int o = 0; o < call.n_out; o++)
        CU_ASSERT(memcmp(out[o].host, want[o].host, bytes_of(&out[o].t)) == 0);
    free_all(out, call.n_out);
    free_all(kept, 1 + WF_MOE_KEPT);
}

/* Forward, and both gradients, or those with adapters. */
static void try_mixture(const mixture *m)
{
    const wf_moe_attr attr = {.scale = 0.75F};
    const int adapted = m->rank ? WF_MOE_FACTORS : 0;
    wf_call call = {.op = adapted ? &wf_op_experts_adapted : &wf_op_experts,
                    .n_in = WF_MOE_DY + adapted,
                    .n_out = 1,
                    .attr = &attr,
                    .attr_size = sizeof attr};
    numbers in[OPERANDS], factors[WF_MOE_FACTORS], dy, out[RESULTS];
    const int matrices = adapted ? WF_MOE_FACTORS : WEIGHTS;

    open_context(false);
    fill_mixture(m, in);
    dy = in[WF_MOE_DY];
    if (adapted)
        fill_factors(m, factors);
    memcpy(in + WF_MOE_DY, factors, (size_t)adapted * sizeof *in);
    out[0] = result_like(&in[WF_MOE_X], m->dtype);
    try_experts(&call, in, out, false);
    free(out[0].host);
    in[WF_MOE_DY] = dy;
    memcpy(in + WF_MOE_DY + 1, factors, (size_t)adapted * sizeof *in);
    for (int o = 0; o < matrices; o++)
        out[o] = result_like(adapted ? &factors[o] : &in[o], WF_F32);
    out[matrices] = result_like(&in[WF_MOE_X], m->dtype);
    out[matrices + 1] = result_like(&in[WF_MOE_WEIGHTS], WF_F32);
    call.op = adapted ? &wf_op_experts_adapted_grad : &wf_op_experts_grad;
    call.n_in = WF_MOE_DY + 1 + adapted;
    call.n_out = matrices + 2;
    try_experts(&call, in, out, true);
    if (!adapted) {
        try_kept(m, &call, in, out);
        call.op = &wf_op_experts_dx;
        call.n_out = 2;
        try_experts(&call, in, out + matrices, true);
        try_kept(m, &call, in, out + matrices);
    }
    free_all(in, WF_MOE_DY + 1);
    free_all(factors, adapted);
    free_all(out, matrices + 2);
    close_context();
}

static void experts(void)
{
    try_mixture(&(mixture){8, 2, 4, 13, 10, 24, 0, WF_F32});
    try_mixture(&(mixture){11, 5, 2, 23, 67, 33, 0, WF_F32});
    try_mixture(&(mixture){8, 1, 2, 3, 5, 3, 0, WF_F32});
    try_mixture(&(mixture){8, 3, 2, 21, 18, 24, 0, WF_BF16});
}

static void adapted_experts(void)
{
    try_mixture(&(mixture){8, 2, 2, 13, 10, 24, 3, WF_F32});
    try_mixture(&(mixture){8, 3, 2, 9, 18, 24, 4, WF_BF16});
}

/* Sequences of several chunks of tokens, in a tree of their own. */
static void long_sequences(void)
{
    try_mixture(&(mixture){2, 1, 2, 2048, 3, 2, 0, WF_F32});
}

int main(void)
{
    static const wf_test tests[] = {
        {"routers", routers},
        {"losses of balance", balances},
        {"what is no number", what_is_no_number},
        {"experts", experts},
        {"experts with adapters", adapted_experts},
        {"experts of long sequences", long_sequences},
        {NULL, NULL},
    };

    return gpu_test_main("mixtures on the GPU", tests);
}
