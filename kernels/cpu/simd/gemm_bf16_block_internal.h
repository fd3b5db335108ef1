/* kernels/cpu/simd/gemm_bf16_block_internal.h - a block of bf16 terms, for the instruction set
   that is being compiled. */
#include "kernels/cpu/simd/gemm_bf16_internal.h"

/* Adds to sum (even chain + odd chain) of a block, with the first one sum = +0 + that, for
   `rows` rows of GEMM_NR columns. Even term q of row i is a[i * across + q * along], that of
   column j b[q * GEMM_NR + j], and odd terms follow all GEMM_PAIRS even ones. Pairs from
   `pairs` on are zeros: they could only change the sign of a zero. */
INLINE void gemm_add_block(const int rows, const int across, const int along, bool first,
                           float *sum, const float *a, const float *b, int pairs);

#if WF_ISA_LEVEL == WF_ISA_LEVEL_portable
#include "kernels/cpu/simd/gemm_bf16_portable_internal.h"
#elif WF_ISA_LEVEL == WF_ISA_LEVEL_neon
#include "kernels/cpu/simd/gemm_bf16_neon_internal.h"
#else
#include "kernels/cpu/simd/gemm_bf16_x86_internal.h"
#endif
