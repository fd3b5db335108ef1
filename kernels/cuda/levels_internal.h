/* kernels/cuda/levels_internal.h - the tables of numbers in 8 and 4 bits, in the device's
   memory. */
#ifndef WF_KERNELS_CUDA_LEVELS_INTERNAL_H
#define WF_KERNELS_CUDA_LEVELS_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

/* Tables of dynamic8, dynamic8u, in this order, and nf4. The maps' pointers to levels are the
   host's. */
typedef struct wf_cuda_levels {
    float dynamic8[2][WF_DYNAMIC8_LEVELS];
    float nf4[WF_NF4_LEVELS];
    wf_dynamic8_map map[2];
} wf_cuda_levels;

/* Returns the device's tables, made when they are first asked for or when a capture begins, in
   which they could not be; NULL with a failure noted. wf_cuda_levels_close frees them. */
const wf_cuda_levels *wf_cuda_levels_of(wf_cuda *cuda);
void wf_cuda_levels_close(wf_cuda *cuda);

WF_END_DECLS

#endif
