/*
 * kernels/cpu/simd/gemm_small_m.c - products of bf16 operands with few rows, of decoding above
 * all: B is read once, where it lies, at the speed of memory. Some columns at a time go through
 * all parts: by lines (gemm_small_m_lines.c), or a block of their terms is packed on the stack,
 * and its rows of A beside it.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/simd/gemm_small_m_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/cpu/thread_pool_internal.h"

enum { MOST_CHUNKS = 64 }; /* their open nodes are WF_GEMM_LOCAL at most */

/* Below this many elements of B waking a second thread costs more than it brings. */
static const int64_t alone = 1 << 18;

static int64_t chunks_of(const wf_gemm *g)
{
    int64_t chunks = 0;

    for (int64_t i = 0; i < g->n_parts; i++)
        chunks += g->parts[i].chunk || i == 0;
    return chunks;
}

bool WF_ISA_NAME(wf_gemm_is_small_m)(const wf_gemm *g)
{
    return g->bf16 && g->n_parts > 0 && g->m <= WF_GEMV_ROWS && g->n > WF_GEMV_ROWS &&
           chunks_of(g) <= MOST_CHUNKS;
}

/* Prefetches the lines some blocks ahead: of these columns, or after the last part those of the
   next ones. */
INLINE void prefetch(const wf_gemm *g, const wf_gemm_part *part, int64_t col, int64_t p)
{
    enum { AHEAD = 4 * WF_GEMM_TERMS };
    int64_t at = p + AHEAD;
    const int64_t size = sizeof(uint16_t);
    int64_t b; /* an address, which may lie beyond the matrix */

    if (part->b_k != 1) { /* a line of each term */
        b = (int64_t)(uintptr_t)part->b +
            (col * part->b_col + (p + WF_GEMM_TERMS) * part->b_k) * size;
        for (int i = 0; i < WF_GEMM_TERMS; i++)
            __builtin_prefetch((const void *)(b + i * part->b_k * size));
        return;
    }
    if (at >= part->k && part + 1 == g->parts + g->n_parts) {
        at -= part->k;
        part = g->parts;
        col += GEMM_NR;
    }
    b = (int64_t)(uintptr_t)part->b + (col * part->b_col + at) * size;
    for (int i = 0; i < GEMM_NR; i++)
        __builtin_prefetch((const void *)(b + i * part->b_col * size), 0, 2);
}

/* Packs a block of columns: whole lines are transposed in registers. */
INLINE void pack(float *to, const wf_gemm_operand *b, int64_t cols, int64_t terms)
{
    if (b->along != 1 || cols < GEMM_NR || terms < WF_GEMM_TERMS) {
        for (int v = 0; v < GEMM_NR; v += V16) {
            wf_gemm_operand some = wf_gemm_from(*b, v, 0);

            gemm_pack_some(to + v, GEMM_NR, &some, cols - v, terms);
        }
        return;
    }
    UNROLL
    for (int v = 0; v < GEMM_NR; v += V16) {
        v16 word[V16];

        transpose_line(word, wf_gemm_from(*b, v, 0).at, b->across * b->size);
        UNROLL
        for (int q = 0; q < GEMM_PAIRS; q++) {
            v16_store(to + q * GEMM_NR + v, gemm_even(v16u_of(word[q])));
            v16_store(to + (GEMM_PAIRS + q) * GEMM_NR + v, gemm_odd(v16u_of(word[q])));
        }
    }
}

/* Adds a part's blocks to `sum`, for rows row .. and columns col .. of C. */
INLINE void add_part(const int rows, float *sum, const wf_gemm *g, const wf_gemm_part *part,
                     int64_t row, int64_t col)
{
    const wf_gemm_operand b = {part->b, part->b_col, part->b_k, sizeof(uint16_t)};
    const int64_t cols = wf_least(GEMM_NR, g->n - col);
    gemm_modes modes = gemm_flush(sum);

    for (int64_t p = 0; p < part->k; p += WF_GEMM_TERMS) {
        _Alignas(LINE) float wide[WF_GEMM_TERMS * GEMM_NR];
        _Alignas(LINE) float a[MOST_ROWS * WF_GEMM_TERMS];
        int64_t terms = wf_least(WF_GEMM_TERMS, part->k - p);
        wf_gemm_operand block = wf_gemm_from(b, col, p);

        if (col + 2 * GEMM_NR <= g->n)
            prefetch(g, part, col, p);
        pack(wide, &block, cols, terms);
        UNROLL
        for (int i = 0; i < rows; i++) { /* missing rows read the last one */
            const uint16_t *at = (const uint16_t *)part->a +
                                 wf_least(row + i, g->m - 1) * part->a_row + p * part->a_k;

            widen_row(a + i * WF_GEMM_TERMS, at, part->a_k, terms);
        }
        gemm_add_block(rows, WF_GEMM_TERMS, 1, false, sum, a, wide, ((int)terms + 1) / 2);
    }
    gemm_restore(modes, sum);
}

