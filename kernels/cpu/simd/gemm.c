/*
 * kernels/cpu/simd/gemm.c - products of matrices: blocks of C are handed to the team, and each
 * is computed by one member alone, window by window, from panels that it packs into its own
 * scratch:
 *
 *     for each window:  pack the block's rows of A                  (level 2 cache)
 *         for each strip of GEMM_NR columns:  pack B's panel        (level 1 cache)
 *             for each tile of the strip:  run it through the window
 *
 * What the plan says is better read in place gets no panel, but for tiles at the edges, which a
 * panel fills up with zeros.
 */
#include "kernels/cpu/simd/gemm.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/team.h"
#include <string.h>

enum { LINE = 64, SHORT_RUN = 16 };

static const wf_gemm_limits limits = {
    .mr = GEMM_MR,
    .nr = GEMM_NR,
    .kc = 384,
    .block_rows = (int64_t)GEMM_MR * (512 / GEMM_MR),
    .block_cols = 1024,
};

/* Scratch of one member, in floats; each piece begins at a cache line. */
typedef struct scratch {
    size_t a, b, edge, home; /* lengths */
    int64_t level;           /* from one level of home to the next */
} scratch;

typedef struct product {
    const wf_gemm *g;
    wf_gemm_plan plan;
    scratch size;
    float *workspace;
} product;

/* Rows row0 .. and columns col0 .. of what is computed. */
typedef struct block {
    int64_t row0, rows, col0, cols;
    int64_t first_packed; /* the rows of the block before this one are read in place */
    float *a, *b, *edge, *home;
} block;

static size_t lines(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + LINE - 1) / LINE * (LINE / sizeof(float));
}

