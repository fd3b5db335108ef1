/*
 * tests/nccl/test_nccl_faults.c - what goes wrong between ranks whose buffers lie on devices:
 * an error on each of them, by name, also where a GPU would wait for ever: peers that disagree,
 * fail, leave or fall silent, and a library that says that a link is broken.
 */
#include "tests/mesh/ranks.h"
#include "tests/clock.h"

enum { MOST = 8, COUNT = 5000 };

typedef struct outcome {
    int variant;
    wf_error of[MOST];
    wf_error launch;
    double seconds;
} outcome;

static void run(outcome *o, int ranks, wf_status (*work)(wf_rank *, void *))
{
    wf_launch_options options = {.ranks = ranks, .transport = "nccl"};
    double start = wf_test_clock(CLOCK_MONOTONIC);

    wf_launch(&options, work, o, &o->launch);
    o->seconds = wf_test_clock(CLOCK_MONOTONIC) - start;
}

static wf_status leave(wf_rank *rank, outcome *o, wf_status status)
{
    test_device_settle();
    o->of[rank->index] = rank->error;
    return status;
}

static wf_status reduce(wf_rank *rank, float *buffer, int64_t count, wf_reduction reduction)
{
    wf_collective what = {.kind = WF_ALL_REDUCE,
                          .reduction = reduction,
                          .n_buffers = 1,
                          .buffers =
                              &(wf_comm_buffer){.in = buffer, .out = buffer, .count = count},
                          .device = test_device()};

    return wf_collective_run(rank->world, &what, &rank->error);
}

static wf_status exchange(wf_rank *rank, float *in, float *out, const int64_t *cuts,
                          const int64_t *out_cuts)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .cuts = cuts, .out_cuts = out_cuts};
    wf_collective what = {.kind = WF_ALL_TO_ALL,
                          .element = 4,
                          .n_buffers = 1,
                          .buffers = &buffer,
                          .device = test_device()};

    return wf_collective_run(rank->world, &what, &rank->error);
}

static wf_status message(wf_rank *rank, float *buffer, int64_t count, bool send)
{
    wf_comm_buffer one = {.in = buffer, .out = buffer, .count = count};
    wf_collective what = {.kind = send ? WF_SEND : WF_RECV,
                          .element = 4,
                          .peer = send ? 1 : 0,
                          .n_buffers = 1,
                          .buffers = &one,
                          .device = test_device()};

    return wf_collective_run(rank->world, &what, &rank->error);
}

/* Rank 1 differs from the others, or does something else, in one way after another. */
static wf_status differ(wf_rank *rank, void *arg)
{
    static const int64_t cuts[] = {0, 4, 8, 12, 16}, other[] = {0, 4, 8, 13, 16};
    bool odd = rank->index == 1;
    outcome *o = arg;
    float *memory = calloc(2 * COUNT, sizeof *memory);
    wf_status status;

    wf_comm_set_reduce(rank->world, &test_ops);
    status = reduce(rank, memory, COUNT, WF_REDUCE_SUM);
    if (status != WF_OK) {
        /* not here */
    } else if (o->variant == 0) {
        status = reduce(rank, memory, odd ? 20 : 10, WF_REDUCE_SUM);
    } else if (o->variant == 1) {
        status = reduce(rank, memory, 10, odd ? WF_REDUCE_MAX : WF_REDUCE_SUM);
    } else if (o->variant == 2) {
        status = odd ? wf_barrier(rank->world, &rank->error)
                     : reduce(rank, memory, COUNT, WF_REDUCE_SUM);
    } else if (o->variant == 3) {
        status = exchange(rank, memory, memory + COUNT, odd ? other : cuts, cuts);
    } else if (o->variant == 4 && rank->index < 2) {
        status = message(rank, memory, odd ? 9 : 8, rank->index == 0);
    } else if (o->variant == 5) {
        status = odd ? wf_error_set(&rank->error, WF_EIO, "the disk is full")
                     : reduce(rank, memory, COUNT, WF_REDUCE_SUM);
    } else if (o->variant == 6 && !odd) {
        status = reduce(rank, memory, COUNT, WF_REDUCE_SUM);
    }
    status = leave(rank, o, status);
    free(memory);
    return status;
}

static void disagree(void)
{
    static const struct {
        wf_status code;
        const char *words[2];
    } cases[] = {
        {WF_EMISMATCH, {"all_reduce(sum) of 40 bytes", "all_reduce(sum) of 80 bytes"}},
        {WF_EMISMATCH, {"all_reduce(sum)", "all_reduce(max)"}},
        {WF_EMISMATCH, {"all_reduce(sum)", "barrier"}},
        {WF_EMISMATCH, {"rank 1 sends", "which expects"}},
        {WF_EMISMATCH, {"send of 32 bytes", "recv of 36 bytes"}},
        {WF_EIO, {"rank 1: the disk is full", ""}},
        {WF_ELOST, {"rank 1 has finished, rank", "all_reduce over world"}},
    };

    for (int v = 0; v < 7; v++) {
        outcome o = {.variant = v};

        run(&o, 4, differ);
        CU_ASSERT(says(&o.launch, cases[v].code, cases[v].words[0], cases[v].words[1]));
        CU_ASSERT(o.seconds < 2);
        for (int r = 0; r < 4; r++) {
            if (v < 3)
                CU_ASSERT(says(&o.of[r], WF_EMISMATCH, cases[v].words[0], cases[v].words[1]));
            if (v == 5 && r != 1)
                CU_ASSERT(says(&o.of[r], WF_ELOST, "rank 1 failed: the disk is full", ""));
        }
    }
}

