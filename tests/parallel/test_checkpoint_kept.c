/*
 * tests/parallel/test_checkpoint_kept.c - which steps a saver deletes and which it keeps: those
 * of a run that was given up, of one that went back, and where a directory cannot be read; none
 * is made of a step that failed.
 *
 * ctest: builds address thread
 */
#include "parallel/checkpoint/saver_internal.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/checkpoint_folder.h"
#include <errno.h>

/* ---- which ones are deleted ---- */

typedef struct unreadable {
    bool fails;
} unreadable;

static int next_fails(void *self, DIR *directory, char name[WF_FILES_NAME])
{
    const unreadable *u = self;

    errno = ESTALE;
    return u->fails ? -1 : wf_system_files.next(NULL, directory, name);
}

/* A run saves 1 to 5; one goes on from 2 and saves 6 to 9, which come later than 3 to 5. */
static wf_status give_up_and_go_on(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_save_options how = {.dir = t->dir};
    wf_par_saver *saver = wf_par_saver_open(trainer, &how);
    wf_par_checkpoint *c;
    text path;

    GOOD(save_steps(t, rank, saver, 1, 5));
    wf_par_saver_close(saver);
    c = wf_par_checkpoint_open(in(path, t->dir, "step-00000002"), &rank->error);
    NEED(c);
    GOOD(wf_par_checkpoint_load(trainer, c, &rank->error));
    wf_par_checkpoint_close(c);
    how.keep = 2;
    saver = wf_par_saver_open(trainer, &how);
    GOOD(save_steps(t, rank, saver, 4, 4));
    GOOD(save_steps(t, rank, saver, 6, 7));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void a_run_that_was_given_up_stays(void)
{
    static const bool stays[] = {false, false, true, false, true, true, true};
    char dir[64];
    trial t = {.dir = dir};
    wf_error error;

    wf_test_new_folder(dir);
    run_trial(&t, give_up_and_go_on);
    for (int step = 1; step <= 7; step++) {
        char name[32];

        snprintf(name, sizeof name, "step-%08d", step);
        CU_ASSERT_EQUAL(is_there(dir, name), stays[step - 1]);
    }
    CU_ASSERT_STRING_EQUAL(listed(dir, 0, &error), "step-00000007");
    wf_test_remove(dir);
}

/* Checkpoints of a run from before it went back belong to it, and are older than all that it
   keeps. */
static wf_status go_back(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .keep = 2});

    GOOD(save_steps(t, rank, saver, 8, 9));
    GOOD(save_steps(t, rank, saver, 3, 4));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void a_run_that_goes_back_keeps_the_new(void)
{
    char dir[64];
    trial t = {.dir = dir};

    wf_test_new_folder(dir);
    run_trial(&t, go_back);
    CU_ASSERT(is_there(dir, "step-00000003") && is_there(dir, "step-00000004"));
    CU_ASSERT(!is_there(dir, "step-00000008") && !is_there(dir, "step-00000009"));
    wf_test_remove(dir);
}

/* Checkpoints after the step that a run went back to are deleted before those in front of it,
   however near: the lowest of them first. */
static wf_status go_back_a_little(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir, .keep = 3});

    GOOD(save_steps(t, rank, saver, 1, 1));
    GOOD(save_steps(t, rank, saver, 8, 9));
    GOOD(save_steps(t, rank, saver, 7, 7));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void what_is_left_goes_first(void)
{
    static const int64_t stays[] = {1, 7, 9};
    char dir[64];
    trial t = {.dir = dir};

    wf_test_new_folder(dir);
    run_trial(&t, go_back_a_little);
    for (int64_t step = 1, i = 0; step <= 9; step++) {
        char name[32];
        bool expected = i < 3 && stays[i] == step;

        snprintf(name, sizeof name, "step-%08d", (int)step);
        CU_ASSERT_EQUAL(is_there(dir, name), expected);
        i += expected;
    }
    wf_test_remove(dir);
}

