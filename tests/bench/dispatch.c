/*
 * tests/bench/dispatch.c - bench dispatch: what an op costs beside its kernel, and what a
 * training step in steady state still asks of the system.
 *
 * The op has an empty kernel. Its floor is what no dispatch can go without: a handle taken and
 * given back, and a call through a pointer. The allocator's calls are counted by the linker's
 * --wrap (tests/allocations.c).
 */
#include "tests/allocations.h"
#include "tests/bench/models.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { BATCH = 64, MESH_RANKS = 4, WARM_STEPS = 3, STEPS = 5 };

static wf_status nothing(const wf_call *call, void *workspace)
{
    (void)call, (void)workspace;
    return WF_OK;
}

static void no_gradient(wf_gradient *g)
{
    (void)g;
}

static const wf_kernel empty = {.run = nothing};
static const wf_op op_of_four = {.name = "four",
                                 .signature = "...,...,...,...->...",
                                 .reference = {.run = nothing},
                                 .backward = no_gradient,
                                 .kernels = WF_KERNELS({"cpu", &empty})};

/* The setting in which an op is called and timed. */
typedef struct caller {
    const char *name;
    wf_context *ctx;
    const wf_layout *layout;
    bool tape;
    bool release; /* also closing the scope and the tape */
} caller;

static double run_batch(const caller *c, int64_t calls)
{
    const wf_dim dims[] = {wf_dim_batch(4), wf_dim_chunked(16)};
    wf_tensor *x[4];
    wf_tape *tape;
    double start, seconds;

    wf_scope_open(c->ctx);
    tape = c->tape ? wf_tape_open(c->ctx) : NULL;
    for (int i = 0; i < 4; i++) {
        x[i] = wf_tensor_new(c->ctx, WF_F32, 2, dims, c->layout, WF_MEMORY_ACTIVATION);
        x[i] = c->tape ? wf_leaf(x[i]) : x[i];
    }
    wf_scope_open(c->ctx);
    start = bench_now(1);
    for (int64_t i = 0; i < calls; i++)
        wf_apply(&op_of_four, NULL, 0, 4, x[0], x[1], x[2], x[3]);
    seconds = bench_now(1) - start;
    wf_scope_close(c->ctx);
    if (tape)
        wf_tape_close(tape);
    if (c->release)
        seconds = bench_now(1) - start;
    wf_scope_close(c->ctx);
    return wf_context_status(c->ctx) == WF_OK ? seconds : NAN;
}

static double run(void *arg, int64_t repeat)
{
    double seconds = 0;

    for (int64_t left = repeat; left > 0; left -= BATCH)
        seconds += run_batch(arg, left < BATCH ? left : BATCH);
    return seconds;
}

static double run_floor(void *arg, int64_t repeat)
{
    wf_status (*volatile kernel)(const wf_call *, void *) = nothing;
    double start = bench_now(1);

    (void)arg;
    for (int64_t i = 0; i < repeat; i++) {
        void *volatile handle = malloc(sizeof(wf_tensor));

        kernel(NULL, NULL);
        free(handle);
    }
    return bench_now(1) - start;
}

typedef struct job {
    const bench_options *o;
    bench_report *report;
} job;

static wf_status race_calls(const job *j, wf_context *alone, wf_context *meshed,
                            const wf_layout *layout)
{
    caller callers[] = {{"alone", alone, NULL, false, false},
                        {"alone, tape", alone, NULL, true, false},
                        {"mesh", meshed, layout, false, false},
                        {"mesh, tape", meshed, layout, true, false},
                        {"mesh, tape, all", meshed, layout, true, true}};
    enum { CALLERS = sizeof callers / sizeof *callers };
    bench_entrant entrants[CALLERS + 1];
    double floor;

    for (int i = 0; i < CALLERS; i++)
        entrants[i] = (bench_entrant){.run = run, .arg = &callers[i]};
    entrants[CALLERS] = (bench_entrant){.run = run_floor};
    if (!bench_race(j->o, CALLERS + 1, entrants))
        return WF_EINTERNAL;
    floor = entrants[CALLERS].seconds * 1e9;
    for (int i = 0; i < CALLERS; i++) {
        double ns = entrants[i].seconds * 1e9;

        bench_row(j->report, (const bench_cell[]){bench_text("op_of_four", callers[i].name),
                                                  bench_number("ns", ns, 1),
                                                  bench_number("floor_ns", floor, 1),
                                                  bench_number("times_floor", ns / floor, 1),
                                                  {.name = NULL}});
    }
    return WF_OK;
}

