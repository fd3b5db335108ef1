/*
 * tests/bench/gemm_bf16.c - bench gemm --dtype bf16: products of bf16 operands beside the same
 * ones in fp32, alternating, with 1, 2, 4 and 8 chunks. Limits are the peak of multiply-adds of
 * this thread, or of the thread pool's, and the peak of a tile unit where products go there;
 * the peer is oneDNN's matmul. GFLOP/s. A round begins with a product that is not timed: after
 * 30 ms of other rounds a tile unit is slow for half a millisecond.
 */
#include "tests/bench/blas.h"
#include "tests/bench/gemm.h"
#include "core/numerics/bf16.h"
#include "kernels/cpu/simd_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 8 };

/* The order of entrants; the others are a tile unit and oneDNN, where they are here. */
enum {
    PEAK,
    F32_ONE,
    BF16_ONE,
    F32_TWO,
    BF16_TWO,
    F32_FOUR,
    BF16_FOUR,
    F32_EIGHT,
    BF16_EIGHT,
    OTHERS,
    ENTRANTS = OTHERS + 3
};

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    wf_error *error;
    const wf_simd *simd;
    wf_thread_pool *pool;
    bench_workers *peak;
    bench_shape shape;
    float *a, *b, *c;
    uint16_t *half_a, *half_b;
    void *workspace;
    bench_blas onednn; /* its matmul */
    bool has_onednn;
    double fp32_log, fp32_least, onednn_log; /* over the rows of a setting */
    int rows;
} bench;

typedef struct runner {
    bench *b;
    wf_gemm_part parts[CHUNKS];
    wf_gemm gemm;
} runner;

typedef struct peer {
    bench_blas_call call;
    int threads;
} peer;

static double run_peer(void *arg, int64_t repeat)
{
    peer *p = arg;
    bool good;
    double start;

    p->call.blas->set_threads(p->threads);
    good = p->call.blas->multiply(&p->call);
    start = bench_blas_now(p->call.blas, p->threads);
    for (int64_t i = 0; i < repeat && good; i++)
        good = p->call.blas->multiply(&p->call);
    return good ? bench_blas_now(p->call.blas, p->threads) - start : NAN;
}

static double run(void *arg, int64_t repeat)
{
    const runner *r = arg;
    int threads = wf_thread_pool_size(r->b->pool);
    double start;

    r->b->simd->gemm(r->b->pool, &r->gemm, r->b->workspace);
    start = bench_now(threads);
    for (int64_t i = 0; i < repeat; i++)
        r->b->simd->gemm(r->b->pool, &r->gemm, r->b->workspace);
    return bench_now(threads) - start;
}

/* Chunk i takes the i-th part of k. */
static void make_product(runner *r, bench *b, const char *form, bool bf16, int chunks)
{
    const bench_shape *s = &b->shape;
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    const char *a = bf16 ? (const char *)b->half_a : (const char *)b->a;
    const char *w = bf16 ? (const char *)b->half_b : (const char *)b->b;

    r->b = b;
    r->gemm = (wf_gemm){.m = s->m,
                        .n = s->n,
                        .c = b->c,
                        .c_row = s->n,
                        .bf16 = bf16,
                        .parts = r->parts,
                        .n_parts = chunks};
    for (int i = 0; i < chunks; i++) {
        int64_t first = s->k * i / chunks, end = s->k * (i + 1) / chunks;
        wf_gemm_part *part = &r->parts[i];

        *part = (wf_gemm_part){.chunk = true, .k = end - first};
        part->a_row = form[0] == 'T' ? 1 : s->k;
        part->a_k = form[0] == 'T' ? s->m : 1;
        part->b_k = form[1] == 'T' ? 1 : s->n;
        part->b_col = form[1] == 'T' ? s->k : 1;
        part->a = a + (size_t)(first * part->a_k) * size;
        part->b = w + (size_t)(first * part->b_k) * size;
    }
}

/* The figures of a row, in the order of its cells. */
typedef struct figures {
    double fma_peak, tile_peak, tiles_loaded, onednn; /* NAN: there is none */
    const bench_entrant *entrants;
} figures;

