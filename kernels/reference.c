/* kernels/reference.c - the device that runs every op's own loop, in double. */
#include "core/numerics/bf16.h"
#include "core/context.h"
#include "kernels/devices.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

static const wf_kernel *kernel(const wf_device *device, const wf_op *op)
{
    (void)device;
    return &op->reference;
}

static void sum(const float *const *src, int64_t n_src, bool tree, float *dst, int64_t n)
{
    (void)tree; /* the exact order is the fp32 devices' business */
    for (int64_t i = 0; i < n; i++) {
        float total = 0;

        for (int64_t s = 0; s < n_src; s++)
            total += src[s][i];
        dst[i] = total;
    }
}

static void maximum(const float *a, const float *b, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = a[i] > b[i] ? a[i] : b[i];
}

static double squares(const float *x, int64_t n)
{
    double lane[8] = {0};

    for (int64_t i = 0; i < n; i++)
        lane[i % 8] += (double)x[i] * (double)x[i];
    for (int step = 4; step; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

static void sum_squares(int64_t n, wf_tensor *const *t, struct wf_exact_sum *sum)
{
    for (int64_t i = 0; i < n; i++)
        wf_add_squares(t[i], 0, t[i]->ndim ? t[i]->local[0] : 1, squares, sum);
}

static void add(const wf_tensor *a, const wf_tensor *b, wf_tensor *out)
{
    const double *x = a->data, *y = b->data;
    double *z = out->data;
    int64_t n = wf_tensor_local_count(a);

    if (a->dtype == WF_BF16) {
        const uint16_t *p = a->data, *q = b->data;

        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out->data)[i] = wf_bf16_of(wf_bf16_value(p[i]) + wf_bf16_value(q[i]));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] + y[i];
}

static void narrow(const wf_device *device, const void *from, uint16_t *to, int64_t n)
{
    const double *x = from;

    (void)device;
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_of((float)x[i]);
}

static void widen(const wf_device *device, const uint16_t *from, void *to, int64_t n)
{
    double *y = to;

    (void)device;
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)wf_bf16_value(from[i]);
}

static void close_device(wf_device *device)
{
    free(device);
}

wf_device *wf_reference_device(wf_error *error)
{
    wf_device *device = malloc(sizeof *device);

    if (!device) {
        wf_error_set(error, WF_ENOMEM, "no memory for a device");
        return NULL;
    }
    *device = (wf_device){.name = "reference",
                          .dtype = WF_F64,
                          .allocator = wf_host_allocator(),
                          .kernel = kernel,
                          .sum = sum,
                          .maximum = maximum,
                          .sum_squares = sum_squares,
                          .add = add,
                          .batch_sum = &wf_op_batch_sum,
                          .narrow = narrow,
                          .widen = widen,
                          .close = close_device};
    return device;
}
