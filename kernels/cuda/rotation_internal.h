/* kernels/cuda/rotation_internal.h - the rotation of two features of a head. For .cu files. */
#ifndef WF_KERNELS_CUDA_ROTATION_INTERNAL_H
#define WF_KERNELS_CUDA_ROTATION_INTERNAL_H

#include "kernels/cuda/launch_internal.h"

/* Rotates (p, q) by an angle. */
static __device__ __forceinline__ void wf_rotate(float *p, float *q, float cosine, float sine)
{
    const float rotated = fmaf(-*q, sine, *p * cosine);

    *q = fmaf(*p, sine, *q * cosine);
    *p = rotated;
}

#endif
