/*
 * tests/cuda/test_cuda_graph_train.c - training by graphs has the loss, norm and digest of
 * training without, bit for bit, and calls no op: both models, optimizers, types, with
 * evaluations and checkpoints in between; its plan is the run to the byte.
 *
 * ctest: builds plain
 */
#include "parallel/models/gpt/gpt.h"
#include "tests/cuda/gpu_main.h"
#include "tests/parallel/checkpoint_harness.h"
#include "tests/parallel/plan_harness.h"

enum { GRAPH_STEPS = 6, LENGTH = 4 };

static training make_training(model_kind kind)
{
    training t = new_training(kind, kind == GPT2 ? 4 : 2, 4);

    t.model.heads = 4;
    t.model.layers = 1;
    t.model.width = 16;
    t.model.ffn = 32;
    t.model.dropout = 0.1f;
    t.options.micro_batch = 2;
    t.model.positions = LENGTH;
    for (int i = 0; i < 2; i++)
        t.options.field[i].dim[0].size = LENGTH;
    t.options.clip = 0.1f;
    t.steps = UNDER_SANITIZER ? 4 : GRAPH_STEPS;
    t.layout.device = "cuda";
    return t;
}

static void check_op_by_op(const training *want, const training *got, const char *what)
{
    bool same = got->digest == want->digest;

    for (int k = 0; k < want->steps; k++)
        same = same && same_bits(got->loss[k], want->loss[k]) &&
               got->grad_norm[k] == want->grad_norm[k];
    CU_ASSERT(same);
    if (!same)
        printf("\n    %s: not what it is op by op", what);
}

static void one_digest(training t, const char *what)
{
    training recorded = t;

    recorded.layout.cuda_graph = true;
    if (train(&t) && train(&recorded))
        check_op_by_op(&t, &recorded, what);
}

/* Dropout, two micro-steps, a rate that rises, gradients that are clipped. */
static void training_of_gpt2(void)
{
    one_digest(make_training(GPT2), "gpt2");
}

static void training_of_llama(void)
{
    training t = make_training(LLAMA);

    t.options.micro_batch = 2;
    t.layout.strategy = "no_shard";
    one_digest(t, "llama");
}

static void other_ways(void)
{
    training t = make_training(LLAMA);

    t.steps = 3;
    t.options.micro_batch = 0;
    t.options.optimizer.method = WF_NN_SGD;
    t.layout.reduce_dtype = WF_BF16;
    t.recompute = "block";
    one_digest(t, "sgd, gradients in bf16, recompute");
    t.recompute = NULL;
    t.options.optimizer.method = WF_NN_MUON;
    t.layout.reduce_dtype = WF_F32;
    t.layout.param_dtype = WF_BF16;
    one_digest(t, "muon, parameters in bf16");
    t.layout.param_dtype = WF_F32;
    t.options.optimizer.method = WF_NN_LION8BIT;
    t.options.optimizer.groups = "embed:lr=0.3;block.*.norm1:lr=0,wd=0";
    one_digest(t, "lion in 8 bits, groups with rates of their own");
}

static void count_call(void *arg, const wf_call *call)
{
    (void)call;
    ++*(int *)arg;
}

/* After the second step no op is called any more, and the work is still counted. */
static wf_status count_ops(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model, int step)
{
    static double flops;
    wf_context *ctx = wf_par_context(par);

    (void)rank, (void)model;
    if (step == 0)
        wf_context_observe(ctx, count_call, t->arg);
    CU_ASSERT((*(int *)t->arg > 0) == (step == 1 || step == 2));
    CU_ASSERT(step < 2 || wf_context_flops(ctx) == step * flops);
    *(int *)t->arg = 0;
    flops = step == 1 ? wf_context_flops(ctx) : flops;
    return WF_OK;
}

static void no_op_is_called(void)
{
    training t = make_training(GPT2);
    int calls = 0;

    t.steps = 4;
    t.options.micro_batch = 2;
    t.layout.cuda_graph = true;
    t.watch = count_ops;
    t.arg = &calls;
    train(&t);
}

