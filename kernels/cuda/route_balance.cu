/*
 * kernels/cuda/route_balance.cu - choices counted and losses of balance on the GPU, with the
 * CPU's bits: counts are whole numbers, which any order of sums leaves alike; the share of an
 * expert is a thread's chain over tokens, and a loss one over a sequence.
 *
 * What comes of indices that are none of wf_route's is NaN.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/row_exponentials_internal.h"
#include "kernels/route_balance_internal.h"

namespace
{
__device__ inline double wf_expd(double x)
{
    return exp(x);
}

__device__ inline double wf_logd(double x)
{
    return log(x);
}

#define T            float
#define BALANCE_LOOP __device__ inline
#include "kernels/route_balance_rows_internal.h"
#undef BALANCE_LOOP
#undef T

struct balance_job {
    wf_balance balance;
    wf_load_sizes s;
    const float *logits, *index, *counts; /* counts: NULL without a global batch's loss */
    float *out, *z;
    int *count;     /* [sequences, experts + 1]: the last one is of what is no expert */
    float *share;   /* [sequences, tokens, experts], or of route_balance a token's scratch */
    float *sums;    /* [sequences, experts] */
    double *square; /* [sequences, tokens] */
};

__device__ __forceinline__ int64_t thread_of_grid()
{
    return (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;
}

__device__ __forceinline__ int64_t threads_of_grid()
{
    return (int64_t)gridDim.x * WF_BLOCK;
}

__global__ void __launch_bounds__(WF_BLOCK) count_choices_kernel(balance_job j)
{
    const int64_t each = j.s.tokens * j.s.k, all = j.s.sequences * each;

    for (int64_t i = thread_of_grid(); i < all; i += threads_of_grid()) {
        const float e = j.index[i];
        const int64_t at = wf_moe_is_expert(e, j.s.experts) ? (int64_t)e : j.s.experts;

        atomicAdd(j.count + i / each * (j.s.experts + 1) + at, 1);
    }
}

/* Returns how many of a sequence's choices an expert has; NaN where one is of no expert. */
__device__ __forceinline__ float choices_of(const balance_job &j, int64_t b, int64_t e)
{
    const int *count = j.count + b * (j.s.experts + 1);

    return count[j.s.experts] ? NAN : (float)count[e];
}

__global__ void __launch_bounds__(WF_BLOCK) route_load_kernel(balance_job j)
{
    const int64_t all = j.s.sequences * j.s.experts;

    for (int64_t i = thread_of_grid(); i < all; i += threads_of_grid())
        j.out[i] = choices_of(j, i / j.s.experts, i % j.s.experts) * (float)j.s.one +
                   (j.s.first ? (float)-j.s.mean : 0.0f);
}

__global__ void __launch_bounds__(WF_BLOCK) dscore_kernel(balance_job j)
{
    const int64_t all = j.s.sequences * j.s.experts;

    for (int64_t i = thread_of_grid(); i < all; i += threads_of_grid())
        j.sums[i] =
            choices_of(j, i / j.s.experts, i % j.s.experts) * dscore_of_one(&j.balance, &j.s);
}

/* The gradient by scores of counts is one for all sequences: a thread writes each one's. */
__global__ void __launch_bounds__(WF_BLOCK) counts_dscore_kernel(balance_job j)
{
    const int64_t n = j.s.experts;

    for (int64_t b = thread_of_grid(); b < j.s.sequences; b += threads_of_grid()) {
        counts_dscore(&j.balance, &j.s, j.counts, j.sums + b * n);
        for (int64_t e = 0; e < n && j.count[b * (n + 1) + n]; e++)
            j.sums[b * n + e] = NAN;
    }
}

__global__ void __launch_bounds__(WF_BLOCK) balance_kernel(balance_job j)
{
    const int64_t n = j.s.experts, all = j.s.sequences * j.s.tokens;

    for (int64_t t = thread_of_grid(); t < all; t += threads_of_grid())
        balance_row(&j.balance, NULL, &j.s, j.logits + t * n, j.sums + t / j.s.tokens * n,
                    j.share + t * n, j.out + t * n);
}

__global__ void __launch_bounds__(WF_BLOCK) share_kernel(balance_job j)
{
    const int64_t n = j.s.experts, all = j.s.sequences * j.s.tokens;

    for (int64_t t = thread_of_grid(); t < all; t += threads_of_grid()) {
        const double one = log_sum_exp(j.logits + t * n, n);

        share_row(&j.balance, NULL, j.logits + t * n, j.share + t * n, n);
        j.square[t] = one * one;
    }
}

/* A thread for an expert of a sequence: its shares, added token by token. */
__global__ void __launch_bounds__(WF_BLOCK) share_sum_kernel(balance_job j)
{
    const int64_t n = j.s.experts, all = j.s.sequences * n;

    for (int64_t i = thread_of_grid(); i < all; i += threads_of_grid()) {
        const float *share = j.share + i / n * j.s.tokens * n + i % n;
        float sum = 0.0f;

        for (int64_t t = 0; t < j.s.tokens; t++)
            sum += share[t * n];
        j.sums[i] = sum;
    }
}

/* A thread for a sequence. */
__global__ void __launch_bounds__(WF_BLOCK) losses_kernel(balance_job j)
{
    const int64_t n = j.s.experts;
    const double tokens = (double)j.s.tokens;

    for (int64_t b = thread_of_grid(); b < j.s.sequences; b += threads_of_grid()) {
        const float *index = j.index + b * j.s.tokens * j.s.k, *share = j.sums + b * n;
        const bool valid = j.count[b * (n + 1) + n] == 0;
        double loss = valid ? 0.0 : NAN, squares = 0.0;

        if (valid && j.balance.weight > 0)
            loss = loss_of_shares(&j.s, share, index, j.counts);
        for (int64_t t = 0; t < j.s.tokens && j.balance.z > 0; t++)
            squares += j.square[b * j.s.tokens + t];
        j.out[b] = (float)loss;
        j.z[b] = (float)(squares / tokens);
    }
}

/* Lays the job's arrays out in the workspace; *bytes: how many there are. */
balance_job balance_job_of(const wf_call *call, void *workspace, size_t *bytes)
{
    balance_job j = {};
    const wf_load_sizes s = wf_load_sizes_of(call);
    const size_t n = (size_t)s.experts, all = (size_t)(s.sequences * s.tokens);
    size_t at = 0;
    auto take = [&](size_t size) {
        void *p = workspace ? (char *)workspace + at : NULL;

        at += (size + 15) / 16 * 16;
        return p;
    };

    j.s = s;
    j.logits = (const float *)call->in[0]->data;
    j.index = (const float *)call->in[1]->data;
    j.counts = call->n_in > 2 ? (const float *)call->in[2]->data : NULL;
    j.out = (float *)call->out[0]->data;
    j.count = (int *)take((size_t)s.sequences * (n + 1) * sizeof(int));
    if (call->op->id != WF_ID_route_load) {
        j.balance = *(const wf_balance *)call->attr;
        j.sums = (float *)take((size_t)s.sequences * n * sizeof(float));
        j.share = (float *)take(all * n * sizeof(float));
    }
    if (call->op->id == WF_ID_route_losses) {
        j.z = (float *)call->out[1]->data;
        j.square = (double *)take(all * sizeof(double));
    }
    *bytes = at;
    return j;
}

size_t balance_bytes(const wf_call *call)
{
    size_t bytes;

    balance_job_of(call, NULL, &bytes);
    return bytes;
}

cudaError_t count_choices(const balance_job &j, cudaStream_t stream)
{
    const size_t bytes = (size_t)(j.s.sequences * (j.s.experts + 1)) * sizeof(int);
    cudaError_t error = bytes ? cudaMemsetAsync(j.count, 0, bytes, stream) : cudaSuccess;

    return error == cudaSuccess
               ? wf_launch(count_choices_kernel,
                           wf_grid(j.s.sequences * j.s.tokens * j.s.k, WF_BLOCK), WF_BLOCK, 0,
                           stream, j)
               : error;
}

/* A kernel with a thread for each of its pieces of work. */
struct balance_stage {
    void (*kernel)(balance_job);
    int64_t pieces;
};

wf_status run_balance(const wf_call *call, const balance_job &j, const balance_stage *stages,
                      int n)
{
    if (call->in[0]->ndim < 2 || j.s.k < 1 || j.s.k > j.s.experts)
        return wf_cuda_host_table->fail(
            call->ctx, WF_ESHAPE,
            "%s: %lld of %lld experts in rows of %d dims: give it the logits and indices of "
            "wf_route, [sequences, .., experts]",
            call->op->name, (long long)j.s.k, (long long)j.s.experts, call->in[0]->ndim);
    return wf_run(call, [&](auto) {
        cudaStream_t stream = wf_cuda_of(call)->stream;
        cudaError_t error = count_choices(j, stream);

        for (int i = 0; i < n && error == cudaSuccess; i++)
            error = wf_launch(stages[i].kernel, wf_grid(stages[i].pieces, WF_BLOCK), WF_BLOCK,
                              0, stream, j);
        return error;
    });
}

wf_status route_load(const wf_call *call, void *workspace)
{
    size_t bytes;
    const balance_job j = balance_job_of(call, workspace, &bytes);
    const balance_stage stages[] = {{route_load_kernel, j.s.sequences * j.s.experts}};

    return run_balance(call, j, stages, 1);
}

wf_status route_losses(const wf_call *call, void *workspace)
{
    size_t bytes;
    const balance_job j = balance_job_of(call, workspace, &bytes);
    const balance_stage stages[] = {{share_kernel, j.s.sequences * j.s.tokens},
                                    {share_sum_kernel, j.s.sequences * j.s.experts},
                                    {losses_kernel, j.s.sequences}};

    return run_balance(call, j, stages, 3);
}

wf_status route_balance(const wf_call *call, void *workspace)
{
    size_t bytes;
    const balance_job j = balance_job_of(call, workspace, &bytes);
    const balance_stage stages[] = {
        {j.counts ? counts_dscore_kernel : dscore_kernel, j.s.sequences * j.s.experts},
        {balance_kernel, j.s.sequences * j.s.tokens}};

    return run_balance(call, j, stages, 2);
}
} // namespace

const wf_kernel wf_cuda_route_load = {route_load, balance_bytes, 0, 0};
const wf_kernel wf_cuda_route_losses = {route_losses, balance_bytes, 0, 0};
const wf_kernel wf_cuda_route_balance = {route_balance, balance_bytes, 0, 0};
