/*
 * tests/cuda/test_cuda_ahead.c - steps that are launched before the one before them is
 * finished, and judged by the device: rows, digest, errors and skipped steps of steps that run
 * op by op and are judged by the host; no wait after which the device is idle; a step that is
 * held changes nothing; batches that grow are captured anew.
 *
 * ctest: builds plain
 */
#include "tests/cuda/ahead_run.h"
#include "tests/cuda/gpu_main.h"

static ahead_run make_run(bool ahead)
{
    return ahead_run_of(GPT2, ahead);
}

/* Neither the loss nor the norm is waited for: with a step behind it the device is never
   idle. The last step has none behind it, but its update. */
static void nothing_waits(void)
{
    ahead_run at_once = make_run(false), ahead = make_run(true);

    ahead_same(&at_once, &ahead, "steps launched ahead");
    CU_ASSERT(ahead.row[4].loss > 0 && ahead.error.code == WF_OK);
    CU_ASSERT_EQUAL(ahead.syncs, 0);
    CU_ASSERT(at_once.syncs >= 6); /* loss and norm of three steps */
}

/* Optimizers whose numbers a graph finds by itself: no step is waited for. */
static void other_optimizers(void)
{
    static const struct {
        wf_nn_method method;
        const char *groups;
    } rows[] = {{WF_NN_LION, NULL},
                {WF_NN_MUON, "block:lr=0.5,wd=0.2"},
                {WF_NN_ADAMW8BIT, "embed:lr=2;block.*.norm1:lr=0"}};

    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        ahead_run at_once = make_run(false), ahead = make_run(true);

        at_once.t.options.optimizer.method = ahead.t.options.optimizer.method = rows[i].method;
        at_once.t.options.optimizer.groups = ahead.t.options.optimizer.groups = rows[i].groups;
        ahead_same(&at_once, &ahead, wf_nn_method_row_of(rows[i].method)->name);
        CU_ASSERT_EQUAL(ahead.error.code, WF_OK);
        CU_ASSERT_EQUAL(ahead.syncs, 0);
    }
}

/* Biases that balance experts are stepped by graphs, too, and a step that is held leaves
   them. */
static void balanced_experts(void)
{
    for (int bad = 0; bad < 2; bad++) {
        ahead_run r[2] = {ahead_run_of(LLAMA, false), ahead_run_of(LLAMA, true)};

        for (int i = 0; i < 2; i++) {
            r[i].t.model.experts = 4;
            r[i].t.model.top_k = 2;
            r[i].t.model.expert_ffn = 16;
            r[i].t.model.bias_step = 0.01;
            r[i].bad = bad ? 4 : 0;
        }
        ahead_same(&r[0], &r[1], "experts that are balanced");
        CU_ASSERT_EQUAL(r[1].error.code, bad ? WF_ENONFINITE : WF_OK);
        CU_ASSERT(bad || r[1].syncs == 0);
    }
}

/* The step behind it has run on the device, too, and nothing is as it would be after either. */
static void a_bad_step_changes_nothing(void)
{
    ahead_run at_once = make_run(false), ahead = make_run(true), good = make_run(false);
    wf_error error = {WF_OK, ""};

    at_once.bad = ahead.bad = 4;
    ahead_same(&at_once, &ahead, "a step that is not finite");
    CU_ASSERT_EQUAL(ahead.error.code, WF_ENONFINITE);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(ahead.error.text, "logit_loss in loss, forward of micro-step 1"));
    good.t.steps = 3;
    wf_launch(&(wf_launch_options){.ranks = 1}, ahead_rank, &good, &error);
    CU_ASSERT_EQUAL(ahead.t.digest, good.t.digest);
}

/* A skipped step counts for bias correction, and those behind it are made again. */
static void skipped_steps(void)
{
    ahead_run at_once = make_run(false), ahead = make_run(true);

    at_once.bad = ahead.bad = 3;
    at_once.t.options.skip = ahead.t.options.skip =
        (wf_par_skip){.nonfinite = true, .loss_above = 5.5652f};
    ahead_same(&at_once, &ahead, "skipped steps");
    CU_ASSERT(!ahead.row[0].skipped && !ahead.row[1].skipped && ahead.error.code == WF_OK);
    CU_ASSERT(ahead.row[2].skipped && ahead.row[4].skipped && ahead.row[4].loss > 5.5652f);
}

