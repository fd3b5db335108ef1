/*
 * kernels/cuda/tensor_product_hopper.cu - tensor products by wgmma, for compute capability 9.0.
 *
 * A block makes 128 x 128 elements of a node after the other. A thread of its first warpgroup has tiles of
 * the factors copied to shared memory by the tensor memory accelerator, some stages ahead, which puts zeros
 * where a piece ends; the other two warpgroups multiply them, 64 rows each, and meet the first at
 * two barriers a stage: full, empty. Of two sums that wait one is in registers, one in shared memory,
 * from where the result leaves while the next tile is multiplied.
 */
#include "kernels/cuda/tensor_tile_internal.h"

#ifndef WF_CUDA_EMULATED
#include <cuda.h>

enum {
    CLUSTER = 2, /* blocks with neighbouring rows, which share tiles of b */
    TILE = WF_TENSOR_TILE,
    STAGES = 5,
    OPERAND = TILE * WF_TILE_LINE,
    STAGE = 2 * OPERAND,
    GROUP = 128, /* threads of a warpgroup */
    WORKERS = 2, /* warpgroups that multiply */
    WORKER_ROWS = TILE / WORKERS,
    THREADS = (1 + WORKERS) * GROUP,
    SUMS = TILE * TILE / WORKERS / GROUP,
    ALIGNED = 1024, /* a stage, as the swizzle wants it */
    ASIDE = SUMS * WORKERS * GROUP * 4,
    BARRIER = 8,
    SHARED = ALIGNED + STAGES * STAGE + ASIDE + 2 * STAGES * BARRIER
};

namespace
{

/* A product of up to N pieces, and each of its factors and results as a tensor map. */
template <int N> struct mapped {
    wf_tensor_product p;
    uint16_t units[WF_TENSOR_CHUNKS + 1]; /* of nodes of so many chunks: four bits a unit */
    CUtensorMap to, gelu, a[N], b[N];
};

/* Where stages, sums put aside and barriers lie in shared memory, from its first aligned byte on. */
enum { AT_ASIDE = STAGES * STAGE, AT_FULL = AT_ASIDE + ASIDE, AT_EMPTY = AT_FULL + STAGES * BARRIER };

__device__ __forceinline__ void barrier_begin(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

/* At the same barrier of every block of the cluster. */
__device__ __forceinline__ void arrive_everywhere(uint32_t at)
{
#pragma unroll
    for (int block = 0; block < CLUSTER; block++)
        asm volatile("{\n"
                     " .reg .b32 there;\n"
                     " mapa.shared::cluster.u32 there, %0, %1;\n"
                     " mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                     "}" ::"r"(at),
                     "r"(block)
                     : "memory");
}

__device__ __forceinline__ void sync_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ int block_in_cluster(void)
{
    int rank;

    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void wait_for(uint32_t at, int phase)
{
    asm volatile("{\n"
                 " .reg .pred done;\n"
                 "again:\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 " @!done bra again;\n"
                 "}" ::"r"(at),
                 "r"(phase)
                 : "memory");
}

/* Stages in turn: which, and in which round of all. */
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

/* ---- wgmma ---- */

__device__ __forceinline__ void sums_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void sums_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void sums_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* A tile as the instruction takes it: its address, the distance of blocks of 64 rows where terms do not
   lie along, that of eight lines, the swizzle of 128 bytes. All distances in units of 16 bytes. */
template <bool ALONG> __device__ __forceinline__ uint64_t described(uint32_t tile)
{
    return (uint64_t)((tile & 0x3ffff) >> 4) | (uint64_t)(ALONG ? 1 : WF_TILE_BLOCK / 16) << 16 |
           (uint64_t)(8 * WF_TILE_LINE / 16) << 32 | (uint64_t)1 << 62;
}

/* d[64 x 128] += 16 terms of a b^T. */
template <bool A, bool B>
__device__ __forceinline__ void multiply(float (&d)[SUMS], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, 1, 1, 1, %66, %67;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
                   "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B));
}

/* How far 16 terms are, in units of 16 bytes. */
template <bool ALONG> __device__ __forceinline__ uint64_t step_of(int step)
{
    return (uint64_t)step * (ALONG ? 2 * WF_TILE_STEP : WF_TILE_STEP * WF_TILE_LINE) / 16;
}

/* ---- the first warpgroup ---- */

/* A box of 64 terms or rows of a factor, into this block's shared memory, or where `to_all` into
   that of every block of the cluster. */
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t full, int x,
                                         int y, bool to_all)
{
    if (to_all)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                     "l"(map), "r"(full), "r"(x), "r"(y), "h"((uint16_t)((1 << CLUSTER) - 1))
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                     "l"(map), "r"(full), "r"(x), "r"(y)
                     : "memory");
}

