/*
 * kernels/cuda/tensor_product_hopper.cu - tensor products by wgmma, for compute capability 9.0.
 *
 * A block makes 128 x 128 elements of a node after the other. A thread of its first warpgroup
 * has tiles of the factors copied to shared memory by the tensor memory accelerator, some
 * stages ahead, which puts zeros where a piece ends; the other two warpgroups multiply them, 64
 * rows each, and meet the first at two barriers a stage: full, empty. Of two sums that wait one
 * is in registers, one in shared memory, from where the result leaves while the next tile is
 * multiplied.
 */
#include "kernels/cuda/tensor_product_internal.h"

#ifndef WF_CUDA_EMULATED
#include "kernels/cuda/hopper_result_internal.h"

namespace
{

/* The offsets of stages, spilled sums and barriers in shared memory, from its first aligned
   byte on. */
enum {
    AT_ASIDE = STAGES * STAGE,
    AT_FULL = AT_ASIDE + ASIDE,
    AT_EMPTY = AT_FULL + STAGES * BARRIER
};

/* The current stage, and the round of all stages that it is in. */
struct turn {
    int stage, round;
};

__device__ __forceinline__ void next(turn *t)
{
    if (++t->stage == STAGES) {
        t->stage = 0;
        t->round ^= 1;
    }
}

/* ---- the first warpgroup ---- */

/* The tile of a, whole; of b, this block's share, which goes to all blocks. */
template <bool A, bool B>
__device__ __forceinline__ void copy_tiles(const CUtensorMap *a, const CUtensorMap *b,
                                           uint32_t stage, uint32_t full, int row, int column,
                                           int term, int block)
{
    constexpr int SHARE = TILE / CLUSTER; /* 64 or 128 rows of b */

    if (A) {
        wf_copy_box(stage, a, full, term, row, false);
    } else {
        wf_copy_box(stage, a, full, row, term, false);
        wf_copy_box(stage + WF_TILE_BLOCK, a, full, row + 64, term, false);
    }
    stage += OPERAND + block * SHARE * WF_TILE_LINE;
    column += block * SHARE;
    if (B) {
        wf_copy_box(stage, b, full, term, column, CLUSTER > 1);
    } else {
        wf_copy_box(stage, b, full, column, term, CLUSTER > 1);
        if (SHARE > 64)
            wf_copy_box(stage + WF_TILE_BLOCK, b, full, column + 64, term, false);
    }
}

/* Returns the rows of a cluster's jobs; its blocks have one row of tiles each. */
__device__ __forceinline__ int tiles_down(const wf_tensor_product &p)
{
    return (int)((p.m + CLUSTER * TILE - 1) / (CLUSTER * TILE));
}

__device__ __forceinline__ int tiles_across(const wf_tensor_product &p)
{
    return (int)((p.n + TILE - 1) / TILE);
}

__device__ __forceinline__ int jobs_of(const wf_tensor_product &p)
{
    return tiles_down(p) * tiles_across(p) << p.levels;
}

__device__ __forceinline__ wf_tile_job job_of(const wf_tensor_product &p, int next, int block)
{
    wf_tile_job job = wf_job_of(p, next, tiles_down(p), tiles_across(p));

    job.row = CLUSTER * job.row + block;
    return job;
}

template <bool A, bool B, int N>
__device__ __forceinline__ void bring(const mapped<N> &of, uint32_t shared, int block)
{
    const wf_tensor_product &p = of.p;
    turn now = {0, 0};

    for (int j = (int)blockIdx.x / CLUSTER; j < jobs_of(p); j += (int)gridDim.x / CLUSTER) {
        wf_tile_job job = job_of(p, j, block);

        for (int q = job.first * p.members; q < (job.first + job.count) * p.members; q++) {
            for (int k = 0; k < (int)p.piece[q].depth; k += WF_TILE_DEPTH) {
                uint32_t full = shared + AT_FULL + BARRIER * now.stage;

                wf_wait_for(shared + AT_EMPTY + BARRIER * now.stage, now.round ^ 1);
                asm volatile(
                    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                    "r"((int)STAGE)
                    : "memory");
                copy_tiles<A, B>(&of.a[q], &of.b[q], shared + now.stage * STAGE, full,
                                 job.row * TILE, job.column * TILE, k, block);
                next(&now);
            }
        }
    }
}

/* ---- the others ---- */

/* Signals, by each warp, that the stage before this one has been multiplied. */
__device__ __forceinline__ void last_is_read(uint32_t shared, turn now)
{
    int last = now.stage ? now.stage - 1 : STAGES - 1;

    if (threadIdx.x % WF_WARP == 0)
        wf_arrive_everywhere(shared + AT_EMPTY + BARRIER * last);
}

/* STEPS times 16 terms of the next stage are being added to d, those of the stage before have
   been. */
template <bool A, bool B, int STEPS>
__device__ __forceinline__ void sum_stage(float (&d)[SUMS], uint32_t shared, turn *now,
                                          int worker, bool other_is_read)
{
    uint32_t tile = shared + now->stage * STAGE;
    uint64_t a = wf_described<A>(tile + worker * WF_TILE_BLOCK),
             b = wf_described<B>(tile + OPERAND);

    wf_wait_for(shared + AT_FULL + BARRIER * now->stage, now->round);
    wf_sums_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wf_multiply<A, B>(d, a + wf_step_of<A>(step), b + wf_step_of<B>(step));
    wf_sums_commit();
    wf_sums_wait<1>();
    if (other_is_read)
        last_is_read(shared, *now);
    next(now);
}

/* The sum of a chunk. Its last stage ends with zeros, which add nothing: of two kinds of stages
   alone the instructions stay in their cache. */
template <bool A, bool B>
__device__ __forceinline__ void sum_chunk(const wf_tensor_product &p, int chunk,
                                          float (&d)[SUMS], uint32_t shared, turn *now,
                                          int worker)
{
    bool any = false;

    wf_clear(d);
#pragma unroll 1
    for (int q = chunk * p.members; q < (chunk + 1) * p.members; q++) {
        int depth = (int)p.piece[q].depth;

#pragma unroll 1
        for (; depth > 0; depth -= WF_TILE_DEPTH, any = true) {
            if (depth > WF_TILE_DEPTH / 2)
                sum_stage<A, B, 4>(d, shared, now, worker, any);
            else
                sum_stage<A, B, 2>(d, shared, now, worker, any);
        }
    }
    wf_sums_wait<0>();
    if (any)
        last_is_read(shared, *now);
}

template <bool A, bool B, bool STORED, class T, int N>
__device__ __forceinline__ void work(const mapped<N> &of, uint32_t shared, float *aside,
                                     int worker, int block, int t)
{
    const wf_tensor_product &p = of.p;
    float sum[SUMS], second[SUMS], lower[SUMS];
    turn now = {0, 0};

    for (int j = (int)blockIdx.x / CLUSTER; j < jobs_of(p); j += (int)gridDim.x / CLUSTER) {
        wf_tile_job job = job_of(p, j, block);
        int waiting = 0, chunk = job.first;

        wf_clear(lower); /* else it would be kept from job to job, and registers are short */
        if (job.count == 0)
            wf_clear(sum);
#pragma unroll 1
        for (int units = of.units[job.count]; units; units >>= 4) {
            int ends = units >> 2 & 3;

            sum_chunk<A, B>(p, chunk++, sum, shared, &now, worker);
            if (units & 2) {
                sum_chunk<A, B>(p, chunk++, second, shared, &now, worker);
#pragma unroll
                for (int i = 0; i < SUMS; i++)
                    sum[i] = sum[i] + second[i];
            }
            if (ends > 0 && waiting == 2) {
#pragma unroll
                for (int i = 0; i < SUMS; i++)
                    sum[i] = aside[i * GROUP + t] + sum[i];
                ends--;
                waiting--;
            }
            if (ends > 0) {
                wf_add_to(sum, lower);
                waiting--;
            }
            if (units >> 4) {
                if (waiting == 0) {
                    wf_put_aside(lower, sum);
                } else {
                    boxes_are_read(worker);
#pragma unroll
                    for (int i = 0; i < SUMS; i++)
                        aside[i * GROUP + t] = sum[i];
                }
                waiting++;
            }
        }
        boxes_are_read(worker);
        if (STORED)
            store<T>(of, sum, job, (char *)aside, worker, t);
        else
            store_slowly<T>(p, sum, job, aside, worker, t);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* STORED: results are aligned as the accelerator stores them. A kernel for both cases would
   keep some of its sums in local memory, for which there is hardly any cache left. */
template <bool A, bool B, bool STORED, class T, int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    hopper_kernel(const WF_GRID_CONSTANT mapped<N> of)
{
    WF_DYNAMIC_SHARED(char, unaligned);
    char *first = unaligned + (ALIGNED - wf_shared_address(unaligned) % ALIGNED) % ALIGNED;
    uint32_t shared = wf_shared_address(first);
    int group = (int)threadIdx.x / GROUP, t = (int)threadIdx.x % GROUP,
        block = wf_block_in_cluster();

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            wf_barrier_begin(shared + AT_FULL + BARRIER * s, 1);
            wf_barrier_begin(shared + AT_EMPTY + BARRIER * s,
                             CLUSTER * WORKERS * GROUP / WF_WARP);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    wf_sync_cluster();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (t == 0)
            bring<A, B>(of, shared, block);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<A, B, STORED, T>(of, shared,
                              (float *)(first + AT_ASIDE) + (group - 1) * SUMS * GROUP,
                              group - 1, block, t);
    }
    __syncwarp();
    wf_sync_cluster(); /* no block ends while another still copies to it */
}

/* ---- the host's side ---- */

/* Returns the units of a node of n chunks (wf_unit_of), the first in the lowest four bits: how
   many chunks, one or two, and four times how many nodes end with it. */
uint16_t units_of(int n)
{
    uint16_t units = 0;

    for (int l = 0, bit = 0; l < n; bit += 4) {
        wf_tree_unit unit = wf_unit_of(l, n);

        units |= (uint16_t)((unit.chunks | unit.ends << 2) << bit);
        l += unit.chunks;
    }
    return units;
}

template <bool STORED, class T, int N>
cudaError_t launch(cudaStream_t stream, const mapped<N> &of, int processors)
{
    static void (*const kernel[])(const mapped<N>) = {
        hopper_kernel<false, false, STORED, T, N>, hopper_kernel<false, true, STORED, T, N>,
        hopper_kernel<true, false, STORED, T, N>, hopper_kernel<true, true, STORED, T, N>};
    const wf_tensor_product *p = &of.p;
    auto *k = kernel[2 * p->a_along + p->b_along];
    int64_t blocks =
        (wf_ceil(p->m, CLUSTER * TILE) * wf_ceil(p->n, TILE) << p->levels) * CLUSTER;
    cudaError_t code =
        cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);

    if (code != cudaSuccess)
        return code;
    return wf_launch(
        k, (unsigned)(blocks < processors ? blocks : (int64_t)processors / CLUSTER * CLUSTER),
        THREADS, SHARED, stream, of);
}

template <class T, int N>
cudaError_t map_and_launch(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    mapped<N> of;
    bool stored =
        !(p->result.add && (p->result.bias || p->result.residual)) &&
        ((uintptr_t)p->result.residual | (uintptr_t)p->result.gate) % WF_CUDA_ALIGNED == 0 &&
        wf_map_result<T>(&of.to, p, p->result.to, WORKER_ROWS) &&
        (!p->result.gelu ||
         (sizeof(T) == 2 && wf_map_result<T>(&of.gelu, p, p->result.gelu, WORKER_ROWS)));

    of.p = *p;
    for (int n = 0; n <= WF_TENSOR_CHUNKS; n++)
        of.units[n] = units_of(n);
    for (int i = 0; i < p->chunks * p->members; i++) {
        const wf_tensor_piece *x = &p->piece[i];

        if (x->depth > 0 &&
            !(wf_map_factor(&of.a[i], x->a, x->a_ld, p->m, x->depth, p->a_along, TILE) &&
              wf_map_factor(&of.b[i], x->b, x->b_ld, p->n, x->depth, p->b_along,
                            TILE / CLUSTER)))
            return cudaErrorNotSupported;
    }
    if (stored)
        return launch<true, T, N>(stream, of, processors);
    /* rarely used variants have one size of kernels */
    if constexpr (N == WF_TENSOR_PIECES)
        return launch<false, T, N>(stream, of, processors);
    else
        return map_and_launch<T, WF_TENSOR_PIECES>(stream, p, processors);
}

template <class T>
cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    return p->chunks * p->members <= WF_TENSOR_CHUNKS
               ? map_and_launch<T, WF_TENSOR_CHUNKS>(stream, p, processors)
               : map_and_launch<T, WF_TENSOR_PIECES>(stream, p, processors);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t stream,
                                                 const wf_tensor_product *p, int processors)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p, processors)
                                     : launch_any<float>(stream, p, processors);
}

#else

/* Is never launched on the emulated device, which has no such instruction and does not say that
   it is a Hopper. */
cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t, const wf_tensor_product *, int)
{
    return cudaErrorNotSupported;
}

#endif
