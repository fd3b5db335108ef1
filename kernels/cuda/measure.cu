/*
 * kernels/cuda/measure.cu - what is asked of whole models: the squares of a norm, and the
 * digest. Both are sums of integers (core/numerics/exact_sum.h, core/numerics/digest.h), which
 * have no order: blocks add theirs by atomics, and the bits are the CPU's whatever the grid.
 */
#include "core/numerics/bits.h"
#include "core/numerics/exact_sum.h"
#include "kernels/cuda/launch_internal.h"

namespace
{

typedef unsigned long long word; /* the type of CUDA's atomics */

enum { LANES = 8, CHUNKS_OF_BLOCK = WF_BLOCK / LANES, MOST_BLOCKS = 1024 };

/* Describes a launch. */
struct squares_job {
    wf_cuda_squared list[WF_CUDA_SQUARED];
    wf_pieces<WF_CUDA_SQUARED> pieces; /* CHUNKS_OF_BLOCK chunks each */
    int64_t chunks;                    /* sum over the list */
    wf_exact_sum *sum;
};

static_assert(sizeof(squares_job) <= WF_ARGUMENT_BYTES, "a launch takes no more");

/* Adds a chunk to the limbs; x is not negative, so that words may be limbs. */
__device__ __forceinline__ void add_chunk(double x, word *limb, word *not_finite)
{
    int64_t part[3];
    int first, said = wf_exact_split(x, &first, part);

    if (said)
        atomicOr(not_finite, (word)said);
    for (int i = 0; i < 3 && !said; i++)
        if (part[i])
            atomicAdd(limb + first + i, (word)part[i]);
}

__device__ __forceinline__ double chunk_of(const float *row, int64_t begin, int64_t end)
{
    double sum = 0;

    for (int64_t k = begin; k < end; k += LANES) {
        double value = (double)row[k];

        sum += value * value;
    }
    return sum;
}

/* A lane takes every eighth square; those of a chunk sit side by side in a warp. */
__global__ void __launch_bounds__(WF_BLOCK) squares_kernel(const WF_GRID_CONSTANT squares_job a)
{
    const int lane = (int)(threadIdx.x % LANES);
    WF_SHARED(word, limb, WF_EXACT_LIMBS);
    WF_SHARED(word, not_finite, 1);

    for (int i = (int)threadIdx.x; i < WF_EXACT_LIMBS; i += WF_BLOCK)
        limb[i] = 0;
    if (threadIdx.x == 0)
        not_finite[0] = 0;
    __syncthreads();
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const wf_cuda_squared &s = a.list[k];
        const int64_t i =
            (int64_t)(piece - a.pieces.first[k]) * CHUNKS_OF_BLOCK + threadIdx.x / LANES;
        const bool here = i < s.rows * s.chunks;
        const int l = (int)(i % s.chunks);
        double sum =
            here ? chunk_of(s.x + i / s.chunks * s.columns, s.at[l] + lane, s.at[l + 1]) : 0;

        for (int step = LANES / 2; step > 0; step /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, step, LANES);
        if (lane == 0 && here)
            add_chunk(sum, limb, not_finite);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < WF_EXACT_LIMBS; i += WF_BLOCK)
        if (limb[i])
            atomicAdd((word *)&a.sum->limb[i], limb[i]);
    if (threadIdx.x == 0 && not_finite[0])
        atomicOr((word *)&a.sum->not_finite, not_finite[0]);
    if (threadIdx.x == 0 && blockIdx.x == 0)
        atomicAdd((word *)&a.sum->added, (word)a.chunks);
}

/* A tensor's local part as runs of elements that follow each other in the whole. */
struct runs {
    int64_t n, run, first; /* elements; of a run; the first one's index in the whole */
    int dims;              /* outside of a run */
    int64_t local[WF_MAX_DIMS], stride[WF_MAX_DIMS];
};

__global__ void __launch_bounds__(WF_BLOCK)
    digest_kernel(const uint32_t *x, const WF_GRID_CONSTANT runs r, uint64_t key, word *digest)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    word sum = 0;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < r.n; i += step) {
        int64_t rest = i / r.run, index = r.first + i % r.run;

        for (int d = r.dims - 1; d >= 0; d--) {
            index += rest % r.local[d] * r.stride[d];
            rest /= r.local[d];
        }
        sum += wf_mix64(wf_mix64(key + (uint64_t)index) ^ x[i]);
    }
    sum = wf_warp_sum(sum);
    if (threadIdx.x % WF_WARP == 0)
        atomicAdd(digest, sum);
}

/* Finds the runs of a tensor: a dim that is split and those after it are one. */
runs runs_of(const wf_tensor *t)
{
    runs r = {1, 1, 0, t->ndim, {}, {}};
    int64_t stride = 1;
    bool whole = true;

    for (int d = t->ndim - 1; d >= 0; d--) {
        if (whole) {
            r.run *= t->local[d];
            r.dims = d;
        }
        whole = whole && t->local[d] == t->dim[d].size;
        r.local[d] = t->local[d];
        r.stride[d] = stride;
        r.first += t->start[d] * stride;
        r.n *= t->local[d];
        stride *= t->dim[d].size;
    }
    return r;
}

unsigned grid_of(int64_t pieces, int64_t per_block)
{
    unsigned grid = wf_grid(pieces, per_block);

    return grid < MOST_BLOCKS ? grid : (unsigned)MOST_BLOCKS;
}

} // namespace

cudaError_t wf_cuda_launch_squares(cudaStream_t stream, int n, const wf_cuda_squared *list,
                                   wf_exact_sum *sum)
{
    squares_job a = {};

    a.sum = sum;
    for (int k = 0; k < n; k++) {
        a.list[k] = list[k];
        a.chunks += list[k].rows * list[k].chunks;
        a.pieces.add(wf_ceil(list[k].rows * list[k].chunks, CHUNKS_OF_BLOCK));
    }
    return wf_launch(squares_kernel, grid_of(a.pieces.all(), 1), WF_BLOCK, 0, stream, a);
}

cudaError_t wf_cuda_launch_digest(cudaStream_t stream, const wf_tensor *t, uint64_t path_hash,
                                  uint32_t kind, uint64_t *digest)
{
    runs r = runs_of(t);

    return wf_launch(digest_kernel, grid_of(r.n, WF_BLOCK), WF_BLOCK, 0, stream,
                     (const uint32_t *)t->data, r, wf_mix64(path_hash ^ kind), (word *)digest);
}
