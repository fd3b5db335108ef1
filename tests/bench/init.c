/*
 * tests/bench/init.c - bench init: the speed of initialisation beside that of a plain fill, and the
 * time to build a model (on the fake device) and to make it real.
 */
#include "tests/bench/models.h"
#include <math.h>
#include <string.h>

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    wf_error *error;
    int threads;
    wf_context *ctx;
    wf_tensor *t;
    bench_workers *workers;
    double normal; /* bytes a second of init_normal */
    /* models */
    wf_par *par;
    wf_nn_gpt_config config;
    bool real;
    int64_t bytes; /* what the model's parameters take */
} bench;

static void init_fill(wf_tensor *t)
{
    wf_init_fill(t, 1);
}

static void init_normal(wf_tensor *t)
{
    wf_init_normal(t, 0, 0.02f, 1);
}

static void init_uniform(wf_tensor *t)
{
    wf_init_uniform(t, -1, 1, 1);
}

static void init_truncated(wf_tensor *t)
{
    wf_init_truncated(t, 0, 0.02f, -0.04f, 0.04f, 1);
}

typedef struct runner {
    bench *b;
    void (*init)(wf_tensor *t);
    int64_t repeat;
} runner;

static double run_init(void *arg, int64_t repeat)
{
    const runner *r = arg;
    double start = bench_now(r->b->threads);

    for (int64_t i = 0; i < repeat; i++)
        r->init(r->b->t);
    return wf_context_status(r->b->ctx) == WF_OK ? bench_now(r->b->threads) - start : NAN;
}

static void fill_part(void *arg, int index)
{
    const runner *r = arg;
    int64_t n = wf_tensor_local_count(r->b->t), members = bench_workers_size(r->b->workers);
    int64_t begin = n * index / members, end = n * (index + 1) / members;
    float *x = r->b->t->data;

    for (int64_t i = 0; i < r->repeat; i++) {
        memset(x + begin, 0, (size_t)(end - begin) * sizeof *x);
        __asm__ volatile("" ::: "memory");
    }
}

static double run_memset(void *arg, int64_t repeat)
{
    runner *r = arg;

    r->repeat = repeat;
    return bench_workers_run(r->b->workers, fill_part, r);
}

static const struct {
    const char *name;
    void (*init)(wf_tensor *t); /* NULL: memset */
} inits[] = {{"memset", NULL},
             {"init_fill", init_fill},
             {"init_uniform", init_uniform},
             {"init_normal", init_normal},
             {"init_truncated", init_truncated}};

enum { INITS = sizeof inits / sizeof *inits, NORMAL = 3 };

static void race_inits(bench *b)
{
    runner runners[INITS];
    bench_entrant entrants[INITS];
    double bytes = (double)wf_tensor_local_count(b->t) * sizeof(float), limit;

    for (int i = 0; i < INITS; i++) {
        runners[i] = (runner){b, inits[i].init, 1};
        entrants[i] =
            (bench_entrant){.run = inits[i].init ? run_init : run_memset, .arg = &runners[i]};
    }
    if (!bench_race(b->o, INITS, entrants))
        return;
    limit = bytes * 1e-9 / entrants[0].seconds;
    b->normal = bytes / entrants[NORMAL].seconds;
    for (int i = 0; i < INITS; i++) {
        double rate = bytes * 1e-9 / entrants[i].seconds;

        bench_row(b->report, (const bench_cell[]){bench_text("init", inits[i].name),
                                                  bench_number("threads", b->threads, 0),
                                                  bench_number("mb", bytes * 1e-6, 2),
                                                  bench_number("gb_per_s", rate, 2),
                                                  bench_number("memset_gb_per_s", limit, 2),
                                                  bench_number("of_memset", rate / limit, 3),
                                                  {.name = NULL}});
    }
}

static wf_status run_inits(bench *b)
{
    const wf_dim dims[] = {wf_dim_chunked(b->o->quick ? 1 << 7 : 1 << 13),
                           wf_dim_width(1 << 11)};

    b->ctx = bench_context(b->threads, b->error);
    b->workers = b->ctx ? bench_workers_open(b->threads, b->error) : NULL;
    if (b->workers) {
        wf_scope_open(b->ctx);
        b->t = wf_tensor_new(b->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_PARAMETER);
        init_fill(b->t); /* so that its pages are there */
        if (wf_context_status(b->ctx) == WF_OK)
            race_inits(b);
        wf_scope_close(b->ctx);
        if (wf_context_status(b->ctx) != WF_OK)
            wf_error_set(b->error, wf_context_status(b->ctx), "%s",
                         wf_context_error(b->ctx)->text);
    }
    bench_workers_close(b->workers);
    wf_context_close(b->ctx);
    return b->error->code;
}