/* An evaluation of other data takes and leaves parameters as it finds them. */
static wf_status evaluating_rank(wf_rank *rank, void *arg)
{
    training *t = arg;
    const wf_par_data data = {.read = count_up, .self = &t->options.field[0].dim[0].size};
    wf_par *par = wf_par_open(rank, &t->layout, &rank->error);
    wf_nn_gpt *model = par ? wf_nn_gpt_new(wf_par_context(par), &t->model) : NULL;
    wf_par_trainer *trainer;

    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    wf_par_materialize(par, &model->base);
    trainer = wf_par_trainer_open(par, &model->base, &t->options);
    for (int step = 1; step <= t->steps; step++) {
        wf_par_step result;

        wf_par_train_step(trainer, step, &data, &result);
        wf_par_evaluate(trainer, 1, &data, NULL, &t->loss[step - 1]);
    }
    wf_par_trainer_digest(trainer, &t->digest);
    rank->error = *wf_context_error(wf_par_context(par));
    wf_par_trainer_close(trainer);
    wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static void evaluation(void)
{
    training t = make_training(LLAMA), recorded;
    wf_error error = {WF_OK, ""};

    t.steps = 4;
    t.options.micro_batch = 2;
    t.layout.param_dtype = WF_BF16;
    t.layout.strategy = "no_shard";
    recorded = t;
    recorded.layout.cuda_graph = true;
    wf_launch(&(wf_launch_options){.ranks = 1}, evaluating_rank, &t, &error);
    wf_launch(&(wf_launch_options){.ranks = 1}, evaluating_rank, &recorded, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    check_op_by_op(&t, &recorded, "evaluations between steps");
}

static wf_status count_half(void *self, int64_t step, int64_t *count, wf_error *error)
{
    (void)self, (void)error;
    *count = step;
    return WF_OK;
}

/* A weight of its own for each step cannot be captured. */
static void counted_data(void)
{
    const wf_par_data data = {.read = count_up, .counted = count_half};
    training t = make_training(GPT2);
    wf_error error = {WF_OK, ""};

    t.data = &data;
    t.layout.cuda_graph = true;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(error.text, "with wf_par_data.counted each step has its own"));
}

/* Saved beside the steps that follow, and gone on with: a fresh trainer records anew. */
static void checkpoints(void)
{
    training whole = make_training(GPT2), begun, rest;
    char dir[64];
    wf_par_save_options how = {.dir = dir, .async = true};

    whole.options.micro_batch = 4;
    begun = rest = whole;
    whole.steps = rest.steps = 6;
    begun.steps = 3;
    begun.layout.cuda_graph = rest.layout.cuda_graph = true;
    wf_test_new_folder(dir);
    if (train(&whole) && save_run(&begun, &how, 3) && resume_run(&rest, dir, 3))
        CU_ASSERT_EQUAL(rest.digest, whole.digest);
    wf_test_remove(dir);
}

/* A step that is lost is looked at op by op, whoever ran it. */
static void not_finite(void)
{
    wf_error error[2] = {{WF_OK, ""}, {WF_OK, ""}};

    for (int on = 0; on < 2; on++) {
        training t = make_training(GPT2);

        t.steps = 20;
        t.options.clip = 0;
        t.options.optimizer = (wf_nn_optimizer_options){.method = WF_NN_SGD};
        t.options.schedule = (wf_nn_schedule){.lr = 1e6, .min_lr = 1e6, .steps = 20};
        t.layout.cuda_graph = on;
        wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error[on]);
    }
    CU_ASSERT_EQUAL(error[0].code, WF_ENONFINITE);
    for (int on = 0; on < 2; on++) { /* so many collectives: the device's judgment needs none */
        char *after = strstr(error[on].text, ", after ");

        if (after)
            *after = '\0';
    }
    CU_ASSERT_STRING_EQUAL(error[0].text, error[1].text);
}

static void plan_is_run(void)
{
    static reports all_ran, all_planned;
    const wf_par_report *ran = &all_ran.of[0], *planned = &all_planned.of[0];
    training t = make_training(LLAMA);
    wf_error error = {WF_OK, ""};

    t.steps = 2;
    t.layout.cuda_graph = true;
    t.watch = report_step;
    t.arg = &all_ran;
    if (!train(&t))
        return;
    t.layout.plan = true;
    t.arg = &all_planned;
    wf_launch(&(wf_launch_options){.ranks = 1, .transport = "fake", .rank = 0}, training_rank,
              &t, &error);
    CU_ASSERT_EQUAL_FATAL(error.code, WF_OK);
    CU_ASSERT(ran->memory.now[WF_MEMORY_GRAPH] > 0);
    CU_ASSERT_EQUAL(planned->memory.peak, ran->memory.peak);
    CU_ASSERT_EQUAL(planned->memory.in_use, ran->memory.in_use);
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        CU_ASSERT_EQUAL(planned->memory.most[k], ran->memory.most[k]);
    CU_ASSERT(planned->flops > 0 && planned->flops == ran->flops);
}

static void refused(void)
{
    training t = make_training(GPT2);
    wf_error error = {WF_OK, ""};

    t.layout.cuda_graph = true;
    t.layout.device = "cpu";
    CU_ASSERT(wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error) != WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "cuda_graph is of device cuda, not of cpu"));
}

/* The schedule of a pipeline runs micro-steps op by op: a graph would be left out without a
   word. */
static void pipeline_refused(void)
{
    training t = make_training(GPT2);
    wf_error error = {WF_OK, ""};
    wf_par_pipeline *pipeline;

    t.layout.cuda_graph = true;
    t.pipeline.schedule = "1f1b";
    pipeline = pipeline_of(&t, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(pipeline);
    t.options.pipeline = pipeline;
    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error),
                    WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "with a pipeline a schedule runs them"));
    wf_par_pipeline_free(pipeline);
}

int main(void)
{
    static const wf_test tests[] = {{"gpt2 by graphs", training_of_gpt2},
                                    {"llama by graphs", training_of_llama},
                                    {"other optimizers and types by graphs", other_ways},
                                    {"a captured step calls no op", no_op_is_called},
                                    {"evaluations in between", evaluation},
                                    {"data that count a part of a batch", counted_data},
                                    {"checkpoints in between", checkpoints},
                                    {"numbers that are not finite", not_finite},
                                    {"a plan is the run", plan_is_run},
                                    {"what is refused", refused},
                                    {"a pipeline is refused", pipeline_refused},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_graph_train", tests);
}
