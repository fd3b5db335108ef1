/*
 * tests/kernels/tile_emulated.h - a tile unit in plain C, instead of
 * kernels/cpu/amx/tile_internal.h: eight tiles for each thread, which read as NaN until they
 * are written and end a test that uses them without a configuration.
 */
#ifndef WF_TESTS_KERNELS_TILE_EMULATED_H
#define WF_TESTS_KERNELS_TILE_EMULATED_H

#include <stdint.h>

void tile_emulated_configure(void);
void tile_emulated_release(void);
void tile_emulated_zero(int t);
void tile_emulated_load(int t, const void *from, int64_t stride);
void tile_emulated_store(int t, void *to, int64_t stride);
void tile_emulated_multiply(int c, int a, int b);

static inline void wf_tile_configure(void)
{
    tile_emulated_configure();
}

static inline void wf_tile_release(void)
{
    tile_emulated_release();
}

#define wf_tile_zero(t)                    tile_emulated_zero(t)
#define wf_tile_load(t, from, stride)      tile_emulated_load(t, from, stride)
#define wf_tile_load_once(t, from, stride) tile_emulated_load(t, from, stride)
#define wf_tile_store(t, to, stride)       tile_emulated_store(t, to, stride)
#define wf_tile_multiply(c, a, b)          tile_emulated_multiply(c, a, b)

#endif
