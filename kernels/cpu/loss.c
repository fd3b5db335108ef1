/*
 * kernels/cpu/loss.c - cross-entropy on the CPU. The sum of a row is a midpoint tree over the
 * chunks of the vocabulary, a chunk being 16 lanes; an empty chunk is +0, and so is what a rank
 * picks from a row whose target is not in its part.
 */
#include "core/numerics/math.h"
#include "kernels/cpu/rows_internal.h"
#include "kernels/shared_internal.h"

enum { LOG_COST = 16 }; /* elements of a simple loop that cost as much as a logarithm */

enum {
    LOGITS = WF_IN(0),
    LOSS = LOGITS | WF_IN(1) | WF_IN(2) | WF_OUT(0) | WF_OUT(1),
    MAX = LOGITS | WF_OUT(0),
    SUM = LOGITS | WF_IN(1) | WF_IN(2) | WF_OUT(0) | WF_OUT(1),
    SUM_GRAD = LOGITS | WF_IN(1) | WF_IN(2) | WF_IN(3) | WF_IN(4) | WF_OUT(0)
};

/* Runs a loop over rows of the vocabulary, shared by the thread pool. */
static wf_status over_rows(const wf_call *call, void *workspace, unsigned by_rows,
                           wf_row_loop *loop)
{
    const wf_tensor *x = call->in[0];

    return wf_cpu_run_rows(call, workspace, wf_extent(x, 0, x->ndim - 1), by_rows, loop);
}

static void max_rows(const wf_row_run *r)
{
    const wf_tensor *t = r->call->in[0];
    int64_t n = t->local[t->ndim - 1];

    for (int64_t i = 0; i < r->n; i++)
        r->out[0][i] = r->simd->row_max(r->in[0] + i * n, n);
}

static wf_status logit_max(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, MAX, max_rows);
}

/* Midpoint tree over the chunks of one row of what is picked, the target at x[v]: each chunk
   has its share of all logits, and one of them the target's. */
static float smooth_picked(const wf_simd *simd, const float *x, int64_t v,
                           wf_label_weights weight, int chunks, const int64_t *at)
{
    float open[WF_MAX_CHUNKS];
    int n = 0;

    for (int l = 0; l < chunks; l++) {
        float part = weight.each * simd->row_sum(x + at[l], at[l + 1] - at[l]);

        open[n++] = v >= at[l] && v < at[l + 1] ? part + weight.target * x[v] : part;
        for (int m = wf_tree_merges(chunks, l); m > 0; m--, n--)
            open[n - 2] += open[n - 1];
    }
    return open[0];
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

static void sum_rows(const wf_row_run *r)
{
    const wf_tensor *t = r->call->in[0];
    const int32_t *target = (const int32_t *)r->call->in[2]->data + r->first;
    int last = t->ndim - 1;
    int64_t n = t->local[last], at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(t, last, at);
    wf_label_weights weight = wf_label_weights_of(r->call);

    for (int64_t i = 0; i < r->n; i++) {
        const float *x = r->in[0] + i * n;
        int64_t v = target[i] - t->start[last];

        r->out[0][i] =
            target[i] == WF_NO_TARGET ? 0.0f : row_sum(r->simd, x, r->in[1][i], chunks, at);
        if (weight.each == 0 || target[i] == WF_NO_TARGET)
            r->out[1][i] = v >= 0 && v < n ? x[v] + 0.0f : 0.0f;
        else
            r->out[1][i] = smooth_picked(r->simd, x, v, weight, chunks, at);
    }
}

static wf_status logit_sum(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    wf_status status =
        wf_check_tokens(call, call->in[2], WF_NO_TARGET, x->dim[x->ndim - 1].size);

    return status == WF_OK ? over_rows(call, workspace, SUM, sum_rows) : status;
}

static void sum_grad_rows(const wf_row_run *r)
{
    const wf_tensor *t = r->call->in[0];
    const int32_t *target = (const int32_t *)r->call->in[2]->data + r->first;
    int64_t n = t->local[t->ndim - 1];
    wf_label_weights weight = wf_label_weights_of(r->call);

    for (int64_t i = 0; i < r->n; i++) {
        float *dx = r->out[0] + i * n, dpicked = r->in[4][i];
        int64_t v = target[i] - t->start[t->ndim - 1];

        r->simd->exp_scale(r->in[0] + i * n, r->in[1][i], r->in[3][i], dx, n);
        for (int64_t e = 0; weight.each != 0 && e < n; e++)
            dx[e] += weight.each * dpicked;
        if (v >= 0 && v < n)
            dx[v] += weight.target * dpicked;
    }
}

static wf_status logit_sum_grad(const wf_call *call, void *workspace)
{
    return over_rows(call, workspace, SUM_GRAD, sum_grad_rows);
}

/* Has the expressions of the loops above. */
static void loss_rows(const wf_row_run *r)
{
    const wf_tensor *t = r->call->in[0];
    const int32_t *target = (const int32_t *)r->call->in[1]->data + r->first;
    int64_t n = t->local[t->ndim - 1], at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(t, t->ndim - 1, at);
    wf_label_weights weight = wf_label_weights_of(r->call);

    for (int64_t i = 0; i < r->n; i++) {
        const float *x = r->in[0] + i * n;
        float *dx = r->out[0] + i * n, max = r->simd->row_max(x, n), dloss = r->in[2][i];
        int64_t v = target[i];
        float sum = v == WF_NO_TARGET ? 0.0f : row_sum(r->simd, x, max, chunks, at);
        float picked = weight.each == 0 ? x[v < 0 ? 0 : v] + 0.0f
                                        : smooth_picked(r->simd, x, v, weight, chunks, at);
        float dsum = sum == 0.0f ? 0.0f : dloss / sum, dpicked = sum == 0.0f ? 0.0f : -dloss;

        r->out[1][i] = sum == 0.0f ? 0.0f : wf_logf(sum) + max - picked;
        r->simd->exp_scale(x, max, dsum, dx, n);
        for (int64_t e = 0; weight.each != 0 && e < n; e++)
            dx[e] += weight.each * dpicked;
        if (v >= 0)
            dx[v] += weight.target * dpicked;
    }
}

static wf_status logit_loss(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    wf_status status =
        wf_check_tokens(call, call->in[1], WF_NO_TARGET, x->dim[x->ndim - 1].size);

    return status == WF_OK ? over_rows(call, workspace, LOSS, loss_rows) : status;
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
    wf_thread_pool_run(wf_cpu_of(call)->pool, n, wf_task_rows(LOG_COST), cross_entropy_tokens,
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

const wf_kernel wf_cpu_logit_max = WF_ROWS_KERNEL(logit_max, LOGITS);
const wf_kernel wf_cpu_logit_sum = WF_ROWS_KERNEL(logit_sum, LOGITS);
const wf_kernel wf_cpu_logit_sum_grad = WF_ROWS_KERNEL(logit_sum_grad, LOGITS | WF_OUT(0));
const wf_kernel wf_cpu_cross_entropy = {.run = cross_entropy};
const wf_kernel wf_cpu_cross_entropy_grad = {.run = cross_entropy_grad};
const wf_kernel wf_cpu_logit_loss = WF_ROWS_KERNEL(logit_loss, LOGITS | WF_OUT(0));
