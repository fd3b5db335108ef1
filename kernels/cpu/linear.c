/*
 * kernels/cpu/linear.c - products on the CPU: a row of parts for one GEMM each. Where both
 * factors come stored as bf16 they are bf16 products; results are rounded on their way out of
 * the registers.
 */
#include "kernels/cpu/linear_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

enum { MEMBERS = 3, MAX_PARTS = WF_LINEAR_PARTS };

/* y_m[rows, n] = x[rows, k] W_m[n, k]^T; k is cut in its chunks. weights: W_m, in x's type. */
static wf_gemm forward_product(const wf_call *call, int m, const wf_tensor *weights,
                               wf_gemm_part *parts)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    int64_t k = x->local[last], n = weights->local[0], at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(x, last, at);

    for (int l = 0; l < chunks; l++)
        parts[l] = (wf_gemm_part){.a = wf_linear_elements(x, at[l]),
                                  .a_row = k,
                                  .a_k = 1,
                                  .b = wf_linear_elements(weights, at[l]),
                                  .b_k = 1,
                                  .b_col = k,
                                  .k = at[l + 1] - at[l],
                                  .chunk = true};
    return (wf_gemm){.m = wf_extent(x, 0, last),
                     .n = n,
                     .c = call->out[m]->data,
                     .c_row = n,
                     .bf16 = wf_linear_is_bf16(x),
                     .c_bf16 = wf_linear_is_bf16(call->out[m]),
                     .parts = parts,
                     .n_parts = chunks};
}

/* dx[rows, k] of a run: chunk l is one chain through chunk l of every member's n. */
static wf_gemm dx_product(const wf_call *call, wf_gemm_part *parts)
{
    int members = call->n_in / 2, chunks = 0, n_parts = 0;
    int64_t at[MEMBERS][WF_MAX_CHUNKS + 1];
    const wf_tensor *dx = call->out[0];
    int last = dx->ndim - 1;
    int64_t k = dx->local[last];

    for (int m = 0; m < members; m++)
        chunks = wf_chunk_cuts(call->in[2 * m], last, at[m]);
    for (int l = 0; l < chunks; l++)
        for (int m = 0; m < members; m++) {
            const wf_tensor *dy = call->in[2 * m], *w = call->in[2 * m + 1];
            int64_t n = dy->local[last];

            parts[n_parts++] = (wf_gemm_part){.a = wf_linear_elements(dy, at[m][l]),
                                              .a_row = n,
                                              .a_k = 1,
                                              .b = wf_linear_elements(w, at[m][l] * k),
                                              .b_k = k,
                                              .b_col = 1,
                                              .k = at[m][l + 1] - at[m][l],
                                              .chunk = m == 0};
        }
    return (wf_gemm){.m = wf_extent(dx, 0, last),
                     .n = k,
                     .c = dx->data,
                     .c_row = k,
                     .add = wf_linear_adds(call),
                     .bf16 = wf_linear_is_bf16(call->in[0]),
                     .c_bf16 = wf_linear_is_bf16(dx),
                     .parts = parts,
                     .n_parts = n_parts};
}

/* Few rows read the weights as they are stored, at the speed of memory. */
static bool is_gemv(const wf_call *call, int m)
{
    const wf_tensor *x = call->in[0];

    return wf_extent(x, 0, x->ndim - 1) <= WF_GEMV_ROWS &&
           call->in[m + 1]->local[0] >= WF_GEMV_COLUMNS;
}

static void narrow(const wf_call *call, const float *from, wf_tensor *to)
{
    const wf_device *device = wf_context_device(call->ctx);

    device->narrow(device, from, to->data, wf_tensor_local_count(to));
}

/* Returns true where the results of a small-M product (few rows) are floats that are then
   stored as bf16. */
static bool has_float_results(const wf_call *call, int m)
{
    return wf_linear_is_bf16(call->out[m]) && !wf_linear_is_bf16(call->in[0]);
}

static size_t float_bytes(const wf_tensor *t)
{
    return ((size_t)wf_tensor_local_count(t) * sizeof(float) + 63) / 64 * 64;
}

