/* kernels/cuda/lanes_internal.h - the CPU's sums of a row in 16 lanes, in one thread. For .cu
   files. */
#ifndef WF_KERNELS_CUDA_LANES_INTERNAL_H
#define WF_KERNELS_CUDA_LANES_INTERNAL_H

#include "kernels/cuda/launch_internal.h"

enum { WF_LANES_OF_SUM = 16 };

static __device__ __forceinline__ void wf_clear_lanes(float (&lane)[WF_LANES_OF_SUM])
{
#pragma unroll
    for (int l = 0; l < WF_LANES_OF_SUM; l++)
        lane[l] = 0.0f;
}

/* Adds lanes 8, 4, 2, 1 apart: v16_sum. */
static __device__ __forceinline__ float wf_sum_of_lanes(float (&lane)[WF_LANES_OF_SUM])
{
#pragma unroll
    for (int step = WF_LANES_OF_SUM / 2; step > 0; step /= 2)
#pragma unroll
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

#endif
