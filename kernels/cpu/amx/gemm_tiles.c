/*
 * kernels/cpu/amx/gemm_tiles.c - products of bf16 operands on a tile unit, whose instruction
 * adds one block of terms to 16 x 16 sums as kernels/cpu/simd_internal.h says. Two by two of
 * them are the microkernel's tile: four tiles hold sums, two blocks of A, two blocks of B.
 * Blocking, panels of B and the tree are those of kernels/cpu/simd/.
 *
 * On a core of which nothing else is asked the unit takes 16 cycles for a block of a tile, and
 * a load of a tile from level 1 cache eight, so stores of tiles, additions of nodes and the
 * writing of C happen beside it. Panels of B are packed before their tiles begin: in one go the
 * core sees long runs of memory, and reads ahead.
 */
#include "kernels/cpu/amx/gemm_beside_internal.h"
#include "kernels/cpu/amx/gemm_tiles_internal.h"
#include "kernels/cpu/amx/tile_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"

enum { NEAR = 8 }; /* blocks of B that stay in level 1 cache: the first ones of a panel */

/* A run of blocks of a chunk, as all tiles of a KC block have it. */
typedef struct run_plan {
    int64_t blocks, rows; /* its length; how many rows are done beside each block */
    bool begins, ends;    /* the chunk */
    float *to;            /* first buffer of its sums */
    beside then;          /* side task on them */
} run_plan;

/* A thread's own. When a chunk ends, its sums stay in the tiles until the next block begins, of
   whichever tile, and a store of a tile is between two multiplications: so neither waits for
   the other. */
typedef struct state {
    _Alignas(LINE) float local[WF_GEMM_LOCAL * HIGH * WIDE], sum[HIGH * WIDE];
    int high;          /* rows of sums in the tiles that have to be stored; 0: none */
    float *to;         /* at this address */
    const beside *now; /* side task, run beside the blocks of the next chunk */
    int64_t row, rows; /* done; all of it */
    gemm_out out;      /* output of a root */
    beside last;       /* remaining side task of the tile before */
    const wf_gemm_kc_block *planned; /* NULL: none is */
    int planned_high;
    run_plan plan[WF_GEMM_STEPS];
} state;

/* The addresses that a tile prefetches, some rows at each block. */
typedef struct chores {
    gemm_ahead sums; /* the next tile's, which the last KC block left; */
    gemm_ahead own;  /* lines of C written after this tile */
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

/* Swaps the sums in a tile's register for other ones. */
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

/* Adds one block; the first ones of a panel of B are loaded to the level 1 cache (`near`). */
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

/* Adds the first block of a chunk, or of a run that continues spilled sums (`from`, or NULL);
   sums before it go to `to`, or NULL. */
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

static void transpose_tiles(int high, const float *from, float *to)
{
    TURN(0, 0);
    TURN(1, RIGHT);
    if (high == HIGH) {
        TURN(2, BELOW);
        TURN(3, BELOW + RIGHT);
    }
}

/* Continues the side task for some more rows. */
INLINE void go_on_beside(state *s, int64_t rows)
{
    int64_t end = wf_least(s->rows, s->row + rows);

    if (s->row < end)
        beside_run(s->now, &s->out, s->row, end);
    s->row = end;
}

static void settle(void *arg)
{
    state *s = arg;

    if (s->high > 0)
        transpose_tiles(s->high, NULL, s->to);
    s->high = 0;
    go_on_beside(s, HIGH);
}

/* Plans a tile's way through a KC block: the same for all of them but where sums are
   spilled. */
static void plan(state *s, const gemm_tile *t, int high)
{
    const wf_gemm_kc_block *w = t->kc_block;
    bool begins = true, spills = w->resume || !w->last || w->step->level > 0;

    for (int i = 0; i < w->n_steps; i++) {
        const wf_gemm_step *step = &w->step[i];
        run_plan *x = &s->plan[i];
        bool root = w->last && i == w->n_steps - 1;
        float *node =
            root || step->merges < 0 ? NULL : gemm_node(t, step, s->local, high * WIDE);

        x->blocks = gemm_tiles(step->k, WF_GEMM_TERMS);
        x->begins = begins;
        x->ends = step->merges >= 0;
        x->rows = x->blocks > begins ? gemm_tiles(HIGH, x->blocks - begins) : 0;
        begins = x->ends;
        if (!x->ends)
            continue;
        x->to = step->merges > 0 || root ? s->sum : node;
        x->then.rows = x->to == s->sum ? high : 0;
        if (x->then.rows == 0)
            continue;
        x->then.sum = s->sum;
        x->then.merges = step->merges;
        x->then.to = node;
        gemm_older(t, step, s->local, high * WIDE, x->then.older);
    }
    s->planned = spills ? NULL : w;
    s->planned_high = high;
}

/* Ends a chunk, whose sums the tiles hold. */
INLINE void end_chunk(const int high, state *s, const run_plan *x)
{
    go_on_beside(s, HIGH); /* these sums go where it reads */
    s->high = high;
    s->to = x->to;
    s->now = &x->then;
    s->rows = x->then.rows;
    s->row = 0;
}

/* A tile's way through a KC block. */
typedef struct way {
    const char *a, *b;
    int64_t near; /* blocks that are loaded to the level 1 cache */
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
        go_on_beside(s, rows);
        prefetch(&x->sums, false, x->sum_rows);
        prefetch(&x->own, true, x->own_rows);
    }
}

