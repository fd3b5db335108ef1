/*
 * tests/bench/comm.c - bench comm: collectives between threads, beside what the copies that
 * they cannot do without would take, and beside OpenMPI's all-reduce.
 *
 * The limit. With N ranks and S bytes of the whole tensor, what has to be read and written, and
 * the copy by all cores that takes as long. Ranks reach each other's memory, so an input is
 * read once and a result written once, and nothing is stored on the way:
 *
 *     all_reduce       N inputs, N results            each input to an output
 *     all_gather       the parts of one, N results    one input to each output
 *     reduce_scatter   N inputs, the parts of one     that of all_reduce, times (N + 1) / 2 N
 *
 * The copy is the faster of plain stores and non-temporal stores, in the same memory and the
 * same race. It is strict for small sizes: a core copies what its own cache still holds from
 * the round before and waits for no other, where ranks must wait for each other, by sleep and
 * wake when there are more of them than cores. It is lax for all_gather of large sizes, which
 * reads its input from memory once per output; a ratio above 1 there is no error. What small
 * ones are to be held against is a hand-over between two cores (handover.c), as ranks wait:
 * `handovers` is how many of them a collective takes.
 */
#include "tests/bench/mpi.h"
#include "kernels/cpu/simd_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORLDS = 8, SIZES = 16, KINDS = 3 };

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    wf_error *error;
    wf_reduce_ops reduce;
    int n_worlds, n_sizes;
    int worlds[WORLDS];
    size_t sizes[SIZES], most;
    /* The world that is measured */
    bench_world *world;
    bench_workers *workers;
    int ranks;
    float **in, **out; /* [ranks] */
    size_t bytes;
    int64_t *cuts; /* [ranks + 1] of the floats */
} bench;

/* A collective that is repeated; seconds as rank 0 sees it. */
typedef struct runner {
    bench *b;
    wf_collective_kind kind;
    bench_store store;
    bool spread; /* copy one input to all outputs */
    int64_t repeat;
    double seconds;
} runner;

static wf_status collective(const runner *r, wf_rank *rank)
{
    const bench *b = r->b;
    int i = rank->index;
    float *in = b->in[i], *out = b->out[i];

    switch (r->kind) {
    case WF_ALL_GATHER:
        return wf_all_gather(rank->world, sizeof *in, in, out, b->cuts, &rank->error);
    case WF_REDUCE_SCATTER:
        return wf_reduce_scatter(rank->world, WF_REDUCE_SUM, in, out, b->cuts, &rank->error);
    default:
        return wf_all_reduce(rank->world, WF_REDUCE_SUM, in, out, b->cuts[b->ranks],
                             &rank->error);
    }
}

static wf_status run_rank(wf_rank *rank, void **own, void *arg)
{
    runner *r = arg;
    double start;

    (void)own;
    if (wf_barrier(rank->world, &rank->error) != WF_OK)
        return rank->error.code;
    start = bench_now(0);
    for (int64_t i = 0; i < r->repeat; i++) {
        if (collective(r, rank) != WF_OK)
            return rank->error.code;
    }
    if (wf_barrier(rank->world, &rank->error) != WF_OK)
        return rank->error.code;
    if (rank->index == 0)
        r->seconds = bench_now(0) - start;
    return WF_OK;
}

static double run(void *arg, int64_t repeat)
{
    runner *r = arg;

    r->repeat = repeat;
    return bench_world_run(r->b->world, run_rank, r, r->b->error) == WF_OK ? r->seconds : NAN;
}

static void copy_part(void *arg, int index)
{
    const runner *r = arg;
    const bench *b = r->b;
    size_t members = (size_t)bench_workers_size(b->workers), lines = b->bytes / 64;
    size_t begin = lines * (size_t)index / members * 64;
    size_t end = lines * ((size_t)index + 1) / members * 64;

    for (int64_t i = 0; i < r->repeat; i++) {
        for (int rank = 0; rank < b->ranks; rank++)
            bench_copy_bytes(r->store, (char *)b->out[rank] + begin,
                             (const char *)b->in[r->spread ? 0 : rank] + begin, end - begin);
    }
}

static double run_copy(void *arg, int64_t repeat)
{
    runner *r = arg;

    r->repeat = repeat;
    return bench_workers_run(r->b->workers, copy_part, r);
}

/* A rank's own memory, which it touches first. */
static wf_status open_rank(wf_rank *rank, void **own, void *arg)
{
    bench *b = arg;

    (void)own;
    wf_comm_set_reduce(rank->world, &b->reduce);
    b->in[rank->index] = bench_memory_new(b->most, &rank->error);
    b->out[rank->index] = bench_memory_new(b->most, &rank->error);
    return rank->error.code;
}

