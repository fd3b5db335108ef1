/* tests/core/test_nf4_ops.c - ops and the host read what is stored as NF4: they see the numbers
   that it represents. */
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/core/core_harness.h"
#include <stdlib.h>

static void *room(int64_t n, size_t element)
{
    void *p = calloc((size_t)n + 1, element);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static uint32_t chance(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static wf_context *open_cpu(int threads, bool compute_fp32)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx =
        wf_context_open(wf_cpu_device(threads, &error),
                        &(wf_context_options){.compute_fp32 = compute_fp32}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static wf_tensor *matrix(wf_context *ctx, int64_t rows, int64_t columns, float by)
{
    wf_dim dims[] = {wf_dim_width(rows), wf_dim_width(columns)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    uint32_t state = (uint32_t)(rows * 31 + columns);

    for (int64_t i = 0; i < rows * columns; i++)
        ((float *)t->data)[i] = by * ((float)(chance(&state) % 4096) - 2048);
    return t;
}

static wf_tensor *stored(wf_tensor *t, wf_dtype as)
{
    wf_tensor *y = wf_nf4_new(t->ctx, 2, t->dim, NULL, WF_MEMORY_FROZEN, as);
    const wf_nf4_part part = wf_nf4_part_of(y);
    float *absmax = room(wf_nf4_blocks(wf_tensor_count(t)), sizeof *absmax);

    wf_nf4_absmax(&part, t->data, absmax);
    CU_ASSERT_EQUAL(wf_nf4_store(y, t->data, absmax), WF_OK);
    free(absmax);
    return y;
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->dtype == b->dtype && memcmp(a->data, b->data, wf_tensor_bytes(a)) == 0;
}

/* A product with a matrix in 4 bits is the product with its numbers, stored as what they
   are. */
static void ops_read_numbers(void)
{
    for (int mode = 0; mode < 6; mode++) {
        bool bf16 = mode % 2, wide = mode / 2 == 1, half_x = mode / 2 == 2;
        wf_context *ctx = open_cpu(1 + mode % 3, wide);
        wf_tensor *w, *x, *q, *n, *y[2], *dx[2];

        wf_scope_open(ctx);
        x = matrix(ctx, 37, 130, 1e-3f);
        w = matrix(ctx, 70, 130, 1e-4f);
        q = stored(w, bf16 ? WF_BF16 : WF_F32);
        n = wf_cast(q, bf16 ? WF_BF16 : WF_F32);
        if (half_x) {
            x = wf_cast(x, WF_BF16);
            wf_context_storage(ctx, WF_BF16);
        }
        for (int i = 0; i < 2; i++) {
            wf_tensor *leaf = wf_leaf(x), *of = i ? n : q;
            wf_tape *tape = wf_tape_open(ctx);

            y[i] = wf_tensor_retain(wf_linear(leaf, of));
            CU_ASSERT_EQUAL(wf_backward(y[i], y[i], false), WF_OK);
            dx[i] = wf_tensor_retain(leaf->grad);
            wf_tape_close(tape);
        }
        CU_ASSERT(alike(y[0], y[1]));
        CU_ASSERT(alike(dx[0], dx[1]));
        CU_ASSERT(!alike(y[0], wf_linear(x, w)));
        for (int i = 0; i < 2; i++) {
            wf_tensor_release(y[i]);
            wf_tensor_release(dx[i]);
        }
        wf_scope_close(ctx);
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* The host reads the numbers, and a cast to bf16 of numbers of f32 is their rounding. */
static void host_reads_numbers(void)
{
    wf_context *ctx = open_cpu(3, false);
    wf_tensor *w, *q, *half, *n;
    wf_host_data view;
    const float *x;

    wf_scope_open(ctx);
    w = matrix(ctx, 201, 167, 1e-4f);
    q = stored(w, WF_F32);
    half = wf_cast(q, WF_BF16);
    n = wf_cast(q, WF_F32);
    CU_ASSERT(alike(half, wf_cast(n, WF_BF16)));
    x = wf_data_read_f32(q, &view);
    CU_ASSERT_EQUAL(memcmp(x, n->data, wf_tensor_bytes(n)), 0);
    wf_data_close(&view);
    CU_ASSERT_EQUAL(wf_tensor_bytes(q), 201 * ((167 + 1) / 2 + (167 + 62) / 64 + 1));
    CU_ASSERT(alike(wf_cast(stored(w, WF_BF16), WF_F32), wf_cast(half, WF_F32)));
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void no_parts_of_blocks(void)
{
    wf_context *ctx = open_cpu(1, false);
    wf_dim dims[] = {wf_dim_width(8), wf_dim_width(16), wf_dim_width(64)};
    wf_host_data view;
    wf_tensor *q;

    wf_scope_open(ctx);
    q = stored(matrix(ctx, 8, 64, 1e-3f), WF_F32);
    CU_ASSERT_PTR_NULL(wf_tensor_rows(q, 0, 4));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "rows of nf4"));
    dims[1] = wf_dim_width(64);
    CU_ASSERT_PTR_NOT_NULL(wf_tensor_view(q, 2, dims, NULL));
    dims[0] = wf_dim_width(64);
    dims[1] = wf_dim_width(8);
    CU_ASSERT_PTR_NULL(wf_tensor_view(q, 2, dims, NULL));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "a view of nf4"));
    CU_ASSERT_PTR_NULL(wf_tensor_new(ctx, WF_NF4, 1, dims, NULL, WF_MEMORY_FROZEN));
    CU_ASSERT(refused(ctx, WF_ESHAPE, "cannot be nf4"));
    CU_ASSERT_PTR_NULL(wf_data_write_f32(q, &view));
    wf_data_close(&view);
    CU_ASSERT(refused(ctx, WF_EDTYPE, "wf_nf4_store"));
    CU_ASSERT_PTR_NULL(wf_cast(q, WF_I32));
    CU_ASSERT(refused(ctx, WF_EDTYPE, "cannot be cast"));
    wf_init_fill(q, 1);
    CU_ASSERT(refused(ctx, WF_EDTYPE, "operand 0 is nf4"));
    wf_scope_close(ctx);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"ops read numbers", ops_read_numbers},
                                    {"the host reads numbers", host_reads_numbers},
                                    {"no parts of blocks", no_parts_of_blocks},
                                    {NULL, NULL}};

    return wf_test_main("nf4_ops", tests);
}