static void report_form(bench *b, const char *setting, const char *form, const figures *f)
{
    const bench_shape *s = &b->shape;
    const bench_entrant *e = f->entrants;
    double flops = 2e-9 * (double)(s->m * s->k) * (double)s->n;
    double of_fp32 = e[F32_EIGHT].seconds / e[BF16_EIGHT].seconds;
    double of_onednn = flops / e[BF16_EIGHT].seconds / f->onednn;
    bench_cell cells[] = {
        bench_text("setting", setting),
        bench_number("m", (double)s->m, 0),
        bench_number("k", (double)s->k, 0),
        bench_number("n", (double)s->n, 0),
        bench_text("form", form),
        bench_number("fma_peak", f->fma_peak, 1),
        bench_number("fp32_one", flops / e[F32_ONE].seconds, 1),
        bench_number("bf16_one", flops / e[BF16_ONE].seconds, 1),
        bench_number("fp32_two", flops / e[F32_TWO].seconds, 1),
        bench_number("bf16_two", flops / e[BF16_TWO].seconds, 1),
        bench_number("fp32_four", flops / e[F32_FOUR].seconds, 1),
        bench_number("bf16_four", flops / e[BF16_FOUR].seconds, 1),
        bench_number("fp32_eight", flops / e[F32_EIGHT].seconds, 1),
        bench_number("bf16_eight", flops / e[BF16_EIGHT].seconds, 1),
        bench_number("of_fp32_one", e[F32_ONE].seconds / e[BF16_ONE].seconds, 3),
        bench_number("of_fp32_eight", of_fp32, 3),
        bench_number("tile_peak", f->tile_peak, 1),
        bench_number("of_tile_peak", flops / e[BF16_EIGHT].seconds / f->tile_peak, 3),
        bench_number("tiles_loaded", f->tiles_loaded, 1),
        bench_number("onednn", f->onednn, 1),
        bench_number("of_onednn", of_onednn, 3),
        {.name = NULL}};

    bench_row(b->report, cells);
    b->fp32_log += log(of_fp32);
    b->fp32_least = b->rows++ ? fmin(b->fp32_least, of_fp32) : of_fp32;
    b->onednn_log += log(of_onednn);
}

/* The other entrants, and what they and the peak make of their times. */
static int others(bench *b, const char *form, peer *onednn, bench_entrant *entrants)
{
    const bench_shape *s = &b->shape;
    int count = OTHERS;

    if (bench_tiles().run) {
        entrants[count++] = bench_tiles();
        entrants[count++] = bench_loaded_tiles();
    }
    if (!b->has_onednn)
        return count;
    *onednn = (peer){.call = {.blas = &b->onednn,
                              .product = {.a_trans = form[0] == 'T',
                                          .b_trans = form[1] == 'T',
                                          .bf16 = true,
                                          .m = s->m,
                                          .k = s->k,
                                          .n = s->n,
                                          .a = b->half_a,
                                          .b = b->half_b,
                                          .c = b->c}},
                     .threads = wf_thread_pool_size(b->pool)};
    entrants[count++] = (bench_entrant){.run = run_peer, .arg = onednn};
    return count;
}

static void report_race(bench *b, const char *setting, const char *form, int count,
                        const bench_entrant *e)
{
    const bench_shape *s = &b->shape;
    figures f = {.fma_peak = bench_fma_flops(b->peak) * 1e-9 / e[PEAK].seconds,
                 .tile_peak = NAN,
                 .tiles_loaded = NAN,
                 .onednn = NAN,
                 .entrants = e};

    if (bench_tiles().run) {
        double flops = wf_thread_pool_size(b->pool) * bench_tile_flops() * 1e-9;

        f.tile_peak = flops / e[OTHERS].seconds;
        f.tiles_loaded = flops / e[OTHERS + 1].seconds;
    }
    if (b->has_onednn)
        f.onednn = 2e-9 * (double)(s->m * s->k) * (double)s->n / e[count - 1].seconds;
    report_form(b, setting, form, &f);
}

static wf_status race_form(bench *b, const char *setting, const char *form)
{
    runner runners[ENTRANTS];
    peer onednn;
    bench_entrant entrants[ENTRANTS] = {[PEAK] = bench_fma(b->peak)};
    int count = others(b, form, &onednn, entrants);
    size_t need = 0;
    bool good;

    for (int i = F32_ONE; i < OTHERS; i++) {
        size_t bytes;

        make_product(&runners[i], b, form, (i - F32_ONE) % 2, 1 << (i - F32_ONE) / 2);
        entrants[i] = (bench_entrant){.run = run, .arg = &runners[i]};
        bytes = b->simd->gemm_workspace(&runners[i].gemm, wf_thread_pool_size(b->pool));
        need = bytes > need ? bytes : need;
    }
    b->workspace = bench_memory_new(need > 0 ? need : 1, b->error);
    if (!b->workspace)
        return WF_ENOMEM;
    good = bench_race(b->o, count, entrants);
    free(b->workspace);
    if (b->has_onednn)
        b->onednn.close(&onednn.call);
    if (!good)
        return wf_error_set(b->error, WF_EINTERNAL, "oneDNN refused a product");
    report_race(b, setting, form, count, entrants);
    return WF_OK;
}

