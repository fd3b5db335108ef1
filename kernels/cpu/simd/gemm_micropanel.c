/*
 * kernels/cpu/simd/gemm_micropanel.c - an NR micro-panel, nr columns of a product: its
 * panel of B, packed run by run while the tiles of another micro-panel are computed (double
 * buffering), and its tiles. The panels of A, which all micro-panels of a block share, are
 * packed here too.
 */
#include "kernels/cpu/simd/gemm_internal.h"
#include "core/numerics/bf16.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"

enum { LINE = 64, SHORT_RUN = 16 };

/* Returns the lowest tile that holds `rows` rows. */
static int cut_for(const gemm_kind *kind, int64_t rows)
{
    int cut = 0;

    while (cut + 1 < GEMM_CUTS && kind->heights[cut + 1] >= rows)
        cut++;
    return cut;
}

/* Returns the cache lines of `bytes` bytes from x on. */
static int64_t lines_at(const void *x, int64_t bytes)
{
    return gemm_tiles((int64_t)((uintptr_t)x % LINE) + bytes, LINE);
}

/* Returns the lines of x(i, p), i < count, p < k. */
static gemm_ahead ahead_of(const wf_gemm_operand *x, int64_t count, int64_t k)
{
    if (x->across == 1)
        return (gemm_ahead){x->at, x->along * x->size, lines_at(x->at, count * x->size), k};
    return (gemm_ahead){x->at, x->across * x->size, lines_at(x->at, k * x->size), count};
}

/* Prefetches all of it, a row after the other: so the core sees long runs and reads ahead. */
static void prefetch(const gemm_ahead *ahead)
{
    for (int64_t r = 0; r < ahead->left; r++) {
        for (int64_t i = 0; i < ahead->lines; i++)
            __builtin_prefetch(ahead->at + r * ahead->stride + i * LINE);
    }
}

int64_t WF_ISA_NAME(wf_gemm_in_place)(const gemm_product *p, int64_t rows)
{
    int64_t left = rows % p->kind->limits.mr;

    if (!p->blocking.rows_in_place)
        return 0;
    return left == p->kind->heights[cut_for(p->kind, left)] ? rows : rows - left;
}

/*
 * Packs A. Where A is transposed (a gradient of weights), tiles share cache lines that are a
 * power of two apart, and would miss them after a whole panel: then all tiles take a short run
 * of the long dimension before the next one.
 */
void WF_ISA_NAME(wf_gemm_pack_a)(const gemm_product *p, const gemm_macrokernel *at,
                                 int64_t begin, int64_t end)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    const gemm_kind *kind = p->kind;
    const int64_t mr = kind->limits.mr, pad = kind->limits.pad;
    int64_t done = 0;

    for (int s = 0; s < w->n_steps; s++) {
        const wf_gemm_step *step = &w->step[s];
        wf_gemm_operand x = step->rows;
        int64_t length = x.across < x.along ? wf_gemm_padded(SHORT_RUN, pad) : step->k;

        for (int64_t run = 0; run < step->k; run += length) {
            int64_t k = wf_least(length, step->k - run);

            for (int64_t i = begin; i < end; i++) {
                int64_t row = at->first_packed + i * mr;
                int64_t count = wf_least(mr, at->rows - row);
                int height = kind->heights[cut_for(kind, count)];
                char *panel = at->a + (i * mr * w->k + done * height) * kind->a_bytes;
                gemm_ahead whole;

                x = wf_gemm_from(step->rows, at->row0 + row, run);
                whole = ahead_of(&x, count, k);
                if (x.along == 1)
                    prefetch(&whole);
                kind->pack_rows(panel, height, &x, count, k);
            }
            done += wf_gemm_padded(k, pad);
        }
    }
}

