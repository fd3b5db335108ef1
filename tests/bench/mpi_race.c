/*
 * tests/bench/mpi_race.c - bench comm --processes: Weft's collectives over MPI and MPI's own,
 * alternating, in the same processes, on the same memory.
 */
#include "tests/bench/mpi.h"
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, KINDS = 3, THREAD_MULTIPLE = 3 };

static const wf_collective_kind kinds[KINDS] = {WF_ALL_GATHER, WF_REDUCE_SCATTER,
                                                WF_ALL_REDUCE};

typedef struct race {
    bench_mpi_library mpi;
    const wf_reduce_ops *reduce;
    int n_sizes;
    const size_t *sizes;
} race;

/* The buffers of one size; `floats` of the whole tensor. */
typedef struct turn {
    float *in, *out;
    int64_t floats, *cuts;
} turn;

static wf_status by_weft(wf_rank *rank, wf_collective_kind kind, const turn *t)
{
    switch (kind) {
    case WF_ALL_GATHER:
        return wf_all_gather(rank->world, sizeof *t->in, t->in, t->out, t->cuts, &rank->error);
    case WF_REDUCE_SCATTER:
        return wf_reduce_scatter(rank->world, WF_REDUCE_SUM, t->in, t->out, t->cuts,
                                 &rank->error);
    default:
        return wf_all_reduce(rank->world, WF_REDUCE_SUM, t->in, t->out, t->floats,
                             &rank->error);
    }
}

static wf_status by_mpi(const race *r, const wf_rank *rank, wf_collective_kind kind,
                        const turn *t)
{
    const bench_mpi_library *m = &r->mpi;
    int part = (int)(t->floats / rank->size);

    switch (kind) {
    case WF_ALL_GATHER:
        m->all_gather(t->in, part, m->type, t->out, part, m->type, m->world);
        break;
    case WF_REDUCE_SCATTER:
        m->reduce_scatter(t->in, t->out, part, m->type, m->sum, m->world);
        break;
    default:
        m->all_reduce(t->in, t->out, (int)t->floats, m->type, m->sum, m->world);
    }
    return WF_OK;
}

/* Medians of the rounds: [0] Weft's, [1] MPI's. */
static wf_status race_kind(const race *r, wf_rank *rank, wf_collective_kind kind, const turn *t,
                           double *seconds)
{
    int64_t repeat = t->floats * 4 < 8 << 20 ? (8 << 20) / (t->floats * 4) : 1;
    double times[2][ROUNDS];

    repeat = repeat < 200 ? repeat : 200;
    for (int round = -1; round < ROUNDS; round++) /* the first one warms up */
        for (int who = 0; who < 2; who++) {
            wf_status status = WF_OK;
            double start;

            r->mpi.barrier(r->mpi.world);
            start = bench_now(0);
            for (int64_t i = 0; status == WF_OK && i < repeat; i++)
                status = who ? by_mpi(r, rank, kind, t) : by_weft(rank, kind, t);
            if (status != WF_OK)
                return status;
            times[who][round < 0 ? 0 : round] = (bench_now(0) - start) / (double)repeat;
        }
    for (int who = 0; who < 2; who++)
        seconds[who] = bench_median(times[who], ROUNDS);
    return WF_OK;
}

static wf_status race_sizes(const race *r, wf_rank *rank, turn *t)
{
    wf_status status = WF_OK;

    for (int s = 0; s < r->n_sizes; s++) {
        t->floats = (int64_t)(r->sizes[s] / sizeof *t->in) / rank->size * rank->size;
        for (int i = 0; i <= rank->size; i++)
            t->cuts[i] = t->floats / rank->size * i;
        for (int k = 0; status == WF_OK && k < KINDS; k++) {
            double seconds[2];

            status = race_kind(r, rank, kinds[k], t, seconds);
            if (status == WF_OK && rank->index == 0)
                printf("%s %zu %.9f %.9f\n", wf_collective_name(kinds[k]), r->sizes[s],
                       seconds[0], seconds[1]);
        }
        fflush(stdout);
    }
    return status;
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    const race *r = arg;
    turn t = {.cuts = calloc((size_t)rank->size + 1, sizeof *t.cuts)};
    size_t most = 0;
    wf_status status;

    for (int i = 0; i < r->n_sizes; i++)
        most = r->sizes[i] > most ? r->sizes[i] : most;
    wf_comm_set_reduce(rank->world, r->reduce);
    t.in = bench_memory_new(most, &rank->error);
    t.out = t.in ? bench_memory_new(most, &rank->error) : NULL;
    status = t.out && t.cuts ? race_sizes(r, rank, &t) : WF_ENOMEM;
    free(t.in);
    free(t.out);
    free(t.cuts);
    return status;
}

/* MPI is ours to initialise: two callers, Weft's and this one, need more than Weft asks for. */
wf_status bench_mpi_race_child(int n_sizes, const size_t *sizes, const wf_reduce_ops *reduce,
                               wf_error *error)
{
    race r = {.reduce = reduce, .n_sizes = n_sizes, .sizes = sizes};
    int size, level = 0;

    if (!bench_mpi_load(&r.mpi) || r.mpi.init(NULL, NULL, THREAD_MULTIPLE, &level) != 0 ||
        level != THREAD_MULTIPLE)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "libmpi.so.40 is not here, or serves one thread only");
    r.mpi.size(r.mpi.world, &size);
    if (wf_launch(&(wf_launch_options){.ranks = size, .launcher = "mpi"}, rank_main, &r,
                  error) == WF_OK)
        r.mpi.finalize();
    return error->code;
}

static void report_row(bench_report *report, const char *kind, int ranks, size_t bytes,
                       double weft, double mpi)
{
    bench_row(report, (const bench_cell[]){bench_text("collective", kind),
                                           bench_number("ranks", ranks, 0),
                                           bench_number("bytes", (double)bytes, 0),
                                           bench_number("us", weft * 1e6, 2),
                                           bench_number("openmpi_us", mpi * 1e6, 2),
                                           bench_number("times_faster", mpi / weft, 2),
                                           {.name = NULL}});
}

void bench_mpi_race(const bench_options *o, bench_report *report, int ranks, int n_sizes,
                    const size_t *sizes)
{
    char list[1024] = "", line[256];
    int found = 0;
    pid_t child = -1;
    FILE *output;

    for (int i = 0; i < n_sizes; i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof list - used, "%s%zu", i ? "," : "", sizes[i]);
    }
    output = bench_mpi_start(o, ranks, list, &child);
    while (output && fgets(line, sizeof line, output)) {
        char kind[32];
        double weft, mpi;
        size_t bytes;

        if (sscanf(line, "%31s %zu %lf %lf", kind, &bytes, &weft, &mpi) == 4) {
            report_row(report, kind, ranks, bytes, weft, mpi);
            found++;
        }
    }
    bench_mpi_end(report, output, child, ranks, found == KINDS * n_sizes);
}
