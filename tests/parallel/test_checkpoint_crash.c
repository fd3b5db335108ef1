/*
 * tests/parallel/test_checkpoint_crash.c - the machine stops at any moment of a save: every
 * file call of a save on 4 ranks is recorded, and the disk is put together as it may be
 * afterwards (recorded_files.h). In each such state the old checkpoint or the new one is whole,
 * and it is the new one as soon as the save has returned.
 *
 * ctest: builds plain
 */
#include "parallel/checkpoint/saver_internal.h"
#include "core/numerics/bits.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/recorded_files.h"

enum { BATCH = 4, STATES = UNDER_SANITIZER ? 100 : 1000 };
enum { FIRST = 1, OLD = 2, NEW = 3 };

/* The digest of what a run would go on from: the first that is whole; 0: there is none. */
static uint64_t goes_on_from(const char *dir, int64_t *step, bool *first_whole)
{
    wf_error error = {WF_OK, ""};
    uint64_t digest = 0;
    char **paths;
    int64_t count;

    *step = 0;
    *first_whole = false;
    if (wf_par_checkpoint_list(dir, &paths, &count, &error) != WF_OK)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        wf_error why = {WF_OK, ""};
        wf_par_checkpoint *c = *step ? NULL : wf_par_checkpoint_open(paths[i], &why);

        if (c && wf_par_checkpoint_verify(c, &why) == WF_OK) {
            *step = wf_par_checkpoint_step(c);
            digest = c->index.digest;
            *first_whole = i == 0;
        }
        wf_par_checkpoint_close(c);
        free(paths[i]);
    }
    free(paths);
    return digest;
}

typedef struct crashes {
    const char *dir;
    bool again; /* the last save is of the step before once more, with other values */
    uint64_t digest[NEW + 1];
    int before, after; /* calls before the save of NEW began, and when it had returned */
} crashes;

static wf_status save_three(part *p, wf_par_trainer *trainer)
{
    crashes *c = p->arg;
    wf_rank *rank = p->rank;
    const wf_par_data data = {.read = count_up};
    wf_par_saver *saver =
        wf_par_saver_open(trainer, &(wf_par_save_options){.dir = c->dir, .keep = 2});

    NEED(saver);
    saver->calls = &recorded_files;
    for (int step = FIRST; step <= NEW; step++) {
        wf_par_step result;

        GOOD(wf_par_train_step(trainer, step, &data, &result));
        if (rank->index == 0 && step == NEW)
            c->before = recorded_calls();
        GOOD(wf_barrier(rank->world, &rank->error));
        GOOD(wf_par_saver_save(saver, c->again && step == NEW ? OLD : step, &rank->error));
        GOOD(wf_par_trainer_digest(trainer, &c->digest[rank->index == 0 ? step : 0]));
    }
    c->after = recorded_calls();
    wf_par_saver_close(saver);
    return WF_OK;
}

static wf_status save_three_rank(wf_rank *rank, void *arg)
{
    training what = new_training(GPT2, HEADS, BATCH);

    what.model.layers = 1;
    what.layout.tp = what.layout.dp = 2;
    return on_trainer(rank, &what, save_three, arg);
}

static void check_state(const crashes *c, const char *dir, int until, int mode, uint64_t random,
                        bool *is_new)
{
    bool whole, good;
    int64_t step;
    uint64_t digest;

    CU_ASSERT(crash_after(until, mode, random, dir));
    digest = goes_on_from(dir, &step, &whole);
    *is_new = digest == c->digest[NEW];
    good = (*is_new || digest == c->digest[OLD]) &&
           step == (*is_new && !c->again ? NEW : OLD) && whole && (until < c->after || *is_new);
    CU_ASSERT(good);
    if (!good)
        printf("\n    after call %d of %d, mode %d: step %d, the first %s\n", until,
               recorded_calls(), mode, (int)step, whole ? "whole" : "torn");
    wf_test_remove(dir);
}

static void crash_everywhere(bool again, int most)
{
    crashes c = {.again = again};
    char dir[64], after[64];
    wf_error error = {WF_OK, ""};
    int states = 0, news = 0;
    uint64_t random = 7;

    wf_test_new_folder(dir);
    wf_test_new_folder(after);
    c.dir = dir;
    record_files(dir);
    wf_launch(&(wf_launch_options){.ranks = 4}, save_three_rank, &c, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT(recorded_calls() < MOST_RECORDED && c.after > c.before + 100);
    while (error.code == WF_OK && states < most) {
        bool is_new;
        int until = c.before + (int)((int64_t)states * (c.after - c.before) / (most - 1));

        random = wf_mix64(random);
        check_state(&c, after, until, states % 4, random, &is_new);
        states++;
        news += is_new;
    }
    CU_ASSERT(news > 10 && news < states - 10);
    forget_recorded();
    wf_test_remove(dir);
}

static void every_crash(void)
{
    crash_everywhere(false, STATES);
}

static void every_crash_of_a_replacement(void)
{
    crash_everywhere(true, STATES / 4);
}

int main(void)
{
    static const wf_test tests[] = {
        {"whenever the machine stops, the old checkpoint or the new one is whole", every_crash},
        {"the same where a step is saved again", every_crash_of_a_replacement},
        {NULL, NULL},
    };

    return wf_test_main("checkpoint_crash", tests);
}
