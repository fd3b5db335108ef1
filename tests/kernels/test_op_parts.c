/*
 * tests/kernels/test_op_parts.c - a rank that holds a part computes that part, bit for bit.
 *
 * Each case runs an op whole, then once for each of p ranks on slices of the operands, without
 * any mesh: an output that is split must be the slice of the whole one; a partial one must give
 * the whole one when the ranks are summed in their tree (or their maximum is taken). Dims do
 * not divide evenly and some parts are empty.
 */
#include "core/random.h"
#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/devices.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = -1, SUM = -2, MAX = -3, MOST_PARTS = 8 };

/* Which dim of each operand and output is split; WHOLE for operands, SUM and MAX for outputs.
 */
typedef struct split {
    const char *name;
    int in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    unsigned parts; /* bit p: over p ranks */
} split;

#define TREE (1u << 2 | 1u << 4 | 1u << 8) /* where ranks nest in the 8 leaves */
#define ANY  (TREE | 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7) /* where nothing is summed */

static wf_context *ctx;
static uint64_t stream;

static void open_context(int threads)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(threads, &error), &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_position(ctx, 11, 40);
    stream = 0;
}

static void close_context(void)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    if (wf_context_status(ctx) != WF_OK)
        printf("%s\n", wf_context_error(ctx)->text);
    wf_context_close(ctx);
}

static wf_tensor *random_tensor(int ndim, const wf_dim *dims)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, stream++, 0);
    return t;
}

static wf_tensor *random_tokens(int ndim, const wf_dim *dims, int64_t below)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((int32_t *)t->data)[i] =
            (int32_t)wf_random_below(5, stream, (uint64_t)i, (uint64_t)below);
    stream++;
    return t;
}

static size_t bytes_of(const wf_tensor *t)
{
    return (size_t)wf_tensor_local_count(t) * wf_dtype_size(t->dtype);
}

/* The part [start, start + n) of a dim (WHOLE: all), with data of its own. */
static wf_tensor part_of(const wf_tensor *whole, int dim, int p, int r)
{
    wf_tensor t = *whole;
    size_t outer = 1, inner = wf_dtype_size(t.dtype), row, skip, all;

    t.data = NULL;
    if (dim >= 0) {
        const wf_dim *d = &t.dim[dim];

        t.start[dim] = wf_cut(d->size, d->grain, p, r);
        t.local[dim] = wf_cut(d->size, d->grain, p, r + 1) - t.start[dim];
    }
    t.data = malloc(bytes_of(&t) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t.data);
    if (dim < 0) {
        memcpy(t.data, whole->data, bytes_of(&t));
        return t;
    }
    for (int d = 0; d < t.ndim; d++)
        if (d < dim)
            outer *= (size_t)t.local[d];
        else if (d > dim)
            inner *= (size_t)t.local[d];
    row = inner * (size_t)t.local[dim];
    skip = inner * (size_t)t.start[dim];
    all = inner * (size_t)t.dim[dim].size;
    for (size_t o = 0; o < outer; o++)
        memcpy((char *)t.data + o * row, (char *)whole->data + o * all + skip, row);
    return t;
}

static void run_kernel(const wf_call *call)
{
    const wf_kernel *kernel = call->op->cpu;
    size_t bytes = kernel->workspace ? kernel->workspace(call) : 0;
    void *workspace = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;

    CU_ASSERT_EQUAL_FATAL(kernel->run(call, workspace), WF_OK);
    free(workspace);
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return memcmp(a->data, b->data, bytes_of(a)) == 0;
}

/* What the ranks' partial outputs make together. */
static void combine(const wf_tensor *parts, int p, int how, wf_tensor *result)
{
    const wf_simd *simd = wf_cpu_simd(NULL);
    const float *source[MOST_PARTS];
    int64_t n = wf_tensor_local_count(result);

    for (int r = 0; r < p; r++)
        source[r] = parts[r].data;
    memcpy(result->data, source[0], bytes_of(result));
    if (how == SUM)
        simd->sum(source, p, true, result->data, n);
    for (int r = 1; how == MAX && r < p; r++)
        simd->maximum(result->data, source[r], result->data, n);
}

static void check_parts(const wf_call *whole, const split *s, int p)
{
    wf_tensor in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS][MOST_PARTS];
    bool right = true;

    for (int r = 0; r < p; r++) {
        wf_call call = *whole;

        for (int i = 0; i < call.n_in; i++) {
            in[i] = part_of(whole->in[i], s->in[i], p, r);
            call.in[i] = &in[i];
        }
        for (int o = 0; o < call.n_out; o++) {
            out[o][r] = part_of(whole->out[o], s->out[o], p, r);
            memset(out[o][r].data, 0xff, bytes_of(&out[o][r]));
            call.out[o] = &out[o][r];
        }
        run_kernel(&call);
        for (int i = 0; i < call.n_in; i++)
            free(in[i].data);
    }
    for (int o = 0; o < whole->n_out; o++) {
        for (int r = 0; s->out[o] >= 0 && r < p; r++) {
            wf_tensor expected = part_of(whole->out[o], s->out[o], p, r);

            right = right && alike(&expected, &out[o][r]);
            free(expected.data);
        }
        if (s->out[o] < 0) {
            wf_tensor total = part_of(whole->out[o], WHOLE, p, 0);

            combine(out[o], p, s->out[o], &total);
            right = right && alike(whole->out[o], &total);
            free(total.data);
        }
        for (int r = 0; r < p; r++)
            free(out[o][r].data);
    }
    if (!right)
        printf("\n%s: not the same over %d ranks\n", s->name, p);
    CU_ASSERT(right);
}

static void check(wf_call call, const split *s)
{
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    for (int p = 1; p <= MOST_PARTS; p++)
        if (s->parts >> p & 1)
            check_parts(&call, s, p);
}

/* tiny: gradients underflow to -0 where a probability is below 1/2; some ranks have no head. */
static void attention_parts(int64_t heads, int64_t groups, float dropout, bool tiny,
                            const split *forward, const split *backward)
{
    const wf_dim b = wf_dim_batch(2), t = wf_dim_split(tiny ? 64 : 70);
    const wf_dim d = wf_dim_width(10);
    const wf_dim q_dims[] = {b, t, {heads, 1, WF_LEAF_EIGHT}, d};
    const wf_dim k_dims[] = {b, t, {groups, 1, WF_LEAF_EIGHT}, d};
    const wf_attention_attr attr = {
        .step = 11, .first_sequence = 40, .key = 9, .dropout = dropout, .site = 3};
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
    const wf_dim dims[] = {wf_dim_batch(3), wf_dim_split(21), wf_dim_width(37)};
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

/* Products that underflow to -0: an empty part adds +0, and no zero may tell. */
static void norm_parts_of_zeros(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_split(8), wf_dim_width(4)};
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
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_split(21), wf_dim_split(5), wf_dim_width(6)};
    const wf_rope_attr attr = {.base = 10000};
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
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_split(9), wf_dim_split(vocabulary)};
    const split max = {"logit_max", {2}, {MAX}, ANY};
    const split sum = {"logit_sum", {2, WHOLE, WHOLE}, {SUM, SUM}, TREE};
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
    check((wf_call){.op = &wf_op_logit_sum_grad,
                    .n_in = 5,
                    .in = {x, top, targets, dsum, dpicked},
                    .n_out = 1},
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
        {"norms of products that underflow", norm_parts_of_zeros},
        {"rope over tokens and heads", rope_parts},
        {"loss over the vocabulary", loss_parts_of_sizes},
        {NULL, NULL},
    };

    return wf_test_main("op parts", tests);
}
