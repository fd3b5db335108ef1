/*
 * kernels/cpu/simd/gemv.c - small-M products (GEMV for one row): a few rows times a
 * matrix of weights, which is read once, as it is stored, at the speed of memory: decoding of a
 * token.
 *
 * Lanes are columns of the product, which are rows of the weights: sixteen of them are read a
 * cache line each, transposed in registers, and multiplied element by element of the long
 * dimension. So an element of the product is the same expression as in gemm_microkernel.c.
 */
#include "core/numerics/bf16.h"
#include "core/numerics/tree.h"
#include "kernels/cpu/simd/gemm_internal.h"
#include "kernels/cpu/simd/gemv_internal.h"
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include "kernels/cpu/vec_internal.h"
#include <string.h>

enum {
    QUAD = 16, /* bytes of a row that are transposed at once: four floats, or eight bf16 */
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    MOST_ROWS = 8 /* rows of sums that are held in registers */
#elif WF_ISA_LEVEL != WF_ISA_LEVEL_portable
    MOST_ROWS = 4
#else
    MOST_ROWS = 1
#endif
};

/* Below this many bytes of weights waking a second thread costs more than it brings. */
static const int64_t alone = 1 << 19;

/* Gathers one element of sixteen rows of the weights. */
INLINE v16 gather(const bool bf16, const char *at, int64_t row)
{
    float x[V16];

    for (int j = 0; j < V16; j++, at += row) {
        uint16_t half;

        if (bf16) {
            memcpy(&half, at, sizeof half);
            x[j] = wf_bf16_value(half);
        } else {
            memcpy(&x[j], at, sizeof x[j]);
        }
    }
    return v16_load(x);
}

/* acc[i] += x(i, p) w */
INLINE void add(const int rows, v16 acc[], const float *x[], int64_t p, v16 w)
{
    UNROLL
    for (int i = 0; i < rows; i++)
        acc[i] = v16_fma(v16_set1(x[i][p]), w, acc[i]);
}

/* Adds a word of sixteen rows of the weights, a float or two bf16. */
INLINE void add_word(const int rows, const bool bf16, v16 acc[], const float *x[], int64_t p,
                     v16 w)
{
    if (bf16) {
        add(rows, acc, x, p, low_half(w));
        add(rows, acc, x, p + 1, high_half(w));
    } else {
        add(rows, acc, x, p, w);
    }
}

INLINE void add_quad(const int rows, const bool bf16, v16 acc[], const float *x[], int64_t p,
                     const char *at, int64_t row)
{
    v16 w[4];

    transpose_tile(w, at, row);
    UNROLL
    for (int q = 0; q < 4; q++)
        add_word(rows, bf16, acc, x, p + q * (bf16 ? 2 : 1), w[q]);
}

/* The same, side by side: where a line is much work it is read before the one in front of it is
   worked on, since rows that lie pages apart share a few lines of a level 1 cache. */
typedef struct block {
    _Alignas(LINE) char row[V16][LINE];
} block;

INLINE void read_block(block *b, const char *at, int64_t row)
{
    UNROLL
    for (int j = 0; j < V16; j++)
        memcpy(b->row[j], at + j * row, LINE);
}

INLINE void add_block(const int rows, const bool bf16, v16 acc[], const float *x[], int64_t p,
                      const block *b)
{
    UNROLL
    for (int q = 0; q < LINE; q += QUAD)
        add_quad(rows, bf16, acc, x, p + q / (bf16 ? 2 : 4), b->row[0] + q, LINE);
}

/* The reader of sixteen rows of the weights. A line that two chunks share is transposed once,
   and held for the second. */
typedef struct reader {
    const char *weights;
    int64_t row;       /* bytes from one to the next */
    const char *ahead; /* the data of the next columns, in memory order */
    int64_t k, end;    /* elements of a row; the held ones are before this one */
    v16 word[V16];     /* in order */
} reader;

INLINE v16 held_word(const reader *r, int64_t word)
{
    return r->word[(uint64_t)word % V16];
}

/* Adds the held elements p .. end - 1; returns the first that is not held. */
INLINE int64_t add_held(const int rows, const bool bf16, v16 acc[], const float *x[], int64_t p,
                        int64_t end, const reader *r)
{
    const int64_t each = bf16 ? 2 : 1; /* elements of a word */

    end = end < r->end ? end : r->end;
    if (bf16 && p < end && p % 2) {
        add(rows, acc, x, p, high_half(held_word(r, p / each)));
        p++;
    }
    for (; p + each <= end; p += each)
        add_word(rows, bf16, acc, x, p, held_word(r, p / each));
    if (bf16 && p < end) {
        add(rows, acc, x, p, low_half(held_word(r, p / each)));
        p++;
    }
    return p;
}

