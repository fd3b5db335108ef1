/*
 * kernels/cpu/simd/gemm_micropanel.c - an NR micro-panel, GEMM_NR columns of a product: its
 * panel of B, packed run by run while the tiles of another micro-panel are computed (double buffering),
 * and its tiles. The panels of A, which all micro-panels of a block share, are packed here too.
 */
#include "kernels/cpu/simd/gemm_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"

enum { LINE = 64, SHORT_RUN = 16 };

/* The lowest tile that holds so many rows. */
static int cut_for(int64_t rows)
{
    int cut = 0;

    while (cut + 1 < GEMM_CUTS && gemm_height(cut + 1) >= rows)
        cut++;
    return cut;
}

/* Cache lines of so many floats from x on. */
static int64_t lines_at(const float *x, int64_t floats)
{
    return gemm_tiles((int64_t)((uintptr_t)x % LINE / sizeof *x) + floats, LINE / sizeof *x);
}

/* Where x(i, p) lies, i < count, p < k. */
static gemm_ahead ahead_of(const wf_gemm_operand *x, int64_t count, int64_t k)
{
    if (x->across == 1)
        return (gemm_ahead){x->at, x->along, lines_at(x->at, count), k};
    return (gemm_ahead){x->at, x->across, lines_at(x->at, k), count};
}

/* Prefetches all of it, a row after the other: so the core sees long runs and reads ahead. */
static void prefetch(const gemm_ahead *ahead)
{
    for (int64_t r = 0; r < ahead->left; r++) {
        for (int64_t i = 0; i < ahead->lines; i++)
            __builtin_prefetch(ahead->at + r * ahead->stride + i * V16);
    }
}

int64_t WF_ISA_NAME(wf_gemm_in_place)(const wf_gemm_blocking *blocking, int64_t rows)
{
    int64_t left = rows % GEMM_MR;

    if (!blocking->rows_in_place)
        return 0;
    return left == gemm_height(cut_for(left)) ? rows : rows - left;
}

/*
 * Where A lies across (a gradient of weights), tiles share cache lines that are a power of two
 * apart, and would not find them again after a whole panel: then all tiles take a short run of the
 * long dimension before the next one.
 */
void WF_ISA_NAME(wf_gemm_pack_a)(const gemm_macrokernel *at, int64_t begin, int64_t end)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    int64_t done = 0;

    for (int s = 0; s < w->n_steps; s++) {
        const wf_gemm_step *step = &w->step[s];
        wf_gemm_operand x = step->rows;
        int64_t length = x.across < x.along ? SHORT_RUN : step->k;

        for (int64_t run = 0; run < step->k; run += length) {
            int64_t k = wf_least(length, step->k - run);

            for (int64_t i = begin; i < end; i++) {
                int64_t row = at->first_packed + i * GEMM_MR;
                int64_t count = wf_least(GEMM_MR, at->rows - row);
                int height = gemm_height(cut_for(count));
                float *panel = at->a + i * GEMM_MR * w->k + done * height;

                x.at = step->rows.at + (at->row0 + row) * x.across + run * x.along;
                if (x.along == 1)
                    prefetch(&(gemm_ahead){x.at, x.across, lines_at(x.at, k), count});
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
static void run_tile(const gemm_product *p, const gemm_macrokernel *at, gemm_tile *tile,
                     float *edge, int64_t row, int64_t col)
{
    int64_t rows = wf_least(GEMM_MR, at->row0 + at->rows - row);
    int64_t cols = wf_least(GEMM_NR, at->col0 + at->cols - col);
    int64_t c_row = p->blocking.transpose ? 1 : p->g->c_row;
    int64_t c_col = p->blocking.transpose ? p->g->c_row : 1;
    int cut = cut_for(rows);
    float *c = p->g->c + row * c_row + col * c_col;
    bool direct = rows == gemm_height(cut) && cols == GEMM_NR && c_col == 1 && !p->g->add;

    tile->c = direct ? c : edge;
    tile->c_row = direct ? c_row : GEMM_NR;
    tile->own = (gemm_ahead){c, c_row, GEMM_VECTORS, c_col == 1 ? rows : 0};
    WF_ISA_NAME(wf_gemm_microkernel)(cut, tile);
    if (!direct && tile->kc_block->last)
        put_edge(edge, rows, cols, p->g->add, c, c_row, c_col);
}

gemm_micropanel WF_ISA_NAME(wf_gemm_micropanel)(const gemm_product *p,
                                                const gemm_macrokernel *at, int64_t column,
                                                float *panel)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    gemm_micropanel s = {
        .kc_block = w, .col = column, .count = wf_least(GEMM_NR, at->cols - column)};

    if (s.count == GEMM_NR && p->blocking.cols_in_place)
        s.step = w->n_steps;
    else
        s.panel = s.to = panel;
    s.col += at->col0;
    return s;
}

/* The length of the micro-panel's next run, at most k, or 0 at its end. */
static int64_t next_run(gemm_micropanel *s, int64_t k, wf_gemm_operand *x)
{
    for (; s->step < s->kc_block->n_steps; s->step++, s->first = 0) {
        const wf_gemm_step *step = &s->kc_block->step[s->step];

        if (s->first == step->k)
            continue;
        *x = step->cols;
        x->at += s->col * x->across + s->first * x->along;
        return wf_least(k, step->k - s->first);
    }
    return 0;
}

static gemm_ahead ahead_of_panel(gemm_micropanel *s, int64_t most)
{
    wf_gemm_operand x;
    int64_t k = next_run(s, most, &x);

    return k > 0 ? ahead_of(&x, s->count, k) : (gemm_ahead){.left = 0};
}

static int64_t pack_run(gemm_micropanel *s, int64_t most)
{
    wf_gemm_operand x;
    int64_t k = next_run(s, most, &x);

    if (k > 0) {
        WF_ISA_NAME(wf_gemm_pack_cols)(s->to, &x, s->count, k);
        s->to += k * GEMM_NR;
        s->first += k;
    }
    return k;
}

void WF_ISA_NAME(wf_gemm_run_micropanel)(const gemm_product *p, const gemm_macrokernel *at,
                                         float *edge, gemm_rows rows, gemm_micropanel *now,
                                         gemm_micropanel *next)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    int64_t share = gemm_tiles(gemm_tiles(w->k, rows.share), V16) * V16;
    int64_t index = (now->col - at->col0) / GEMM_NR * gemm_tiles(at->rows, GEMM_MR);
    gemm_tile tile = {.kc_block = w,
                      .cols = {.panel = now->panel, .first = now->col},
                      .spill = p->spill + (index + rows.begin / GEMM_MR) * GEMM_TILE,
                      .spill_level = p->spill_level};

    while (pack_run(now, w->k) > 0)
        ;
    for (int64_t i = rows.begin; i < rows.end; i += GEMM_MR) {
        tile.rows = (gemm_source){.first = at->row0 + i};
        if (i >= at->first_packed)
            tile.rows.panel = at->a + (i - at->first_packed) * w->k;
        /* What a tile packs of the next micro-panel is its share of the KC block, in whole lines. */
        tile.ahead = next ? ahead_of_panel(next, share) : (gemm_ahead){.left = 0};
        run_tile(p, at, &tile, edge, at->row0 + i, now->col);
        tile.spill += GEMM_TILE;
        if (next)
            pack_run(next, share);
    }
}
