/*
 * kernels/cuda/reduce.cu - sums and maxima over ranks, many by one launch. Every element is one
 * expression of the elements at its index, so that a target may be a source, and neither the
 * grid nor how a tensor is cut can be seen.
 */
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/tree_internal.h"

namespace
{

enum { TREE, CHAIN, GREATEST };
enum { OPEN = 8 }; /* nodes that a tree over WF_CUDA_SOURCES chunks may have open */
enum {
    REDUCTIONS = 48,
    SUM_BUFFERS = 192
}; /* most reductions of a launch, and buffers of these */

static_assert(WF_CUDA_SOURCES + WF_CUDA_TARGETS <= SUM_BUFFERS, "a launch takes one");
static_assert(REDUCTIONS <= 64, "a bit for each");

/* The reductions of a launch: of each its sources, then its targets. */
struct reductions {
    void *buffer[SUM_BUFFERS];
    int64_t n[REDUCTIONS];
    uint64_t wide; /* bit k: buffers of reduction k are aligned to 16 bytes */
    int n_src, n_dst;
    wf_pieces<REDUCTIONS> pieces; /* a block takes one at a time */
};

/* N sources known to the compiler, all on their way together, of each as many packs as make
   one of the sum, which is stored as U. */
template <class T, class U, int N>
__device__ __forceinline__ void tree_at(const reductions &a, int k, int64_t i)
{
    constexpr int EACH = wf_pack<U>::N, PACK = wf_pack<T>::N, PACKS = EACH / PACK;
    void *const *src = a.buffer + k * (N + a.n_dst), *const *dst = src + N;
    const bool wide = a.wide >> k & 1;
    const int64_t left = a.n[k] - i;
    wf_pack<T> raw[N][PACKS];
    float x[N][EACH], y[EACH];

#pragma unroll
    for (int s = 0; s < N; s++)
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            raw[s][p] = wf_read((const T *)src[s] + i + p * PACK, left - p * PACK, wide);
#pragma unroll
    for (int s = 0; s < N; s++)
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            wf_unpack(raw[s][p], x[s] + p * PACK);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        float in[N];

#pragma unroll
        for (int s = 0; s < N; s++)
            in[s] = x[s][e];
        y[e] = wf_tree_of<N>(in);
    }
    for (int d = 0; d < a.n_dst; d++)
        if (wide && left >= EACH)
            wf_store_pack((U *)dst[d] + i, y);
        else
            wf_store((U *)dst[d] + i, left, false, y);
}

template <class T, class U, int N>
__global__ void __launch_bounds__(WF_BLOCK) tree_kernel(const WF_GRID_CONSTANT reductions a)
{
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const int64_t at = (int64_t)(piece - a.pieces.first[k]) * WF_BLOCK + threadIdx.x;

        if (at * wf_pack<U>::N < a.n[k])
            tree_at<T, U, N>(a, k, at * wf_pack<U>::N);
    }
}

template <class T, class U, int MODE>
__device__ __forceinline__ void any_at(const reductions &a, int k, int64_t i)
{
    void *const *src = a.buffer + k * (a.n_src + a.n_dst), *const *dst = src + a.n_src;
    float open[OPEN] = {};
    int depth = 0;

    for (int s = 0; s < a.n_src; s++) {
        int merges = s == 0 ? 0 : MODE == TREE ? wf_tree_merges(a.n_src, s) : 1;
        float x = wf_get(((const T *)src[s])[i]);

        for (; merges > 0; merges--) {
            float older = open[--depth];

            x = MODE == GREATEST ? wf_greater(older, x) : older + x;
        }
        open[depth++] = x;
    }
    for (int d = 0; d < a.n_dst; d++)
        wf_put((U *)dst[d] + i, open[0]);
}

