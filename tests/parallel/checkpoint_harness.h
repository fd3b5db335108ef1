/*
 * tests/parallel/checkpoint_harness.h - training runs that are saved and gone on with, over the
 * runs of parallel_harness.h.
 */
#ifndef WF_TESTS_PARALLEL_CHECKPOINT_HARNESS_H
#define WF_TESTS_PARALLEL_CHECKPOINT_HARNESS_H

#include "core/files/files_internal.h"
#include "parallel/checkpoint/verify_internal.h"
#include "tests/parallel/rows.h"
#include <unistd.h>

/* The saves and the load of a run: it saves after some steps, or loads before the first. */
typedef struct saving {
    training *t;
    const wf_par_save_options *save; /* NULL: no */
    int every;                       /* steps between saves */
    const char *load; /* directory of checkpoints, the first of which is loaded; NULL: no */
    int loaded;       /* the step that the one loaded has to be of */
    wf_status saves;  /* the status of rank 0's last save */
    wf_error save_error;
} saving;

static inline wf_status load_first(saving *s, wf_rank *rank, wf_par_trainer *trainer)
{
    char **paths = NULL;
    int64_t count = 0;
    wf_par_checkpoint *c = NULL;
    wf_status status = wf_par_checkpoint_list(s->load, &paths, &count, &rank->error);

    if (status == WF_OK && count > 0)
        c = wf_par_checkpoint_open(paths[0], &rank->error);
    for (int64_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    if (!c)
        return wf_error_set(&rank->error, WF_EDATA, "no checkpoint in %s", s->load);
    status = wf_par_checkpoint_load(trainer, c, &rank->error);
    if (status == WF_OK && wf_par_checkpoint_step(c) != s->loaded)
        status = wf_error_set(&rank->error, WF_EINTERNAL, "loaded another step");
    wf_par_checkpoint_close(c);
    return status;
}

static inline void note(saving *s, wf_rank *rank, wf_status status, const wf_error *error)
{
    if (rank->index == 0 && status != WF_OK) {
        s->saves = status;
        s->save_error = *error;
    }
}

/* One step, with what belongs to it; a save that fails does not end training. */
static inline wf_status saved_step(saving *s, wf_rank *rank, wf_par_trainer *trainer,
                                   wf_par_saver *saver, int step)
{
    const wf_par_data data = {.read = count_up, .self = &s->t->options.field[0].dim[0].size};
    wf_error error = {WF_OK, ""};
    wf_par_step result;

    GOOD(wf_par_train_step(trainer, step, &data, &result));
    if (rank->index == 0)
        s->t->loss[step - 1] = result.loss;
    note(s, rank, wf_par_saver_poll(saver, &error), &error);
    if (!saver || step % s->every)
        return WF_OK;
    error = (wf_error){WF_OK, ""};
    note(s, rank, wf_par_saver_finish(saver, &error), &error);
    error = (wf_error){WF_OK, ""};
    note(s, rank, wf_par_saver_save(saver, step, &error), &error);
    return WF_OK;
}

static inline wf_status saving_steps(part *p, wf_par_trainer *trainer)
{
    saving *s = p->arg;
    wf_par_saver *saver = s->save ? wf_par_saver_open(trainer, s->save) : NULL;
    wf_error error = {WF_OK, ""};
    int first = 1;

    if (s->load) {
        GOOD(load_first(s, p->rank, trainer));
        first = s->loaded + 1;
    }
    for (int step = first; step <= s->t->steps && wf_context_status(p->ctx) == WF_OK; step++)
        saved_step(s, p->rank, trainer, saver, step);
    if (wf_context_status(p->ctx) == WF_OK)
        note(s, p->rank, wf_par_saver_finish(saver, &error), &error);
    wf_par_saver_close(saver);
    keep_digest(s->t, p, trainer);
    return WF_OK;
}

static inline wf_status saving_rank(wf_rank *rank, void *arg)
{
    saving *s = arg;

    return on_trainer(rank, s->t, saving_steps, s);
}

static inline wf_status run_saving(saving *s, wf_error *error)
{
    *error = (wf_error){WF_OK, ""};
    wf_launch(&(wf_launch_options){.ranks = s->t->layout.tp * s->t->layout.dp}, saving_rank, s,
              error);
    return error->code;
}

/* Runs and saves at an interval of steps; returns true where all went well, which the test
   demands. */
static inline bool save_run(training *t, const wf_par_save_options *how, int every)
{
    saving s = {.t = t, .save = how, .every = every};
    wf_error error;
    bool good = run_saving(&s, &error) == WF_OK && s.saves == WF_OK;

    CU_ASSERT_TRUE(good);
    if (!good)
        printf("\n    saving: %s%s\n", error.text, s.save_error.text);
    return good;
}

static inline wf_status try_resume(training *t, const char *dir, int step, wf_error *error)
{
    saving s = {.t = t, .load = dir, .loaded = step};

    return run_saving(&s, error);
}

static inline bool resume_run(training *t, const char *dir, int step)
{
    wf_error error;
    bool good = try_resume(t, dir, step, &error) == WF_OK;

    CU_ASSERT_TRUE(good);
    if (!good)
        printf("\n    resuming: %s\n", error.text);
    return good;
}

#endif