static uint16_t *rounded(const float *x, int64_t n, wf_error *error)
{
    uint16_t *half = (uint16_t *)(void *)bench_memory_new((size_t)n * sizeof *half, error);

    for (int64_t i = 0; half && i < n; i++)
        half[i] = wf_bf16_of(x[i]);
    return half;
}

static bool prepare(bench *b, const bench_shape *s)
{
    b->shape = *s;
    b->a = bench_memory_new((size_t)(s->m * s->k) * sizeof(float), b->error);
    b->b = bench_memory_new((size_t)(s->k * s->n) * sizeof(float), b->error);
    b->c = bench_memory_new((size_t)(s->m * s->n) * sizeof(float), b->error);
    b->half_a = b->a ? rounded(b->a, s->m * s->k, b->error) : NULL;
    b->half_b = b->b ? rounded(b->b, s->k * s->n, b->error) : NULL;
    return b->c && b->half_a && b->half_b;
}

static void forget(bench *b)
{
    free(b->a);
    free(b->b);
    free(b->c);
    free(b->half_a);
    free(b->half_b);
    b->a = b->b = b->c = NULL;
    b->half_a = b->half_b = NULL;
}

static wf_status run_setting(bench *b, const bench_setting *s, const bench_shape *shapes,
                             int n_shapes)
{
    const char *forms;
    char form[8];

    b->pool = s->threads > 1 ? wf_thread_pool_open(s->threads, b->error) : NULL;
    b->peak = bench_workers_open(s->threads, b->error);
    b->fp32_log = b->onednn_log = b->rows = 0;
    if ((s->threads > 1 && !b->pool) || !b->peak)
        return b->error->code;
    for (int i = 0; i < n_shapes && b->error->code == WF_OK; i++) {
        forms = b->o->forms ? b->o->forms : b->o->quick ? "NN,TN" : "NN,NT,TN,TT";
        if (prepare(b, &shapes[i])) {
            while (bench_next_word(&forms, form, sizeof form) && b->error->code == WF_OK)
                race_form(b, s->name, form);
        }
        forget(b);
    }
    if (b->rows)
        bench_note(b->report,
                   "%s, eight chunks in bf16 of those in fp32: mean %.3f, least %.3f", s->name,
                   exp(b->fp32_log / b->rows), b->fp32_least);
    if (b->rows && b->has_onednn)
        bench_note(b->report, "%s, eight chunks of oneDNN's bf16: mean %.3f", s->name,
                   exp(b->onednn_log / b->rows));
    wf_thread_pool_close(b->pool);
    bench_workers_close(b->peak);
    return b->error->code;
}

const char *bench_gemm_path(void)
{
    static char text[128];
    const wf_simd *simd = wf_cpu_simd(NULL);

    snprintf(text, sizeof text, "Products of bf16 operands on this machine: %s, %s.",
             simd ? simd->name : "none",
             simd && strcmp(simd->name, "amx") == 0 ? "the tile unit's instruction"
                                                    : "fp32 multiply-adds with the same bits");
    return text;
}

wf_status bench_gemm_bf16(const bench_options *o, const bench_shape *shapes, int n_shapes,
                          bench_report *report, wf_error *error)
{
    bench_setting settings[BENCH_SETTINGS];
    int n_settings = bench_gemm_settings(o, settings);
    const char *why = "";
    bench_blas found[2] = {{.name = NULL}};
    bench b = {.o = o, .report = report, .error = error, .simd = wf_cpu_simd(&why)};

    if (!b.simd)
        return wf_error_set(error, WF_EINVAL, "%s", why);
    bench_note(report, "GFLOP/s. %s", bench_gemm_path());
    b.has_onednn = bench_onednn_load(report, found) == 2 &&
                   bench_blas_check(report, true, &found[1], 1) == 1;
    b.onednn = found[1];
    for (int i = 0; i < n_settings && error->code == WF_OK; i++) {
        if (settings[i].callers == 1)
            run_setting(&b, &settings[i], shapes, n_shapes);
    }
    return error->code;
}
