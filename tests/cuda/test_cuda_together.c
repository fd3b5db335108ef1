/*
 * tests/cuda/test_cuda_together.c - updates that wait for each other: few launches, and the
 * bits of calls one by one, for sizes that end anywhere, data that begin anywhere, gradients of
 * both types and rates of a parameter's own; tensors are held until their update runs.
 */
#include "core/host_data.h"
#include "core/together.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"
#include <string.h>

enum { PARAMETERS = 70, MOST = 3000, SOME = 7 };
enum { VALUE, MOMENT, VARIANCE, TENSORS, GRADIENT = TENSORS };

static int64_t size_of(int i)
{
    return i % SOME == 3 ? 0 : i % SOME == 5 ? MOST - i : 1 + 5 * i;
}

/* Makes the tensor `member` of parameter i; of odd ones a row that begins anywhere. */
static wf_tensor *new_tensor(wf_context *ctx, int i, int member)
{
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(size_of(i))};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    float *x = wf_data_write(t, false, &view);

    for (int64_t k = 0; x && k < wf_tensor_local_count(t); k++)
        x[k] = member == VARIANCE ? 0.25f : number(member, i, k);
    wf_data_close(&view);
    return i % 2 ? wf_tensor_rows(t, 1, 1) : t;
}

static void update(wf_context *ctx, bool sgd, int i, wf_tensor *const *p)
{
    const wf_update u = {.lr = i % SOME == 1 ? 0.5f : 0.01f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .weight_decay = i % 3 ? 0.1f : 0,
                         .bias1 = 10,
                         .bias2 = 20,
                         .grad_scale = 0.7f};
    wf_tensor *grad;

    wf_scope_open(ctx);
    grad = new_tensor(ctx, i, GRADIENT); /* it leaves with the scope */
    if (i % SOME == 2)
        grad = wf_cast(grad, WF_BF16);
    if (sgd)
        wf_sgd(p[VALUE], grad, p[MOMENT], &u);
    else
        wf_adamw(p[VALUE], grad, p[MOMENT], p[VARIANCE], &u);
    wf_scope_close(ctx);
}

/* Runs the updates of all parameters and returns how many events they are; results to out. */
static int64_t updates(bool sgd, bool together, float out[PARAMETERS][2 * MOST])
{
    wf_context *ctx = gpu_context();
    wf_tensor *p[PARAMETERS][TENSORS];
    wf_error error = {WF_OK, ""};
    wf_trace *trace = wf_trace_open(1 << 12, &error);
    int64_t launches = 0;

    for (int i = 0; i < PARAMETERS; i++)
        for (int k = 0; k < TENSORS; k++)
            p[i][k] = new_tensor(ctx, i, k);
    wf_context_trace(ctx, trace);
    if (together)
        wf_together_begin(ctx);
    for (int i = 0; i < PARAMETERS; i++)
        update(ctx, sgd, i, p[i]);
    if (together)
        CU_ASSERT_EQUAL(wf_together_end(ctx), WF_OK);
    wf_context_trace(ctx, NULL);
    for (int64_t e = 0; e < wf_trace_count(trace); e++)
        launches += strcmp(wf_trace_at(trace, e)->name, sgd ? "sgd" : "adamw") == 0;
    for (int i = 0; i < PARAMETERS; i++)
        wf_data_get(p[i][VALUE], 0, wf_tensor_local_count(p[i][VALUE]), out[i]);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_trace_close(trace);
    wf_context_close(ctx);
    return launches;
}

static void bits(void)
{
    static float alone[PARAMETERS][2 * MOST], many[PARAMETERS][2 * MOST];

    for (int sgd = 0; sgd < 2; sgd++) {
        CU_ASSERT_EQUAL(updates(sgd, false, alone), PARAMETERS);
        CU_ASSERT_EQUAL(updates(sgd, true, many), (PARAMETERS + WF_TOGETHER - 1) / WF_TOGETHER);
        CU_ASSERT(memcmp(alone, many, sizeof alone) == 0);
    }
}

/* Another op comes after the calls that wait. */
static void order(void)
{
    wf_context *ctx = gpu_context();
    wf_tensor *p[TENSORS], *before, *after;
    float got[2 * MOST], want[2 * MOST];
    int64_t n;

    for (int k = 0; k < TENSORS; k++)
        p[k] = new_tensor(ctx, SOME, k);
    n = wf_tensor_local_count(p[VALUE]);
    before = wf_scale(p[VALUE], 1);
    wf_together_begin(ctx);
    update(ctx, false, SOME, p);
    after = wf_scale(p[VALUE], 1);
    CU_ASSERT_EQUAL(wf_data_get(after, 0, n, got), WF_OK);
    CU_ASSERT_EQUAL(wf_together_end(ctx), WF_OK);
    CU_ASSERT_EQUAL(wf_data_get(p[VALUE], 0, n, want), WF_OK);
    CU_ASSERT(memcmp(got, want, (size_t)n * sizeof *got) == 0);
    CU_ASSERT_EQUAL(wf_data_get(before, 0, n, got), WF_OK);
    CU_ASSERT(memcmp(got, want, (size_t)n * sizeof *got) != 0);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the bits of calls one by one", bits}, {"another op", order}, {NULL, NULL}};

    return gpu_test_main("cuda_together", tests);
}
