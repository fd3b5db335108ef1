/*
 * tests/cuda/test_cuda_stored.c - what is stored in 8 and 4 bits on the emulated GPU: AdamW's
 * moments and frozen matrices have the CPU's bits, in parts of any place and size, and updates
 * of many parameters are one launch.
 */
#include "core/dynamic8_tensor.h"
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "core/together.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"
#include <stdlib.h>
#include <string.h>

enum { CPU, GPU, DEVICES };
enum { VALUE, GRADIENT, MOMENT, VARIANCE, TENSORS };

static const wf_dtype stored_as[TENSORS] = {WF_F32, WF_F32, WF_DYNAMIC8, WF_DYNAMIC8U};

static wf_context *open_context(int device)
{
    wf_error error = {WF_OK, ""};
    wf_device *d = device == GPU ? wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error)
                                 : wf_cpu_device(1, &error);
    wf_context *ctx = wf_context_open(d, &(wf_context_options){.seed = 7}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static void write_numbers(wf_tensor *t, int member, int salt)
{
    wf_host_data view;
    float *x = wf_data_write_f32(t, &view);

    for (int64_t k = 0; x && k < wf_tensor_local_count(t); k++)
        x[k] = number(member, salt, k) * (k % 7 == 3 ? 1e-4f : k % 11 == 5 ? 0 : 1);
    wf_data_close(&view);
}

static void read_bytes(const wf_tensor *t, void *to)
{
    wf_host_data view;
    const void *data = wf_data_read(t, &view);

    if (data)
        memcpy(to, data, wf_tensor_bytes(t));
    wf_data_close(&view);
}

static bool same_bytes(const wf_tensor *a, const wf_tensor *b)
{
    char *x = malloc(wf_tensor_bytes(a) + 1), *y = malloc(wf_tensor_bytes(b) + 1);
    bool alike = wf_tensor_bytes(a) == wf_tensor_bytes(b);

    CU_ASSERT_FATAL(x && y);
    read_bytes(a, x);
    read_bytes(b, y);
    alike = alike && memcmp(x, y, wf_tensor_bytes(a)) == 0;
    free(x);
    free(y);
    return alike;
}

/* Columns [from, from + columns) of rows of `size`; all of them: from 0, columns size. */
typedef struct region {
    int64_t rows, size, from, columns;
} region;

static wf_tensor *part_of(wf_context *ctx, wf_dtype dtype, region at)
{
    const wf_dim dims[] = {wf_dim_chunked(at.rows), wf_dim_chunked(at.size)};
    wf_tensor *t = dtype == WF_NF4
                       ? wf_nf4_new(ctx, 2, dims, NULL, WF_MEMORY_ACTIVATION, WF_F32)
                       : wf_tensor_new(ctx, dtype, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    t->start[1] = at.from; /* as a rank of several has it */
    t->local[1] = at.columns;
    return t;
}

static void make(wf_context *ctx, region at, int salt, wf_tensor *t[TENSORS])
{
    for (int k = 0; k < TENSORS; k++) {
        t[k] = part_of(ctx, stored_as[k], at);
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

static void try_adamw(wf_context *const *ctx, region at)
{
    wf_tensor *t[DEVICES][TENSORS];

    for (int d = 0; d < DEVICES; d++) {
        wf_scope_open(ctx[d]);
        make(ctx[d], at, 3, t[d]);
        for (int step = 1; step <= 3; step++) {
            const wf_update u = update_of(step);
            const wf_device *device = wf_context_device(ctx[d]);
            wf_call call = {.ctx = ctx[d],
                            .op = &wf_op_adamw,
                            .n_in = TENSORS,
                            .in = {t[d][0], t[d][1], t[d][2], t[d][3]},
                            .attr = &u,
                            .attr_size = sizeof u};

            write_numbers(t[d][GRADIENT], GRADIENT, step);
            CU_ASSERT_EQUAL(device->kernel(device, call.op)->run(&call, NULL), WF_OK);
        }
    }
    for (int k = 0; k < TENSORS; k++) {
        bool alike = same_bytes(t[CPU][k], t[GPU][k]);

        CU_ASSERT(alike);
        if (!alike)
            printf("\ntensor %d of %lld x %lld from %lld of %lld is not the CPU's\n", k,
                   (long long)at.rows, (long long)at.columns, (long long)at.from,
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
    wf_context *ctx[DEVICES] = {open_context(CPU), open_context(GPU)};

    for (int i = 0; i < (int)(sizeof regions / sizeof regions[0]); i++)
        try_adamw(ctx, regions[i]);
    for (int d = 0; d < DEVICES; d++) {
        CU_ASSERT_EQUAL(wf_context_status(ctx[d]), WF_OK);
        wf_context_close(ctx[d]);
    }
}

enum { MATRICES = 12 };

/* Matrices in 8 bits with vectors between them, which are of floats. */
static int64_t many(wf_context *ctx, wf_tensor *m[MATRICES][TENSORS],
                    wf_tensor *v[MATRICES][TENSORS], bool together)
{
    const wf_device *device = wf_context_device(ctx);
    const wf_update u = update_of(1);
    int64_t before;

    for (int i = 0; i < MATRICES; i++) {
        make(ctx, (region){1 + i, 16 + 61 * i, 0, 16 + 61 * i}, i, m[i]);
        for (int k = 0; k < TENSORS; k++) {
            v[i][k] = part_of(ctx, WF_F32, (region){1, 5 + i, 0, 5 + i});
            write_numbers(v[i][k], k == VARIANCE ? MOMENT : k, k == VARIANCE ? 0 : i);
        }
        wf_init_fill(v[i][VARIANCE], 0.25f);
    }
    before = device->counts ? device->counts().launches : 0;
    if (together)
        wf_together_begin(ctx);
    for (int i = 0; i < MATRICES; i++) {
        wf_adamw(m[i][0], m[i][1], m[i][2], m[i][3], &u);
        wf_adamw(v[i][0], v[i][1], v[i][2], v[i][3], &u);
    }
    if (together)
        wf_together_end(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    return device->counts ? device->counts().launches - before : 0;
}

static void one_launch(void)
{
    wf_context *ctx[] = {open_context(CPU), open_context(GPU), open_context(GPU)};
    static wf_tensor *m[3][MATRICES][TENSORS], *v[3][MATRICES][TENSORS];

    for (int d = 0; d < 3; d++)
        many(ctx[d], m[d], v[d], false); /* tables are made once */
    CU_ASSERT_EQUAL(many(ctx[1], m[1], v[1], false), 2 * MATRICES);
    CU_ASSERT_EQUAL(many(ctx[2], m[2], v[2], true), 2); /* one of matrices, one of vectors */
    many(ctx[0], m[0], v[0], false);
    for (int i = 0; i < MATRICES; i++)
        for (int k = 0; k < TENSORS; k++)
            for (int d = 1; d < 3; d++) {
                CU_ASSERT(same_bytes(m[0][i][k], m[d][i][k]));
                CU_ASSERT(same_bytes(v[0][i][k], v[d][i][k]));
            }
    for (int d = 0; d < 3; d++)
        wf_context_close(ctx[d]);
}

/* A gradient in bf16 is the gradient of floats with its numbers. */
static void narrow_gradients(void)
{
    wf_context *ctx = open_context(GPU);
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

/* Stores a part of a matrix, whose numbers are by their place in it. */
static wf_tensor *quantised(wf_context *ctx, region at, wf_dtype as)
{
    const int64_t all = at.rows * at.size;
    wf_tensor *t = part_of(ctx, WF_NF4, at);
    float *whole = calloc((size_t)all + 1, sizeof *whole), *own = calloc((size_t)all + 1, 4);
    float *absmax = calloc((size_t)wf_nf4_blocks(all) + 1, sizeof *absmax);
    const wf_nf4_part matrix = {at.rows, at.size, 0, at.rows, 0, at.size, 0, 0};

    CU_ASSERT_FATAL(whole && own && absmax);
    t->rounds_to = as;
    for (int64_t i = 0; i < all; i++)
        whole[i] = number(1, i / 500, i) * 0.03f;
    for (int64_t r = 0; r < at.rows; r++)
        for (int64_t c = 0; c < at.columns; c++)
            own[r * at.columns + c] = whole[r * at.size + at.from + c];
    wf_nf4_absmax(&matrix, whole, absmax);
    CU_ASSERT_EQUAL(wf_nf4_store(t, own, absmax), WF_OK);
    free(whole);
    free(own);
    free(absmax);
    return t;
}

/* Numbers that a device widens, where an aligned address is not far: `shift` elements. */
static void widened(const wf_tensor *t, wf_dtype as, size_t shift, void *out)
{
    const wf_device *d = wf_context_device(t->ctx);
    const wf_allocator *a = &d->allocator;
    const size_t size = wf_dtype_size(as), n = (size_t)wf_tensor_local_count(t) * size;
    char *room = a->alloc(a->self, n + shift * size + 64);
    wf_error error = {WF_OK, ""};

    CU_ASSERT_PTR_NOT_NULL_FATAL(room);
    d->widen_nf4(d, t, as, room + shift * size);
    if (d->memory)
        d->memory->read((wf_device *)(uintptr_t)d, out, room + shift * size, n, &error);
    else
        memcpy(out, room + shift * size, n);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    a->release(a->self, room, n + shift * size + 64);
}

static void try_nf4(wf_context *const *ctx, region at)
{
    static float out[DEVICES][1 << 14];

    for (int mode = 0; mode < 6; mode++) {
        const wf_dtype stands_for = mode % 2 ? WF_BF16 : WF_F32;
        const wf_dtype as = mode % 4 < 2 ? WF_F32 : WF_BF16;

        for (int d = 0; d < DEVICES; d++) {
            wf_scope_open(ctx[d]);
            memset(out[d], 0, sizeof out[d]);
            widened(quantised(ctx[d], at, stands_for), as, (size_t)mode / 4, out[d]);
            wf_scope_close(ctx[d]);
        }
        CU_ASSERT(memcmp(out[CPU], out[GPU], sizeof out[CPU]) == 0);
    }
}

static void numbers_of_4_bits(void)
{
    static const region regions[] = {{3, 64, 0, 64},      {5, 130, 0, 130}, {7, 31, 0, 31},
                                     {2, 2048, 512, 256}, {6, 200, 25, 75}, {4, 768, 96, 96},
                                     {1, 1, 0, 1},        {9, 168, 21, 42}, {16, 1024, 0, 1024},
                                     {0, 64, 0, 64},      {3, 320, 64, 0},  {5, 128, 60, 20}};
    wf_context *ctx[DEVICES] = {open_context(CPU), open_context(GPU)};

    for (int i = 0; i < (int)(sizeof regions / sizeof regions[0]); i++)
        try_nf4(ctx, regions[i]);
    for (int d = 0; d < DEVICES; d++) {
        CU_ASSERT_EQUAL(wf_context_status(ctx[d]), WF_OK);
        wf_context_close(ctx[d]);
    }
}

static int64_t launches(const wf_context *ctx)
{
    const wf_device *device = wf_context_device((wf_context *)(uintptr_t)ctx);

    return device->counts ? device->counts().launches : 0;
}

/* A frozen matrix in 4 bits, forward and in the gradient of x: the CPU's bits, by one launch
   more than the product has with its numbers. */
static void products(void)
{
    const region weights = {70, 136, 0, 136}, rows = {37, 136, 0, 136};
    wf_context *ctx[DEVICES] = {open_context(CPU), open_context(GPU)};
    wf_tensor *y[DEVICES], *dx[DEVICES];

    for (int d = 0; d < DEVICES; d++) {
        wf_tensor *x = part_of(ctx[d], WF_F32, rows), *w = quantised(ctx[d], weights, WF_F32);
        wf_tensor *of_floats = wf_cast(w, WF_F32);
        int64_t begun = launches(ctx[d]), plain, more;
        wf_tape *tape;

        wf_linear(x, of_floats);
        plain = launches(ctx[d]) - begun;
        write_numbers(x, 2, 9);
        x = wf_leaf(x);
        tape = wf_tape_open(ctx[d]);
        begun = launches(ctx[d]);
        y[d] = wf_tensor_retain(wf_linear(x, w));
        more = launches(ctx[d]) - begun - plain;
        CU_ASSERT_EQUAL(more, d == GPU);
        CU_ASSERT_EQUAL(wf_backward(y[d], y[d], false), WF_OK);
        dx[d] = wf_tensor_retain(x->grad);
        wf_tape_close(tape);
    }
    CU_ASSERT(same_bytes(y[CPU], y[GPU]));
    CU_ASSERT(same_bytes(dx[CPU], dx[GPU]));
    for (int d = 0; d < DEVICES; d++) {
        wf_tensor_release(y[d]);
        wf_tensor_release(dx[d]);
        CU_ASSERT_EQUAL(wf_context_status(ctx[d]), WF_OK);
        wf_context_close(ctx[d]);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"moments in 8 bits, as on the CPU", moments},
                                    {"many parameters by one launch", one_launch},
                                    {"gradients in bf16", narrow_gradients},
                                    {"numbers in 4 bits, as on the CPU", numbers_of_4_bits},
                                    {"products with them", products},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_stored", tests);
}
