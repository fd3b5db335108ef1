/*
 * tests/bench/gemm.c - bench gemm: products in all forms, with 1, 2, 4 and 8 chunks, beside the
 * peak of multiply-add and the BLAS libraries that are here.
 *
 * Three settings: one thread; a thread pool of all cores; and as many callers as there are
 * cores, each alone with a product of its own, as ranks are. GFLOP/s are of all callers
 * together. `kept` says what a caller among others keeps of the speed that it has alone, and
 * `fma_kept` the same of multiply-adds that touch no memory: cores that share more than memory
 * keep less.
 */
#include "tests/bench/blas.h"
#include "tests/bench/gemm.h"
#include "kernels/cpu/simd_internal.h"
#include "kernels/cpu/thread_pool_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 8, FORMS = 4 };

/* The product of one caller. */
typedef struct caller {
    bench_product product;
    wf_gemm_part parts[CHUNKS];
    wf_gemm gemm;
    void *workspace;
    bench_blas_call peer[BENCH_BLAS];
} caller;

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    wf_error *error;
    const wf_simd *simd;
    bench_blas found[BENCH_BLAS], blas[BENCH_BLAS]; /* those here, those of a setting */
    int n_found, n_blas;
    wf_thread_pool *pool;   /* NULL: every caller is alone */
    bench_workers *workers; /* the callers */
    bench_workers *peak;    /* as many as threads work */
    int callers;
    caller caller[BENCH_CALLERS];
    double ratio_log, ratio_least; /* over the rows of a setting */
    int rows;
} bench;

/* One of those who race: which product, by whom, and by how many callers. */
typedef struct runner {
    bench *b;
    int chunks; /* 0: a library's */
    int blas;
    int active;
    int64_t repeat;
    _Atomic bool failed;
} runner;

static void run_caller(void *arg, int index)
{
    runner *r = arg;
    bench *b = r->b;
    caller *c = &b->caller[index];

    if (index >= r->active)
        return;
    for (int64_t i = 0; i < r->repeat; i++) {
        if (r->chunks == 0)
            r->failed = r->failed || !b->blas[r->blas].multiply(&c->peer[r->blas]);
        else
            b->simd->gemm(b->pool, &c->gemm, c->workspace);
    }
}

/* Chunk i takes the i-th part of k. */
static void cut(caller *c, int chunks)
{
    const bench_product *p = &c->product;

    c->gemm = (wf_gemm){
        .m = p->m, .n = p->n, .c = p->c, .c_row = p->n, .parts = c->parts, .n_parts = chunks};
    for (int i = 0; i < chunks; i++) {
        int64_t first = p->k * i / chunks, end = p->k * (i + 1) / chunks;
        wf_gemm_part *part = &c->parts[i];

        *part = (wf_gemm_part){.chunk = true, .k = end - first};
        part->a_row = p->a_trans ? 1 : p->k;
        part->a_k = p->a_trans ? p->m : 1;
        part->b_k = p->b_trans ? 1 : p->n;
        part->b_col = p->b_trans ? p->k : 1;
        part->a = (const float *)p->a + first * part->a_k;
        part->b = (const float *)p->b + first * part->b_k;
    }
}

static double now(const runner *r)
{
    int threads = wf_thread_pool_size(r->b->pool);

    return r->chunks ? bench_now(threads) : bench_blas_now(&r->b->blas[r->blas], threads);
}

static double run(void *arg, int64_t repeat)
{
    runner *r = arg;
    bench *b = r->b;
    double start, seconds;

    for (int i = 0; i < r->active && r->chunks; i++)
        cut(&b->caller[i], r->chunks);
    r->repeat = repeat;
    if (b->callers > 1) {
        seconds = bench_workers_run(b->workers, run_caller, r);
    } else {
        start = now(r);
        run_caller(r, 0);
        seconds = now(r) - start;
    }
    return r->failed ? NAN : seconds;
}

static wf_status prepare(bench *b, const bench_shape *s)
{
    for (int i = 0; i < b->callers; i++) {
        caller *c = &b->caller[i];
        size_t workspace = 0;

        c->product = (bench_product){.m = s->m, .k = s->k, .n = s->n};
        c->product.a = bench_memory_new((size_t)(s->m * s->k) * sizeof(float), b->error);
        c->product.b = bench_memory_new((size_t)(s->k * s->n) * sizeof(float), b->error);
        c->product.c = bench_memory_new((size_t)(s->m * s->n) * sizeof(float), b->error);
        if (!c->product.a || !c->product.b || !c->product.c)
            return WF_ENOMEM;
        for (int form = 0; form < FORMS; form++) {
            for (int chunks = 1; chunks <= CHUNKS; chunks *= 2) {
                size_t need;

                c->product.a_trans = form & 1;
                c->product.b_trans = form & 2;
                cut(c, chunks);
                need = b->simd->gemm_workspace(&c->gemm, wf_thread_pool_size(b->pool));
                workspace = need > workspace ? need : workspace;
            }
        }
        c->workspace = bench_memory_new(workspace, b->error);
        if (!c->workspace)
            return WF_ENOMEM;
    }
    return WF_OK;
}

