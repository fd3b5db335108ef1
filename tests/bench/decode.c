/*
 * tests/bench/decode.c - bench decode: a few rows times weights, as decoding multiplies for
 * every token, in fp32 and as products of bf16 (--dtype bf16), beside a plain read of the same
 * memory, Weft's product of many rows, and the BLAS libraries that are here.
 *
 * Weights are as many copies as make MEMORY bytes, and a run reads all of them, so that no
 * cache helps.
 */
#include "tests/bench/blas.h"
#include "kernels/cpu/simd_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 8, TEAMS = 2 };
static const size_t memory = (size_t)1 << 30, quick_memory = (size_t)1 << 22;

typedef struct shape {
    int64_t m, k, n;
} shape;

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    wf_error *error;
    const wf_simd *simd;
    bench_blas blas[BENCH_BLAS];
    int n_blas;
    wf_thread_pool *pool;
    bench_workers *workers; /* who reads: as many as the thread pool has members */
    shape s;
    int64_t copies;
    float *x, *y, *weights;
    uint16_t *half, *half_x;
    void *workspace;
    size_t bytes; /* size of all copies in fp32 */
} bench;

enum { READ, FP32, BF16, MANY, LIBRARIES };

/* A sum over a model's width is one chunk, one over what plans split has eight. */
static int64_t cuts(const bench *b, int64_t at[CHUNKS + 1])
{
    const int64_t chunks = b->s.k < b->s.n ? 1 : CHUNKS;

    for (int64_t l = 0; l <= chunks; l++)
        at[l] = b->s.k * l / chunks;
    return chunks;
}

static wf_gemm product(const bench *b, int64_t copy, wf_gemm_part parts[CHUNKS])
{
    int64_t at[CHUNKS + 1], chunks = cuts(b, at);

    for (int64_t l = 0; l < chunks; l++)
        parts[l] = (wf_gemm_part){.a = b->x + at[l],
                                  .a_row = b->s.k,
                                  .a_k = 1,
                                  .b = b->weights + copy * b->s.k * b->s.n + at[l],
                                  .b_k = 1,
                                  .b_col = b->s.k,
                                  .k = at[l + 1] - at[l],
                                  .chunk = true};
    return (wf_gemm){.m = b->s.m,
                     .n = b->s.n,
                     .c = b->y,
                     .c_row = b->s.n,
                     .parts = parts,
                     .n_parts = chunks};
}

static double run_many(void *arg, int64_t repeat)
{
    bench *b = arg;
    double start = bench_now(TEAMS);

    for (int64_t i = 0; i < repeat * b->copies; i++) {
        wf_gemm_part parts[CHUNKS];
        wf_gemm g = product(b, i % b->copies, parts);

        b->simd->gemm(b->pool, &g, b->workspace);
    }
    return bench_now(TEAMS) - start;
}

static double run_gemv(bench *b, int64_t repeat, bool bf16)
{
    double start = bench_now(TEAMS);
    int64_t at[CHUNKS + 1], size = b->s.k * b->s.n, chunks = cuts(b, at);

    for (int64_t i = 0; i < repeat * b->copies; i++) {
        int64_t copy = i % b->copies;
        const wf_gemv s = {.m = b->s.m,
                           .n = b->s.n,
                           .k = b->s.k,
                           .x = bf16 ? (const void *)b->half_x : b->x,
                           .w = bf16 ? (const void *)(b->half + copy * size)
                                     : b->weights + copy * size,
                           .bf16 = bf16,
                           .x_bf16 = bf16,
                           .y_bf16 = bf16,
                           .y = b->y,
                           .chunks = chunks,
                           .at = at};

        b->simd->gemv(b->pool, &s, 1);
    }
    return bench_now(TEAMS) - start;
}

static double run_fp32(void *arg, int64_t repeat)
{
    return run_gemv(arg, repeat, false);
}

static double run_bf16(void *arg, int64_t repeat)
{
    return run_gemv(arg, repeat, true);
}

/* A library's product, prepared once: the copies of the weights take turns in it. */
typedef struct peer {
    bench *b;
    bench_blas_call call;
} peer;

