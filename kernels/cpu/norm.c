/*
 * kernels/cpu/norm.c - norms on the CPU: rows over the team, each by one call of the inner
 * loops.
 *
 * A sequence's gradient of gain and bias is a midpoint tree over the 8 chunks of its tokens, or of
 * its heads (wf_chunk_dim). A chunk is one chain over its rows, an empty one +0. A chunk may be -0 (a product can underflow),
 * and -0 does not survive a sum with +0: zeros get one sign at the end, as they would on ranks
 * that hold a part of the chunks.
 */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"

static float *at(const wf_tensor *t, int64_t offset)
{
    return (float *)t->data + offset;
}

static wf_status over_rows(const wf_call *call, void (*rows_of)(void *, int64_t, int64_t, int))
{
    const wf_tensor *x = call->in[0];
    int64_t rows = wf_extent(x, 0, x->ndim - 1), d = x->local[x->ndim - 1];

    wf_team_run(wf_cpu_of(call)->team, rows, wf_task_rows(d), rows_of, (void *)call);
    return WF_OK;
}

static void layernorm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in, *const *out = call->out;
    int64_t d = in[0]->local[in[0]->ndim - 1];

    (void)worker;
    wf_cpu_of(call)->simd->layernorm(at(in[0], begin * d), in[1]->data, in[2]->data,
                                     *(const float *)call->attr, at(out[0], begin * d),
                                     at(out[1], begin), at(out[2], begin), end - begin, d);
}

static wf_status layernorm(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, layernorm_rows);
}

static void layernorm_dx_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    int64_t d = in[0]->local[in[0]->ndim - 1];

    (void)worker;
    wf_cpu_of(call)->simd->layernorm_grad(at(in[0], begin * d), in[1]->data, at(in[2], begin),
                                          at(in[3], begin), at(in[4], begin * d),
                                          at(call->out[0], begin * d), end - begin, d);
}

static wf_status layernorm_dx(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, layernorm_dx_rows);
}

static void rmsnorm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in, *const *out = call->out;
    int64_t d = in[0]->local[in[0]->ndim - 1];

    (void)worker;
    wf_cpu_of(call)->simd->rmsnorm(at(in[0], begin * d), in[1]->data,
                                   *(const float *)call->attr, at(out[0], begin * d),
                                   at(out[1], begin), end - begin, d);
}

static wf_status rmsnorm(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, rmsnorm_rows);
}

static void rmsnorm_dx_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    int64_t d = in[0]->local[in[0]->ndim - 1];

    (void)worker;
    wf_cpu_of(call)->simd->rmsnorm_grad(at(in[0], begin * d), in[1]->data, at(in[2], begin),
                                        at(in[3], begin * d), at(call->out[0], begin * d),
                                        end - begin, d);
}

static wf_status rmsnorm_dx(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, rmsnorm_dx_rows);
}

/* The gradients of vectors: chunk values are [sequence][output][chunk][d] in the workspace. */
typedef struct vector_sums {
    const wf_call *call;
    int64_t sequences, rows, d; /* rows of a sequence */
    wf_row_sum sum;
    float *chunk;
} vector_sums;

static vector_sums plan(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;

    return (vector_sums){.call = call,
                         .sequences = x->local[0],
                         .rows = wf_extent(x, 1, last),
                         .d = x->local[last],
                         .sum = wf_row_sum_of(x, last),
                         .chunk = workspace};
}

static float *chunk_at(const vector_sums *s, int64_t sequence, int output, int chunk)
{
    return s->chunk + ((sequence * s->call->n_out + output) * s->sum.chunks + chunk) * s->d;
}

static void chunks_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const vector_sums *s = arg;
    const wf_call *call = s->call;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    wf_tensor *const *in = call->in;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / s->sum.chunks;
        int l = (int)(i % s->sum.chunks);
        int64_t row = b * s->rows + s->sum.at[l];
        wf_chunk_rows rows = wf_chunk_rows_of(&s->sum, l);
        const float *x = at(in[0], row * s->d);

        if (call->n_out == 2)
            simd->layernorm_chunk(x, at(in[1], row), at(in[2], row), at(in[3], row * s->d),
                                  chunk_at(s, b, 0, l), chunk_at(s, b, 1, l), rows, s->d);
        else
            simd->rmsnorm_chunk(x, at(in[1], row), at(in[2], row * s->d), chunk_at(s, b, 0, l),
                                rows, s->d);
    }
}

static wf_status dw(const wf_call *call, void *workspace)
{
    wf_cpu *cpu = wf_cpu_of(call);
    vector_sums s = plan(call, workspace);
    int64_t rows = s.rows / s.sum.chunks; /* a chunk's, more or less */

    if (!workspace)
        return WF_OK; /* no output either */
    wf_team_run(cpu->team, s.sequences * s.sum.chunks, wf_task_rows(rows * s.d), chunks_of, &s);
    for (int64_t b = 0; b < s.sequences; b++)
        for (int o = 0; o < call->n_out; o++) {
            const float *chunk[WF_MAX_CHUNKS];
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

    return (size_t)(s.sequences * call->n_out * s.sum.chunks * s.d) * sizeof(float);
}

const wf_kernel wf_cpu_layernorm = {.run = layernorm};
const wf_kernel wf_cpu_layernorm_dx = {.run = layernorm_dx};
const wf_kernel wf_cpu_layernorm_dw = {.run = dw, .workspace = dw_workspace};
const wf_kernel wf_cpu_rmsnorm = {.run = rmsnorm};
const wf_kernel wf_cpu_rmsnorm_dx = {.run = rmsnorm_dx};
const wf_kernel wf_cpu_rmsnorm_dw = {.run = dw, .workspace = dw_workspace};
