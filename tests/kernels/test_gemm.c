/*
 * tests/kernels/test_gemm.c - products of matrices against their definition, written as plainly
 * as it can be: a recursion over chunks, each of them a chain of fmaf. Every bit must agree,
 * for every instruction set, any size of thread pool, any strides, and any cut in parts and
 * chunks.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/isa_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include "tests/harness.h"
#include "tests/kernels/rank_chunks.h"
#include "tests/kernels/xorshift.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 600, POOLS = 3, GUARD = 64 };

static uint64_t state = 20240607;
static wf_thread_pool *pools[POOLS + 1];

static int64_t below(int64_t n)
{
    return xorshift_below(&state, n);
}

/* Mostly around one; some zeros of both signs, some so small that products underflow. */
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

static float *values(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + 1);

    for (int64_t i = 0; x && i < n; i++)
        x[i] = value();
    return x;
}

/* The first of the chunks from `part` on that begins after `skip` more chunks. */
static int64_t chunk_part(const wf_gemm *g, int64_t part, int64_t skip)
{
    while (skip > 0) {
        part++;
        skip -= part >= g->n_parts || g->parts[part].chunk;
    }
    return part;
}

/* A tree over sequences, and below it one over the chunks of each. */
static float tree(const wf_gemm *g, int64_t i, int64_t j, int64_t part, int64_t chunks)
{
    float sum = 0.0f;

    if (chunks > 1) {
        int64_t half =
            g->each > 0 && chunks > g->each ? chunks / g->each / 2 * g->each : chunks / 2;
        float left = tree(g, i, j, part, half);

        part = chunk_part(g, part, half);
        return left + tree(g, i, j, part, chunks - half);
    }
    for (int64_t first = part; part < g->n_parts; part++) {
        const wf_gemm_part *p = &g->parts[part];

        if (part > first && p->chunk)
            break;
        for (int64_t k = 0; k < p->k; k++) {
            const float *a = p->a, *b = p->b;

            sum = fmaf(a[i * p->a_row + k * p->a_k], b[k * p->b_k + j * p->b_col], sum);
        }
    }
    return sum;
}

/* Returns true where `c`, with c_row floats a row, has the defined bits and no other memory was
   touched. */
static int same(const wf_gemm *g, const float *c, const float *want, const float *poison,
                int64_t floats)
{
    for (int64_t i = 0; i < g->m; i++) {
        if (memcmp(c + GUARD + i * g->c_row, want + i * g->n, (size_t)g->n * sizeof *c) != 0)
            return 0;
    }
    for (int64_t i = 0; i < floats; i++) {
        int64_t at = i - GUARD;
        int inside = at >= 0 && g->c_row > 0 && at / g->c_row < g->m && at % g->c_row < g->n;

        if (!inside && memcmp(&c[i], &poison[i], sizeof *c) != 0)
            return 0;
    }
    return 1;
}

/* One product on every instruction set that the machine has, by thread pools of 1 to 3. */
static void check(wf_gemm *g)
{
    static const char *const names[] = {WF_CPU_ISAS};
    int64_t floats = 2 * GUARD + g->m * g->c_row, chunks = 0;
    float *want = malloc((size_t)(g->m * g->n) * sizeof *want + 1);
    float *poison = values(floats), *c = malloc((size_t)floats * sizeof *c);

    for (int64_t p = 0; p < g->n_parts; p++)
        chunks += g->parts[p].chunk || p == 0;
    for (int64_t i = 0; i < g->m * g->n; i++) {
        float older = poison[GUARD + i / g->n * g->c_row + i % g->n];

        want[i] = (chunks ? tree(g, i / g->n, i % g->n, 0, chunks) : 0.0f) + 0.0f;
        if (g->add)
            want[i] = older + want[i];
    }
    for (int isa = 0; isa < (int)(sizeof names / sizeof names[0]); isa++) {
        const wf_simd *simd = wf_cpu_simd_named(names[isa], NULL);

        for (int pool = 1; simd && pool <= POOLS; pool++) {
            size_t bytes = simd->gemm_workspace(g, pool);
            unsigned char *workspace = malloc(bytes + GUARD);

            memset(workspace, 0xff, bytes + GUARD); /* reads as NaN */
            memcpy(c, poison, (size_t)floats * sizeof *c);
            g->c = c + GUARD;
            simd->gemm(pools[pool], g, workspace);
            CU_ASSERT_TRUE(same(g, c, want, poison, floats));
            for (int i = 0; i < GUARD; i++)
                CU_ASSERT_EQUAL(workspace[bytes + (size_t)i], 0xff);
            free(workspace);
        }
    }
    free(want);
    free(poison);
    free(c);
}

