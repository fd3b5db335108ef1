/*
 * tests/kernels/test_gemv.c - a few rows times weights, in floats and in bf16: the bits of the
 * wide product of the same operands, for every instruction set, any number of rows, columns,
 * chunks and threads. Where both operands are bf16, the bits are those of their definition.
 */
#include "core/numerics/bf16.h"
#include "core/numerics/tree.h"
#include "kernels/cpu/isa_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include "tests/harness.h"
#include "tests/kernels/gemm_bf16_reference.h"
#include "tests/sanitizer.h"
#include "tests/kernels/xorshift.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POOLS = 3, GUARD = 16, MOST_ROWS = 11, FEWER = UNDER_SANITIZER ? 4 : 1 };

static uint64_t state = 99991;
static wf_thread_pool *pools[POOLS + 1];

static int64_t below(int64_t n)
{
    return xorshift_below(&state, n);
}

/* Zeros of both signs, and what underflows, also as bf16. */
static float value(void)
{
    float x = (float)((int64_t)(xorshift(&state) >> 40) - (1 << 23)) / (float)(1 << 22);

    switch (below(16)) {
    case 0:
        return copysignf(0.0f, x);
    case 1:
        return x * 0x1p-100f;
    default:
        return x;
    }
}

typedef struct problem {
    int64_t m, n, k, chunks, at[WF_MAX_CHUNKS + 1];
    float *x, *w, *wide; /* wide: the bf16 as floats */
    uint16_t *half;
    float *y, *want;
} problem;

/* Exactly as long as they are: a sanitizer sees what is read beyond. */
static int64_t wholes = 1; /* chunks end at multiples of it */

static void make(problem *p, int64_t m, int64_t n, int64_t k, int64_t chunks)
{
    *p = (problem){.m = m, .n = n, .k = k, .chunks = chunks};
    p->x = malloc((size_t)(m * k) * sizeof *p->x + 1);
    p->w = malloc((size_t)(n * k) * sizeof *p->w + 1);
    p->wide = malloc((size_t)(n * k) * sizeof *p->wide + 1);
    p->half = malloc((size_t)(n * k) * sizeof *p->half + 1);
    p->y = malloc((size_t)(m * n + GUARD) * sizeof *p->y);
    p->want = malloc((size_t)(m * n) * sizeof *p->want + 1);
    for (int64_t i = 0; i < m * k; i++)
        p->x[i] = value();
    for (int64_t i = 0; i < n * k; i++) {
        p->w[i] = value();
        p->half[i] = wf_bf16_of(p->w[i]);
        if (below(20) == 0) /* a number so small that it is read as zero */
            p->half[i] = (uint16_t)(below(2) << 15 | (1 + below(100)));
        p->wide[i] = wf_bf16_value(p->half[i]);
    }
    for (int64_t l = 1; l <= chunks; l++)
        p->at[l] = l == chunks ? k : p->at[l - 1] + below(2 * k / chunks + 1);
    for (int64_t l = 1; l < chunks; l++)
        p->at[l] = (p->at[l] > k ? k : p->at[l]) / wholes * wholes;
}

static void forget(problem *p)
{
    free(p->x);
    free(p->w);
    free(p->wide);
    free(p->half);
    free(p->y);
    free(p->want);
}

static void wide_product(const wf_simd *simd, problem *p, const float *weights)
{
    wf_gemm_part parts[WF_MAX_CHUNKS];
    wf_gemm g = {.m = p->m, .n = p->n, .c = p->want, .c_row = p->n, .parts = parts};
    void *workspace;

    for (g.n_parts = 0; g.n_parts < p->chunks; g.n_parts++) {
        int64_t first = p->at[g.n_parts];

        parts[g.n_parts] = (wf_gemm_part){.a = p->x + first,
                                          .a_row = p->k,
                                          .a_k = 1,
                                          .b = weights + first,
                                          .b_k = 1,
                                          .b_col = p->k,
                                          .k = p->at[g.n_parts + 1] - first,
                                          .chunk = true};
    }
    workspace = malloc(simd->gemm_workspace(&g, 1) + 1);
    simd->gemm(NULL, &g, workspace);
    free(workspace);
}

