/*
 * tests/cuda/test_cuda_train.c - training on the (emulated) GPU: the CPU's loss curve, one
 * digest over layouts, strategies and reruns with several ranks on one GPU, parameters stored
 * as bf16, checkpoints between devices, and a plan that is the run to the byte.
 *
 * WEFT_TEST_ALL in the environment tries every strategy on both models and longer curves;
 * without it each strategy is tried once.
 *
 * ctest: builds plain, cost 50
 */
#include "kernels/devices.h"
#include "tests/cuda/gpu_main.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/second_step.h"

enum { BATCH = 4, CURVE = 30, SHORT_CURVE = UNDER_SANITIZER ? 1 : 4, STEPS = 2 };

static const row rows[] = {
    {"full_shard", .tp = 2, .dp = 2, .micro = 1},
    {"shard_grad_op", .tp = 1, .dp = 2, .micro = 1},
    {"hybrid_shard", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"no_shard", .tp = 2, .dp = 1, .micro = 4, .sequence_parallel = true},
    {"zero1", .tp = 1, .dp = 2, .micro = 1},
    {"hybrid_shard_zero2", .tp = 1, .dp = 4, .group = 2, .micro = 1},
    {"mics", .tp = 1, .dp = 2, .group = 1, .micro = 2},
    {"full_shard", .tp = 1, .dp = 2, .micro = 2},
    {"no_shard", .tp = 2, .dp = 2, .micro = 2, .sequence_parallel = true},
    {"full_shard", .tp = 2, .dp = 1, .micro = 4, .sequence_parallel = true},
    {"full_shard", .tp = 4, .dp = 1, .micro = 2, .sequence_parallel = true},
};

enum { ROWS = sizeof rows / sizeof *rows, STRATEGIES = 7 };

static bool all_of_it(void)
{
    return getenv("WEFT_TEST_ALL") != NULL;
}

static training make_training(model_kind kind, const char *device)
{
    training t = new_training(kind, kind == GPT2 ? 4 : 2, BATCH);

    t.model.heads = 4;
    t.model.layers = 1;
    t.model.width = 32; /* heads of 8 features */
    t.model.ffn = 64;
    t.steps = STEPS;
    t.layout.device = device;
    return t;
}

/* Not the CPU's bits: other chains and trees inside a chunk. */
static void curve(model_kind kind)
{
    training cpu = make_training(kind, "cpu"), gpu = make_training(kind, "cuda");

    cpu.steps = gpu.steps = all_of_it() ? CURVE : SHORT_CURVE;
    if (!train(&cpu) || !train(&gpu))
        return;
    for (int i = 0; i < cpu.steps; i++) {
        CU_ASSERT(fabsf(cpu.loss[i] - gpu.loss[i]) < 1e-4f);
        CU_ASSERT(fabs(cpu.grad_norm[i] / gpu.grad_norm[i] - 1) < 1e-3);
        if (fabsf(cpu.loss[i] - gpu.loss[i]) >= 1e-4f)
            printf("\n    step %d: %.7f on the CPU, %.7f on the GPU", i + 1,
                   (double)cpu.loss[i], (double)gpu.loss[i]);
    }
}

static void gpt2_curve(void)
{
    curve(GPT2);
}

static void llama_curve(void)
{
    curve(LLAMA);
}

/* The rows first, first + every, .. that try a strategy for the first time; or all. The run on
   one rank is returned. */
static training one_digest(training one, int first, int every)
{
    training again = one;

    if (!train(&one))
        return one;
    if (first == 0 && !UNDER_SANITIZER && train(&again))
        check_same(&again, &one);
    if (all_of_it())
        check_rows(&one, rows, ROWS, 1);
    else
        check_rows(&one, rows + first, STRATEGIES - first, UNDER_SANITIZER ? ROWS : every);
    return one;
}

static void layouts_of_gpt2(void)
{
    training t = make_training(GPT2, "cuda");

    t.model.dropout = 0.1f;
    t.options.clip = 0.1f;
    one_digest(t, 0, 3);
}

