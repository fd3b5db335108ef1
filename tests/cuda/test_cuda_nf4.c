/*
 * tests/cuda/test_cuda_nf4.c - matrices in 4 bits on the emulated GPU: their numbers have the
 * CPU's bits, in parts of any place and size, and products that widen a matrix on its way have
 * the bits of products of its numbers, whatever the number of rows, and no room for them.
 */
#include "core/nf4_tensor.h"
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/linear_sum.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/stored.h"
#include "tests/mesh/ranks.h"
#include "tests/sanitizer.h"
#include <stdlib.h>
#include <string.h>

/* Stores a part of a matrix, whose numbers are by their place in it. */
static wf_tensor *quantised(wf_context *ctx, region at, wf_dtype as)
{
    const int64_t all = at.rows * at.size;
    wf_tensor *t = stored_part(ctx, WF_NF4, at);
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
    wf_context *ctx[DEVICES] = {open_stored(CPU), open_stored(GPU)};

    for (int i = 0; i < (int)(sizeof regions / sizeof regions[0]); i++)
        try_nf4(ctx, regions[i]);
    for (int d = 0; d < DEVICES; d++) {
        CU_ASSERT_EQUAL(wf_context_status(ctx[d]), WF_OK);
        wf_context_close(ctx[d]);
    }
}

/* A matrix in 4 bits whose chunks cut eight numbers is widened before its product, forward and
   in the gradient of x: the CPU's bits, by one launch more than the product has with its
   numbers. */
static void widened_products(void)
{
    const region weights = {70, 136, 0, 136}, rows = {37, 136, 0, 136};
    wf_context *ctx[DEVICES] = {open_stored(CPU), open_stored(GPU)};
    wf_tensor *y[DEVICES], *dx[DEVICES];

    for (int d = 0; d < DEVICES; d++) {
        wf_tensor *x = stored_part(ctx[d], WF_F32, rows),
                  *w = quantised(ctx[d], weights, WF_F32);
        wf_tensor *of_floats = wf_cast(w, WF_F32);
        int64_t begun = launches_of(ctx[d]), plain, more;
        wf_tape *tape;

        wf_linear(x, of_floats);
        plain = launches_of(ctx[d]) - begun;
        write_numbers(x, 2, 9);
        x = wf_leaf(x);
        tape = wf_tape_open(ctx[d]);
        begun = launches_of(ctx[d]);
        y[d] = wf_tensor_retain(wf_linear(x, w));
        more = launches_of(ctx[d]) - begun - plain;
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

enum { WIDE = 192, MEMBERS = 2, RESULTS = 5, TILE = 64 };

/* Products of x with frozen matrices: stored in 4 bits, or their numbers. */
static void multiply(wf_context *ctx, wf_tensor *x, wf_tensor *dy, wf_tensor *const *w,
                     wf_tensor *u, wf_tensor *out[RESULTS])
{
    wf_tensor *const pair[MEMBERS] = {dy, dy};

    wf_linear_group(x, MEMBERS, w, out);
    out[2] = wf_linear_dx(MEMBERS, pair, w);
    out[3] = wf_linear_sum(x, w[0], x, u); /* beside a matrix that is not in 4 bits */
    out[4] = wf_linear_dx(1, &dy, &w[1]);
    CU_ASSERT_EQUAL_FATAL(wf_context_status(ctx), WF_OK);
}

/* Any number of rows, of both types: the bits of the products of numbers, by as many launches,
   and without the memory that these numbers take. */
static void try_products(wf_context *const *ctx, int64_t rows, int64_t width, bool bf16)
{
    const region weights = {WIDE, width, 0, width}, some = {rows, width, 0, width};
    const wf_dtype type = bf16 ? WF_BF16 : WF_F32;
    wf_tensor *out[DEVICES][2][RESULTS];
    int64_t taken[2];

    for (int d = bf16 ? GPU : CPU; d < DEVICES; d++) {
        wf_tensor *x = stored_part(ctx[d], WF_F32, some), *w[2][MEMBERS];
        wf_tensor *dy = stored_part(ctx[d], WF_F32, (region){rows, WIDE, 0, WIDE});
        wf_tensor *u = stored_part(ctx[d], WF_F32, weights);

        write_numbers(x, 1, 4);
        write_numbers(dy, 2, 5);
        write_numbers(u, 3, 6);
        if (bf16) {
            x = wf_cast(x, type);
            dy = wf_cast(dy, type);
            u = wf_cast(u, type);
        }
        for (int m = 0; m < MEMBERS; m++) {
            w[0][m] = quantised(ctx[d], weights, bf16 || m ? WF_BF16 : WF_F32);
            w[1][m] = wf_cast(w[0][m], type);
        }
        for (int k = 0; k < 2; k++) {
            taken[k] = launches_of(ctx[d]);
            multiply(ctx[d], x, dy, w[k], u, out[d][k]);
            taken[k] = launches_of(ctx[d]) - taken[k];
        }
        if (!bf16 || rows <= TILE) /* more of bf16 are widened for on a Hopper */
            CU_ASSERT_EQUAL(taken[0], taken[1]);
        for (int i = 0; i < RESULTS; i++) {
            bool alike = same_bytes(out[d][0][i], out[d][1][i]) &&
                         (bf16 || d == CPU || same_bytes(out[CPU][0][i], out[d][0][i]));

            CU_ASSERT(alike);
            if (!alike)
                printf("\nproduct %d of %lld rows, %lld wide, %s on device %d\n", i,
                       (long long)rows, (long long)width, bf16 ? "bf16" : "f32", d);
        }
    }
}

static void products(void)
{
    static const int64_t rows[] = {3, 9, 16, 17, 70};
    static const int64_t widths[] = {576, 64, 192}; /* 297, 33 and 99 bytes a row */
    wf_context *ctx[DEVICES] = {open_stored(CPU), open_stored(GPU)};

    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i += UNDER_SANITIZER ? 3 : 1)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            for (int d = 0; d < DEVICES; d++)
                wf_scope_open(ctx[d]);
            try_products(ctx, rows[i], widths[(UNDER_SANITIZER ? 1 : i) % 3], bf16);
            for (int d = 0; d < DEVICES; d++)
                wf_scope_close(ctx[d]);
        }
    for (int d = 0; d < DEVICES; d++)
        wf_context_close(ctx[d]);
}

