/*
 * tests/hosts/mpi_ranks.c - mpi_ranks RANKS CASE...: what goes wrong, and what is large,
 * between ranks in several processes; started by mpirun from test_mpi.sh, which knows what each
 * case has to say. Each case is a world of its own, one after the other: none may spoil the
 * next.
 *
 * Each rank prints "CASE: rank 1: status 5: text" of what it met, each process "CASE: process
 * 0: status 5 (here) in 0.1 s: text" of its launch; the exit status is that of the last case.
 */
#include "mesh/cluster/launch.h"
#include "mesh/transport/launcher.h"
#include "tests/clock.h"
#include "tests/mesh/ranks.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

typedef wf_status rank_case(wf_rank *rank);

static wf_status differ(wf_rank *rank)
{
    float in[64] = {0}, out[64];

    return rank->index == 1
               ? wf_barrier(rank->world, &rank->error)
               : wf_all_reduce(rank->world, WF_REDUCE_SUM, in, out, 10, &rank->error);
}

/* Too large for a head: none of it may move. */
static wf_status differ_large(wf_rank *rank)
{
    enum { MOST = 1 << 20 };
    float *buffer = calloc(2 * MOST, sizeof *buffer);
    wf_status status = wf_all_reduce(rank->world, WF_REDUCE_SUM, buffer, buffer + MOST,
                                     MOST - 5 * (rank->index == 1), &rank->error);

    free(buffer);
    return status;
}

static wf_status differ_blocks(wf_rank *rank)
{
    int64_t cuts[65], out_cuts[65];
    float in[512] = {0}, out[512];

    for (int i = 0; i <= rank->size; i++) {
        cuts[i] = 4 * i + (rank->index == 1 && i == 1);
        out_cuts[i] = 4 * i;
    }
    return wf_all_to_all(rank->world, 4, in, cuts, out, out_cuts, &rank->error);
}

static wf_status differ_message(wf_rank *rank)
{
    float buffer[16] = {0};

    if (rank->index == 0)
        return wf_send(rank->world, 4, rank->size - 1, buffer, 16, &rank->error);
    if (rank->index == rank->size - 1)
        return wf_recv(rank->world, 4, 0, buffer, 15, &rank->error);
    return wf_barrier(rank->world, &rank->error);
}

/* All say that they are in a group with rank 0; it says so of the last one only. */
static wf_status differ_split(wf_rank *rank)
{
    int pair[2] = {0, rank->size - 1}, all[64];
    wf_comm *group;
    wf_status status;

    for (int i = 0; i < rank->size; i++)
        all[i] = i;
    status = rank->index
                 ? wf_comm_split(rank->world, "all", all, rank->size, &group, &rank->error)
                 : wf_comm_split(rank->world, "pair", pair, 2, &group, &rank->error);
    if (status != WF_OK)
        return status;
    status = wf_barrier(group, &rank->error);
    wf_comm_close(group);
    return status;
}

static wf_status fail(wf_rank *rank)
{
    if (rank->index == 1)
        return wf_error_set(&rank->error, WF_EIO, "the disk is full");
    return wf_barrier(rank->world, &rank->error);
}

/* While others send it much that it never takes. */
static wf_status fail_in_flight(wf_rank *rank)
{
    enum { MOST = 4 << 20 };
    float *buffer = calloc(MOST, sizeof *buffer);
    wf_collective what = {.kind = WF_ALL_REDUCE,
                          .n_buffers = 1,
                          .buffers =
                              &(wf_comm_buffer){.in = buffer, .out = buffer, .count = MOST}};
    wf_pending *p;
    wf_status status = wf_collective_begin(rank->world, &what, &p, &rank->error);

    if (status == WF_OK && rank->index == 1)
        status = wf_error_set(&rank->error, WF_EIO, "the disk is full");
    if (status == WF_OK)
        status = wf_collective_end(p, &rank->error);
    else
        wf_comm_abort(rank->world, &rank->error);
    free(buffer);
    return status;
}

static wf_status leave(wf_rank *rank)
{
    return rank->index == 1 ? WF_OK : wf_barrier(rank->world, &rank->error);
}

static wf_status die(wf_rank *rank)
{
    enum { MOST = 1 << 20 };
    float *buffer = calloc(MOST, sizeof *buffer);
    wf_status status = WF_OK;

    for (int i = 0; status == WF_OK; i++) {
        status = wf_all_reduce(rank->world, WF_REDUCE_SUM, buffer, buffer, MOST, &rank->error);
        if (i == 5 && rank->index == 1)
            kill(getpid(), SIGKILL);
    }
    free(buffer);
    return status;
}

/* More than one message holds: rank 0's part is the larger one. Every 4,099th byte is looked
   at. */