/* Columns of the product as up to three products of one x: one job. `half_x`: NULL, or x in
   bf16. */
static void check_members(const wf_simd *simd, const problem *p, bool bf16,
                          const uint16_t *half_x)
{
    const int members = p->n < 3 * WF_GEMV_COLUMNS ? 1 : 3;
    const int64_t room = p->n - members * WF_GEMV_COLUMNS;
    const int64_t first = WF_GEMV_COLUMNS + below(room + 1);
    const int64_t cut[] = {0, first, members == 1 ? 0 : first + WF_GEMV_COLUMNS, p->n};
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    wf_gemv s[3];

    if (members == 1)
        return;
    for (int i = 0; i < members; i++) {
        const char *w = bf16 ? (const char *)p->half : (const char *)p->w;

        s[i] = (wf_gemv){.m = p->m,
                         .n = cut[i + 1] - cut[i],
                         .k = p->k,
                         .x = half_x ? (const void *)half_x : p->x,
                         .w = w + (size_t)(cut[i] * p->k) * size,
                         .bf16 = bf16,
                         .x_bf16 = half_x != NULL,
                         .y = p->y + cut[i] * p->m,
                         .chunks = p->chunks,
                         .at = p->at};
    }
    for (int pool = 1; pool <= POOLS; pool++) {
        memset(p->y, 0xff, (size_t)(p->m * p->n) * sizeof *p->y);
        simd->gemv(pools[pool], s, members);
        for (int i = 0; i < members; i++)
            for (int64_t r = 0; r < p->m; r++)
                CU_ASSERT_EQUAL(memcmp((float *)s[i].y + r * s[i].n,
                                       p->want + r * p->n + cut[i],
                                       (size_t)s[i].n * sizeof *p->want),
                                0);
    }
}

static void check_type(const wf_simd *simd, problem *p, bool bf16)
{
    const wf_gemv s = {.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .x = p->x,
                       .w = bf16 ? (const void *)p->half : p->w,
                       .bf16 = bf16,
                       .y = p->y,
                       .chunks = p->chunks,
                       .at = p->at};
    size_t bytes = (size_t)(p->m * p->n) * sizeof *p->y;

    wide_product(simd, p, bf16 ? p->wide : p->w);
    for (int pool = 1; pool <= POOLS; pool++) {
        memset(p->y, 0xff, bytes + GUARD * sizeof *p->y);
        simd->gemv(pools[pool], &s, 1);
        CU_ASSERT_EQUAL(memcmp(p->y, p->want, bytes), 0);
        for (int i = 0; i < GUARD; i++)
            CU_ASSERT_TRUE(isnan(p->y[p->m * p->n + i]));
    }
    check_members(simd, p, bf16, NULL);
}

/* x in bf16 as well, and y in either type. */
static void check_bf16(const wf_simd *simd, const problem *p, const uint16_t *x, bool y_bf16)
{
    const wf_gemv s = {.m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .x = x,
                       .w = p->half,
                       .bf16 = true,
                       .x_bf16 = true,
                       .y_bf16 = y_bf16,
                       .y = p->y,
                       .chunks = p->chunks,
                       .at = p->at};
    const size_t size = y_bf16 ? sizeof(uint16_t) : sizeof(float);
    const size_t bytes = (size_t)(p->m * p->n) * size;

    for (int pool = 1; pool <= POOLS; pool++) {
        memset(p->y, 0xff, bytes + GUARD * sizeof *p->y);
        simd->gemv(pools[pool], &s, 1);
        for (int64_t i = 0; i < p->m * p->n; i++) {
            uint16_t half = wf_bf16_of(p->want[i]);

            CU_ASSERT_EQUAL(memcmp((char *)p->y + (size_t)i * size,
                                   y_bf16 ? (void *)&half : &p->want[i], size),
                            0);
        }
        for (size_t i = 0; i < GUARD; i++)
            CU_ASSERT_EQUAL(((unsigned char *)p->y)[bytes + i], 0xff);
    }
}

