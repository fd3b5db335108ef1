/*
 * tests/parallel/checkpoint_trial.h - a trainer on 2 x 2 ranks, and what is done with it: shared by
 * the tests of what a disk may do to checkpoints.
 */
#ifndef WF_TESTS_PARALLEL_CHECKPOINT_TRIAL_H
#define WF_TESTS_PARALLEL_CHECKPOINT_TRIAL_H

#include "tests/parallel/checkpoint_harness.h"

enum { OLD = 1, NEW = 2, BATCH = 4 };

typedef struct trial {
    const char *dir;
    wf_par_checkpoint_kind kind;
    bool async;
    int64_t cases;
    void *own; /* of the test */
    wf_status (*run)(struct trial *t, wf_rank *rank, wf_par_trainer *trainer);
} trial;

static inline wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    training what = new_training(WF_NN_GPT2, HEADS, BATCH);
    wf_par *par;
    wf_nn_module *model;
    wf_par_trainer *trainer;
    wf_status status;

    what.model.layers = 1;
    what.layout.tp = what.layout.dp = 2;
    what.layout.strategy = t->kind == WF_PAR_SAVE_LOCAL ? "zero1" : "full_shard";
    par = wf_par_open(rank, &what.layout, &rank->error);
    if (!par)
        return rank->error.code;
    model = (wf_nn_module *)wf_nn_gpt_new(wf_par_context(par), &what.model);
    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &what.options);
    status = trainer ? t->run(t, rank, trainer) : WF_EINTERNAL;
    if (wf_context_status(wf_par_context(par)) != WF_OK)
        wf_error_set(&rank->error, WF_EINTERNAL, "%s",
                     wf_context_error(wf_par_context(par))->text);
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    wf_par_close(par);
    return status;
}

static inline void run_trial(trial *t, wf_status (*run)(trial *, wf_rank *, wf_par_trainer *))
{
    wf_error error = {WF_OK, ""};

    t->run = run;
    wf_launch(&(wf_launch_options){.ranks = 4}, trial_rank, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s\n", error.text);
}

static inline wf_status barrier(wf_rank *rank)
{
    return wf_barrier(rank->world, &rank->error);
}

#endif
