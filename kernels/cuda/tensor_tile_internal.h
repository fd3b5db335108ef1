/*
 * kernels/cuda/tensor_tile_internal.h - what the kernels of tensor products have in common:
 * tiles of factors in shared memory, and the midpoint tree as the order in which sums of chunks
 * are put aside and added. For .cu files.
 *
 * A tile is 64 terms of some rows of a factor, in lines of 128 bytes: 64 terms of a row where
 * the factor's terms lie along its rows, else 64 rows of a term, a block of 64 rows after the
 * other. The eight units of 16 bytes of line l lie at their number xor l % 8, the 128-byte
 * swizzle of Hopper's instruction, so that eight lines' units of one number are in all banks.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_TILE_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_TILE_INTERNAL_H

#include "kernels/cuda/nf4_tile_internal.h"
#include "kernels/cuda/product_finish_internal.h"
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/cuda/tile_schedule_internal.h"

enum {
    WF_TILE_DEPTH = WF_STAGE_DEPTH, /* terms of a tile */
    WF_TILE_LINE = 128,             /* bytes */
    WF_TILE_BLOCK = WF_TILE_LINE * WF_TILE_DEPTH,
    WF_TILE_STEP = 16, /* terms of one instruction */
    WF_TILE_STAGES = 3 /* tiles of both factors: one is multiplied, others are on their way */
};

/* Returns an address in shared memory as its instructions take it. */
static __device__ __forceinline__ uint32_t wf_shared_address(const void *p)
{
#ifdef WF_CUDA_EMULATED
    return (uint32_t)((const char *)p - (const char *)emulator_dynamic_shared());
#else
    return (uint32_t)__cvta_generic_to_shared(p);
#endif
}

/* 16 bytes on their way to shared memory, or zeros; `from` is aligned, and read only where
   valid. */