/* Floats from the first element of a matrix to its last: a sanitizer sees what is read
   beyond. */
static int64_t extent(int64_t rows, int64_t row, int64_t k, int64_t along)
{
    return rows > 0 && k > 0 ? (rows - 1) * row + (k - 1) * along + 1 : 0;
}

/* Operands for `n_parts` parts whose lengths and beginnings are set; strides of a random form.
 */
static void operands(wf_gemm *g, wf_gemm_part *parts, float **owned)
{
    for (int64_t i = 0; i < g->n_parts; i++) {
        wf_gemm_part *p = &parts[i];
        int64_t gap = below(3), k = p->k;
        int64_t a_wide = below(2), b_wide = below(2), spread = below(8) == 0 ? 2 : 1;

        p->a_row = (a_wide ? k + gap : 1) * spread;
        p->a_k = (a_wide ? 1 : g->m + gap) * spread;
        p->b_k = (b_wide ? g->n + gap : 1) * spread;
        p->b_col = (b_wide ? 1 : k + gap) * spread;
        owned[2 * i] = values(extent(g->m, p->a_row, k, p->a_k));
        owned[2 * i + 1] = values(extent(g->n, p->b_col, k, p->b_k));
        p->a = owned[2 * i];
        p->b = owned[2 * i + 1];
    }
    g->parts = parts;
}

/* each: chunks of a sequence */
static void check_each(int64_t m, int64_t n, wf_gemm_part *parts, int64_t n_parts, int64_t each)
{
    wf_gemm g = {.m = m,
                 .n = n,
                 .c_row = n + below(2) * below(20),
                 .add = below(3) == 0,
                 .n_parts = n_parts,
                 .each = each};
    float *owned[2 * MAX_PARTS];

    operands(&g, parts, owned);
    check(&g);
    for (int64_t i = 0; i < 2 * n_parts; i++)
        free(owned[i]);
}

static void check_parts(int64_t m, int64_t n, wf_gemm_part *parts, int64_t n_parts)
{
    check_each(m, n, parts, n_parts, 0);
}

static void random_products(void)
{
    static const int64_t longest[] = {1, 8, 70, 500};
    wf_gemm_part parts[12];

    for (int round = 0; round < 150; round++) {
        int64_t m = 1 + below(round % 3 ? 40 : 9), n = 1 + below(round % 2 ? 70 : 9);
        int64_t n_parts = 1 + below(12), most = longest[below(4)], least = below(2) ? 1 : 16;

        for (int64_t i = 0; i < n_parts; i++)
            parts[i] =
                (wf_gemm_part){.k = below(5) ? below(most) + least : 0, .chunk = below(2)};
        parts[0].chunk = true;
        check_parts(m, n, parts, n_parts);
    }
}

/* The forms of a training step: chunks of one length, also many and short, and one long one. */
static void even_chunks(void)
{
    static const int64_t cases[][4] = {
        /* m, n, chunks, k of each */
        {30, 70, 1, 2000}, {30, 70, 8, 96},  {17, 40, 8, 384}, {15, 33, 16, 500},
        {29, 35, 64, 8},   {5, 17, 600, 1},  {16, 48, 96, 13}, {14, 32, 7, 60},
        {3, 64, 3, 700},   {1, 200, 8, 100}, {200, 1, 8, 100}, {1, 1, 5, 900},
        {20, 290, 8, 37},  {150, 40, 8, 37}, {150, 290, 3, 5}, {40, 64, 9, 20},
    };
    wf_gemm_part parts[MAX_PARTS];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int64_t l = 0; l < cases[i][2]; l++)
            parts[l] = (wf_gemm_part){.k = cases[i][3], .chunk = true};
        check_parts(cases[i][0], cases[i][1], parts, cases[i][2]);
    }
}