static void layouts_of_llama(void)
{
    one_digest(make_training(LLAMA, "cuda"), 1, 3);
}

static void stored_as_bf16(void)
{
    training t = make_training(LLAMA, "cuda"), cpu = make_training(LLAMA, "cpu");

    t.layout.param_dtype = cpu.layout.param_dtype = WF_BF16;
    cpu.steps = t.steps = 2;
    t = one_digest(t, 2, 3);
    if (train(&cpu))
        CU_ASSERT(fabsf(t.loss[1] - cpu.loss[1]) < 1e-3f);
}

/* Sums in 1, 2 and 4 chunks, and up to as many ranks. */
static void up_to_exact_tp(void)
{
    training one[4];

    for (int i = 0; i < 4; i++) {
        one[i] = make_training(LLAMA, "cuda");
        one[i].layout.exact_tp = 1 << i;
        one[i].steps = 1;
        if (!train(&one[i]))
            return;
        for (int k = 0; k < i; k++)
            CU_ASSERT_NOT_EQUAL(one[k].digest, one[i].digest);
        if (i == 1 || all_of_it()) {
            training t = on_row(one[i], &rows[i == 2 ? ROWS - 1 : i == 1 ? 0 : 1]);

            if (train(&t))
                check_same(&t, &one[i]);
        }
    }
}

/* Products and attention of bf16, what is partial in f32; in the last row ranks share heads of
   keys (attention is the emulated cuDNN's). */
static void activations_as_bf16(void)
{
    training t = make_training(LLAMA, "cuda"), cpu = make_training(LLAMA, "cpu");

    t.layout.dtype = t.layout.param_dtype = WF_BF16;
    cpu.layout.dtype = cpu.layout.param_dtype = WF_BF16;
    cpu.steps = t.steps = 2;
    t = one_digest(t, 0, 3);
    check_rows(&t, rows + ROWS - 1, 1, 1);
    if (train(&cpu))
        CU_ASSERT(fabsf(t.loss[1] - cpu.loss[1]) < 2e-2f);
}

/* Saved on one device, gone on with on another mesh of it, and read by the CPU. */
static void checkpoints(void)
{
    training whole = make_training(GPT2, "cuda"), begun = whole, rest, cpu;
    char dir[64];
    wf_par_save_options how = {.dir = dir};

    whole.steps = 3;
    begun.steps = 2;
    begun = on_row(begun, &rows[0]);
    rest = on_row(make_training(GPT2, "cuda"), &rows[4]);
    rest.steps = 3;
    cpu = make_training(GPT2, "cpu");
    cpu.steps = 2;
    wf_test_new_folder(dir);
    if (train(&whole) && save_run(&begun, &how, 2) && resume_run(&rest, dir, 2) &&
        resume_run(&cpu, dir, 2)) {
        CU_ASSERT_EQUAL(rest.digest, whole.digest);
        CU_ASSERT_EQUAL(cpu.digest, begun.digest);
    }
    wf_test_remove(dir);
    wf_test_new_folder(dir);
    how.async = true;
    if (save_run(&begun, &how, 2) && resume_run(&cpu, dir, 2))
        CU_ASSERT_EQUAL(cpu.digest, begun.digest);
    wf_test_remove(dir);
}

/* Ranks take GPUs by their seats; none of it shows in the numbers. */
static wf_status look_at_gpu(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                             int step)
{
    const wf_device_location *location = &wf_context_device(wf_par_context(par))->location;

    (void)t, (void)model, (void)step;
    NEED(location->devices == 3 && location->ranks == rank->size);
    NEED(rank->local_rank == rank->index && location->ordinal == rank->index % 3);
    return WF_OK;
}

