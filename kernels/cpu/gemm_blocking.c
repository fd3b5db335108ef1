/*
 * kernels/cpu/gemm_blocking.c - the blocking of a product: KC blocks over the long dimension,
 * blocks over C.
 */
#include "kernels/cpu/gemm_blocking_internal.h"
#include "core/numerics/tree.h"

/* Up to this many columns are worth transposing into rows: a tile is wider than it is high. */
enum { FEW_COLUMNS = 8 };

/*
 * A number that a block packs is used once for each of its columns, or of its rows: with so few
 * uses packing costs more than reading it where it lies. Some rows are slow to read, and packed
 * for more than SLOW_USES: those that lie whole pages apart share a few lines of a cache, and
 * of rows side by side a low tile reads too little of each line, or all lines are of other
 * pages.
 */
enum { ROW_USES = 128, SLOW_USES = 32, COL_USES = 160, LOW = 8, PAGE = 4096 / sizeof(float) };

/* Below this many multiplications waking a second thread costs more than it brings. */
static const double alone = 1 << 18;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t element_size(const wf_gemm *g)
{
    return g->bf16 ? sizeof(uint16_t) : sizeof(float);
}

bool wf_gemm_is_empty(const wf_gemm *g)
{
    for (int64_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i].k > 0)
            return false;
    }
    return true;
}

/* Makes the current chunk a node of the tree; returns how many older ones it is added to. */
static int end_chunk(wf_gemm_cursor *c, bool empty)
{
    int older;

    c->depth -= wf_tree_merges_each(c->n_chunks, c->each, c->chunk++);
    older = __builtin_popcountll(c->filled >> c->depth);
    c->filled &= ((uint64_t)1 << c->depth) - 1;
    if (older > 0 || !empty)
        c->filled |= (uint64_t)1 << c->depth;
    c->depth++;
    return older;
}

/* Returns true where a part continues the chunk of the one before it. */
static bool goes_on(const wf_gemm_cursor *c, int64_t part)
{
    return part < c->n_parts && !c->parts[part].chunk;
}

/* Returns the next part of this chunk that has terms, or the first one of the next chunk. */
static int64_t next_part(const wf_gemm_cursor *c, int64_t part)
{
    while (goes_on(c, part) && c->parts[part].k == 0)
        part++;
    return part;
}

/* Passes over chunks that change nothing: empty ones that are added to one node at most. */
static void skip_empty(wf_gemm_cursor *c)
{
    while (c->part < c->n_parts && c->parts[c->part].k == 0) {
        wf_gemm_cursor after = *c;

        after.part = next_part(c, c->part + 1);
        if (!goes_on(c, after.part) && end_chunk(&after, true) > 1)
            return;
        *c = after;
    }
}

wf_gemm_cursor wf_gemm_begin(const wf_gemm *g, bool transpose, int64_t pad)
{
    wf_gemm_cursor c = {.parts = g->parts,
                        .n_parts = g->n_parts,
                        .each = g->each > 0 ? g->each : 1,
                        .pad = pad,
                        .size = element_size(g),
                        .transpose = transpose};

    for (int64_t i = 0; i < g->n_parts; i++)
        c.n_chunks += g->parts[i].chunk || i == 0;
    skip_empty(&c);
    return c;
}

/* Returns A's rows, or B's columns, from element `first` of the long dimension on. */
static wf_gemm_operand operand(const wf_gemm_part *part, bool of_b, int64_t first, int64_t size)
{
    wf_gemm_operand x = of_b ? (wf_gemm_operand){part->b, part->b_col, part->b_k, size}
                             : (wf_gemm_operand){part->a, part->a_row, part->a_k, size};

    /* NULL where only the workspace is wanted */
    return first > 0 && x.at ? wf_gemm_from(x, 0, first) : x;
}

