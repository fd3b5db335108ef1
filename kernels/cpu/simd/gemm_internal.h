/*
 * kernels/cpu/simd/gemm_internal.h - the parts of a product: macro-kernels, NR micro-panels,
 * packing, and the microkernel, which computes a tile in registers.
 *
 * A panel holds h rows of A or GEMM_NR columns of B (a micro-panel each, in BLIS's words) with
 * its elements in the order in which a tile reads them: all of one index of the long dimension,
 * then all of the next.
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

/* Returns how many tiles, or other equal parts, a size makes. */
static inline int64_t gemm_tiles(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

/* The source of a tile's rows or columns: a panel, or the operand in place. */
typedef struct gemm_source {
    const void *panel;
    int64_t first; /* row or column of what is computed */
} gemm_source;

/* Memory that is needed soon: `left` rows of `lines` cache lines each, `stride` bytes apart. */
typedef struct gemm_ahead {
    const char *at;
    int64_t stride, lines, left;
} gemm_ahead;

/* The output of roots: `rows` of `cols` numbers, row_bytes apart. */
typedef struct gemm_out {
    char *c;
    int64_t row_bytes;
    int rows, cols;
    bool bf16, add;    /* rounded; on top of what is there */
    bool non_temporal; /* stored so: whole cache lines */
} gemm_out;

/* A tile on its way through a KC block. */
typedef struct gemm_tile {
    const wf_gemm_kc_block *kc_block;
    gemm_source rows, cols; /* a whole tile's: what is in place can all be read */
    float *spill;           /* spilled partial sums: those of level 0 */
    int64_t spill_level;    /* floats from one level to the next */
    float *c;               /* output of the root, once the KC block is the last */
    int64_t c_row;
    gemm_out out;     /* the same, for a kind that has a state */
    void *state;      /* the thread's, of such a kind */
    gemm_ahead own;   /* written, or added to, in the end; rows of C, also of an edge */
    gemm_ahead ahead; /* packed after this tile; both are prefetched */
} gemm_tile;

/* Tiles come in five heights, so that few rows cost little: 14 or 6, then 8 at most, 4, 2, 1.
 */
static inline int gemm_height(int cut)
{
    return 16 >> cut < GEMM_MR ? 16 >> cut : GEMM_MR;
}

/* The functions of a product, for one type of operands on one instruction set. */
typedef struct gemm_kind {
    wf_gemm_limits limits;
    int heights[GEMM_CUTS]; /* a tile's, in descending order; 0: there are no more */
    int64_t a_bytes,
        b_bytes; /* a panel has them for each row or column and element of a part */
    /* One step's share of a panel, `height` or nr wide: x(i, p) for i < count and p < k; other
       i have numbers that are not used, and what a part is filled up with is +0. */
    void (*pack_rows)(void *panel, int height, const wf_gemm_operand *x, int64_t count,
                      int64_t k);
    void (*pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count, int64_t k);
    /* The microkernel: brings a tile of heights[cut] rows through a KC block. */
    void (*microkernel)(int cut, const gemm_tile *tile);
    /* NULL, or a kind whose microkernel brings roots to C itself, and has time to until the
       thread leaves: then these are around a run of microkernels on one thread, which lends a
       state of state_bytes, aligned to cache lines. */
    void (*enter)(void *state);
    void (*settle)(void *state); /* brings them there now */
    void (*leave)(void *state);
    int64_t state_bytes;
} gemm_kind;

extern const gemm_kind WF_ISA_NAME(wf_gemm_f32), WF_ISA_NAME(wf_gemm_bf16);

/* simd->gemm and its workspace of that kind. */
size_t WF_ISA_NAME(wf_gemm_workspace_of)(const gemm_kind *kind, const wf_gemm *g, int threads);
void WF_ISA_NAME(wf_gemm_run)(const gemm_kind *kind, struct wf_thread_pool *pool,
                              const wf_gemm *g, void *workspace);

/* The functions in the tables of kinds. */
void WF_ISA_NAME(wf_gemm_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                    int64_t count, int64_t k);
void WF_ISA_NAME(wf_gemm_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                    int64_t k);
void WF_ISA_NAME(wf_gemm_microkernel)(int cut, const gemm_tile *tile);
void WF_ISA_NAME(wf_gemm_bf16_pack_rows)(void *panel, int height, const wf_gemm_operand *x,
                                         int64_t count, int64_t k);
void WF_ISA_NAME(wf_gemm_bf16_pack_cols)(void *panel, const wf_gemm_operand *x, int64_t count,
                                         int64_t k);
void WF_ISA_NAME(wf_gemm_bf16_microkernel)(int cut, const gemm_tile *tile);

/* A product on its way. */
typedef struct gemm_product {
    const gemm_kind *kind;
    const wf_gemm *g;
    wf_gemm_blocking blocking;
    bool non_temporal; /* C is so large that it goes to memory */
    float *spill; /* partial sums that tiles leave for the next KC block, micro-panels first */
    int64_t spill_level; /* floats from one level to the next */
} gemm_product;

/* A KC block of a block of C: rows row0 .. and columns col0 .. of what is computed. */
typedef struct gemm_macrokernel {
    int64_t row0, rows, col0, cols;
    int64_t first_packed; /* the rows of the block before this one are read in place */
    char *a;              /* panels of the others */
    wf_gemm_kc_block kc_block;
} gemm_macrokernel;

/* Returns how many of a block's rows tiles read in place: those before a last tile that is
   higher than the remaining rows, or none. */
int64_t WF_ISA_NAME(wf_gemm_in_place)(const gemm_product *p, int64_t rows);

/* Packs panels begin .. end - 1 of a block's rows, for all steps of its KC block. */
void WF_ISA_NAME(wf_gemm_pack_a)(const gemm_product *p, const gemm_macrokernel *at,
                                 int64_t begin, int64_t end);

/* nr columns on their way into a panel, a run at a time. */
typedef struct gemm_micropanel {
    const wf_gemm_kc_block *kc_block;
    int64_t col, count;
    char *panel, *to; /* NULL: in place */
    int step;
    int64_t first; /* the step's first element that is not packed yet */
} gemm_micropanel;

/* Returns the micro-panel at a column of a macro-kernel, to be packed into that panel. */
gemm_micropanel WF_ISA_NAME(wf_gemm_micropanel)(const gemm_product *p,
                                                const gemm_macrokernel *at, int64_t column,
                                                char *panel);

/* Packs the next run of it, at most `most` terms; returns how many, 0 at its end. */
int64_t WF_ISA_NAME(wf_gemm_pack_run)(const gemm_kind *kind, gemm_micropanel *s, int64_t most);

/* Rows of a block; `share`: how many tiles pack the next micro-panel together. */
typedef struct gemm_rows {
    int64_t begin, end, share;
} gemm_rows;

/* Puts a tile that does not go to C directly, its rows nr floats apart: it replaces C or is
   added to it. */
void WF_ISA_NAME(wf_gemm_put_edge)(const wf_gemm *g, const float *edge, int64_t nr,
                                   int64_t rows, int64_t cols, void *c, int64_t c_row,
                                   int64_t c_col);

/* Products of bf16 operands with few rows, which pack nothing and need no workspace: up to
   WF_GEMV_MEMBERS, whose m, A and parts' lengths are those of the first. */
bool WF_ISA_NAME(wf_gemm_is_small_m)(const wf_gemm *g);
void WF_ISA_NAME(wf_gemm_small_m)(struct wf_thread_pool *pool, const wf_gemm *g, int members);

/* Groups of columns of several products, as one job: those of product i are first[i] to first[i
   + 1]. */
typedef struct gemm_groups {
    int members;
    int64_t first[WF_GEMV_MEMBERS + 1];
} gemm_groups;

/* Whose group it is; the next one's may be another's. */
static inline int gemm_member(const gemm_groups *g, int64_t group)
{
    int i = 0;

    while (i + 1 < g->members && group >= g->first[i + 1])
        i++;
    return i;
}

/* A thread's state for its tiles. */
typedef struct gemm_own {
    float *edge; /* room for a tile */
    void *state; /* NULL for kinds without one */
} gemm_own;

/* Computes the tiles of some rows of a micro-panel, which is packed on arrival except for its
   packed part; meanwhile they pack their share of `next`, which may be NULL. */
void WF_ISA_NAME(wf_gemm_run_micropanel)(const gemm_product *p, const gemm_macrokernel *at,
                                         const gemm_own *own, gemm_rows rows,
                                         gemm_micropanel *now, gemm_micropanel *next);

#endif
