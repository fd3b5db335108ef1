/* tests/kernels/gemm_tiles.c - see the header. */
#define WF_ISA   portable
#define WF_TILES "tests/kernels/tile_emulated.h"
#include "kernels/cpu/amx/gemm_tiles.c"
#include "kernels/cpu/amx/gemm_tiles_pack.c"
#include "tests/kernels/gemm_tiles.h"

const wf_simd *gemm_tiles_emulated(void)
{
    return &wf_simd_tiles_portable;
}