static wf_status gather_bytes(wf_rank *rank, int64_t large)
{
    int64_t cuts[65] = {0};
    unsigned char *all;
    wf_status status;

    for (int i = 0; i < rank->size; i++)
        cuts[i + 1] = cuts[i] + (i == 0 ? large : 1000003 * i);
    all = malloc((size_t)cuts[rank->size]);
    if (!all)
        return wf_error_set(&rank->error, WF_ENOMEM, "no memory");
    for (int64_t i = cuts[rank->index]; i < cuts[rank->index + 1]; i++)
        all[i] = (unsigned char)(i * 2654435761 >> 13);
    status = wf_all_gather(rank->world, 1, all + cuts[rank->index], all, cuts, &rank->error);
    for (int64_t i = 0; status == WF_OK && i < cuts[rank->size]; i += 4099)
        if (all[i] != (unsigned char)(i * 2654435761 >> 13))
            status = wf_error_set(&rank->error, WF_EINTERNAL, "byte %lld", (long long)i);
    free(all);
    return status;
}

static wf_status several_parts(wf_rank *rank)
{
    return gather_bytes(rank, 80000001);
}

static wf_status past_int(wf_rank *rank)
{
    return gather_bytes(rank, ((int64_t)1 << 31) + 12345);
}

/* Returns true where the rank has said in a file that all has come to it; says so itself. It
   calls no library for ranks, which would move the exchange on. */
static bool has_all(int rank, bool say)
{
    char name[32];
    FILE *file;

    snprintf(name, sizeof name, "background.%d", rank);
    file = fopen(name, say ? "w" : "r");
    if (file)
        fclose(file);
    return file != NULL;
}

/* A collective that has begun ends while the ranks do something else: none waits for it before
   all have it all. Root has it from the beginning. */
static wf_status background(wf_rank *rank)
{
    enum { MOST = 8 << 20, LIMIT_MS = 15000, LOOK_MS = 2 };
    volatile float *buffer = calloc(MOST, sizeof *buffer);
    float *given = (float *)(uintptr_t)buffer;
    wf_collective what = {.kind = WF_BROADCAST,
                          .n_buffers = 1,
                          .buffers =
                              &(wf_comm_buffer){.in = given, .out = given, .count = MOST}};
    wf_pending *p;
    int64_t come = 0;
    int others = 0;
    wf_status status;

    for (int64_t i = 0; rank->index == 0 && i < MOST; i++)
        buffer[i] = 1;
    status = wf_barrier(rank->world, &rank->error);
    if (status == WF_OK)
        status = wf_collective_begin(rank->world, &what, &p, &rank->error);
    if (status == WF_OK) {
        for (int ms = 0; ms < LIMIT_MS && others < rank->size; ms += LOOK_MS) {
            while (come < MOST && buffer[come] > 0)
                come++;
            if (come == MOST)
                has_all(rank->index, true);
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
            while (others < rank->size && has_all(others, false))
                others++;
        }
        printf("background: rank %d: %s%lld elements came\n", rank->index,
               others < rank->size ? "only " : "all ", (long long)come);
        status = wf_collective_end(p, &rank->error);
    }
    free(given);
    return status;
}

static const struct {
    const char *name;
    rank_case *run;
} cases[] = {
    {"differ", differ},
    {"differ_large", differ_large},
    {"differ_blocks", differ_blocks},
    {"differ_message", differ_message},
    {"differ_split", differ_split},
    {"fail", fail},
    {"fail_in_flight", fail_in_flight},
    {"leave", leave},
    {"die", die},
    {"several_parts", several_parts},
    {"past_int", past_int},
    {"background", background},
};

static struct {
    const char *name;
    rank_case *run;
    double begun; /* by CLOCK_MONOTONIC */
    bool reported_here;
} now;

static wf_status rank_main(wf_rank *rank, void *arg)
{
    wf_status status;

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    status = now.run(rank);
    printf("%s: rank %d: status %d: %s\n", now.name, rank->index, (int)status,
           rank->error.text);
    fflush(stdout);
    return status;
}

/* Prints how the world ended, as this process knows it. */
static void say(const wf_error *error, const char *who)
{
    printf("%s: process %d: status %d (%s) in %.3f s: %s\n", now.name,
           wf_launcher_detected().process, (int)error->code, who,
           wf_test_clock(CLOCK_MONOTONIC) - now.begun, error->text);
    fflush(stdout);
}

/* Before the others leave: mpirun ends all of them when one has. */
static void report(const wf_error *error, void *arg)
{
    (void)arg;
    now.reported_here = true;
    say(error, "here");
}

static bool find_case(const char *name)
{
    now.reported_here = false;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) {
            now.name = name;
            now.run = cases[i].run;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};

    for (int i = 2; i < argc; i++)
        if (!find_case(argv[i]))
            argc = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: %s RANKS CASE...\n", argv[0]);
        return 2;
    }
    signal(SIGTERM,
           /* mpirun sends it when a process has died: what became of it is reported first */
           SIG_IGN);
    for (int i = 2; i < argc; i++) {
        wf_launch_end end = {.reported = false};
        wf_launch_options options = {
            .ranks = atoi(argv[1]), .launcher = "mpi", .report = report, .end = &end};

        find_case(argv[i]);
        error = (wf_error){WF_OK, ""};
        now.begun = wf_test_clock(CLOCK_MONOTONIC);
        wf_launch(&options, rank_main, NULL, &error);
        if (!now.reported_here)
            say(&error, end.reported ? "elsewhere" : "here");
    }
    return (int)error.code;
}
