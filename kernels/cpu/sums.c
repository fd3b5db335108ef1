/*
 * kernels/cpu/sums.c - sums on the CPU: blocks of columns, each one a midpoint tree over
 * chunks.
 *
 * A chunk is one chain over its rows from +0, so no chunk and no node is ever -0, and an empty
 * chunk changes nothing: the sum over a part of the chunks is a node of the whole sum.
 */
#include "kernels/cpu/rows_internal.h"
#include "kernels/dims_internal.h"
#include <string.h>

enum { COLUMNS = 128, BIAS = WF_IN(0) | WF_OUT(0) };

/* y[o, n] = sum over r of x[o, r, n] */
typedef struct sum_job {
    const wf_simd *simd;
    const wf_tensor *x;
    float *y;
    int64_t n, rows;
    bool each; /* one row per chunk, and `sum` is not used */
    wf_row_sum sum;
} sum_job;

/* Sums the chain over a chunk's rows, of which the first one's first column is element `first`
   of x. */
static void sum_floats(const sum_job *j, int64_t first, wf_chunk_rows rows, float *y,
                       int64_t columns)
{
    static const float none = 0; /* for an operand without elements, of which none is read */
    const float *x = j->x->data ? (const float *)j->x->data + first : &none;

    j->simd->bias_chunk(x, j->n, y, rows, columns);
}

/* Sums bf16 numbers, which are widened some rows at a time. */
static void sum_stored(const sum_job *j, int64_t first, wf_chunk_rows rows, float *y,
                       int64_t columns)
{
    float room[WF_NEAR];
    wf_chunk_rows some = {1, 0, 0, false};

    memset(y, 0, (size_t)columns * sizeof *y);
    for (int64_t q = 0; q < rows.runs * rows.rows; q += some.rows, some.more = true) {
        int64_t row = q / rows.rows * rows.step + q % rows.rows;

        some.rows = some.step = wf_least(WF_NEAR / COLUMNS, rows.rows - q % rows.rows);
        for (int64_t r = 0; r < some.rows; r++)
            wf_as_floats(j->simd, j->x, first + (row + r) * j->n, columns, room + r * COLUMNS);
        j->simd->bias_chunk(room, COLUMNS, y, some, columns);
    }
}

static void sum_block(const sum_job *j, int64_t first, float *y, int64_t columns)
{
    float node[WF_TREE_DEPTH + 1][COLUMNS];
    int64_t chunks = j->each ? j->rows : j->sum.chunks;
    int depth = 0;

    memset(node[0], 0, (size_t)columns * sizeof(float));
    for (int64_t l = 0; l < chunks; l++) {
        const wf_chunk_rows one = {1, 1, 1, false};

        (j->x->dtype == WF_BF16 ? sum_stored : sum_floats)(
            j, first + (j->each ? l : j->sum.at[l]) * j->n,
            j->each ? one : wf_chunk_rows_of(&j->sum, l), node[depth++], columns);
        for (int m = wf_tree_merges(chunks, l); m > 0; m--, depth--)
            j->simd->add(node[depth - 2], node[depth - 1], node[depth - 2], columns);
    }
    memcpy(y, node[0], (size_t)columns * sizeof(float));
}

static void sum_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const sum_job *j = arg;
    int64_t blocks = (j->n + COLUMNS - 1) / COLUMNS;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i / blocks, column = i % blocks * COLUMNS;

        sum_block(j, o * j->rows * j->n + column, j->y + o * j->n + column,
                  wf_least(COLUMNS, j->n - column));
    }
}

static wf_status run_sum(const wf_call *call, sum_job *j, int64_t outer)
{
    j->simd = wf_cpu_of(call)->simd;
    j->x = call->in[0];
    j->y = call->out[0]->data;
    wf_thread_pool_run(wf_cpu_of(call)->pool, outer * ((j->n + COLUMNS - 1) / COLUMNS),
                       wf_task_rows(j->rows * wf_least(j->n, COLUMNS)), sum_task, j);
    return WF_OK;
}

/* Returns a sum inside each sequence over the dims [1, end). */
static sum_job sequences(const wf_call *call, int end, int64_t n)
{
    const wf_tensor *x = call->in[0];

    return (sum_job){.rows = wf_extent(x, 1, end), .n = n, .sum = wf_row_sum_of(x, end)};
}

