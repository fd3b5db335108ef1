/*
 * kernels/cpu/simd/gemm_internal.h - the parts of a product: windows of blocks, strips of their columns,
 * packing of panels, and the tile in registers.
 *
 * A panel is a strip of A (h rows) or of B (GEMM_NR columns) with its elements in the order in
 * which a tile reads them: all of one index of the long dimension, then all of the next.
 */
#ifndef WF_KERNELS_CPU_SIMD_GEMM_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_GEMM_INTERNAL_H

#include "kernels/cpu/gemm_blocking_internal.h"
#include "kernels/cpu/isa_level_internal.h"
#include "kernels/cpu/vec_internal.h"

/* A tile's accumulators fill the registers but for a row of B and one element of A. */
enum {
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    GEMM_MR = 14,
    GEMM_VECTORS = 2,
#else
    GEMM_MR = 6,
    GEMM_VECTORS = 1,
#endif
    GEMM_NR = GEMM_VECTORS * V16,
    GEMM_TILE = GEMM_MR * GEMM_NR,
    GEMM_CUTS = 5
};

/* How many tiles, or other pieces, a size makes. */
static inline int64_t gemm_tiles(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

/* Where a tile finds its rows or its columns: in a panel, or, without one, where they lie. */
typedef struct gemm_source {
    const float *panel;
    int64_t first; /* row or column of what is computed */
} gemm_source;

/* Memory that is needed soon: `left` rows of `lines` cache lines each. */
typedef struct gemm_ahead {
    const float *at;
    int64_t stride, lines, left;
} gemm_ahead;

/* A tile on its way through a window. */
typedef struct gemm_tile {
    const wf_gemm_window *window;
    gemm_source rows, cols; /* of a whole tile: what is in place can all be read */
    float *home;            /* GEMM_TILE floats for level 0 */
    int64_t home_level;     /* floats from one level to the next */
    float *c;               /* where the root goes, once the window is the last */
    int64_t c_row;
    gemm_ahead own;   /* what is written, or added to, in the end; rows of C, also of an edge */
    gemm_ahead ahead; /* what is packed after this tile, which asks for both */
} gemm_tile;

/* Tiles come in five heights, so that few rows cost little: 14 or 6, then 8 at most, 4, 2, 1.
 */
static inline int gemm_height(int cut)
{
    return 16 >> cut < GEMM_MR ? 16 >> cut : GEMM_MR;
}

/* Brings a tile of gemm_height(cut) rows through a window. */
void WF_ISA_NAME(wf_gemm_tile)(int cut, const gemm_tile *tile);

/*
 * One step's share of a panel, `height` or GEMM_NR wide: x(i, p) for i < count, +0 for other i;
 * p < k.
 */
void WF_ISA_NAME(wf_gemm_pack_rows)(float *panel, int height, const wf_gemm_operand *x,
                                    int64_t count, int64_t k);
void WF_ISA_NAME(wf_gemm_pack_cols)(float *panel, const wf_gemm_operand *x, int64_t count,
                                    int64_t k);

/* A product on its way. */
typedef struct gemm_product {
    const wf_gemm *g;
    wf_gemm_blocking blocking;
    float *home;        /* what tiles leave for the next window, strips first */
    int64_t home_level; /* floats from one level to the next */
} gemm_product;

/* A window of a block: rows row0 .. and columns col0 .. of what is computed. */
typedef struct gemm_stage {
    int64_t row0, rows, col0, cols;
    int64_t first_packed; /* the rows of the block before this one are read in place */
    float *a;             /* panels of the others */
    wf_gemm_window window;
} gemm_stage;

/* How many of a block's rows tiles read in place: those in front of a last tile that is higher than
   what is left for it, or none. */
int64_t WF_ISA_NAME(wf_gemm_in_place)(const wf_gemm_blocking *blocking, int64_t rows);

/* Packs panels begin .. end - 1 of a block's rows, for all steps of its window. */
void WF_ISA_NAME(wf_gemm_pack_stage)(const gemm_stage *at, int64_t begin, int64_t end);

/* GEMM_NR columns on their way into a panel, a piece at a time. */
typedef struct gemm_strip {
    const wf_gemm_window *window;
    int64_t col, count;
    float *panel, *to; /* NULL: in place */
    int step;
    int64_t first; /* of the step, not packed yet */
} gemm_strip;

/* The strip at a column of a stage, to be packed into that panel. */
gemm_strip WF_ISA_NAME(wf_gemm_strip)(const gemm_product *p, const gemm_stage *at,
                                      int64_t column, float *panel);

/* Rows of a block; `share`: how many tiles pack the next strip together. */
typedef struct gemm_rows {
    int64_t begin, end, share;
} gemm_rows;

/* The tiles of some rows of a strip, which is packed on arrival but for what is packed already;
   meanwhile they pack their share of `next`, which may be NULL. `edge` has room for a tile. */
void WF_ISA_NAME(wf_gemm_run_strip)(const gemm_product *p, const gemm_stage *at, float *edge,
                                    gemm_rows rows, gemm_strip *now, gemm_strip *next);

#endif