/* The definition's bits, in p->want. */
static void define(problem *p, const uint16_t *x)
{
    wf_gemm_part parts[WF_MAX_CHUNKS];
    wf_gemm g = {.m = p->m, .n = p->n, .bf16 = true, .parts = parts, .n_parts = p->chunks};

    for (int64_t l = 0; l < p->chunks; l++)
        parts[l] = (wf_gemm_part){.a = x + p->at[l],
                                  .a_row = p->k,
                                  .a_k = 1,
                                  .b = p->half + p->at[l],
                                  .b_k = 1,
                                  .b_col = p->k,
                                  .k = p->at[l + 1] - p->at[l],
                                  .chunk = true};
    for (int64_t i = 0; i < p->m * p->n; i++)
        p->want[i] = bf16_tree(&g, i / p->n, i % p->n, 0, p->chunks) + 0.0f;
}

static void check_both(int64_t m, int64_t n, int64_t k, int64_t chunks)
{
    static const char *const names[] = {WF_CPU_ISAS, "amx"};
    uint16_t *x = bf16_values(m * k, below(2) ? ORDINARY : TINY);
    problem p;

    make(&p, m, n, k, chunks);
    define(&p, x);
    for (int isa = 0; isa < (int)(sizeof names / sizeof names[0]); isa++) {
        const wf_simd *simd = wf_cpu_simd_named(names[isa], NULL);

        for (int y_bf16 = 0; simd && y_bf16 < 2; y_bf16++)
            check_bf16(simd, &p, x, y_bf16);
        if (simd)
            check_members(simd, &p, true, x);
    }
    forget(&p);
    free(x);
}

static void both_bf16(void)
{
    for (int round = 0; round < 60 / FEWER; round++)
        check_both(1 + below(MOST_ROWS), WF_GEMV_COLUMNS + below(round % 2 ? 60 : 150),
                   below(round % 3 ? 300 : 40), 1 + below(WF_MAX_CHUNKS));
    for (int round = 0; round < 60 / FEWER; round++) { /* chunks of whole blocks */
        wholes = 32;
        check_both(round % 4 ? 1 : 1 + below(MOST_ROWS), 48 + below(200), 32 * below(20),
                   1 + below(round % 3 ? 8 : WF_MAX_CHUNKS));
        wholes = 1;
    }
    check_both(1, 1100, 576, 1);
    check_both(2, 577, 768, 8);
    check_both(1, 16, 2000, 1);
}

static void check(int64_t m, int64_t n, int64_t k, int64_t chunks)
{
    static const char *const names[] = {WF_CPU_ISAS};
    problem p;

    make(&p, m, n, k, chunks);
    for (int isa = 0; isa < (int)(sizeof names / sizeof names[0]); isa++) {
        const wf_simd *simd = wf_cpu_simd_named(names[isa], NULL);

        for (int bf16 = 0; simd && bf16 < 2; bf16++)
            check_type(simd, &p, bf16);
    }
    forget(&p);
}

static void random_products(void)
{
    for (int round = 0; round < 300 / FEWER; round++)
        check(1 + below(MOST_ROWS), WF_GEMV_COLUMNS + below(round % 2 ? 60 : 300),
              below(round % 3 ? 300 : 40), 1 + below(WF_MAX_CHUNKS));
}

/* Those of real models, of which a thread pool gets parts. */
static void large_products(void)
{
    for (int64_t m = 1; m <= 8; m += m == 1 ? 2 : 5) {
        check(m, 1536, 576, 8);
        check(m, 577, 1536, 8);
    }
    check(1, 16, 9000, 1);
    check(1, 5003, 64, 8);
}

static void nothing(void)
{
    check(1, 16, 0, 1);
    check(3, 31, 0, 8);
    check(2, 33, 3, 8);
}

static const wf_test tests[] = {{"random products", random_products},
                                {"large products", large_products},
                                {"both operands are bf16", both_bf16},
                                {"nothing", nothing},
                                {NULL, NULL}};

int main(void)
{
    wf_error error = {WF_OK, ""};
    int failed;

    for (int i = 2; i <= POOLS; i++)
        pools[i] = wf_thread_pool_open(i, &error);
    failed = wf_test_main("gemv", tests);
    for (int i = 2; i <= POOLS; i++)
        wf_thread_pool_close(pools[i]);
    return failed;
}
