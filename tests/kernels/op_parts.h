/*
 * tests/kernels/op_parts.h - a rank that holds a part computes that part, bit for bit.
 *
 * check() runs an op whole, then once for each of p ranks on slices of the operands, without
 * any mesh: an output that is split must be the slice of the whole one; a partial one must give
 * the whole one when the ranks are summed in their tree (or their maximum is taken). Sizes are
 * chosen by the callers so that they do not divide, and leave some parts empty.
 */
#ifndef WF_TESTS_OP_PARTS_H
#define WF_TESTS_OP_PARTS_H

#include "core/numerics/random.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/devices.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = -1, SUM = -2, MAX = -3, MOST_PARTS = 8 };

/* Which dim of each operand and output is split; WHOLE for operands, SUM and MAX for outputs.
 */
typedef struct split {
    const char *name;
    int in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    unsigned parts; /* bit p: over p ranks */
} split;

#define TREE (1u << 2 | 1u << 4 | 1u << 8)                  /* ranks nest in the 8 chunks */
#define ANY  (TREE | 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7) /* nothing is summed */

static wf_context *ctx;
static uint64_t stream;

static void open_context(int threads)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(threads, &error), &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_position(ctx, 11, (wf_sequences){.first = 40});
    stream = 0;
}

static void close_context(void)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    if (wf_context_status(ctx) != WF_OK)
        printf("%s\n", wf_context_error(ctx)->text);
    wf_context_close(ctx);
}

static inline wf_tensor *random_tensor(int ndim, const wf_dim *dims)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, stream++, 0);
    return t;
}

static inline wf_tensor *random_tokens(int ndim, const wf_dim *dims, int64_t below)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int64_t i = 0; i < wf_tensor_count(t); i++)
        ((int32_t *)t->data)[i] =
            (int32_t)wf_random_below(5, stream, (uint64_t)i, (uint64_t)below);
    stream++;
    return t;
}

static size_t bytes_of(const wf_tensor *t)
{
    return (size_t)wf_tensor_local_count(t) * wf_dtype_size(t->dtype);
}

/* The part [start, start + n) of a dim (WHOLE: all), with data of its own. */
static wf_tensor part_of(const wf_tensor *whole, int dim, int p, int r)
{
    wf_tensor t = *whole;
    size_t outer = 1, inner = wf_dtype_size(t.dtype), row, skip, all;

    t.data = NULL;
    if (dim >= 0) {
        const wf_dim *d = &t.dim[dim];

        t.start[dim] = wf_cut(d->size, d->grain, p, r);
        t.local[dim] = wf_cut(d->size, d->grain, p, r + 1) - t.start[dim];
    }
    t.data = malloc(bytes_of(&t) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t.data);
    if (dim < 0) {
        memcpy(t.data, whole->data, bytes_of(&t));
        return t;
    }
    for (int d = 0; d < t.ndim; d++)
        if (d < dim)
            outer *= (size_t)t.local[d];
        else if (d > dim)
            inner *= (size_t)t.local[d];
    row = inner * (size_t)t.local[dim];
    skip = inner * (size_t)t.start[dim];
    all = inner * (size_t)t.dim[dim].size;
    for (size_t o = 0; o < outer; o++)
        memcpy((char *)t.data + o * row, (char *)whole->data + o * all + skip, row);
    return t;
}

static void run_kernel(const wf_call *call)
{
    const wf_kernel *kernel = wf_cpu_kernel(wf_context_device(ctx), call->op);
    size_t bytes = kernel->workspace ? kernel->workspace(call) : 0;
    void *workspace = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;

    CU_ASSERT_EQUAL_FATAL(kernel->run(call, workspace), WF_OK);
    free(workspace);
}

static bool alike(const wf_tensor *a, const wf_tensor *b)
{
    return memcmp(a->data, b->data, bytes_of(a)) == 0;
}

/* Combines the ranks' partial outputs. */
static void combine(const wf_tensor *parts, int p, int how, wf_tensor *result)
{
    const wf_simd *simd = wf_cpu_simd(NULL);
    const float *source[MOST_PARTS];
    int64_t n = wf_tensor_local_count(result);

    for (int r = 0; r < p; r++)
        source[r] = parts[r].data;
    memcpy(result->data, source[0], bytes_of(result));
    if (how == SUM)
        simd->sum(source, p, true, result->data, n);
    for (int r = 1; how == MAX && r < p; r++)
        simd->maximum(result->data, source[r], result->data, n);
}

static void check_parts(const wf_call *whole, const split *s, int p)
{
    wf_tensor in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS][MOST_PARTS];
    bool right = true;

    for (int r = 0; r < p; r++) {
        wf_call call = *whole;

        for (int i = 0; i < call.n_in; i++) {
            in[i] = part_of(whole->in[i], s->in[i], p, r);
            call.in[i] = &in[i];
        }
        for (int o = 0; o < call.n_out; o++) {
            out[o][r] = part_of(whole->out[o], s->out[o], p, r);
            memset(out[o][r].data, 0xff, bytes_of(&out[o][r]));
            call.out[o] = &out[o][r];
        }
        run_kernel(&call);
        for (int i = 0; i < call.n_in; i++)
            free(in[i].data);
    }
    for (int o = 0; o < whole->n_out; o++) {
        for (int r = 0; s->out[o] >= 0 && r < p; r++) {
            wf_tensor expected = part_of(whole->out[o], s->out[o], p, r);

            right = right && alike(&expected, &out[o][r]);
            free(expected.data);
        }
        if (s->out[o] < 0) {
            wf_tensor total = part_of(whole->out[o], WHOLE, p, 0);

            combine(out[o], p, s->out[o], &total);
            right = right && alike(whole->out[o], &total);
            free(total.data);
        }
        for (int r = 0; r < p; r++)
            free(out[o][r].data);
    }
    if (!right)
        printf("\n%s: not the same over %d ranks\n", s->name, p);
    CU_ASSERT(right);
}

static void check(wf_call call, const split *s)
{
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    for (int p = 1; p <= MOST_PARTS; p++)
        if (s->parts >> p & 1)
            check_parts(&call, s, p);
}

#endif
