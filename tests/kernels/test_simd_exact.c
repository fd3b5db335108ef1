/*
 * tests/kernels/test_simd_exact.c - the CPU's inner loops against their definitions, to the
 * bit: lanes, masks, maxima and exp, by scalar loops, on every build that the machine
 * runs.
 */
#include "core/numerics/math.h"
#include "tests/harness.h"
#include "tests/kernels/simd_data.h"
#include <stdlib.h>
#include <string.h>

/* Sums in 16 lanes, by a scalar loop that follows the definition. */
static float lanes_sum(const float *x, int64_t n, float (*term)(float x, float by), float by)
{
    float lane[16] = {0};

    for (int64_t i = 0; i < n; i++)
        lane[i % 16] += term(x[i], by);
    for (int apart = 8; apart > 0; apart /= 2) {
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    }
    return lane[0];
}

static float plain(float x, float by)
{
    return x + by;
}

static float exp_less(float x, float by)
{
    return wf_expf(x - by);
}

static double squares_sum(const float *x, int64_t n)
{
    double lane[8] = {0};

    for (int64_t i = 0; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    for (int apart = 4; apart > 0; apart /= 2) {
        for (int i = 0; i < apart; i++)
            lane[i] += lane[i + apart];
    }
    return lane[0];
}

static void sums_have_their_shape(void)
{
    static float y[MOST];
    const wf_simd *simd[BUILDS];
    int builds_n = builds(simd);

    for (int64_t n = 0; n < 1000; n += n < 70 ? 1 : 97) {
        data in = make_data(1, n);

        for (int b = 0; b < builds_n; b++) {
            float mean, rstd;

            CU_ASSERT_EQUAL(simd[b]->sum_exp(in.x, 3.0f, n),
                            lanes_sum(in.x, n, exp_less, 3.0f));
            CU_ASSERT_EQUAL(simd[b]->sum_squares(in.x, n), squares_sum(in.x, n));
            if (n == 0)
                continue;
            simd[b]->layernorm(in.x, in.gain, in.bias, 1e-5f, y, &mean, &rstd, 1, n);
            CU_ASSERT_EQUAL(mean, lanes_sum(in.x, n, plain, 0.0f) / (float)n);
        }
    }
}

static void in_place(void)
{
    static float a[MOST], right[MOST];
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int b = 0; b < n; b++) {
        for (int64_t d = 1; d < 200; d += 33) {
            data in = make_data(1, d);
            size_t bytes = (size_t)d * sizeof(float);

            memcpy(a, in.x, bytes);
            simd[b]->add(in.x, in.dy, right, d);
            simd[b]->add(a, in.dy, a, d);
            CU_ASSERT_EQUAL(memcmp(a, right, bytes), 0);
            simd[b]->mul(in.dy, right, right, d);
            simd[b]->mul(a, in.dy, a, d);
            CU_ASSERT_EQUAL(memcmp(a, right, bytes), 0);
            simd[b]->scale(a, 0.5f, a, d);
            simd[b]->add(a, a, a, d);
            CU_ASSERT_EQUAL(memcmp(a, right, bytes), 0);
        }
    }
}

/* The definition, word by word, from any first element, also where word / 4 passes 2^32. */
static void dropout_is_its_definition(void)
{
    static const int64_t first[] = {0, 1, 2, 3, 5, 1000003, ((int64_t)1 << 34) - 70};
    static const float p[] = {0.0f, 0.1f, 0.5f, 0.999f, 1.0f};
    static const uint32_t counter[3] = {7, 8, 9};
    enum { LENGTH = 1500 };
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int f = 0; f < 7; f++) {
        for (int q = 0; q < 5; q++) {
            for (int64_t length = 1; length <= LENGTH; length += 1 + length / 2) {
                data in = make_data(1, LENGTH);
                double limit = floor((double)p[q] * 0x1p32);
                float right[LENGTH], y[LENGTH + 1];

                for (int64_t i = 0; i < length; i++) {
                    uint64_t w = (uint64_t)(first[f] + i);
                    uint32_t c[4] = {(uint32_t)(w / 4), 7, 8, 9}, word[4];

                    wf_philox(c, 99, word);
                    right[i] = word[w % 4] >= limit ? in.x[i] * (1.0f / (1.0f - p[q])) : 0.0f;
                }
                for (int b = 0; b < n; b++) {
                    y[length] = -5.0f;
                    simd[b]->dropout(in.x, y, length, 99, counter, first[f], p[q]);
                    CU_ASSERT_EQUAL(memcmp(y, right, (size_t)length * sizeof(float)), 0);
                    CU_ASSERT_EQUAL(y[length], -5.0f);
                }
            }
        }
    }
}

