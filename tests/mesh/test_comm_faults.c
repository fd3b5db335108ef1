/*
 * tests/mesh/test_comm_faults.c - what goes wrong between ranks is an error on each of them,
 * soon and by name: ranks that fail, leave early or wait for each other. Ranks that disagree
 * are in test_comm_mismatch.c.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/comm_outcome.h"
#include <unistd.h>

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

static wf_status leave_early(wf_rank *rank, void *arg)
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

    run(&o, 5, leave_early);
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
    double start = wf_test_clock(CLOCK_THREAD_CPUTIME_ID);

    if (rank->index == 0)
        usleep(2000000);
    if (status == WF_OK)
        status = wf_all_reduce(c, WF_REDUCE_SUM, &x, &x, 1, &rank->error);
    o->cpu[rank->index] = wf_test_clock(CLOCK_THREAD_CPUTIME_ID) - start;
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
