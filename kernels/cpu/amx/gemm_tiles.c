/*
 * kernels/cpu/amx/gemm_tiles.c - products of bf16 operands on a tile unit, whose instruction adds one block of terms to
 * 16 x 16 sums as kernels/cpu/simd_internal.h says. Two by two of them are the microkernel's tile: four tiles
 * hold sums, two blocks of A, two blocks of B. Blocking, panels of B and the tree are those of kernels/cpu/simd/.
 *
 * On a core of which nothing else is asked the unit takes 16 cycles for a block of a tile, and a load of a tile from level 1
 * cache eight, so stores of tiles, additions of nodes and the writing of C happen beside it. Panels of B are packed before
 * their tiles begin: in one go the core sees long runs of memory, and reads ahead.
 */
#include "kernels/cpu/amx/gemm_beside_internal.h"
#include "kernels/cpu/amx/gemm_tiles_internal.h"
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"

enum { NEAR = 16 }; /* blocks of B that stay in level 1 cache: the first ones of a panel */

/* A thread's own. When a chunk ends, its sums stay in the tiles until the next block begins, of whichever tile, and a store of a
   tile is between two multiplications: so neither waits for the other. */
typedef struct state {
    _Alignas(LINE) float local[WF_GEMM_LOCAL * HIGH * WIDE], sum[HIGH * WIDE];
    int high;   /* rows of sums in the tiles that have to be stored; 0: none */
    float *to;  /* at this place, */
    beside now; /* what they become then, beside the blocks of the next chunk */
} state;

/* What a tile prefetches, some rows at each block. */
typedef struct chores {
    gemm_ahead sums; /* the next tile's, which the last KC block left; */
    gemm_ahead own;  /* what is written of C after this tile */
    int64_t sum_rows, own_rows;
} chores;

static chores chores_of(const gemm_tile *t, int64_t rows)
{
    const wf_gemm_kc_block *w = t->kc_block;
    const float *next = t->spill + w->step->level * t->spill_level + HIGH * WIDE;
    int64_t blocks = w->k > 0 ? w->k / WF_GEMM_TERMS : 1;
    chores x = {.own_rows = 0};

    if (w->resume)
        x.sums = (gemm_ahead){(const char *)next, ROW, ROW / LINE, rows};
    if (w->last && !t->out.non_temporal)
        x.own = t->own;
    x.sum_rows = gemm_tiles(x.sums.left, blocks);
    x.own_rows = gemm_tiles(x.own.left, blocks);
    return x;
}

INLINE void prefetch(gemm_ahead *a, const bool write, int64_t rows)
{
    int64_t n = wf_least(rows, a->left);

    a->left -= n;
    for (; n > 0; n--, a->at += a->stride) {
        for (int64_t i = 0; i < a->lines; i++) {
            if (write) /* the builtin takes literals only */
                __builtin_prefetch(a->at + i * LINE, 1);
            else
                __builtin_prefetch(a->at + i * LINE, 0);
        }
    }
}

/* What comes into a tile's register in place of the sums that leave it. */
#define TURN(t, offset)                                                                        \
    do {                                                                                       \
        if (to)                                                                                \
            wf_tile_store(t, to + (offset), ROW);                                              \
        if (from)                                                                              \
            wf_tile_load(t, from + (offset), ROW);                                             \
        else                                                                                   \
            wf_tile_zero(t);                                                                   \
    } while (0)

enum { RIGHT = TILE, BELOW = TILE * WIDE };

/* One block; the first ones of a panel of B come to level 1 cache (`near`). */
INLINE void add_block(const int high, const int near, const char *a, const char *b)
{
    if (near)
        wf_tile_load(6, b, ROW);
    else
        wf_tile_load_once(6, b, ROW);
    wf_tile_load_once(4, a, LINE);
    wf_tile_multiply(0, 4, 6);
    if (near)
        wf_tile_load(7, b + LINE, ROW);
    else
        wf_tile_load_once(7, b + LINE, ROW);
    wf_tile_multiply(1, 4, 7);
    if (high == HIGH) {
        wf_tile_load_once(5, a + A_BLOCK, LINE);
        wf_tile_multiply(2, 5, 6);
        wf_tile_multiply(3, 5, 7);
    }
}

/* The first block of a chunk, or of what goes on with spilled sums (`from`, or NULL); sums before it go to `to`, or NULL. */
INLINE void add_first_block(const int high, const char *a, const char *b, const float *from,
                            float *to)
{
    wf_tile_load(6, b, ROW);
    wf_tile_load_once(4, a, LINE);
    TURN(0, 0);
    wf_tile_multiply(0, 4, 6);
    wf_tile_load(7, b + LINE, ROW);
    TURN(1, RIGHT);
    wf_tile_multiply(1, 4, 7);
    if (high == HIGH) {
        wf_tile_load_once(5, a + A_BLOCK, LINE);
        TURN(2, BELOW);
        wf_tile_multiply(2, 5, 6);
        TURN(3, BELOW + RIGHT);
        wf_tile_multiply(3, 5, 7);
    }
}

static void turn_tiles(int high, const float *from, float *to)
{
    TURN(0, 0);
    TURN(1, RIGHT);
    if (high == HIGH) {
        TURN(2, BELOW);
        TURN(3, BELOW + RIGHT);
    }
}

static void settle(void *arg)
{
    state *s = arg;

    if (s->high > 0)
        turn_tiles(s->high, NULL, s->to);
    s->high = 0;
    beside_end(&s->now);
}

