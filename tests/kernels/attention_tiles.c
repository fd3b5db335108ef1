/* tests/kernels/attention_tiles.c - see the header. */
#define WF_ISA   portable
#define WF_TILES "tests/kernels/tile_emulated.h"
#include "kernels/cpu/amx/attention_tiles.c"
#include "tests/kernels/attention_tiles.h"

const wf_simd *attention_tiles_emulated(void)
{
    static wf_simd table;

    table = wf_simd_portable;
    table.name = "tiles in plain C";
    table.attention = attention;
    table.attention_grad = attention_grad;
    return &table;
}