static bool build(bench *b)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(b->par), &b->config);
    bool good = model && wf_par_plan(b->par, &model->base, wf_par_gpt_plan) == WF_OK;
    wf_memory_report memory;

    if (good && b->real) {
        good = wf_par_materialize(b->par, &model->base) == WF_OK;
        wf_pool_report(wf_context_pool(wf_par_context(b->par)), &memory);
        b->bytes = (int64_t)memory.now[WF_MEMORY_PARAMETER];
    }
    if (model)
        wf_nn_free(&model->base);
    return good;
}

static double run_build(void *arg, int64_t repeat)
{
    bench *b = arg;
    double start = bench_now(b->threads);

    for (int64_t i = 0; i < repeat; i++) {
        if (!build(b))
            return NAN;
    }
    return bench_now(b->threads) - start;
}

static wf_status time_model(bench *b, const char *name, wf_nn_gpt_config config, bool real)
{
    bench_entrant entrant = {.run = run_build, .arg = b};
    wf_context *ctx = wf_par_context(b->par);
    double least;

    b->config = config;
    b->real = real;
    b->bytes = 0;
    if (!bench_race(b->o, 1, &entrant))
        return wf_error_set(b->error, wf_context_status(ctx), "%s",
                            wf_context_error(ctx)->text);
    least = real ? (double)b->bytes / b->normal : NAN;
    bench_row(b->report,
              (const bench_cell[]){bench_text("model", name),
                                   bench_text("what", real ? "build and fill" : "build"),
                                   bench_number("mb", real ? (double)b->bytes * 1e-6 : NAN, 1),
                                   bench_number("ms", entrant.seconds * 1e3, 3),
                                   bench_number("normal_ms", least * 1e3, 3),
                                   bench_number("of_normal", least / entrant.seconds, 3),
                                   {.name = NULL}});
    return WF_OK;
}

/* Models that are built only: Llama 70B, and GPT-2 made a trillion parameters large. */
static const wf_nn_gpt_config llama_70b = {.vocabulary = 128256,
                                           .positions = 8192,
                                           .layers = 80,
                                           .heads = 64,
                                           .kv_heads = 8,
                                           .width = 8192,
                                           .ffn = 28672};
static const wf_nn_gpt_config gpt_1t = {WF_NN_GPT2,     .vocabulary = 51200, .positions = 2048,
                                        .layers = 128,  .heads = 160,        .kv_heads = 160,
                                        .width = 25600, .ffn = 102400};

static wf_status time_models(wf_rank *rank, void *arg)
{
    bench *b = arg;
    const char *name = b->o->model ? b->o->model : b->o->quick ? "tiny" : "gpt2-1024";
    const bench_model *model = bench_model_find(name, b->error);
    wf_nn_gpt_config config;

    if (!model)
        return wf_error_set(&rank->error, b->error->code, "%s", b->error->text);
    config = model->config;
    config.kv_heads = config.heads;
    b->par = wf_par_open(rank, &(wf_par_options){.threads = b->threads, .seed = 1}, b->error);
    if (b->par && time_model(b, name, config, false) == WF_OK &&
        time_model(b, name, config, true) == WF_OK &&
        time_model(b, "llama 70B", llama_70b, false) == WF_OK)
        time_model(b, "gpt 1T", gpt_1t, false);
    wf_par_close(b->par);
    b->par = NULL;
    return b->error->code == WF_OK
               ? WF_OK
               : wf_error_set(&rank->error, b->error->code, "%s", b->error->text);
}

static wf_status run_init_bench(const bench_options *o, bench_report *report, wf_error *error)
{
    wf_error ending = {WF_OK, ""};
    bench b = {.o = o, .report = report, .error = error};

    b.threads = o->threads ? (int)o->threads : 1;
    if (!o->threads && o->cores > 1 && run_inits(&b) == WF_OK)
        b.threads = o->cores;
    if (error->code == WF_OK && run_inits(&b) == WF_OK)
        wf_launch(&(wf_launch_options){.ranks = 1}, time_models, &b, &ending);
    return error->code;
}

const bench_command bench_init = {
    .name = "init",
    .summary = "initialisation, beside memset; building models",
    .more =
        "Random and constant parameters, 64 MiB, beside memset by as many threads (without\n"
        "--threads: one, then all cores). Then the time to build a model on the fake device,\n"
        "with its plan, and to fill its parameters too, beside the time that init_normal\n"
        "takes for as many bytes.\n\n"
        "  bench init --model small --threads 1",
    .run = run_init_bench};
