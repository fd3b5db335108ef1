/* tests/parallel/second_step.h - the report of a run's second step, as rank 0 has it, beside
 * that of its plan. */
#ifndef WF_TESTS_PARALLEL_SECOND_STEP_H
#define WF_TESTS_PARALLEL_SECOND_STEP_H

#include "parallel/train/report.h"
#include "tests/parallel/parallel_harness.h"

/* Reports the second step on rank 0 into t->arg. */
static inline wf_status report_second_step(training *t, wf_rank *rank, wf_par *par,
                                           wf_nn_gpt *model, int step)
{
    if (rank->index == 0 && step == 1)
        wf_par_report_begin(par, t->arg);
    if (rank->index == 0 && step == 2)
        wf_par_report_end(par, (wf_nn_module *)model, t->arg);
    return WF_OK;
}

/* Plans a training that reports its second step, of this many ranks, as rank 0 has it. */
static inline void plan_second_step(training *t, int ranks, wf_par_report *planned)
{
    wf_error error = {WF_OK, ""};

    t->layout.plan = true;
    t->arg = planned;
    wf_launch(&(wf_launch_options){.ranks = ranks, .transport = "fake"}, training_rank, t,
              &error);
    CU_ASSERT_EQUAL_FATAL(error.code, WF_OK);
}

static inline void same_kinds(const wf_memory_report *planned, const wf_memory_report *ran)
{
    CU_ASSERT(ran->peak > 0);
    CU_ASSERT_EQUAL(planned->peak, ran->peak);
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        CU_ASSERT_EQUAL(planned->most[k], ran->most[k]);
}

#endif
