/*
 * tests/cuda/test_cuda_stored.c - what is stored in 8 bits on the emulated GPU: moments of
 * AdamW, of Lion and of a function of the application's have the CPU's bits, in parts of any
 * place and size, and updates of many parameters are one launch.
 */
#include "core/together.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "kernels/shared_internal.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/stored.h"
#include "tests/mesh/ranks.h"
#include <string.h>

enum { VALUE, GRADIENT, MOMENT, VARIANCE, TENSORS };

static const wf_dtype stored_as[TENSORS] = {WF_F32, WF_F32, WF_DYNAMIC8, WF_DYNAMIC8U};

static void make(wf_context *ctx, region at, int salt, wf_tensor *t[TENSORS])
{
    for (int k = 0; k < TENSORS; k++) {
        t[k] = stored_part(ctx, stored_as[k], at);
        if (k < MOMENT)
            write_numbers(t[k], k, salt);
        else
            write_numbers(t[k], k, 0);
    }
}

static wf_update update_of(int step)
{
    return (wf_update){.lr = 1e-2f,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .bias1 = 10.0f / (float)step,
                       .bias2 = 20.0f / (float)step,
                       .grad_scale = 0.7f};
}

/* An application's function with a state without signs, which runs on the host. */
static void grow(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    for (int64_t i = 0; i < n; i++) {
        state[0][i] = u->beta1 * state[0][i] + g[i];
        state[1][i] += g[i] * g[i];
        p[i] -= u->lr * state[0][i] / (1 + state[1][i]);
    }
}

/* Returns a call of an update: AdamW, Lion or a function of the application's. */
static wf_call call_of(wf_context *ctx, int which, wf_tensor *const *t, const wf_update *u,
                       wf_update_attr *attr)
{
    wf_call call = {.ctx = ctx,
                    .op = which ? &wf_op_update_elements : &wf_op_adamw,
                    .n_in = which ? 2 + WF_UPDATE_STATES : TENSORS,
                    .in = {t[0], t[1], t[2], t[3], t[1]},
                    .attr = u,
                    .attr_size = sizeof *u};

    *attr = (wf_update_attr){*u, which == 1 ? wf_update_lion : grow, which};
    if (which) {
        call.attr = attr;
        call.attr_size = sizeof *attr;
    }
    return call;
}

static void try_update(wf_context *const *ctx, region at, int which)
{
    wf_tensor *t[DEVICES][TENSORS];

    for (int d = 0; d < DEVICES; d++) {
        wf_scope_open(ctx[d]);
        make(ctx[d], at, 3, t[d]);
        for (int step = 1; step <= 3; step++) {
            const wf_update u = update_of(step);
            const wf_device *device = wf_context_device(ctx[d]);
            wf_update_attr attr;
            wf_call call = call_of(ctx[d], which, t[d], &u, &attr);

            write_numbers(t[d][GRADIENT], GRADIENT, step);
            CU_ASSERT_EQUAL(device->kernel(device, call.op)->run(&call, NULL), WF_OK);
        }
    }
    for (int k = 0; k < TENSORS; k++) {
        bool alike = same_bytes(t[CPU][k], t[GPU][k]);

        CU_ASSERT(alike);
        if (!alike)
            printf("\nupdate %d: tensor %d of %lld x %lld from %lld of %lld is not the CPU's\n",
                   which, k, (long long)at.rows, (long long)at.columns, (long long)at.from,
                   (long long)at.size);
    }
    for (int d = 0; d < DEVICES; d++)
        wf_scope_close(ctx[d]);
}

static void moments(void)
{
    static const region regions[] = {
        {1, 16, 0, 16},       {7, 31, 0, 31},      {3, 64, 0, 64},       {5, 100, 25, 38},
        {2, 256, 0, 256},     {3, 1000, 125, 375}, {9, 2048, 1024, 256}, {2, 5000, 0, 5000},
        {2, 5003, 2501, 626}, {0, 64, 0, 64},      {4, 64, 8, 0}};
    wf_context *ctx[DEVICES] = {open_stored(CPU), open_stored(GPU)};

    for (int i = 0; i < (int)(sizeof regions / sizeof regions[0]); i++)
        for (int which = 0; which < 3; which++)
            try_update(ctx, regions[i], which);
    for (int d = 0; d < DEVICES; d++) {
        CU_ASSERT_EQUAL(wf_context_status(ctx[d]), WF_OK);
        wf_context_close(ctx[d]);
    }
}

