/* kernels/cuda/wgmma_internal.h - whether tensor cores multiply bf16 by Hopper's instruction:
   products, experts and attention ask. */
#ifndef WF_KERNELS_CUDA_WGMMA_INTERNAL_H
#define WF_KERNELS_CUDA_WGMMA_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

/* Returns true on a Hopper, unless the environment asks for mma.sync (tensor_choice.c). */
bool wf_cuda_multiplies_by_wgmma(const wf_cuda *cuda);

WF_END_DECLS

#endif