/* Collectives whose results the host looks at now and then: a GPU that stands still is noticed
   by the watchdog alone. */
static wf_status storm(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    float *memory = calloc(COUNT, sizeof *memory);
    wf_status status = WF_OK;

    wf_comm_set_reduce(rank->world, &test_ops);
    for (int i = 0; i < 40 && status == WF_OK; i++) {
        status = reduce(rank, memory, COUNT, WF_REDUCE_SUM);
        if (i % 4 == 3)
            test_device_settle();
    }
    status = leave(rank, o, status);
    free(memory);
    return status;
}

static void broken_link(void)
{
    outcome o = {0};

    setenv("WEFT_EMULATED_NCCL_FAULT", "error 2 5", 1);
    run(&o, 4, storm);
    unsetenv("WEFT_EMULATED_NCCL_FAULT");
    CU_ASSERT(says(&o.launch, WF_ELOST, "rank 2: ", "remote process exited"));
    CU_ASSERT(o.seconds < 3);
    for (int r = 0; r < 4; r++)
        CU_ASSERT(o.of[r].code == WF_ELOST);
}

static void silent_peer(void)
{
    outcome o = {0};

    setenv("WEFT_EMULATED_NCCL_FAULT", "hang 2 5", 1);
    setenv("WEFT_NCCL_TIMEOUT", "0.5", 1);
    run(&o, 4, storm);
    unsetenv("WEFT_EMULATED_NCCL_FAULT");
    unsetenv("WEFT_NCCL_TIMEOUT");
    CU_ASSERT(says(&o.launch, WF_ETIMEOUT, "its GPU waits for the others", "over world"));
    CU_ASSERT(o.seconds < 4);
}

/* Rank 1 leaves: each of the others has communicators of two groups, and a GPU that waits in
   that of the world. */
static wf_status leave_groups(wf_rank *rank, void *arg)
{
    int mine[2] = {rank->index / 2 * 2, rank->index / 2 * 2 + 1};
    float *memory = calloc(COUNT, sizeof *memory);
    outcome *o = arg;
    wf_comm *pair = NULL;
    wf_status status = wf_comm_split(rank->world, "pair", mine, 2, &pair, &rank->error);

    wf_comm_set_reduce(rank->world, &test_ops);
    if (status == WF_OK && rank->index == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* the others are in it */
        status = wf_error_set(&rank->error, WF_EIO, "the disk is full");
    } else if (status == WF_OK) {
        status = reduce(rank, memory, COUNT, WF_REDUCE_SUM);
    }
    wf_comm_close(pair);
    status = leave(rank, o, status);
    free(memory);
    return status;
}

static void several_groups(void)
{
    outcome o = {0};

    run(&o, 4, leave_groups);
    CU_ASSERT(says(&o.launch, WF_EIO, "rank 1: the disk is full", ""));
    CU_ASSERT(o.seconds < 2);
}

static wf_status split_differs(wf_rank *rank, void *arg)
{
    int mine[2] = {rank->index ? 1 : 0, rank->index ? 2 : 1};
    wf_comm *group;
    wf_status status = wf_comm_split(rank->world, "pair", mine, 2, &group, &rank->error);

    (void)arg;
    if (status == WF_OK)
        wf_comm_close(group);
    return status;
}

static void split_mismatch(void)
{
    outcome o = {0};

    run(&o, 3, split_differs);
    CU_ASSERT(says(&o.launch, WF_EMISMATCH, "members for group pair", "list the same"));
    CU_ASSERT(o.seconds < 2);
}

static void no_device(void)
{
    outcome o = {0};

    setenv("WEFT_EMULATED_GPUS", "0", 1);
    run(&o, 2, storm);
    unsetenv("WEFT_EMULATED_GPUS");
    CU_ASSERT(says(&o.launch, WF_EUNSUPPORTED, "joins GPUs, and there is none here",
                   ".transport threads"));
}

int main(void)
{
    static const wf_test tests[] = {
        {"ranks that disagree, fail or leave", disagree},
        {"a broken link", broken_link},
        {"a peer that falls silent", silent_peer},
        {"a rank leaves several groups", several_groups},
        {"groups that disagree", split_mismatch},
        {"no device", no_device},
        {NULL, NULL},
    };

    return wf_test_main("nccl_faults", tests);
}
