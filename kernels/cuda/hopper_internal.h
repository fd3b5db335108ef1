/*
 * kernels/cuda/hopper_internal.h - what only Hopper has, as functions: barriers that blocks of
 * a cluster share, copies of boxes by the tensor memory accelerator, products of a warpgroup.
 * For .cu files of compute capability 9.0; the instructions are those of NVIDIA's PTX ISA:
 * mbarrier, cp.async.bulk.tensor, wgmma.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_INTERNAL_H

#include "kernels/cuda/tensor_map_internal.h"
#include "kernels/cuda/tile_schedule_internal.h"

enum { WF_HOPPER_SUMS = 64 /* sums of a thread: a warpgroup's 64 x 128 */ };

#ifdef WF_CUDA_EMULATED
#include "kernels/cuda/hopper_emulated_internal.h"
#else

/* ---- barriers in shared memory ---- */

static __device__ __forceinline__ void wf_barrier_begin(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

/* Makes the beginning of barriers known to the whole cluster, and to the accelerator. */
static __device__ __forceinline__ void wf_barriers_have_begun(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives at a barrier of this block. */
static __device__ __forceinline__ void wf_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Arrives, with `bytes` bytes that are still to come. */
static __device__ __forceinline__ void wf_expect(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

/* Arrives at the same barrier of every block of the cluster. */
static __device__ __forceinline__ void wf_arrive_everywhere(uint32_t at)
{
#pragma unroll
    for (int block = 0; block < WF_CLUSTER; block++)
        asm volatile("{\n"
                     " .reg .b32 there;\n"
                     " mapa.shared::cluster.u32 there, %0, %1;\n"
                     " mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                     "}" ::"r"(at),
                     "r"(block)
                     : "memory");
}

static __device__ __forceinline__ void wf_sync_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

static __device__ __forceinline__ int wf_block_in_cluster(void)
{
    int rank;

    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ void wf_wait_for(uint32_t at, int phase)
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

/* Waits for THREADS threads of the block at one of its numbered barriers. */
template <int THREADS> static __device__ __forceinline__ void wf_sync_threads(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* Changes how many registers each thread of a warpgroup has: to fewer, or to more when others
   have given theirs. */
template <int COUNT> static __device__ __forceinline__ void wf_give_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> static __device__ __forceinline__ void wf_take_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- boxes ---- */

/* Copies a box of 64 terms or rows of a factor, into this block's shared memory, or where
   `to_all` into that of every block of the cluster. */
static __device__ __forceinline__ void wf_copy_box(uint32_t to, const CUtensorMap *map,
                                                   uint32_t full, int x, int y, bool to_all)
{
    if (to_all)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
            "l"(map), "r"(full), "r"(x), "r"(y), "h"((uint16_t)((1 << WF_CLUSTER) - 1))
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
            "l"(map), "r"(full), "r"(x), "r"(y)
            : "memory");
}

/* Stores a box from this block's shared memory; what lies outside of the map is left out. */
static __device__ __forceinline__ void wf_store_box(const CUtensorMap *map, uint32_t from,
                                                    int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], "
                 "[%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Lets the accelerator see what this thread has written to shared memory. */
static __device__ __forceinline__ void wf_boxes_are_written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void wf_stores_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until this thread's stores have read shared memory, or are done. */
static __device__ __forceinline__ void wf_stores_have_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

static __device__ __forceinline__ void wf_stores_are_done(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- wgmma ---- */

static __device__ __forceinline__ void wf_sums_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wf_sums_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> static __device__ __forceinline__ void wf_sums_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Names of the sums of an instruction in its text, and the sums as its operands. */
#define WF_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WF_NAMES_32                                                                            \
    WF_NAMES_16                                                                                \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WF_NAMES_64                                                                            \
    WF_NAMES_32                                                                                \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"         \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WF_FOUR(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WF_SUMS_16(d, i)                                                                       \
    WF_FOUR(d, i), WF_FOUR(d, (i) + 4), WF_FOUR(d, (i) + 8), WF_FOUR(d, (i) + 12)
#define WF_SUMS_32(d, i) WF_SUMS_16(d, i), WF_SUMS_16(d, (i) + 16)
#define WF_SUMS_64(d, i) WF_SUMS_32(d, i), WF_SUMS_32(d, (i) + 32)

/* d[64 x 128] += 16 terms of a b^T, or = where ADD is false. */
template <bool A, bool B, bool ADD = true>
static __device__ __forceinline__ void wf_multiply(float (&d)[WF_HOPPER_SUMS], uint64_t a,
                                                   uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WF_NAMES_64
                 "}, %64, %65, %68, 1, 1, %66, %67;"
                 : WF_SUMS_64(d, 0)
                 : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B), "n"((int)ADD));
}

/* The same of 64 columns. */
template <bool A, bool B, bool ADD = true>
static __device__ __forceinline__ void wf_multiply(float (&d)[WF_HOPPER_SUMS / 2], uint64_t a,
                                                   uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WF_NAMES_32
                 "}, %32, %33, %36, 1, 1, %34, %35;"
                 : WF_SUMS_32(d, 0)
                 : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B), "n"((int)ADD));
}