/* Opens a context of a Hopper, which the emulated GPU is then; NULL: this GPU is none. */
static wf_context *open_hopper(void)
{
    wf_context *ctx;
    wf_tensor *x;

    setenv("WEFT_EMULATOR_CAPABILITY", "90", 1);
    setenv("WEFT_TENSOR_CORES", "wgmma", 1); /* else products of numbers are timed */
    ctx = open_stored(GPU);
    unsetenv("WEFT_EMULATOR_CAPABILITY");
    wf_scope_open(ctx);
    x = stored_part(ctx, WF_F32, (region){TILE, TILE, 0, TILE});
    write_numbers(x, 1, 1);
    wf_linear(wf_cast(x, WF_BF16), wf_cast(x, WF_BF16));
    wf_scope_close(ctx);
    if (wf_context_status(ctx) != WF_EUNSUPPORTED)
        return ctx;
    wf_context_close(ctx);
    return NULL;
}

/* The same by wgmma. Its products of numbers have the bits of mma (test_cuda_hopper.c). */
static void products_on_a_hopper(void)
{
    static const int64_t widths[] = {576, 320}; /* chunks of 72 and 40 terms */
    wf_context *ctx[DEVICES] = {NULL, open_hopper()};

    for (int i = UNDER_SANITIZER; i < 2 && ctx[GPU]; i++) {
        wf_scope_open(ctx[GPU]);
        try_products(ctx, i ? TILE : 9, widths[i], true);
        wf_scope_close(ctx[GPU]);
    }
    if (ctx[GPU])
        wf_context_close(ctx[GPU]);
    unsetenv("WEFT_TENSOR_CORES");
}

static size_t most_workspace(wf_context *ctx)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    return report.most[WF_MEMORY_WORKSPACE];
}

/* Returns the workspace of a plan's product of x with a matrix that is stored as nf4, or as its
   numbers. */
static size_t planned_workspace(int64_t rows, wf_dtype type, bool coded)
{
    const region weights = {WIDE, WIDE, 0, WIDE};
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.plan = true}, &error);
    wf_context *ctx =
        wf_context_open(device, &(wf_context_options){.seed = 7, .plan = true}, &error);
    wf_tensor *w, *x;
    size_t bytes;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    w = stored_part(ctx, coded ? WF_NF4 : type, weights);
    if (coded)
        w->rounds_to = type;
    x = stored_part(ctx, type, (region){rows, WIDE, 0, WIDE});
    CU_ASSERT_PTR_NOT_NULL(wf_linear(x, w));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    bytes = most_workspace(ctx);
    wf_context_close(ctx);
    return bytes;
}

/* No plan has room for numbers that are never stored. A plan is of a Hopper, which takes many
   rows of bf16 with numbers. */
static void workspace(void)
{
    static const struct {
        int64_t rows;
        wf_dtype type;
        bool widened;
    } rows[] = {
        {4, WF_F32, false}, {1000, WF_F32, false}, {64, WF_BF16, false}, {65, WF_BF16, true}};

    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        size_t numbers = planned_workspace(rows[i].rows, rows[i].type, false);
        size_t size = wf_dtype_size(rows[i].type);

        CU_ASSERT_EQUAL(planned_workspace(rows[i].rows, rows[i].type, true),
                        numbers + (rows[i].widened ? size * WIDE * WIDE : 0));
    }
}

int main(void)
{
    static const wf_test tests[] = {{"numbers in 4 bits, as on the CPU", numbers_of_4_bits},
                                    {"products that they are widened for", widened_products},
                                    {"products with them", products},
                                    {"products on a Hopper", products_on_a_hopper},
                                    {"the workspace of these", workspace},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_nf4", tests);
}
