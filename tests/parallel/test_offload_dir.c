/*
 * tests/parallel/test_offload_dir.c - the optimizer's state in files of a folder: no bit
 * changes, whatever the strategy and the optimizer; a plan is the run, of each kind of memory;
 * and a run that is killed while it writes there leaves nothing, and goes on from its
 * checkpoint.
 *
 * ctest: builds plain address
 */
#include "core/files/output_internal.h"
#include "core/files/scratch.h"
#include "core/memory/memory.h"
#include "core/offload.h"
#include "kernels/devices.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/second_step.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { BATCH = 4, STEPS = 4 };

static char state[WF_TEST_FOLDER + 16], checkpoints[WF_TEST_FOLDER + 16];

static training make_training(model_kind kind)
{
    training t = new_training(kind, 2, BATCH);

    t.model.heads = t.model.kv_heads = 2;
    t.model.layers = 2;
    t.model.width = 16;
    t.model.ffn = 32;
    t.steps = STEPS;
    return t;
}

static training in_files(const training *like)
{
    training t = *like;

    t.layout.offload_optimizer = true;
    t.layout.offload_dir = state;
    return t;
}

/* Returns how many files and folders are in the folder of states; -1: there is no such one. */
static int entries(void)
{
    DIR *dir = opendir(state);
    int n = -2; /* itself, and the one that it is in */

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return dir ? n : -1;
}

static void same_digest(const training *like)
{
    training here = *like, there = in_files(like);

    if (train(&here) && train(&there)) {
        CU_ASSERT_EQUAL(there.digest, here.digest);
        CU_ASSERT(memcmp(there.loss, here.loss, STEPS * sizeof(float)) == 0);
    }
    CU_ASSERT_EQUAL(entries(), 0);
}

static void strategies(void)
{
    static const row rows[] = {{"full_shard", .tp = 2, .dp = 2, .micro = 1},
                               {"zero1", .tp = 1, .dp = 2, .micro = 1},
                               {"no_shard", .tp = 2, .dp = 2, .micro = 2}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        training t = on_row(make_training(i ? GPT2 : LLAMA), &rows[i]);

        if (i != 1)
            t.layout.param_dtype = WF_BF16; /* masters */
        same_digest(&t);
    }
}

static void optimizers(void)
{
    static const wf_nn_method method[] = {WF_NN_MUON, WF_NN_ADAFACTOR, WF_NN_SGD,
                                          WF_NN_ADAMW8BIT};

    for (size_t i = 0; i < sizeof method / sizeof *method; i++) {
        training t = make_training(LLAMA);

        t.options.optimizer.method = method[i];
        t.options.optimizer.ema = i == 2 ? 0.5f : 0;
        same_digest(&t);
    }
}

/* Moments and masters, 12 bytes a parameter, are in files, and none of them in memory. */
static void plan_is_run(void)
{
    training base = make_training(LLAMA), t;
    wf_par_report ran = {0}, planned = {0};

    base.layout.dtype = base.layout.param_dtype = WF_BF16;
    t = in_files(&base);
    t.watch = report_second_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    CU_ASSERT_EQUAL(rmdir(state), 0);
    plan_second_step(&t, 1, &planned);
    CU_ASSERT_EQUAL(entries(), -1); /* a plan makes no folder */
    same_kinds(&planned.memory, &ran.memory);
    same_kinds(&planned.host_memory, &ran.host_memory);
    CU_ASSERT(ran.host_memory.now[WF_MEMORY_OPTIMIZER] >= 12 * (size_t)ran.parameters);
    CU_ASSERT_EQUAL(ran.memory.now[WF_MEMORY_OPTIMIZER], 0);
}

/* Ends the process in the middle of an update: some parameters' states are written to files,
   the next one's is, and others are not. */
static void die_at_update(void *arg, const wf_call *call)
{
    static int updates;

    (void)arg;
    if (strncmp(call->op->name, "adamw", 5) == 0 && ++updates == 3)
        raise(SIGKILL);
}

/* Watches the last step, which comes after the last checkpoint. */
static wf_tensor *die_late(wf_nn_module *model, const wf_par_batch *batch)
{
    static int calls;

    if (++calls == STEPS)
        wf_context_observe(model->ctx, die_at_update, NULL);
    return wf_par_gpt_loss(model, batch);
}

