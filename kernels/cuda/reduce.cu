/*
 * kernels/cuda/reduce.cu - sums and maxima over ranks. Every element is one expression of the
 * elements at its index, so that a target may be a source, and neither the grid nor how a
 * tensor is cut can be seen.
 */
#include "kernels/cuda/launch_internal.h"
#include "kernels/cuda/tree_internal.h"

namespace
{

enum { TREE, CHAIN, GREATEST };
enum { OPEN = 8 }; /* nodes that a tree over WF_CUDA_SOURCES chunks may have open */

/* N sources known to the compiler, all on their way together, of each as many packs as make
   one of the sum, which is stored as U. */
template <class T, class U, int N>
__global__ void __launch_bounds__(WF_BLOCK)
    member_sum_kernel(const wf_cuda_member_sum a, bool wide)
{
    constexpr int EACH = wf_pack<U>::N, PACK = wf_pack<T>::N, PACKS = EACH / PACK;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK * EACH;

    for (int64_t i = ((int64_t)blockIdx.x * WF_BLOCK + threadIdx.x) * EACH; i < a.n;
         i += step) {
        wf_pack<T> raw[N][PACKS];
        float x[N][EACH], y[EACH];

#pragma unroll
        for (int s = 0; s < N; s++)
#pragma unroll
            for (int k = 0; k < PACKS; k++)
                raw[s][k] =
                    wf_read((const T *)a.src[s] + i + k * PACK, a.n - i - k * PACK, wide);
#pragma unroll
        for (int s = 0; s < N; s++)
#pragma unroll
            for (int k = 0; k < PACKS; k++)
                wf_unpack(raw[s][k], x[s] + k * PACK);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            float in[N];

#pragma unroll
            for (int s = 0; s < N; s++)
                in[s] = x[s][e];
            y[e] = wf_tree_of<N>(in);
        }
        for (int d = 0; d < a.n_dst; d++)
            if (wide && a.n - i >= EACH)
                wf_store_pack((U *)a.dst[d] + i, y);
            else
                wf_store((U *)a.dst[d] + i, a.n - i, false, y);
    }
}

/* Any number of sources, an element at a time: groups of odd sizes, chains and maxima. */
template <class T, class U, int MODE>
__global__ void __launch_bounds__(WF_BLOCK) any_kernel(const wf_cuda_member_sum a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < a.n; i += step) {
        float open[OPEN] = {};
        int depth = 0;

        for (int s = 0; s < a.n_src; s++) {
            int merges = s == 0 ? 0 : MODE == TREE ? wf_tree_merges(a.n_src, s) : 1;
            float x = wf_get(((const T *)a.src[s])[i]);

            for (; merges > 0; merges--) {
                float older = open[--depth];

                x = MODE == GREATEST ? wf_greater(older, x) : older + x;
            }
            open[depth++] = x;
        }
        for (int d = 0; d < a.n_dst; d++)
            wf_put((U *)a.dst[d] + i, open[0]);
    }
}

static bool aligned(const wf_cuda_member_sum *a)
{
    uintptr_t bits = 0;

    for (int s = 0; s < a->n_src; s++)
        bits |= (uintptr_t)a->src[s];
    for (int d = 0; d < a->n_dst; d++)
        bits |= (uintptr_t)a->dst[d];
    return bits % 16 == 0;
}

template <class T, class U, int N>
static cudaError_t launch_tree(cudaStream_t stream, const wf_cuda_member_sum *a)
{
    return wf_launch(member_sum_kernel<T, U, N>, wf_grid(a->n, WF_BLOCK * wf_pack<U>::N),
                     WF_BLOCK, 0, stream, *a, aligned(a));
}

template <class T, class U, int MODE>
static cudaError_t launch_any(cudaStream_t stream, const wf_cuda_member_sum *a)
{
    return wf_launch(any_kernel<T, U, MODE>, wf_grid(a->n, WF_BLOCK), WF_BLOCK, 0, stream, *a);
}

template <class T, class U>
static cudaError_t launch(cudaStream_t stream, const wf_cuda_member_sum *a)
{
    if (a->maximum)
        return launch_any<T, U, GREATEST>(stream, a);
    if (a->n_src == 2) /* the tree of two is their chain, too */
        return launch_tree<T, U, 2>(stream, a);
    if (!a->tree)
        return launch_any<T, U, CHAIN>(stream, a);
    return a->n_src == 4   ? launch_tree<T, U, 4>(stream, a)
           : a->n_src == 8 ? launch_tree<T, U, 8>(stream, a)
                           : launch_any<T, U, TREE>(stream, a);
}

} // namespace

cudaError_t wf_cuda_launch_sum(cudaStream_t stream, const wf_cuda_member_sum *sum)
{
    if (sum->element != sizeof(float))
        return launch<wf_bf16, wf_bf16>(stream, sum);
    return sum->out_element == sizeof(float) ? launch<float, float>(stream, sum)
                                             : launch<float, wf_bf16>(stream, sum);
}

cudaError_t wf_cuda_launch_add(cudaStream_t stream, const void *a, const void *b, void *out,
                               wf_dtype dtype, int64_t n)
{
    wf_cuda_member_sum sum = {};

    sum.src[0] = a;
    sum.src[1] = b;
    sum.dst[0] = out;
    sum.n_src = 2;
    sum.n_dst = 1;
    sum.element = sum.out_element = dtype == WF_BF16 ? sizeof(uint16_t) : sizeof(float);
    sum.n = n;
    return wf_cuda_launch_sum(stream, &sum);
}
