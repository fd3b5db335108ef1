/* kernels/cpu/amx/gemm_tiles_internal.h - the sizes of a product's tile on a tile unit, and the
   packing of its panels. */
#ifndef WF_KERNELS_CPU_AMX_GEMM_TILES_INTERNAL_H
#define WF_KERNELS_CPU_AMX_GEMM_TILES_INTERNAL_H

#include "kernels/cpu/simd/gemm_bf16_internal.h"

enum {
    TILE = 16, /* rows and columns of sums in a register of the unit */
    HIGH = 2 * TILE,
    WIDE = 2 * TILE,
    LINE = 64,
    ROW = WIDE * sizeof(float), /* bytes of a row of sums, and of a block of B */
    A_BLOCK = TILE * WF_GEMM_TERMS * sizeof(uint16_t),
    B_BLOCK = GEMM_PAIRS * WIDE * sizeof(uint32_t)
};

/* As gemm_kind has them. */
void WF_ISA_NAME(wf_gemm_tiles_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                          int64_t count, int64_t k);
void WF_ISA_NAME(wf_gemm_tiles_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                          int64_t k);

#endif
