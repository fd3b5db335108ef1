/*
 * tests/kernels/simd_reference.h - for test_simd.c: each kernel of rows as a call, and what it
 * should give, in double and as the formula is written in a book.
 */
#ifndef WF_TESTS_KERNELS_SIMD_REFERENCE_H
#define WF_TESTS_KERNELS_SIMD_REFERENCE_H

#include "tests/kernels/simd_data.h"
#include <string.h>

enum { OUTPUTS = 3 };

typedef enum shape { NONE, FULL, PER_ROW, PER_COLUMN } shape;

typedef struct kernel {
    const char *name;
    shape shape[OUTPUTS];
    void (*run)(const wf_simd *simd, const data *in, float *const out[OUTPUTS]);
    void (*want)(const data *in, double *const want[OUTPUTS]);
} kernel;

static void run_add(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->add(in->x, in->dy, out[0], in->rows * in->d);
}

static void run_mul(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->mul(in->x, in->dy, out[0], in->rows * in->d);
}

static void run_scale(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->scale(in->x, 0.3f, out[0], in->rows * in->d);
}

static void run_maximum(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->maximum(in->x, in->dy, out[0], in->rows * in->d);
}

static void run_silu(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    static float of_up[MOST];

    simd->swiglu(in->x, filled(1), out[0], in->rows * in->d);
    simd->swiglu_grad(in->x, filled(1), in->dy, out[1], of_up, in->rows * in->d);
}

static void run_gelu(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->bias_gelu(in->x, filled(0), out[0], in->rows, in->d);
    simd->bias_gelu_grad(in->x, filled(0), in->dy, out[1], in->rows, in->d);
}

static void want_elementwise(const data *in, double *const want[OUTPUTS],
                             double (*f)(double x, double dy))
{
    for (int64_t i = 0; i < in->rows * in->d; i++)
        want[0][i] = f((double)in->x[i], (double)in->dy[i]);
}

static double plus(double x, double y)
{
    return x + y;
}

static double times(double x, double y)
{
    return x * y;
}

static double scaled(double x, double y)
{
    (void)y;
    return x * (double)0.3f;
}

static void want_add(const data *in, double *const want[OUTPUTS])
{
    want_elementwise(in, want, plus);
}

static void want_mul(const data *in, double *const want[OUTPUTS])
{
    want_elementwise(in, want, times);
}

static void want_scale(const data *in, double *const want[OUTPUTS])
{
    want_elementwise(in, want, scaled);
}

static void want_maximum(const data *in, double *const want[OUTPUTS])
{
    want_elementwise(in, want, fmax);
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* The gradient by central differences, which owe nothing to the kernel's formula. */
static void want_activation(const data *in, double *const want[OUTPUTS], double (*f)(double x))
{
    for (int64_t i = 0; i < in->rows * in->d; i++) {
        double x = (double)in->x[i], h = 1e-4;
        double far = (f(x + 2 * h) - f(x - 2 * h)) / (4 * h),
               near = (f(x + h) - f(x - h)) / (2 * h);

        want[0][i] = f(x);
        want[1][i] = (double)in->dy[i] * (near + (near - far) / 3.0);
    }
}

static void want_silu(const data *in, double *const want[OUTPUTS])
{
    want_activation(in, want, silu);
}

static void want_gelu(const data *in, double *const want[OUTPUTS])
{
    want_activation(in, want, gelu);
}

static void run_bias_add(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->bias_add(in->x, in->bias, out[0], in->rows, in->d);
}

static void want_bias_add(const data *in, double *const want[OUTPUTS])
{
    for (int64_t i = 0; i < in->rows * in->d; i++)
        want[0][i] = (double)in->x[i] + (double)in->bias[i % in->d];
}

static void run_layernorm(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->layernorm(in->x, in->gain, in->bias, 1e-2f, out[0], out[1], out[2], in->rows, in->d);
}

static void want_layernorm(const data *in, double *const want[OUTPUTS])
{
    for (int64_t r = 0; r < in->rows; r++) {
        const float *x = in->x + r * in->d;
        double mean = 0.0, variance = 0.0;

        for (int64_t i = 0; i < in->d; i++)
            mean += (double)x[i] / (double)in->d;
        for (int64_t i = 0; i < in->d; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)in->d;
        want[1][r] = mean;
        want[2][r] = 1.0 / sqrt(variance + (double)1e-2f);
        for (int64_t i = 0; i < in->d; i++) {
            double h = ((double)x[i] - mean) * want[2][r];

            want[0][r * in->d + i] = h * (double)in->gain[i] + (double)in->bias[i];
        }
    }
}

static void run_rmsnorm(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->rmsnorm(in->x, in->gain, 1e-2f, out[0], out[1], in->rows, in->d);
}

static void want_rmsnorm(const data *in, double *const want[OUTPUTS])
{
    for (int64_t r = 0; r < in->rows; r++) {
        const float *x = in->x + r * in->d;
        double square = 0.0;

        for (int64_t i = 0; i < in->d; i++)
            square += (double)x[i] * (double)x[i] / (double)in->d;
        want[1][r] = 1.0 / sqrt(square + (double)1e-2f);
        for (int64_t i = 0; i < in->d; i++)
            want[0][r * in->d + i] = (double)x[i] * want[1][r] * (double)in->gain[i];
    }
}

/* Gradients of norms: mean and rstd are given, so the formulas hold for any of them. */
static void run_layernorm_grad(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->layernorm_grad(in->x, in->gain, in->mean, in->rstd, in->dy, out[0], in->rows, in->d);
}

static void run_rmsnorm_grad(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    simd->rmsnorm_grad(in->x, in->gain, in->rstd, in->dy, out[0], in->rows, in->d);
}

static void want_norm_grad(const data *in, double *want, bool centred)
{
    for (int64_t r = 0; r < in->rows; r++) {
        double mean = centred ? (double)in->mean[r] : 0.0, rstd = (double)in->rstd[r];
        double a = 0.0, b = 0.0;

        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < in->d; i++) {
                double h = ((double)in->x[r * in->d + i] - mean) * rstd;
                double g = (double)in->dy[r * in->d + i] * (double)in->gain[i];

                if (pass == 0) {
                    a += centred ? g / (double)in->d : 0.0;
                    b += g * h / (double)in->d;
                } else {
                    want[r * in->d + i] = rstd * (g - a - h * b);
                }
            }
        }
    }
}

