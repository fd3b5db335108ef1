/*
 * tests/mesh/test_progress.c - what was begun progresses while its ranks compute, in the order
 * in which it was begun, and costs nothing where it is ended at once. The transport's link is
 * made slow, and sleeps, so that there is something to overlap with on any machine.
 *
 * ctest: builds address thread
 */
#include "mesh/transport/threads/world_internal.h"
#include "tests/mesh/ranks.h"
#include "tests/clock.h"

enum { FLOATS = 1 << 16, SPEED = 4 << 20, RANKS = 2 }; /* 256 KiB: 62 ms on one rank's link */

/* So much processor time: on a busy machine it takes as long as others' work does. */
static void compute(double seconds)
{
    double until = wf_test_clock(CLOCK_THREAD_CPUTIME_ID) + seconds;

    while (wf_test_clock(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
}

static bool has_thread(const wf_rank *rank)
{
    const threads_comm *c = (const threads_comm *)rank->world;

    return c->group->world->rank[rank->index].progress.started;
}

static float *new_input(const wf_rank *rank)
{
    float *x = malloc(FLOATS * sizeof *x);

    for (int i = 0; i < FLOATS; i++)
        x[i] = number(rank->index, 0, i);
    return x;
}

static wf_status check_sum(wf_rank *rank, const float *x)
{
    for (int i = 0; i < FLOATS; i++)
        NEED(same_bits(x[i], tree_of(0, rank->size, 0, i)));
    return WF_OK;
}

/* Measures the time of one all_reduce by itself, and that of its end after enough compute. */
static wf_status overlap(wf_rank *rank, void *arg)
{
    double *seconds = arg, start;
    float *x = new_input(rank), *y = malloc(FLOATS * sizeof *y);
    wf_comm_buffer buffer = {.in = x, .out = y, .count = FLOATS};
    wf_collective what = {.kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer};
    wf_pending *p;

    wf_comm_set_reduce(rank->world, &test_ops);
    if (rank->index == 0)
        wf_threads_limit(rank->world, SPEED);
    GOOD(wf_barrier(rank->world, &rank->error));
    start = wf_test_clock(CLOCK_MONOTONIC);
    GOOD(wf_collective_run(rank->world, &what, &rank->error));
    NEED(!has_thread(rank));
    if (rank->index == 0)
        seconds[0] = wf_test_clock(CLOCK_MONOTONIC) - start;
    GOOD(check_sum(rank, y));
    memset(y, 0, FLOATS * sizeof *y);
    GOOD(wf_barrier(rank->world, &rank->error));
    GOOD(wf_collective_begin(rank->world, &what, &p, &rank->error));
    NEED(has_thread(rank));
    compute(0.25);
    start = wf_test_clock(CLOCK_MONOTONIC);
    GOOD(wf_collective_end(p, &rank->error));
    if (rank->index == 0)
        seconds[1] = wf_test_clock(CLOCK_MONOTONIC) - start;
    GOOD(check_sum(rank, y));
    free(x);
    free(y);
    return WF_OK;
}

enum { TRIES = 5 }; /* a busy machine may hold one of them up, and not each */

static void overlaps(void)
{
    bool hidden = false;

    for (int i = 0; i < TRIES && !hidden; i++) {
        double seconds[2] = {0, 0};

        run_ranks(RANKS, overlap, seconds);
        printf("(%.1f ms alone, %.1f ms to wait for after compute) ", 1e3 * seconds[0],
               1e3 * seconds[1]);
        CU_ASSERT(seconds[0] > 0.02);
        hidden = seconds[1] < 0.3 * seconds[0];
    }
    CU_ASSERT(hidden);
}

/* The first of several is through while the last has hardly begun. */
static wf_status in_order(wf_rank *rank, void *arg)
{
    enum { FLIGHTS = 4 };
    double *seconds = arg, start;
    float *x = new_input(rank), *y[FLIGHTS];
    wf_pending *p[FLIGHTS];

    wf_comm_set_reduce(rank->world, &test_ops);
    if (rank->index == 0)
        wf_threads_limit(rank->world, SPEED);
    GOOD(wf_barrier(rank->world, &rank->error));
    for (int f = 0; f < FLIGHTS; f++) {
        y[f] = malloc(FLOATS * sizeof *y[f]);
        wf_comm_buffer buffer = {.in = x, .out = y[f], .count = FLOATS};
        wf_collective what = {.kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer};

        GOOD(wf_collective_begin(rank->world, &what, &p[f], &rank->error));
    }
    for (int f = 0; f < FLIGHTS; f++) {
        start = wf_test_clock(CLOCK_MONOTONIC);
        GOOD(wf_collective_end(p[f], &rank->error));
        if (rank->index == 0 && f == 0)
            seconds[0] = wf_test_clock(CLOCK_MONOTONIC) - start;
        if (rank->index == 0)
            seconds[1] += wf_test_clock(CLOCK_MONOTONIC) - start;
    }
    for (int f = 0; f < FLIGHTS; f++) { /* later: to check one would hide the next */
        GOOD(check_sum(rank, y[f]));
        free(y[f]);
    }
    free(x);
    return WF_OK;
}

static void in_the_order_begun(void)
{
    bool early = false;

    for (int i = 0; i < TRIES && !early; i++) {
        double seconds[2] = {0, 0};

        run_ranks(RANKS, in_order, seconds);
        early = seconds[0] < 0.6 * seconds[1];
    }
    CU_ASSERT(early);
}

/* A rank fails while its peer's thread is on the link with its buffers: it returns soon, and
   nobody touches the buffers after. */
static wf_status fail_on_the_way(wf_rank *rank, void *arg)
{
    float *x = new_input(rank);
    wf_comm_buffer buffer = {.in = x, .out = x, .count = FLOATS};
    wf_collective what = {.kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer};
    wf_status status = WF_OK;
    wf_pending *p;

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    if (rank->index == 0)
        wf_threads_limit(rank->world, 1 << 10); /* 256 s */
    GOOD(wf_barrier(rank->world, &rank->error));
    GOOD(wf_collective_begin(rank->world, &what, &p, &rank->error));
    compute(0.02);
    if (rank->index == 1) {
        status = wf_error_set(&rank->error, WF_EIO, "the disk is gone");
        wf_comm_abort(rank->world, &rank->error);
    }
    status = wf_collective_end(p, status == WF_OK ? &rank->error : NULL);
    memset(x, 0xff, FLOATS * sizeof *x);
    free(x);
    return status;
}

static void failure_on_the_way(void)
{
    wf_error error = {WF_OK, ""};
    double start = wf_test_clock(CLOCK_MONOTONIC);

    wf_launch(&(wf_launch_options){.ranks = 4}, fail_on_the_way, NULL, &error);
    CU_ASSERT_EQUAL(error.code, WF_EIO);
    CU_ASSERT(strstr(error.text, "the disk is gone") != NULL);
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start < 5);
}

enum { COUNT = 30000, REDUCED = 20000, KINDS = 5 };

static const wf_collective_kind kinds[KINDS] = {WF_ALL_REDUCE, WF_REDUCE_SCATTER, WF_ALL_GATHER,
                                                WF_ALL_TO_ALL, WF_BROADCAST};

/* Floats that a kind brings to a rank. */
static int64_t floats_of(wf_collective_kind kind, const int64_t *cuts, const wf_rank *rank)
{
    switch (kind) {
    case WF_REDUCE_SCATTER:
        return cuts[rank->index + 1] - cuts[rank->index];
    case WF_ALL_REDUCE:
        return REDUCED;
    case WF_BROADCAST:
        return rank->index ? REDUCED : 0;
    default:
        return cuts[rank->size];
    }
}

/* Every kind goes on in the background, with the bits that it has when it is run. */
static wf_status all_kinds(wf_rank *rank, void *arg)
{
    int64_t cuts[9];
    float *in = new_input(rank), *out[KINDS], *again = malloc(COUNT * sizeof *again);
    wf_pending *p[KINDS];

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    for (int i = 0; i <= rank->size; i++)
        cuts[i] = COUNT / rank->size * i;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < KINDS; k++) {
            wf_comm_buffer buffer = {
                .in = in, .count = REDUCED, .cuts = cuts, .out_cuts = cuts};
            wf_collective what = {kinds[k], .n_buffers = 1, .buffers = &buffer};

            if (pass == 0) {
                buffer.out = out[k] = calloc(COUNT, sizeof *out[k]);
                GOOD(wf_collective_begin(rank->world, &what, &p[k], &rank->error));
                continue;
            }
            buffer.out = again;
            GOOD(wf_collective_run(rank->world, &what, &rank->error));
            GOOD(wf_collective_end(p[k], &rank->error));
            NEED(memcmp(out[k], again,
                        (size_t)floats_of(kinds[k], cuts, rank) * sizeof *again) == 0);
            free(out[k]);
        }
    free(in);
    free(again);
    return WF_OK;
}

static void every_kind(void)
{
    for (int round = 0; round < 20; round++)
        run_ranks(8, all_kinds, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"compute hides the link", overlaps},
        {"in the order begun", in_the_order_begun},
        {"a failure on the way", failure_on_the_way},
        {"every kind", every_kind},
        {NULL, NULL},
    };

    return wf_test_main("progress", tests);
}
