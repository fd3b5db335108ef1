/*
 * tests/core/test_cast.c - bf16 as a storage type: how floats are rounded, which ops take it,
 * and what it costs. The CPU's loops against the rule of core/numerics/bf16.h, at every length
 * and offset.
 */
#include "core/numerics/bf16.h"
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"
#include <math.h>
#include <stdlib.h>

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void halves_stay(void)
{
    for (uint32_t half = 0; half < 1 << 16; half++) {
        uint16_t back = wf_bf16_of(float_of(half << 16));
        bool number = (half & 0x7f80) != 0 && (half & 0x7fff) <= 0x7f80;

        if (number && back != half)
            CU_ASSERT_EQUAL(back, half);
        if ((half & 0x7f80) == 0) /* a zero or a denormal */
            CU_ASSERT_EQUAL(back, half & 0x8000);
        if ((half & 0x7fff) > 0x7f80)
            CU_ASSERT(isnan(wf_bf16_value(back)));
    }
}

/* The nearest of the two neighbours by distance in double, the even one of two as near. */
static void nearest_even(void)
{
    uint32_t bits = 1;

    for (int i = 0; i < 200000; i++) {
        float x;
        uint32_t low, high;
        double below, above;
        uint16_t expected;

        bits = bits * 1664525u + 1013904223u;
        x = float_of((bits & 0x80ffffffu) | (64u + (bits >> 24) % 100) << 23);
        if (i % 3 == 0) /* ties */
            x = float_of((bits & 0x80ff0000u) | 0x3f008000u);
        memcpy(&low, &x, sizeof low);
        low >>= 16;
        high = low + 1;
        below = fabs((double)x - (double)float_of(low << 16));
        above = fabs((double)x - (double)float_of(high << 16));
        expected = (uint16_t)(below < above || (below == above && !(low & 1)) ? low : high);
        if (wf_bf16_of(x) != expected)
            CU_ASSERT_EQUAL(wf_bf16_of(x), expected);
    }
    CU_ASSERT_EQUAL(wf_bf16_of(float_of(0x7f7fffff)), 0x7f80);          /* rounds to infinity */
    CU_ASSERT_EQUAL(wf_bf16_of(float_of(0x7f800001)) & 0x7fc0, 0x7fc0); /* a quiet NaN */
    CU_ASSERT_EQUAL(wf_bf16_of(float_of(0x807fffff)), 0x8000);          /* a denormal */
}

static wf_context *open_cpu(int threads)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(threads, &error), NULL, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static wf_tensor *vector(wf_context *ctx, int64_t n)
{
    wf_dim dim = wf_dim_width(n);

    return wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);
}

static void loops_follow_the_rule(void)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 100, 4099, 1 << 20};
    wf_context *ctx = open_cpu(2);

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        wf_tensor *x = vector(ctx, sizes[s]), *half, *back;
        bool same = true;
        uint32_t bits = 7;

        for (int64_t i = 0; i < sizes[s]; i++) {
            bits = bits * 1664525u + 1013904223u;
            ((float *)x->data)[i] = float_of(bits);
        }
        half = wf_cast(x, WF_BF16);
        back = wf_cast(half, WF_F32);
        CU_ASSERT_FATAL(half && back && half->dtype == WF_BF16 && back->dtype == WF_F32);
        for (int64_t i = 0; i < sizes[s]; i++) {
            uint16_t right = wf_bf16_of(((float *)x->data)[i]);
            float value = wf_bf16_value(right);

            same = same && ((uint16_t *)half->data)[i] == right &&
                   memcmp((float *)back->data + i, &value, sizeof value) == 0;
        }
        CU_ASSERT(same);
    }
    wf_context_close(ctx);
}

/* An op on bf16 gives the bits of the op on what that was widened to; it pays in workspace, but
   for products of few rows. */