/* Returns the output of a member's small-M product (GEMV for one row), and its part of the
   workspace. */
static wf_gemv gemv_product(const wf_call *call, int m, int64_t at[WF_MAX_CHUNKS + 1],
                            char **room)
{
    const wf_tensor *x = call->in[0], *w = call->in[m + 1];
    wf_tensor *y = call->out[m];
    int last = x->ndim - 1;
    wf_gemv s = {.m = wf_extent(x, 0, last),
                 .n = w->local[0],
                 .k = x->local[last],
                 .x = x->data,
                 .w = w->data,
                 .bf16 = wf_linear_is_bf16(w),
                 .x_bf16 = wf_linear_is_bf16(x),
                 .y_bf16 = wf_linear_is_bf16(x) && wf_linear_is_bf16(y),
                 .y = y->data,
                 .chunks = wf_chunk_cuts(x, last, at),
                 .at = at};

    if (has_float_results(call, m)) {
        s.y = *room;
        *room += float_bytes(y);
    }
    return s;
}

/* Runs all members that have few rows, as one job. */
static void run_gemv(const wf_call *call, char *room)
{
    wf_gemv s[MEMBERS];
    int64_t at[WF_MAX_CHUNKS + 1];
    int n = 0;

    for (int m = 0; m < call->n_out; m++)
        if (is_gemv(call, m))
            s[n++] = gemv_product(call, m, at, &room);
    if (n > 0)
        wf_cpu_of(call)->simd->gemv(wf_cpu_of(call)->pool, s, n);
    n = 0;
    for (int m = 0; m < call->n_out; m++) {
        n += is_gemv(call, m);
        if (is_gemv(call, m) && has_float_results(call, m))
            narrow(call, s[n - 1].y, call->out[m]);
    }
}

/* Returns the bytes of floats that member m needs beside its operands and results: for the
   results of few rows, or for weights that are stored as bf16 where x is not. */
static size_t wide_bytes(const wf_call *call, int m)
{
    const wf_tensor *w = call->in[m + 1];

    if (is_gemv(call, m))
        return has_float_results(call, m) ? float_bytes(call->out[m]) : 0;
    return wf_linear_is_bf16(w) && !wf_linear_is_bf16(call->in[0]) ? float_bytes(w) : 0;
}

wf_status wf_cpu_linear_run(const wf_call *call, const wf_gemm *g, void *workspace)
{
    wf_cpu *cpu = wf_cpu_of(call);

    cpu->simd->gemm(cpu->pool, g, workspace);
    return WF_OK;
}

size_t wf_cpu_linear_bytes(const wf_call *call, const wf_gemm *g)
{
    wf_cpu *cpu = wf_cpu_of(call);

    return cpu->simd->gemm_workspace(g, wf_thread_pool_size(cpu->pool));
}

size_t wf_cpu_linear_forward_workspace(const wf_call *call)
{
    wf_gemm_part parts[MAX_PARTS];
    size_t most = 0, few = 0;

    for (int m = 0; m < call->n_out; m++) {
        size_t bytes = wide_bytes(call, m);
        wf_gemm g;

        if (is_gemv(call, m)) {
            few += bytes;
            continue;
        }
        g = forward_product(call, m, call->in[m + 1], parts);
        bytes += wf_cpu_linear_bytes(call, &g);
        most = bytes > most ? bytes : most;
    }
    return few > most ? few : most;
}

wf_status wf_cpu_linear_forward(const wf_call *call, void *workspace)
{
    const wf_device *device = wf_context_device(call->ctx);
    wf_gemm_part parts[MAX_PARTS];

    run_gemv(call, workspace);
    for (int m = 0; m < call->n_out; m++) {
        wf_tensor *w = call->in[m + 1], floats = *w;
        size_t wide = wide_bytes(call, m);
        wf_gemm g;

        if (is_gemv(call, m))
            continue;
        if (wide) {
            floats.dtype = device->dtype;
            floats.data = workspace;
            device->widen(device, w->data, workspace, wf_tensor_local_count(w));
        }
        g = forward_product(call, m, wide ? &floats : w, parts);
        wf_cpu_linear_run(call, &g, wide ? (char *)workspace + wide : workspace);
    }
    return WF_OK;
}