static void several_gpus(void)
{
    training one = on_row(make_training(GPT2, "cuda"), &rows[0]), three = one;
    wf_error error = {WF_OK, ""};

    three.watch = look_at_gpu;
    if (!UNDER_SANITIZER && !train(&one))
        return;
    setenv("WEFT_EMULATOR_DEVICES", "3", 1);
    if (wf_cuda_count(false, &error) != 3) { /* GPUs that are there, not emulated ones */
        printf("\n    not looked at: this machine has no three emulated GPUs\n");
        unsetenv("WEFT_EMULATOR_DEVICES");
        return;
    }
    if (train(&three) && !UNDER_SANITIZER)
        check_same(&three, &one);
    setenv("WEFT_EMULATOR_PEERS", "0", 1);
    three.watch = NULL;
    wf_launch(&(wf_launch_options){.ranks = 4}, training_rank, &three, &error);
    CU_ASSERT(error.code == WF_EUNSUPPORTED && strstr(error.text, ".transport nccl") != NULL);
    unsetenv("WEFT_EMULATOR_PEERS");
    unsetenv("WEFT_EMULATOR_DEVICES");
}

/* Counts the bytes of the device's memory that the host reads. */
static struct {
    const wf_device_memory *real;
    wf_device_memory counting;
    size_t bytes, most; /* all steps together, and one step at most */
} reading;

static wf_status count_read(wf_device *device, void *host, const void *from, size_t bytes,
                            wf_error *error)
{
    reading.bytes += bytes;
    return reading.real->read(device, host, from, bytes, error);
}

static wf_status watch_reads(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                             int step)
{
    wf_device *device = wf_context_device(wf_par_context(par));

    (void)t, (void)rank, (void)model;
    if (step == 0) {
        reading.real = device->memory;
        reading.counting = *device->memory;
        reading.counting.read = count_read;
        device->memory = &reading.counting;
    }
    reading.most = reading.bytes > reading.most ? reading.bytes : reading.most;
    reading.bytes = 0;
    return WF_OK;
}

/* The loss and what a norm sums to: nothing that grows with the model. */
static void little_comes_to_the_host(void)
{
    training t = make_training(GPT2, "cuda");

    t.watch = watch_reads;
    t.options.clip = 0.1f;
    reading.most = 0;
    CU_ASSERT(train(&t));
    CU_ASSERT(reading.most >= sizeof(float) && reading.most <= 1024);
}

static void plan_of(wf_dtype dtype)
{
    training t = on_row(make_training(GPT2, "cuda"), &rows[0]);
    wf_par_report ran = {0}, planned = {0};

    t.layout.dtype = t.layout.param_dtype = dtype;
    t.watch = report_second_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    plan_second_step(&t, 4, &planned);
    CU_ASSERT(ran.memory.peak > 0);
    CU_ASSERT_EQUAL(planned.memory.peak, ran.memory.peak);
    for (int k = 0; k < WF_MEMORY_KINDS; k++) {
        CU_ASSERT_EQUAL(planned.memory.most[k], ran.memory.most[k]);
        if (planned.memory.most[k] != ran.memory.most[k])
            printf("\n    %s: %zu planned, %zu in the run",
                   wf_memory_kind_name((wf_memory_kind)k), planned.memory.most[k],
                   ran.memory.most[k]);
    }
}

static void plan_is_run(void)
{
    if (!UNDER_SANITIZER)
        plan_of(WF_F32);
    plan_of(WF_BF16);
}

int main(void)
{
    static const wf_test tests[] = {{"gpt2 has the CPU's loss curve", gpt2_curve},
                                    {"llama has the CPU's loss curve", llama_curve},
                                    {"one digest over layouts of gpt2", layouts_of_gpt2},
                                    {"one digest over layouts of llama", layouts_of_llama},
                                    {"parameters stored as bf16", stored_as_bf16},
                                    {"activations stored as bf16", activations_as_bf16},
                                    {"exact up to tp 1, 2, 4 and 8", up_to_exact_tp},
                                    {"checkpoints between devices", checkpoints},
                                    {"several GPUs", several_gpus},
                                    {"little comes to the host", little_comes_to_the_host},
                                    {"a plan is the run", plan_is_run},
                                    {NULL, NULL}};

    setenv("WEFT_EMULATOR_CUDNN", "91900", 1);
    return gpu_test_main("cuda_train", tests);
}