static void ops_widen(void)
{
    enum { ROWS = 11, N = 40, K = 24 };
    wf_context *ctx = open_cpu(1);
    wf_dim shape[] = {wf_dim_batch(ROWS), wf_dim_width(K)};
    wf_dim weights[] = {wf_dim_chunked(N), wf_dim_width(K)};
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *w = wf_tensor_new(ctx, WF_F32, 2, weights, NULL, WF_MEMORY_PARAMETER);
    wf_tensor *half, *y, *right;
    wf_memory_report plain, widened;

    wf_init_normal(x, 0, 1, 1);
    wf_init_normal(w, 0, 1, 2);
    half = wf_cast(w, WF_BF16);
    wf_pool_report(wf_context_pool(ctx), &widened);
    right = wf_linear(x, wf_cast(half, WF_F32));
    wf_pool_report(wf_context_pool(ctx), &plain);
    y = wf_linear(x, half);
    wf_pool_report(wf_context_pool(ctx), &widened);
    CU_ASSERT_FATAL(y && right && y->dtype == WF_F32);
    CU_ASSERT_EQUAL(memcmp(y->data, right->data, ROWS * N * sizeof(float)), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(y->data, wf_linear(x, w)->data, ROWS * N * sizeof(float)), 0);
    CU_ASSERT_EQUAL(widened.most[WF_MEMORY_WORKSPACE],
                    plain.most[WF_MEMORY_WORKSPACE] + N * K * sizeof(float));
    /* a tensor that an op writes to is never bf16 */
    CU_ASSERT_EQUAL(wf_init_fill(half, 1), WF_EDTYPE);
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "init_fill: operand 0 is bf16"));
    wf_context_close(ctx);
}

/* Rows are widened as they are read, not the whole table, and nobody reads it for its
   gradient. */
static void tables_are_read_by_rows(void)
{
    enum { ROWS = 1000, D = 24 };
    wf_context *ctx = open_cpu(1);
    wf_dim dims[] = {wf_dim_chunked(ROWS), wf_dim_width(D)}, batch = wf_dim_batch(3);
    wf_tensor *table = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_PARAMETER), *half;
    wf_tensor *ids = wf_tensor_new(ctx, WF_I32, 1, &batch, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *y, *right, *dy, *dtable;
    wf_memory_report plain, after;

    wf_init_normal(table, 0, 1, 1);
    for (int i = 0; i < 3; i++)
        ((int32_t *)ids->data)[i] = 499 * i;
    half = wf_cast(table, WF_BF16);
    right = wf_embedding(wf_cast(half, WF_F32), ids);
    dy = wf_scale(right, 2);
    dtable = wf_embedding_dw(table, ids, dy);
    wf_pool_report(wf_context_pool(ctx), &plain);
    y = wf_embedding(half, ids);
    CU_ASSERT_FATAL(y && right && dtable && y->dtype == WF_F32);
    CU_ASSERT_EQUAL(memcmp(y->data, right->data, 3 * D * sizeof(float)), 0);
    y = wf_embedding_dw(half, ids, dy);
    CU_ASSERT_FATAL(y && y->dtype == WF_F32);
    CU_ASSERT_EQUAL(memcmp(y->data, dtable->data, ROWS * D * sizeof(float)), 0);
    wf_pool_report(wf_context_pool(ctx), &after);
    CU_ASSERT_EQUAL(after.most[WF_MEMORY_WORKSPACE], plain.most[WF_MEMORY_WORKSPACE]);
    wf_context_close(ctx);
}

/* Its gradient is that of the widened one, in f32. */
static void gradients_are_f32(void)
{
    wf_context *ctx = open_cpu(1);
    wf_tensor *x = vector(ctx, 8), *w = vector(ctx, 8), *half;
    wf_tape *tape;

    wf_init_normal(x, 0, 1, 1);
    wf_init_normal(w, 0, 1, 2);
    half = wf_cast(w, WF_BF16);
    tape = wf_tape_open(ctx);
    half = wf_leaf(half);
    CU_ASSERT_EQUAL(wf_backward(wf_mul(x, half), x, false), WF_OK);
    CU_ASSERT_FATAL(half->grad && half->grad->dtype == WF_F32);
    for (int i = 0; i < 8; i++) {
        float v = ((float *)x->data)[i];

        CU_ASSERT_EQUAL(((float *)half->grad->data)[i], v * v);
    }
    wf_tape_close(tape);
    wf_context_close(ctx);
}

