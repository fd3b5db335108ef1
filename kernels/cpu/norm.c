/*
 * kernels/cpu/norm.c - norms on the CPU: rows over the thread pool, each by one call of the
 * inner loops.
 *
 * A sequence's gradient of gain and bias is a midpoint tree over the 8 chunks of its tokens, or
 * of its heads (wf_chunk_dim). A chunk is one chain over its rows, an empty one +0. A chunk may
 * be -0 (a product can underflow), and -0 does not survive a sum with +0: zeros get one sign at
 * the end, as they would on ranks that hold a part of the chunks.
 */
#include "kernels/cpu/rows_internal.h"

static float *at(const wf_tensor *t, int64_t offset)
{
    return (float *)t->data + offset;
}

/* Operands of a forward op: x, y; of a gradient: x, dy, dx. Statistics, one per row, are always
   stored as floats. */
enum {
    NORM = WF_IN(0) | WF_OUT(0),
    LAYERNORM = NORM | WF_OUT(1) | WF_OUT(2),
    LAYERNORM_DX = NORM | WF_IN(2) | WF_IN(3) | WF_IN(4),
    RMSNORM = NORM | WF_OUT(1),
    RMSNORM_DX = NORM | WF_IN(2) | WF_IN(3)
};

static wf_status over_rows(const wf_call *call, void *workspace, unsigned by_rows,
                           wf_row_loop *loop)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1), by_rows, loop);
}

static int64_t width(const wf_call *call)
{
    return call->in[0]->local[call->in[0]->ndim - 1];
}

static void layernorm_rows(const wf_row_run *r)
{
    r->simd->layernorm(r->in[0], r->in[1], r->in[2], *(const float *)r->call->attr, r->out[0],
                       r->out[1], r->out[2], r->n, width(r->call));
}

static wf_status layernorm(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, LAYERNORM, layernorm_rows);
}

static void layernorm_dx_rows(const wf_row_run *r)
{
    r->simd->layernorm_grad(r->in[0], r->in[1], r->in[2], r->in[3], r->in[4], r->out[0], r->n,
                            width(r->call));
}

static wf_status layernorm_dx(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, LAYERNORM_DX, layernorm_dx_rows);
}

static void rmsnorm_rows(const wf_row_run *r)
{
    r->simd->rmsnorm(r->in[0], r->in[1], *(const float *)r->call->attr, r->out[0], r->out[1],
                     r->n, width(r->call));
}

static wf_status rmsnorm(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, RMSNORM, rmsnorm_rows);
}

static void rmsnorm_dx_rows(const wf_row_run *r)
{
    r->simd->rmsnorm_grad(r->in[0], r->in[1], r->in[2], r->in[3], r->out[0], r->n,
                          width(r->call));
}

static wf_status rmsnorm_dx(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, RMSNORM_DX, rmsnorm_dx_rows);
}

/* The gradients of vectors: chunk values are [sequence][output][chunk][d] in the workspace, and
   after them, for each worker, room for some rows of x and dy. */
typedef struct vector_sums {
    const wf_call *call;
    int64_t sequences, rows, d; /* rows of a sequence */
    wf_row_sum sum;
    float *chunk, *room;
} vector_sums;

static bool needs_room(const wf_call *call)
{
    return call->in[0]->dtype == WF_BF16 || call->in[call->n_in - 1]->dtype == WF_BF16;
}

static int64_t chunk_floats(const vector_sums *s)
{
    return s->sequences * s->call->n_out * s->sum.chunks * s->d;
}

static vector_sums plan(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    vector_sums s = {.call = call,
                     .sequences = x->local[0],
                     .rows = wf_extent(x, 1, last),
                     .d = x->local[last],
                     .sum = wf_row_sum_of(x, last),
                     .chunk = workspace};

    if (workspace)
        s.room = s.chunk + chunk_floats(&s);
    return s;
}

static float *chunk_at(const vector_sums *s, int64_t sequence, int output, int chunk)
{
    return s->chunk + ((sequence * s->call->n_out + output) * s->sum.chunks + chunk) * s->d;
}