static void dropout_keeps_its_share(void)
{
    static const uint32_t counter[3] = {1, 2, 3};
    const wf_simd *simd[BUILDS];
    int n = builds(simd), kept = 0;

    for (int64_t part = 0; part < 100; part++) {
        float ones[1000], y[1000];

        for (int i = 0; i < 1000; i++)
            ones[i] = 1.0f;
        simd[n - 1]->dropout(ones, y, 1000, 5, counter, part * 1000, 0.3f);
        for (int i = 0; i < 1000; i++)
            kept += y[i] != 0.0f;
    }
    /* 100,000 trials of 0.7: sigma is 145. */
    CU_ASSERT_TRUE(abs(kept - 70000) < 700);
}

static void maxima_are_blind_to_order(void)
{
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int b = 0; b < n; b++) {
        for (int64_t length = 1; length < 150; length++) {
            data in = make_data(1, length);
            float x[150], y[150];

            memcpy(x, in.x, (size_t)length * sizeof(float));
            for (int64_t at = 0; at < length; at += 1 + length / 4) {
                float was = x[at];

                x[at] = 100.0f;
                CU_ASSERT_EQUAL(simd[b]->row_max(x, length), 100.0f);
                x[at] = NAN;
                CU_ASSERT_TRUE(isnan(simd[b]->row_max(x, length)));
                simd[b]->maximum(x, in.dy, y, length);
                CU_ASSERT_TRUE(isnan(y[at]));
                simd[b]->maximum(in.dy, x, y, length);
                CU_ASSERT_TRUE(isnan(y[at]));
                x[at] = was;
            }
            for (int64_t i = 0; i < length; i++)
                x[i] = i % 2 ? 0.0f : -0.0f;
            CU_ASSERT_FALSE(signbit(simd[b]->row_max(x, length)));
            simd[b]->maximum(x, x, y, length);
            CU_ASSERT_FALSE(signbit(y[0]));
        }
        CU_ASSERT_EQUAL(simd[b]->row_max(NULL, 0), -INFINITY);
        CU_ASSERT_EQUAL(simd[b]->sum_exp(NULL, 1.0f, 0), 0.0f);
    }
}

/* exp of the builds is wf_expf, at every 4001st float of all. */
static void exp_is_the_scalar(void)
{
    enum { CHUNK = 1000 };
    const wf_simd *simd[BUILDS];
    int n = builds(simd);
    int64_t different = 0;

    for (uint64_t base = 0; base < (uint64_t)1 << 32; base += CHUNK * 4001) {
        float x[CHUNK], right[CHUNK], y[CHUNK];

        for (uint32_t i = 0; i < CHUNK; i++) {
            uint32_t bits = (uint32_t)(base + i * 4001);

            memcpy(x + i, &bits, sizeof(bits));
            right[i] = wf_expf(x[i] - 0.0f);
        }
        for (int b = 0; b < n; b++) {
            simd[b]->exp_scale(x, 0.0f, 1.0f, y, CHUNK);
            for (int i = 0; i < CHUNK; i++)
                different += memcmp(y + i, right + i, 4) && !(isnan(y[i]) && isnan(right[i]));
        }
    }
    CU_ASSERT_EQUAL(different, 0);
}