/* The least time of a collective, from those of the copies: see above. */
static double least_time(const bench *b, wf_collective_kind kind, const bench_entrant *copies)
{
    const bench_entrant *spread = copies + BENCH_STORES;
    double each = fmin(copies[BENCH_STORE_PLAIN].seconds, copies[BENCH_STORE_STREAM].seconds);

    switch (kind) {
    case WF_ALL_GATHER:
        return fmin(spread[BENCH_STORE_PLAIN].seconds, spread[BENCH_STORE_STREAM].seconds);
    case WF_REDUCE_SCATTER:
        return each * (b->ranks + 1) / (2 * b->ranks);
    default:
        return each;
    }
}

static void report_collective(const bench *b, wf_collective_kind kind, double seconds,
                              double least, double handover, double peer)
{
    bench_row(b->report,
              (const bench_cell[]){bench_text("collective", wf_collective_name(kind)),
                                   bench_number("ranks", b->ranks, 0),
                                   bench_number("bytes", (double)b->bytes, 0),
                                   bench_number("us", seconds * 1e6, 2),
                                   bench_number("copy_us", least * 1e6, 2),
                                   bench_number("of_copy", least / seconds, 3),
                                   bench_number("handover_us", handover * 1e6, 2),
                                   bench_number("handovers", seconds / handover, 1),
                                   bench_number("openmpi_us", peer * 1e6, 2),
                                   bench_number("times_faster", peer / seconds, 2),
                                   {.name = NULL}});
}

static wf_status race_size(bench *b, size_t bytes, double mpi)
{
    static const wf_collective_kind kinds[KINDS] = {WF_ALL_REDUCE, WF_ALL_GATHER,
                                                    WF_REDUCE_SCATTER};
    enum { COUNT = KINDS + 2 * BENCH_STORES };
    runner runners[COUNT];
    bench_entrant entrants[COUNT + 1];
    bench_handover word = {.workers = b->workers, .sleeps = b->ranks > b->o->cores};
    bool hands = bench_workers_size(b->workers) > 1;
    int64_t floats = (int64_t)(bytes / sizeof(float));

    b->bytes = bytes;
    for (int i = 0; i <= b->ranks; i++)
        b->cuts[i] = floats * i / b->ranks;
    for (int i = 0; i < COUNT; i++) {
        int copy = i - KINDS;

        runners[i] = copy < 0 ? (runner){.b = b, .kind = kinds[i]}
                              : (runner){.b = b,
                                         .store = (bench_store)(copy % BENCH_STORES),
                                         .spread = copy >= BENCH_STORES};
        entrants[i] = (bench_entrant){.run = copy < 0 ? run : run_copy, .arg = &runners[i]};
    }
    entrants[COUNT] = bench_gather_to_one(&word);
    if (!bench_race(b->o, hands ? COUNT + 1 : COUNT, entrants))
        return wf_error_set(b->error, WF_EINTERNAL, "a collective failed");
    for (int i = 0; i < KINDS; i++)
        report_collective(
            b, kinds[i], entrants[i].seconds, least_time(b, kinds[i], entrants + KINDS),
            hands ? entrants[COUNT].seconds : NAN, kinds[i] == WF_ALL_REDUCE ? mpi : NAN);
    return WF_OK;
}

/* Sizes whose buffers would take more than half of the free memory are left out. */
static int sizes_that_fit(const bench *b, int ranks)
{
    double free_bytes = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    int n = 0;

    while (n < b->n_sizes && 2.0 * ranks * (double)b->sizes[n] <= free_bytes / 2)
        n++;
    if (n < b->n_sizes)
        bench_note(b->report, "%d ranks: %zu bytes and more do not fit in memory", ranks,
                   b->sizes[n]);
    return n;
}

static wf_status run_world(bench *b, int ranks)
{
    int n_sizes = sizes_that_fit(b, ranks);
    double mpi[SIZES];

    if (n_sizes == 0)
        return WF_OK;
    bench_mpi(b->o, b->report, ranks, n_sizes, b->sizes, mpi);
    b->ranks = ranks;
    b->most = b->sizes[n_sizes - 1];
    b->in = calloc((size_t)ranks, sizeof *b->in);
    b->out = calloc((size_t)ranks, sizeof *b->out);
    b->cuts = calloc((size_t)ranks + 1, sizeof *b->cuts);
    b->world = b->in && b->out && b->cuts ? bench_world_open(ranks, 1, b->error) : NULL;
    b->workers = b->world ? bench_workers_open(b->o->cores, b->error) : NULL;
    if (!b->workers)
        wf_error_set(b->error, WF_ENOMEM, "no memory for %d ranks", ranks);
    else if (bench_world_run(b->world, open_rank, b, b->error) == WF_OK)
        for (int i = 0; i < n_sizes && b->error->code == WF_OK; i++)
            race_size(b, b->sizes[i], mpi[i]);
    bench_workers_close(b->workers);
    bench_world_close(b->world);
    for (int i = 0; i < ranks && b->in && b->out; i++) {
        free(b->in[i]);
        free(b->out[i]);
    }
    free(b->in);
    free(b->out);
    free(b->cuts);
    return b->error->code;
}

