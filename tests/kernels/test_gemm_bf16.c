/*
 * tests/kernels/test_gemm_bf16.c - products of bf16 operands against their definition in
 * kernels/cpu/simd_internal.h, written as plainly as it can be. Every bit must agree, for every
 * instruction set, any size of thread pool, any strides, any cut in parts and chunks, and for
 * numbers that underflow, overflow and cancel.
 *
 * ctest: cost 20
 */
#include "core/numerics/bf16.h"
#include "kernels/cpu/isa_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include "tests/kernels/gemm_bf16_reference.h"
#include "tests/kernels/gemm_tiles.h"
#include "tests/kernels/rank_chunks.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MAX_PARTS = 600, POOLS = 4, GUARD = 64 };

static wf_thread_pool *pools[POOLS + 1];

/* The same bits, or two NaNs. */
static bool agree(const wf_gemm *g, const void *c, const float *want, int64_t at, int64_t i)
{
    float x;

    if (g->c_bf16) {
        uint16_t half;

        memcpy(&half, (const char *)c + at * (int64_t)sizeof half, sizeof half);
        return half == wf_bf16_of(want[i]) || (isnan(want[i]) && isnan(wf_bf16_value(half)));
    }
    memcpy(&x, (const char *)c + at * (int64_t)sizeof x, sizeof x);
    return memcmp(&x, &want[i], sizeof x) == 0 || (isnan(x) && isnan(want[i]));
}

/* Returns true where `c` has the defined bits and no other memory was touched. */
static bool same(const wf_gemm *g, const void *c, const float *want, const void *poison,
                 int64_t count)
{
    int64_t size = g->c_bf16 ? sizeof(uint16_t) : sizeof(float);

    for (int64_t i = 0; i < count; i++) {
        int64_t at = i - GUARD, row = g->c_row > 0 ? at / g->c_row : 0;
        bool inside = at >= 0 && g->c_row > 0 && row < g->m && at % g->c_row < g->n;

        if (inside ? !agree(g, c, want, i, row * g->n + at % g->c_row)
                   : memcmp((const char *)c + i * size, (const char *)poison + i * size,
                            (size_t)size) != 0)
            return false;
    }
    return true;
}

static void check_on(const wf_simd *simd, wf_gemm *g, const float *want, const void *poison,
                     int64_t count, int more)
{
    size_t size = g->c_bf16 ? sizeof(uint16_t) : sizeof(float);
    char *c = malloc((size_t)count * size);

    for (int pool = 1; pool <= POOLS; pool += more) {
        size_t bytes = simd->gemm_workspace(g, pool);
        unsigned char *workspace = malloc(bytes + GUARD);

        memset(workspace, 0xff, bytes + GUARD); /* reads as NaN */
        memcpy(c, poison, (size_t)count * size);
        g->c = c + GUARD * size;
        simd->gemm(pools[pool], g, workspace);
        CU_ASSERT_TRUE(same(g, c, want, poison, count));
        for (int i = 0; i < GUARD; i++)
            CU_ASSERT_EQUAL(workspace[bytes + (size_t)i], 0xff);
        free(workspace);
    }
    free(c);
}

/* One product on every instruction set that the machine has, by thread pools of 1 to 4. */
static void check(wf_gemm *g)
{
    static const char *const names[] = {WF_CPU_ISAS, "amx"};
    int64_t count = 2 * GUARD + g->m * g->c_row, chunks = 0;
    float *want = malloc((size_t)(g->m * g->n) * sizeof *want + 1);
    uint16_t *poison = bf16_values(2 * count, ORDINARY);

    for (int64_t p = 0; p < g->n_parts; p++)
        chunks += g->parts[p].chunk || p == 0;
    for (int64_t i = 0; i < g->m * g->n; i++) {
        float older;

        memcpy(&older, poison + 2 * (GUARD + i / g->n * g->c_row + i % g->n), sizeof older);
        want[i] = (chunks ? bf16_tree(g, i / g->n, i % g->n, 0, chunks) : 0.0f) + 0.0f;
        if (g->add)
            want[i] = older + want[i];
    }
    for (int isa = 0; isa < (int)(sizeof names / sizeof names[0]); isa++) {
        const wf_simd *simd = wf_cpu_simd_named(names[isa], NULL);

        if (simd)
            check_on(simd, g, want, poison, count, UNDER_SANITIZER ? POOLS - 1 : 1);
    }
    check_on(gemm_tiles_emulated(), g, want, poison, count, POOLS - 1);
    free(want);
    free(poison);
}

