/*
 * kernels/cpu/simd/elementwise.c - sums, products, bias and rotary embedding: one operation, or
 * the stated few, per element.
 */
#include "kernels/cpu/simd/kernels_internal.h"
#include "kernels/cpu/vec_internal.h"
#include <string.h>

/* y = a + b */
void WF_ISA_NAME(wf_add)(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16)
        v16_store_n(y + i, v16_add(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i)), n - i);
}

/* y = a * b */
void WF_ISA_NAME(wf_sub)(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16)
        v16_store_n(y + i, v16_sub(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i)), n - i);
}

void WF_ISA_NAME(wf_mul)(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16)
        v16_store_n(y + i, v16_mul(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i)), n - i);
}

/* y = s * a */
void WF_ISA_NAME(wf_scale)(const float *a, float s, float *y, int64_t n)
{
    v16 factor = v16_set1(s);

    for (int64_t i = 0; i < n; i += V16)
        v16_store_n(y + i, v16_mul(factor, v16_load_n(a + i, n - i)), n - i);
}

/* Returns the maximum, which ranks take in any order: a NaN wins, and +0 is added so that zeros
   have one sign. */
static inline v16 maximum(v16 a, v16 b)
{
    return v16_add(v16_max_nan(a, b), v16_zero());
}

/* y = the greater of a and b, a NaN where one is, +0 for zeros of either sign */
void WF_ISA_NAME(wf_maximum)(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += V16)
        v16_store_n(y + i, maximum(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i)), n - i);
}

/* Sources that are read side by side, and elements of a slice, all of whose nodes the
   first-level cache keeps. */
enum { SUM_VECTORS = 4, SUM_BLOCK = SUM_VECTORS * V16, FEW_SOURCES = 8, SLICE = 512 };

static inline void load_block(const float *x, int64_t n, v16 out[SUM_VECTORS])
{
    for (int k = 0; k < SUM_VECTORS; k++)
        out[k] = n > k * V16 ? v16_load_n(x + k * V16, n - k * V16) : v16_zero();
}

static inline void add_block(const float *x, int64_t n, v16 out[SUM_VECTORS])
{
    v16 other[SUM_VECTORS];

    load_block(x, n, other);
    for (int k = 0; k < SUM_VECTORS; k++)
        out[k] = v16_add(out[k], other[k]);
}

/* Node of the midpoint tree over `count` sources (core/numerics/tree.h), at elements i .. i +
   n - 1. */
static void tree_block(const float *const *src, int64_t count, int64_t i, int64_t n,
                       v16 out[SUM_VECTORS])
{
    v16 right[SUM_VECTORS];

    if (count <= 2) {
        load_block(src[0] + i, n, out);
        if (count == 2)
            add_block(src[1] + i, n, out);
        return;
    }
    tree_block(src, count / 2, i, n, out);
    tree_block(src + count / 2, count - count / 2, i, n, right);
    for (int k = 0; k < SUM_VECTORS; k++)
        out[k] = v16_add(out[k], right[k]);
}

/* Nodes of 1 to 8 sources, at element i. */
static inline v16 sum_of_1(const float *const *src, int64_t i)
{
    return v16_load(src[0] + i);
}

