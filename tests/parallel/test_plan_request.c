/* tests/parallel/test_plan_request.c - a job as a request: axes of a program's own, and
   settings as words. */
#include "parallel/plan/search_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include <string.h>

/* The batch is split over axes of other names, too. */
static void own_axes(void)
{
    gpt_request made;
    wf_plan_request *r = gpt_request_make("llama", 2, 64, 32, 8, &made), own;
    wf_error error = {WF_OK, ""};
    wf_par_job job = r->job;
    wf_plan plan;

    job.mesh.axes = WF_AXES({"replicate", 2}, {"shard", 2}, {"tp", 1});
    wf_plan_request_of(&job, &own);
    CU_ASSERT_EQUAL(wf_plan_ranks(&own), 4);
    CU_ASSERT_EQUAL(wf_plan_data_ranks(&own), 4);
    CU_ASSERT_EQUAL(own.micro_batch_size, 2);
    CU_ASSERT_EQUAL(wf_plan_micro_steps(&own), 1);
    CU_ASSERT_EQUAL(wf_plan_idle(&own), 0);
    CU_ASSERT_EQUAL(wf_plan_request_step(&own, &plan, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
    own.machine = WEFT_MACHINE;
    CU_ASSERT_EQUAL(wf_search_run(&own, stdout, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "this mesh has another one"));
}

static void which_split(void)
{
    const wf_par_options usual = {.axes = WF_AXES({"replicate", 2}, {"shard", 2})},
                         dp = {.axes = WF_AXES({"dp", 2}, {"shard", 2})},
                         named = {.axes = WF_AXES({"rows", 2}, {"row", 2}), .dp_axes = "rows"};

    CU_ASSERT(wf_par_splits_batch(&usual, "replicate") && wf_par_splits_batch(&usual, "shard"));
    CU_ASSERT(!wf_par_splits_batch(&usual, "tp"));
    CU_ASSERT(wf_par_splits_batch(&dp, "dp") && !wf_par_splits_batch(&dp, "shard"));
    CU_ASSERT(wf_par_splits_batch(&named, "rows") && !wf_par_splits_batch(&named, "row"));
}

static void words(void)
{
    char name[WF_PLAN_FLAG];

    CU_ASSERT(wf_plan_has_word(WF_SETTING_accumulate, "group:4"));
    CU_ASSERT(!wf_plan_has_word(WF_SETTING_accumulate, "group:3"));
    CU_ASSERT(!wf_plan_has_word(WF_SETTING_accumulate, "group:4x"));
    CU_ASSERT_EQUAL(wf_plan_group("group:64"), 64);
    CU_ASSERT_EQUAL(wf_plan_group("local"), 0);
    CU_ASSERT_EQUAL(wf_plan_word_value(WF_SETTING_accumulate, "group:4"), WF_PAR_GROUP);
    CU_ASSERT_EQUAL(wf_plan_word_value(WF_SETTING_accumulate, "reduced"), WF_PAR_REDUCED);
    CU_ASSERT_EQUAL(wf_plan_word_value(WF_SETTING_optimizer, "muon"), WF_NN_MUON);
    CU_ASSERT_EQUAL(wf_plan_word_value(WF_SETTING_reshard_after_forward, "never"),
                    WF_PAR_RESHARD_NEVER);
    CU_ASSERT(wf_plan_has_word(WF_SETTING_dtype, "bf16"));
    CU_ASSERT(!wf_plan_has_word(WF_SETTING_dtype, "nf4"));
    CU_ASSERT(!wf_plan_has_word(WF_SETTING_dtype, "fp33"));
    CU_ASSERT(wf_plan_has_word(WF_SETTING_recompute, "my_block"));
    CU_ASSERT(!wf_plan_has_word(WF_SETTING_recompute, "a_word_of_24_bytes_or_more"));
    CU_ASSERT_STRING_EQUAL(wf_plan_flag_name(WF_SETTING_reshard_after_forward, name),
                           "reshard-after-forward");
}

int main(void)
{
    static const wf_test tests[] = {
        {"axes of a program's own", own_axes},
        {"axes that split the batch", which_split},
        {"settings as words", words},
        {NULL, NULL},
    };

    return wf_test_main("requests", tests);
}