static void forget(bench *b)
{
    for (int i = 0; i < b->callers; i++) {
        caller *c = &b->caller[i];

        free((void *)c->product.a);
        free((void *)c->product.b);
        free(c->product.c);
        free(c->workspace);
        memset(c, 0, sizeof *c);
    }
}

/* The order of entrants; with several callers, the last are one of them alone, and one core's
   multiply-adds alone. */
enum { PEAK, ONE, TWO, FOUR, EIGHT, LIBRARIES, ALONE = 2 };

static void report_form(bench *b, const bench_setting *s, const char *form,
                        const bench_entrant *e)
{
    const bench_shape *size =
        &(bench_shape){b->caller[0].product.m, b->caller[0].product.k, b->caller[0].product.n};
    double flops = 2e-9 * (double)(size->m * size->k) * (double)size->n, best = 0;
    double peak = bench_fma_flops(b->peak) * 1e-9 / e[PEAK].seconds;
    double eight = b->callers * flops / e[EIGHT].seconds;
    const bench_entrant *alone = e + LIBRARIES + b->n_blas;
    bench_cell cells[18 + BENCH_BLAS], *cell = cells;

    *cell++ = bench_text("setting", s->name);
    *cell++ = bench_number("m", (double)size->m, 0);
    *cell++ = bench_number("k", (double)size->k, 0);
    *cell++ = bench_number("n", (double)size->n, 0);
    *cell++ = bench_text("form", form);
    *cell++ = bench_number("fma_peak", peak, 1);
    *cell++ = bench_number("one_chunk", b->callers * flops / e[ONE].seconds, 1);
    *cell++ = bench_number("two_chunks", b->callers * flops / e[TWO].seconds, 1);
    *cell++ = bench_number("four_chunks", b->callers * flops / e[FOUR].seconds, 1);
    *cell++ = bench_number("eight_chunks", eight, 1);
    for (int i = 0; i < b->n_blas; i++) {
        double rate = b->callers * flops / e[LIBRARIES + i].seconds;

        *cell++ = bench_number(b->blas[i].name, rate, 1);
        best = rate > best ? rate : best;
    }
    *cell++ = bench_number("of_peak", eight / peak, 3);
    *cell++ = bench_number("of_best", best > 0 ? eight / best : NAN, 3);
    *cell++ =
        bench_number("kept", b->callers > 1 ? alone[0].seconds / e[EIGHT].seconds : NAN, 3);
    *cell++ =
        bench_number("fma_kept", b->callers > 1 ? alone[1].seconds / e[PEAK].seconds : NAN, 3);
    *cell = (bench_cell){.name = NULL};
    bench_row(b->report, cells);
    if (best > 0) {
        b->ratio_log += log(eight / best);
        b->ratio_least = b->rows++ ? fmin(b->ratio_least, eight / best) : eight / best;
    }
}

static wf_status race_form(bench *b, const bench_setting *s, const char *form)
{
    runner runners[LIBRARIES + BENCH_BLAS + ALONE];
    bench_entrant entrants[LIBRARIES + BENCH_BLAS + ALONE] = {{.run = NULL}};
    int alone = LIBRARIES + b->n_blas, count = alone + (b->callers > 1 ? ALONE : 0);
    bool good;

    for (int i = 0; i < b->callers; i++) {
        b->caller[i].product.a_trans = form[0] == 'T';
        b->caller[i].product.b_trans = form[1] == 'T';
        for (int j = 0; j < b->n_blas; j++)
            b->caller[i].peer[j] =
                (bench_blas_call){.blas = &b->blas[j], .product = b->caller[i].product};
    }
    for (int i = ONE; i < count; i++) {
        bool library = i >= LIBRARIES && i < alone;

        runners[i] = (runner){.b = b,
                              .chunks = i < LIBRARIES ? 1 << (i - ONE)
                                        : library     ? 0
                                                      : CHUNKS,
                              .blas = library ? i - LIBRARIES : 0,
                              .active = i < alone ? b->callers : 1};
        entrants[i] = (bench_entrant){.run = run, .arg = &runners[i]};
    }
    entrants[PEAK] = bench_fma(b->peak);
    if (b->callers > 1)
        entrants[alone + 1] = bench_fma_alone(b->peak);
    good = bench_race(b->o, count, entrants);
    for (int i = 0; i < b->callers; i++) {
        for (int j = 0; j < b->n_blas; j++) {
            if (b->blas[j].close)
                b->blas[j].close(&b->caller[i].peer[j]);
        }
    }
    if (!good)
        return wf_error_set(b->error, WF_EINTERNAL, "a library refused a product");
    report_form(b, s, form, entrants);
    return WF_OK;
}

static void set_threads(void *arg, int index)
{
    const bench *b = arg;

    (void)index;
    for (int i = 0; i < b->n_blas; i++)
        b->blas[i].set_threads(wf_thread_pool_size(b->pool));
}

