/*
 * kernels/cpu/dims.c - permutations, repeated dims, slices and softmax on the CPU; sums over a
 * named dim are in kernels/cpu/sums.c.
 *
 *     softmax        m = greatest x, y = exp(x - m) * (1 / (sum of exp(x - m) in 16 lanes))
 *     softmax_grad   dx = y * (dy - (sum of y * dy in 16 lanes, each one fma after the other))
 */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/dims_internal.h"
#include <string.h>

enum { TILE = 32 };

/* The output as matrices: its last dim, and the dim that is the last one of the operand. */
typedef struct permute_job {
    const wf_tensor *x, *y;
    int64_t step[WF_MAX_DIMS];
    int across; /* the dim of the output whose neighbours are neighbours in x */
} permute_job;

static int64_t least(int64_t a, int64_t b)
{
    return wf_least(a, b);
}

/* Finds where an index over all dims of the output but `across` and the last one begins in y
   and x. */
static void permute_at(const permute_job *j, int64_t index, int64_t *to, int64_t *from)
{
    int64_t step = 1;

    *to = *from = 0;
    for (int d = j->y->ndim - 1; d >= 0; d--) {
        if (d != j->across && d != j->y->ndim - 1) {
            *to += index % j->y->local[d] * step;
            *from += index % j->y->local[d] * j->step[d];
            index /= j->y->local[d];
        }
        step *= j->y->local[d];
    }
}

/* Squares of TILE by TILE, which stay in the first-level cache. */
static void permute_matrix(const permute_job *j, const float *x, float *y)
{
    int last = j->y->ndim - 1;
    int64_t rows = j->y->local[j->across], columns = j->y->local[last];
    int64_t row = wf_extent(j->y, j->across + 1, j->y->ndim), step = j->step[last];

    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < columns; c0 += TILE)
            for (int64_t r = r0; r < least(rows, r0 + TILE); r++)
                for (int64_t c = c0; c < least(columns, c0 + TILE); c++)
                    y[r * row + c] = x[r + c * step];
}

static void permute_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const permute_job *j = arg;
    int last = j->y->ndim - 1;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t to, from;
        const float *x;
        float *y;

        permute_at(j, i, &to, &from);
        x = (const float *)j->x->data + from;
        y = (float *)j->y->data + to;
        if (j->across == last)
            memcpy(y, x, (size_t)j->y->local[last] * sizeof *y);
        else
            permute_matrix(j, x, y);
    }
}

static wf_status permute(const wf_call *call, void *workspace)
{
    permute_job j = {.x = call->in[0], .y = call->out[0]};
    int64_t count = wf_tensor_local_count(j.y), matrix;

    (void)workspace;
    if (count == 0)
        return WF_OK;
    if (j.y->ndim == 0) {
        *(float *)j.y->data = *(const float *)j.x->data;
        return WF_OK;
    }
    wf_permute_steps(call->attr, j.x, j.step);
    while (((const wf_permute_attr *)call->attr)->order[j.across] != j.y->ndim - 1)
        j.across++;
    matrix = j.y->local[j.y->ndim - 1];
    if (j.across != j.y->ndim - 1)
        matrix *= j.y->local[j.across];
    wf_thread_pool_run(wf_cpu_of(call)->pool, count / matrix, wf_task_rows(matrix),
                       permute_task, &j);
    return WF_OK;
}

/* An operand whose dims have these distances in memory, 0 where it is repeated. */
typedef struct broadcast_job {
    const wf_tensor *x, *y;
    int64_t step[WF_MAX_DIMS], n; /* elements of a row of y */
} broadcast_job;

static void broadcast_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const broadcast_job *j = arg;
    int last = j->y->ndim - 1;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x->data;
        float *y = (float *)j->y->data + r * j->n;
        int64_t rest = r;

        for (int d = last - 1; d >= 0; d--) {
            x += rest % j->y->local[d] * j->step[d];
            rest /= j->y->local[d];
        }
        if (last >= 0 && j->step[last])
            memcpy(y, x, (size_t)j->n * sizeof *y);
        else
            for (int64_t i = 0; i < j->n; i++)
                y[i] = *x;
    }
}