/* The tile of a, whole; of b, this block's share, which goes to all blocks. */
template <bool A, bool B>
__device__ __forceinline__ void copy_tiles(const CUtensorMap *a, const CUtensorMap *b, uint32_t stage,
                                           uint32_t full, int row, int column, int term, int block)
{
    constexpr int SHARE = TILE / CLUSTER; /* 64 or 128 rows of b */

    if (A) {
        copy_box(stage, a, full, term, row, false);
    } else {
        copy_box(stage, a, full, row, term, false);
        copy_box(stage + WF_TILE_BLOCK, a, full, row + 64, term, false);
    }
    stage += OPERAND + block * SHARE * WF_TILE_LINE;
    column += block * SHARE;
    if (B) {
        copy_box(stage, b, full, term, column, CLUSTER > 1);
    } else {
        copy_box(stage, b, full, column, term, CLUSTER > 1);
        if (SHARE > 64)
            copy_box(stage + WF_TILE_BLOCK, b, full, column + 64, term, false);
    }
}

/* A cluster's jobs; its blocks have one row of tiles each. */
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

                wait_for(shared + AT_EMPTY + BARRIER * now.stage, now.round ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
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

/* The stage before this one has been multiplied: each warp says so. */
__device__ __forceinline__ void last_is_read(uint32_t shared, turn now)
{
    int last = now.stage ? now.stage - 1 : STAGES - 1;

    if (threadIdx.x % WF_WARP == 0)
        arrive_everywhere(shared + AT_EMPTY + BARRIER * last);
}

/* 16 terms `steps` times of the next stage are being added to d, those of the stage before have been. */
template <bool A, bool B, int STEPS>
__device__ __forceinline__ void sum_stage(float (&d)[SUMS], uint32_t shared, turn *now, int worker,
                                          bool other_is_read)
{
    uint32_t tile = shared + now->stage * STAGE;
    uint64_t a = described<A>(tile + worker * WF_TILE_BLOCK), b = described<B>(tile + OPERAND);

    wait_for(shared + AT_FULL + BARRIER * now->stage, now->round);
    sums_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        multiply<A, B>(d, a + step_of<A>(step), b + step_of<B>(step));
    sums_commit();
    sums_wait<1>();
    if (other_is_read)
        last_is_read(shared, *now);
    next(now);
}

/* The sum of a chunk. Its last stage ends with zeros, which add nothing: of two kinds of stages alone the
   instructions stay in their cache. */
template <bool A, bool B>
__device__ __forceinline__ void sum_chunk(const wf_tensor_product &p, int chunk, float (&d)[SUMS],
                                          uint32_t shared, turn *now, int worker)
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
    sums_wait<0>();
    if (any)
        last_is_read(shared, *now);
}

/* A warpgroup's own barrier. */
__device__ __forceinline__ void sync_group(int worker)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + worker), "n"((int)GROUP) : "memory");
}

/* ---- results: 64 rows of a warpgroup as boxes of 128 bytes a row in its part of shared memory ---- */