/* Takes up to `room` elements of the current part, in runs of one length where it is longer. */
static void take(wf_gemm_cursor *c, int64_t room, int64_t kc, wf_gemm_step *step)
{
    const wf_gemm_part *part = &c->parts[c->part];
    int64_t left = part->k - c->first;

    *step = (wf_gemm_step){.part = part, .first = c->first, .merges = -1, .level = c->level};
    step->rows = operand(part, c->transpose, c->first, c->size);
    step->cols = operand(part, !c->transpose, c->first, c->size);
    step->k = left <= room
                  ? left
                  : min64(room, wf_gemm_padded(div_up(left, div_up(left, kc)), c->pad));
    c->first += step->k;
    c->open |= step->k > 0;
    if (step->k < left)
        return;
    c->part = next_part(c, c->part + 1);
    c->first = 0;
    if (goes_on(c, c->part))
        return;
    step->merges = end_chunk(c, !c->open);
    c->level += 1 - step->merges;
    c->open = false;
    skip_empty(c);
}

/* Marks the partial sums that outlive the KC block, then for every step where the open nodes
   are. */
static void settle(wf_gemm_kc_block *w, int level)
{
    int opened_by[WF_TREE_DEPTH + 1];
    uint64_t spilled = ~(uint64_t)0;

    for (int i = 0; i < level; i++)
        opened_by[i] = -1;
    for (int i = 0; i < w->n_steps; i++) {
        if (w->step[i].merges >= 0) {
            level = w->step[i].level - w->step[i].merges;
            opened_by[level++] = i;
        }
    }
    for (int i = 0; i < level; i++) {
        if (opened_by[i] >= 0)
            w->step[opened_by[i]].spills = true;
    }
    for (int i = 0; i < w->n_steps; i++) {
        wf_gemm_step *step = &w->step[i];

        step->spilled = spilled;
        if (step->merges >= 0) {
            uint64_t bit = (uint64_t)1 << (step->level - step->merges);

            spilled = step->spills ? spilled | bit : spilled & ~bit;
        }
    }
}

void wf_gemm_next(wf_gemm_cursor *cursor, int64_t kc, wf_gemm_kc_block *w)
{
    wf_gemm_cursor c = *cursor, best = c;
    int64_t k = 0, best_k = 0;
    int n = 0, best_n = 0, low = c.level;

    w->resume = c.open;
    while (c.part < c.n_parts && n < WF_GEMM_STEPS && c.level - low < WF_GEMM_LOCAL &&
           (k < kc || c.parts[c.part].k == 0)) {
        take(&c, kc - k, kc, &w->step[n]);
        low = c.level < low ? c.level : low;
        k += wf_gemm_padded(w->step[n++].k, c.pad);
        /* In the second half of a KC block, stop where a chunk ends and fewest nodes are
           open. */
        if (!c.open && (2 * k > kc || 2 * n > WF_GEMM_STEPS) &&
            (best_n == 0 || c.level <= best.level)) {
            best = c;
            best_k = k;
            best_n = n;
        }
    }
    if (best_n == 0 || c.part == c.n_parts) {
        best = c;
        best_k = k;
        best_n = n;
    }
    w->n_steps = best_n;
    w->k = best_k;
    w->last = best.part == best.n_parts;
    settle(w, cursor->level);
    *cursor = best;
}

/* Measures the levels of spilled partial sums and the longest KC block. */
static void measure(const wf_gemm *g, const wf_gemm_limits *limits, wf_gemm_blocking *blocking)
{
    wf_gemm_cursor c = wf_gemm_begin(g, blocking->transpose, limits->pad);
    wf_gemm_kc_block w = {.last = c.part == c.n_parts};

    while (!w.last) {
        wf_gemm_next(&c, limits->kc, &w);
        if (w.k > blocking->kc)
            blocking->kc = w.k;
        if (!w.last && c.level + c.open > blocking->levels)
            blocking->levels = c.level + c.open;
    }
}

static bool slow_rows(const wf_gemm_operand *rows, const wf_gemm_limits *limits)
{
    return rows->along == 1 ? rows->across % PAGE == 0
                            : rows->along > PAGE / 4 || limits->mr < LOW;
}

/*
 * Which operands tiles of a block read where they lie: those of few uses that they can read
 * well. Rows lie one after the other, in runs long enough to pay for finding each row, or side
 * by side; columns side by side, as they are loaded in vectors. What lies side by side must not
 * have steps of whole pages, which all fall on the same few lines of a level 1 cache.
 */