static wf_status broadcast(const wf_call *call, void *workspace)
{
    broadcast_job j = {.x = call->in[0], .y = call->out[0], .n = 1};
    int64_t count = wf_tensor_local_count(j.y);

    (void)workspace;
    if (count == 0)
        return WF_OK;
    wf_broadcast_steps(j.x, j.y, j.step);
    if (j.y->ndim > 0)
        j.n = j.y->local[j.y->ndim - 1];
    wf_thread_pool_run(wf_cpu_of(call)->pool, count / j.n, wf_task_rows(j.n), broadcast_task,
                       &j);
    return WF_OK;
}

typedef struct slice_job {
    wf_slice_rows rows;
    const float *from;
    float *to;
} slice_job;

static void slice_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const slice_job *j = arg;
    const wf_slice_rows *s = &j->rows;

    (void)worker;
    for (int64_t o = begin; o < end; o++)
        memcpy(j->to + o * s->part, j->from + o * s->whole + s->skip,
               (size_t)s->part * sizeof(float));
}

static wf_status slice(const wf_call *call, void *workspace)
{
    slice_job j = {wf_slice_rows_of(call, call->in[0], call->out[0]), call->in[0]->data,
                   call->out[0]->data};

    (void)workspace;
    if (j.rows.part > 0)
        wf_thread_pool_run(wf_cpu_of(call)->pool, j.rows.outer, wf_task_rows(j.rows.part),
                           slice_task, &j);
    return WF_OK;
}

static void slice_grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const slice_job *j = arg;
    const wf_slice_rows *s = &j->rows;

    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        float *row = j->to + o * s->whole;
        int64_t after = s->skip + s->part;

        memset(row, 0, (size_t)s->skip * sizeof(float));
        if (s->part > 0)
            memcpy(row + s->skip, j->from + o * s->part, (size_t)s->part * sizeof(float));
        memset(row + after, 0, (size_t)(s->whole - after) * sizeof(float));
    }
}

static wf_status slice_grad(const wf_call *call, void *workspace)
{
    slice_job j = {wf_slice_rows_of(call, call->out[0], call->in[1]), call->in[1]->data,
                   call->out[0]->data};

    (void)workspace;
    if (j.rows.whole > 0)
        wf_thread_pool_run(wf_cpu_of(call)->pool, j.rows.outer, wf_task_rows(j.rows.whole),
                           slice_grad_task, &j);
    return WF_OK;
}

static int64_t row_length(const wf_call *call)
{
    return call->out[0]->local[call->out[0]->ndim - 1];
}

static void softmax_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    int64_t n = row_length(call);

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)call->in[0]->data + r * n;
        float max = simd->row_max(x, n);

        simd->exp_scale(x, max, 1.0f / simd->sum_exp(x, max, n),
                        (float *)call->out[0]->data + r * n, n);
    }
}

static void softmax_grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    int64_t n = row_length(call);

    (void)worker;
    wf_cpu_of(call)->simd->softmax_grad((const float *)call->in[0]->data + begin * n,
                                        (const float *)call->in[1]->data + begin * n,
                                        (float *)call->out[0]->data + begin * n, end - begin,
                                        n);
}

static wf_status run_rows(const wf_call *call,
                          void (*task)(void *arg, int64_t begin, int64_t end, int worker))
{
    const wf_tensor *y = call->out[0];

    if (row_length(call) > 0)
        wf_thread_pool_run(wf_cpu_of(call)->pool, wf_extent(y, 0, y->ndim - 1),
                           wf_task_rows(row_length(call)), task, (void *)call);
    return WF_OK;
}

static wf_status softmax(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_rows(call, softmax_task);
}

static wf_status softmax_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    return run_rows(call, softmax_grad_task);
}

const wf_kernel wf_cpu_permute = {.run = permute};
const wf_kernel wf_cpu_broadcast = {.run = broadcast};
const wf_kernel wf_cpu_slice = {.run = slice};
const wf_kernel wf_cpu_slice_grad = {.run = slice_grad};
const wf_kernel wf_cpu_softmax = {.run = softmax};
const wf_kernel wf_cpu_softmax_grad = {.run = softmax_grad};
