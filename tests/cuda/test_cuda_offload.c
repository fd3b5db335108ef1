/*
 * tests/cuda/test_cuda_offload.c - what rests in host memory beside an (emulated) GPU changes
 * no bit: optimizer state, masters, inputs of blocks, of every strategy and optimizer; a plan
 * knows both memories to the byte; checkpoints are the same; what it cannot do is refused.
 *
 * ctest: builds plain, cost 10
 */
#include "core/offload.h"
#include "tests/cuda/gpu_main.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/second_step.h"

enum { BATCH = 2, STEPS = 2 };

static training make_training(model_kind kind)
{
    training t = new_training(kind, 2, BATCH);

    t.model.heads = t.model.kv_heads = 2;
    t.model.layers = 2;
    t.model.width = 16;
    t.model.ffn = 32;
    t.steps = STEPS;
    t.layout.device = "cuda";
    return t;
}

/* Inputs of blocks rest in host memory, too. */
static void offload_inputs(wf_nn_gpt *model)
{
    wf_nn_recompute(&model->base, "block");
    wf_nn_offload_inputs(&model->base);
}

static training offloaded(const training *like)
{
    training t = *like;

    t.layout.offload_optimizer = true;
    t.recompute = "block";
    t.change = offload_inputs;
    return t;
}

static void same_digest(const training *like)
{
    training here = *like, there = offloaded(like);

    if (train(&here) && train(&there)) {
        CU_ASSERT_EQUAL(there.digest, here.digest);
        CU_ASSERT(memcmp(there.loss, here.loss, STEPS * sizeof(float)) == 0);
    }
}

static void strategies(void)
{
    static const row rows[] = {{"full_shard", .tp = 2, .dp = 2, .micro = 1},
                               {"zero1", .tp = 1, .dp = 2, .micro = 1}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = on_row(make_training(i ? GPT2 : LLAMA), &rows[i]);

        t.layout.param_dtype = WF_BF16; /* masters */
        same_digest(&t);
    }
}

static void optimizers(void)
{
    static const wf_nn_method method[] = {WF_NN_MUON, WF_NN_ADAFACTOR, WF_NN_SGD};

    for (size_t i = 0; i < sizeof method / sizeof *method; i++) {
        training t = make_training(LLAMA);

        t.options.optimizer.method = method[i];
        t.options.optimizer.ema = i == 2 ? 0.5f : 0;
        same_digest(&t);
    }
}

/* The optimizer's state in files of a folder, from where it comes to the device. */
static void in_files(void)
{
    training here = make_training(LLAMA), there = here;
    char folder[WF_TEST_FOLDER];

    wf_test_new_folder(folder);
    there.layout.offload_optimizer = true;
    there.layout.offload_dir = folder;
    if (train(&here) && train(&there))
        CU_ASSERT_EQUAL(there.digest, here.digest);
}

/* Moments and masters, 12 bytes a parameter, are on the host, and none of them on the device
   between updates. */
static void plan_is_run(void)
{
    training base = make_training(LLAMA), t;
    wf_par_report ran = {0}, planned = {0};

    base.layout.dtype = base.layout.param_dtype = WF_BF16;
    t = offloaded(&base);
    t.watch = report_second_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    plan_second_step(&t, 1, &planned);
    same_kinds(&planned.memory, &ran.memory);
    same_kinds(&planned.host_memory, &ran.host_memory);
    CU_ASSERT(ran.host_memory.now[WF_MEMORY_OPTIMIZER] >= 12 * (size_t)ran.parameters);
    CU_ASSERT(ran.host_memory.now[WF_MEMORY_OPTIMIZER] <= 13 * (size_t)ran.parameters);
    CU_ASSERT_EQUAL(ran.memory.now[WF_MEMORY_OPTIMIZER], 0);
    /* on the device it is the largest parameter's, the embedding's */
    CU_ASSERT_EQUAL(ran.memory.most[WF_MEMORY_OPTIMIZER], (size_t)12 * VOCABULARY * 16);
    CU_ASSERT_EQUAL(ran.memory.at_peak[WF_MEMORY_OPTIMIZER], 0);
    /* inputs of two blocks, both of which are there when the second has run */
    CU_ASSERT_EQUAL(ran.host_memory.most[WF_MEMORY_ACTIVATION],
                    (size_t)2 * BATCH * TOKENS * 16 * 2);
}

