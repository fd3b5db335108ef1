/*
 * tests/nccl/test_nccl_train.c - a model that trains over the transport has the losses and the
 * digest of one rank: the CPU's kernels on memory that is said to be a device's, so that every
 * byte between ranks goes over NCCL and every sum is ours. And the library's own sums, which
 * are close.
 */
#include "kernels/devices.h"
#include "tests/nccl/device_memory.h"
#include "tests/parallel/rows.h"
#include <stdlib.h>

wf_device *__real_wf_cpu_device(int threads, wf_error *error);
wf_device *__wrap_wf_cpu_device(int threads, wf_error *error);

static bool far;    /* set between launches .. */
static bool beside; /* .. as this is: rows move beside products */

wf_device *__wrap_wf_cpu_device(int threads, wf_error *error)
{
    wf_device *device = __real_wf_cpu_device(threads, error);

    if (device && far)
        device->memory = &memory_at_once;
    return device;
}

static const char *const strategies[] = {"full_shard", "no_shard", "zero1", "shard_grad_op"};

static training make(int tp, int dp, const char *strategy)
{
    training t = new_training(LLAMA, 3, 8);

    t.layout.tp = tp;
    t.layout.dp = dp;
    t.layout.strategy = strategy;
    t.layout.tp_comm_overlap = beside && tp > 1;
    t.layout.tp_comm_block = t.layout.tp_comm_overlap ? 1 : 0;
    t.steps = 4;
    return t;
}

static void digests_of(wf_dtype dtype, size_t count)
{
    training one = make(1, 1, NULL);

    one.layout.dtype = dtype;
    far = false;
    CU_ASSERT(train_over(&one, "threads"));
    far = true;
    for (size_t i = 0; i < count; i++) {
        training t = make(2, 2, strategies[i]);

        t.layout.dtype = dtype;
        t.layout.sequence_parallel = dtype == WF_BF16 && i % 2;
        if (train_over(&t, "nccl"))
            check_same(&t, &one);
    }
}

static void same_digest(void)
{
    digests_of(WF_F32, sizeof strategies / sizeof *strategies);
}

static void same_digest_bf16(void)
{
    digests_of(WF_BF16, 2);
}

/* Moves that go through windows, and moves that are too large for them, have the same bits; so
   have rows that move beside products, through windows or not. */
static void in_windows(void)
{
    setenv("WEFT_NCCL_WINDOW", "12K", 1); /* its halves are not of whole pages */
    digests_of(WF_F32, 2);
    beside = true;
    setenv("WEFT_NCCL_WINDOW", "1MiB", 1);
    digests_of(WF_BF16, 2);
    unsetenv("WEFT_NCCL_WINDOW");
    digests_of(WF_F32, 2);
    beside = false;
}

static void refused(const char *window, const char *words, wf_status code)
{
    training t = make(2, 1, NULL);
    wf_error error = {WF_OK, ""};

    setenv("WEFT_NCCL_WINDOW", window, 1);
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 2, .transport = "nccl"},
                              training_rank, &t, &error),
                    code);
    CU_ASSERT(strstr(error.text, words) != NULL);
    unsetenv("WEFT_NCCL_WINDOW");
}

static void no_window(void)
{
    far = true;
    refused("large", "WEFT_NCCL_WINDOW=large is no size of a window", WF_EINVAL);
    setenv("WEFT_EMULATED_NCCL_VERSION", "22703", 1);
    refused("1M", "windows, which NCCL has from 2.28 on: this one is 2.27.3", WF_EUNSUPPORTED);
    unsetenv("WEFT_EMULATED_NCCL_VERSION");
}

static void library_sums(void)
{
    training ours = make(2, 2, NULL), theirs = ours;

    far = true;
    theirs.layout.exact_off = true;
    CU_ASSERT(train_over(&ours, "nccl"));
    CU_ASSERT(train_over(&theirs, "nccl"));
    for (int s = 0; s < ours.steps; s++)
        CU_ASSERT_DOUBLE_EQUAL(theirs.loss[s], ours.loss[s], 1e-4);
}

int main(void)
{
    static const wf_test tests[] = {
        {"one digest", same_digest},
        {"one digest with activations stored as bf16", same_digest_bf16},
        {"one digest through windows", in_windows},
        {"windows that there are not", no_window},
        {"the library's sums", library_sums},
        {NULL, NULL},
    };

    return wf_test_main("nccl_train", tests);
}
