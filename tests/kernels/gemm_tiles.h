/* tests/kernels/gemm_tiles.h - kernels/cpu/amx/gemm_tiles.c on a tile unit in plain C: packing,
   edges and trees on any machine. */
#ifndef WF_TESTS_KERNELS_GEMM_TILES_H
#define WF_TESTS_KERNELS_GEMM_TILES_H

#include "kernels/cpu/simd_internal.h"

/* A table that has gemm and gemm_workspace alone. */
const wf_simd *gemm_tiles_emulated(void);

#endif
