/*
 * tests/mesh/test_comm_faults.c - what goes wrong between ranks is an error on each of them,
 * soon and by name: collectives that disagree, ranks that fail, leave early or wait for each
 * other.
 */
#include "tests/mesh/ranks.h"
#include <time.h>
#include <unistd.h>

enum { MOST = 32 };

/* What became of each rank, and of the launch. */
typedef struct outcome {
    const wf_transport *transport;
    int variant;
    wf_error of[MOST];
    wf_error launch;
    double seconds;
    double cpu[MOST];
} outcome;

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(outcome *o, int ranks, wf_status (*work)(wf_rank *, void *))
{
    wf_launch_options options = {.ranks = ranks};
    double start = now(CLOCK_MONOTONIC);

    wf_launch(&options, work, o, &o->launch);
    o->seconds = now(CLOCK_MONOTONIC) - start;
}

static wf_comm *enter(wf_rank *rank, const outcome *o)
{
    wf_comm_set_reduce(rank->world, &test_ops);
    if (o->transport)
        rank->world->transport = o->transport;
    return rank->world;
}

static wf_status leave(wf_rank *rank, outcome *o, wf_status status)
{
    o->of[rank->index] = rank->error;
    return status;
}

/* Rank 1 of 4 differs from the others, in one way after another. */
static wf_status differ(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    bool odd = rank->index == 1;
    float in[64] = {0}, out[64];
    int64_t cuts[5] = {0, 4, 8, 12, 16}, other[5] = {0, 4, 8, 13, 16};
    wf_comm *c = enter(rank, o);
    wf_error *e = &rank->error;
    wf_status status = wf_barrier(c, e);

    switch (status == WF_OK ? o->variant : -1) {
    case 0:
        status = wf_all_reduce(c, WF_REDUCE_SUM, in, out, odd ? 20 : 10, e);
        break;
    case 1:
        status = wf_all_reduce(c, odd ? WF_REDUCE_MAX : WF_REDUCE_SUM, in, out, 10, e);
        break;
    case 2:
        status = odd ? wf_barrier(c, e) : wf_all_reduce(c, WF_REDUCE_SUM, in, out, 10, e);
        break;
    case 3:
        status = wf_all_gather(c, 4, in, out, odd ? other : cuts, e);
        break;
    case 4:
        status = wf_all_gather(c, odd ? 2 : 4, in, out, cuts, e);
        break;
    case 5:
        status = wf_broadcast(c, 4, odd, in, 10, e);
        break;
    case 6:
        status = wf_all_to_all(c, 4, in, odd ? other : cuts, out, cuts, e);
        break;
    default:
        break;
    }
    return leave(rank, o, status);
}

static void mismatch(void)
{
    static const char *const words[][2] = {
        {"all_reduce(sum) of 40 bytes", "all_reduce(sum) of 80 bytes"},
        {"all_reduce(sum)", "all_reduce(max)"},
        {"all_reduce(sum)", "barrier"},
        {"all_gather of 64 bytes", "cut differently"},
        {"4-byte elements", "2-byte elements"},
        {"broadcast of 40 bytes from 0", "broadcast of 40 bytes from 1"},
        {"rank 1 sends", "which expects"},
    };

    for (int path = 0; path < 2; path++)
        for (int v = 0; v < 7; v++) {
            outcome o = {.transport = path ? staged_threads() : NULL, .variant = v};

            run(&o, 4, differ);
            for (int r = 0; r < 4; r++) {
                /* Packed reductions travel by all_to_all and tell both alike. */
                CU_ASSERT(says(&o.of[r], WF_EMISMATCH, words[v][0], words[v][1]));
                CU_ASSERT(says(&o.of[r], WF_EMISMATCH, "over world", "rank 1"));
            }
            CU_ASSERT(says(&o.launch, WF_EMISMATCH, words[v][0], words[v][1]));
            CU_ASSERT(o.seconds < 5);
        }
}

