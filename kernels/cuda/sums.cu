/*
 * kernels/cuda/sums.cu - the rows of kernels/sums.c, and sum of kernels/dims.c. The sum over
 * one dim is a midpoint tree over its chunks (or sequences), element by element; sums inside a
 * sequence are column_sum.h's, and token_sum's a warp for each of the 8 chunks.
 */
#include "kernels/cuda/activation_internal.h"
#include "kernels/cuda/column_sum_internal.h"
#include "kernels/cuda/row_map_internal.h"
#include "kernels/cuda/tree_internal.h"
#include "kernels/dims_internal.h"

namespace
{
struct plus_bias {
    __device__ float operator()(float x, float bias) const
    {
        return x + bias;
    }
};

struct gelu_of_sum {
    __device__ float operator()(float x, float bias) const
    {
        return wf_gelu_of(x + bias);
    }
};

struct vector_itself {
    __device__ float operator()(float, float v) const
    {
        return v;
    }
};

/* x[.., n] with a vector [n] */
template <class F> wf_status with_bias(const wf_call *call, F f)
{
    wf_row_map a = {call->in[0]->data,    wf_vector_of(call->in[1]), call->out[0]->data,
                    wf_rows(call->in[0]), wf_width(call->in[0]),     false};

    return wf_run(call, [&](auto zero) {
        return wf_map_rows<decltype(zero), true>(wf_cuda_of(call)->stream, f, a);
    });
}

wf_status bias_add(const wf_call *call, void *)
{
    return with_bias(call, plus_bias{});
}

wf_status bias_gelu(const wf_call *call, void *)
{
    return with_bias(call, gelu_of_sum{});
}

/* in[0] is the row, in[1] only says the shape */
wf_status batch_expand(const wf_call *call, void *)
{
    int64_t n = wf_count(call->in[0]);
    wf_row_map a = {
        NULL, wf_vector_of(call->in[0]), call->out[0]->data, call->out[0]->local[0], n, false};

    return wf_run(call, [&](auto zero) {
        return wf_map_rows<decltype(zero), false>(wf_cuda_of(call)->stream, vector_itself{}, a);
    });
}

template <class T> struct plain_terms {
    const T *x;
    int64_t n;
    bool wide;

    enum { AHEAD = 8 };
    typedef wf_pack<T> row;

    __device__ row read(int64_t r, int64_t i, int64_t left) const
    {
        return wf_read(x + r * n + i, left, wide);
    }

    __device__ void terms(const row &of, int64_t, int64_t, int64_t,
                          float (*out)[wf_pack<T>::N]) const
    {
        wf_unpack(of, out[0]);
    }
};

wf_status bias_grad(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    wf_sums<1> a = {{(float *)call->out[0]->data},
                    wf_row_chunks_of(x, x->ndim - 1),
                    x->local[0],
                    wf_width(x)};

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        plain_terms<T> f = {(const T *)x->data, a.n, wf_wide((const T *)x->data, a.n)};

        return wf_column_sum<T>(wf_cuda_of(call)->stream, f, a);
    });
}

/* dx is written on the way, and its sum is of what is stored. */
template <class T> struct gelu_terms {
    const T *x, *dy;
    T *dx;
    wf_vector bias;
    int64_t n;
    bool wide;

    enum { AHEAD = 2 };
    struct row {
        wf_pack<T> x, dy;
    };

    __device__ row read(int64_t r, int64_t i, int64_t left) const
    {
        return {wf_read(x + r * n + i, left, wide), wf_read(dy + r * n + i, left, wide)};
    }

    __device__ void terms(const row &of, int64_t r, int64_t i, int64_t left,
                          float (*out)[wf_pack<T>::N]) const
    {
        constexpr int PACK = wf_pack<T>::N;
        float v[PACK], d[PACK];

        wf_unpack(of.x, v);
        wf_unpack(of.dy, d);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            v[e] = e < left ? wf_gelu_backward(v[e] + wf_at(bias, i + e), d[e]) : 0.0f;
        wf_store(dx + r * n + i, left, wide, v);
        wf_unpack(wf_packed(v, dx), out[0]);
    }
};

