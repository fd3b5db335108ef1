/*
 * parallel/plan/calibrate.c - this machine's figures, measured: FLOP/s of products and of
 * attention and bytes/s of all other ops, at the sizes of the model, while all cores compute;
 * seconds of an op beside its kernel; collectives between threads.
 */
#include "parallel/plan/calibrate.h"
#include "core/dtype.h"
#include "core/trace.h"
#include "mesh/cluster/launch.h"
#include "mesh/cluster/topology.h"
#include "parallel/parallel_internal.h"
#include "parallel/simulate/paced.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPS = 1 << 16, WARM = 1, STEPS = 4, SMALL = 400, LARGE = 20, LARGE_FLOATS = 1 << 19 };

/* The ops of a step in their order: what each is made of. */
typedef struct watched {
    int64_t count;
    wf_sim_work work[OPS];
} watched;

/* Results of rank 0. */
typedef struct sums {
    double products, attention, elements;          /* FLOPs, FLOPs, bytes */
    double of_products, of_attention, of_elements; /* seconds */
    double best;                                   /* FLOP/s of the best kind of product */
    double beside, ops; /* seconds of steps that no kernel took; ops in them */
    double latency, bandwidth;
} sums;

typedef struct calibration {
    wf_par_job job; /* trained by the ranks */
    sums found;
} calibration;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An op takes what it takes; it is written down. */
static double look(const void *self, const struct wf_call *call)
{
    watched *w = (watched *)(uintptr_t)self; /* this rank's alone */

    if (w->count < OPS)
        w->work[w->count++] = wf_sim_work_of(call);
    return 0;
}

static double nothing(const void *self, const wf_pace_transfer *what, double *latency)
{
    (void)self;
    (void)what;
    *latency = 0;
    return 0;
}

/* Returns the bytes of a field of a sequence. */
static size_t field_bytes(const wf_par_field *f)
{
    size_t bytes = wf_dtype_size(f->dtype);

    for (int d = 0; d < WF_MAX_DIMS - 1 && f->dim[d].size; d++)
        bytes *= (size_t)f->dim[d].size;
    return bytes;
}

/* Reads zeros, which cost what other tokens cost; wf_par_data.read. */
static wf_status read_zeros(void *training, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    const wf_par_field *f = ((const wf_par_train_options *)training)->field;

    (void)step, (void)first, (void)error;
    for (int i = 0; i < WF_PAR_FIELDS && f[i].name; i++)
        memset(field[i], 0, (size_t)count * field_bytes(&f[i]));
    return WF_OK;
}

static void add_step(sums *s, const wf_trace *trace, const watched *w, double took)
{
    int64_t k = 0;

    for (int64_t i = 0; i < wf_trace_count(trace) && k < w->count; i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);
        const wf_sim_work *work = &w->work[k];
        double seconds = 1e-9 * (double)(e->end - e->start);

        if (e->kind != WF_TRACE_OP)
            continue;
        k++;
        took -= seconds;
        if (work->flops <= 0) {
            s->elements += work->bytes;
            s->of_elements += seconds;
        } else if (work->attention) {
            s->attention += work->flops;
            s->of_attention += seconds;
        } else {
            s->products += work->flops;
            s->of_products += seconds;
            s->best = work->flops / seconds > s->best ? work->flops / seconds : s->best;
        }
    }
    s->beside += took;
    s->ops += (double)k;
}

static wf_status measure_steps(wf_par *par, wf_nn_module *model, const wf_par_job *job,
                               watched *w, sums *found)
{
    wf_par_train_options options = job->train;
    wf_context *ctx = wf_par_context(par);
    const wf_par_data data = {.read = read_zeros, .self = &options};
    wf_error error = {WF_OK, ""};
    wf_par_trainer *trainer = wf_par_trainer_open(par, model, &options);

    for (int step = 1; step <= STEPS && wf_context_status(ctx) == WF_OK; step++) {
        wf_trace *trace = wf_trace_open(2 * OPS, &error);
        wf_par_step result;
        double start, compute;

        if (!trace)
            break;
        w->count = 0;
        wf_context_trace(ctx, trace);
        wf_par_step_begin(trainer, step);
        start = now();
        wf_par_forward_backward(trainer, &data);
        compute = now() - start;
        wf_context_trace(ctx, NULL);
        if (step > WARM)
            add_step(found, trace, w, compute);
        wf_par_reduce(trainer, &result.loss);
        wf_par_optimizer_step(trainer, 0);
        wf_trace_close(trace);
    }
    wf_par_trainer_close(trainer);
    return error.code != WF_OK ? wf_fail(ctx, error.code, "%s", error.text)
                               : wf_context_status(ctx);
}

static wf_status time_collective(wf_comm *world, const wf_collective *what, int times,
                                 double *seconds, wf_error *error)
{
    double start;

    for (int i = 0; i < times / 4 && error->code == WF_OK; i++)
        wf_collective_run(world, what, error);
    start = now();
    for (int i = 0; i < times && error->code == WF_OK; i++)
        wf_collective_run(world, what, error);
    *seconds = (now() - start) / times;
    return error->code;
}