/* The tiles hold a chunk's sums: where they go, and what they become. */
INLINE void end_chunk(const int high, state *s, const gemm_tile *t, const wf_gemm_step *step)
{
    const bool root = t->kc_block->last && step + 1 == t->kc_block->step + t->kc_block->n_steps;
    beside *x = &s->now;
    float *node = root ? NULL : gemm_node(t, step, s->local, high * WIDE);

    beside_end(x); /* these sums go where it reads */
    s->high = high;
    s->to = step->merges > 0 || root ? s->sum : node;
    x->row = x->rows = 0;
    if (s->to != s->sum)
        return;
    x->sum = s->sum;
    x->merges = step->merges;
    x->to = node;
    x->out = t->out;
    x->rows = root ? t->out.rows : high;
    gemm_older(t, step, s->local, high * WIDE, x->older);
}

/* A tile's way through a KC block. */
typedef struct way {
    const char *a, *b;
    int64_t near; /* blocks that come to level 1 cache */
} way;

INLINE void go_on(const int high, way *w)
{
    w->a += high / TILE * A_BLOCK;
    w->b += B_BLOCK;
    w->near--;
}

INLINE void add_blocks(const int high, state *s, chores *x, way *w, int64_t blocks,
                       int64_t rows)
{
    for (; blocks > 0; blocks--, go_on(high, w)) {
        add_block(high, w->near > 0, w->a, w->b);
        beside_step(&s->now, rows);
        prefetch(&x->sums, false, x->sum_rows);
        prefetch(&x->own, true, x->own_rows);
    }
}

/* A step, of a new chunk or of what goes on with spilled sums (`from`) where it begins. */
INLINE void run_step(const int high, state *s, chores *x, way *w, int64_t blocks, bool begins,
                     const float *from)
{
    if (begins && blocks > 0) {
        add_first_block(high, w->a, w->b, from, s->high > 0 ? s->to : NULL);
        go_on(high, w);
        s->high = 0;
        blocks--;
    } else if (begins) {
        settle(s);
        turn_tiles(high, from, NULL);
    }
    add_blocks(high, s, x, w, blocks, blocks > 0 ? gemm_tiles(HIGH, blocks) : 0);
}

INLINE void run(const int high, const gemm_tile *t)
{
    const wf_gemm_step *step = t->kc_block->step, *end = step + t->kc_block->n_steps;
    const float *from = t->kc_block->resume ? t->spill + step->level * t->spill_level : NULL;
    state *s = t->state;
    way w = {t->rows.panel, t->cols.panel, NEAR};
    chores x = chores_of(t, high);
    bool begins = true;

    if (s->high != high)
        settle(s);
    for (; step < end; step++, from = NULL) {
        run_step(high, s, &x, &w, gemm_tiles(step->k, WF_GEMM_TERMS), begins, from);
        begins = step->merges >= 0;
        if (begins)
            end_chunk(high, s, t, step);
    }
    if (begins)
        return;
    beside_end(&s->now);
    s->high = high;
    s->to = t->spill + end[-1].level * t->spill_level;
    s->now.rows = 0;
}

static void microkernel(int cut, const gemm_tile *t)
{
    if (cut == 0)
        run(HIGH, t);
    else
        run(TILE, t);
}

static void enter(void *arg)
{
    state *s = arg;

    s->high = 0;
    s->now.row = s->now.rows = 0;
    wf_tile_configure();
}

static void leave(void *arg)
{
    settle(arg);
    v16_non_temporal_end();
    wf_tile_release();
}

/* Half of a panel of B of 1024 terms, 32 KiB, fits a level 1 cache of 48 beside nodes of the tree, and is read by every tile; the
   other half, and A, pass it by. Longer sums would spill less, but a block of A, 1 MiB, has to fit a level 2 cache. */
static const gemm_kind tiles = {
    .limits = {.mr = HIGH,
               .nr = WIDE,
               .kc = 1024,
               .block_rows = 512,
               .block_cols = 4096,
               .pad = WF_GEMM_TERMS},
    .heights = {HIGH, TILE},
    .a_bytes = sizeof(uint16_t),
    .b_bytes = sizeof(uint16_t),
    .pack_rows = WF_ISA_NAME(wf_gemm_tiles_pack_rows),
    .pack_cols = WF_ISA_NAME(wf_gemm_tiles_pack_cols),
    .microkernel = microkernel,
    .enter = enter,
    .settle = settle,
    .leave = leave,
    .state_bytes = sizeof(state),
};

static size_t workspace_bytes(const wf_gemm *g, int threads)
{
    if (!g->bf16 || WF_ISA_NAME(wf_gemm_is_few)(g))
        return WF_ISA_NAME(wf_gemm_workspace)(g, threads);
    return WF_ISA_NAME(wf_gemm_workspace_of)(&tiles, g, threads);
}

static void multiply(struct wf_team *team, const wf_gemm *g, void *workspace)
{
    if (g->bf16 && !WF_ISA_NAME(wf_gemm_is_few)(g))
        WF_ISA_NAME(wf_gemm_run)(&tiles, team, g, workspace);
    else
        WF_ISA_NAME(wf_gemm)(team, g, workspace);
}

const wf_simd WF_ISA_NAME(wf_simd_tiles) = {
    .name = "amx", .gemm_workspace = workspace_bytes, .gemm = multiply};