/* Where the pair from this column on lies. */
template <class T> __device__ __forceinline__ char *box_at(char *boxes, int row, int column)
{
    int byte = column * (int)sizeof(T);

    return boxes + byte / WF_TILE_LINE * (WORKER_ROWS * WF_TILE_LINE) + row * WF_TILE_LINE +
           ((byte / 16 ^ row) % 8) * 16 + byte % 16;
}

__device__ __forceinline__ void put_pair(char *to, float low, float high, float)
{
    *(float2 *)to = make_float2(low, high);
}

__device__ __forceinline__ void put_pair(char *to, float low, float high, wf_bf16)
{
    *(uint32_t *)to = wf_bf16_pair(low, high);
}

/* Those who read a warpgroup's part of shared memory are through. */
__device__ __forceinline__ void boxes_are_read(int worker)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    sync_group(worker);
}

template <class T>
__device__ __forceinline__ void store_boxes(const CUtensorMap *map, const char *boxes, int row,
                                            int column, int node)
{
    constexpr int WIDTH = WF_TILE_LINE / (int)sizeof(T);

#pragma unroll
    for (int i = 0; i < TILE / WIDTH; i++)
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], "
                     "[%1];" ::"l"(map),
                     "r"(wf_shared_address(boxes) + i * WORKER_ROWS * WF_TILE_LINE),
                     "r"(column + i * WIDTH), "r"(row), "r"(node)
                     : "memory");
}

/* What is done to sums on their way: nothing, or what wf_finish does. */
enum finish { PLAIN, ADDED, BIASED, GELU };

/* The sums as boxes. One loop for each way, so that none jumps over the instructions of the others. */
template <class T, int WAY>
__device__ __forceinline__ void fill_boxes(const wf_tensor_product &p, const float (&sum)[SUMS],
                                           const T *before, char *boxes, int rows, int columns,
                                           int column, int t)
{
    constexpr int SECOND = TILE * WORKER_ROWS * (int)sizeof(T); /* of gelu */
    int down = t / WF_WARP * 16 + t % WF_WARP / 4, across = t % 4 * 2;
    wf_vector bias = {p.result.bias, p.result.bias_bf16};

#pragma unroll
    for (int i = 0; i < SUMS; i += 2) {
        int y = down + i / 2 % 2 * 8, x = across + i / 4 * 8;
        char *to = box_at<T>(boxes, y, x);
        float low = sum[i] + 0.0f, high = sum[i + 1] + 0.0f;

        if (WAY == ADDED && y < rows && x < columns) {
            const T *old = before + y * p.result.to_ld + x;

            low = wf_get(old[0]) + low;
            high = wf_get(old[1]) + high;
        }
        if (WAY >= BIASED && x < columns) {
            float first = wf_stored<T>(low) + wf_at(bias, column + x);
            float second = wf_stored<T>(high) + wf_at(bias, column + x + 1);

            if (WAY == GELU) {
                put_pair(to + SECOND, wf_gelu_of(first), wf_gelu_of(second), T());
            } else {
                low = first;
                high = second;
            }
        }
        put_pair(to, low, high, T());
    }
}

