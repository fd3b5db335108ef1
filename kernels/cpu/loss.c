/*
 * kernels/cpu/loss.c - cross-entropy on the CPU. The sum of a row is a midpoint tree over the
 * chunks of the vocabulary, a chunk being 16 lanes; an empty chunk is +0, and so is what a rank
 * picks from a row whose target is not in its part.
 */
#include "core/numerics/math.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/shared_internal.h"

enum { LOG_COST = 16 }; /* a logarithm is worth so many elements of a simple loop */

/* Rows of the vocabulary over the team. */
static wf_status over_rows(const wf_call *call, void (*rows_of)(void *, int64_t, int64_t, int))
{
    const wf_tensor *x = call->in[0];
    int64_t rows = wf_extent(x, 0, x->ndim - 1), n = x->local[x->ndim - 1];

    wf_team_run(wf_cpu_of(call)->team, rows, wf_task_rows(n), rows_of, (void *)call);
    return WF_OK;
}

static void max_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    const wf_tensor *t = call->in[0];
    const float *x = t->data;
    float *max = call->out[0]->data;
    int64_t n = t->local[t->ndim - 1];

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        max[r] = simd->row_max(x + r * n, n);
}

static wf_status logit_max(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, max_rows);
}

/* Midpoint tree over the chunks of one row. */
static float row_sum(const wf_simd *simd, const float *x, float max, int chunks,
                     const int64_t *at)
{
    float open[WF_MAX_CHUNKS];
    int n = 0;

    for (int l = 0; l < chunks; l++) {
        open[n++] = simd->sum_exp(x + at[l], max, at[l + 1] - at[l]);
        for (int m = wf_tree_merges(chunks, l); m > 0; m--, n--)
            open[n - 2] += open[n - 1];
    }
    return open[0];
}

static void sum_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    const wf_tensor *t = call->in[0];
    const float *x = t->data, *max = call->in[1]->data;
    const int32_t *target = call->in[2]->data;
    float *sum = call->out[0]->data, *picked = call->out[1]->data;
    int last = t->ndim - 1;
    int64_t n = t->local[last], at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(t, last, at);

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        int64_t v = target[r] - t->start[last];

        sum[r] =
            target[r] == WF_NO_TARGET ? 0.0f : row_sum(simd, x + r * n, max[r], chunks, at);
        picked[r] = v >= 0 && v < n ? x[r * n + v] + 0.0f : 0.0f;
    }
}

static wf_status logit_sum(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    wf_status status =
        wf_check_tokens(call, call->in[2], WF_NO_TARGET, x->dim[x->ndim - 1].size);

    (void)workspace;
    return status == WF_OK ? over_rows(call, sum_rows) : status;
}

static void sum_grad_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    const wf_tensor *t = call->in[0];
    const float *x = t->data, *max = call->in[1]->data;
    const int32_t *target = call->in[2]->data;
    const float *dsum = call->in[3]->data, *dpicked = call->in[4]->data;
    float *dx = call->out[0]->data;
    int64_t n = t->local[t->ndim - 1];

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        int64_t v = target[r] - t->start[t->ndim - 1];

        simd->exp_scale(x + r * n, max[r], dsum[r], dx + r * n, n);
        if (v >= 0 && v < n)
            dx[r * n + v] += dpicked[r];
    }
}

static wf_status logit_sum_grad(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, sum_grad_rows);
}

static void cross_entropy_tokens(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const float *sum = call->in[0]->data, *picked = call->in[1]->data, *max = call->in[2]->data;
    float *loss = call->out[0]->data;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        loss[i] = sum[i] == 0.0f ? 0.0f : wf_logf(sum[i]) + max[i] - picked[i];
}

static wf_status cross_entropy(const wf_call *call, void *workspace)
{
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, n, wf_task_rows(LOG_COST), cross_entropy_tokens,
                (void *)call);
    return WF_OK;
}

static wf_status cross_entropy_grad(const wf_call *call, void *workspace)
{
    const float *sum = call->in[0]->data, *dloss = call->in[1]->data;
    float *dsum = call->out[0]->data, *dpicked = call->out[1]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        dsum[i] = sum[i] == 0.0f ? 0.0f : dloss[i] / sum[i];
        dpicked[i] = sum[i] == 0.0f ? 0.0f : -dloss[i];
    }
    return WF_OK;
}

const wf_kernel wf_cpu_logit_max = {.run = logit_max};
const wf_kernel wf_cpu_logit_sum = {.run = logit_sum};
const wf_kernel wf_cpu_logit_sum_grad = {.run = logit_sum_grad};
const wf_kernel wf_cpu_cross_entropy = {.run = cross_entropy};
const wf_kernel wf_cpu_cross_entropy_grad = {.run = cross_entropy_grad};
