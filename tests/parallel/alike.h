/* tests/parallel/alike.h - a training run in which one rank does something else, and what has
   to come of it. */
#ifndef WF_TESTS_PARALLEL_ALIKE_H
#define WF_TESTS_PARALLEL_ALIKE_H

#include "kernels/ops.h"
#include "tests/harness.h"
#include "tests/parallel/parallel_harness.h"
#include <string.h>

enum { RANKS = 4, STEPS = 3 };

typedef struct trial trial;

struct trial {
    training t;
    int odd; /* the rank that does something else */
    void (*change)(training *t);
    wf_status (*steps)(trial *trial, part *p, wf_par_trainer *trainer);
    const wf_par_data *data; /* the data of the odd rank */
    wf_par_pipeline *pipeline;
    int made[RANKS]; /* steps whose update was completed */
    wf_error of[RANKS], launch;
};

static inline bool is_odd(const trial *t, const part *p)
{
    return p->rank->index == t->odd;
}

static inline wf_status run_steps(part *p, wf_par_trainer *trainer)
{
    trial *t = p->arg;

    return t->steps(t, p, trainer);
}

/* Makes whole steps, with data of each rank's own. */
static inline wf_status whole_steps(trial *t, part *p, wf_par_trainer *trainer)
{
    const wf_par_data usual = {.read = count_up};
    wf_par_step result;

    for (int step = 1; step <= STEPS; step++) {
        GOOD(wf_par_train_step(trainer, step, is_odd(t, p) && t->data ? t->data : &usual,
                               &result));
        t->made[p->rank->index]++;
    }
    return WF_OK;
}

static inline wf_status trial_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    training mine = t->t;
    wf_status status;

    mine.options.pipeline = t->pipeline;
    if (t->change && rank->index == t->odd)
        t->change(&mine);
    status = on_trainer(rank, &mine, run_steps, t);
    t->of[rank->index] = rank->error;
    return status;
}

static inline trial new_trial(int tp, int dp, int odd)
{
    trial t = {.t = new_training(GPT2, HEADS, 8), .odd = odd, .steps = whole_steps};

    t.t.layout.tp = tp;
    t.t.layout.dp = dp;
    return t;
}

static inline void run(trial *t)
{
    t->pipeline = pipeline_of(&t->t, &t->launch);
    wf_launch(&(wf_launch_options){.ranks = (int)wf_par_ranks(&t->t.layout)}, trial_rank, t,
              &t->launch);
    wf_par_pipeline_free(t->pipeline);
}

static inline void names(const wf_error *error, const char *words)
{
    if (!strstr(error->text, words))
        printf("\n    not said: %s\n    %s\n", words, error->text);
    CU_ASSERT(strstr(error->text, words) != NULL);
}

/* Demands that all ranks end alike, after a number of updates, with an error that has these
   words; the launch's is that of `rank`. */
static inline void refused(trial *t, int rank, int made, const char *a, const char *b)
{
    char begin[32];

    run(t);
    CU_ASSERT_EQUAL(t->launch.code, WF_EMISMATCH);
    snprintf(begin, sizeof begin, "rank %d: ", rank);
    CU_ASSERT(strncmp(t->launch.text, begin, strlen(begin)) == 0);
    names(&t->launch, a);
    names(&t->launch, b);
    for (int r = 0; r < RANKS; r++) {
        CU_ASSERT_EQUAL(t->of[r].code, WF_EMISMATCH);
        names(&t->of[r], a);
        CU_ASSERT_EQUAL(t->made[r], made);
    }
}

#endif
