/*
 * kernels/cuda/attention_cached.cu - the rows of kernels/attention_cached.c. A warp has a query
 * and goes through the keys that it sees by an online softmax (attention_forward.cu), one after
 * the other: simple, and a function of the query's own text alone, but not the order of the
 * training kernels.
 *
 * A slot or a position that the cache has not is a mistake of the caller's that the device does
 * not look for: nn/cache.h checks slots and positions on the host.
 */
#include "kernels/attention_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
enum { MOST_DIM = 256, OF_LANE = MOST_DIM / WF_WARP };

/* Keys and values: the y of a block says which. */
struct write_job {
    const float *from[2];
    float *to[2];
    const int32_t *first, *slot;
    int64_t sequences, tokens, room, row; /* floats of a token */
};

__global__ void __launch_bounds__(WF_BLOCK) write_kernel(write_job a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, each = a.tokens * a.row;
    const float *from = blockIdx.y ? a.from[1] : a.from[0];
    float *to = blockIdx.y ? a.to[1] : a.to[0];

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < a.sequences * each;
         i += step) {
        const int64_t b = i / each;

        to[((int64_t)a.slot[b] * a.room + a.first[b]) * a.row + i % each] = from[i];
    }
}

wf_status cache_write(const wf_call *call, void *)
{
    const wf_tensor *cache = call->in[0], *k = call->in[2];
    write_job a = {};

    a.first = (const int32_t *)call->in[4]->data;
    a.slot = (const int32_t *)call->in[5]->data;
    a.sequences = k->local[0];
    a.tokens = k->local[1];
    a.room = cache->local[1];
    a.row = k->local[2] * k->local[3];
    for (int i = 0; i < 2; i++) {
        a.to[i] = (float *)call->in[i]->data;
        a.from[i] = (const float *)call->in[2 + i]->data;
    }
    return wf_run(call, [&](auto) {
        return wf_launch(write_kernel,
                         dim3(wf_grid(a.sequences * a.tokens * a.row, WF_BLOCK), 2), WF_BLOCK,
                         0, wf_cuda_of(call)->stream, a);
    });
}

struct cached_job {
    const void *q;
    const float *k, *v;
    void *y;
    const float *sinks; /* [heads], or NULL */
    const int32_t *first, *slot;
    int64_t rows, tokens, heads, groups, room, dim;
    int64_t head_start, group_start, per_group;
    int64_t window; /* as wf_attention_from takes it */
    float scale;
};

__device__ __forceinline__ float warp_sum(float x)
{
    for (int step = WF_WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Rows are (sequence, token, head); feature lane + 32 i is a lane's. */
template <class T> __global__ void __launch_bounds__(WF_BLOCK) attend_kernel(cached_job a)
{
    const int lane = (int)threadIdx.x % WF_WARP;
    const int64_t row = (int64_t)blockIdx.x * WF_WARPS + threadIdx.x / WF_WARP;
    const int64_t head = row % a.heads, b = row / a.heads / a.tokens;
    const int64_t group = (a.head_start + head) / a.per_group - a.group_start;
    int64_t at, from;
    float q[OF_LANE], y[OF_LANE], greatest = -INFINITY, sum = 0.0f;
    const float *k, *v;

    if (row >= a.rows)
        return;
    if (a.sinks) {
        greatest = a.sinks[head];
        sum = 1.0f;
    }
    at = a.first[b] + row / a.heads % a.tokens;
    from = wf_attention_from(NULL, a.window, at);
    k = a.k + (((int64_t)a.slot[b] * a.room + from) * a.groups + group) * a.dim;
    v = a.v + (((int64_t)a.slot[b] * a.room + from) * a.groups + group) * a.dim;
#pragma unroll
    for (int i = 0; i < OF_LANE; i++) {
        const int64_t d = lane + WF_WARP * i;

        q[i] = d < a.dim ? wf_get(((const T *)a.q)[row * a.dim + d]) * a.scale : 0.0f;
        y[i] = 0.0f;
    }
    for (; from <= at; from++, k += a.groups * a.dim, v += a.groups * a.dim) {
        float score = 0.0f, before, p, more;

#pragma unroll
        for (int i = 0; i < OF_LANE; i++)
            if (lane + WF_WARP * i < a.dim)
                score = fmaf(q[i], k[lane + WF_WARP * i], score);
        score = warp_sum(score);
        more = fmaxf(greatest, score);
        before = expf(greatest - more);
        p = expf(score - more);
        greatest = more;
        sum = sum * before + p;
#pragma unroll
        for (int i = 0; i < OF_LANE; i++)
            if (lane + WF_WARP * i < a.dim)
                y[i] = fmaf(p, v[lane + WF_WARP * i], y[i] * before);
    }
#pragma unroll
    for (int i = 0; i < OF_LANE; i++)
        if (lane + WF_WARP * i < a.dim)
            wf_put((T *)a.y + row * a.dim + lane + WF_WARP * i, y[i] / sum);
}

wf_status attention_cached(const wf_call *call, void *)
{
    const wf_tensor *q = call->in[0], *cache = call->in[1];
    cached_job a = {};

    if (q->local[3] > MOST_DIM)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "attention_cached: heads of %lld features; on a GPU they have at most %d",
            (long long)q->local[3], (int)MOST_DIM);
    if (((const wf_cached_attr *)call->attr)->cap > 0)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "attention_cached: soft caps of scores have kernels of the CPU alone, so far");
    a.q = q->data;
    a.k = (const float *)cache->data;
    a.v = (const float *)call->in[2]->data;
    a.y = call->out[0]->data;
    a.first = (const int32_t *)call->in[3]->data;
    a.slot = (const int32_t *)call->in[4]->data;
    a.sinks = call->n_in > 5 ? (const float *)call->in[5]->data : NULL;
    a.rows = q->local[0] * q->local[1] * q->local[2];
    a.tokens = q->local[1];
    a.heads = q->local[2];
    a.groups = cache->local[2];
    a.room = cache->local[1];
    a.dim = q->local[3];
    a.head_start = q->start[2];
    a.group_start = cache->start[2];
    a.per_group = q->dim[2].size / cache->dim[2].size;
    a.window = ((const wf_cached_attr *)call->attr)->window;
    a.scale = 1.0f / sqrtf((float)a.dim);
    return wf_run(call, [&](auto zero) {
        return wf_launch(attend_kernel<decltype(zero)>,
                         dim3((unsigned)wf_ceil(a.rows, (int64_t)WF_WARPS)), dim3(WF_BLOCK), 0,
                         wf_cuda_of(call)->stream, a);
    });
}
} // namespace

const wf_kernel wf_cuda_cache_write = {cache_write, NULL, 0, 0};
const wf_kernel wf_cuda_attention_cached = {attention_cached, NULL, 0, WF_IN(0) | WF_OUT(0)};