wf_status bias_gelu_grad(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0], *dy = call->in[2], *dx = call->out[0];
    wf_sums<1> a = {{(float *)call->out[1]->data},
                    wf_row_chunks_of(x, x->ndim - 1),
                    x->local[0],
                    wf_width(x)};

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        gelu_terms<T> f = {(const T *)x->data,
                           (const T *)dy->data,
                           (T *)dx->data,
                           wf_vector_of(call->in[1]),
                           a.n,
                           wf_wide((const T *)x->data, a.n) &&
                               wf_wide((const T *)dy->data, a.n) &&
                               wf_wide((const T *)dx->data, a.n)};

        return wf_column_sum<T>(wf_cuda_of(call)->stream, f, a);
    });
}

/* ---- over one dim: sequences, or any other ---- */

struct dim_job {
    const void *x;
    float *y;
    int64_t outer, rows, n; /* y[o, i] = sum over r of x[o, r, i] */
    int chunks;             /* 0: one for each row */
    int64_t cuts[WF_MAX_CHUNKS + 1];
};

/* The midpoint tree, leaf by leaf. */
struct open_tree {
    float node[WF_OPEN_NODES];
    int open;

    __device__ void add(float leaf, int64_t l, int64_t leaves)
    {
        for (int m = wf_tree_merges(leaves, l); m > 0; m--)
            leaf = node[--open] + leaf;
        node[open++] = leaf;
    }
};

/* An element a thread: there are few, and each waits for its rows, of which some are read at
   once. */
template <class T> __device__ __forceinline__ float sum_rows(const dim_job &a, const T *x)
{
    constexpr int AHEAD = 8;
    const int64_t chunks = a.chunks ? a.chunks : a.rows;
    open_tree tree = {{0.0f}, 0};

    for (int64_t l = 0; a.chunks && l < chunks; l++) {
        float chunk = 0.0f;

#pragma unroll 4
        for (int64_t r = a.cuts[l]; r < a.cuts[l + 1]; r++)
            chunk += wf_get(x[r * a.n]);
        tree.add(chunk, l, chunks);
    }
    bool eighths = chunks % AHEAD == 0 && (chunks & (chunks - 1)) == 0; /* nodes of the tree */
    for (int64_t r = 0; !a.chunks && r < chunks; r += AHEAD) {
        float leaf[AHEAD];

#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            leaf[k] = r + k < chunks ? wf_get(x[(r + k) * a.n]) : 0.0f;
        if (eighths) {
            tree.add(wf_tree_of<AHEAD>(leaf) + 0.0f, r / AHEAD, chunks / AHEAD);
            continue;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (r + k < chunks)
                tree.add(leaf[k] + 0.0f, r + k, chunks);
    }
    return tree.node[0];
}

template <class T> __global__ void __launch_bounds__(WF_BLOCK) dim_sum_kernel(dim_job a)
{
    const int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x;

    for (int64_t o = blockIdx.y; i < a.n && o < a.outer; o += gridDim.y)
        a.y[o * a.n + i] = sum_rows(a, (const T *)a.x + o * a.rows * a.n + i);
}

wf_status sum_over(const wf_call *call, int dim)
{
    const wf_tensor *x = call->in[0];
    dim_job a = {};

    a.x = x->data;
    a.y = (float *)call->out[0]->data;
    a.outer = wf_extent(x, 0, dim);
    a.rows = x->local[dim];
    a.n = wf_extent(x, dim + 1, x->ndim);
    if (!wf_is_batch(x, dim))
        a.chunks = wf_cuda_host_table->chunk_cuts(x, dim, a.cuts);
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(dim_sum_kernel<T>,
                         dim3((unsigned)wf_ceil(a.n, WF_BLOCK), wf_grid(a.outer, 1)), WF_BLOCK,
                         0, wf_cuda_of(call)->stream, a);
    });
}