/* Several chunks of each sequence, of batches that are no power of two, some of them empty as a
   rank has them that holds a part of every sequence. */
static void chunks_of_sequences(void)
{
    static const int64_t cases[][5] = {
        /* m, n, sequences, chunks of each, terms of a chunk at most */
        {30, 70, 3, 2, 90}, {17, 40, 5, 4, 30}, {5, 33, 7, 8, 12}, {16, 48, 3, 32, 5},
        {29, 35, 1, 4, 99}, {3, 64, 6, 2, 40},  {8, 90, 12, 4, 9}, {1, 200, 9, 2, 60},
    };
    wf_gemm_part parts[MAX_PARTS];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int empty = 0; empty < 3; empty++) {
            int64_t each = cases[i][3], n = cases[i][2] * each;

            for (int64_t l = 0; l < n; l++) {
                bool there = empty == 0 || (l % each < each / 2) == (empty == 1);

                parts[l] =
                    (wf_gemm_part){.k = there ? 1 + below(cases[i][4]) : 0, .chunk = true};
            }
            check_each(cases[i][0], cases[i][1], parts, n, each);
        }
}

static void chunks_of_a_rank(void)
{
    wf_gemm_part parts[RANK_CHUNKS];
    int64_t n_parts;

    for (int i = 0; (n_parts = rank_chunks(i, parts)) > 0; i++)
        check_parts(17 + i % 3 * 9, 33 + i, parts, n_parts);
}

/* Large enough for several blocks of rows, and of columns, and for members of a thread pool to
   share. */
static void many_blocks(void)
{
    wf_gemm_part parts[3] = {{.k = 5, .chunk = true}, {.k = 40}, {.k = 9, .chunk = true}};

    check_parts(1100, 90, parts, 3);
    check_parts(20, 6200, parts, 3);
    check_parts(530, 1040, parts, 1);
}

static void nothing(void)
{
    wf_gemm_part empty[3] = {{.chunk = true}, {.chunk = true}, {.k = 0}};
    wf_gemm_part one[1] = {{.k = 3, .chunk = true}};

    check_parts(20, 30, empty, 3);
    check_parts(20, 30, empty, 0);
    check_parts(0, 30, one, 1);
    check_parts(20, 0, one, 1);
}

/* Parts that begin no chunk are one chain: the same bits as one part of all of them. */
static void parts_are_one_chain(void)
{
    enum { M = 9, N = 37, K = 450 };
    const wf_simd *simd = wf_cpu_simd(NULL);
    float *a = values(M * K), *b = values(K * N), whole[M * N], split[M * N];
    wf_gemm_part one[] = {{a, K, 1, b, N, 1, K, true}};
    wf_gemm_part three[] = {{a, K, 1, b, N, 1, 100, true},
                            {a + 100, K, 1, b + 100 * N, N, 1, 1, false},
                            {a + 101, K, 1, b + 101 * N, N, 1, K - 101, false}};
    wf_gemm g = {.m = M, .n = N, .c = whole, .c_row = N, .parts = one, .n_parts = 1};
    wf_gemm h = {.m = M, .n = N, .c = split, .c_row = N, .parts = three, .n_parts = 3};
    void *workspace = malloc(simd->gemm_workspace(&g, 1) + simd->gemm_workspace(&h, 1));

    simd->gemm(NULL, &g, workspace);
    simd->gemm(NULL, &h, workspace);
    CU_ASSERT_EQUAL(memcmp(whole, split, sizeof whole), 0);
    free(workspace);
    free(a);
    free(b);
}

int main(void)
{
    static const wf_test tests[] = {
        {"random products", random_products},
        {"even chunks", even_chunks},
        {"chunks of sequences", chunks_of_sequences},
        {"chunks of a rank", chunks_of_a_rank},
        {"many blocks", many_blocks},
        {"nothing to sum", nothing},
        {"parts are one chain", parts_are_one_chain},
        {NULL, NULL},
    };
    int failed;

    for (int i = 1; i <= POOLS; i++)
        pools[i] = wf_thread_pool_open(i, NULL);
    failed = wf_test_main("gemm", tests);
    for (int i = 1; i <= POOLS; i++)
        wf_thread_pool_close(pools[i]);
    return failed;
}
