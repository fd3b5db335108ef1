/*
 * tests/kernels/test_pool.c - pools, more pixels, transposed convolutions and group norms
 * against plain loops, and what they refuse.
 *
 * ctest: builds plain
 */
#include "kernels/pool.h"
#include "core/numerics/random.h"
#include "tests/kernels/op_harness.h"
#include <math.h>

enum { BATCH = 2 };

/* A tensor of normal numbers about `mean`. */
static wf_tensor *numbers(wf_context *ctx, int ndim, const wf_dim *dims, float mean)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, (uint64_t)ndim, 0);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((float *)t->data)[i] += mean;
    return t;
}

/* Returns the index of an element of a tensor with four dims. */
static int64_t at(const wf_tensor *t, int64_t b, int64_t r, int64_t c, int64_t n)
{
    return ((b * t->dim[1].size + r) * t->dim[2].size + c) * t->dim[3].size + n;
}

static double value(const wf_tensor *t, int64_t i)
{
    return (double)((const float *)t->data)[i];
}

static void has_size(const wf_tensor *y, int64_t rows, int64_t columns)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(y);
    CU_ASSERT_FATAL(y->dim[1].size == rows && y->dim[2].size == columns);
}

static wf_context *begin(void)
{
    wf_context *ctx = op_context_open(1);

    wf_scope_open(ctx);
    return ctx;
}

static void end(wf_context *ctx)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

/* All numbers are negative, so that the zeros around them would be the greatest. */
static void pools(void)
{
    enum { ROWS = 5, COLUMNS = 4, CHANNELS = 3, HIGH = 3, WIDE = 2 };
    const wf_conv_options o = {.stride = {2}, .padding = {1}};
    const int kernel[] = {HIGH, WIDE};
    wf_context *ctx = begin();
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_width(ROWS), wf_dim_width(COLUMNS),
                           wf_dim_chunked(CHANNELS)};
    wf_tensor *x = numbers(ctx, 4, dims, -9), *mean = wf_avg_pool(x, kernel, &o),
              *most = wf_max_pool(x, kernel, &o);

    has_size(mean, 3, 2);
    has_size(most, 3, 2);
    for (int64_t i = 0; i < wf_tensor_count(most); i++) {
        int64_t n = i % CHANNELS, c = i / CHANNELS % 2, r = i / CHANNELS / 2 % 3;
        double sum = 0, greatest = -INFINITY;

        for (int64_t k = 0; k < HIGH * WIDE; k++) {
            int64_t row = 2 * r - 1 + k / WIDE, column = WIDE * c + k % WIDE;

            if (row < 0 || row >= ROWS)
                continue;
            sum += value(x, at(x, i / CHANNELS / 6, row, column, n));
            greatest = fmax(greatest, value(x, at(x, i / CHANNELS / 6, row, column, n)));
        }
        CU_ASSERT_DOUBLE_EQUAL(value(mean, i), sum / HIGH / WIDE, 1e-5);
        CU_ASSERT_EQUAL(value(most, i), greatest);
    }
    end(ctx);
}

static void upsampled(void)
{
    enum { ROWS = 3, COLUMNS = 2, CHANNELS = 3, HIGH = 7, WIDE = 2 };
    wf_context *ctx = begin();
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_width(ROWS), wf_dim_width(COLUMNS),
                           wf_dim_chunked(CHANNELS)};
    wf_tensor *x = numbers(ctx, 4, dims, 0), *y = wf_upsample(x, (const int[]){HIGH, WIDE});

    has_size(y, HIGH * ROWS, WIDE * COLUMNS);
    for (int64_t i = 0; i < wf_tensor_count(y); i++) {
        int64_t n = i % CHANNELS, c = i / CHANNELS % (WIDE * COLUMNS);
        int64_t r = i / CHANNELS / (WIDE * COLUMNS) % (HIGH * ROWS);
        int64_t b = i / CHANNELS / (WIDE * COLUMNS) / (HIGH * ROWS);

        CU_ASSERT_EQUAL(value(y, i), value(x, at(x, b, r / HIGH, c / WIDE, n)));
    }
    end(ctx);
}