/* A second step that cannot be launched leaves the first one as it is. */
static void data_end(void)
{
    ahead_run at_once = make_run(false), ahead = make_run(true);

    at_once.missing = ahead.missing = 5;
    ahead_same(&at_once, &ahead, "data that end");
    CU_ASSERT_EQUAL(ahead.error.code, WF_EDATA);
    CU_ASSERT(ahead.row[3].loss > 0 && ahead.row[4].loss == 0);
}

/* Captures graphs of their own for each number of micro-steps. */
static void batches_that_grow(void)
{
    ahead_run at_once = make_run(false), ahead = make_run(true);

    at_once.t.options.micro_batch = ahead.t.options.micro_batch = 1;
    at_once.t.options.rampup = ahead.t.options.rampup =
        (wf_par_rampup){.start = 2, .increment = 2, .sequences = 6};
    ahead_same(&at_once, &ahead, "batches that grow");
    CU_ASSERT_EQUAL(ahead.error.code, WF_OK);
}

/* Parameters are read and changed when all that was launched is finished; an optimizer
   whose numbers are the host's has its steps judged there. */
static wf_status misusing_rank(wf_rank *rank, void *arg)
{
    ahead_run *r = arg;
    const wf_par_data data = {.read = ahead_read, .self = r};
    wf_par *par = wf_par_open(rank, &r->t.layout, &rank->error);
    wf_context *ctx = wf_par_context(par);
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, &r->t.model);
    wf_par_trainer *trainer;
    uint64_t digest;

    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(par, &model->base);
    trainer = wf_par_trainer_open(par, &model->base, &r->t.options);
    CU_ASSERT_PTR_NOT_NULL_FATAL(trainer);
    CU_ASSERT_PTR_NOT_NULL_FATAL(wf_par_train_at_once(trainer));
    CU_ASSERT_STRING_EQUAL(wf_par_train_at_once(trainer),
                           "an optimizer whose numbers are the host's");
    CU_ASSERT_EQUAL(wf_par_train_finish(trainer, NULL), WF_EINVAL);
    wf_context_clear(ctx);
    wf_par_train_launch(trainer, 1, &data);
    CU_ASSERT_EQUAL(wf_par_trainer_digest(trainer, &digest), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "wf_par_train_finish comes first"));
    wf_context_clear(ctx);
    CU_ASSERT_EQUAL(wf_par_train_step(trainer, 2, &data, NULL), WF_EINVAL);
    wf_context_clear(ctx);
    wf_par_train_launch(trainer, 2, &data);
    CU_ASSERT_EQUAL(wf_par_train_launch(trainer, 3, &data), WF_EINVAL);
    wf_context_clear(ctx);
    for (int k = 0; k < 2; k++)
        CU_ASSERT_EQUAL(wf_par_train_finish(trainer, &r->row[k]), WF_OK);
    CU_ASSERT_EQUAL(wf_par_trainer_digest(trainer, &digest), WF_OK);
    wf_par_trainer_close(trainer);
    wf_nn_free(&model->base);
    wf_par_close(par);
    return WF_OK;
}

static void misuse(void)
{
    ahead_run r = make_run(true);
    wf_error error = {WF_OK, ""};

    r.t.options.optimizer.method = WF_NN_ADAFACTOR;
    r.t.options.optimizer.ema = 0;
    wf_launch(&(wf_launch_options){.ranks = 1}, misusing_rank, &r, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    CU_ASSERT(r.row[0].loss > 0 && r.row[1].loss > 0 && r.row[1].loss != r.row[0].loss);
}

int main(void)
{
    static const wf_test tests[] = {{"no step is waited for", nothing_waits},
                                    {"other optimizers", other_optimizers},
                                    {"experts that are balanced", balanced_experts},
                                    {"a bad step changes nothing", a_bad_step_changes_nothing},
                                    {"skipped steps", skipped_steps},
                                    {"data that end", data_end},
                                    {"batches that grow", batches_that_grow},
                                    {"misuse, and who is judged at once", misuse},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_ahead", tests);
}