static wf_status message_differs(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    char text[16] = "";
    wf_comm *c = enter(rank, o);
    wf_status status = rank->index == 0 ? wf_send(c, 1, 1, text, 8, &rank->error)
                                        : wf_recv(c, 1, 0, text, 16, &rank->error);

    return leave(rank, o, status);
}

static void message_mismatch(void)
{
    outcome o = {0};

    run(&o, 2, message_differs);
    for (int r = 0; r < 2; r++)
        CU_ASSERT(says(&o.of[r], WF_EMISMATCH, "recv of 16 bytes", "send of 8 bytes"));
}

/* Ranks 0 and 1 are a pair to rank 0, and 1 and 2 to the others. */
static wf_status split_differs(wf_rank *rank, void *arg)
{
    int mine[2] = {rank->index ? 1 : 0, rank->index ? 2 : 1};
    wf_comm *group;
    outcome *o = arg;
    wf_comm *c = enter(rank, o);
    wf_status status = wf_comm_split(c, "pair", mine, 2, &group, &rank->error);

    if (status == WF_OK) {
        status = wf_barrier(group, &rank->error);
        wf_comm_close(group);
    }
    return leave(rank, o, status);
}

static void split_mismatch(void)
{
    for (int round = 0; round < 20; round++) {
        outcome o = {0};

        run(&o, 3, split_differs);
        CU_ASSERT(says(&o.launch, WF_EMISMATCH, "members for group pair", "list the same"));
    }
}

/* One rank fails of its own accord while the others wait in different places. */
static wf_status fail_alone(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    float x = 1;
    wf_comm *c = enter(rank, o);
    wf_status status;

    if (rank->index == 2) {
        usleep(50000);
        return leave(rank, o, wf_error_set(&rank->error, WF_ENOMEM, "no memory for the cat"));
    }
    status = rank->index == 3 ? wf_recv(c, 4, 2, &x, 1, &rank->error)
                              : wf_all_reduce(c, WF_REDUCE_SUM, &x, &x, 1, &rank->error);
    return leave(rank, o, status);
}

static void rank_fails(void)
{
    outcome o = {0};

    run(&o, 32, fail_alone);
    for (int r = 0; r < 32; r++)
        if (r != 2)
            CU_ASSERT(says(&o.of[r], WF_ELOST, "rank 2 failed: no memory for the cat",
                           r == 3 ? "rank 3 was in recv over world" : "all_reduce over world"));
    CU_ASSERT(says(&o.launch, WF_ENOMEM, "rank 2: ", "no memory for the cat"));
    CU_ASSERT(o.seconds < 2);
}

static wf_status go_home(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    float x = 1;
    wf_comm *c = enter(rank, o);
    wf_status status = WF_OK;

    if (rank->index != 3)
        status = wf_all_reduce(c, WF_REDUCE_SUM, &x, &x, 1, &rank->error);
    return leave(rank, o, status);
}

static void early_leaver(void)
{
    outcome o = {0};

    run(&o, 5, go_home);
    CU_ASSERT(
        says(&o.launch, WF_ELOST, "rank 3 has finished, rank", "in all_reduce over world"));
    CU_ASSERT_EQUAL(o.of[3].code, WF_OK);
    for (int r = 0; r < 5; r++)
        if (r != 3)
            CU_ASSERT(says(&o.of[r], WF_ELOST, "rank 3 has finished", "all_reduce"));
    CU_ASSERT(o.seconds < 2);
}

static wf_status wait_crosswise(wf_rank *rank, void *arg)
{
    int all[3] = {0, 1, 2};
    outcome *o = arg;
    wf_comm *twin, *c = enter(rank, o);
    wf_status status = wf_comm_split(c, "twin", all, 3, &twin, &rank->error);
    char x = 0;

    if (status == WF_OK && rank->index == 0)
        status = wf_barrier(c, &rank->error);
    else if (status == WF_OK && rank->index == 1)
        status = wf_broadcast(twin, 1, 0, &x, 1, &rank->error);
    else if (status == WF_OK)
        status = wf_recv(twin, 1, 1, &x, 1, &rank->error);
    wf_comm_close(twin);
    return leave(rank, o, status);
}