static double run_peer(void *arg, int64_t repeat)
{
    peer *p = arg;
    bench *b = p->b;
    double start = bench_now(TEAMS);

    for (int64_t i = 0; i < repeat * b->copies; i++) {
        p->call.product.b = b->weights + i % b->copies * b->s.k * b->s.n;
        if (!p->call.blas->multiply(&p->call))
            return NAN;
    }
    return bench_now(TEAMS) - start;
}

static wf_status prepare(bench *b)
{
    size_t one = (size_t)(b->s.k * b->s.n) * sizeof(float),
           most = b->o->quick ? quick_memory : memory;
    wf_gemm_part parts[CHUNKS];
    wf_gemm g;

    b->copies = one < most ? (int64_t)(most / one) : 1;
    b->bytes = one * (size_t)b->copies;
    b->x = bench_memory_new((size_t)(b->s.m * b->s.k) * sizeof(float), b->error);
    b->y = bench_memory_new((size_t)(b->s.m * b->s.n) * sizeof(float), b->error);
    b->weights = bench_memory_new(b->bytes, b->error);
    b->half = (uint16_t *)bench_memory_new(b->bytes / 2 + sizeof(float), b->error);
    b->half_x =
        (uint16_t *)bench_memory_new((size_t)(b->s.m * b->s.k) * sizeof(float), b->error);
    if (!b->x || !b->y || !b->weights || !b->half || !b->half_x)
        return WF_ENOMEM;
    b->simd->narrow(b->x, b->half_x, b->s.m * b->s.k);
    b->simd->narrow(b->weights, b->half, (int64_t)(b->bytes / sizeof(float)));
    g = product(b, 0, parts);
    b->workspace = bench_memory_new(
        b->simd->gemm_workspace(&g, wf_thread_pool_size(b->pool)) + sizeof(float), b->error);
    return b->workspace ? WF_OK : WF_ENOMEM;
}

static void forget(bench *b)
{
    free(b->x);
    free(b->y);
    free(b->weights);
    free(b->half);
    free(b->half_x);
    free(b->workspace);
    b->x = b->y = b->weights = NULL;
    b->half = b->half_x = NULL;
    b->workspace = NULL;
}

static void report(bench *b, const bench_entrant *e)
{
    double gb = 1e-9 * (double)b->bytes, best = 0;
    bench_cell cells[16 + BENCH_BLAS], *cell = cells;

    *cell++ = bench_number("threads", wf_thread_pool_size(b->pool), 0);
    *cell++ = bench_number("m", (double)b->s.m, 0);
    *cell++ = bench_number("k", (double)b->s.k, 0);
    *cell++ = bench_number("n", (double)b->s.n, 0);
    *cell++ = bench_number("read", gb / e[READ].seconds, 1);
    *cell++ = bench_number("fp32", gb / e[FP32].seconds, 1);
    *cell++ = bench_number("bf16", gb / 2 / e[BF16].seconds, 1);
    *cell++ = bench_number("many_rows", gb / e[MANY].seconds, 1);
    for (int i = 0; i < b->n_blas; i++) {
        *cell++ = bench_number(b->blas[i].name, gb / e[LIBRARIES + i].seconds, 1);
        best = fmax(best, gb / e[LIBRARIES + i].seconds);
    }
    *cell++ = bench_number("of_read", e[READ].seconds / e[FP32].seconds, 3);
    *cell++ = bench_number("bf16_speed", e[FP32].seconds / e[BF16].seconds, 3);
    *cell++ = bench_number("of_best", best > 0 ? gb / e[FP32].seconds / best : NAN, 3);
    *cell = (bench_cell){.name = NULL};
    bench_row(b->report, cells);
}