enum { MATRICES = 12 };

static void update(bool lion, wf_tensor *const *t, const wf_update *u)
{
    if (lion)
        wf_update_elements(t[0], t[1], 1, t + MOMENT, wf_update_lion, u);
    else
        wf_adamw(t[0], t[1], t[2], t[3], u);
}

/* Matrices in 8 bits with vectors between them, which are of floats. */
static int64_t many(wf_context *ctx, wf_tensor *m[MATRICES][TENSORS],
                    wf_tensor *v[MATRICES][TENSORS], bool together, bool lion)
{
    const wf_update u = update_of(1);
    int64_t before;

    for (int i = 0; i < MATRICES; i++) {
        make(ctx, (region){1 + i, 16 + 61 * i, 0, 16 + 61 * i}, i, m[i]);
        for (int k = 0; k < TENSORS; k++) {
            v[i][k] = stored_part(ctx, WF_F32, (region){1, 5 + i, 0, 5 + i});
            write_numbers(v[i][k], k == VARIANCE ? MOMENT : k, k == VARIANCE ? 0 : i);
        }
        wf_init_fill(v[i][VARIANCE], 0.25f);
    }
    before = launches_of(ctx);
    if (together)
        wf_together_begin(ctx);
    for (int i = 0; i < MATRICES; i++) {
        update(lion, m[i], &u);
        update(lion, v[i], &u);
    }
    if (together)
        wf_together_end(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    return launches_of(ctx) - before;
}

static void one_launch(void)
{
    wf_context *ctx[] = {open_stored(CPU), open_stored(GPU), open_stored(GPU)};
    static wf_tensor *m[3][MATRICES][TENSORS], *v[3][MATRICES][TENSORS];

    for (int d = 0; d < 3; d++)
        many(ctx[d], m[d], v[d], false, false); /* tables are made once */
    for (int lion = 0; lion < 2; lion++) {
        CU_ASSERT_EQUAL(many(ctx[1], m[1], v[1], false, lion), 2 * MATRICES);
        /* one of matrices, one of vectors */
        CU_ASSERT_EQUAL(many(ctx[2], m[2], v[2], true, lion), 2);
        many(ctx[0], m[0], v[0], false, lion);
        for (int i = 0; i < MATRICES; i++)
            for (int k = 0; k < TENSORS; k++)
                for (int d = 1; d < 3; d++) {
                    CU_ASSERT(same_bytes(m[0][i][k], m[d][i][k]));
                    CU_ASSERT(same_bytes(v[0][i][k], v[d][i][k]));
                }
    }
    for (int d = 0; d < 3; d++)
        wf_context_close(ctx[d]);
}

/* A gradient in bf16 is the gradient of floats with its numbers. */
static void narrow_gradients(void)
{
    wf_context *ctx = open_stored(GPU);
    const wf_update u = update_of(1);
    wf_tensor *t[2][TENSORS];

    for (int i = 0; i < 2; i++) {
        make(ctx, (region){3, 777, 0, 777}, 5, t[i]);
        t[i][GRADIENT] = wf_cast(t[i][GRADIENT], WF_BF16);
        if (i)
            t[i][GRADIENT] = wf_cast(t[i][GRADIENT], WF_F32);
        wf_adamw(t[i][0], t[i][1], t[i][2], t[i][3], &u);
    }
    for (int k = 0; k < TENSORS; k++)
        CU_ASSERT(k == GRADIENT || same_bytes(t[0][k], t[1][k]));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"moments in 8 bits, as on the CPU", moments},
                                    {"many parameters by one launch", one_launch},
                                    {"gradients in bf16", narrow_gradients},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_stored", tests);
}