static void deadlock(void)
{
    outcome o = {0};

    run(&o, 3, wait_crosswise);
    CU_ASSERT(says(&o.launch, WF_ETIMEOUT, "rank 0 waits for rank 1 in barrier over world",
                   "rank 1 waits for rank 0 in broadcast over twin"));
    CU_ASSERT(says(&o.launch, WF_ETIMEOUT, "rank 2 waits for rank 1 in recv over twin", ""));
    for (int r = 0; r < 3; r++)
        CU_ASSERT(o.of[r].code == WF_ETIMEOUT || o.of[r].code == WF_ELOST);
    CU_ASSERT(o.seconds < 4);
}

static wf_status everyone_receives(wf_rank *rank, void *arg)
{
    char x;
    outcome *o = arg;
    int from = (rank->index + 1) % rank->size;

    return leave(rank, o, wf_recv(enter(rank, o), 1, from, &x, 1, &rank->error));
}

static void deadlock_of_many(void)
{
    outcome o = {0};

    run(&o, 32, everyone_receives);
    CU_ASSERT(says(&o.launch, WF_ETIMEOUT, "rank 7 waits for rank 8 in recv", "and 24 more"));
    CU_ASSERT(o.seconds < 4);
}

/* Rank 0 is busy elsewhere for two seconds: that is no deadlock, and the others sleep. */
static wf_status wait_long(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    float x = 1;
    wf_comm *c = enter(rank, o);
    wf_status status = wf_barrier(c, &rank->error);
    double start = now(CLOCK_THREAD_CPUTIME_ID);

    if (rank->index == 0)
        usleep(2000000);
    if (status == WF_OK)
        status = wf_all_reduce(c, WF_REDUCE_SUM, &x, &x, 1, &rank->error);
    o->cpu[rank->index] = now(CLOCK_THREAD_CPUTIME_ID) - start;
    return leave(rank, o, status);
}

static void blocked_ranks_sleep(void)
{
    double most = 0;
    outcome o = {0};

    run(&o, 32, wait_long);
    CU_ASSERT_EQUAL(o.launch.code, WF_OK);
    for (int r = 1; r < 32; r++)
        most = o.cpu[r] > most ? o.cpu[r] : most;
    printf("(most CPU of a rank blocked for 2 s: %.2f ms) ", 1e3 * most);
    CU_ASSERT(most < 0.005);
}

/* A rank fails at some point of a storm of collectives and frees its memory: nobody may be
   reading it any more. (What would, AddressSanitizer and ThreadSanitizer see.) */
static wf_status storm(wf_rank *rank, void *arg)
{
    enum { FLIGHTS = 3, COUNT = 5000 };
    outcome *o = arg;
    wf_comm *c = enter(rank, o);
    float *memory = malloc(FLIGHTS * COUNT * sizeof *memory);
    wf_pending *p[FLIGHTS] = {NULL};
    wf_status status = WF_OK;
    int begun = 0;

    memset(memory, 0, FLIGHTS * COUNT * sizeof *memory);
    for (int round = 0; status == WF_OK && round < 20; round++) {
        for (begun = 0; status == WF_OK && begun < FLIGHTS; begun += status == WF_OK) {
            float *mine = memory + begun * COUNT;
            wf_comm_buffer buffer = {.in = mine, .out = mine, .count = COUNT};
            wf_collective what = {WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer};

            status = wf_collective_begin(c, &what, &p[begun], &rank->error);
            if (rank->index == o->variant % rank->size &&
                round * FLIGHTS + begun == o->variant) {
                status = wf_error_set(&rank->error, WF_EIO, "the disk is gone");
                begun++;
            }
        }
        if (rank->error.code == WF_EIO)
            wf_comm_abort(c, &rank->error);
        for (int f = 0; f < begun; f++) {
            wf_status one = wf_collective_end(p[f], &rank->error);

            status = status == WF_OK ? one : status;
        }
    }
    memset(memory, 0xff, FLIGHTS * COUNT * sizeof *memory);
    free(memory);
    return leave(rank, o, status);
}