static wf_status bias_grad(const wf_call *call, void *workspace)
{
    int last = call->in[0]->ndim - 1;
    sum_job j = sequences(call, last, call->in[0]->local[last]);

    (void)workspace;
    return run_sum(call, &j, call->in[0]->local[0]);
}

static wf_status token_sum(const wf_call *call, void *workspace)
{
    sum_job j = sequences(call, call->in[0]->ndim, 1);

    (void)workspace;
    return run_sum(call, &j, call->in[0]->local[0]);
}

static wf_status sum_over(const wf_call *call, int dim)
{
    const wf_tensor *x = call->in[0];
    sum_job j = {.rows = x->local[dim],
                 .n = wf_extent(x, dim + 1, x->ndim),
                 .each = wf_is_batch(x, dim) && wf_context_exact(call->ctx),
                 .sum = {.runs = 1, .step = x->local[dim]}};

    j.sum.chunks = wf_chunk_cuts(x, dim, j.sum.at);
    return run_sum(call, &j, wf_extent(x, 0, dim));
}

static wf_status batch_sum(const wf_call *call, void *workspace)
{
    (void)workspace;
    return sum_over(call, 0);
}

static wf_status sum(const wf_call *call, void *workspace)
{
    (void)workspace;
    return sum_over(call, ((const wf_dim_attr *)call->attr)->dim);
}

static void bias_add_rows(const wf_row_run *r)
{
    r->simd->bias_add(r->in[0], r->in[1], r->out[0], r->n, r->call->in[1]->local[0]);
}

static wf_status bias_add(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1), BIAS, bias_add_rows);
}

static void bias_gelu_rows(const wf_row_run *r)
{
    r->simd->bias_gelu(r->in[0], r->in[1], r->out[0], r->n, r->call->in[1]->local[0]);
}

static wf_status bias_gelu(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1), BIAS, bias_gelu_rows);
}

/* The gradient of bias_gelu: chunks of the bias's are [sequence][chunk][n] in the workspace,
   and after them, for each worker, room for a row of x, dy and dx. */
typedef struct gelu_job {
    const wf_call *call;
    sum_job cuts;
    float *chunk, *room;
} gelu_job;

static int64_t gelu_chunk_floats(const gelu_job *j)
{
    return j->call->in[0]->local[0] * j->cuts.sum.chunks * j->cuts.n;
}

static gelu_job plan_gelu(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    gelu_job j = {
        .call = call, .cuts = sequences(call, last, x->local[last]), .chunk = workspace};

    if (workspace)
        j.room = j.chunk + gelu_chunk_floats(&j);
    return j;
}

/* Computes a row of dx, and adds it to its chunk's chain while it is in the first-level
   cache. */
static void gelu_row(const gelu_job *j, float *room, int64_t at, float *sum)
{
    const wf_simd *simd = wf_cpu_of(j->call)->simd;
    wf_tensor *const *in = j->call->in, *dx = j->call->out[0];
    int64_t n = j->cuts.n;
    float *to = wf_floats_for(dx, at, room + 2 * n);

    simd->bias_gelu_grad(wf_as_floats(simd, in[0], at, n, room), in[1]->data,
                         wf_as_floats(simd, in[2], at, n, room + n), to, 1, n);
    simd->add(sum, to, sum, n);
    wf_floats_done(simd, dx, at, n, to);
}

static void gelu_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    const gelu_job *j = arg;
    const sum_job *c = &j->cuts;

    for (int64_t i = begin; i < end; i++) {
        int64_t l = i % c->sum.chunks;
        int64_t first = i / c->sum.chunks * c->rows + c->sum.at[l];
        wf_chunk_rows rows = wf_chunk_rows_of(&c->sum, l);
        float *sum = j->chunk + i * c->n;

        memset(sum, 0, (size_t)c->n * sizeof(float));
        for (int64_t q = 0; q < rows.runs * rows.rows; q++)
            gelu_row(j, j->room + worker * 3 * c->n,
                     (first + q / rows.rows * rows.step + q % rows.rows) * c->n, sum);
    }
}

