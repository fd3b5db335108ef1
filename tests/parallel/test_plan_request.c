/* tests/parallel/test_plan_request.c - a job as a request: axes of a program's own, and
   settings as words. */
#include "parallel/plan/calibrate.h"
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

/* Layouts of a search are requests that plans and runs take as they are. */
static void check_list(const wf_plan_request *r, const wf_plan_list *list)
{
    int64_t left_out = 0;

    CU_ASSERT(list->count > 1 && list->count <= 10);
    CU_ASSERT_EQUAL(list->ranks, 4);
    for (const wf_plan_refused *why = list->refused; why->words; why++)
        left_out += why->count;
    CU_ASSERT_EQUAL(left_out + list->count, list->considered);
    for (int64_t i = 0; i < list->count; i++) {
        const wf_plan_layout *l = &list->layout[i];
        wf_error error = {WF_OK, ""};
        wf_plan plan;

        CU_ASSERT(l->seconds > 0 && (i == 0 || l->seconds >= l[-1].seconds));
        CU_ASSERT_EQUAL(wf_plan_ranks(&l->request), 4);
        CU_ASSERT_EQUAL(l->request.job.steps, r->job.steps);
        CU_ASSERT_EQUAL(wf_plan_request_step(&l->request, &plan, &error), WF_OK);
        CU_ASSERT(plan.report.memory.peak <= l->peak && plan.report.memory.peak > 0);
    }
}

static void list_of_layouts(void)
{
    gpt_request made;
    wf_plan_request *r = gpt_request_make("llama", 4, 64, 32, 8, &made);
    wf_error error = {WF_OK, ""};
    size_t fastest_peak;
    wf_plan_list list;

    r->ranks = 4;
    CU_ASSERT_EQUAL(wf_plan_search(r, &list, &error), WF_OK);
    check_list(r, &list);
    CU_ASSERT(list.has_data_parallel && list.data_parallel.request.dp == 4);
    fastest_peak = list.count ? list.layout[0].peak : 0;
    wf_plan_list_free(&list);

    r->tp = 2;
    r->given[WF_SETTING_tp] = true;
    CU_ASSERT_EQUAL(wf_plan_search(r, &list, &error), WF_OK);
    check_list(r, &list);
    for (int64_t i = 0; i < list.count; i++)
        CU_ASSERT_EQUAL(list.layout[i].request.tp, 2);
    CU_ASSERT(!list.has_data_parallel);
    wf_plan_list_free(&list);

    r->job.sizes = NULL; /* any model's: timed by its plans */
    CU_ASSERT_EQUAL(wf_plan_search(r, &list, &error), WF_OK);
    check_list(r, &list);
    wf_plan_list_free(&list);

    r->device_memory = (int64_t)fastest_peak / 64;
    CU_ASSERT_EQUAL(wf_plan_search(r, &list, &error), WF_OK);
    CU_ASSERT_EQUAL(list.count, 0);
    CU_ASSERT(list.considered > 0);
    wf_plan_list_free(&list);

    r->machine = NULL;
    CU_ASSERT_EQUAL(wf_plan_search(r, &list, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, ".machine"));
    wf_plan_list_free(&list);
}

/* Figures of this machine are those of a device that computes; a search takes them as it does a
   file's. They are measured without what ranks of axes do. */
static void figures(void)
{
    gpt_request made;
    wf_plan_request *r = gpt_request_make("llama", 2, 64, 32, 4, &made);
    wf_error error = {WF_OK, ""};
    wf_sim_machine m = {.devices = 0};

    r->job.mesh.tp = r->job.mesh.cp = r->job.mesh.etp = 2;
    r->job.mesh.ep = 4;
    r->job.mesh.cp_form = "gather";
    r->job.mesh.sequence_parallel = r->job.mesh.tp_comm_overlap = true;
    r->job.mesh.tp_comm_block = 4096;
    r->job.mesh.dispatch = WF_PAR_DISPATCH_EXCHANGE;
    CU_ASSERT_EQUAL(wf_plan_calibrate(&r->job, &m, &error), WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s", error.text);
    CU_ASSERT(m.devices > 0 && m.rate[WF_F32] > 0 && m.bandwidth > 0);
    CU_ASSERT(m.products > 0 && m.products <= 1 && m.attention > 0 && m.attention <= 1);
    CU_ASSERT(m.inside.bandwidth > 0 && m.inside.latency >= 0 && m.launch >= 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(m.name, "this machine"));
}

/* One rank has stages where anything of them is its own. */
static void which_pipelined(void)
{
    CU_ASSERT(!wf_plan_pipelined(1, &(wf_par_pipeline_options){.split = "auto"}, "none"));
    CU_ASSERT(wf_plan_pipelined(2, &(wf_par_pipeline_options){.split = "auto"}, "none"));
    CU_ASSERT(wf_plan_pipelined(1, &(wf_par_pipeline_options){.split = "1,2"}, "none"));
    CU_ASSERT(wf_plan_pipelined(1, &(wf_par_pipeline_options){.stages_per_rank = 2}, "none"));
    CU_ASSERT(wf_plan_pipelined(1, &(wf_par_pipeline_options){.schedule = "zb-v"}, "none"));
    CU_ASSERT(wf_plan_pipelined(1, &(wf_par_pipeline_options){.resident = 2}, "none"));
    CU_ASSERT(wf_plan_pipelined(1, &(wf_par_pipeline_options){.resident = 0}, "stage"));
}

int main(void)
{
    static const wf_test tests[] = {
        {"axes of a program's own", own_axes},
        {"axes that split the batch", which_split},
        {"settings as words", words},
        {"a search gives back layouts", list_of_layouts},
        {"figures of this machine", figures},
        {"which requests have stages", which_pipelined},
        {NULL, NULL},
    };

    return wf_test_main("requests", tests);
}