INLINE void tile(const int rows, const small_m *x, int64_t row, int64_t col)
{
    _Alignas(LINE) float node[WF_GEMM_LOCAL][MOST_ROWS * GEMM_NR], sum[MOST_ROWS * GEMM_NR];
    const wf_gemm *g = x->g;
    const int64_t floats = rows * GEMM_NR, c = row * g->c_row + col;
    const size_t bytes = (size_t)floats * sizeof *sum;
    int64_t chunk = 0;
    int level = 0;

    memset(sum, 0, bytes);
    for (int64_t i = 0; i < g->n_parts; i++) {
        add_part(rows, sum, g, &g->parts[i], row, col);
        if (i + 1 < g->n_parts && !g->parts[i + 1].chunk)
            continue;
        for (int merges = wf_tree_merges_each(x->chunks, x->each, chunk++); merges > 0;
             merges--)
            merge(sum, node[--level], floats);
        memcpy(node[level++], sum, bytes);
        memset(sum, 0, bytes);
    }
    if (level > 0)
        merge(sum, node[0], floats); /* no zero keeps its sign */
    WF_ISA_NAME(wf_gemm_put_edge)
    (g, sum, GEMM_NR, wf_least(rows, g->m - row), wf_least(GEMM_NR, g->n - col),
     g->c_bf16 ? (void *)((uint16_t *)g->c + c) : (void *)((float *)g->c + c), g->c_row, 1);
}

/* One function for each number of rows, in which loops over rows are straight lines. */
static void tile_1(const small_m *x, int64_t row, int64_t col)
{
    tile(1, x, row, col);
}

static void tile_2(const small_m *x, int64_t row, int64_t col)
{
    tile(2, x, row, col);
}

static void tile_4(const small_m *x, int64_t row, int64_t col)
{
    tile(4, x, row, col);
}

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
static void tile_8(const small_m *x, int64_t row, int64_t col)
{
    tile(8, x, row, col);
}
#endif

/* Products that are one job. */
typedef struct job {
    small_m x[WF_GEMV_MEMBERS];
    gemm_groups groups;
} job;

static void run(void *arg, int64_t begin, int64_t end, int worker)
{
    static void (*const tiles[])(const small_m *, int64_t, int64_t) = {
        tile_1,
        tile_2,
        tile_4,
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
        tile_8
#endif
    };
    const job *j = arg;

    (void)worker;
    for (int64_t at = begin; at < end; at++) {
        int member = gemm_member(&j->groups, at);
        const small_m *x = &j->x[member];
        int64_t col = (at - j->groups.first[member]) * GEMM_NR;

        if (x->lined && col + GEMM_NR <= x->g->n) {
            for (int v = 0; v < GEMM_NR; v += V16)
                WF_ISA_NAME(wf_gemm_small_m_lines)(x, col + v);
            continue;
        }
        for (int64_t row = 0, step; row < x->g->m; row += step) {
            step = rows_of_tile(x->g->m - row);
            tiles[__builtin_ctzll((uint64_t)step)](x, row, col);
        }
    }
}

void WF_ISA_NAME(wf_gemm_small_m)(struct wf_thread_pool *pool, const wf_gemm *g, int members)
{
    enum {
        TASK = 1 << 16, /* elements of B */
        TASKS = 4       /* tasks of each worker: within one, what comes next is prefetched */
    };
    int64_t workers = pool ? wf_thread_pool_size(pool) : 1, k = 0, columns = 0, groups, grain;
    _Alignas(LINE) float row[MOST_LINED];
    job j = {.groups = {.members = members}};
    bool any = false;

    for (int64_t i = 0; i < g->n_parts; i++)
        k += g->parts[i].k;
    for (int i = 0; i < members; i++) {
        bool lined = WF_ISA_NAME(wf_gemm_small_m_by_lines)(&g[i], k);

        any |= lined;
        j.x[i] = (small_m){&g[i], chunks_of(&g[i]), g[i].each > 0 ? g[i].each : 1,
                           lined ? row : NULL};
        j.groups.first[i + 1] = j.groups.first[i] + gemm_tiles(g[i].n, GEMM_NR);
        columns += g[i].n;
    }
    if (any)
        WF_ISA_NAME(wf_gemm_small_m_line_up)(g, row);
    groups = j.groups.first[members];
    grain = k > 0 ? TASK / (GEMM_NR * k) : groups;
    grain = grain < groups / (TASKS * workers) ? groups / (TASKS * workers) : grain;
    grain = grain > 0 ? grain : 1;
    if (columns * k < alone)
        pool = NULL;
    if (g->n_parts > 0)
        wf_thread_pool_streams(pool, g->parts[0].b,
                               (const uint16_t *)g->parts[0].b + grain * GEMM_NR * k);
    wf_thread_pool_run(pool, groups, grain, run, &j);
}