static int64_t tiles(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

static scratch measure(const wf_gemm_plan *plan)
{
    int64_t level = tiles(plan->rows, GEMM_MR) * tiles(plan->cols, GEMM_NR) * GEMM_TILE;

    return (scratch){
        .a = lines((plan->rows_in_place ? GEMM_MR : plan->rows) * plan->kc),
        .b = lines((int64_t)GEMM_NR * plan->kc),
        .edge = lines(GEMM_TILE),
        .home = lines(plan->levels * level),
        .level = level,
    };
}

static size_t total(const scratch *s)
{
    return s->a + s->b + s->edge + s->home;
}

/* The lowest tile that holds so many rows. */
static int cut_for(int64_t rows)
{
    int cut = 0;

    while (cut + 1 < GEMM_CUTS && gemm_height(cut + 1) >= rows)
        cut++;
    return cut;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The rows in front of a last tile that is higher than what is left for it. */
static int64_t whole_rows(int64_t rows)
{
    int64_t left = rows % GEMM_MR;

    return left == gemm_height(cut_for(left)) ? rows : rows - left;
}

/*
 * The block's rows that need a panel, for all steps of a window. Where A lies across (a gradient
 * of weights), tiles share cache lines that are a power of two apart, and would not find them
 * again after a whole panel: then all tiles take a short run of the long dimension before the
 * next one.
 */
static void pack_rows(const block *at, const wf_gemm_window *w)
{
    int64_t done = 0;

    for (int s = 0; s < w->n_steps; s++) {
        const wf_gemm_step *step = &w->step[s];
        wf_gemm_operand x = step->rows;
        int64_t length = x.across < x.along ? SHORT_RUN : step->k;

        for (int64_t run = 0; run < step->k; run += length) {
            int64_t k = least(length, step->k - run);

            for (int64_t i = at->first_packed; i < at->rows; i += GEMM_MR) {
                int64_t count = least(GEMM_MR, at->rows - i);
                int height = gemm_height(cut_for(count));
                float *panel = at->a + (i - at->first_packed) * w->k + done * height;

                x.at = step->rows.at + (at->row0 + i) * x.across + run * x.along;
                WF_ISA_NAME(wf_gemm_pack_rows)(panel, height, &x, count, k);
            }
            done += k;
        }
    }
}

static void pack_cols(const wf_gemm_window *w, int64_t col, int64_t count, float *panel)
{
    for (int s = 0; s < w->n_steps; s++) {
        const wf_gemm_step *step = &w->step[s];
        wf_gemm_operand x = step->cols;

        if (step->k == 0)
            continue;
        x.at += col * x.across;
        WF_ISA_NAME(wf_gemm_pack_cols)(panel, &x, count, step->k);
        panel += step->k * GEMM_NR;
    }
}

/* A tile's roots go to C directly where it is a whole tile with its rows along C's, and they are
   all that C is to be. */
static void run_tile(const product *p, const block *at, gemm_tile *tile, int64_t row,
                     int64_t col)
{
    int64_t rows = least(GEMM_MR, at->row0 + at->rows - row);
    int64_t cols = least(GEMM_NR, at->col0 + at->cols - col);
    int64_t c_row = p->plan.transpose ? 1 : p->g->c_row;
    int64_t c_col = p->plan.transpose ? p->g->c_row : 1;
    int cut = cut_for(rows);
    float *c = p->g->c + row * c_row + col * c_col;
    bool direct = rows == gemm_height(cut) && cols == GEMM_NR && c_col == 1 && !p->g->add;

    tile->c = direct ? c : at->edge;
    tile->c_row = direct ? c_row : GEMM_NR;
    WF_ISA_NAME(wf_gemm_tile)(cut, tile);
    if (direct || !tile->window->last)
        return;
    for (int64_t i = 0; i < rows; i++) {
        const float *root = at->edge + i * GEMM_NR;

        for (int64_t j = 0; j < cols; j++) {
            float *to = c + i * c_row + j * c_col;

            *to = p->g->add ? *to + root[j] : root[j];
        }
    }
}

static void run_window(const product *p, const block *at, const wf_gemm_window *w)
{
    gemm_tile tile = {.window = w, .home = at->home, .home_level = p->size.level};

    if (at->first_packed < at->rows)
        pack_rows(at, w);
    for (int64_t j = 0; j < at->cols; j += GEMM_NR) {
        int64_t count = least(GEMM_NR, at->cols - j);

        tile.cols = (gemm_source){.first = at->col0 + j};
        if (count < GEMM_NR || !p->plan.cols_in_place) {
            tile.cols.panel = at->b;
            pack_cols(w, at->col0 + j, count, at->b);
        }
        for (int64_t i = 0; i < at->rows; i += GEMM_MR) {
            tile.rows = (gemm_source){.first = at->row0 + i};
            if (i >= at->first_packed)
                tile.rows.panel = at->a + (i - at->first_packed) * w->k;
            run_tile(p, at, &tile, at->row0 + i, at->col0 + j);
            tile.home += GEMM_TILE;
        }
    }
}

static void run_blocks(void *arg, int64_t begin, int64_t end, int worker)
{
    const product *p = arg;
    const wf_gemm_plan *plan = &p->plan;
    float *own = p->workspace + (size_t)worker * total(&p->size);

    for (int64_t i = begin; i < end; i++) {
        int64_t row0 = i % plan->row_blocks * plan->rows;
        int64_t col0 = i / plan->row_blocks * plan->cols;
        block at = {.row0 = row0,
                    .rows = least(plan->rows, plan->m - row0),
                    .col0 = col0,
                    .cols = least(plan->cols, plan->n - col0),
                    .first_packed = 0,
                    .a = own};
        wf_gemm_cursor cursor = wf_gemm_begin(p->g, plan->transpose);
        wf_gemm_window window;

        if (plan->rows_in_place)
            at.first_packed = whole_rows(at.rows);
        at.b = at.a + p->size.a;
        at.edge = at.b + p->size.b;
        at.home = at.edge + p->size.edge;
        do {
            wf_gemm_next(&cursor, limits.kc, &window);
            run_window(p, &at, &window);
        } while (!window.last);
    }
}

size_t WF_ISA_NAME(wf_gemm_workspace)(const wf_gemm *g, int threads)
{
    wf_gemm_plan plan = wf_gemm_plan_of(g, &limits, threads);
    scratch size = measure(&plan);

    if (g->m <= 0 || g->n <= 0 || g->n_parts <= 0)
        return 0;
    return total(&size) * sizeof(float) * (size_t)threads + LINE;
}

void WF_ISA_NAME(wf_gemm)(struct wf_team *team, const wf_gemm *g, void *workspace)
{
    product p = {.g = g};
    uintptr_t line = ((uintptr_t)workspace + LINE - 1) / LINE * LINE;

    if (g->m <= 0 || g->n <= 0)
        return;
    if (g->n_parts <= 0) { /* a tree without leaves */
        for (int64_t i = 0; i < g->m && !g->add; i++)
            memset(g->c + i * g->c_row, 0, (size_t)g->n * sizeof *g->c);
        return;
    }
    p.plan = wf_gemm_plan_of(g, &limits, wf_team_size(team));
    p.size = measure(&p.plan);
    p.workspace = (float *)line;
    wf_team_run(team, p.plan.row_blocks * p.plan.col_blocks, 1, run_blocks, &p);
}