static void memory_after_failure(void)
{
    for (int v = 0; v < 60; v++) {
        outcome o = {.transport = v % 4 == 3 ? staged_threads() : NULL, .variant = v};

        run(&o, 4, storm);
        CU_ASSERT(says(&o.launch, WF_EIO, "rank", "the disk is gone"));
    }
}

/* Left in flight: by the rank's end, and by the close of the group. */
static wf_status leave_in_flight(wf_rank *rank, void *arg)
{
    static float x[2];
    int both[2] = {0, 1};
    outcome *o = arg;
    wf_comm *c = enter(rank, o), *group = NULL;
    float *mine = &x[rank->index];
    wf_comm_buffer buffer = {.in = mine, .out = mine, .count = 1};
    wf_collective what = {WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer};
    wf_pending *p;
    wf_status status = wf_comm_split(c, "twin", both, 2, &group, &rank->error);

    if (status == WF_OK)
        status = wf_collective_begin(o->variant ? group : c, &what, &p, &rank->error);
    wf_comm_close(group);
    return leave(rank, o, status);
}

static void left_in_flight(void)
{
    for (int v = 0; v < 2; v++) {
        outcome o = {.variant = v};

        run(&o, 2, leave_in_flight);
        CU_ASSERT(
            says(&o.launch, WF_EINVAL, v ? "closed group twin" : "has finished", "in flight"));
    }
}

/* Calls that are wrong on their face fail where they are made, before anybody waits. */
static wf_status bad_calls(wf_rank *rank, void *arg)
{
    int64_t falling[3] = {0, 3, 2}, late[3] = {1, 2, 3};
    int twice[2] = {0, 0}, beyond[2] = {0, 2}, others[1] = {1 - rank->index};
    float x[4] = {0};
    wf_comm *c = rank->world, *group;

    (void)arg;
    NEED(wf_all_reduce(c, WF_REDUCE_SUM, x, x, 1, NULL) == WF_EINVAL); /* no arithmetic yet */
    wf_comm_set_reduce(c, &test_ops);
    NEED(wf_all_reduce(c, WF_REDUCE_SUM, x, x, -1, NULL) == WF_EINVAL);
    NEED(wf_all_gather(c, 4, x, x, falling, NULL) == WF_EINVAL);
    NEED(wf_all_gather(c, 4, x, x, late, NULL) == WF_EINVAL);
    NEED(wf_all_gather(c, 4, x, x, NULL, NULL) == WF_EINVAL);
    NEED(wf_broadcast(c, 4, 2, x, 1, NULL) == WF_EINVAL);
    NEED(wf_send(c, 4, rank->index, x, 1, NULL) == WF_EINVAL);
    NEED(wf_recv(c, 4, -1, x, 1, NULL) == WF_EINVAL);
    NEED(wf_collective_end(NULL, NULL) == WF_EINVAL);
    NEED(wf_comm_split(c, "g", twice, 2, &group, NULL) == WF_EINVAL && !group);
    NEED(wf_comm_split(c, "g", beyond, 2, &group, NULL) == WF_EINVAL && !group);
    NEED(wf_comm_split(c, "g", others, 1, &group, NULL) == WF_EINVAL && !group);
    NEED(wf_comm_split(c, "g", others, 0, &group, NULL) == WF_EINVAL && !group);
    return wf_barrier(c, &rank->error);
}

static void wrong_calls(void)
{
    outcome o = {0};

    run(&o, 2, bad_calls);
    CU_ASSERT_EQUAL(o.launch.code, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {
        {"collectives that disagree", mismatch},
        {"messages that disagree", message_mismatch},
        {"groups that disagree", split_mismatch},
        {"a rank that fails", rank_fails},
        {"a rank that leaves early", early_leaver},
        {"deadlock", deadlock},
        {"deadlock of many", deadlock_of_many},
        {"blocked ranks sleep", blocked_ranks_sleep},
        {"memory after a failure", memory_after_failure},
        {"left in flight", left_in_flight},
        {"wrong calls", wrong_calls},
        {NULL, NULL},
    };

    return wf_test_main("comm_faults", tests);
}
