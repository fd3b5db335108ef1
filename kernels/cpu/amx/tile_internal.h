/*
 * kernels/cpu/amx/tile_internal.h - the tile unit of AMX: eight tiles of 16 rows of 64 bytes. A
 * tile is named by a literal 0 .. 7, since it is part of an instruction, hence macros. Another
 * header may stand in for this one (WF_TILES): tests have a unit in plain C.
 *
 *   wf_tile_configure()             all tiles have 16 rows of 64 bytes; they are this thread's
 *                                   until
 *   wf_tile_release()               which makes a sleeping thread's state small
 *   wf_tile_zero(t)
 *   wf_tile_load(t, from, stride)   row i = 64 bytes at from + i * stride
 *   wf_tile_load_once(t, from, stride)   the same of what is not reused soon, which level
 *                                        1 cache need not keep
 *   wf_tile_store(t, to, stride)
 *   wf_tile_multiply(c, a, b)       C[i][j] += a block of bf16 terms
 *                                   (kernels/cpu/simd_internal.h): A[i][p] are terms of row i,
 *                                   B[q][2 j] and B[q][2 j + 1] those of column j (TDPBF16PS)
 */
#ifndef WF_KERNELS_CPU_AMX_TILE_INTERNAL_H
#define WF_KERNELS_CPU_AMX_TILE_INTERNAL_H

#ifdef WF_TILES
#include WF_TILES
#else
#include <stdint.h>

typedef struct wf_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* bytes of a row of each of the 8 tiles */
    uint8_t rows[16];
} wf_tile_config;

static inline void wf_tile_configure(void)
{
    wf_tile_config config = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static inline void wf_tile_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

#define wf_tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define wf_tile_load(t, from, stride)                                                          \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                           \
                     :                                                                         \
                     : "r"((const void *)(from)), "r"((int64_t)(stride))                       \
                     : "memory")
#define wf_tile_load_once(t, from, stride)                                                     \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t                                         \
                     :                                                                         \
                     : "r"((const void *)(from)), "r"((int64_t)(stride))                       \
                     : "memory")
#define wf_tile_store(t, to, stride)                                                           \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                       \
                     :                                                                         \
                     : "r"((void *)(to)), "r"((int64_t)(stride))                               \
                     : "memory")
#define wf_tile_multiply(c, a, b)                                                              \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif

#endif