INLINE void prefetch(reader *r)
{
    UNROLL
    for (int l = 0; l < V16; l++, r->ahead += LINE)
        __builtin_prefetch(r->ahead, 0, 2);
}

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
/* Adds whole lines, transposed in registers, of which there are enough where a line is little
   work. */
INLINE int64_t add_small_m_lines(const int rows, v16 acc[], const float *x[], int64_t p,
                                 int64_t end, reader *r)
{
    v16 w[V16];

    for (; p + V16 <= end; p += V16, r->ahead += V16 * LINE) {
        transpose_line_ahead(w, r->weights + p * (int64_t)sizeof(float), r->row, r->ahead);
        UNROLL
        for (int q = 0; q < V16; q++) {
            add(rows, acc, x, p + q, w[q]);
            prefetch_remaining(&acc[0], r->ahead, q);
        }
    }
    return p;
}
#endif

/* Adds the whole lines of elements p .. end - 1 and prefetches as much for each; returns the
   first element after them. */
INLINE int64_t add_lines(const int rows, const bool bf16, v16 acc[], const float *x[],
                         int64_t p, int64_t end, reader *r)
{
    const int64_t size = bf16 ? sizeof(uint16_t) : sizeof(float), line = LINE / size;
    block b[2];

#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
    if (!bf16 && rows <= 4)
        return add_small_m_lines(rows, acc, x, p, end, r);
#endif
    if (p + line <= end)
        read_block(&b[0], r->weights + p * size, r->row);
    for (int now = 0; p + line <= end; p += line, now = !now) {
        prefetch(r);
        if (p + 2 * line <= end)
            read_block(&b[!now], r->weights + (p + line) * size, r->row);
        add_block(rows, bf16, acc, x, p, &b[now]);
    }
    return p;
}

/* Computes a chunk's chains: elements first .. end - 1 of the long dimension. */
INLINE void chain(const int rows, const bool bf16, v16 acc[], const float *x[], int64_t first,
                  int64_t end, reader *r)
{
    const int64_t size = bf16 ? sizeof(uint16_t) : sizeof(float), line = LINE / size;
    int64_t p = add_held(rows, bf16, acc, x, first, end, r);

    p = add_lines(rows, bf16, acc, x, p, end, r);
    if (p < end && p + line <= r->k) {
        prefetch(r);
        transpose_line(r->word, r->weights + p * size, r->row);
        r->end = p + line;
        p = add_held(rows, bf16, acc, x, p, end, r);
    }
    for (; p + QUAD / size <= end; p += QUAD / size)
        add_quad(rows, bf16, acc, x, p, r->weights + p * size, r->row);
    for (; p < end; p++)
        add(rows, acc, x, p, gather(bf16, r->weights + p * size, r->row));
}

/* Computes sixteen columns of some rows: the trees of their chunks. Columns before `from` are
   another tile's; `ahead`: the weights that the worker continues with, or NULL. */
INLINE void tile(const int rows, const bool bf16, const wf_gemv *s, int64_t row, int64_t col,
                 int64_t from, const char *ahead)
{
    const int64_t bytes = s->k * (int64_t)(bf16 ? sizeof(uint16_t) : sizeof(float));
    const char *weights = (const char *)s->w + col * bytes;
    reader r = {.weights = weights, .row = bytes, .ahead = ahead ? ahead : weights, .k = s->k};
    v16 node[WF_MAX_CHUNKS][MOST_ROWS], acc[MOST_ROWS];
    const float *x[MOST_ROWS];
    float out[V16];
    int level = 0;

    UNROLL
    for (int i = 0; i < rows; i++) /* missing rows read the last one */
        x[i] = (const float *)s->x + (row + i < s->m ? row + i : s->m - 1) * s->k;
    for (int64_t l = 0; l < s->chunks; l++) {
        UNROLL
        for (int i = 0; i < rows; i++)
            acc[i] = v16_zero();
        chain(rows, bf16, acc, x, s->at[l], s->at[l + 1], &r);
        for (int merges = wf_tree_merges(s->chunks, l); merges > 0; merges--) {
            level--;
            UNROLL
            for (int i = 0; i < rows; i++)
                acc[i] = v16_add(node[level][i], acc[i]);
        }
        UNROLL
        for (int i = 0; i < rows; i++)
            node[level][i] = acc[i];
        level++;
    }
    for (int i = 0; i < rows && row + i < s->m; i++) {
        v16 y = v16_add(node[0][i], v16_zero()); /* no zero keeps its sign */
        float *to = (float *)s->y + (row + i) * s->n + from;

        if (from == col) {
            v16_store(to, y);
            continue;
        }
        v16_store(out, y);
        memcpy(to, out + (from - col), (size_t)(col + V16 - from) * sizeof *out);
    }
}

/* One function for each number of rows and each type, in which loops over rows are straight
   lines. */
