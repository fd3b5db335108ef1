/*
 * tests/bench/memory.c - bench memory: copies, and the ops whose time is that of their memory,
 * as a share of the fastest copy. Bytes are those of operands and results, each once.
 */
#include "tests/bench/bench.h"
#include <math.h>
#include <string.h>

typedef struct bench {
    const bench_options *o;
    wf_context *ctx;
    wf_device *gpu; /* the GPU; NULL: on the CPU, with so many threads */
    int threads;
    wf_tensor *x, *y, *m, *v; /* [batch, tokens, width] */
    wf_tensor *gain, *bias, *mean, *rstd;
} bench;

static void do_add(bench *b)
{
    wf_add(b->x, b->y);
}

static void do_gelu(bench *b)
{
    wf_gelu(b->x);
}

static void do_gelu_grad(bench *b)
{
    wf_gelu_grad(b->x, b->y);
}

static void do_silu(bench *b)
{
    wf_silu(b->x);
}

static void do_bias_add(bench *b)
{
    wf_bias_add(b->x, b->bias);
}

static void do_layernorm(bench *b)
{
    wf_layernorm(b->x, b->gain, b->bias, 1e-5f);
}

static void do_layernorm_dx(bench *b)
{
    wf_layernorm_dx(b->x, b->gain, b->mean, b->rstd, b->y);
}

static void do_layernorm_dw(bench *b)
{
    wf_tensor *dgain, *dbias;

    wf_layernorm_dw(b->x, b->mean, b->rstd, b->y, &dgain, &dbias);
}

static void do_rmsnorm(bench *b)
{
    wf_rmsnorm(b->x, b->gain, 1e-5f);
}

static void do_dropout(bench *b)
{
    wf_dropout(b->x, 0.1f, 1);
}

static void do_adamw(bench *b)
{
    wf_adamw(b->x, b->y, b->m, b->v,
             &(wf_update){.lr = 1e-6f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-8f,
                          .weight_decay = 0.1f,
                          .bias1 = 1,
                          .bias2 = 1,
                          .grad_scale = 1});
}

/* An op, and how often it reads or writes an array. */
typedef struct op {
    const char *name;
    void (*run)(bench *b);
    int arrays;
} op;

static const op ops[] = {
    {"add", do_add, 3},
    {"gelu", do_gelu, 2},
    {"gelu_grad", do_gelu_grad, 3},
    {"silu", do_silu, 2},
    {"bias_add", do_bias_add, 2},
    {"layernorm", do_layernorm, 2},
    {"layernorm_dx", do_layernorm_dx, 3},
    {"layernorm_dw", do_layernorm_dw, 2},
    {"rmsnorm", do_rmsnorm, 2},
    {"dropout", do_dropout, 2},
    {"adamw", do_adamw, 7},
};

enum { OPS = sizeof ops / sizeof *ops };

typedef struct runner {
    bench *b;
    const op *op;
} runner;

static double stop_clock(const bench *b)
{
    return bench_stop_clock(b->gpu, b->threads);
}

static double run_op(void *arg, int64_t repeat)
{
    runner *r = arg;
    double start = stop_clock(r->b);

    for (int64_t i = 0; i < repeat; i++) {
        wf_scope_open(r->b->ctx);
        r->op->run(r->b);
        wf_scope_close(r->b->ctx);
    }
    return wf_context_status(r->b->ctx) == WF_OK ? stop_clock(r->b) - start : NAN;
}

static double run_device_copy(void *arg, int64_t repeat)
{
    bench *b = arg;
    const wf_copy copy = {.from = b->y->data,
                          .to = b->m->data,
                          .bytes = (size_t)wf_tensor_local_count(b->y) * sizeof(float),
                          .rows = 1};
    double start = stop_clock(b);

    for (int64_t i = 0; i < repeat; i++)
        if (b->gpu->memory->copy(b->gpu, &copy, false, NULL) != WF_OK)
            return NAN;
    return stop_clock(b) - start;
}

