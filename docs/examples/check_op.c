/*
 * check_op.c - is the op of my_op.c right? Its gradient against central differences of its own
 * reference loop, in double; and its CPU kernel against that loop. No mesh: one rank is enough,
 * since the layouts follow from the signature.
 */
#include "mine.h"
#include <math.h>
#include <stdio.h>

enum { ROWS = 3, COLUMNS = 7, COUNT = ROWS * COLUMNS };

/* Inputs on both sides of the corner at 0, and at it; weights of the outputs, all different. */
static double input(int i)
{
    return 0.37 * (i - COUNT / 2);
}

static double weight(int i)
{
    return 1 + 0.25 * (i % 5);
}

static wf_tensor *tensor(wf_context *ctx, wf_dtype dtype, double (*value)(int))
{
    wf_dim dims[] = {wf_dim_batch(ROWS), wf_dim_width(COLUMNS)};
    wf_tensor *t = wf_tensor_new(ctx, dtype, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int i = 0; t && i < COUNT; i++) {
        if (dtype == WF_F64)
            ((double *)t->data)[i] = value(i);
        else
            ((float *)t->data)[i] = (float)value(i);
    }
    return t;
}

static double element(const wf_tensor *t, int i)
{
    return t->dtype == WF_F64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* y, and dx of sum_i weight(i) y[i], on one device. */
static wf_status values(wf_device *device, wf_dtype dtype, double *y, double *dx,
                        wf_error *error)
{
    wf_context *ctx = device ? wf_context_open(device, NULL, error) : NULL;
    wf_tensor *x, *out;
    wf_tape *tape;
    wf_status status;

    if (!ctx)
        return error->code;
    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    x = wf_leaf(tensor(ctx, dtype, input));
    out = my_relu2(x);
    if (wf_backward(out, tensor(ctx, dtype, weight), false) == WF_OK)
        for (int i = 0; i < COUNT; i++) {
            y[i] = element(out, i);
            dx[i] = element(x->grad, i);
        }
    wf_tape_close(tape);
    wf_scope_close(ctx);
    status = wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return status;
}

/* The op at one point, by its reference loop. */
static double at(wf_context *ctx, double x)
{
    wf_dim one = wf_dim_width(1);
    wf_tensor *t, *y;
    double value = NAN;

    wf_scope_open(ctx);
    t = wf_tensor_new(ctx, WF_F64, 1, &one, NULL, WF_MEMORY_ACTIVATION);
    if (t)
        *(double *)t->data = x;
    y = my_relu2(t);
    if (y)
        value = *(const double *)y->data;
    wf_scope_close(ctx);
    return value;
}

static wf_status differences(double *numeric, wf_error *error)
{
    const double h = 1e-6;
    wf_device *device = wf_reference_device(error);
    wf_context *ctx = device ? wf_context_open(device, NULL, error) : NULL;
    wf_status status;

    if (!ctx)
        return error->code;
    for (int i = 0; i < COUNT; i++)
        numeric[i] = weight(i) * (at(ctx, input(i) + h) - at(ctx, input(i) - h)) / (2 * h);
    status = wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return status;
}

/* |a - b| / |b|, of whole vectors */
static double distance(const double *a, const double *b)
{
    double difference = 0, norm = 0;

    for (int i = 0; i < COUNT; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static bool small(const char *what, double error, double bound)
{
    printf("%-32s %.1e (at most %.0e)\n", what, error, bound);
    return error <= bound; /* false for a NaN */
}

int main(void)
{
    double y[COUNT], dx[COUNT], fast_y[COUNT], fast_dx[COUNT], numeric[COUNT];
    wf_error error = {WF_OK, ""};
    bool right;

    if (values(wf_reference_device(&error), WF_F64, y, dx, &error) != WF_OK ||
        values(wf_cpu_device(1, &error), WF_F32, fast_y, fast_dx, &error) != WF_OK ||
        differences(numeric, &error) != WF_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    right = small("gradient, to finite differences", distance(dx, numeric), 1e-6);
    right &= small("CPU kernel, to the reference", distance(fast_y, y), 1e-6);
    right &= small("its gradient, to the reference", distance(fast_dx, dx), 1e-6);
    return right ? 0 : 1;
}
