/* tests/kernels/attention_tiles.h - kernels/cpu/amx/attention_tiles.c on a tile unit in plain
   C. */
#ifndef WF_TESTS_KERNELS_ATTENTION_TILES_H
#define WF_TESTS_KERNELS_ATTENTION_TILES_H

#include "kernels/cpu/simd_internal.h"

/* The table of portable C, but for attention. */
const wf_simd *attention_tiles_emulated(void);

#endif