/* The same of 32 columns. */
template <bool A, bool B, bool ADD = true>
static __device__ __forceinline__ void wf_multiply(float (&d)[WF_HOPPER_SUMS / 4], uint64_t a,
                                                   uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" WF_NAMES_16
                 "}, %16, %17, %20, 1, 1, %18, %19;"
                 : WF_SUMS_16(d, 0)
                 : "l"(a), "l"(b), "n"((int)!A), "n"((int)!B), "n"((int)ADD));
}

/* d[64 x 128] += 16 terms of a b^T, with a in registers: a warp's 16 rows as a fragment of
   mma.sync. */
template <bool B>
static __device__ __forceinline__ void wf_multiply_rows(float (&d)[WF_HOPPER_SUMS],
                                                        const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WF_NAMES_64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, %69;"
                 : WF_SUMS_64(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)!B));
}

/* The same of 64 columns. */
template <bool B>
static __device__ __forceinline__ void wf_multiply_rows(float (&d)[WF_HOPPER_SUMS / 2],
                                                        const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WF_NAMES_32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
                 : WF_SUMS_32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)!B));
}

#undef WF_NAMES_16
#undef WF_NAMES_32
#undef WF_NAMES_64
#undef WF_FOUR
#undef WF_SUMS_16
#undef WF_SUMS_32
#undef WF_SUMS_64

#endif

/* ---- operands of wgmma ---- */

/* A tile as the instruction takes it: its address, the distance of blocks of 64 rows where
   terms do not lie along (LINES terms each), that of eight lines, the swizzle of 128 bytes. All
   distances in units of 16 bytes. */
template <bool ALONG, int LINES = WF_TILE_DEPTH>
static __device__ __forceinline__ uint64_t wf_described(uint32_t tile)
{
    return (uint64_t)((tile & 0x3ffff) >> 4) |
           (uint64_t)(ALONG ? 1 : LINES * WF_TILE_LINE / 16) << 16 |
           (uint64_t)(8 * WF_TILE_LINE / 16) << 32 | (uint64_t)1 << 62;
}

/* Returns the distance of 16 terms, in units of 16 bytes. */
template <bool ALONG> static __device__ __forceinline__ uint64_t wf_step_of(int step)
{
    return (uint64_t)step * (ALONG ? 2 * WF_TILE_STEP : WF_TILE_STEP * WF_TILE_LINE) / 16;
}

/* Begins to add STEPS times 16 terms of two tiles. */
template <bool A, bool B, int STEPS, int SUMS>
static __device__ __forceinline__ void wf_multiply_steps(float (&d)[SUMS], uint64_t a,
                                                         uint64_t b)
{
    wf_sums_begin();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wf_multiply<A, B>(d, a + wf_step_of<A>(step), b + wf_step_of<B>(step));
    wf_sums_commit();
}

#endif