static void killed(void)
{
    const wf_par_save_options save = {.dir = checkpoints};
    training whole = make_training(LLAMA), t = in_files(&whole);
    int status;
    pid_t child;

    if (!train(&whole))
        return;
    t.options.loss = die_late;
    child = fork();
    if (child == 0) {
        save_run(&t, &save, 2);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CU_ASSERT_EQUAL(entries(), 0);
    t.options.loss = wf_par_gpt_loss;
    if (resume_run(&t, checkpoints, 2))
        CU_ASSERT_EQUAL(t.digest, whole.digest);
}

static void refused_with(training *t, const char *words)
{
    wf_error error = {WF_OK, ""};

    wf_launch(&(wf_launch_options){.ranks = 1, .transport = "fake"}, training_rank, t, &error);
    CU_ASSERT(error.code != WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    if (!strstr(error.text, words))
        printf("\n    %s\n", error.text);
}

static void refused(void)
{
    training base = make_training(LLAMA), t = in_files(&base);

    t.layout.offload_optimizer = false;
    refused_with(&t, "nothing of it is offloaded");
    t = in_files(&base);
    t.layout.offload_dir = "/dev/null/state";
    refused_with(&t, "cannot make directory /dev/null/state");
    t.layout.offload_dir = NULL;
    refused_with(&t, "name a folder for these");
}

/* A block has all of its bytes, and one that the disk has no room for is refused at once. */
static void blocks(void)
{
    wf_error error = {WF_OK, ""};
    wf_scratch *s = wf_scratch_open(state, &error);
    wf_allocator a;
    char *block;

    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    a = wf_scratch_allocator(s);
    block = a.alloc(a.self, 10000);
    CU_ASSERT_PTR_NOT_NULL_FATAL(block);
    memset(block, 7, 10000);
    CU_ASSERT(block[0] == 7 && block[9999] == 7);
    CU_ASSERT_EQUAL(entries(), 0);
    a.release(a.self, block, 10000);
    CU_ASSERT_PTR_NULL(a.alloc(a.self, (size_t)1 << 60));
    wf_scratch_close(s);
}

/* Makes a file that has not lost its name. Returns it, open. */
static int leave_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL, 0600);

    CU_ASSERT(fd >= 0);
    return fd;
}

/* Opens a folder in which killed programs left files: these go; one of a living program, and
   one that is no scratch file, stay. */
static void left_over(void)
{
    wf_error error = {WF_OK, ""};
    char name[WF_FILES_NAME];
    int folder = open(state, O_RDONLY | O_DIRECTORY), used;

    close(leave_file(folder, wf_output_partial("scratch", 7, name)));
    close(leave_file(folder, ".scratch.mine"));
    used = leave_file(folder, wf_output_partial("scratch", 9, name));
    CU_ASSERT_EQUAL(flock(used, LOCK_EX | LOCK_NB), 0);
    CU_ASSERT_EQUAL(entries(), 3);
    wf_scratch_close(wf_scratch_open(state, &error));
    CU_ASSERT_EQUAL(entries(), 2);
    close(used);
    wf_scratch_close(wf_scratch_open(state, &error));
    CU_ASSERT_EQUAL(entries(), 1);
    CU_ASSERT_EQUAL(unlinkat(folder, ".scratch.mine", 0), 0);
    close(folder);
}

/* A tensor that rests in a file already stays there, and takes no other one. */
static void twice(void)
{
    const wf_dim dim = wf_dim_width(1000);
    const wf_context_options options = {.offload_dir = state,
                                        .offload_allocator = wf_host_allocator()};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), &options, &error);
    wf_memory_report before, after;
    wf_tensor *t;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_OPTIMIZER);
    CU_ASSERT_EQUAL(wf_tensor_offload(t), WF_OK);
    wf_pool_report(wf_context_host_pool(ctx), &before);
    CU_ASSERT_EQUAL(wf_tensor_offload(t), WF_OK);
    wf_pool_report(wf_context_host_pool(ctx), &after);
    CU_ASSERT(before.in_use > 0);
    CU_ASSERT_EQUAL(after.in_use, before.in_use);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"one digest over strategies", strategies},
                                    {"one digest of optimizers", optimizers},
                                    {"a plan is the run, in memory and files", plan_is_run},
                                    {"a run that is killed", killed},
                                    {"what is refused", refused},
                                    {"blocks", blocks},
                                    {"what killed programs left", left_over},
                                    {"twice", twice},
                                    {NULL, NULL}};
    char folder[WF_TEST_FOLDER];

    wf_test_new_folder(folder);
    snprintf(state, sizeof state, "%s/state", folder);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
    return wf_test_main("offload to files", tests);
}