static wf_tensor *array(bench *b, int ndim, const wf_dim *dims, float deviation)
{
    wf_tensor *t = wf_tensor_new(b->ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    if (t)
        wf_init_uniform(t, 0, deviation, 1);
    return t;
}

static void prepare(bench *b)
{
    const wf_dim dims[] = {wf_dim_batch(b->gpu && !b->o->quick ? 64 : 16),
                           wf_dim_chunked(b->o->quick ? 16 : 1024),
                           wf_dim_width(b->o->quick ? 64 : 1024)};
    wf_tensor **big[] = {&b->x, &b->y, &b->m, &b->v};

    for (int i = 0; i < 4; i++)
        *big[i] = array(b, 3, dims, 1);
    b->gain = array(b, 1, &dims[2], 1);
    b->bias = array(b, 1, &dims[2], 1);
    b->mean = array(b, 2, dims, 0.1f);
    b->rstd = array(b, 2, dims, 1);
}

static void report_row(bench_report *report, const bench *b, const char *name, double bytes,
                       double seconds, double limit)
{
    double rate = bytes * 1e-9 / seconds;

    bench_row(report, (const bench_cell[]){bench_text("kernel", name),
                                           bench_number("threads", b->threads, 0),
                                           bench_number("mb", bytes * 1e-6, 2),
                                           bench_number("ms", seconds * 1e3, 3),
                                           bench_number("gb_per_s", rate, 2),
                                           bench_number("copy_gb_per_s", limit, 2),
                                           bench_number("of_copy", rate / limit, 3),
                                           {.name = NULL}});
}

static void run_race(bench_report *report, bench *b, bench_workers *workers)
{
    bench_entrant entrants[BENCH_STORES + OPS];
    bench_copy copies[BENCH_STORES];
    runner runners[OPS];
    size_t bytes = (size_t)wf_tensor_local_count(b->x) * sizeof(float);
    double limit = 0, size = (double)bytes;

    for (int i = 0; i < BENCH_STORES; i++) {
        copies[i] = (bench_copy){.workers = workers,
                                 .from = b->y->data,
                                 .to = b->m->data,
                                 .bytes = bytes,
                                 .store = (bench_store)i};
        entrants[i] = bench_copier(&copies[i]);
    }
    for (int i = 0; i < OPS; i++) {
        runners[i] = (runner){b, &ops[i]};
        entrants[BENCH_STORES + i] = (bench_entrant){.run = run_op, .arg = &runners[i]};
    }
    if (!bench_race(b->o, BENCH_STORES + OPS, entrants))
        return;
    for (int i = 0; i < BENCH_STORES; i++)
        limit = fmax(limit, 2e-9 * size / entrants[i].seconds);
    report_row(report, b, "copy", 2 * size, entrants[BENCH_STORE_PLAIN].seconds, limit);
    report_row(report, b, "copy_stream", 2 * size, entrants[BENCH_STORE_STREAM].seconds, limit);
    for (int i = 0; i < OPS; i++)
        report_row(report, b, ops[i].name, ops[i].arrays * size,
                   entrants[BENCH_STORES + i].seconds, limit);
}

static void run_device_race(bench_report *report, bench *b)
{
    bench_entrant entrants[1 + OPS] = {{.run = run_device_copy, .arg = b}};
    runner runners[OPS];
    double size = (double)wf_tensor_local_count(b->x) * sizeof(float), limit;

    for (int i = 0; i < OPS; i++) {
        runners[i] = (runner){b, &ops[i]};
        entrants[1 + i] = (bench_entrant){.run = run_op, .arg = &runners[i]};
    }
    if (!bench_race(b->o, 1 + OPS, entrants))
        return;
    limit = 2e-9 * size / entrants[0].seconds;
    report_row(report, b, "copy", 2 * size, entrants[0].seconds, limit);
    for (int i = 0; i < OPS; i++)
        report_row(report, b, ops[i].name, ops[i].arrays * size, entrants[1 + i].seconds,
                   limit);
}

static wf_status run_gpu(const bench_options *o, bench_report *report, wf_error *error)
{
    bench b = {.o = o, .ctx = bench_gpu_context(false, error), .threads = 1};

    if (!b.ctx)
        return error->code;
    b.gpu = wf_context_device(b.ctx);
    wf_scope_open(b.ctx);
    prepare(&b);
    if (wf_context_status(b.ctx) == WF_OK)
        run_device_race(report, &b);
    wf_scope_close(b.ctx);
    if (wf_context_status(b.ctx) != WF_OK)
        wf_error_set(error, wf_context_status(b.ctx), "%s", wf_context_error(b.ctx)->text);
    wf_context_close(b.ctx);
    return error->code;
}

static wf_status run_threads(const bench_options *o, bench_report *report, int threads,
                             wf_error *error)
{
    bench b = {.o = o, .ctx = bench_context(threads, error), .threads = threads};
    bench_workers *workers = b.ctx ? bench_workers_open(threads, error) : NULL;

    if (workers) {
        wf_scope_open(b.ctx);
        prepare(&b);
        if (wf_context_status(b.ctx) == WF_OK)
            run_race(report, &b, workers);
        wf_scope_close(b.ctx);
        if (wf_context_status(b.ctx) != WF_OK)
            wf_error_set(error, wf_context_status(b.ctx), "%s", wf_context_error(b.ctx)->text);
    }
    bench_workers_close(workers);
    wf_context_close(b.ctx);
    return error->code;
}

static wf_status run_memory(const bench_options *o, bench_report *report, wf_error *error)
{
    if (o->device && strcmp(o->device, "cuda") == 0)
        return run_gpu(o, report, error);
    if (o->device && strcmp(o->device, "cpu") != 0)
        return wf_error_set(error, WF_EINVAL, "there is no device %s: use cpu or cuda",
                            o->device);
    if (o->threads)
        return run_threads(o, report, (int)o->threads, error);
    if (run_threads(o, report, 1, error) == WF_OK && o->cores > 1)
        run_threads(o, report, o->cores, error);
    return error->code;
}

const bench_command bench_memory = {
    .name = "memory",
    .summary = "ops that are bound by memory, beside the fastest copy",
    .more =
        "Ops over 64 MiB arrays whose time is that of their memory. The limit is the faster\n"
        "of two copies, one as memcpy stores and one with non-temporal stores, by as many "
        "threads.\n"
        "Without --threads: one thread, then all cores. On a GPU the arrays have 256 MiB, and\n"
        "the limit is a copy within its memory.\n\n"
        "  bench memory --threads 2\n"
        "  bench memory --device cuda",
    .run = run_memory};