/* The first rank of a 2 x 2 mesh whose others do not run: ops never wait for them. */
static wf_status time_calls(wf_rank *rank, void *arg)
{
    const job *j = arg;
    wf_context *alone = bench_context(1, &rank->error);
    wf_context *meshed = alone ? bench_context(1, &rank->error) : NULL;
    wf_mesh *mesh = NULL;

    if (meshed)
        mesh = wf_mesh_open(meshed, rank->world, 2, (wf_axis[]){{"data", 2}, {"tensor", 2}},
                            &rank->error);
    if (mesh) {
        const wf_layout *rows = wf_layout_split(mesh, NULL, 0, 0);

        if (race_calls(j, alone, meshed, wf_layout_split(mesh, rows, 1, 1)) != WF_OK) {
            wf_error_set(&rank->error, wf_context_status(meshed), "%s",
                         wf_context_error(meshed)->text);
            wf_error_set(&rank->error, WF_EINTERNAL, "%s", wf_context_error(alone)->text);
        }
    }
    wf_mesh_close(mesh);
    wf_context_close(meshed);
    wf_context_close(alone);
    return rank->error.code;
}

/* A model that trains, and what its ranks have asked for. */
typedef struct training {
    const bench_model *model;
    wf_par_options options;
    int64_t steps;
    _Atomic int64_t blocks; /* pools took so many from the system, so far */
} training;

static wf_status open_rank(wf_rank *rank, void **own, void *arg)
{
    training *t = arg;

    *own = bench_trainee_open(rank, &t->options, t->model, NULL);
    return *own ? WF_OK : rank->error.code;
}

static wf_status step_rank(wf_rank *rank, void **own, void *arg)
{
    training *t = arg;
    bench_trainee *trainee = *own;
    wf_memory_report memory;
    float loss;

    for (int64_t i = 0; i < t->steps; i++) {
        if (bench_trainee_step(rank, trainee, t->model, &loss) != WF_OK)
            return rank->error.code;
    }
    wf_pool_report(wf_context_pool(wf_par_context(trainee->par)), &memory);
    t->blocks += memory.system_allocations;
    return WF_OK;
}

static wf_status close_rank(wf_rank *rank, void **own, void *arg)
{
    (void)rank, (void)arg;
    bench_trainee_close(*own);
    return WF_OK;
}

static _Atomic int64_t requests;

static bool count(allocation_kind kind, size_t bytes)
{
    (void)bytes;
    if (kind != ALLOCATION_MAP)
        atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed);
    return false;
}

static const allocation_watch counting = {count, NULL};

static int64_t page_faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static wf_status count_steps(bench_report *report, training *t, wf_error *error)
{
    int ranks = t->options.tp * t->options.dp;
    bench_world *world = bench_world_open(ranks, 1, error);
    int64_t blocks, mallocs, faults;
    char name[32];

    snprintf(name, sizeof name, "%dx%d", t->options.tp, t->options.dp);
    if (!world || bench_world_run(world, open_rank, t, error) != WF_OK)
        goto done;
    t->steps = WARM_STEPS;
    t->blocks = 0;
    if (bench_world_run(world, step_rank, t, error) != WF_OK)
        goto done;
    blocks = t->blocks;
    t->steps = STEPS;
    t->blocks = 0;
    faults = page_faults();
    mallocs = requests;
    allocations_watch(&counting);
    if (bench_world_run(world, step_rank, t, error) != WF_OK)
        goto done;
    mallocs = requests - mallocs;
    faults = page_faults() - faults;
    bench_row(report,
              (const bench_cell[]){
                  bench_text("model", t->model->name),
                  bench_text("layout", name),
                  bench_number("pool_blocks_a_step", (double)(t->blocks - blocks) / STEPS, 1),
                  bench_number("mallocs_a_step", (double)mallocs / STEPS, 1),
                  bench_number("page_faults_a_step", (double)faults / STEPS, 1),
                  {.name = NULL}});
    bench_world_run(world, close_rank, t, error);
done:
    bench_world_close(world);
    return error->code;
}

static wf_status run_dispatch(const bench_options *o, bench_report *report, wf_error *error)
{
    static const int layouts[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
    const char *name = o->model ? o->model : o->quick ? "tiny" : "small";
    const bench_model *model = bench_model_find(name, error);
    job j = {o, report};

    if (!model)
        return error->code;
    if (wf_launch(&(wf_launch_options){.ranks = MESH_RANKS, .transport = "fake"}, time_calls,
                  &j, error) != WF_OK)
        return error->code;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        training t = {.model = model,
                      .options = {.tp = layouts[i][0],
                                  .dp = layouts[i][1],
                                  .threads = o->threads ? (int)o->threads : 1,
                                  .seed = 1}};

        if (count_steps(report, &t, error) != WF_OK)
            return error->code;
    }
    return WF_OK;
}

const bench_command bench_dispatch = {
    .name = "dispatch",
    .summary = "the cost of an op beside its kernel; allocations of a training step",
    .more =
        "From call to return of an op with four operands and an empty kernel: on one rank\n"
        "and on a 2 x 2 mesh, without and with a tape; the last row also counts the end of\n"
        "scope and tape. The limit is a malloc, a free and a call through a pointer. Then\n"
        "what a training step in steady state asks of the system, over all ranks.\n\n"
        "  bench dispatch --model demo",
    .run = run_dispatch};