static void want_layernorm_grad(const data *in, double *const want[OUTPUTS])
{
    want_norm_grad(in, want[0], true);
}

static void want_rmsnorm_grad(const data *in, double *const want[OUTPUTS])
{
    want_norm_grad(in, want[0], false);
}

static void run_chunks(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    const wf_chunk_rows rows = {1, in->rows, in->rows, false};

    simd->layernorm_chunk(in->x, in->mean, in->rstd, in->dy, out[0], out[1], rows, in->d);
    simd->rmsnorm_chunk(in->x, in->rstd, in->dy, out[2], rows, in->d);
}

static void want_chunks(const data *in, double *const want[OUTPUTS])
{
    for (int64_t i = 0; i < in->d; i++) {
        want[0][i] = want[1][i] = want[2][i] = 0.0;
        for (int64_t r = 0; r < in->rows; r++) {
            double x = (double)in->x[r * in->d + i], g = (double)in->dy[r * in->d + i];

            want[0][i] += g * (x - (double)in->mean[r]) * (double)in->rstd[r];
            want[1][i] += g;
            want[2][i] += g * x * (double)in->rstd[r];
        }
    }
}

/* Heads are rows; a row of odd size is left out by taking the pairs that fit. */
static void run_rope(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    int64_t even = in->d / 2 * 2;

    for (int64_t r = 0; r < in->rows; r++) {
        float *y = out[0] + r * in->d, *z = out[1] + r * in->d;

        simd->rope(in->x + r * in->d, in->gain, in->bias, false, y, 1, in->d, even);
        simd->rope(in->x + r * in->d, in->gain, in->bias, true, z, 1, in->d, even);
        if (even < in->d)
            y[even] = z[even] = 0.0f;
    }
}

static void want_rope(const data *in, double *const want[OUTPUTS])
{
    for (int64_t r = 0; r < in->rows; r++) {
        const float *x = in->x + r * in->d;
        double *y = want[0] + r * in->d, *z = want[1] + r * in->d;
        int64_t half = in->d / 2;

        y[in->d - 1] = z[in->d - 1] = 0.0;
        for (int64_t i = 0; i < half; i++) {
            double a = (double)x[i], b = (double)x[i + half];
            double c = (double)in->gain[i], s = (double)in->bias[i];

            y[i] = a * c - b * s;
            y[i + half] = b * c + a * s;
            z[i] = a * c + b * s;
            z[i + half] = b * c - a * s;
        }
    }
}

static void run_softmax(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    for (int64_t r = 0; r < in->rows; r++) {
        const float *x = in->x + r * in->d;

        out[1][r] = simd->row_max(x, in->d);
        out[2][r] = simd->sum_exp(x, out[1][r], in->d);
        simd->exp_scale(x, out[1][r], 1.0f / out[2][r], out[0] + r * in->d, in->d);
    }
}