/* Elements from the first of a matrix to its last: a sanitizer sees what is read beyond. */
static int64_t extent(int64_t rows, int64_t row, int64_t k, int64_t along)
{
    return rows > 0 && k > 0 ? (rows - 1) * row + (k - 1) * along + 1 : 0;
}

/* Operands for `n_parts` parts whose lengths and beginnings are set; strides of a random form,
   or those of a linear layer. */
static void operands(wf_gemm *g, wf_gemm_part *parts, void **owned, bf16_numbers kind,
                     bool linear)
{
    for (int64_t i = 0; i < g->n_parts; i++) {
        wf_gemm_part *p = &parts[i];
        int64_t gap = bf16_below(3), k = p->k;
        int64_t a_wide = linear || bf16_below(2), b_wide = !linear && bf16_below(2),
                spread = !linear && bf16_below(8) == 0 ? 2 : 1;

        p->a_row = (a_wide ? k + gap : 1) * spread;
        p->a_k = (a_wide ? 1 : g->m + gap) * spread;
        p->b_k = (b_wide ? g->n + gap : 1) * spread;
        p->b_col = (b_wide ? 1 : k + gap) * spread;
        owned[2 * i] = bf16_values(extent(g->m, p->a_row, k, p->a_k), kind);
        owned[2 * i + 1] = bf16_values(extent(g->n, p->b_col, k, p->b_k), kind);
        p->a = owned[2 * i];
        p->b = owned[2 * i + 1];
    }
    g->parts = parts;
}

/* each: chunks of a sequence */
static void check_each(int64_t m, int64_t n, wf_gemm_part *parts, int64_t n_parts, int64_t each,
                       bf16_numbers kind, bool linear)
{
    wf_gemm g = {.m = m,
                 .n = n,
                 .c_row = n + bf16_below(2) * bf16_below(20),
                 .add = bf16_below(3) == 0,
                 .bf16 = true,
                 .n_parts = n_parts,
                 .each = each};
    void *owned[2 * MAX_PARTS];

    g.c_bf16 = !g.add && bf16_below(3) == 0;
    operands(&g, parts, owned, kind, linear);
    check(&g);
    for (int64_t i = 0; i < 2 * n_parts; i++)
        free(owned[i]);
}

static void check_form(int64_t m, int64_t n, wf_gemm_part *parts, int64_t n_parts,
                       bf16_numbers kind, bool linear)
{
    check_each(m, n, parts, n_parts, 0, kind, linear);
}

static void check_parts(int64_t m, int64_t n, wf_gemm_part *parts, int64_t n_parts,
                        bf16_numbers kind)
{
    check_form(m, n, parts, n_parts, kind, false);
}

static void random_products(void)
{
    static const int64_t longest[] = {1, 8, 70, 500};
    wf_gemm_part parts[12];

    for (int round = 0; round < 120; round += UNDER_SANITIZER ? 7 : 1) {
        int64_t m = 1 + bf16_below(round % 3 ? 40 : 9), n = 1 + bf16_below(round % 2 ? 70 : 9);
        int64_t n_parts = 1 + bf16_below(12), most = longest[bf16_below(4)],
                least = bf16_below(2) ? 1 : 16;

        for (int64_t i = 0; i < n_parts; i++)
            parts[i] = (wf_gemm_part){.k = bf16_below(5) ? bf16_below(most) + least : 0,
                                      .chunk = bf16_below(2)};
        parts[0].chunk = true;
        check_parts(m, n, parts, n_parts, (bf16_numbers)(round % BF16_NUMBERS));
    }
}