/* Far from zero: x or 0, gradient 1 or 0, never a NaN. */
static void activations_saturate(void)
{
    static const float x[] = {40.0f, 1e6f, 1e20f, 3e38f, -120.0f, -1e6f, -1e20f, -3e38f};
    static const float one[] = {1, 1, 1, 1, 1, 1, 1, 1}, zero[8] = {0};
    const wf_simd *simd[BUILDS];
    int n = builds(simd);

    for (int b = 0; b < n; b++) {
        float y[4][8], of_up[8];

        simd[b]->swiglu(x, one, y[0], 8);
        simd[b]->bias_gelu(x, zero, y[1], 1, 8);
        simd[b]->swiglu_grad(x, one, one, y[2], of_up, 8);
        simd[b]->bias_gelu_grad(x, zero, one, y[3], 1, 8);
        for (int i = 0; i < 8; i++) {
            for (int k = 0; k < 4; k++)
                CU_ASSERT_EQUAL(y[k][i], i >= 4 ? 0.0f : k < 2 ? x[i] : 1.0f);
        }
    }
}

/* Columns of a wider matrix, as a chunk of a split bias is. */
static void bias_chunk_takes_strides(void)
{
    const wf_simd *simd[BUILDS];
    int n = builds(simd);
    data in = make_data(20, 300);

    for (int b = 0; b < n; b++) {
        for (int64_t from = 0; from < 300; from += 59) {
            float y[301];

            simd[b]->bias_chunk(in.x + from, 300, y, (wf_chunk_rows){1, 20, 20, false},
                                300 - from);
            for (int64_t i = 0; i < 300 - from; i++) {
                float right = 0.0f;

                for (int64_t r = 0; r < 20; r++)
                    right += in.x[r * 300 + from + i];
                CU_ASSERT_EQUAL(y[i], right);
            }
        }
    }
}

/* The rows of a chunk that is not all of a run: heads of every token, say. */
static void chunks_take_runs(void)
{
    enum { RUNS = 5, STEP = 4, ROWS = 3, D = 83 };
    const wf_chunk_rows rows = {RUNS, STEP, ROWS, false};
    const wf_simd *simd[BUILDS];
    int n = builds(simd);
    data in = make_data(RUNS * STEP, D);

    for (int b = 0; b < n; b++) {
        float gain[D], bias[D], root[D], sum[D];

        simd[b]->layernorm_chunk(in.x, in.mean, in.rstd, in.dy, gain, bias, rows, D);
        simd[b]->rmsnorm_chunk(in.x, in.rstd, in.dy, root, rows, D);
        simd[b]->bias_chunk(in.dy, D, sum, rows, D);
        for (int64_t i = 0; i < D; i++) {
            float want[3] = {0, 0, 0};

            for (int64_t r = 0; r < RUNS * STEP; r++) {
                float x = in.x[r * D + i], g = in.dy[r * D + i];

                if (r % STEP >= ROWS)
                    continue;
                want[0] = fmaf(g, (x - in.mean[r]) * in.rstd[r], want[0]);
                want[1] += g;
                want[2] = fmaf(g, x * in.rstd[r], want[2]);
            }
            CU_ASSERT(gain[i] == want[0] && bias[i] == want[1]);
            CU_ASSERT(root[i] == want[2] && sum[i] == want[1]);
        }
    }
}

int main(void)
{
    static const wf_test tests[] = {{"sums have their shape", sums_have_their_shape},
                                    {"in place", in_place},
                                    {"dropout is its definition", dropout_is_its_definition},
                                    {"dropout keeps its share", dropout_keeps_its_share},
                                    {"maxima", maxima_are_blind_to_order},
                                    {"exp is the scalar", exp_is_the_scalar},
                                    {"activations saturate", activations_saturate},
                                    {"bias_chunk takes strides", bias_chunk_takes_strides},
                                    {"chunks take runs of rows", chunks_take_runs},
                                    {NULL, NULL}};

    return wf_test_main("simd_exact", tests);
}
