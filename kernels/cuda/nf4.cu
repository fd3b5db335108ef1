/*
 * kernels/cuda/nf4.cu - what is stored as nf4, widened for an op that reads it, with the bits
 * of core/numerics/nf4.c. A thread has eight numbers, which a load of 4 bytes brings and stores
 * of 16 take.
 */
#include "kernels/cuda/nf4_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
struct nf4_job {
    wf_nf4_matrix of;
    void *to;
    bool wide; /* eight numbers are stored at once */
};

/* Computes n <= WF_NF4_EACH numbers of row r from column c on. */
__device__ __forceinline__ void nf4_numbers(const wf_nf4_matrix &a, const float *tables,
                                            int64_t r, int64_t c, int64_t n, float *x)
{
    const uint8_t *row = a.bytes + r * a.row_bytes;
    const int64_t first = wf_nf4_row(&a.part, r) * a.part.width + a.part.first_column;

    if (a.eights && n == WF_NF4_EACH) {
        wf_nf4_numbers(a, tables, wf_nf4_read(a, r, c), x);
        return;
    }
#pragma unroll
    for (int k = 0; k < WF_NF4_EACH; k++) {
        x[k] = 0.0f;
        if (k < n) {
            const uint8_t pair = row[(c + k) / 2];
            wf_nf4_codes codes;

            wf_nf4_read_scale(a, row, first, first + c + k, &codes);
            x[k] = tables[k % 2 ? pair & 15 : pair >> 4] * wf_nf4_scale(a, tables, codes);
        }
    }
}

template <class T>
__device__ __forceinline__ void nf4_put(const nf4_job &a, int64_t i, int64_t n, const float *x)
{
    constexpr int PACK = wf_pack<T>::N;

#pragma unroll
    for (int k = 0; k < WF_NF4_EACH; k += PACK)
        if (n > k)
            wf_store((T *)a.to + i + k, n - k, a.wide, x + k);
}

template <class T> __global__ void __launch_bounds__(WF_BLOCK) nf4_kernel(nf4_job a)
{
    WF_SHARED(float, tables, WF_NF4_TABLES);
    const int64_t columns = a.of.part.columns;
    const int64_t packs = (columns + WF_NF4_EACH - 1) / WF_NF4_EACH;
    const int64_t all = a.of.part.rows * packs, step = (int64_t)gridDim.x * WF_BLOCK;

    wf_nf4_tables(tables, a.of.levels, WF_BLOCK);
    __syncthreads();
    for (int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; k < all; k += step) {
        const int64_t r = k / packs, c = k % packs * WF_NF4_EACH, left = columns - c;
        const int64_t n = left < WF_NF4_EACH ? left : (int64_t)WF_NF4_EACH;
        float x[WF_NF4_EACH];

        nf4_numbers(a.of, tables, r, c, n, x);
        wf_nf4_round(a.of, x);
        nf4_put<T>(a, r * columns + c, n, x);
    }
}
} // namespace

cudaError_t wf_cuda_launch_nf4(wf_cuda *cuda, const wf_tensor *t, wf_dtype as, void *to)
{
    nf4_job a = {};
    unsigned grid;

    a.of = wf_cuda_nf4_matrix(cuda, t, as);
    a.to = to;
    a.wide = (uintptr_t)to % 16 == 0 && a.of.part.columns % WF_NF4_EACH == 0;
    if (!a.of.levels)
        return cudaErrorMemoryAllocation;
    grid = wf_grid(a.of.part.rows * wf_ceil(a.of.part.columns, WF_NF4_EACH), WF_BLOCK);
    return as == WF_BF16 ? wf_launch(nf4_kernel<wf_bf16>, grid, WF_BLOCK, 0, cuda->stream, a)
                         : wf_launch(nf4_kernel<float>, grid, WF_BLOCK, 0, cuda->stream, a);
}
