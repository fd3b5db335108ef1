/*
 * tests/parallel/test_checkpoint_slow.c - a disk may be as slow as it likes: a rank that saves
 * or loads, a checkpoint or a model, or reads data for longer than a stall may last does not
 * stall, and its checkpoint is not lost.
 *
 * ctest: builds address thread
 */
#include "parallel/checkpoint/saver_internal.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include "tests/parallel/checkpoint_trial.h"
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const double limit = 0.5;

/* One call of the next operation takes longer than the limit. */
typedef struct slow {
    _Atomic bool sync, read, data;
} slow;

static void nap(_Atomic bool *once)
{
    if (atomic_exchange(once, false))
        nanosleep(&(struct timespec){.tv_nsec = (long)(1.3 * limit * 1e9)}, NULL);
}

/* A model is exported through the system's own calls, so these stand before the C library's:
   rank 0 removes before it creates, and renames when it publishes. */
static struct {
    _Atomic bool remove, rename, sync;
} export_calls;

int unlinkat(int in, const char *name, int flags)
{
    nap(&export_calls.remove);
    return (int)syscall(SYS_unlinkat, in, name, flags);
}

int renameat(int from, const char *old, int to, const char *new)
{
    nap(&export_calls.rename);
    return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int fsync(int fd)
{
    nap(&export_calls.sync);
    return (int)syscall(SYS_fsync, fd);
}

static int slow_sync(void *self, int fd)
{
    slow *s = self;

    nap(&s->sync);
    return wf_system_files.sync(NULL, fd);
}

static int64_t slow_read(void *self, int fd, void *data, size_t bytes, int64_t at)
{
    slow *s = self;

    nap(&s->read);
    return wf_system_files.read(NULL, fd, data, bytes, at);
}

static wf_status save_and_load(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_file_calls calls = wf_system_files;
    slow *s = t->own;
    wf_par_checkpoint *c;
    char path[256];

    calls.self = s;
    calls.sync = slow_sync;
    calls.read = slow_read;
    for (int step = 1; step <= 2; step++) {
        wf_par_save_options how = {.dir = t->dir, .async = step == 2};
        wf_par_saver *saver = wf_par_saver_open(trainer, &how);

        NEED(saver);
        saver->calls = &calls;
        if (rank->index == 2)
            atomic_store(&s->sync, true);
        GOOD(barrier(rank));
        GOOD(wf_par_saver_save(saver, step, &rank->error));
        GOOD(wf_par_saver_finish(saver, &rank->error));
        wf_par_saver_path(saver, step, path, sizeof path);
        wf_par_saver_close(saver);
    }
    NEED(!atomic_load(&s->sync));
    c = wf_checkpoint_open(path, &calls, &rank->error);
    NEED(c);
    GOOD(barrier(rank));
    if (rank->index == 0)
        atomic_store(&s->read, true);
    GOOD(barrier(rank));
    GOOD(wf_par_checkpoint_load(trainer, c, &rank->error));
    NEED(!atomic_load(&s->read));
    wf_par_checkpoint_close(c);
    return WF_OK;
}

static wf_status slow_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    slow *s = self;

    nap(&s->data);
    return count_up(NULL, step, first, count, field, error);
}

static wf_status train_and_export(part *p, wf_par_trainer *trainer)
{
    trial *t = p->arg;
    slow *s = t->own;
    wf_rank *rank = p->rank;
    wf_file_calls calls = wf_system_files;
    const wf_par_data data = {.read = slow_data, .self = s};
    wf_par_step result;

    calls.self = s;
    calls.read = slow_read;
    GOOD(wf_par_train_step(trainer, 1, &data, &result));
    NEED(!atomic_load(&s->data));
    if (rank->index == 0) {
        atomic_store(&export_calls.remove, true);
        atomic_store(&export_calls.sync, true);
        atomic_store(&export_calls.rename, true);
    }
    GOOD(barrier(rank));
    GOOD(wf_par_pretrained_save(p->par, p->gpt, t->dir, "f32", NULL));
    NEED(!atomic_load(&export_calls.remove) && !atomic_load(&export_calls.sync));
    NEED(!atomic_load(&export_calls.rename));
    if (rank->index == 1)
        atomic_store(&s->read, true);
    GOOD(barrier(rank));
    GOOD(wf_hf_load(p->par, p->gpt, &calls, t->dir));
    NEED(!atomic_load(&s->read));
    return barrier(rank);
}

static wf_status model_rank(wf_rank *rank, void *arg)
{
    training what = new_training(GPT2, HEADS, BATCH);

    what.model.layers = 1;
    what.layout.dp = 4;
    return on_trainer(rank, &what, train_and_export, arg);
}

static void run(wf_status (*rank_main)(wf_rank *, void *), trial *t, slow *s)
{
    char dir[64];
    wf_error error = {WF_OK, ""};

    if (UNDER_SANITIZER) /* all else is that slow there, too */
        return;
    wf_test_new_folder(dir);
    t->dir = dir;
    t->own = s;
    wf_launch(&(wf_launch_options){.ranks = 4, .stall_timeout = limit}, rank_main, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
    wf_test_remove(dir);
}

static void slow_files_are_no_stall(void)
{
    slow s = {.sync = false};
    trial t = {.run = save_and_load};

    run(trial_rank, &t, &s);
}

static void slow_data_and_models_are_no_stall(void)
{
    slow s = {.data = true};
    trial t = {.cases = 0};

    run(model_rank, &t, &s);
}

int main(void)
{
    static const wf_test tests[] = {
        {"slow files are no stall", slow_files_are_no_stall},
        {"slow data and models are no stall", slow_data_and_models_are_no_stall},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_slow", tests);
}