/* Chooses the libraries of a setting: several callers at once are not for all. */
static void choose_libraries(bench *b, const bench_setting *s)
{
    b->n_blas = 0;
    for (int i = 0; i < b->n_found; i++) {
        if (s->callers == 1 || !b->found[i].own_threads)
            b->blas[b->n_blas++] = b->found[i];
        else
            bench_note(b->report, "%s: without %s, whose threads serve one caller at a time",
                       s->name, b->found[i].name);
    }
}

static wf_status run_setting(bench *b, const bench_setting *s, const bench_shape *shapes,
                             int n_shapes)
{
    const char *forms;
    char form[8];

    b->callers = s->callers;
    choose_libraries(b, s);
    b->pool = s->threads > 1 ? wf_thread_pool_open(s->threads, b->error) : NULL;
    b->workers = bench_workers_open(s->callers, b->error);
    b->peak = bench_workers_open(s->threads * s->callers, b->error);
    b->ratio_log = b->rows = 0;
    if ((s->threads > 1 && !b->pool) || !b->workers || !b->peak)
        return b->error->code;
    bench_workers_run(b->workers, set_threads, b);
    for (int i = 0; i < n_shapes && b->error->code == WF_OK; i++) {
        forms = b->o->forms ? b->o->forms : b->o->quick ? "NN,TN" : "NN,NT,TN,TT";
        if (prepare(b, &shapes[i]) == WF_OK) {
            while (bench_next_word(&forms, form, sizeof form) && b->error->code == WF_OK)
                race_form(b, s, form);
        }
        forget(b);
    }
    if (b->rows)
        bench_note(b->report, "%s, eight chunks of the best library: mean %.3f, least %.3f",
                   s->name, exp(b->ratio_log / b->rows), b->ratio_least);
    wf_thread_pool_close(b->pool);
    bench_workers_close(b->workers);
    bench_workers_close(b->peak);
    return b->error->code;
}

static wf_status run_gemm(const bench_options *o, bench_report *report, wf_error *error)
{
    static bench b;
    bench_shape shapes[BENCH_SHAPES];
    bench_setting settings[BENCH_SETTINGS];
    const char *why = "";
    int n_shapes = bench_gemm_shapes(o, shapes, error),
        n_settings = bench_gemm_settings(o, settings);

    if (o->device && strcmp(o->device, "cuda") == 0)
        return bench_gemm_gpu(o, report, error);
    if (o->device && strcmp(o->device, "cpu") != 0)
        return wf_error_set(error, WF_EINVAL, "there is no device %s: use cpu or cuda",
                            o->device);
    if (error->code != WF_OK || !bench_gemm_forms_are_good(o, error))
        return error->code;
    if (o->dtype && strcmp(o->dtype, "bf16") == 0)
        return bench_gemm_bf16(o, shapes, n_shapes, report, error);
    if (o->dtype && strcmp(o->dtype, "fp32") != 0)
        return wf_error_set(error, WF_EINVAL, "--dtype %s is neither fp32 nor bf16", o->dtype);
    b = (bench){.o = o, .report = report, .error = error, .simd = wf_cpu_simd(&why)};
    if (!b.simd)
        return wf_error_set(error, WF_EINVAL, "%s", why);
    bench_note(report, "GFLOP/s; Weft's %s kernels", b.simd->name);
    b.n_found = bench_blas_load(report, b.found);
    for (int i = 0; i < n_settings && error->code == WF_OK; i++)
        run_setting(&b, &settings[i], shapes, n_shapes);
    return error->code;
}

const bench_command bench_gemm = {
    .name = "gemm",
    .summary = "products, beside the FMA peak, OpenBLAS, oneDNN and BLIS",
    .more =
        "Products C = A B in fp32. The limit is the peak of multiply-adds that wait for\n"
        "nothing; the peers are OpenBLAS, oneDNN 3 and BLIS, where the loader finds them. A\n"
        "form says which of A and B lies transposed. Without --threads: one thread, all cores\n"
        "as one thread pool, and a rank per core, each with a product of its own.\n\n"
        "The newest oneDNN that a package has:\n\n"
        "  python3 -m venv onednn && onednn/bin/pip install onednn\n"
        "  LD_LIBRARY_PATH=onednn/lib bench gemm\n\n"
        "  bench gemm                                            all shapes: half an hour\n"
        "  bench gemm --shapes 1024x768x3072,256x768x768 --forms NN,NT --threads 1\n\n"
        "With --dtype bf16, products of bf16 operands and those in fp32 take turns, and the "
        "tile\n"
        "unit of AMX multiplies what it holds, where there is one.\n\n"
        "On a GPU, products of bf16 in exact mode by each of its kernels, in TFLOP/s: those of "
        "a\n"
        "step of GPT-2 124M, or of --shapes and --forms, with one chunk and with eight.\n\n"
        "  bench gemm --device cuda",
    .run = run_gemm,
    .here = bench_gemm_path};
