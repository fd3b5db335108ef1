/*
 * tests/parallel/test_pipeline_anomaly.c - numbers that stop being finite in a pipeline: its
 * schedule is repeated, and op, layer, micro-step, stage and action are reported.
 *
 * ctest: builds address thread
 */
#include "tests/parallel/parallel_harness.h"

enum { STAGES = 4, BATCH = 4 };

/* Before step 2 a weight of block 2 is what it must not be, on the rank that has it; arg: a
   float. */
static wf_status spoil(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_nn_block *block = (wf_nn_block *)model->block[2];
    wf_tensor *weight = ((wf_nn_linear *)block->mlp->down)->weight->tensor;

    (void)rank;
    if (step == 1 && !wf_tensor_is_fake(weight))
        wf_init_fill(weight, *(const float *)t->arg);
    return wf_context_status(wf_par_context(par));
}

/* The loss of step 2 is finite, and its gradient is not: 1e30 x 1e30 x 0 backwards. */
static wf_tensor *explode_backward(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    if (wf_context_step(model->ctx) == 2)
        x = wf_scale(wf_scale(wf_scale(x, 0), 1e30f), 1e30f);
    return wf_par_gpt_head_loss(model, x, batch);
}

/* Before step 2 activations of block 3 are large, and what comes of them is not. */
static wf_status enlarge(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    wf_nn_mlp *mlp = ((wf_nn_block *)model->block[3])->mlp;
    wf_tensor *up = ((wf_nn_linear *)mlp->up)->weight->tensor,
              *down = ((wf_nn_linear *)mlp->down)->weight->tensor;

    (void)t;
    (void)rank;
    if (step == 1 && !wf_tensor_is_fake(up)) {
        wf_init_fill(up, 1e6f);
        wf_init_fill(down, 1e-9f);
    }
    return wf_context_status(wf_par_context(par));
}

/* The gradients of step 2 are large, and the loss is what it was: that of the weight which
   reads those activations is not finite, and no other one. */
static wf_tensor *enlarge_backward(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    if (wf_context_step(model->ctx) == 2)
        x = wf_add(x, wf_scale(wf_sub(x, wf_detach(x)), 1e36f));
    return wf_par_gpt_head_loss(model, x, batch);
}

static training failing_run(const char *schedule)
{
    training t = new_training(GPT2, HEADS, BATCH);

    t.model.layers = STAGES;
    t.layout.pp = STAGES;
    t.options.micro_batch = 1;
    t.steps = 2;
    t.pipeline = (wf_par_pipeline_options){.schedule = schedule, .split = "2,1,1,2"};
    return t;
}

static void fails_with(training t, const char *first, const char *second)
{
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *pipeline = pipeline_of(&t, &error);
    bool reported;

    t.options.pipeline = pipeline;
    if (error.code == WF_OK)
        wf_launch(&(wf_launch_options){.ranks = STAGES}, training_rank, &t, &error);
    wf_par_pipeline_free(pipeline);
    reported = strstr(error.text, first) && strstr(error.text, second);
    CU_ASSERT_EQUAL(error.code, WF_ENONFINITE);
    CU_ASSERT(reported);
    if (!reported)
        printf("\n    %s: %s\n", t.pipeline.schedule, error.text);
}

static void stage_and_action_are_named(void)
{
    float nan = NAN, large = 3e38f;

    for (int zero_bubble = 0; zero_bubble < 2; zero_bubble++) {
        training t = failing_run(zero_bubble ? "zb-h1" : "gpipe");

        t.watch = spoil;
        t.arg = &nan;
        fails_with(t, "it begins here: parameter ",
                   "block.2.mlp.down.weight is not finite itself");
        t.arg = &large; /* its results are large, their squares are not finite */
        fails_with(t, "it begins here: layernorm in block.3.norm1, ",
                   "of micro-step 1, F3.0 of stage 3, on rank 3");
        t.watch = NULL;
        t.pipeline.head_loss = explode_backward;
        fails_with(t, "it begins here: scale in ",
                   zero_bubble ? "of micro-step 1, I3.0 of stage 3, on rank 3"
                               : "of micro-step 1, B3.0 of stage 3, on rank 3");
    }
}

/* The gradient of a weight alone, which a schedule may take later, for one micro-batch or for
   several. */
static void weights_are_named(void)
{
    static const char *const schedule[] = {"gpipe", "zb-h1", "list"};
    static const char *const action[] = {"B3.0", "W3.0-3", "W3.0-3"};

    for (int i = 0; i < 3; i++) {
        training t = failing_run(schedule[i]);
        char where[80];

        t.watch = enlarge;
        t.pipeline.head_loss = enlarge_backward;
        snprintf(where, sizeof where, "of micro-step 1, %s of stage 3, on rank 3", action[i]);
        fails_with(t, "it begins here: linear_dw in block.3.mlp.down", where);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"its stage and action are named", stage_and_action_are_named},
        {"gradients of weights are named", weights_are_named},
        {NULL, NULL}};

    return wf_test_main("anomalies in pipelines", tests);
}