/* The forms of a training step: chunks of one length, also many and short, and one long one. */
static void even_chunks(void)
{
    static const int64_t cases[][4] = {
        /* m, n, chunks, k of each */
        {30, 70, 1, 2000}, {30, 70, 8, 96},  {17, 40, 8, 384}, {15, 33, 16, 500},
        {29, 35, 64, 8},   {5, 17, 600, 1},  {16, 48, 96, 13}, {14, 32, 7, 60},
        {3, 64, 3, 700},   {1, 200, 8, 100}, {100, 1, 8, 100}, {1, 1, 5, 900},
        {20, 290, 8, 37},  {75, 40, 8, 37},  {33, 64, 9, 20},  {32, 64, 2, 64},
        {1, 200, 1, 576},  {1, 131, 8, 64},  {1, 80, 3, 96},   {1, 64, 16, 32},
        {1, 97, 1, 9216},
    };
    wf_gemm_part parts[MAX_PARTS];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int64_t l = 0; l < cases[i][2]; l++)
            parts[l] = (wf_gemm_part){.k = cases[i][3], .chunk = true};
        check_parts(cases[i][0], cases[i][1], parts, cases[i][2],
                    (bf16_numbers)(i % BF16_NUMBERS));
    }
}

/* A linear layer of few rows: its weights' terms lie side by side, in whole blocks or not. */
static void few_rows(void)
{
    static const int64_t chunks[][2] = {{1, 576}, {8, 64}, {3, 96}, {16, 32}, {8, 72}};
    wf_gemm_part parts[16];

    for (int64_t m = 1; m <= 9; m += UNDER_SANITIZER ? 3 : 1) {
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            for (int64_t l = 0; l < chunks[i][0]; l++)
                parts[l] = (wf_gemm_part){.k = chunks[i][1], .chunk = true};
            check_form(m, 64 + 33 * (m % 2), parts, chunks[i][0],
                       (bf16_numbers)((m + (int64_t)i) % BF16_NUMBERS), true);
        }
    }
    parts[0] = (wf_gemm_part){.k = 9216, .chunk = true}; /* more than go by lines */
    check_form(4, 50, parts, 1, ORDINARY, true);
}

/* Several chunks of each sequence, of batches that are no power of two; 4 rows go by lines. */
static void chunks_of_sequences(void)
{
    static const int64_t cases[][4] = {
        /* m, n, sequences, chunks of each */
        {30, 70, 3, 2},  {17, 40, 5, 4}, {40, 33, 7, 8}, {4, 50, 3, 2},
        {16, 48, 3, 32}, {4, 40, 6, 4},  {33, 64, 9, 2}, {1, 90, 12, 4},
    };
    wf_gemm_part parts[MAX_PARTS];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int linear = 0; linear < 2; linear++) {
            int64_t n = cases[i][2] * cases[i][3];

            for (int64_t l = 0; l < n; l++)
                parts[l] = (wf_gemm_part){.k = 1 + bf16_below(90), .chunk = true};
            check_each(cases[i][0], cases[i][1], parts, n, cases[i][3],
                       (bf16_numbers)(i % BF16_NUMBERS), linear);
        }
}

static void chunks_of_a_rank(void)
{
    wf_gemm_part parts[RANK_CHUNKS];
    int64_t n_parts;

    for (int i = 0; (n_parts = rank_chunks(i, parts)) > 0; i++)
        check_parts(17 + i % 3 * 9, 33 + i, parts, n_parts, (bf16_numbers)(i % BF16_NUMBERS));
}

/* Large enough for several blocks of rows, and of columns, and for members of a thread pool to
   share. */
static void many_blocks(void)
{
    wf_gemm_part parts[3] = {{.k = 5, .chunk = true}, {.k = 40}, {.k = 9, .chunk = true}};

    check_parts(1100, 35, parts, 3, ORDINARY);
    check_parts(9, 6200, parts, 3, ORDINARY);
    check_parts(530, 250, parts, 1, TINY);
}

