/*
 * tests/parallel/checkpoint_trial.h - a trainer on 2 x 2 ranks, and what is done with it:
 * shared by the tests of what a disk may do to checkpoints.
 */
#ifndef WF_TESTS_PARALLEL_CHECKPOINT_TRIAL_H
#define WF_TESTS_PARALLEL_CHECKPOINT_TRIAL_H

#include "tests/parallel/checkpoint_harness.h"

enum { OLD = 1, NEW = 2, BATCH = 4 };

typedef struct trial {
    const char *dir;
    wf_par_checkpoint_kind kind;
    bool async;
    bool again; /* a step that is saved already */
    int64_t cases;
    void *own; /* the test's */
    wf_status (*run)(struct trial *t, wf_rank *rank, wf_par_trainer *trainer);
} trial;

static inline wf_status trial_steps(part *p, wf_par_trainer *trainer)
{
    trial *t = p->arg;

    return t->run(t, p->rank, trainer);
}

static inline wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    training what = new_training(GPT2, HEADS, BATCH);

    what.model.layers = 1;
    what.layout.tp = what.layout.dp = 2;
    what.layout.strategy = t->kind == WF_PAR_SAVE_LOCAL ? "zero1" : "full_shard";
    return on_trainer(rank, &what, trial_steps, t);
}

static inline void run_trial(trial *t, wf_status (*run)(trial *, wf_rank *, wf_par_trainer *))
{
    t->run = run;
    run_ranks(4, trial_rank, t);
}

static inline wf_status barrier(wf_rank *rank)
{
    return wf_barrier(rank->world, &rank->error);
}

#endif
