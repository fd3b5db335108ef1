/*
 * tests/cuda/test_cuda_example.c - the ops of docs/examples bring kernels of their own for the
 * GPU, which the device finds and runs: my_op.cu has the bits of my_op.c, and expressions.c as
 * CUDA those of itself as C, NaNs and signs of zeros included.
 */
#include "core/context.h"
#include "core/host_data.h"
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"
#include <math.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 41, COUNT = ROWS * COLUMNS };

/* docs/examples/my_op.c, expressions.c */
wf_tensor *my_relu2(wf_tensor *x);
wf_tensor *exp_times(wf_tensor *s, wf_tensor *x);
wf_tensor *gate_is_open(wf_tensor *gate);
wf_tensor *softplus(wf_tensor *x, float beta);

static wf_tensor *by_expressions(wf_tensor *x)
{
    return exp_times(softplus(x, 0.7f), wf_mul(x, gate_is_open(x)));
}

static wf_tensor *tensor_of(wf_context *ctx, const float *from)
{
    const wf_dim dims[] = {wf_dim_batch(ROWS), wf_dim_chunked(COLUMNS)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    float *x = wf_data_write(t, false, &view);

    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    memcpy(x, from, COUNT * sizeof *from);
    wf_data_close(&view);
    return t;
}

/* y = f(x) on a device, and x's gradient for one of y: dx. */
static void run_on(const char *name, wf_tensor *(*f)(wf_tensor *), const float *x,
                   const float *dy, float *y, float *dx)
{
    wf_error error = {WF_OK, ""};
    wf_device *device =
        wf_device_open(name, &(wf_device_options){.threads = 1, .local_size = 1}, &error);
    wf_context *ctx = wf_context_open(device, NULL, &error);
    wf_tape *tape;
    wf_tensor *leaf, *out;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    tape = wf_tape_open(ctx);
    leaf = wf_leaf(tensor_of(ctx, x));
    out = f(leaf);
    CU_ASSERT_EQUAL(wf_backward(out, tensor_of(ctx, dy), false), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(leaf->grad);
    CU_ASSERT_EQUAL(wf_data_get(out, 0, COUNT, y), WF_OK);
    CU_ASSERT_EQUAL(wf_data_get(leaf->grad, 0, COUNT, dx), WF_OK);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

static void compare(wf_tensor *(*f)(wf_tensor *), float y[COUNT])
{
    static const float special[] = {0, -0.0f, 1e-30f, -1e-30f, INFINITY, -INFINITY, NAN, 3e38f};
    enum { SPECIAL = sizeof special / sizeof *special };
    static float x[COUNT], dy[COUNT], cpu[COUNT], dx[2][COUNT];

    for (int i = 0; i < COUNT; i++) {
        x[i] = i < SPECIAL * SPECIAL ? special[i % SPECIAL] : number(1, 0, i);
        dy[i] = i < SPECIAL * SPECIAL ? special[i / SPECIAL] : number(2, 0, i);
    }
    run_on("cpu", f, x, dy, cpu, dx[0]);
    run_on("cuda", f, x, dy, y, dx[1]);
    for (int i = 0; i < COUNT; i++) {
        CU_ASSERT(isnan(cpu[i]) ? isnan(y[i]) : memcmp(&cpu[i], &y[i], 4) == 0);
        CU_ASSERT(isnan(dx[0][i]) ? isnan(dx[1][i]) : memcmp(&dx[0][i], &dx[1][i], 4) == 0);
    }
}

static void has_the_bits_of_the_cpu(void)
{
    static float y[COUNT];

    compare(my_relu2, y);
    CU_ASSERT(isnan(y[6]) && y[4] == INFINITY && y[1] == 0);
    compare(by_expressions, y);
    CU_ASSERT(isnan(y[6]) && y[4] == INFINITY);
}

int main(void)
{
    static const wf_test tests[] = {
        {"it has the bits of the CPU's kernels", has_the_bits_of_the_cpu}, {NULL, NULL}};

    return gpu_test_main("cuda_example", tests);
}