static void want_softmax(const data *in, double *const want[OUTPUTS])
{
    for (int64_t r = 0; r < in->rows; r++) {
        const float *x = in->x + r * in->d;

        want[1][r] = -INFINITY;
        want[2][r] = 0.0;
        for (int64_t i = 0; i < in->d; i++)
            want[1][r] = fmax(want[1][r], (double)x[i]);
        for (int64_t i = 0; i < in->d; i++)
            want[2][r] += exp((double)x[i] - want[1][r]);
        for (int64_t i = 0; i < in->d; i++)
            want[0][r * in->d + i] = exp((double)x[i] - want[1][r]) / want[2][r];
    }
}

static const wf_adamw_constants update = {.lr = 0.02f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .eps = 1e-8f,
                                          .weight_decay = 0.1f,
                                          .bias1 = 1.25f,
                                          .bias2 = 2.5f,
                                          .grad_scale = 0.7f};

/* The state before: p is x, m and v come from dy. */
static void begin_update(const data *in, float *const out[OUTPUTS])
{
    for (int64_t i = 0; i < in->rows * in->d; i++) {
        out[0][i] = in->x[i];
        out[1][i] = in->dy[i] * 0.5f;
        out[2][i] = in->dy[i] * in->dy[i] * 0.25f;
    }
}

static void run_adamw(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    begin_update(in, out);
    simd->adamw(out[0], in->dy, out[1], out[2], in->rows * in->d, &update);
}

static void want_adamw(const data *in, double *const want[OUTPUTS])
{
    for (int64_t i = 0; i < in->rows * in->d; i++) {
        double p = (double)in->x[i], g = 0.7 * (double)in->dy[i], dy = (double)in->dy[i];
        double m = 0.9 * 0.5 * dy + 0.1 * g, v = 0.95 * 0.25 * dy * dy + 0.05 * g * g;

        want[0][i] = p - 0.02 * (1.25 * m / (sqrt(2.5 * v) + 1e-8) + 0.1 * p);
        want[1][i] = m;
        want[2][i] = v;
    }
}

static void run_sgd(const wf_simd *simd, const data *in, float *const out[OUTPUTS])
{
    wf_adamw_constants bare = update;

    begin_update(in, out);
    simd->sgd(out[0], in->dy, out[1], in->rows * in->d, &update);
    memcpy(out[2], in->x, (size_t)(in->rows * in->d) * sizeof(float));
    bare.beta1 = 0.0f;
    simd->sgd(out[2], in->dy, NULL, in->rows * in->d, &bare);
}

static void want_sgd(const data *in, double *const want[OUTPUTS])
{
    for (int64_t i = 0; i < in->rows * in->d; i++) {
        double p = (double)in->x[i], g = 0.7 * (double)in->dy[i] + 0.1 * p;

        want[1][i] = 0.9 * 0.5 * (double)in->dy[i] + g;
        want[0][i] = p - 0.02 * want[1][i];
        want[2][i] = p - 0.02 * g;
    }
}

static const kernel kernels[] = {
    {"add", {FULL}, run_add, want_add},
    {"mul", {FULL}, run_mul, want_mul},
    {"scale", {FULL}, run_scale, want_scale},
    {"maximum", {FULL}, run_maximum, want_maximum},
    {"silu", {FULL, FULL}, run_silu, want_silu},
    {"gelu", {FULL, FULL}, run_gelu, want_gelu},
    {"bias_add", {FULL}, run_bias_add, want_bias_add},
    {"layernorm", {FULL, PER_ROW, PER_ROW}, run_layernorm, want_layernorm},
    {"rmsnorm", {FULL, PER_ROW}, run_rmsnorm, want_rmsnorm},
    {"layernorm_grad", {FULL}, run_layernorm_grad, want_layernorm_grad},
    {"rmsnorm_grad", {FULL}, run_rmsnorm_grad, want_rmsnorm_grad},
    {"chunks", {PER_COLUMN, PER_COLUMN, PER_COLUMN}, run_chunks, want_chunks},
    {"rope", {FULL, FULL}, run_rope, want_rope},
    {"softmax", {FULL, PER_ROW, PER_ROW}, run_softmax, want_softmax},
    {"adamw", {FULL, FULL, FULL}, run_adamw, want_adamw},
    {"sgd", {FULL, FULL, FULL}, run_sgd, want_sgd},
    {NULL, {NONE}, NULL, NULL},
};

#endif