/* The sums become the result, and gelu's where there is one. */
template <class T, int N>
__device__ __forceinline__ void store(const mapped<N> &of, const float (&sum)[SUMS],
                                      const wf_tile_job &job, char *boxes, int worker, int t)
{
    const wf_cuda_result &r = of.p.result;
    int row = job.row * TILE + worker * WORKER_ROWS, column = job.column * TILE;
    int rows = (int)of.p.m - row, columns = (int)of.p.n - column;
    const T *before = (const T *)r.to + job.node * of.p.apart + row * r.to_ld + column;

    asm volatile("" : "+r"(t)); /* else addresses are computed before the first job, and kept */
    if (r.gelu)
        fill_boxes<T, GELU>(of.p, sum, before, boxes, rows, columns, column, t);
    else if (r.bias)
        fill_boxes<T, BIASED>(of.p, sum, before, boxes, rows, columns, column, t);
    else if (r.add)
        fill_boxes<T, ADDED>(of.p, sum, before, boxes, rows, columns, column, t);
    else
        fill_boxes<T, PLAIN>(of.p, sum, before, boxes, rows, columns, column, t);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    sync_group(worker);
    if (t == 0) {
        store_boxes<T>(&of.to, boxes, row, column, job.node);
        if (r.gelu)
            store_boxes<T>(&of.gelu, boxes + TILE * WORKER_ROWS * (int)sizeof(T), row, column, 0);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

/* The same for results that are not aligned. */
template <class T>
__device__ __forceinline__ void store_slowly(const wf_tensor_product &p, const float (&sum)[SUMS],
                                             const wf_tile_job &job, float *tile, int worker, int t)
{
#pragma unroll
    for (int i = 0; i < SUMS; i += 2)
        *(float2 *)wf_sum_at<TILE>(tile, t / WF_WARP * 16 + t % WF_WARP / 4 + i / 2 % 2 * 8,
                                   t % 4 * 2 + i / 4 * 8) = make_float2(sum[i], sum[i + 1]);
    sync_group(worker);
    wf_finish_tile<T, WORKER_ROWS, TILE, GROUP>(
        p, (T *)p.result.to + job.node * p.apart, tile,
        (int64_t)job.row * TILE + worker * WORKER_ROWS, (int64_t)job.column * TILE, t);
}

template <bool A, bool B, bool STORED, class T, int N>
__device__ __forceinline__ void work(const mapped<N> &of, uint32_t shared, float *aside, int worker,
                                     int block, int t)
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

/* STORED: results are aligned as the accelerator stores them. A kernel of both ways would keep some of
   its sums in local memory, for which there is hardly any cache left. */
template <bool A, bool B, bool STORED, class T, int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    hopper_kernel(const WF_GRID_CONSTANT mapped<N> of)
{
    WF_DYNAMIC_SHARED(char, unaligned);
    char *first = unaligned + (ALIGNED - wf_shared_address(unaligned) % ALIGNED) % ALIGNED;
    uint32_t shared = wf_shared_address(first);
    int group = (int)threadIdx.x / GROUP, t = (int)threadIdx.x % GROUP, block = block_in_cluster();

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_begin(shared + AT_FULL + BARRIER * s, 1);
            barrier_begin(shared + AT_EMPTY + BARRIER * s, CLUSTER * WORKERS * GROUP / WF_WARP);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    sync_cluster();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (t == 0)
            bring<A, B>(of, shared, block);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<A, B, STORED, T>(of, shared, (float *)(first + AT_ASIDE) + (group - 1) * SUMS * GROUP,
                      group - 1, block, t);
    }
    __syncwarp();
    sync_cluster(); /* no block ends while another still copies to it */
}

/* ---- the host's side ---- */

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                 const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                 const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's cuTensorMapEncodeTiled; NULL where it has none. */
encode_function *find_encode(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;

#if CUDART_VERSION >= 12050
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess)
        return NULL;
#else
    if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result) !=
        cudaSuccess)
        return NULL;
#endif
    return result == cudaDriverEntryPointSuccess ? (encode_function *)found : NULL;
}