/* Each number of x adds a kernel to what it lies over. */
static void transposed(void)
{
    enum { IN = 3, OUT = 2, HIGH = 3, WIDE = 2, ROWS = 6, COLUMNS = 13 };
    const wf_conv_options o = {.stride = {2, 3}, .padding = {1, 0}};
    wf_context *ctx = begin();
    const wf_dim of_x[] = {wf_dim_batch(BATCH), wf_dim_width(3), wf_dim_width(4),
                           wf_dim_chunked(IN)};
    const wf_dim of_w[] = {wf_dim_chunked(IN), wf_dim_chunked(OUT), wf_dim_width(HIGH),
                           wf_dim_width(WIDE)};
    wf_tensor *x = numbers(ctx, 4, of_x, 0), *w = numbers(ctx, 4, of_w, 0.5F);
    wf_tensor *y = wf_conv_transpose(x, w, &o, (const int[]){1, 2});
    double sum[BATCH * ROWS * COLUMNS * OUT] = {0};

    has_size(y, ROWS, COLUMNS);
    for (int64_t i = 0; i < wf_tensor_count(x); i++)
        for (int64_t k = 0; k < OUT * HIGH * WIDE; k++) {
            int64_t n = i % IN, c = i / IN % 4, r = i / IN / 4 % 3, out = k / (HIGH * WIDE);
            int64_t row = 2 * r - 1 + k / WIDE % HIGH, column = 3 * c + k % WIDE;

            if (row >= 0 && row < ROWS && column < COLUMNS)
                sum[at(y, i / IN / 12, row, column, out)] +=
                    value(x, i) * value(w, n * OUT * HIGH * WIDE + k);
        }
    for (int64_t i = 0; i < wf_tensor_count(y); i++)
        CU_ASSERT_DOUBLE_EQUAL(value(y, i), sum[i], 1e-5);
    end(ctx);
}

/* Channels that are cut by whole groups, and others. */
static void group_norms(void)
{
    enum { POSITIONS = 4, GROUPS = 2, EACH = 3, CHANNELS = GROUPS * EACH };
    const wf_dim channels[] = {wf_dim_heads(GROUPS, EACH), wf_dim_chunked(CHANNELS)};

    for (int k = 0; k < 2; k++) {
        wf_context *ctx = begin();
        const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_width(POSITIONS), channels[k]};
        wf_tensor *x = numbers(ctx, 3, dims, 2), *w = numbers(ctx, 1, &channels[k], 1);
        wf_tensor *y = wf_group_norm(x, GROUPS, w, w, 1e-5F);

        CU_ASSERT_PTR_NOT_NULL_FATAL(y);
        for (int64_t i = 0; i < wf_tensor_count(y); i++) {
            int64_t b = i / CHANNELS / POSITIONS, g = i % CHANNELS / EACH;
            double sum = 0, squares = 0, n = POSITIONS * EACH, mean;

            for (int64_t j = 0; j < POSITIONS * EACH; j++) {
                double v =
                    value(x, (b * POSITIONS + j / EACH) * CHANNELS + g * EACH + j % EACH);

                sum += v;
                squares += v * v;
            }
            mean = sum / n;
            CU_ASSERT_DOUBLE_EQUAL(
                value(y, i),
                ((value(x, i) - mean) / sqrt(squares / n - mean * mean + 1e-5) + 1) *
                    value(w, i % CHANNELS),
                1e-4);
        }
        end(ctx);
    }
}

static void expect_refused(wf_context *ctx, const wf_tensor *y, const char *words)
{
    CU_ASSERT_PTR_NULL(y);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    wf_context_clear(ctx);
}

static void refusals(void)
{
    wf_context *ctx = begin();
    const wf_conv_options o = {.stride = {2}, .padding = {2}};
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_width(5), wf_dim_chunked(6)};
    const wf_dim of_w[] = {wf_dim_chunked(6), wf_dim_chunked(4), wf_dim_width(3)};
    wf_tensor *x = numbers(ctx, 3, dims, 0), *w = numbers(ctx, 3, of_w, 0);

    expect_refused(ctx, wf_max_pool(x, (const int[]){3}, &o),
                   "a kernel of 3 with a padding of 2");
    expect_refused(ctx, wf_avg_pool(x, (const int[]){3}, &o),
                   "a kernel of 3 with a padding of 2");
    expect_refused(ctx, wf_conv_transpose(x, w, &o, (const int[]){2}),
                   "2 indices more of dim 1");
    expect_refused(ctx, wf_upsample(x, (const int[]){0}), "a factor is 1 or more");
    expect_refused(ctx, wf_group_norm(x, 4, NULL, NULL, 1e-5F), "4 groups of 6 channels");
    end(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"pools", pools},
        {"more pixels", upsampled},
        {"transposed convolutions", transposed},
        {"group norms", group_norms},
        {"refusals", refusals},
        {NULL, NULL},
    };

    return wf_test_main("pools", tests);
}
