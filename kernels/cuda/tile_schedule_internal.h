/*
 * kernels/cuda/tile_schedule_internal.h - who does what when in the products of Hopper: the
 * order of tiles, the ring of stages, the turns of the workers. Plain functions of numbers, for
 * kernels and for tests/cuda/test_tile_schedule.c, which goes through them without a GPU.
 *
 * Clusters of blocks take jobs, tiles of a node, by their number. In each block a thread fills
 * stages of shared memory, one after the other in a ring, in the order of jobs; workers,
 * warpgroups that multiply, empty them in that order. A barrier of a stage is waited for by its
 * phase, which changes from round to round of the ring.
 *
 * Workers take turns: in the turn of one the other adds sums, or stores them. Where a node has
 * one chunk a worker makes all of a job, and a turn is the whole of it: it reads the stages of
 * every second job. Where sums of chunks have to wait for others, registers have room for half
 * of a job: both workers read all stages, and a turn is as many of a chunk as TURN says, so
 * that the first worker never waits for a stage that the second still needs.
 */
#ifndef WF_KERNELS_CUDA_TILE_SCHEDULE_INTERNAL_H
#define WF_KERNELS_CUDA_TILE_SCHEDULE_INTERNAL_H

#include <stdint.h>

#ifdef __CUDACC__
#define WF_SCHEDULE static __host__ __device__ __forceinline__
#else
#define WF_SCHEDULE static inline
#endif

enum {
    WF_SIDE = 128, /* rows of a block's tile, and its columns */
    WF_STAGES = 5,
    WF_STAGE_DEPTH = 64, /* terms of a stage */
    WF_WORKERS = 2,
    WF_WORKER_WARPS = 4,
    WF_CLUSTER = 2,          /* blocks that share tiles of b, each with a row of tiles */
    WF_TURN = 2,             /* most stages of a turn where both workers read all */
    WF_WHOLE_CHUNK = 1 << 30 /* most stages where a worker has a job to itself */
};

/* ---- the order of tiles ---- */

typedef struct wf_tile_position {
    int row, column;
} wf_tile_position;

/* Returns the jobs of a product: a cluster's tile has a row of tiles of 128 x 128 elements for
   each of its blocks, and every node has all tiles. */
WF_SCHEDULE int64_t wf_jobs_of(int64_t m, int64_t n, int levels)
{
    int64_t down = (m + WF_CLUSTER * WF_SIDE - 1) / (WF_CLUSTER * WF_SIDE);

    return down * ((n + WF_SIDE - 1) / WF_SIDE) << levels;
}

/* Returns the position of tile number `tile` of down x across: down the rows of a band, column
   after column, band after band. Tiles side by side in this order share rows of a or columns of
   b in the second level cache. */
WF_SCHEDULE wf_tile_position wf_tile_position_of(int tile, int down, int across, int band)
{
    int first = tile / (band * across) * band, rows = down - first < band ? down - first : band;
    wf_tile_position at;

    tile -= first * across;
    at.row = first + tile % rows;
    at.column = tile / rows;
    return at;
}

/* ---- the ring of stages ---- */

/* The next stage, and the phase of its barrier in this round. */
typedef struct wf_ring {
    int stage, phase;
} wf_ring;

WF_SCHEDULE void wf_ring_next(wf_ring *at)
{
    if (++at->stage == WF_STAGES) {
        at->stage = 0;
        at->phase ^= 1;
    }
}

/* Goes over stages that the other worker reads. */
WF_SCHEDULE void wf_ring_skip(wf_ring *at, int stages)
{
    at->stage += stages;
    at->phase ^= at->stage / WF_STAGES & 1;
    at->stage %= WF_STAGES;
}

WF_SCHEDULE int wf_ring_before(wf_ring at)
{
    return at.stage ? at.stage - 1 : WF_STAGES - 1;
}

/* Returns the stages of a piece of `depth` terms. */
WF_SCHEDULE int wf_stages_of(int64_t depth)
{
    return (int)((depth + WF_STAGE_DEPTH - 1) / WF_STAGE_DEPTH);
}

/* Returns the arrivals at which a stage is empty: of each warp that reads it, in all blocks. */
WF_SCHEDULE int wf_readers_of(int workers)
{
    return WF_CLUSTER * workers * WF_WORKER_WARPS;
}

/* ---- turns ---- */

/* Returns the phase of a worker's barrier at which its turn number `turn` begins: that of the
   other's turn before it. The first worker's first is there at once. */
WF_SCHEDULE int wf_turn_phase(int worker, int turn)
{
    return (turn & 1) ^ (worker == 0);
}

#endif