/* Adds a run of blocks; where sums were spilled in the midst of its chunk it continues them
   (`from`, or NULL). */
INLINE void add_run(const int high, state *s, chores *x, way *w, const run_plan *run,
                    const float *from)
{
    int64_t blocks = run->blocks;

    if (run->begins && blocks > 0) {
        add_first_block(high, w->a, w->b, from, s->high > 0 ? s->to : NULL);
        go_on(high, w);
        s->high = 0;
        blocks--;
    } else if (run->begins) {
        settle(s);
        transpose_tiles(high, from, NULL);
    }
    add_blocks(high, s, x, w, blocks, run->rows);
    if (run->ends)
        end_chunk(high, s, run);
}

INLINE void run(const int high, const gemm_tile *t)
{
    const wf_gemm_kc_block *k = t->kc_block;
    const wf_gemm_step *step = k->step;
    const float *from = k->resume ? t->spill + step->level * t->spill_level : NULL;
    state *s = t->state;
    const run_plan *x = s->plan, *end = x + k->n_steps;
    way w = {t->rows.panel, t->cols.panel, NEAR};
    chores beside_it = chores_of(t, high);

    if (s->high != high)
        settle(s);
    if (s->planned != k || s->planned_high != high)
        plan(s, t, high);
    for (; x < end; x++, from = NULL)
        add_run(high, s, &beside_it, &w, x, from);
    if (end[-1].ends) {
        beside_copy(&s->last, &end[-1].then);
        s->now = &s->last;
        s->rows = k->last ? t->out.rows : s->rows;
        s->out = t->out;
    } else {
        go_on_beside(s, HIGH);
        s->high = high;
        s->to = t->spill + step[k->n_steps - 1].level * t->spill_level;
        s->rows = 0;
    }
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
    s->row = s->rows = 0;
    s->planned = NULL;
    wf_tile_configure();
}

static void leave(void *arg)
{
    settle(arg);
    v16_non_temporal_end();
    wf_tile_release();
}

/* The first quarter of a panel of B of 1024 terms, 16 KiB, is kept in a level 1 cache of 48
   beside nodes of the tree, and is read by every tile; its other quarters, and A, bypass it.
   Longer sums would spill less, but a block of A, 1 MiB, has to fit a level 2 cache. */
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
    if (!g->bf16 || WF_ISA_NAME(wf_gemm_is_small_m)(g))
        return WF_ISA_NAME(wf_gemm_workspace)(g, threads);
    return WF_ISA_NAME(wf_gemm_workspace_of)(&tiles, g, threads);
}

static void multiply(struct wf_thread_pool *pool, const wf_gemm *g, void *workspace)
{
    if (g->bf16 && !WF_ISA_NAME(wf_gemm_is_small_m)(g))
        WF_ISA_NAME(wf_gemm_run)(&tiles, pool, g, workspace);
    else
        WF_ISA_NAME(wf_gemm)(pool, g, workspace);
}

const wf_simd WF_ISA_NAME(wf_simd_tiles) = {
    .name = "amx", .gemm_workspace = workspace_bytes, .gemm = multiply};
