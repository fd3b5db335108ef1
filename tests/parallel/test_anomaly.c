/*
 * tests/parallel/test_anomaly.c - a loss or a gradient that is not finite ends the step on
 * every rank, leaves the model as it was, and is reported by op, layer and tensor.
 *
 * ctest: builds address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/parallel/failing_run.h"
#include <math.h>

/* A loss of plain ops, which take any gradient. */
static wf_tensor *plain_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_nn_gpt *m = (wf_nn_gpt *)model;

    return wf_nn_cross_entropy(m->loss,
                               wf_nn_gpt_logits(m, wf_par_batch_tensor(batch, "tokens")),
                               wf_par_batch_tensor(batch, "targets"));
}

/* Step 2 has an infinite loss, in one sequence. */
static wf_tensor *explode(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_context *ctx = model->ctx;
    bool bad = wf_context_step(ctx) == 2 && first_sequence(batch->tensor[0]) == 1;
    wf_tensor *loss = plain_loss(model, batch);

    return bad ? wf_scale(loss, INFINITY) : loss;
}

/* The loss of step 2 is finite, and its gradient is not: 1e30 x 1e30 x 0 backwards. */
static wf_tensor *explode_backward(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_context *ctx = model->ctx;
    bool bad = wf_context_step(ctx) == 2 && first_sequence(batch->tensor[0]) == 1;
    wf_tensor *loss = plain_loss(model, batch);

    return bad ? wf_scale(wf_scale(wf_scale(loss, 0), 1e30f), 1e30f) : loss;
}

static void not_finite(void)
{
    static wf_par_loss_function *const losses[] = {explode, explode_backward};
    trial without = {.tp = 2,
                     .dp = 2,
                     .steps = 3,
                     .victim = NOBODY,
                     .skipped_step = 2,
                     .after = digest_after};

    CU_ASSERT_EQUAL(run_trial(&without), WF_OK);
    for (int v = 0; v < 2; v++) {
        trial ends = {.tp = 2, .dp = 2, .steps = 3, .victim = NOBODY, .loss = losses[v]};
        trial goes_on = ends;

        CU_ASSERT_EQUAL(run_trial(&ends), WF_ENONFINITE);
        CU_ASSERT(says(&ends.launch, WF_ENONFINITE, v ? "gradient norm" : "loss inf",
                       "is not finite: lower the learning rate"));
        CU_ASSERT(says(&ends.launch, WF_ENONFINITE, "it begins here: scale in ",
                       v ? "backward of micro-step" : "forward of micro-step"));
        goes_on.after = digest_after;
        CU_ASSERT_EQUAL(run_trial(&goes_on), WF_OK);
        for (int r = 0; r < 4; r++) {
            CU_ASSERT_EQUAL(ends.of[r].code, WF_ENONFINITE);
            CU_ASSERT_EQUAL(goes_on.before[r].code, WF_ENONFINITE);
            CU_ASSERT_EQUAL(goes_on.digest[r], without.digest[0]);
        }
        CU_ASSERT_EQUAL(goes_on.last_loss[0], without.last_loss[0]);
    }
}

/* From step 2 on a weight of block 0 is what it must not be. */
static wf_tensor *spoil(wf_nn_module *model, const wf_par_batch *batch, float value)
{
    wf_nn_block *block = (wf_nn_block *)((wf_nn_gpt *)model)->block[0];

    if (wf_context_step(model->ctx) == 2)
        wf_init_fill(((wf_nn_linear *)block->mlp->down)->weight->tensor, value);
    return wf_par_gpt_loss(model, batch);
}

static wf_tensor *spoil_parameter(wf_nn_module *model, const wf_par_batch *batch)
{
    return spoil(model, batch, NAN);
}

static wf_tensor *overflow_result(wf_nn_module *model, const wf_par_batch *batch)
{
    return spoil(model, batch, 3e38f);
}

static void tensor_and_layer_are_named(void)
{
    trial nan = {
        .tp = 2, .dp = 2, .layers = 2, .steps = 3, .victim = NOBODY, .loss = spoil_parameter};
    trial large = nan;

    large.loss = overflow_result;
    CU_ASSERT_EQUAL(run_trial(&nan), WF_ENONFINITE);
    CU_ASSERT(says(&nan.launch, WF_ENONFINITE, "it begins here: parameter ",
                   "block.0.mlp.down.weight is not finite itself"));
    CU_ASSERT_EQUAL(run_trial(&large), WF_ENONFINITE);
    CU_ASSERT(says(&large.launch,
                   WF_ENONFINITE, /* its results are large, their squares are not */
                   "layernorm in block.1.norm1, forward of micro-step 1", "the gradient of "));
}

int main(void)
{
    static const wf_test tests[] = {
        {"a loss or gradient that is not finite", not_finite},
        {"its tensor and layer are named", tensor_and_layer_are_named},
        {NULL, NULL},
    };

    return wf_test_main("anomaly", tests);
}