/* Any number of sources, an element at a time: groups of odd sizes, chains and maxima. */
template <class T, class U, int MODE>
__global__ void __launch_bounds__(WF_BLOCK) any_kernel(const WF_GRID_CONSTANT reductions a)
{
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const int64_t i = (int64_t)(piece - a.pieces.first[k]) * WF_BLOCK + threadIdx.x;

        if (i < a.n[k])
            any_at<T, U, MODE>(a, k, i);
    }
}

/* Adds a reduction to those of a launch, in pieces of `piece` elements. */
void add(reductions *a, const wf_reduce *r, int64_t piece)
{
    const int k = a->pieces.n;
    void **to = a->buffer + k * (r->n_src + r->n_dst);
    uintptr_t bits = 0;

    for (int s = 0; s < r->n_src; s++)
        to[s] = (void *)r->src[s];
    for (int d = 0; d < r->n_dst; d++)
        to[r->n_src + d] = r->dst[d];
    for (int i = 0; i < r->n_src + r->n_dst; i++)
        bits |= (uintptr_t)to[i];
    a->n_src = r->n_src;
    a->n_dst = r->n_dst;
    a->n[k] = r->n;
    a->wide |= (uint64_t)(bits % 16 == 0) << k;
    a->pieces.add(wf_ceil(r->n, piece));
}

/* Launches those of n reductions whose targets have elements of `out_element` bytes. */
template <class K>
cudaError_t launch_all(K kernel, int64_t each, size_t out_element, cudaStream_t stream,
                       const wf_reduce *r, int64_t n)
{
    const int most = SUM_BUFFERS / (r->n_src + r->n_dst);
    cudaError_t code = cudaSuccess;

    for (int64_t k = 0; k < n && code == cudaSuccess;) {
        reductions a = {};

        for (; k < n && a.pieces.n < (most < REDUCTIONS ? most : REDUCTIONS); k++)
            if (r[k].out_element == out_element && r[k].n)
                add(&a, &r[k], WF_BLOCK * each);
        if (a.pieces.n)
            code = wf_launch(kernel, wf_grid(a.pieces.all(), 1), WF_BLOCK, 0, stream, a);
    }
    return code;
}

template <class T, class U>
cudaError_t launch(cudaStream_t stream, const wf_reduce *r, int64_t n)
{
    const auto tree = [&](auto kernel) {
        return launch_all(kernel, wf_pack<U>::N, sizeof(U), stream, r, n);
    };
    const auto any = [&](auto kernel) {
        return launch_all(kernel, 1, sizeof(U), stream, r, n);
    };

    if (r->maximum)
        return any(any_kernel<T, U, GREATEST>);
    if (r->n_src == 2) /* the tree of two is their chain, too */
        return tree(tree_kernel<T, U, 2>);
    if (!r->tree)
        return any(any_kernel<T, U, CHAIN>);
    return r->n_src == 4   ? tree(tree_kernel<T, U, 4>)
           : r->n_src == 8 ? tree(tree_kernel<T, U, 8>)
                           : any(any_kernel<T, U, TREE>);
}

} // namespace

cudaError_t wf_cuda_launch_reduce(cudaStream_t stream, const wf_reduce *reductions, int64_t n)
{
    cudaError_t code;

    if (n < 1)
        return cudaSuccess;
    if (reductions->element != sizeof(float))
        return launch<wf_bf16, wf_bf16>(stream, reductions, n);
    code = launch<float, float>(stream, reductions, n);
    return code == cudaSuccess ? launch<float, wf_bf16>(stream, reductions, n) : code;
}

cudaError_t wf_cuda_launch_add(cudaStream_t stream, const void *a, const void *b, void *out,
                               wf_dtype dtype, int64_t n)
{
    const void *src[] = {a, b};
    wf_reduce sum = {};

    sum.src = src;
    sum.dst = &out;
    sum.n_src = 2;
    sum.n_dst = 1;
    sum.element = sum.out_element = dtype == WF_BF16 ? sizeof(uint16_t) : sizeof(float);
    sum.n = n;
    return wf_cuda_launch_reduce(stream, &sum, 1);
}
