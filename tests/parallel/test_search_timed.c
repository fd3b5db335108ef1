/*
 * tests/parallel/test_search_timed.c - a step timed by its plans, as that of a model of unknown
 * sizes is, beside the same step by the sizes of a transformer: the formulas of one are the ops
 * and transfers of the other.
 */
#include "parallel/plan/search_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include <string.h>

typedef struct layout {
    int64_t pp, tp, dp, micro;
    const char *schedule, *strategy;
    int64_t group; /* ranks that shard; 0: all of dp */
    const char *family;
    int64_t ep;
    bool sequence_parallel;
    const char *recompute;
    int64_t cp; /* 0 as 1 */
    const char *form;
} layout;

static const layout layouts[] = {
    {1, 1, 1, 2, "1f1b", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 1, 4, 2, "1f1b", "no_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 1, 4, 2, "1f1b", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 4, 1, 2, "1f1b", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 2, 2, 2, "1f1b", "zero1", 0, "llama", 0, false, "none", 0, NULL},
    {2, 1, 1, 1, "1f1b", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {4, 1, 1, 1, "zb-h1", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {2, 1, 2, 1, "interleaved", "shard_grad_op", 0, "llama", 0, false, "none", 0, NULL},
    {2, 2, 1, 1, "zb-v", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 1, 16, 1, "1f1b", "hybrid_shard", 8, "llama", 0, false, "none", 0,
     NULL}, /* copies on two hosts */
    {1, 2, 4, 1, "1f1b", "full_shard", 0, "llama", 0, false, "none", 0, NULL},
    {1, 2, 4, 1, "1f1b", "full_shard", 0, "mixtral", 0, false, "none", 0, NULL},
    {1, 1, 8, 1, "1f1b", "full_shard", 0, "mixtral", 8, false, "none", 0, NULL},
    {1, 1, 8, 2, "1f1b", "full_shard", 0, "mixtral", 2, false, "none", 0, NULL},
    {1, 1, 1, 2, "1f1b", "full_shard", 0, "mixtral", 0, false, "none", 0, NULL},
    {1, 2, 1, 2, "1f1b", "full_shard", 0, "mixtral", 0, false, "none", 0, NULL},
    {1, 1, 8, 1, "1f1b", "full_shard", 0, "mixtral", 4, false, "none", 0, NULL},
    {1, 1, 4, 2, "1f1b", "no_shard", 0, "mixtral", 2, false, "none", 0, NULL},
    {1, 1, 4, 1, "1f1b", "zero1", 0, "mixtral", 4, false, "none", 0, NULL},
    {1, 2, 4, 1, "1f1b", "full_shard", 0, "mixtral", 4, true, "none", 0, NULL},
    {1, 2, 4, 1, "1f1b", "full_shard", 0, "mixtral", 8, false, "block", 0, NULL},
    {2, 1, 4, 1, "1f1b", "full_shard", 0, "mixtral", 2, false, "none", 0, NULL},
    {1, 1, 16, 1, "1f1b", "hybrid_shard", 8, "mixtral", 4, false, "none", 0, NULL},
    {1, 1, 1, 1, "1f1b", "full_shard", 0, "llama", 0, false, "none", 4, "heads"},
    {1, 2, 2, 2, "1f1b", "full_shard", 0, "llama", 0, false, "none", 2, "heads"},
    {2, 1, 2, 1, "1f1b", "no_shard", 0, "llama", 0, false, "block", 4, "heads"},
    {1, 1, 2, 1, "1f1b", "zero1", 0, "mixtral", 0, false, "none", 2, "heads"},
    {1, 2, 1, 1, "1f1b", "full_shard", 0, "llama", 0, true, "none", 2, "gather"},
};

static wf_plan_request *ask(const layout *l, gpt_request *made)
{
    wf_plan_request *r = gpt_request_make(l->family, 8, 1024, 512, 16, made);

    r->pp = l->pp;
    r->tp = l->tp;
    r->dp = l->dp;
    r->ep = l->ep;
    r->cp = l->cp ? l->cp : 1;
    if (l->form)
        snprintf(r->cp_form, sizeof r->cp_form, "%s", l->form);
    r->sequence_parallel = l->sequence_parallel;
    snprintf(r->recompute, sizeof r->recompute, "%s", l->recompute);
    r->micro_batch_size = l->micro;
    r->shard_group_size = l->group;
    r->pp_schedule = l->schedule;
    snprintf(r->strategy, sizeof r->strategy, "%s", l->strategy);
    snprintf(r->dtype, sizeof r->dtype, "bf16");
    snprintf(r->param_dtype, sizeof r->param_dtype, "bf16");
    snprintf(r->compute, sizeof r->compute, "bf16");
    r->rank = wf_plan_ranks(r) - 1;
    return r;
}

static void plans_are_sizes(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i];
        wf_error error = {WF_OK, ""};
        char machine[WF_SIM_NAME];
        gpt_request made;
        wf_plan_request *r = ask(l, &made);
        wf_search_found by_sizes, by_plans;
        double ratio;

        CU_ASSERT_EQUAL(wf_search_time(r, &by_sizes, machine, &error), WF_OK);
        r->job.sizes = NULL;
        CU_ASSERT_EQUAL(wf_search_time(r, &by_plans, machine, &error), WF_OK);
        ratio = by_plans.seconds / by_sizes.seconds;
        printf(
            "\n    %s pp %d tp %d dp %d ep %d cp %d %s %s: %.5f s by plans, %.5f s by sizes, "
            "ratio %.3f",
            l->family, (int)l->pp, (int)l->tp, (int)l->dp, (int)l->ep, (int)l->cp, l->schedule,
            l->strategy, by_plans.seconds, by_sizes.seconds, ratio);
        CU_ASSERT(ratio > 0.9 && ratio < 1.08);
        if (error.code != WF_OK)
            printf("\n    %s", error.text);
    }
}

/* A search plans one rank to know a model, which has nobody to exchange tokens with. */
static void sizes_of_one_rank(void)
{
    static const layout exchanges = {.pp = 1,
                                     .tp = 1,
                                     .dp = 2,
                                     .micro = 2,
                                     .schedule = "1f1b",
                                     .strategy = "no_shard",
                                     .family = "mixtral",
                                     .ep = 2,
                                     .recompute = "none"};
    wf_error error = {WF_OK, ""};
    char machine[WF_SIM_NAME];
    gpt_request made;
    wf_plan_request *r = ask(&exchanges, &made);
    wf_search_found found;

    r->job.sizes = NULL;
    r->job.mesh.dispatch = WF_PAR_DISPATCH_EXCHANGE;
    CU_ASSERT_EQUAL(wf_search_time(r, &found, machine, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
}

int main(void)
{
    static const wf_test tests[] = {
        {"a step takes as long by its plans as by its sizes", plans_are_sizes},
        {"a model is known by a rank without others", sizes_of_one_rank},
        {NULL, NULL},
    };

    return wf_test_main("steps timed by plans", tests);
}