CUresult encode(CUtensorMap *map, CUtensorMapDataType type, int dims, const void *data,
                const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box)
{
    static encode_function *const function = find_encode();
    static const cuuint32_t step[] = {1, 1, 1};

    return function ? function(map, type, (cuuint32_t)dims, (void *)data, size, stride, box, step,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
                    : CUDA_ERROR_NOT_SUPPORTED;
}

/* The units of a node of n chunks (wf_unit_of), the first in the lowest four bits: how many chunks,
   one or two, and four times how many nodes end with it. */
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

/* A factor of a piece: what lies outside of its rows and terms is zero. */
bool encode_factor(CUtensorMap *map, const void *data, int64_t ld, int64_t rows, int64_t depth,
                   bool along, int box_rows)
{
    const cuuint64_t size[] = {(cuuint64_t)(along ? depth : rows), (cuuint64_t)(along ? rows : depth)};
    const cuuint64_t stride = (cuuint64_t)ld * sizeof(wf_bf16);
    const cuuint32_t box[] = {64, (cuuint32_t)(along ? box_rows : (int)WF_TILE_DEPTH)};

    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, size, &stride, box) == CUDA_SUCCESS;
}

/* A result, node by node: what lies outside of it is not stored. False where it is not aligned. */
template <class T> bool encode_result(CUtensorMap *map, const wf_tensor_product *p, const void *data)
{
    bool bf16 = sizeof(T) == 2;
    const cuuint64_t size[] = {(cuuint64_t)p->n, (cuuint64_t)p->m, (cuuint64_t)1 << p->levels};
    const cuuint64_t stride[] = {(cuuint64_t)p->result.to_ld * sizeof(T),
                                 (cuuint64_t)(p->levels ? p->apart : p->m * p->result.to_ld) * sizeof(T)};
    const cuuint32_t box[] = {WF_TILE_LINE / sizeof(T), WORKER_ROWS, 1};

    return ((uintptr_t)data | stride[0] | stride[1]) % 16 == 0 &&
           encode(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3,
                  data, size, stride, box) == CUDA_SUCCESS;
}

template <bool STORED, class T, int N>
cudaError_t launch(cudaStream_t stream, const mapped<N> &of, int processors)
{
    static void (*const kernel[])(const mapped<N>) = {
        hopper_kernel<false, false, STORED, T, N>, hopper_kernel<false, true, STORED, T, N>,
        hopper_kernel<true, false, STORED, T, N>, hopper_kernel<true, true, STORED, T, N>};
    const wf_tensor_product *p = &of.p;
    auto *k = kernel[2 * p->a_along + p->b_along];
    int64_t blocks = (wf_ceil(p->m, CLUSTER * TILE) * wf_ceil(p->n, TILE) << p->levels) * CLUSTER;
    cudaError_t code = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);

    if (code != cudaSuccess)
        return code;
    return wf_launch(k, (unsigned)(blocks < processors ? blocks : (int64_t)processors / CLUSTER * CLUSTER),
                     THREADS, SHARED, stream, of);
}

template <class T, int N>
cudaError_t map_and_launch(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    mapped<N> of;
    bool stored = !(p->result.add && p->result.bias) && encode_result<T>(&of.to, p, p->result.to) &&
                  (!p->result.gelu ||
                   (sizeof(T) == 2 && encode_result<T>(&of.gelu, p, p->result.gelu)));

    of.p = *p;
    for (int n = 0; n <= WF_TENSOR_CHUNKS; n++)
        of.units[n] = units_of(n);
    for (int i = 0; i < p->chunks * p->members; i++) {
        const wf_tensor_piece *x = &p->piece[i];

        if (x->depth > 0 &&
            !(encode_factor(&of.a[i], x->a, x->a_ld, p->m, x->depth, p->a_along, TILE) &&
              encode_factor(&of.b[i], x->b, x->b_ld, p->n, x->depth, p->b_along, TILE / CLUSTER)))
            return cudaErrorNotSupported;
    }
    if (stored)
        return launch<true, T, N>(stream, of, processors);
    /* what is seldom asked for has one size of kernels */
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

cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t stream, const wf_tensor_product *p,
                                                 int processors)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p, processors)
                                     : launch_any<float>(stream, p, processors);
}

#else

/* The emulated device has no such instruction, and does not say that it is a Hopper. */
cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t, const wf_tensor_product *, int)
{
    return cudaErrorNotSupported;
}

#endif