static void nothing(void)
{
    wf_gemm_part empty[3] = {{.chunk = true}, {.chunk = true}, {.k = 0}};
    wf_gemm_part one[1] = {{.k = 3, .chunk = true}};

    check_parts(20, 30, empty, 3, ORDINARY);
    check_parts(20, 30, empty, 0, ORDINARY);
    check_parts(0, 30, one, 1, ORDINARY);
    check_parts(20, 0, one, 1, ORDINARY);
}

/* The sum of a chunk can be distinguished from that of its neighbours where it is a denormal:
   1.5 FLT_MIN and -FLT_MIN are half of it as two chunks, which ranks could have, and zero as
   one. */
static void denormal_nodes(void)
{
    static const uint16_t a[] = {0x2040, 0xa000}, b[] = {0x2000, 0x2000};
    wf_gemm_part parts[2] = {{a, 1, 1, b, 1, 1, 1, true}, {a + 1, 1, 1, b + 1, 1, 1, 1, true}};
    wf_gemm g = {.m = 1, .n = 1, .c_row = 1, .bf16 = true, .parts = parts, .n_parts = 2};

    CU_ASSERT_EQUAL(bf16_tree(&g, 0, 0, 0, 2), FLT_MIN / 2);
    check(&g);
    parts[1].chunk = false;
    CU_ASSERT_EQUAL(bf16_tree(&g, 0, 0, 0, 1), 0.0f);
    check(&g);
}

#if defined(__x86_64__)
typedef struct modes_job {
    const wf_simd *simd;
    const wf_gemm *g;
    _Atomic int seen[POOLS], changed;
} modes_job;

/* A product of its own by a member of a thread pool. */
static void run_alone(void *arg, int64_t begin, int64_t end, int worker)
{
    enum { SUMMARY = 0x3f }; /* the exceptions so far */
    modes_job *job = arg;
    float c[9 * 9];
    wf_gemm g = *job->g;
    void *workspace = malloc(job->simd->gemm_workspace(&g, 1));

    g.c = c;
    for (; begin < end; begin++) {
        unsigned before = _mm_getcsr();

        job->simd->gemm(NULL, &g, workspace);
        job->changed += ((_mm_getcsr() ^ before) & ~(unsigned)SUMMARY) != 0;
    }
    job->seen[worker]++;
    free(workspace);
}

static void modes_stay(void)
{
    static const char *const names[] = {WF_CPU_ISAS, "amx"};
    uint16_t *a = bf16_values(9 * 50, ANY_BITS);
    wf_gemm_part parts[2] = {{a, 50, 1, a, 1, 50, 30, true}, {a, 50, 1, a, 1, 50, 50, true}};
    wf_gemm g = {.m = 9, .n = 9, .c_row = 9, .bf16 = true, .parts = parts, .n_parts = 2};

    for (int isa = 0; isa < (int)(sizeof names / sizeof names[0]); isa++) {
        modes_job job = {.simd = wf_cpu_simd_named(names[isa], NULL), .g = &g};

        for (unsigned modes = 0; job.simd && modes < 2; modes++) {
            unsigned before = _mm_getcsr();

            _mm_setcsr(before | modes * 0x8040);
            for (int tries = 0; tries < 1000 && !job.seen[POOLS - 1]; tries++)
                wf_thread_pool_run(pools[POOLS], 400, 1, run_alone, &job);
            CU_ASSERT_EQUAL(job.changed, 0);
            _mm_setcsr(before);
        }
    }
    free(a);
}
#else
static void modes_stay(void)
{
}
#endif

int main(void)
{
    static const wf_test tests[] = {
        {"random products", random_products},
        {"even chunks", even_chunks},
        {"chunks of sequences", chunks_of_sequences},
        {"chunks of a rank", chunks_of_a_rank},
        {"few rows", few_rows},
        {"many blocks", many_blocks},
        {"nothing to sum", nothing},
        {"denormal nodes", denormal_nodes},
        {"modes of every worker stay", modes_stay},
        {NULL, NULL},
    };
    int failed;

    for (int i = 1; i <= POOLS; i++)
        pools[i] = wf_thread_pool_open(i, NULL);
    failed = wf_test_main("gemm_bf16", tests);
    for (int i = 1; i <= POOLS; i++)
        wf_thread_pool_close(pools[i]);
    return failed;
}