static int compare(const void *x, const void *y)
{
    size_t a = *(const size_t *)x, b = *(const size_t *)y;

    return (a > b) - (a < b);
}

static wf_status list_sizes(bench *b)
{
    const char *list = b->o->sizes   ? b->o->sizes
                       : b->o->quick ? "4K,64K"
                                     : "4K,16K,64K,256K,1M,4M,16M,64M";
    char word[32];

    while (bench_next_word(&list, word, sizeof word)) {
        char unit = '\0', more;
        long long number;
        int n = sscanf(word, "%lld%c%c", &number, &unit, &more);

        if (b->n_sizes == SIZES)
            return wf_error_set(b->error, WF_EINVAL, "more than %d sizes", SIZES);
        if (n < 1 || n > 2 || (n == 2 && unit != 'K' && unit != 'M') || number < 1 ||
            number > 1 << 30)
            return wf_error_set(b->error, WF_EINVAL, "size %s is not like 64K or 4M", word);
        number <<= n == 1 ? 0 : unit == 'K' ? 10 : 20;
        if (number % 64 || number > (int64_t)1 << 30)
            return wf_error_set(b->error, WF_EINVAL,
                                "size %s is not a multiple of 64, 1024M at most", word);
        b->sizes[b->n_sizes++] = (size_t)number;
    }
    qsort(b->sizes, (size_t)b->n_sizes, sizeof *b->sizes, compare);
    return WF_OK;
}

static wf_status list_worlds(bench *b)
{
    const char *list = b->o->ranks ? b->o->ranks : b->o->quick ? "2,3" : "2,4,8,32";
    char word[32], more;

    while (bench_next_word(&list, word, sizeof word)) {
        int ranks;

        if (b->n_worlds == WORLDS)
            return wf_error_set(b->error, WF_EINVAL, "more than %d numbers of ranks", WORLDS);
        if (sscanf(word, "%d%c", &ranks, &more) != 1 || ranks < 2 || ranks > WF_MAX_RANKS)
            return wf_error_set(b->error, WF_EINVAL, "%s ranks: 2 to %d", word, WF_MAX_RANKS);
        b->worlds[b->n_worlds++] = ranks;
    }
    return WF_OK;
}

static wf_status run_comm(const bench_options *o, bench_report *report, wf_error *error)
{
    bench b = {.o = o, .report = report, .error = error};
    const char *why = "";
    const wf_simd *simd = wf_cpu_simd(&why);

    if (!simd)
        return wf_error_set(error, WF_EINVAL, "%s", why);
    b.reduce = (wf_reduce_ops){.sum = simd->sum,
                               .maximum = simd->maximum,
                               .sum_to_all = simd->sum_to_all,
                               .stream = simd->copy_non_temporal};
    if (list_sizes(&b) != WF_OK || list_worlds(&b) != WF_OK)
        return error->code;
    if (o->mpi_child && o->processes)
        return bench_mpi_race_child(b.n_sizes, b.sizes, &b.reduce, error);
    if (o->mpi_child)
        return bench_mpi_child(b.n_sizes, b.sizes, error);
    for (int i = 0; i < b.n_worlds && error->code == WF_OK; i++)
        if (o->processes)
            bench_mpi_race(o, report, b.worlds[i], b.n_sizes, b.sizes);
        else
            run_world(&b, b.worlds[i]);
    return error->code;
}

const bench_command bench_comm = {
    .name = "comm",
    .summary = "collectives between threads, beside copies and OpenMPI",
    .more =
        "All-reduce, all-gather and reduce-scatter between ranks that are threads. The limit\n"
        "is the time of the copies that they cannot do without, by all cores, in the same\n"
        "memory; small ones stand beside a hand-over between two cores, by sleep and wake "
        "where\n"
        "there are more ranks than cores. The peer is OpenMPI's all-reduce, where mpirun is "
        "installed; its processes\n"
        "run before Weft's turn. With --processes, Weft's ranks are processes too, and both\n"
        "take turns over the same ones; Weft's sums are trees, MPI's are not.\n\n"
        "  bench comm --ranks 2,8 --sizes 64K,1M,16M",
    .run = run_comm};