static wf_status save_unseen(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    unreadable *u = t->own;
    wf_file_calls calls = wf_system_files;
    wf_par_save_options how = {.dir = t->dir, .keep = 2};
    wf_error error = {WF_OK, ""};
    wf_par_saver *saver;

    calls.self = u;
    calls.next = next_fails;
    saver = wf_par_saver_open(trainer, &how);
    NEED(saver);
    saver->calls = &calls;
    GOOD(save_steps(t, rank, saver, 1, 2));
    if (rank->index == 0)
        u->fails = true;
    GOOD(barrier(rank));
    NEED(wf_par_saver_save(saver, 3, &error) == WF_EIO);
    NEED(strstr(error.text, "cannot read directory"));
    wf_par_saver_close(saver);
    return WF_OK;
}

static void a_directory_that_cannot_be_read(void)
{
    char dir[64];
    unreadable u = {.fails = false};
    trial t = {.dir = dir, .own = &u};

    wf_test_new_folder(dir);
    run_trial(&t, save_unseen);
    CU_ASSERT(whole(dir, "step-00000001") && whole(dir, "step-00000002"));
    wf_test_remove(dir);
}

/* ---- what is not saved ---- */

/* One step, whose update fails at the last parameter: the gradient's memory is gone. */
static wf_status update_half(wf_par_trainer *trainer, int64_t step)
{
    const wf_par_train_state s = wf_par_trainer_state(trainer);
    const wf_par_data data = {.read = count_up};

    wf_par_step_begin(trainer, step);
    wf_par_forward_backward(trainer, &data);
    wf_par_reduce(trainer, NULL);
    wf_tensor_drop(wf_par_gradient(trainer, s.parameter[s.count - 1]));
    return wf_par_optimizer_step(trainer, 0.1f);
}

/* After a failed update the state is that of no step: while the context has its error, and
   after it was cleared, until a checkpoint is loaded. */
static wf_status save_a_failed_step(trial *t, wf_rank *rank, wf_par_trainer *trainer)
{
    wf_par_saver *saver = wf_par_saver_open(trainer, &(wf_par_save_options){.dir = t->dir});
    wf_context *ctx = wf_par_context(wf_par_trainer_state(trainer).par);
    const wf_par_data data = {.read = count_up};
    wf_par_checkpoint *c;
    uint64_t before, after = 0;
    text path;

    GOOD(wf_par_train_step(trainer, 1, &data, NULL));
    GOOD(wf_par_trainer_digest(trainer, &before));
    GOOD(save_steps(t, rank, saver, 1, 1));
    NEED(update_half(trainer, 2) == WF_EINVAL);
    for (int cleared = 0; cleared < 2; cleared++) {
        wf_error error = {WF_OK, ""};

        NEED(wf_par_saver_save(saver, 2, &error) == WF_EINVAL &&
             wf_par_saver_saved(saver) == 1);
        NEED(strstr(error.text, cleared ? "the update after step 1 failed before its end"
                                        : "was given back"));
        wf_context_clear(ctx);
    }
    NEED(wf_par_trainer_digest(trainer, &after) == WF_EINVAL && after == 0);
    GOOD(refused(rank, ctx, NULL, WF_EINVAL, "failed before its end"));
    NEED(wf_par_train_step(trainer, 2, &data, NULL) == WF_EINVAL);
    GOOD(refused(rank, ctx, NULL, WF_EINVAL, "failed before its end"));
    NEED(wf_par_evaluate(trainer, 1, &data, NULL, NULL) == WF_EINVAL);
    GOOD(refused(rank, ctx, NULL, WF_EINVAL, "failed before its end"));
    c = wf_par_checkpoint_open(in(path, t->dir, "step-00000001"), &rank->error);
    GOOD(wf_par_checkpoint_load(trainer, c, &rank->error));
    wf_par_checkpoint_close(c);
    GOOD(wf_par_trainer_digest(trainer, &after));
    NEED(before == after);
    wf_par_saver_close(saver);
    return barrier(rank);
}

static void a_failed_step_is_not_saved(void)
{
    char dir[64];
    trial t = {.dir = dir};

    wf_test_new_folder(dir);
    run_trial(&t, save_a_failed_step);
    CU_ASSERT(whole(dir, "step-00000001") && !is_there(dir, "step-00000002"));
    wf_test_remove(dir);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a run that was given up stays", a_run_that_was_given_up_stays},
        {"a run that goes back keeps the new", a_run_that_goes_back_keeps_the_new},
        {"what lies behind goes first", what_is_left_goes_first},
        {"a directory that cannot be read", a_directory_that_cannot_be_read},
        {"a failed step is not saved", a_failed_step_is_not_saved},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_kept", tests);
}