static __device__ __forceinline__ void wf_copy_unit(void *to, const void *from, bool valid)
{
#ifdef WF_CUDA_EMULATED
    if (valid && ((uintptr_t)to | (uintptr_t)from) % 16)
        __builtin_trap(); /* as a GPU does */
    if (valid)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(wf_shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
#endif
}

static __device__ __forceinline__ void wf_copy_commit(void)
{
#ifndef WF_CUDA_EMULATED
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most N groups of the thread's copies are under way. */
template <int N> static __device__ __forceinline__ void wf_copy_wait(void)
{
#ifndef WF_CUDA_EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* The units of a tile of ROWS rows that are loaded by thread t of THREADS: one of each of EACH
   lines, LINES apart. */
template <int ROWS, int THREADS, bool ALONG> struct wf_tile_share {
    enum {
        UNITS = ALONG ? 8 : ROWS / 8,
        LINES = THREADS / UNITS,
        EACH = (ALONG ? ROWS : (int)WF_TILE_DEPTH) / LINES,
        APART = LINES * WF_TILE_LINE /* bytes */
    };
    int line, unit;

    static_assert(LINES % 8 == 0, "a thread's lines have one swizzle");

    __device__ __forceinline__ explicit wf_tile_share(int t) : line(t / UNITS), unit(t % UNITS)
    {
    }

    /* Returns where the first one lies; the others follow APART from each other. */
    __device__ __forceinline__ char *in(char *tile) const
    {
        return tile + unit / 8 * WF_TILE_BLOCK + line * WF_TILE_LINE + ((unit ^ line) % 8) * 16;
    }
};

/* Loads a tile of ROWS rows from `first` of `rows` on, terms k to k + 64 of `depth`, zeros
   after both; by THREADS threads, of which this is number t. */
template <int ROWS, int THREADS, bool ALONG>
static __device__ __forceinline__ void wf_load_tile(char *to, const wf_bf16 *f, int64_t ld,
                                                    int64_t first, int64_t rows, int64_t k,
                                                    int64_t depth, int t)
{
    typedef wf_tile_share<ROWS, THREADS, ALONG> share;
    const share s(t);
    int64_t row = first + (ALONG ? s.line : 8 * s.unit),
            term = k + (ALONG ? 8 * s.unit : s.line);
    const wf_bf16 *from = f + (ALONG ? row * ld + term : term * ld + row);

    to = s.in(to);
#pragma unroll
    for (int i = 0; i < share::EACH; i++) {
        int64_t more = i * share::LINES;
        bool valid =
            ALONG ? row + more < rows && term < depth : row < rows && term + more < depth;

        wf_copy_unit(to + i * share::APART, valid ? from + more * ld : f, valid);
    }
}

/* ---- a job: a tile of one node ---- */

struct wf_tile_job {
    int row, column;  /* in tiles */
    int first, count; /* chunks */
    int node;
};

/* Node `node` of 2^levels over n chunks, by the halves of which it is the left or the right. */
static __host__ __device__ __forceinline__ void wf_node_chunks(wf_tile_job *job, int n,
                                                               int levels)
{
    job->first = 0;
    for (int l = levels - 1; l >= 0; l--) {
        int left = n / 2;

        if (job->node >> l & 1) {
            job->first += left;
            n -= left;
        } else {
            n = left;
        }
    }
    job->count = n;
}

/* Job number `job` of those over down x across tiles of every node, in bands of `band` rows. */
static __device__ __forceinline__ wf_tile_job wf_job_of(const wf_tensor_product &p, int job,
                                                        int down, int across, int band = 16)
{
    wf_tile_position at = wf_tile_position_of(job % (down * across), down, across, band);
    wf_tile_job j;

    j.node = job / (down * across);
    j.row = at.row;
    j.column = at.column;
    wf_node_chunks(&j, p.chunks, p.levels);
    return j;
}

/* The tree over n chunks is made in units of its lowest nodes, of one chunk or two, or of one
   where `most` is that. Of the one that begins with chunk l: how many chunks it has, and how
   many sums that wait are added to it then: the nodes that end with it. */
struct wf_tree_unit {
    int chunks, ends;
};

static __host__ __device__ __forceinline__ wf_tree_unit wf_unit_of(int l, int n, int most = 2)
{
    wf_tree_unit unit = {0, 0};

    while (n > most) {
        int left = n / 2;

        if (l < left) {
            n = left;
            unit.ends = 0;
        } else {
            l -= left;
            n -= left;
            unit.ends++;
        }
    }
    unit.chunks = n;
    return unit;
}

/* ---- the tiles of a job's pieces, one after the other ---- */

struct wf_tile_walk {
    int piece, end;
    int64_t k;
};

static __device__ __forceinline__ void wf_skip_empty(const wf_tensor_product &p,
                                                     wf_tile_walk *w)
{
    while (w->piece < w->end && w->k >= p.piece[w->piece].depth) {
        w->piece++;
        w->k = 0;
    }
}

/* ---- sums of a thread ---- */

template <int N>
static __device__ __forceinline__ void wf_add_to(float (&sum)[N], const float (&left)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = left[i] + sum[i];
}

template <int N>
static __device__ __forceinline__ void wf_put_aside(float (&to)[N], const float (&sum)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = sum[i];
}

template <int N> static __device__ __forceinline__ void wf_clear(float (&sum)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = 0.0f;
}

/* The midpoint tree over `count` chunks, at most eight; sum_chunk(l, to) makes to the sum of
   chunk l, in order. Sums that wait are in registers: two, and the first chunk of a pair. */
template <int N, class F>
static __device__ __forceinline__ void wf_sum_chunks(int count, float (&sum)[N], F sum_chunk)
{
    float second[N], lower[N], upper[N];
    int waiting = 0;

    for (int l = 0; l < count;) {
        wf_tree_unit unit = wf_unit_of(l, count);

        sum_chunk(l, sum);
        if (unit.chunks == 2) {
            sum_chunk(l + 1, second);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] = sum[i] + second[i];
        }
        for (; unit.ends > 0; unit.ends--) {
            if (--waiting == 0)
                wf_add_to(sum, lower);
            else
                wf_add_to(sum, upper);
        }
        if (waiting == 0)
            wf_put_aside(lower, sum);
        else
            wf_put_aside(upper, sum);
        waiting++;
        l += unit.chunks;
    }
}

/*
 * ---- a block's part of a product, from tiles that its threads load ----
 *
 * S, a shape, is DOWN x ACROSS sums by THREADS threads, SUMS of each, in stages of STAGE bytes
 * of which the tile of a has TILE_A: row_of and column_of of a thread's sums, and
 * multiply_tiles(sum, a, b, left, t), which adds up to `left` terms of two tiles. Shared memory
 * begins at aligned(); tiles_are_written() comes before the barrier after which tiles are
 * multiplied. load(stage) brings the next tiles, and begins a group of copies, which is empty
 * where there are none: waits count them.
 */

/* Has the first tiles brought. */
template <class S, class LOAD>
static __device__ __forceinline__ void wf_begin_tiles(char *stages, LOAD load)
{
    for (int s = 0; s < WF_TILE_STAGES - 1; s++)
        load(stages + s * S::STAGE);
}

/* Adds the `left` terms of the next tiles to the sums of threads that have some (`works`),
   while others are brought. */
template <class S, bool A, bool B, class LOAD>
static __device__ __forceinline__ void wf_add_tiles(float (&sum)[S::SUMS], char *stages,
                                                    int *stage, int64_t left, bool works,
                                                    LOAD load)
{
    const char *a = stages + *stage * S::STAGE;

    wf_copy_wait<WF_TILE_STAGES - 2>();
    S::tiles_are_written();
    __syncthreads();
    load(stages + (*stage + WF_TILE_STAGES - 1) % WF_TILE_STAGES * S::STAGE);
    if (works)
        S::template multiply_tiles<A, B>(sum, a, a + S::TILE_A, left, (int)threadIdx.x);
    *stage = (*stage + 1) % WF_TILE_STAGES;
}

/* Puts all sums of a block into its shared memory, where wf_sum_at finds them, when no tile is
   needed there any more. */
template <class S>
static __device__ __forceinline__ void wf_put_sums(float *tile, const float (&sum)[S::SUMS])
{
    int t = (int)threadIdx.x;

    asm volatile("" : "+r"(t)); /* else addresses are computed before the first job, and kept */
    wf_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < S::SUMS; i++)
        *wf_sum_at<S::ACROSS>(tile, S::row_of(t, i), S::column_of(t, i)) = sum[i];
    __syncthreads();
}

/* ---- the second factor where it is nf4 ---- */

/*
 * The second factor of a product some of whose members are matrices of nf4; others are loaded
 * as by STORED, whose load copies a tile on its way. begin() comes before all others, finish()
 * where no tile is left to load.
 */
template <class STORED, class PUT, int ROWS, int DEPTH, int THREADS>
struct wf_coded_weights : STORED {
    enum { TABLES = WF_NF4_TABLES }; /* floats of shared memory */

    wf_nf4_tile<PUT, ROWS, DEPTH, THREADS, (bool)STORED::ALONG> next;
    const float *tables;

    __device__ __forceinline__ void begin(const wf_tensor_product &p, float *room)
    {
        wf_nf4_tables(room, p.code_levels, THREADS);
        tables = room;
        next.to = NULL;
        __syncthreads();
    }

    __device__ __forceinline__ void load(const wf_tensor_product &p, int q,
                                         typename PUT::tile *tile, int64_t first, int64_t k,
                                         int t)
    {
        const int member = q % p.members;

        finish(p, t);
        if (p.nf4[member].bytes)
            next.load(p.nf4, member, tile, p.piece[q].b_ld, first, p.n, k, p.piece[q].depth, t);
        else
            STORED::load(p, q, tile, first, k, t);
    }

    __device__ __forceinline__ void finish(const wf_tensor_product &p, int t)
    {
        next.finish(p.nf4, tables, t);
    }
};

#endif