#define TILE(rows)                                                                             \
    static void f32_##rows(const wf_gemv *s, int64_t row, int64_t col, int64_t from,           \
                           const char *ahead)                                                  \
    {                                                                                          \
        tile(rows, false, s, row, col, from, ahead);                                           \
    }                                                                                          \
    static void bf16_##rows(const wf_gemv *s, int64_t row, int64_t col, int64_t from,          \
                            const char *ahead)                                                 \
    {                                                                                          \
        tile(rows, true, s, row, col, from, ahead);                                            \
    }
TILE(1)
#if WF_ISA_LEVEL != WF_ISA_LEVEL_portable
TILE(2)
TILE(4)
#endif
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
TILE(8)
#endif

/* Products that are one job. */
typedef struct job {
    const wf_gemv *s;
    gemm_groups groups;
} job;

static int64_t bytes_of(const wf_gemv *s)
{
    return s->k * (int64_t)(s->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* Returns the first column of a group's sixteen: those of the last group are the last ones. */
static int64_t column_of(const wf_gemv *s, int64_t group)
{
    return group * V16 + V16 <= s->n ? group * V16 : s->n - V16;
}

static void run(void *arg, int64_t begin, int64_t end, int worker)
{
    static void (*const tiles[2][4])(const wf_gemv *s, int64_t row, int64_t col, int64_t from,
                                     const char *ahead) = {
#if WF_ISA_LEVEL == WF_ISA_LEVEL_avx512
        {f32_1, f32_2, f32_4, f32_8},
        {bf16_1, bf16_2, bf16_4, bf16_8}
#elif WF_ISA_LEVEL != WF_ISA_LEVEL_portable
        {f32_1, f32_2, f32_4},
        {bf16_1, bf16_2, bf16_4}
#else
        {f32_1},
        {bf16_1}
#endif
    };
    const job *j = arg;

    (void)worker;
    for (int64_t at = begin; at < end; at++) {
        int member = gemm_member(&j->groups, at), next = gemm_member(&j->groups, at + 1);
        const wf_gemv *s = &j->s[member], *n = &j->s[next];
        int64_t group = at - j->groups.first[member], then = at + 1 - j->groups.first[next];
        const char *ahead =
            at + 1 < end ? (const char *)n->w + column_of(n, then) * bytes_of(n) : NULL;

        for (int64_t row = 0, step; row < s->m; row += step) {
            int power = 0;

            for (step = 1; step < MOST_ROWS && step < s->m - row; step *= 2)
                power++;
            tiles[s->bf16][power](s, row, column_of(s, group), group * V16, ahead);
        }
    }
}

/* Runs a product whose operands are bf16. */
static void run_bf16(struct wf_thread_pool *pool, const wf_gemv *s, int members)
{
    wf_gemm_part parts[WF_GEMV_MEMBERS][WF_MAX_CHUNKS];
    wf_gemm g[WF_GEMV_MEMBERS];

    for (int i = 0; i < members; i++, s++) {
        g[i] = (wf_gemm){.m = s->m,
                         .n = s->n,
                         .c = s->y,
                         .c_row = s->n,
                         .bf16 = true,
                         .c_bf16 = s->y_bf16,
                         .parts = parts[i],
                         .n_parts = s->chunks};
        for (int64_t l = 0; l < s->chunks; l++)
            parts[i][l] = (wf_gemm_part){.a = (const uint16_t *)s->x + s->at[l],
                                         .a_row = s->k,
                                         .a_k = 1,
                                         .b = (const uint16_t *)s->w + s->at[l],
                                         .b_k = 1,
                                         .b_col = s->k,
                                         .k = s->at[l + 1] - s->at[l],
                                         .chunk = true};
    }
    WF_ISA_NAME(wf_gemm_small_m)(pool, g, members);
}

void WF_ISA_NAME(wf_gemv_run)(struct wf_thread_pool *pool, const wf_gemv *s, int members)
{
    enum {
        TASK_BYTES = 1 << 17,
        TASKS = 4 /* tasks of each worker: within one, what comes next is prefetched */
    };
    int64_t group = V16 * bytes_of(s), workers = pool ? wf_thread_pool_size(pool) : 1, groups,
            bytes = 0;
    int64_t grain = group < TASK_BYTES ? TASK_BYTES / (group > 0 ? group : 1) : 1;
    job j = {s, {.members = members}};

    if (s->x_bf16) {
        run_bf16(pool, s, members);
        return;
    }
    for (int i = 0; i < members; i++) {
        j.groups.first[i + 1] = j.groups.first[i] + (s[i].n + V16 - 1) / V16;
        bytes += s[i].n * bytes_of(&s[i]);
    }
    groups = j.groups.first[members];
    if (grain < groups / (TASKS * workers))
        grain = groups / (TASKS * workers);
    if (bytes < alone)
        pool = NULL;
    wf_thread_pool_streams(pool, s->w, (const char *)s->w + grain * group);
    wf_thread_pool_run(pool, groups, grain, run, &j);
}