static wf_status race(bench *b)
{
    bench_read read = {.workers = b->workers, .data = b->weights, .bytes = b->bytes};
    peer peers[BENCH_BLAS];
    bench_entrant entrants[LIBRARIES + BENCH_BLAS] = {
        bench_reader(&read),
        {.run = run_fp32, .arg = b},
        {.run = run_bf16, .arg = b},
        {.run = run_many, .arg = b},
    };
    bool good;

    for (int i = 0; i < b->n_blas; i++) {
        peers[i] = (peer){.b = b,
                          .call = {.blas = &b->blas[i],
                                   .product = {.b_trans = true,
                                               .m = b->s.m,
                                               .k = b->s.k,
                                               .n = b->s.n,
                                               .a = b->x,
                                               .b = b->weights,
                                               .c = b->y}}};
        b->blas[i].set_threads(wf_thread_pool_size(b->pool));
        entrants[LIBRARIES + i] = (bench_entrant){.run = run_peer, .arg = &peers[i]};
    }
    good = bench_race(b->o, LIBRARIES + b->n_blas, entrants);
    for (int i = 0; i < b->n_blas; i++) {
        if (b->blas[i].close)
            b->blas[i].close(&peers[i].call);
    }
    if (!good)
        return wf_error_set(b->error, WF_EINTERNAL, "a library refused a product");
    report(b, entrants);
    return WF_OK;
}

static bool is_narrow(const int64_t *number)
{
    return number[2] >= WF_GEMV_COLUMNS;
}

/* Those of the command line, or those of a small model and of a large one. */
static int list_shapes(const bench_options *o, shape *shapes, wf_error *error)
{
    const char *standard = "1x576x1536,1x1536x576,1x576x49152,4x576x49152,8x576x49152,"
                           "1x2048x8192,8x2048x8192,1x4096x4096";
    const char *list = o->shapes ? o->shapes : o->quick ? "1x64x96" : standard;
    char text[64];
    const bench_shape_rule rule = {.numbers = 3,
                                   .most = {WF_GEMV_ROWS, 1 << 20, 1 << 20},
                                   .fits = is_narrow,
                                   .text = text};
    int64_t read[BENCH_SHAPES][BENCH_SHAPE];
    int count;

    snprintf(text, sizeof text, "MxKxN with M up to %d and N from %d, like 1x2048x8192",
             WF_GEMV_ROWS, WF_GEMV_COLUMNS);
    count = bench_shapes(list, &rule, read, error);
    for (int i = 0; i < count; i++)
        shapes[i] = (shape){read[i][0], read[i][1], read[i][2]};
    return count;
}

static wf_status run_threads(bench *b, int threads, const shape *shapes, int count)
{
    b->pool = threads > 1 ? wf_thread_pool_open(threads, b->error) : NULL;
    b->workers = bench_workers_open(threads, b->error);
    for (int i = 0; i < count && b->error->code == WF_OK; i++) {
        b->s = shapes[i];
        if (prepare(b) == WF_OK)
            race(b);
        forget(b);
    }
    bench_workers_close(b->workers);
    wf_thread_pool_close(b->pool);
    return b->error->code;
}

static wf_status run_decode(const bench_options *o, bench_report *out, wf_error *error)
{
    static bench b;
    shape shapes[BENCH_SHAPES];
    const char *why = "";
    int count = list_shapes(o, shapes, error);

    if (error->code != WF_OK)
        return error->code;
    b = (bench){.o = o, .report = out, .error = error, .simd = wf_cpu_simd(&why)};
    if (!b.simd)
        return wf_error_set(error, WF_EINVAL, "%s", why);
    bench_note(out, "GB/s of weights that are read; Weft's %s kernels", b.simd->name);
    b.n_blas = bench_blas_load(out, b.blas);
    if (o->threads)
        return run_threads(&b, (int)o->threads, shapes, count);
    if (run_threads(&b, 1, shapes, count) == WF_OK && o->cores > 1)
        run_threads(&b, o->cores, shapes, count);
    return error->code;
}

const bench_command bench_decode = {
    .name = "decode",
    .summary = "products of a few rows, beside a read of the same memory and BLAS libraries",
    .more =
        "Y = X W^T with 1 to 8 rows of X, which is what a token costs: every weight is read\n"
        "once. `read` adds up the same memory; `bf16` has half the bytes, as --dtype bf16 "
        "multiplies,\n"
        "and bf16_speed is how many times faster it is than fp32; many_rows is Weft's product "
        "for any number of "
        "rows.\n"
        "Weights are copies that make 1 GiB together. Without --threads: one, and all "
        "cores.\n\n"
        "  bench decode\n"
        "  bench decode --shapes 1x2048x8192,8x576x49152 --threads 1",
    .run = run_decode};
