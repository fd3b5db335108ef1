/*
 * kernels/cuda/hopper_pipeline_internal.h - what the kernels of Hopper's products have in
 * common. A thread of a block's first warpgroup has tiles of the factors copied to stages of
 * shared memory by the tensor memory accelerator, some stages ahead, which puts zeros where a
 * piece ends; the other two warpgroups, the workers, multiply them, and meet the first at two
 * barriers a stage: full, empty. tile_schedule_internal.h says in which order. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_PIPELINE_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_PIPELINE_INTERNAL_H

#include "kernels/cuda/hopper_result_internal.h"

namespace
{

/* The offsets of stages, spilled sums and barriers in shared memory, from its first aligned
   byte on. */
enum {
    AT_ASIDE = STAGES * STAGE,
    AT_FULL = AT_ASIDE + ASIDE,
    AT_EMPTY = AT_FULL + STAGES * BARRIER,
    AT_TURN = AT_EMPTY + STAGES * BARRIER
};

/* ---- jobs ---- */

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
    return (int)wf_jobs_of(p.m, p.n, p.levels);
}

template <int BAND>
__device__ __forceinline__ wf_tile_job job_of(const wf_tensor_product &p, int next, int block)
{
    wf_tile_job job = wf_job_of(p, next, tiles_down(p), tiles_across(p), BAND);

    job.row = CLUSTER * job.row + block;
    return job;
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

template <bool A, bool B, int BAND, int N>
__device__ __forceinline__ void bring(const mapped<N> &of, uint32_t shared, int block)
{
    const wf_tensor_product &p = of.p;
    wf_ring now = {0, 0};

    for (int j = (int)blockIdx.x / CLUSTER; j < jobs_of(p); j += (int)gridDim.x / CLUSTER) {
        wf_tile_job job = job_of<BAND>(p, j, block);

        for (int q = job.first * p.members; q < (job.first + job.count) * p.members; q++) {
            for (int k = 0; k < (int)p.piece[q].depth; k += WF_TILE_DEPTH) {
                uint32_t full = shared + AT_FULL + BARRIER * now.stage;

                wf_wait_for(shared + AT_EMPTY + BARRIER * now.stage, now.phase ^ 1);
                wf_expect(full, STAGE);
                copy_tiles<A, B>(&of.a[q], &of.b[q], shared + now.stage * STAGE, full,
                                 job.row * TILE, job.column * TILE, k, block);
                wf_ring_next(&now);
            }
        }
    }
}

/* ---- the others ---- */

/* Workers that multiply whenever they can. */
struct no_turns {
    __device__ __forceinline__ void begin_chunk(int)
    {
    }
    __device__ __forceinline__ void begin_stage()
    {
    }
    __device__ __forceinline__ void end_stage()
    {
    }
    __device__ __forceinline__ void end_chunk(bool)
    {
    }
    static __device__ __forceinline__ int stages(const wf_tensor_product &, int)
    {
        return 0;
    }
};

/* Workers that take turns of at most MOST stages of a chunk. A turn ends when all of it but the
   last stage has been multiplied: the next worker's products come after that one, and the
   tensor cores never wait for whose turn it is. A chunk without a stage is a turn as well. */
template <int MOST> struct turns {
    uint32_t barriers; /* the first worker's, the second's */
    int worker, turn, done, left;

    __device__ __forceinline__ void begin_chunk(int stages)
    {
        left = stages;
        done = 0;
    }

    __device__ __forceinline__ void begin_stage()
    {
        if (done == 0)
            wf_wait_for(barriers + BARRIER * worker, wf_turn_phase(worker, turn));
    }

    __device__ __forceinline__ void end_stage()
    {
        done++;
        left--;
        if (done < MOST && left > 0)
            return;
        done = 0;
        turn++;
        __syncwarp();
        if (threadIdx.x % WF_WARP == 0)
            wf_arrive(barriers + BARRIER * (worker ^ 1));
    }

    __device__ __forceinline__ void end_chunk(bool any)
    {
        if (any)
            return;
        begin_stage();
        end_stage();
    }

    static __device__ __forceinline__ int stages(const wf_tensor_product &p, int chunk)
    {
        int count = 0;

        for (int q = chunk * p.members; q < (chunk + 1) * p.members; q++)
            count += wf_stages_of(p.piece[q].depth);
        return count;
    }
};

/* Signals, by each warp, that the stage before this one has been multiplied. */
__device__ __forceinline__ void last_is_read(uint32_t shared, wf_ring now)
{
    if (threadIdx.x % WF_WARP == 0)
        wf_arrive_everywhere(shared + AT_EMPTY + BARRIER * wf_ring_before(now));
}

/* STEPS times 16 terms of the next stage are being added to d, those of the stage before have
   been. */
template <bool A, bool B, int STEPS, class TURNS>
__device__ __forceinline__ void sum_stage(float (&d)[SUMS], uint32_t shared, wf_ring *now,
                                          int worker, bool other_is_read, TURNS *turn)
{
    uint32_t tile = shared + now->stage * STAGE;
    uint64_t a = wf_described<A>(tile + worker * WF_TILE_BLOCK),
             b = wf_described<B>(tile + OPERAND);

    turn->begin_stage();
    wf_wait_for(shared + AT_FULL + BARRIER * now->stage, now->phase);
    wf_multiply_steps<A, B, STEPS>(d, a, b);
    wf_sums_wait<1>();
    turn->end_stage();
    if (other_is_read)
        last_is_read(shared, *now);
    wf_ring_next(now);
}

/* The sum of a chunk. Its last stage ends with zeros, which add nothing: of two kinds of stages
   alone the instructions stay in their cache. */
template <bool A, bool B, class TURNS>
__device__ __forceinline__ void sum_chunk(const wf_tensor_product &p, int chunk,
                                          float (&d)[SUMS], uint32_t shared, wf_ring *now,
                                          int worker, TURNS *turn)
{
    bool any = false;

    turn->begin_chunk(TURNS::stages(p, chunk));
    wf_clear(d);
#pragma unroll 1
    for (int q = chunk * p.members; q < (chunk + 1) * p.members; q++) {
        int depth = (int)p.piece[q].depth;

#pragma unroll 1
        for (; depth > 0; depth -= WF_TILE_DEPTH, any = true) {
            if (depth > WF_TILE_DEPTH / 2)
                sum_stage<A, B, 4>(d, shared, now, worker, any, turn);
            else
                sum_stage<A, B, 2>(d, shared, now, worker, any, turn);
        }
    }
    turn->end_chunk(any);
    wf_sums_wait<0>();
    if (any)
        last_is_read(shared, *now);
}

/* Half of the rows of every job, by each worker. Of two sums that wait one is in registers, one
   in shared memory, from where the result leaves while the next tile is multiplied. */
template <bool A, bool B, bool STORED, int BAND, class T, class TURNS, int N>
__device__ __forceinline__ void work(const mapped<N> &of, uint32_t shared, float *aside,
                                     int worker, int block, int t, TURNS turn)
{
    const wf_tensor_product &p = of.p;
    float sum[SUMS], second[SUMS], lower[SUMS];
    wf_ring now = {0, 0};

    for (int j = (int)blockIdx.x / CLUSTER; j < jobs_of(p); j += (int)gridDim.x / CLUSTER) {
        wf_tile_job job = job_of<BAND>(p, j, block);
        int waiting = 0, chunk = job.first;

        wf_clear(lower); /* else it would be kept from job to job, and registers are short */
        if (job.count == 0)
            wf_clear(sum);
#pragma unroll 1
        for (int units = of.units[job.count]; units; units >>= 4) {
            int ends = units >> 2 & 3;

            sum_chunk<A, B>(p, chunk++, sum, shared, &now, worker, &turn);
            if (units & 2) {
                sum_chunk<A, B>(p, chunk++, second, shared, &now, worker, &turn);
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
        if (STORED) {
            fill<T, SUMS>(of, sum, job, worker, 0, (char *)aside, t);
            store<T>(of, job, worker, (char *)aside, worker, t);
        } else {
            store_slowly<T>(p, sum, job, aside, worker, t);
        }
    }
    wf_stores_are_done();
}

/* ---- a block ---- */

/* The position of a thread, and its block's shared memory. */
struct block_position {
    char *first; /* the first aligned byte */
    uint32_t shared;
    int group, t, block; /* t: of the group; block: of the cluster */
};

/* Begins the barriers, of which a stage's is empty when `readers` workers have read it. */
__device__ __forceinline__ block_position begin_block(char *unaligned, int readers)
{
    block_position at;

    at.first = unaligned + (ALIGNED - wf_shared_address(unaligned) % ALIGNED) % ALIGNED;
    at.shared = wf_shared_address(at.first);
    at.group = (int)threadIdx.x / GROUP;
    at.t = (int)threadIdx.x % GROUP;
    at.block = wf_block_in_cluster();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            wf_barrier_begin(at.shared + AT_FULL + BARRIER * s, 1);
            wf_barrier_begin(at.shared + AT_EMPTY + BARRIER * s, wf_readers_of(readers));
        }
        for (int w = 0; w < WORKERS; w++)
            wf_barrier_begin(at.shared + AT_TURN + BARRIER * w, WF_WORKER_WARPS);
        wf_barriers_have_begun();
    }
    wf_sync_cluster();
    return at;
}

/* No block ends while another still copies to it. */
__device__ __forceinline__ void end_block()
{
    __syncwarp();
    wf_sync_cluster();
}

/* A worker's part of shared memory for sums that wait and for boxes. */
__device__ __forceinline__ float *aside_of(const block_position &at)
{
    return (float *)(at.first + AT_ASIDE) + (at.group - 1) * SUMS * GROUP;
}

} // namespace

#endif
