/* kernels/cpu/simd/gemm_bf16_block_internal.h - a block of bf16 terms, for the instruction set
   that is being compiled. */
#include "kernels/cpu/simd/gemm_bf16_internal.h"

#if WF_ISA_LEVEL == WF_ISA_LEVEL_portable
#include "kernels/cpu/simd/gemm_bf16_portable_internal.h"
#else
#include "kernels/cpu/simd/gemm_bf16_vector_internal.h"
#endif