wf_status batch_sum(const wf_call *call, void *)
{
    return sum_over(call, 0);
}

wf_status sum(const wf_call *call, void *)
{
    return sum_over(call, ((const wf_dim_attr *)call->attr)->dim);
}

/* ---- over all tokens of a sequence ---- */

struct token_job {
    const void *x;
    float *y;
    int64_t sequences;
    wf_row_chunks chunks;
};

/* Warp l has chunk l of eight: element i of it in lane i % 32, a chain. */
template <class T> __global__ void __launch_bounds__(WF_BLOCK) token_sum_kernel(token_job a)
{
    WF_SHARED(float, chunk, WF_MAX_CHUNKS);
    const int warp = (int)(threadIdx.x / WF_WARP);
    const int64_t n = a.chunks.runs * a.chunks.step;

    for (int64_t b = blockIdx.x; b < a.sequences; b += gridDim.x) {
        wf_tree_of_eights tree = {0.0f, 0.0f};

        for (int eight = 0; eight < a.chunks.eights; eight++) {
            const int l = eight * WF_MAX_CHUNKS + warp;
            const int64_t length = a.chunks.at[l + 1] - a.chunks.at[l];
            const int64_t end = a.chunks.runs * length;
            float sum = 0.0f;

            for (int64_t i = threadIdx.x % WF_WARP; i < end; i += WF_WARP)
                sum +=
                    wf_get(((const T *)a.x)[b * n + wf_row_of_chunk(a.chunks, l, length, i)]);
            sum = wf_warp_sum(sum);
            if (threadIdx.x % WF_WARP == 0)
                chunk[warp] = sum;
            __syncthreads();
            if (threadIdx.x == 0)
                a.y[b] = tree.add(wf_node_of_eight(chunk), eight);
            __syncthreads();
        }
    }
}

wf_status token_sum(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    token_job a = {x->data, (float *)call->out[0]->data, x->local[0],
                   wf_row_chunks_of(x, x->ndim)};

    return wf_run(call, [&](auto zero) {
        return wf_launch(token_sum_kernel<decltype(zero)>, wf_grid(a.sequences, 1), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, a);
    });
}

template <class T>
__global__ void __launch_bounds__(WF_BLOCK)
    token_expand_kernel(wf_vector x, T *y, int64_t sequences, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t b = blockIdx.y; b < sequences; b += gridDim.y) {
        float value = wf_at(x, b);

        for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < n; i += step)
            wf_put(y + b * n + i, value);
    }
}

wf_status token_expand(const wf_call *call, void *)
{
    const wf_tensor *out = call->out[0];
    int64_t b = out->local[0], n = wf_extent(out, 1, out->ndim);

    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        return wf_launch(token_expand_kernel<T>, dim3(wf_grid(n, WF_BLOCK), wf_grid(b, 1)),
                         WF_BLOCK, 0, wf_cuda_of(call)->stream, wf_vector_of(call->in[0]),
                         (T *)out->data, b, n);
    });
}
} // namespace

const wf_kernel wf_cuda_bias_add = {bias_add, NULL, WF_IN(1), WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_bias_gelu = {bias_gelu, NULL, WF_IN(1), WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_bias_grad = {bias_grad, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_bias_gelu_grad = {bias_gelu_grad, NULL, WF_IN(1),
                                          WF_IN(0) | WF_IN(2) | WF_OUT(0)};
const wf_kernel wf_cuda_batch_sum = {batch_sum, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_sum = {sum, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_batch_expand = {batch_expand, NULL, WF_IN(0), WF_OUT(0)};
const wf_kernel wf_cuda_token_sum = {token_sum, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_token_expand = {token_expand, NULL, WF_IN(0), WF_OUT(0)};