static wf_status measure_links(const wf_rank *rank, sums *found, wf_error *error)
{
    int64_t cuts[WF_MAX_RANKS + 1], n = rank->size;
    float *memory = calloc(LARGE_FLOATS, sizeof *memory);
    wf_comm_buffer small = {.in = memory, .out = memory, .count = 1},
                   large = {.in = memory, .out = memory, .cuts = cuts};
    double few, many, steps = 0;

    if (!memory)
        return wf_error_set(error, WF_ENOMEM, "no memory to measure collectives");
    while (1 << (int)steps < n)
        steps++;
    for (int64_t i = 0; i <= n; i++)
        cuts[i] = i * LARGE_FLOATS / n;
    large.in = memory + cuts[rank->index];
    if (time_collective(
            rank->world,
            &(wf_collective){.kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &small}, SMALL,
            &few, error) == WF_OK &&
        time_collective(
            rank->world,
            &(wf_collective){.kind = WF_ALL_GATHER, .n_buffers = 1, .buffers = &large}, LARGE,
            &many, error) == WF_OK) {
        found->latency = few / 2 / steps;
        if (many > found->latency * steps) /* else something else ran meanwhile */
            many -= found->latency * steps;
        found->bandwidth = 4.0 * LARGE_FLOATS * (double)(n - 1) / (double)n / many;
    }
    free(memory);
    return error->code;
}

static wf_status calibrate_rank(wf_rank *rank, void *arg)
{
    calibration *c = arg;
    wf_par_options options = c->job.mesh;
    sums found = {.products = 0};
    wf_pace_machine eye = {.op = look, .transfer = nothing};
    watched *w = calloc(1, sizeof *w);
    wf_nn_module *model = NULL;
    wf_par *par;

    if (!w)
        return wf_error_set(&rank->error, WF_ENOMEM, "no memory to look at ops");
    eye.self = w;
    options.pace = &eye;
    par = wf_par_open(rank, &options, &rank->error);
    if (par)
        model = wf_par_job_model(par, &c->job);
    if (model) {
        wf_par_job_materialize(NULL, par, model);
        measure_steps(par, model, &c->job, w, &found);
        wf_nn_free(model);
    }
    if (par && wf_context_status(wf_par_context(par)) != WF_OK)
        rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    free(w);
    if (rank->error.code == WF_OK && rank->size > 1)
        measure_links(rank, &found, &rank->error);
    if (rank->index == 0)
        c->found = found;
    return rank->error.code;
}

static wf_sim_machine machine_of(const calibration *c, int cores)
{
    const sums *s = &c->found;
    wf_dtype compute = c->job.mesh.compute_fp32 ? WF_F32 : c->job.mesh.dtype;
    double each = s->beside / s->ops;
    wf_sim_machine m = {.memory = (double)sysconf(_SC_PHYS_PAGES) *
                                  (double)sysconf(_SC_PAGESIZE) / cores,
                        .rate = {[WF_BF16] = s->best},
                        .products = s->products / s->of_products / s->best,
                        .attention = s->attention / s->of_attention / s->best,
                        .bandwidth = s->elements / s->of_elements,
                        .launch = each > 0 ? each : 0,
                        .devices = cores,
                        .cores = cores,
                        .inside = {s->bandwidth, s->latency}};

    m.rate[compute] = s->best;
    m.attention = m.attention < 1e-3 ? 1e-3 : m.attention > 1 ? 1 : m.attention;
    if (cores == 1) /* no peer */
        m.inside = (wf_sim_link){m.bandwidth, m.launch};
    m.network = m.inside;
    snprintf(m.name, sizeof m.name, "this machine: %d core%s, %s", cores, cores > 1 ? "s" : "",
             wf_dtype_word(compute));
    return m;
}

wf_status wf_plan_calibrate(const wf_par_job *job, wf_sim_machine *machine, wf_error *error)
{
    calibration c = {.job = *job};
    wf_par_options *mesh = &c.job.mesh;
    wf_topology here;
    int64_t micro = job->train.micro_batch ? job->train.micro_batch : 1;
    int cores;

    if (wf_topology_read(NULL, &here, error) != WF_OK)
        return error->code;
    cores = here.cores < WF_MAX_RANKS ? here.cores : WF_MAX_RANKS;
    wf_par_options_leave_axes(mesh);
    mesh->dp = cores;
    mesh->strategy = "no_shard";
    mesh->accumulate = WF_PAR_LOCAL;
    mesh->accumulate_group = 0;
    mesh->threads = 1;
    mesh->device = "cpu";
    c.job.train.micro_batch = micro;
    c.job.train.global_batch = 2 * cores * micro;
    if (wf_launch(&(wf_launch_options){.ranks = cores, .transport = "threads", .threads = 1},
                  calibrate_rank, &c, error) == WF_OK)
        *machine = machine_of(&c, cores);
    return error->code;
}