/* The context says what results are stored as: that of an op is its f32 result, rounded
   once. */
static void results_are_rounded(void)
{
    enum { ROWS = 3, N = 24 };
    wf_context *ctx = open_cpu(1);
    wf_dim shape[] = {wf_dim_batch(ROWS), wf_dim_width(N)};
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *bias = vector(ctx, N), *right, *y, *wide;
    int odd = 0;

    wf_init_normal(x, 0, 1, 1);
    wf_init_normal(bias, 0, 1, 2);
    right = wf_bias_gelu(x, bias);
    CU_ASSERT_EQUAL(wf_context_storage(ctx, WF_BF16), WF_F32);
    y = wf_bias_gelu(x, bias);
    CU_ASSERT_FATAL(right && y && y->dtype == WF_BF16);
    for (int i = 0; i < ROWS * N; i++)
        odd += ((uint16_t *)y->data)[i] != wf_bf16_of(((float *)right->data)[i]);
    CU_ASSERT_EQUAL(odd, 0);
    wide = wf_bias_grad(y); /* the gradient of a layer's vector */
    CU_ASSERT_FATAL(wide && wide->dtype == WF_F32);
    CU_ASSERT_EQUAL(wf_context_storage(ctx, WF_F32), WF_BF16);
    right = wf_bias_grad(wf_cast(y, WF_F32));
    CU_ASSERT_EQUAL(memcmp(wide->data, right->data, ROWS * N * sizeof(float)), 0);
    CU_ASSERT_EQUAL(wf_context_storage(ctx, WF_I32), WF_F32);
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "results cannot be stored as i32: device cpu"));
    CU_ASSERT_EQUAL(wf_scale(x, 2)->dtype, WF_F32);
    wf_context_close(ctx);
}

/* Gradients of one tensor: two of bf16 are added as floats and rounded; with one of f32 in
   f32. */
static void gradients_meet(void)
{
    wf_context *ctx = open_cpu(1);
    wf_dim shape[] = {wf_dim_batch(2), wf_dim_width(4)};
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION), *y, *z;
    wf_tensor *seed = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION);
    wf_tape *tape;
    float third;

    wf_init_fill(x, 1);
    wf_init_fill(seed, 1);
    third = wf_bf16_value(wf_bf16_of(1.0f / 3));
    wf_context_storage(ctx, WF_BF16);
    tape = wf_tape_open(ctx);
    x = wf_leaf(x);
    y = wf_scale(x, 1);
    z = wf_add(wf_scale(y, 1.0f / 3), wf_scale(y, 100));
    CU_ASSERT_EQUAL(wf_backward(z, seed, false), WF_OK); /* the device's type for a bf16 */
    CU_ASSERT_FATAL(x->grad && x->grad->dtype == WF_BF16);
    CU_ASSERT_EQUAL(*(uint16_t *)x->grad->data, wf_bf16_of(100 + third));
    wf_tape_close(tape);

    tape = wf_tape_open(ctx);
    x = wf_leaf(x);
    z = wf_add(wf_scale(x, 1.0f / 3), wf_batch_expand(wf_batch_sum(x), x));
    CU_ASSERT_EQUAL(wf_backward(z, seed, false), WF_OK);
    CU_ASSERT_FATAL(x->grad &&
                    x->grad->dtype == WF_F32); /* a sum of sequences is, and its own */
    CU_ASSERT_EQUAL(*(float *)x->grad->data, 2 + third);
    wf_tape_close(tape);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static wf_context *with_fp32_residual(bool on)
{
    const wf_context_options options = {.fp32_residual = on};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_storage(ctx, WF_BF16);
    wf_scope_open(ctx);
    return ctx;
}