/* Rounds the tile in `edge`. */
static void round_edge(const float *edge, int64_t nr, int64_t rows, int64_t cols, uint16_t *c,
                       int64_t c_row, int64_t c_col)
{
    for (int64_t i = 0; i < rows; i++, edge += nr, c += c_row) {
        if (c_col == 1) {
            WF_ISA_NAME(wf_narrow)(edge, c, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j++)
            c[j * c_col] = wf_bf16_of(edge[j]);
    }
}

static void float_edge(const float *edge, int64_t nr, int64_t rows, int64_t cols, bool add,
                       float *c, int64_t c_row, int64_t c_col)
{
    for (int64_t i = 0; i < rows; i++, edge += nr, c += c_row) {
        if (add && c_col == 1) {
            WF_ISA_NAME(wf_add)(c, edge, c, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j++)
            c[j * c_col] = add ? c[j * c_col] + edge[j] : edge[j];
    }
}

void WF_ISA_NAME(wf_gemm_put_edge)(const wf_gemm *g, const float *edge, int64_t nr,
                                   int64_t rows, int64_t cols, void *c, int64_t c_row,
                                   int64_t c_col)
{
    if (g->c_bf16)
        round_edge(edge, nr, rows, cols, c, c_row, c_col);
    else
        float_edge(edge, nr, rows, cols, g->add, c, c_row, c_col);
}

/* Returns the output of a tile's roots, for a kind that stores them itself. */
static gemm_out out_of(const gemm_product *p, char *c, int64_t row_bytes, int64_t rows,
                       int64_t cols)
{
    bool lines =
        cols == p->kind->limits.nr && (uintptr_t)c % LINE == 0 && row_bytes % LINE == 0;

    return (gemm_out){.c = c,
                      .row_bytes = row_bytes,
                      .rows = (int)rows,
                      .cols = (int)cols,
                      .bf16 = p->g->c_bf16,
                      .add = p->g->add,
                      .non_temporal = p->non_temporal && lines};
}

/* Runs a tile. Its roots go to C directly where its rows are along C's, and, unless the kind
   knows more, it is a whole tile, and they are all that C is to be. */
static void run_tile(const gemm_product *p, const gemm_macrokernel *at, gemm_tile *tile,
                     const gemm_own *own, int64_t row, int64_t col)
{
    const gemm_kind *kind = p->kind;
    int64_t nr = kind->limits.nr, rows = wf_least(kind->limits.mr, at->row0 + at->rows - row);
    int64_t cols = wf_least(nr, at->col0 + at->cols - col);
    int64_t c_row = p->blocking.transpose ? 1 : p->g->c_row;
    int64_t c_col = p->blocking.transpose ? p->g->c_row : 1;
    int cut = cut_for(kind, rows);
    int64_t size = p->g->c_bf16 ? sizeof(uint16_t) : sizeof(float);
    char *c = (char *)p->g->c + (row * c_row + col * c_col) * size;
    bool direct = c_col == 1 &&
                  (kind->state_bytes > 0 ||
                   (rows == kind->heights[cut] && cols == nr && !p->g->add && !p->g->c_bf16));

    tile->c = direct ? (float *)(void *)c : own->edge;
    tile->c_row = direct ? c_row : nr;
    tile->out = direct ? out_of(p, c, c_row * size, rows, cols)
                       : (gemm_out){.c = (char *)own->edge,
                                    .row_bytes = nr * (int64_t)sizeof(float),
                                    .rows = (int)rows,
                                    .cols = (int)cols};
    tile->own = (gemm_ahead){c, c_row * size, nr * size / LINE, c_col == 1 ? rows : 0};
    kind->microkernel(cut, tile);
    if (direct || !tile->kc_block->last)
        return;
    if (kind->state_bytes > 0)
        kind->settle(tile->state);
    WF_ISA_NAME(wf_gemm_put_edge)(p->g, own->edge, nr, rows, cols, c, c_row, c_col);
}

gemm_micropanel WF_ISA_NAME(wf_gemm_micropanel)(const gemm_product *p,
                                                const gemm_macrokernel *at, int64_t column,
                                                char *panel)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    gemm_micropanel s = {
        .kc_block = w, .col = column, .count = wf_least(p->kind->limits.nr, at->cols - column)};

    if (s.count == p->kind->limits.nr && p->blocking.cols_in_place)
        s.step = w->n_steps;
    else
        s.panel = s.to = panel;
    s.col += at->col0;
    return s;
}

/* Returns the length of the micro-panel's next run, at most k, or 0 at its end. */
static int64_t next_run(gemm_micropanel *s, int64_t k, wf_gemm_operand *x)
{
    for (; s->step < s->kc_block->n_steps; s->step++, s->first = 0) {
        const wf_gemm_step *step = &s->kc_block->step[s->step];

        if (s->first == step->k)
            continue;
        *x = wf_gemm_from(step->cols, s->col, s->first);
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

int64_t WF_ISA_NAME(wf_gemm_pack_run)(const gemm_kind *kind, gemm_micropanel *s, int64_t most)
{
    wf_gemm_operand x;
    int64_t k = next_run(s, most, &x);

    if (k > 0) {
        kind->pack_cols(s->to, &x, s->count, k);
        s->to += wf_gemm_padded(k, kind->limits.pad) * kind->limits.nr * kind->b_bytes;
        s->first += k;
    }
    return k;
}

/* Packs the remainder of a micro-panel. Columns that lie side by side have those of the next
   one beside them, and memory sends two cache lines at the price of one: that one is packed
   with it. */
static void pack_on_arrival(const gemm_kind *kind, gemm_micropanel *now, gemm_micropanel *next)
{
    const wf_gemm_kc_block *w = now->kc_block;
    bool both = next && next->kc_block == w && next->col == now->col + kind->limits.nr &&
                w->step->cols.across == 1;
    int64_t run = both ? kind->limits.pad : w->k;

    while (WF_ISA_NAME(wf_gemm_pack_run)(kind, now, run) > 0) {
        if (both)
            WF_ISA_NAME(wf_gemm_pack_run)(kind, next, run);
    }
}

void WF_ISA_NAME(wf_gemm_run_micropanel)(const gemm_product *p, const gemm_macrokernel *at,
                                         const gemm_own *own, gemm_rows rows,
                                         gemm_micropanel *now, gemm_micropanel *next)
{
    const wf_gemm_kc_block *w = &at->kc_block;
    const gemm_kind *kind = p->kind;
    const int64_t mr = kind->limits.mr, nr = kind->limits.nr;
    const int64_t share =
        wf_gemm_padded(gemm_tiles(gemm_tiles(w->k, rows.share), V16) * V16, kind->limits.pad);
    int64_t index = (now->col - at->col0) / nr * gemm_tiles(at->rows, mr);
    gemm_tile tile = {.kc_block = w,
                      .cols = {.panel = now->panel, .first = now->col},
                      .spill = p->spill + (index + rows.begin / mr) * mr * nr,
                      .spill_level = p->spill_level,
                      .state = own->state};

    pack_on_arrival(kind, now, kind->state_bytes > 0 ? next : NULL);
    if (kind->state_bytes > 0)
        next = NULL;
    for (int64_t i = rows.begin; i < rows.end; i += mr) {
        tile.rows = (gemm_source){.first = at->row0 + i};
        if (i >= at->first_packed)
            tile.rows.panel = at->a + (i - at->first_packed) * w->k * kind->a_bytes;
        /* a tile packs, of the next micro-panel, its share of the KC block, in whole lines */
        tile.ahead = next ? ahead_of_panel(next, share) : (gemm_ahead){.left = 0};
        run_tile(p, at, &tile, own, at->row0 + i, now->col);
        tile.spill += mr * nr;
        if (next)
            WF_ISA_NAME(wf_gemm_pack_run)(kind, next, share);
    }
}
