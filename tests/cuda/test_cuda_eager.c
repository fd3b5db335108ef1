/*
 * tests/cuda/test_cuda_eager.c - GPUs that begin work as soon as they are given it, and ranks
 * that are threads of one process over NCCL: a rank that leaves while the GPUs of the others
 * wait for it is an error of all, in seconds.
 *
 * ctest: builds plain, timeout 30
 */
#include "kernels/devices.h"
#include "tests/clock.h"
#include "tests/cuda/gpu_main.h"
#include "tests/mesh/ranks.h"
#include <time.h>

enum { RANKS = 4, N = 64 * RANKS, QUEUED = 3 };

/* Sums x over ranks, and begins to compute with the result. */
static wf_status exchange(wf_rank *rank, wf_device *device, float *x)
{
    wf_comm_buffer buffer = {.in = x, .out = x, .count = N};
    const wf_collective what = {
        .kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer, .device = device};

    GOOD(wf_collective_run(rank->world, &what, &rank->error));
    device->memory->fill(device, x, 0, N);
    return WF_OK;
}

static wf_status exchanges(wf_rank *rank, wf_device *device, float *x, bool leaves)
{
    device->memory->fill(device, x, 0, N);
    GOOD(exchange(rank, device, x));
    if (leaves && rank->index == 2) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* the others are in it */
        return wf_error_set(&rank->error, WF_EDATA, "no more data");
    }
    for (int i = 0; i < QUEUED; i++)
        GOOD(exchange(rank, device, x));
    return device->memory->wait(device, &rank->error);
}

static wf_status rank_of(wf_rank *rank, void *arg)
{
    const wf_cuda_options options = {.ordinal = rank->index, .readers = RANKS};
    wf_device *device = wf_cuda_device(&options, &rank->error);
    const wf_allocator *a;
    wf_status status;
    float *x;

    NEED(device);
    a = &device->allocator;
    x = a->alloc(a->self, N * sizeof *x);
    NEED(x);
    status = exchanges(rank, device, x, *(const bool *)arg);
    a->release(a->self, x, N * sizeof *x);
    device->close(device);
    return status;
}

static void run(const char *transport, bool leaves)
{
    wf_error error = {WF_OK, ""};
    const double start = wf_test_clock(CLOCK_MONOTONIC);

    wf_launch(&(wf_launch_options){.ranks = RANKS, .transport = transport}, rank_of, &leaves,
              &error);
    CU_ASSERT(leaves ? says(&error, WF_EDATA, "rank 2", "no more data") : error.code == WF_OK);
    CU_ASSERT(wf_test_clock(CLOCK_MONOTONIC) - start < 10);
    if (error.code != WF_OK && !leaves)
        printf("\n    %s: %s\n", transport, error.text);
}

static void nobody_leaves(void)
{
    run("threads", false);
    run("nccl", false);
}

static void a_rank_leaves(void)
{
    run("threads", true);
    run("nccl", true);
}

int main(void)
{
    static const wf_test tests[] = {
        {"nobody leaves", nobody_leaves}, {"a rank leaves", a_rank_leaves}, {NULL, NULL}};

    setenv("WEFT_EMULATOR", "eager", 1);
    setenv("WEFT_EMULATOR_DEVICES", "4", 1);
    return gpu_test_main("cuda_eager", tests);
}
