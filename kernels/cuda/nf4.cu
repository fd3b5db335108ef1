/*
 * kernels/cuda/nf4.cu - what is stored as nf4, widened for an op that reads it, with the bits
 * of core/numerics/nf4.c. A thread has eight numbers, which a load of 4 bytes brings and stores
 * of 16 take.
 */
#include "kernels/cuda/levels_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
enum { NF4_EACH = 8 };

struct nf4_job {
    wf_nf4_part part;
    const uint8_t *bytes; /* the first row */
    const float *scales;
    void *to;
    int64_t row_bytes;
    const wf_cuda_levels *levels;
    bool words; /* eight numbers are a word, of one block, wherever they are in a row */
    bool wide;  /* so that they are stored at once, too */
    bool round; /* to bf16, and stored as floats */
};

/* Computes the scale of the block of the whole matrix that has number `at`, from its code in a
   row that begins with number `first`. */
__device__ __forceinline__ float nf4_scale(const nf4_job &a, const uint8_t *row, int64_t first,
                                           int64_t at)
{
    const int64_t block = at / WF_NF4_BLOCK;
    const uint8_t code = row[(a.part.columns + 1) / 2 + block - first / WF_NF4_BLOCK];
    const float scale = a.levels->dynamic8[0][code] * a.scales[1 + block / WF_NF4_NESTED];

    return scale + a.scales[0];
}

/* Computes n <= NF4_EACH numbers of a row from column c on. */
__device__ __forceinline__ void nf4_numbers(const nf4_job &a, const float *level,
                                            const uint8_t *row, int64_t first, int64_t c,
                                            int64_t n, float *x)
{
    if (a.words && n == NF4_EACH) {
        const uint32_t word = *(const uint32_t *)(row + c / 2);
        const float scale = nf4_scale(a, row, first, first + c);

#pragma unroll
        for (int k = 0; k < NF4_EACH; k++)
            x[k] = level[word >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15] * scale;
        return;
    }
#pragma unroll
    for (int k = 0; k < NF4_EACH; k++) {
        x[k] = 0.0f;
        if (k < n) {
            const uint8_t pair = row[(c + k) / 2];

            x[k] =
                level[k % 2 ? pair & 15 : pair >> 4] * nf4_scale(a, row, first, first + c + k);
        }
    }
}

template <class T>
__device__ __forceinline__ void nf4_put(const nf4_job &a, int64_t i, int64_t n, const float *x)
{
    constexpr int PACK = wf_pack<T>::N;

#pragma unroll
    for (int k = 0; k < NF4_EACH; k += PACK)
        if (n > k)
            wf_store((T *)a.to + i + k, n - k, a.wide, x + k);
}

template <class T> __global__ void __launch_bounds__(WF_BLOCK) nf4_kernel(nf4_job a)
{
    WF_SHARED(float, level, WF_NF4_LEVELS);
    const int64_t packs = (a.part.columns + NF4_EACH - 1) / NF4_EACH;
    const int64_t all = a.part.rows * packs, step = (int64_t)gridDim.x * WF_BLOCK;

    if (threadIdx.x < WF_NF4_LEVELS)
        level[threadIdx.x] = a.levels->nf4[threadIdx.x];
    __syncthreads();
    for (int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; k < all; k += step) {
        const int64_t r = k / packs, c = k % packs * NF4_EACH, left = a.part.columns - c;
        const int64_t first = wf_nf4_row(&a.part, r) * a.part.width + a.part.first_column;
        const int64_t n = left < NF4_EACH ? left : (int64_t)NF4_EACH;
        float x[NF4_EACH];

        nf4_numbers(a, level, a.bytes + r * a.row_bytes, first, c, n, x);
        if (a.round) {
#pragma unroll
            for (int e = 0; e < NF4_EACH; e += 2) {
                const uint32_t pair = wf_bf16_pair(x[e], x[e + 1]);

                x[e] = __uint_as_float(pair << 16);
                x[e + 1] = __uint_as_float(pair & 0xffff0000u);
            }
        }
        nf4_put<T>(a, r * a.part.columns + c, n, x);
    }
}
} // namespace

cudaError_t wf_cuda_launch_nf4(wf_cuda *cuda, const wf_tensor *t, wf_dtype as, void *to)
{
    nf4_job a = {};
    unsigned grid;

    a.part = wf_cuda_host_table->nf4_part_of(t);
    a.bytes = (const uint8_t *)t->data;
    a.scales = (const float *)t->scales->data;
    a.to = to;
    a.row_bytes = (int64_t)wf_cuda_host_table->nf4_row_bytes(&a.part);
    a.levels = wf_cuda_levels_of(cuda);
    a.words = (uintptr_t)t->data % 4 == 0 && a.row_bytes % 4 == 0 &&
              a.part.width % NF4_EACH == 0 && a.part.first_column % NF4_EACH == 0;
    a.wide = (uintptr_t)to % 16 == 0 && a.part.columns % NF4_EACH == 0;
    a.round = as == WF_F32 && t->rounds_to == WF_BF16;
    if (!a.levels)
        return cudaErrorMemoryAllocation;
    grid = wf_grid(a.part.rows * wf_ceil(a.part.columns, NF4_EACH), WF_BLOCK);
    return as == WF_BF16 ? wf_launch(nf4_kernel<wf_bf16>, grid, WF_BLOCK, 0, cuda->stream, a)
                         : wf_launch(nf4_kernel<float>, grid, WF_BLOCK, 0, cuda->stream, a);
}
