/*
 * kernels/cpu/simd/gemm.c - products of matrices: blocks of C are handed to the team, and each
 * is computed by one member alone, window by window, from panels that it packs into its own
 * scratch:
 *
 *     for each window:  pack the block's rows of A                  (level 2 cache)
 *         for each strip of GEMM_NR columns, packed in one panel of B:
 *             for each tile of the strip:
 *                 run it through the window, asking memory for a piece of the next strip
 *                 pack that piece into the other panel
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
    .block_rows = (int64_t)GEMM_MR * ((512 + GEMM_MR - 1) / GEMM_MR), /* 512 tokens are one */
    .block_cols = 1024,
};

/* Scratch of one member, in floats; each piece begins at a cache line. */
typedef struct scratch {
    size_t a, b, edge, home; /* lengths */
    int64_t panel, level;    /* from one panel of b, and one level of home, to the next */
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

/* GEMM_NR columns on their way into a panel, a piece at a time. */
typedef struct strip {
    const wf_gemm_window *window;
    int64_t col, count;
    float *panel, *to; /* NULL: in place */
    int step;
    int64_t first; /* of the step, not packed yet */
} strip;

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
    size_t panel = lines((int64_t)GEMM_NR * plan->kc);

    return (scratch){
        .a = lines((plan->rows_in_place ? GEMM_MR : plan->rows) * plan->kc),
        .b = 2 * panel,
        .edge = lines(GEMM_TILE),
        .home = lines(plan->levels * level),
        .panel = (int64_t)panel,
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

/* Cache lines of so many floats from x on. */
static int64_t lines_at(const float *x, int64_t floats)
{
    return tiles((int64_t)((uintptr_t)x % LINE / sizeof *x) + floats, LINE / sizeof *x);
}

/* Where x(i, p) lies, i < count, p < k. */
static gemm_ahead ahead_of(const wf_gemm_operand *x, int64_t count, int64_t k)
{
    if (x->across == 1)
        return (gemm_ahead){x->at, x->along, lines_at(x->at, count), k};
    return (gemm_ahead){x->at, x->across, lines_at(x->at, k), count};
}

/* Asks for all of it, a row after the other: so the core sees long runs and reads ahead. */
static void ask(const gemm_ahead *ahead)
{
    for (int64_t r = 0; r < ahead->left; r++) {
        for (int64_t i = 0; i < ahead->lines; i++)
            __builtin_prefetch(ahead->at + r * ahead->stride + i * V16);
    }
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
                if (x.along == 1)
                    ask(&(gemm_ahead){x.at, x.across, lines_at(x.at, k), count});
                WF_ISA_NAME(wf_gemm_pack_rows)(panel, height, &x, count, k);
            }
            done += k;
        }
    }
}

/* What does not go to C directly: the tile in `edge`, in place of C or on top of it. */
static void put_edge(const float *edge, int64_t rows, int64_t cols, bool add, float *c,
                     int64_t c_row, int64_t c_col)
{
    for (int64_t i = 0; i < rows; i++, edge += GEMM_NR, c += c_row) {
        if (add && c_col == 1) {
            WF_ISA_NAME(wf_add)(c, edge, c, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j++)
            c[j * c_col] = add ? c[j * c_col] + edge[j] : edge[j];
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
    tile->own = (gemm_ahead){c, c_row, GEMM_VECTORS, c_col == 1 ? rows : 0};
    WF_ISA_NAME(wf_gemm_tile)(cut, tile);
    if (!direct && tile->window->last)
        put_edge(at->edge, rows, cols, p->g->add, c, c_row, c_col);
}

/* The strip at column j of a block; nothing to pack where it is read in place. */
static strip strip_at(const product *p, const block *at, const wf_gemm_window *w, int64_t j)
{
    strip s = {.window = w, .col = at->col0 + j, .count = least(GEMM_NR, at->cols - j)};

    if (s.count <= 0 || (s.count == GEMM_NR && p->plan.cols_in_place))
        s.step = w->n_steps;
    else
        s.panel = s.to = at->b + j / GEMM_NR % 2 * p->size.panel;
    return s;
}

/* The length of the strip's next piece, at most k, or 0 at its end. */
static int64_t next_piece(strip *s, int64_t k, wf_gemm_operand *x)
{
    for (; s->step < s->window->n_steps; s->step++, s->first = 0) {
        const wf_gemm_step *step = &s->window->step[s->step];

        if (s->first == step->k)
            continue;
        *x = step->cols;
        x->at += s->col * x->across + s->first * x->along;
        return least(k, step->k - s->first);
    }
    return 0;
}

static gemm_ahead piece_ahead(strip *s, int64_t most)
{
    wf_gemm_operand x;
    int64_t k = next_piece(s, most, &x);

    return k > 0 ? ahead_of(&x, s->count, k) : (gemm_ahead){.left = 0};
}

static int64_t pack_piece(strip *s, int64_t most)
{
    wf_gemm_operand x;
    int64_t k = next_piece(s, most, &x);

    if (k > 0) {
        WF_ISA_NAME(wf_gemm_pack_cols)(s->to, &x, s->count, k);
        s->to += k * GEMM_NR;
        s->first += k;
    }
    return k;
}

/* A tile's piece of the next strip is its share of the window, in whole lines. */
static void run_window(const product *p, const block *at, const wf_gemm_window *w)
{
    gemm_tile tile = {.window = w, .home = at->home, .home_level = p->size.level};
    int64_t share = tiles(tiles(w->k, tiles(at->rows, GEMM_MR)), V16) * V16;
    strip next = strip_at(p, at, w, 0);

    if (at->first_packed < at->rows)
        pack_rows(at, w);
    for (int64_t j = 0; j < at->cols; j += GEMM_NR) {
        tile.cols = (gemm_source){.panel = next.panel, .first = at->col0 + j};
        while (pack_piece(&next, w->k) > 0)
            ;
        next = strip_at(p, at, w, j + GEMM_NR);
        for (int64_t i = 0; i < at->rows; i += GEMM_MR) {
            tile.rows = (gemm_source){.first = at->row0 + i};
            if (i >= at->first_packed)
                tile.rows.panel = at->a + (i - at->first_packed) * w->k;
            tile.ahead = piece_ahead(&next, share);
            run_tile(p, at, &tile, at->row0 + i, at->col0 + j);
            tile.home += GEMM_TILE;
            pack_piece(&next, share);
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
