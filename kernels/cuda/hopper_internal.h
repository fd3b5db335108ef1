/*
 * kernels/cuda/hopper_internal.h - what only Hopper has, as functions: barriers that blocks of
 * a cluster share, copies of boxes by the tensor memory accelerator; and products of a
 * warpgroup, hopper_mma_internal.h. For .cu files of compute capability 9.0; the instructions
 * are those of NVIDIA's PTX ISA: mbarrier, cp.async.bulk.tensor.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_INTERNAL_H

#include "kernels/cuda/hopper_mma_internal.h"
#include "kernels/cuda/tensor_map_internal.h"

enum { WF_HOPPER_CLUSTER = 2 }; /* blocks that share shared memory */

/* ---- barriers in shared memory ---- */

static __device__ __forceinline__ void wf_barrier_begin(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

/* Arrives at the same barrier of every block of the cluster. */
static __device__ __forceinline__ void wf_arrive_everywhere(uint32_t at)
{
#pragma unroll
    for (int block = 0; block < WF_HOPPER_CLUSTER; block++)
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

/* Copies a box of 64 terms or rows of a factor, into this block's shared memory, or where
   `to_all` into that of every block of the cluster. */
static __device__ __forceinline__ void wf_copy_box(uint32_t to, const CUtensorMap *map,
                                                   uint32_t full, int x, int y, bool to_all)
{
    if (to_all)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
            "l"(map), "r"(full), "r"(x), "r"(y), "h"((uint16_t)((1 << WF_HOPPER_CLUSTER) - 1))
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
            "l"(map), "r"(full), "r"(x), "r"(y)
            : "memory");
}

#endif