/*
 * Decides where the sum over a group's runs is made, which is rounded once: where there are
 * several and the result is stored as bf16, it is made in floats. *floats: the result, or its
 * floats at the start of the workspace; returns the bytes there.
 */
static size_t float_result(const wf_call *call, void *workspace, wf_tensor *floats)
{
    wf_call one;

    *floats = *call->out[0];
    if (!wf_linear_is_bf16(floats) || wf_linear_run(call, 0, &one) == call->n_in / 2)
        return 0;
    floats->dtype = wf_context_device(call->ctx)->dtype;
    floats->data = workspace;
    return float_bytes(floats);
}

size_t wf_cpu_linear_runs_workspace(const wf_call *call, wf_linear_product *product)
{
    wf_gemm_part parts[MAX_PARTS];
    size_t most = 0, wide;
    wf_tensor floats;
    wf_call one;

    wide = float_result(call, NULL, &floats);
    for (int m = 0; m < call->n_in / 2;) {
        wf_gemm g;
        size_t bytes;

        m = wf_linear_run(call, m, &one);
        one.out[0] = &floats;
        g = product(&one, parts);
        bytes = wf_cpu_linear_bytes(&one, &g);
        most = bytes > most ? bytes : most;
    }
    return wide + most;
}

wf_status wf_cpu_linear_runs(const wf_call *call, void *workspace, wf_linear_product *product)
{
    wf_gemm_part parts[MAX_PARTS];
    wf_tensor floats;
    size_t wide = float_result(call, workspace, &floats);
    wf_call one;

    for (int m = 0; m < call->n_in / 2;) {
        wf_gemm g;

        m = wf_linear_run(call, m, &one);
        one.out[0] = &floats;
        g = product(&one, parts);
        wf_cpu_linear_run(&one, &g, wide ? (char *)workspace + wide : workspace);
    }
    if (wide)
        narrow(call, floats.data, call->out[0]);
    return WF_OK;
}

static size_t dx_workspace(const wf_call *call)
{
    return wf_cpu_linear_runs_workspace(call, dx_product);
}

static wf_status dx(const wf_call *call, void *workspace)
{
    return wf_cpu_linear_runs(call, workspace, dx_product);
}

/* Weights come as they are stored, and results go so; x does where all factors are stored as
   bf16. */
enum {
    W1 = WF_IN(1),
    W2 = W1 | WF_IN(2),
    W3 = W2 | WF_IN(3),
    Y1 = WF_OUT(0),
    Y2 = Y1 | WF_OUT(1),
    Y3 = Y2 | WF_OUT(2),
    DY1 = WF_IN(0) | WF_IN(1),
    DY2 = DY1 | WF_IN(2) | WF_IN(3),
    DY3 = DY2 | WF_IN(4) | WF_IN(5)
};

const wf_kernel wf_cpu_linear1 = WF_LINEAR_KERNEL(wf_cpu_linear_forward, W1, Y1);
const wf_kernel wf_cpu_linear1_fp32 = WF_LINEAR_KERNEL(wf_cpu_linear_forward, W1, 0);
const wf_kernel wf_cpu_linear2 = WF_LINEAR_KERNEL(wf_cpu_linear_forward, W2, Y2);
const wf_kernel wf_cpu_linear3 = WF_LINEAR_KERNEL(wf_cpu_linear_forward, W3, Y3);
const wf_kernel wf_cpu_linear1_dx = {
    .run = dx, .workspace = dx_workspace, .mixed_ok = Y1, .all_bf16 = DY1};
const wf_kernel wf_cpu_linear2_dx = {
    .run = dx, .workspace = dx_workspace, .mixed_ok = Y1, .all_bf16 = DY2};
const wf_kernel wf_cpu_linear3_dx = {
    .run = dx, .workspace = dx_workspace, .mixed_ok = Y1, .all_bf16 = DY3};