/* Checks the dtypes of x and of a branch of it, and of their gradients. */
static void residual_of(bool on)
{
    wf_context *ctx = with_fp32_residual(on);
    wf_dim shape[] = {wf_dim_batch(2), wf_dim_width(32)};
    wf_tensor *x = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION), *stream,
              *sum;
    wf_tensor *seed = wf_tensor_new(ctx, WF_F32, 2, shape, NULL, WF_MEMORY_ACTIVATION), *branch;
    wf_tensor *gain = vector(ctx, 32), *normed;
    wf_tape *tape = wf_tape_open(ctx);
    wf_dtype of_stream = on ? WF_F32 : WF_BF16;

    wf_init_normal(x, 0, 1, 1);
    wf_init_normal(seed, 0, 1, 2);
    wf_init_fill(gain, 1);
    x = wf_leaf(x);
    stream = wf_scale(x, 1);
    branch = wf_leaf(wf_silu(stream));
    normed = wf_add_rmsnorm(stream, wf_scale(branch, 1), gain, 1e-5f, 0, 0, &sum);
    CU_ASSERT_FATAL(normed && sum);
    CU_ASSERT_EQUAL(stream->dtype, of_stream);
    CU_ASSERT_EQUAL(branch->dtype, WF_BF16);
    CU_ASSERT_EQUAL(sum->dtype, of_stream);
    CU_ASSERT_EQUAL(normed->dtype, WF_BF16);
    CU_ASSERT_EQUAL(wf_backward(sum, seed, false), WF_OK);
    CU_ASSERT_FATAL(x->grad && branch->grad);
    CU_ASSERT_EQUAL(branch->grad->dtype, WF_BF16);
    CU_ASSERT_EQUAL(((uint16_t *)branch->grad->data)[5], wf_bf16_of(((float *)seed->data)[5]));
    if (on)
        CU_ASSERT_EQUAL(memcmp(x->grad->data, seed->data, sizeof(float) * 64), 0);
    wf_tape_close(tape);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

static void residual_stream(void)
{
    residual_of(false);
    residual_of(true);
}

static void casts_that_are_none(void)
{
    wf_context *ctx = open_reference(0);
    wf_dim dim = wf_dim_width(2);
    static const double value[] = {1.00390625, -3};
    wf_tensor *x = make(ctx, 0, 2, value), *half = wf_cast(x, WF_BF16), *back;

    back = wf_cast(half, WF_F64);
    CU_ASSERT_FATAL(back && half);
    CU_ASSERT_EQUAL(((double *)back->data)[0], 1); /* a tie, to even */
    CU_ASSERT_EQUAL(((double *)back->data)[1], -3);
    CU_ASSERT_PTR_NULL(wf_cast(x, WF_F32));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "f64 cannot be cast to f32"));
    CU_ASSERT_PTR_NULL(wf_cast(half, WF_BF16));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "bf16 cannot be cast to bf16"));
    CU_ASSERT_PTR_NULL(wf_cast(wf_tensor_absent(ctx, WF_F64, 1, &dim, NULL), WF_BF16));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "a tensor without memory"));
    CU_ASSERT_PTR_NULL(wf_cast(NULL, WF_BF16));
    CU_ASSERT(wf_tensor_is_fake(wf_cast(wf_tensor_fake(ctx, WF_F64, 1, &dim, NULL), WF_BF16)));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"every bf16 stays what it is, denormals are zeros", halves_stay},
        {"floats go to the nearest, ties to even", nearest_even},
        {"the CPU's loops", loops_follow_the_rule},
        {"ops take bf16 operands", ops_widen},
        {"tables are read by rows", tables_are_read_by_rows},
        {"gradients of bf16 are f32", gradients_are_f32},
        {"results are rounded once", results_are_rounded},
        {"gradients of two types meet", gradients_meet},
        {"a residual stream in f32, with branches in bf16", residual_stream},
        {"what cannot be cast", casts_that_are_none},
        {NULL, NULL},
    };

    return wf_test_main("cast", tests);
}