/* Adds rows row .. row + n - 1 of x and dy to the chains of chunk l of sequence b. */
static void add_rows(const vector_sums *s, float *room, int64_t row, wf_chunk_rows rows,
                     int64_t n, int64_t b, int l)
{
    const wf_call *call = s->call;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    wf_tensor *const *in = call->in;
    int64_t d = s->d;
    const float *x = wf_as_floats(simd, in[0], row * d, n * d, room);
    const float *dy =
        wf_as_floats(simd, in[call->n_in - 1], row * d, n * d, room + wf_block_elements(d));

    if (call->n_out == 2)
        simd->layernorm_chunk(x, at(in[1], row), at(in[2], row), dy, chunk_at(s, b, 0, l),
                              chunk_at(s, b, 1, l), rows, d);
    else
        simd->rmsnorm_chunk(x, at(in[1], row), dy, chunk_at(s, b, 0, l), rows, d);
}

/* Adds the rows of a chunk: where they lie, or, stored as bf16, some at a time. */
static void add_chunk(const vector_sums *s, float *room, int64_t b, int l)
{
    int64_t first = b * s->rows + s->sum.at[l];
    wf_chunk_rows rows = wf_chunk_rows_of(&s->sum, l), some = {1, 0, 0, false};

    if (!needs_room(s->call) || rows.runs * rows.rows == 0) {
        add_rows(s, room, first, rows, 0, b, l);
        return;
    }
    for (int64_t run = 0; run < rows.runs; run++)
        for (int64_t r = 0; r < rows.rows; r += some.rows, some.more = true) {
            some.rows = some.step = wf_least(wf_block_rows(s->d), rows.rows - r);
            add_rows(s, room, first + run * rows.step + r, some, some.rows, b, l);
        }
}

static void chunks_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const vector_sums *s = arg;

    for (int64_t i = begin; i < end; i++)
        add_chunk(s, s->room + worker * 2 * wf_block_elements(s->d), i / s->sum.chunks,
                  (int)(i % s->sum.chunks));
}

static wf_status dw(const wf_call *call, void *workspace)
{
    wf_cpu *cpu = wf_cpu_of(call);
    vector_sums s = plan(call, workspace);
    int64_t rows = s.rows / s.sum.chunks; /* a chunk's, more or less */

    if (!workspace)
        return WF_OK; /* no output either */
    wf_thread_pool_run(cpu->pool, s.sequences * s.sum.chunks, wf_task_rows(rows * s.d),
                       chunks_of, &s);
    for (int64_t b = 0; b < s.sequences; b++)
        for (int o = 0; o < call->n_out; o++) {
            const float *chunk[WF_MAX_TOKEN_CHUNKS];
            float *sum = at(call->out[o], b * s.d);

            for (int l = 0; l < s.sum.chunks; l++)
                chunk[l] = chunk_at(&s, b, o, l);
            cpu->simd->sum(chunk, s.sum.chunks, true, sum, s.d);
            for (int64_t i = 0; i < s.d; i++)
                sum[i] += 0.0f;
        }
    return WF_OK;
}

static size_t dw_workspace(const wf_call *call)
{
    vector_sums s = plan(call, NULL);
    int64_t room = needs_room(call)
                       ? 2 * wf_block_elements(s.d) * wf_thread_pool_size(wf_cpu_of(call)->pool)
                       : 0;

    return (size_t)(chunk_floats(&s) + room) * sizeof(float);
}

const wf_kernel wf_cpu_layernorm = WF_ROWS_KERNEL(layernorm, NORM);
const wf_kernel wf_cpu_layernorm_dx = WF_ROWS_KERNEL(layernorm_dx, NORM | WF_IN(4));
const wf_kernel wf_cpu_layernorm_dw = {
    .run = dw, .workspace = dw_workspace, .mixed_ok = WF_IN(0) | WF_IN(3)};
const wf_kernel wf_cpu_rmsnorm = WF_ROWS_KERNEL(rmsnorm, NORM);
const wf_kernel wf_cpu_rmsnorm_dx = WF_ROWS_KERNEL(rmsnorm_dx, NORM | WF_IN(3));
const wf_kernel wf_cpu_rmsnorm_dw = {
    .run = dw, .workspace = dw_workspace, .mixed_ok = WF_IN(0) | WF_IN(2)};