static wf_status bias_gelu_grad(const wf_call *call, void *workspace)
{
    gelu_job j = plan_gelu(call, workspace);
    const sum_job *c = &j.cuts;
    int64_t outer = call->in[0]->local[0];

    if (!workspace)
        return WF_OK; /* no output either */
    wf_thread_pool_run(wf_cpu_of(call)->pool, outer * c->sum.chunks,
                       wf_task_rows(c->rows / c->sum.chunks * c->n), gelu_chunks, &j);
    for (int64_t o = 0; o < outer; o++) {
        const float *chunk[WF_MAX_TOKEN_CHUNKS];

        for (int64_t l = 0; l < c->sum.chunks; l++)
            chunk[l] = j.chunk + (o * c->sum.chunks + l) * c->n;
        wf_cpu_of(call)->simd->sum(chunk, c->sum.chunks, true,
                                   (float *)call->out[1]->data + o * c->n, c->n);
    }
    return WF_OK;
}

static size_t bias_gelu_grad_workspace(const wf_call *call)
{
    gelu_job j = plan_gelu(call, NULL);
    int64_t room = 3 * j.cuts.n * wf_thread_pool_size(wf_cpu_of(call)->pool);

    return (size_t)(gelu_chunk_floats(&j) + room) * sizeof(float);
}

static void batch_expand_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    int64_t n = wf_tensor_local_count(call->in[0]);
    float *y = call->out[0]->data;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        memcpy(y + r * n, call->in[0]->data, (size_t)n * sizeof(float));
}

static wf_status batch_expand(const wf_call *call, void *workspace)
{
    (void)workspace;
    if (wf_tensor_local_count(call->in[0]))
        wf_thread_pool_run(wf_cpu_of(call)->pool, call->out[0]->local[0],
                           wf_task_rows(wf_tensor_local_count(call->in[0])), batch_expand_task,
                           (void *)call);
    return WF_OK;
}

static void token_expand_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_tensor *out = call->out[0];
    const float *x = call->in[0]->data;
    int64_t n = wf_extent(out, 1, out->ndim);
    float *y = out->data;

    (void)worker;
    for (int64_t i = begin * n; i < end * n; i++)
        y[i] = x[i / n];
}

static wf_status token_expand(const wf_call *call, void *workspace)
{
    const wf_tensor *out = call->out[0];

    (void)workspace;
    wf_thread_pool_run(wf_cpu_of(call)->pool, out->local[0],
                       wf_task_rows(wf_extent(out, 1, out->ndim)), token_expand_task,
                       (void *)call);
    return WF_OK;
}

/* Copies rows: row r of the output, [outer, rows, n], is row r / rows of the operand. */
static void sum_expand_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_tensor *y = call->out[0];
    int dim = ((const wf_dim_attr *)call->attr)->dim;
    int64_t rows = y->local[dim], n = wf_extent(y, dim + 1, y->ndim);

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        memcpy((float *)y->data + r * n, (const float *)call->in[0]->data + r / rows * n,
               (size_t)n * sizeof(float));
}

static wf_status sum_expand(const wf_call *call, void *workspace)
{
    const wf_tensor *y = call->out[0];
    int dim = ((const wf_dim_attr *)call->attr)->dim;
    int64_t n = wf_extent(y, dim + 1, y->ndim);

    (void)workspace;
    if (n > 0)
        wf_thread_pool_run(wf_cpu_of(call)->pool, wf_extent(y, 0, dim + 1), wf_task_rows(n),
                           sum_expand_task, (void *)call);
    return WF_OK;
}

const wf_kernel wf_cpu_sum = {.run = sum, .mixed_ok = WF_IN(0)};
const wf_kernel wf_cpu_sum_expand = {.run = sum_expand};
const wf_kernel wf_cpu_bias_add = WF_ROWS_KERNEL(bias_add, BIAS);
const wf_kernel wf_cpu_bias_grad = {.run = bias_grad, .mixed_ok = WF_IN(0)};
const wf_kernel wf_cpu_bias_gelu = WF_ROWS_KERNEL(bias_gelu, BIAS);
const wf_kernel wf_cpu_bias_gelu_grad = {
    .run = bias_gelu_grad, .workspace = bias_gelu_grad_workspace, .mixed_ok = BIAS | WF_IN(2)};
const wf_kernel wf_cpu_batch_sum = {.run = batch_sum};
const wf_kernel wf_cpu_batch_expand = {.run = batch_expand};
const wf_kernel wf_cpu_token_sum = {.run = token_sum};
const wf_kernel wf_cpu_token_expand = {.run = token_expand};