#define SUM_OF(count, left, right)                                                             \
    static inline v16 sum_of_##count(const float *const *src, int64_t i)                       \
    {                                                                                          \
        return v16_add(sum_of_##left(src, i), sum_of_##right(src + (left), i));                \
    }
SUM_OF(2, 1, 1)
SUM_OF(3, 1, 2)
SUM_OF(4, 2, 2)
SUM_OF(5, 2, 3)
SUM_OF(6, 3, 3)
SUM_OF(7, 3, 4)
SUM_OF(8, 4, 4)
#undef SUM_OF

/* The same node; of up to 8 sources from registers. */
static inline void few_block(const float *const *src, int64_t count, int64_t i, int64_t n,
                             v16 out[SUM_VECTORS])
{
#define FROM_REGISTERS(of)                                                                     \
    case of:                                                                                   \
        for (int k = 0; k < SUM_VECTORS; k++)                                                  \
            out[k] = sum_of_##of(src, i + k * V16);                                            \
        break

    switch (n < SUM_BLOCK ? 0 : count) {
        FROM_REGISTERS(2);
        FROM_REGISTERS(3);
        FROM_REGISTERS(4);
        FROM_REGISTERS(5);
        FROM_REGISTERS(6);
        FROM_REGISTERS(7);
        FROM_REGISTERS(8);
    default:
        tree_block(src, count, i, n, out);
    }
#undef FROM_REGISTERS
}

static void chain_block(const float *const *src, int64_t count, int64_t i, int64_t n,
                        v16 out[SUM_VECTORS])
{
    load_block(src[0] + i, n, out);
    for (int64_t s = 1; s < count; s++)
        add_block(src[s] + i, n, out);
}

/* +0 where there is no source */
static inline void sum_block(const float *const *src, int64_t n_src, bool tree, int64_t i,
                             int64_t n, v16 out[SUM_VECTORS])
{
    if (n_src == 0)
        load_block(NULL, 0, out);
    else if (tree)
        few_block(src, n_src, i, n, out);
    else
        chain_block(src, n_src, i, n, out);
}

static inline void store_block(float *y, bool non_temporal, int64_t n,
                               const v16 block[SUM_VECTORS])
{
    if (n < SUM_BLOCK) {
        for (int k = 0; k < SUM_VECTORS && n > k * V16; k++)
            v16_store_n(y + k * V16, block[k], n - k * V16);
    } else if (non_temporal && (uintptr_t)y % (V16 * sizeof *y) == 0) {
        for (int k = 0; k < SUM_VECTORS; k++)
            v16_store_non_temporal(y + k * V16, block[k]);
    } else {
        for (int k = 0; k < SUM_VECTORS; k++)
            v16_store(y + k * V16, block[k]);
    }
}

/* A slice of elements i .. i + n - 1 of many sources. */
typedef struct many {
    const float *const *src;
    int64_t n_src, i, n;
} many;

/* Prefetches the sources added after sources s - 8 .. s - 1 of elements i .. i + SUM_BLOCK - 1:
   the next ones or, after the last, those of the next slice. The processor itself reads ahead
   inside of a page alone. (Not inlined at once, this is a function without effects to gcc,
   which then drops calls of it.) */
static inline __attribute__((always_inline)) void prefetch_next(const many *m, int64_t s,
                                                                int64_t i)
{
    bool more = s + FEW_SOURCES <= m->n_src;
    const float *const *src = more ? m->src + s : m->src;

    i += more ? 0 : SLICE;
    for (int q = 0; q < FEW_SOURCES; q++)
        for (int k = 0; k < SUM_VECTORS; k++)
            __builtin_prefetch(src[q] + i + k * V16, 0, 2);
}

/* Sums a node over sources first .. first + count - 1: subtrees of a few sources one after the
   other. */
static void tree_slice(const many *m, int64_t first, int64_t count, float *y)
{
    _Alignas(64) float right[SLICE];

    if (count > FEW_SOURCES) {
        tree_slice(m, first, count / 2, y);
        tree_slice(m, first + count / 2, count - count / 2, right);
        for (int64_t e = 0; e < m->n; e += V16)
            v16_store(y + e, v16_add(v16_load(y + e), v16_load(right + e)));
        return;
    }
    for (int64_t e = 0; e < m->n; e += SUM_BLOCK) {
        v16 out[SUM_VECTORS];

        prefetch_next(m, first + count, m->i + e);
        few_block(m->src + first, count, m->i + e, m->n - e, out);
        for (int k = 0; k < SUM_VECTORS; k++)
            v16_store(y + e + k * V16, out[k]);
    }
}

/* Sums many sources: they are often all at one distance from the edge of a page, and reading
   ahead in more of them than a cache set has lines evicts those that are needed first. */
static void sum_many(const float *const *src, int64_t n_src, float *const *dst, int64_t n_dst,
                     bool non_temporal, int64_t n)
{
    _Alignas(64) float left[SLICE], right[SLICE];
    int64_t half = n_src / 2;

    for (int64_t i = 0; i < n; i += SLICE) {
        const many m = {src, n_src, i, n - i < SLICE ? n - i : SLICE};

        tree_slice(&m, 0, half, left);
        tree_slice(&m, half, n_src - half, right);
        for (int64_t e = 0; e < m.n; e += SUM_BLOCK) {
            v16 out[SUM_VECTORS];

            for (int k = 0; k < SUM_VECTORS; k++)
                out[k] = v16_add(v16_load(left + e + k * V16), v16_load(right + e + k * V16));
            for (int64_t d = 0; d < n_dst; d++)
                store_block(dst[d] + i + e, non_temporal, m.n - e, out);
        }
    }
}

/* y = midpoint tree or chain over the sources, from registers. */
void WF_ISA_NAME(wf_sum_to_all)(const float *const *src, int64_t n_src, bool tree,
                                float *const *dst, int64_t n_dst, bool non_temporal, int64_t n)
{
    if (tree && n_src > FEW_SOURCES) {
        sum_many(src, n_src, dst, n_dst, non_temporal, n);
    } else {
        for (int64_t i = 0; i < n; i += SUM_BLOCK) {
            v16 out[SUM_VECTORS];

            sum_block(src, n_src, tree, i, n - i, out);
            for (int64_t d = 0; d < n_dst; d++)
                store_block(dst[d] + i, non_temporal, n - i, out);
        }
    }
    if (non_temporal)
        v16_non_temporal_end();
}

void WF_ISA_NAME(wf_sum)(const float *const *src, int64_t n_src, bool tree, float *y, int64_t n)
{
    WF_ISA_NAME(wf_sum_to_all)(src, n_src, tree, &y, 1, false, n);
}

/* to = from, by non-temporal stores */
void WF_ISA_NAME(wf_copy_non_temporal)(const void *from, void *to, size_t bytes)
{
    size_t line = V16 * sizeof(float), head = (size_t)(-(uintptr_t)to) % line;
    const char *source = from;
    char *target = to;

    if (head >= bytes)
        head = bytes;
    memcpy(target, source, head);
    source += head, target += head, bytes -= head;
    for (; bytes >= line; source += line, target += line, bytes -= line)
        v16_store_non_temporal((float *)(void *)target,
                               v16_load((const float *)(const void *)source));
    v16_non_temporal_end();
    memcpy(target, source, bytes);
}

/* y[r, d] = x[r, d] + bias[d] */
void WF_ISA_NAME(wf_bias_add)(const float *x, const float *bias, float *y, int64_t rows,
                              int64_t d)
{
    for (int64_t r = 0; r < rows; r++)
        WF_ISA_NAME(wf_add)(x + r * d, bias, y + r * d, d);
}

enum { COLUMNS = 8 };

/* dbias[d] = chain over rows of dy[r, d], from +0 or, with rows.more, from what it holds */
void WF_ISA_NAME(wf_bias_chunk)(const float *dy, int64_t stride, float *dbias,
                                wf_chunk_rows rows, int64_t d)
{
    int64_t i = 0;

    for (; i + COLUMNS * V16 <= d; i += COLUMNS * V16) {
        v16 sum[COLUMNS];

        for (int k = 0; k < COLUMNS; k++)
            sum[k] = rows.more ? v16_load(dbias + i + k * V16) : v16_zero();
        for (int64_t run = 0; run < rows.runs; run++) {
            const float *row = dy + run * rows.step * stride + i;

            for (int64_t r = 0; r < rows.rows; r++, row += stride)
                for (int k = 0; k < COLUMNS; k++)
                    sum[k] = v16_add(sum[k], v16_load(row + k * V16));
        }
        for (int k = 0; k < COLUMNS; k++)
            v16_store(dbias + i + k * V16, sum[k]);
    }
    for (; i < d; i += V16) {
        int64_t n = d - i;
        v16 sum = rows.more ? v16_load_n(dbias + i, n) : v16_zero();

        for (int64_t run = 0; run < rows.runs; run++)
            for (int64_t r = 0; r < rows.rows; r++)
                sum = v16_add(sum, v16_load_n(dy + (run * rows.step + r) * stride + i, n));
        v16_store_n(dbias + i, sum, n);
    }
}

/*
 * With a = x[i], b = x[i + features/2], c and s of this i (s negated where inverse):
 * y[i] = fma(-b, s, a * c), y[i + features/2] = fma(a, s, b * c), and y[i] = x[i] after the
 * features. y may be x.
 */
void WF_ISA_NAME(wf_rope)(const float *x, const float *cosine, const float *sine, bool inverse,
                          float *y, int64_t heads, int64_t dim, int64_t features)
{
    int64_t half = features / 2;

    for (int64_t h = 0; h < heads && features < dim; h++)
        for (int64_t i = features; i < dim; i += V16)
            v16_store_n(y + h * dim + i, v16_load_n(x + h * dim + i, dim - i), dim - i);
    for (int64_t i = 0; i < half; i += V16) {
        int64_t n = half - i;
        v16 c = v16_load_n(cosine + i, n), s = v16_load_n(sine + i, n);

        if (inverse)
            s = v16_neg(s);
        for (int64_t h = 0; h < heads; h++) {
            const float *from = x + h * dim + i;
            float *to = y + h * dim + i;
            v16 a = v16_load_n(from, n), b = v16_load_n(from + half, n);

            v16_store_n(to, v16_fnma(b, s, v16_mul(a, c)), n);
            v16_store_n(to + half, v16_fma(a, s, v16_mul(b, c)), n);
        }
    }
}