enum { MOST_COPIES = 64 };

/* The work that a rank has queued when each copy begins, and when what follows waits for it. */
static struct {
    const wf_device_memory *real;
    wf_device_memory watching;
    wf_context *ctx;
    int64_t copies;
    double begun[MOST_COPIES], joined[MOST_COPIES];
} watched;

static int64_t watch_begin(wf_device *device, void *to, const void *from, size_t bytes)
{
    int64_t copy = watched.real->copy_begin(device, to, from, bytes);

    watched.begun[copy % MOST_COPIES] = wf_context_flops(watched.ctx);
    watched.copies = copy + 1;
    return copy;
}

static void watch_join(wf_device *device, int64_t copy)
{
    watched.joined[copy % MOST_COPIES] = wf_context_flops(watched.ctx);
    watched.real->copy_join(device, copy);
}

static wf_status watch_copies(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                              int step)
{
    wf_device *device = wf_context_device(wf_par_context(par));

    (void)t, (void)rank, (void)model;
    if (step > 0)
        return WF_OK;
    watched.ctx = wf_par_context(par);
    watched.real = device->memory;
    watched.watching = *device->memory;
    watched.watching.copy_begin = watch_begin;
    watched.watching.copy_join = watch_join;
    device->memory = &watched.watching;
    return WF_OK;
}

/* Inputs of three blocks leave and come back, and the rank computes meanwhile, but for the one
   that comes first. */
static void copies_run_beside_work(void)
{
    training t = make_training(LLAMA);
    int beside = 0;

    t.model.layers = 3;
    t.steps = 1;
    t.recompute = "block";
    t.change = offload_inputs;
    t.watch = watch_copies;
    if (!train(&t))
        return;
    CU_ASSERT_EQUAL_FATAL(watched.copies, 6);
    for (int i = 0; i < 6; i++)
        beside += watched.joined[i] > watched.begun[i];
    CU_ASSERT_EQUAL(beside, 5);
}

/* Saved by a run that offloads and gone on with by one that does not, and the other way. */
static void checkpoints(void)
{
    training whole = make_training(GPT2), there, rest;
    char dir[64];
    wf_par_save_options how = {.dir = dir};

    whole.steps = 2;
    there = offloaded(&whole);
    there.steps = 1;
    rest = make_training(GPT2);
    rest.steps = 2;
    wf_test_new_folder(dir);
    if (train(&whole) && save_run(&there, &how, 1) && resume_run(&rest, dir, 1))
        CU_ASSERT_EQUAL(rest.digest, whole.digest);
    rest = offloaded(&rest);
    if (resume_run(&rest, dir, 1))
        CU_ASSERT_EQUAL(rest.digest, whole.digest);
    wf_test_remove(dir);
}

static void refused_with(training *t, const char *words)
{
    wf_error error = {WF_OK, ""};

    wf_launch(&(wf_launch_options){.ranks = (int)wf_par_ranks(&t->layout)}, training_rank, t,
              &error);
    CU_ASSERT_EQUAL(error.code, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    if (!strstr(error.text, words))
        printf("\n    %s\n", error.text);
}

static void refused(void)
{
    training base = make_training(LLAMA), t = offloaded(&base);

    t.layout.device = "cpu";
    refused_with(&t, "where device cpu has them already");
    t.change = NULL;
    refused_with(&t, "nothing is offloaded from it");
    t.layout.device = "cuda";
    t.layout.dp = 2;
    t.options.redundancy = WF_PAR_REDUNDANCY_BUDDY;
    refused_with(&t, "copies of a buddy");
}

int main(void)
{
    static const wf_test tests[] = {{"one digest over strategies", strategies},
                                    {"one digest of optimizers", optimizers},
                                    {"one digest with files", in_files},
                                    {"a plan is the run, in both memories", plan_is_run},
                                    {"copies run beside work", copies_run_beside_work},
                                    {"checkpoints", checkpoints},
                                    {"what is refused", refused},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_offload", tests);
}