static void find_in_place(const wf_gemm *g, const wf_gemm_limits *limits,
                          wf_gemm_blocking *blocking)
{
    enum { SHORT_RUN = 16 };
    int64_t row_uses = ROW_USES;

    blocking->rows_in_place = blocking->cols_in_place = true;
    for (int64_t i = 0; i < g->n_parts; i++) {
        const wf_gemm_part *part = &g->parts[i];
        wf_gemm_operand rows = operand(part, blocking->transpose, 0, element_size(g));
        wf_gemm_operand cols = operand(part, !blocking->transpose, 0, element_size(g));

        if (part->k <= 0)
            continue;
        if (slow_rows(&rows, limits))
            row_uses = SLOW_USES;
        blocking->rows_in_place &= (rows.along == 1 && part->k >= SHORT_RUN) ||
                                   (rows.across == 1 && rows.along % PAGE != 0);
        blocking->cols_in_place &= cols.across == 1 && cols.along % PAGE != 0;
    }
    blocking->rows_in_place &= blocking->cols <= row_uses;
    blocking->cols_in_place &= blocking->group <= COL_USES;
}

/* Multiplications that a core does in the time in which it packs one number. */
static const int64_t pack_cost = 14;

/* Returns the length of a part, in whole tiles, where a limit asks for as few parts as it
   allows. */
static int64_t part_length(int64_t size, int64_t tile, int64_t limit)
{
    return div_up(div_up(size, tile), div_up(size, limit)) * tile;
}

/* Returns the rows of a group: the thread pool does all micro-panels of a group before the next
   group, in the least time, the packing of each micro-panel included. */
static int64_t group_of(const wf_gemm_limits *limits, int64_t threads,
                        const wf_gemm_blocking *blocking)
{
    int64_t fewest = div_up(blocking->rows, limits->block_rows), best = 0, least = INT64_MAX;
    int64_t micropanels = div_up(blocking->cols, limits->nr);

    for (int64_t groups = fewest; groups < fewest + threads; groups++) {
        int64_t rows = div_up(div_up(blocking->rows, limits->mr), groups) * limits->mr;
        int64_t rounds = div_up(micropanels * div_up(blocking->rows, rows), threads);
        int64_t cost = rounds * (rows + pack_cost);

        if (cost < least) {
            least = cost;
            best = rows;
        }
    }
    return best;
}

/*
 * Cuts a product for the members of a thread pool: along the columns into as many parts as are
 * whole blocks, and along the rows for the remaining members: packed rows are then used for the
 * most columns.
 */
static void cut_blocks(const wf_gemm_limits *limits, int64_t threads,
                       wf_gemm_blocking *blocking)
{
    int64_t beside = min64(threads, div_up(blocking->n, limits->block_cols));
    int64_t after = div_up(threads, beside);

    blocking->rows = part_length(blocking->m, limits->mr, limits->block_rows * after);
    blocking->cols = part_length(blocking->n, limits->nr, limits->block_cols * beside);
    blocking->row_blocks = div_up(blocking->m, blocking->rows);
    blocking->col_blocks = div_up(blocking->n, blocking->cols);
    blocking->group = group_of(limits, threads, blocking);
}

int wf_gemm_threads(const wf_gemm *g, int threads)
{
    double work = (double)g->m * (double)g->n;
    int64_t k = 0;

    for (int64_t i = 0; i < g->n_parts; i++)
        k += g->parts[i].k;
    return work * (double)k < alone ? 1 : threads;
}

wf_gemm_blocking wf_gemm_blocking_of(const wf_gemm *g, const wf_gemm_limits *limits,
                                     int threads)
{
    wf_gemm_blocking blocking = {.m = g->m, .n = g->n};

    if (g->n <= FEW_COLUMNS && g->m > g->n)
        blocking = (wf_gemm_blocking){.transpose = true, .m = g->n, .n = g->m};
    if (g->m <= 0 || g->n <= 0)
        return blocking;
    measure(g, limits, &blocking);
    cut_blocks(limits, threads, &blocking);
    if (limits->pad == 1)
        find_in_place(g, limits, &blocking);
    return blocking;
}
