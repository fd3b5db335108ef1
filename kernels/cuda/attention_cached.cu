/*
 * kernels/cuda/attention_cached.cu - the rows of kernels/attention_cached.c. Attention of bf16
 * is that of attention_tensor_cached.cu, with the bits of our kernels of training. Of the rest
 * a warp has a query and goes through the keys that it sees by an online softmax
 * (attention_forward.cu), one after the other: simple, and a function of the query's own text
 * alone, but not the order of the training kernels.
 *
 * A slot or a position that the cache has not is a mistake of the caller's that the device does
 * not look for: nn/cache.h checks slots and positions on the host.
 */
#include "kernels/attention_internal.h"
#include "kernels/cuda/attention_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
enum { MOST_DIM = 256, OF_LANE = MOST_DIM / WF_WARP };

/* Keys and values: the y of a block says which. */
struct write_job {
    const void *from[2];
    void *to[2];
    const int32_t *first, *slot;
    int64_t sequences, tokens, room, row; /* elements of a token */
};

template <class T> __global__ void __launch_bounds__(WF_BLOCK) write_kernel(write_job a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK, each = a.tokens * a.row;
    const T *from = (const T *)(blockIdx.y ? a.from[1] : a.from[0]);
    T *to = (T *)(blockIdx.y ? a.to[1] : a.to[0]);

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
        a.to[i] = call->in[i]->data;
        a.from[i] = call->in[2 + i]->data;
    }
    return wf_run(call, [&](auto zero) {
        return wf_launch(write_kernel<decltype(zero)>,
                         dim3(wf_grid(a.sequences * a.tokens * a.row, WF_BLOCK), 2), WF_BLOCK,
                         0, wf_cuda_of(call)->stream, a);
    });
}

/* Rows are (sequence, token, head); feature lane + 32 i is a lane's. */
template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    attend_kernel(const WF_GRID_CONSTANT wf_cuda_cached c)
{
    const wf_cuda_heads &a = c.heads;
    const int lane = (int)threadIdx.x % WF_WARP;
    const int64_t row = (int64_t)blockIdx.x * WF_WARPS + threadIdx.x / WF_WARP;
    const int64_t tokens = a.query_tokens.count, head = row % a.heads;
    const int64_t b = row / a.heads / tokens;
    const int64_t group = (a.first_head + head) / a.per_group - a.first_group;
    int64_t at, from;
    float q[OF_LANE], y[OF_LANE], greatest = -INFINITY, sum = 0.0f;
    const T *k, *v;

    if (row >= a.batch * tokens * a.heads)
        return;
    if (a.sinks) {
        greatest = a.sinks[head];
        sum = 1.0f;
    }
    at = c.first[b] + row / a.heads % tokens;
    from = wf_attention_from(NULL, a.window, at);
    k = (const T *)c.k + (((int64_t)c.slot[b] * c.room + from) * a.groups + group) * a.dim;
    v = (const T *)c.v + (((int64_t)c.slot[b] * c.room + from) * a.groups + group) * a.dim;
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
                score = fmaf(q[i], wf_get(k[lane + WF_WARP * i]), score);
        score = wf_warp_sum(score);
        if (a.cap > 0.0f)
            score = a.cap * tanhf(score / a.cap);
        more = fmaxf(greatest, score);
        before = expf(greatest - more);
        p = expf(score - more);
        greatest = more;
        sum = sum * before + p;
#pragma unroll
        for (int i = 0; i < OF_LANE; i++)
            if (lane + WF_WARP * i < a.dim)
                y[i] = fmaf(p, wf_get(v[lane + WF_WARP * i]), y[i] * before);
    }
#pragma unroll
    for (int i = 0; i < OF_LANE; i++)
        if (lane + WF_WARP * i < a.dim)
            wf_put((T *)a.y + row * a.dim + lane + WF_WARP * i, y[i] / sum);
}

wf_cuda_cached cached_of(const wf_call *call)
{
    const wf_tensor *q = call->in[0], *cache = call->in[1];
    const wf_cached_attr *attr = (const wf_cached_attr *)call->attr;
    wf_cuda_cached c = {};
    wf_cuda_heads *a = &c.heads;

    c.k = cache->data;
    c.v = call->in[2]->data;
    c.first = (const int32_t *)call->in[3]->data;
    c.slot = (const int32_t *)call->in[4]->data;
    c.room = cache->local[1];
    a->q = q->data;
    a->y = call->out[0]->data;
    a->type = q->dtype;
    a->sinks = call->n_in > 5 ? (const float *)call->in[5]->data : NULL;
    a->batch = q->local[0];
    a->query_tokens.count = q->local[1];
    a->heads = q->local[2];
    a->groups = cache->local[2];
    a->dim = q->local[3];
    a->first_head = q->start[2];
    a->first_group = cache->start[2];
    a->per_group = q->dim[2].size / cache->dim[2].size;
    a->window = attr->window;
    a->scale = 1.0f / sqrtf((float)a->dim);
    a->cap = (float)attr->cap;
    return c;
}

wf_status attention_cached(const wf_call *call, void *)
{
    const wf_cuda_cached c = cached_of(call);
    cudaStream_t stream = wf_cuda_of(call)->stream;
    const int64_t rows = c.heads.batch * c.heads.query_tokens.count * c.heads.heads;

    if (c.heads.dim > MOST_DIM)
        return wf_cuda_host_table->fail(
            call->ctx, WF_EUNSUPPORTED,
            "attention_cached: heads of %lld features; on a GPU they have at most %d",
            (long long)c.heads.dim, (int)MOST_DIM);
    return wf_run(call, [&](auto zero) {
        return wf_cuda_on_tensor_cores(&c.heads)
                   ? wf_cuda_launch_tensor_cached(stream, &c)
                   : wf_launch(attend_kernel<decltype(zero)>,
                               dim3((unsigned)wf_ceil(rows, (int64_t)WF_WARPS)), dim3(WF_BLOCK),
                               0, stream, c);
    });
}
} // namespace

/* A cache is stored as queries are (wf_cache_dtype). */
const wf_kernel wf_cuda_cache_write = {cache_write, NULL, 0,
                                       WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3)};
const wf_kernel wf_cuda_attention_cached = {attention_cached, NULL, 0,
                                            WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0)};
