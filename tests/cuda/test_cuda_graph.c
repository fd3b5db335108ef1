/*
 * tests/cuda/test_cuda_graph.c - work that is recorded and run again: the same bits as op by op, with
 * the numbers of the step that runs; what cannot be recorded is an error; memory is counted; and
 * training by graphs has the loss, norm and digest of training without, and calls no op.
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "kernels/devices.h"
#include "kernels/now.h"
#include "parallel/report.h"
#include "tests/parallel/checkpoint_harness.h"

enum {
    BATCH = 2,
    ROWS = 8,
    COLUMNS = 32,
    HEADS_HERE = 2,
    SITE = 3,
    FIRST = 5,
    GRAPH_STEPS = 10
};

static wf_context *open_context(bool plan)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.plan = plan}, &error);
    wf_context *ctx =
        wf_context_open(device, &(wf_context_options){.seed = 7, .plan = plan}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

static void set(wf_tensor *t, int member)
{
    wf_host_data view;
    float *x = wf_data_write(t, false, &view);

    for (int64_t i = 0; x && i < wf_tensor_local_count(t); i++)
        x[i] = number(member, 0, i);
    wf_data_close(&view);
}

static wf_tensor *new_tensor(wf_context *ctx, int member)
{
    wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_split(ROWS),
                     wf_dim_heads(HEADS_HERE, COLUMNS / HEADS_HERE)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);

    if (t && !wf_context_planning(ctx))
        set(t, member);
    return t;
}

/* All that has dropout in it; the sums that it adds to are given back on the way. */
static wf_tensor *with_dropout(wf_tensor *x)
{
    wf_tensor *gain, *heads, *y, *sum;
    wf_dim width = wf_dim_heads(HEADS_HERE, COLUMNS / HEADS_HERE);

    wf_scope_open(x->ctx);
    gain = wf_tensor_new(x->ctx, WF_F32, 1, &width, NULL, WF_MEMORY_ACTIVATION);
    wf_init_fill(gain, 0.5f);
    y = wf_dropout_add(x, wf_dropout(x, 0.25f, SITE), 0.25f, SITE + 1);
    y = wf_add_rmsnorm(x, y, gain, 1e-5f, 0.25f, SITE + 2, &sum);
    heads = wf_split_heads(y, COLUMNS / HEADS_HERE);
    y = wf_merge_heads(wf_attention(heads, heads, heads, 0.25f, SITE + 3));
    return wf_scope_return(x->ctx, wf_add(y, sum));
}

static void numbers_of(const wf_tensor *t, float *to)
{
    CU_ASSERT_EQUAL(wf_data_get(t, 0, BATCH * ROWS * COLUMNS, to), WF_OK);
}

/* Recorded at one step, run at others: what differs is read anew, and nothing else is. */
static void runs_are_calls(void)
{
    wf_context *ctx = open_context(false);
    float got[BATCH * ROWS * COLUMNS], want[BATCH * ROWS * COLUMNS];
    wf_tensor *x = new_tensor(ctx, 1), *y;
    wf_graph *graph;

    wf_context_position(ctx, 1, FIRST);
    with_dropout(x);
    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    y = with_dropout(x);
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    for (int64_t step = 2; step < 6; step++) {
        wf_scope_open(ctx);
        set(x, (int)step / 2);
        CU_ASSERT_EQUAL(wf_graph_run(graph, &(wf_now){.step = step}, sizeof(wf_now)), WF_OK);
        numbers_of(y, got);
        wf_context_position(ctx, step, FIRST);
        numbers_of(with_dropout(x), want);
        CU_ASSERT(memcmp(got, want, sizeof got) == 0);
        wf_scope_close(ctx);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_graph_free(graph);
    wf_context_close(ctx);
}

/* An update with the numbers of its step, and one with numbers of its own. */
static void updates(void)
{
    wf_context *ctx = open_context(false);
    float got[2][BATCH * ROWS * COLUMNS], want[2][BATCH * ROWS * COLUMNS];
    wf_tensor *p[2] = {new_tensor(ctx, 1), new_tensor(ctx, 1)};
    wf_tensor *m = new_tensor(ctx, 2), *v = wf_mul(m, m), *grad = new_tensor(ctx, 3);
    wf_update step = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .of_step = true};
    const wf_update own = {.lr = 0.5f, .grad_scale = 2};
    wf_graph *graph;

    step.lr = 77; /* of a step that is past */
    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    wf_adamw(p[0], grad, m, v, &step);
    wf_sgd(p[1], grad, m, &own);
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    wf_graph_run(graph, &(wf_now){.lr = 0.25f, .bias1 = 10, .bias2 = 20, .grad_scale = 0.5f},
                 sizeof(wf_now));
    for (int i = 0; i < 2; i++) {
        numbers_of(p[i], got[i]);
        set(p[i], 1);
    }
    set(m, 2);
    v = wf_mul(m, m);
    step.lr = 0.25f, step.bias1 = 10, step.bias2 = 20, step.grad_scale = 0.5f;
    wf_adamw(p[0], grad, m, v, &step);
    wf_sgd(p[1], grad, m, &own);
    for (int i = 0; i < 2; i++) {
        numbers_of(p[i], want[i]);
        CU_ASSERT(memcmp(got[i], want[i], sizeof got[i]) == 0);
    }
    wf_graph_free(graph);
    wf_context_close(ctx);
}

static size_t in_use(wf_context *ctx, wf_memory_kind kind)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    return kind == WF_MEMORY_KINDS ? report.in_use : report.now[kind];
}

/* What lived while it was recorded and is given back counts as the graph's, in a plan as well. */
static void memory(void)
{
    size_t held[2];

    for (int plan = 0; plan < 2; plan++) {
        wf_context *ctx = open_context(plan);
        wf_tensor *x = new_tensor(ctx, 1);
        size_t before = in_use(ctx, WF_MEMORY_KINDS);
        wf_graph *graph;

        wf_scope_open(ctx);
        CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
        with_dropout(x);
        graph = wf_graph_end(ctx);
        CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
        held[plan] = in_use(ctx, WF_MEMORY_GRAPH);
        CU_ASSERT(held[plan] >= 4 * BATCH * ROWS * COLUMNS * sizeof(float));
        CU_ASSERT_EQUAL(wf_graph_run(graph, &(wf_now){.step = 1}, sizeof(wf_now)), WF_OK);
        CU_ASSERT_EQUAL(in_use(ctx, WF_MEMORY_GRAPH), held[plan]);
        wf_scope_close(ctx);
        wf_graph_free(graph);
        CU_ASSERT_EQUAL(in_use(ctx, WF_MEMORY_KINDS), before);
        wf_context_close(ctx);
    }
    CU_ASSERT_EQUAL(held[0], held[1]);
}

static void check_lost(void (*ask)(wf_tensor *x), const char *says)
{
    wf_context *ctx = open_context(false);
    wf_tensor *x = new_tensor(ctx, 1), *old = wf_tensor_retain(new_tensor(ctx, 2));

    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    wf_add(x, old);
    ask(old);
    wf_add(x, x);
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EDEVICE);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, says));
    wf_tensor_release(old);
    wf_context_close(ctx);
}

static void read_it(wf_tensor *x)
{
    float value;

    wf_data_get(x, 0, 1, &value);
}

static void write_it(wf_tensor *x)
{
    set(x, 4);
}

/* Memory of before would be given back by every run. */
static void drop_it(wf_tensor *x)
{
    wf_tensor_drop(x);
}

static void what_cannot_be(void)
{
    wf_context *ctx = open_context(false);
    wf_error error = {WF_OK, ""};

    check_lost(read_it, "a copy to the host: the GPU says operation not permitted when stream");
    check_lost(write_it, "a copy to the GPU: the GPU says operation not permitted when stream");
    check_lost(drop_it, "memory given back: the GPU says invalid argument");
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_OK);
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_EINVAL);
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    wf_context_close(ctx);
    ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    CU_ASSERT_EQUAL(wf_graph_begin(ctx), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, "device cpu has no graphs"));
    CU_ASSERT_PTR_NULL(wf_graph_end(ctx));
    wf_context_close(ctx);
}

static training make_training(wf_nn_arch arch)
{
    training t = new_training(arch, arch == WF_NN_GPT2 ? 4 : 2, 4);

    t.model.heads = 4;
    t.model.layers = 1;
    t.model.width = 16;
    t.model.ffn = 32;
    t.model.dropout = 0.1f;
    t.options.micro_batch = 2;
    t.options.seq_len = t.model.positions = 4;
    t.options.clip = 0.1f;
    t.steps = UNDER_SANITIZER ? 4 : GRAPH_STEPS;
    t.layout.device = "cuda";
    return t;
}

static void check_same(const training *want, const training *got, const char *what)
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
        check_same(&t, &recorded, what);
}

/* Dropout, two micro-steps, a rate that rises, gradients that are clipped. */
static void training_of_gpt2(void)
{
    one_digest(make_training(WF_NN_GPT2), "gpt2");
}

static void training_of_llama(void)
{
    training t = make_training(WF_NN_LLAMA);

    t.options.micro_batch = 2;
    t.layout.strategy = "no_shard";
    one_digest(t, "llama");
}

static void other_ways(void)
{
    training t = make_training(WF_NN_LLAMA);

    t.steps = 3;
    t.options.micro_batch = 0;
    t.options.optimizer.method = WF_NN_SGD;
    t.layout.reduce_dtype = WF_BF16;
    t.recompute = "block";
    one_digest(t, "sgd, gradients in bf16, recompute");
    t.recompute = NULL;
    t.options.optimizer.method = WF_NN_MUON;
    t.layout.reduce_dtype = WF_F32;
    one_digest(t, "muon");
    t = make_training(WF_NN_GPT2);
    t.steps = 3;
    t.options.micro_batch = 2;
    t.layout.param_dtype = WF_BF16;
    one_digest(t, "parameters in bf16");
    t.layout.strategy = "no_shard";
    one_digest(t, "parameters in bf16 that stay");
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
        wf_context_watch(ctx, count_call, t->arg);
    CU_ASSERT((*(int *)t->arg > 0) == (step == 1 || step == 2));
    CU_ASSERT(step < 2 || wf_context_flops(ctx) == step * flops);
    *(int *)t->arg = 0;
    flops = step == 1 ? wf_context_flops(ctx) : flops;
    return WF_OK;
}

static void no_op_is_called(void)
{
    training t = make_training(WF_NN_GPT2);
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
    const wf_par_data data = {.read = count_up};
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
        wf_par_evaluate(trainer, 1, &data, &t->loss[step - 1]);
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
    training t = make_training(WF_NN_LLAMA), recorded;
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
    check_same(&t, &recorded, "evaluations between steps");
}

/* Saved beside the steps that follow, and gone on with: a fresh trainer records anew. */
static void checkpoints(void)
{
    training whole = make_training(WF_NN_GPT2), part, rest;
    char dir[64];
    wf_par_save_options how = {.dir = dir, .async = true};

    whole.options.micro_batch = 4;
    part = rest = whole;
    whole.steps = rest.steps = 6;
    part.steps = 3;
    part.layout.cuda_graph = rest.layout.cuda_graph = true;
    fresh_directory(dir);
    if (train(&whole) && save_run(&part, &how, 3) && resume_run(&rest, dir, 3))
        CU_ASSERT_EQUAL(rest.digest, whole.digest);
    remove_directory(dir);
}

/* A step that is lost is looked at op by op, whoever ran it. */
static void not_finite(void)
{
    wf_error error[2] = {{WF_OK, ""}, {WF_OK, ""}};

    for (int on = 0; on < 2; on++) {
        training t = make_training(WF_NN_GPT2);

        t.steps = 20;
        t.options.clip = 0;
        t.options.optimizer = (wf_nn_optimizer_options){WF_NN_SGD, 0, 0, 0, 0};
        t.options.schedule = (wf_nn_schedule){1e6, 1e6, 0, 20};
        t.layout.cuda_graph = on;
        wf_launch(&(wf_launch_options){.ranks = 1}, training_rank, &t, &error[on]);
    }
    CU_ASSERT_EQUAL(error[0].code, WF_ENONFINITE);
    CU_ASSERT_STRING_EQUAL(error[0].text, error[1].text);
}

static wf_status report_step(training *t, wf_rank *rank, wf_par *par, wf_nn_gpt *model,
                             int step)
{
    (void)rank;
    if (step == 1)
        wf_par_report_begin(par, t->arg);
    if (step == 2)
        wf_par_report_end(par, &model->base, t->arg);
    return WF_OK;
}

static void plan_is_run(void)
{
    training t = make_training(WF_NN_LLAMA);
    wf_par_report ran = {0}, planned = {0};
    wf_error error = {WF_OK, ""};

    t.steps = 2;
    t.layout.cuda_graph = true;
    t.watch = report_step;
    t.arg = &ran;
    if (!train(&t))
        return;
    t.layout.plan = true;
    t.arg = &planned;
    wf_launch(&(wf_launch_options){.ranks = 1, .transport = "fake", .rank = 0}, training_rank,
              &t, &error);
    CU_ASSERT_EQUAL_FATAL(error.code, WF_OK);
    CU_ASSERT(ran.memory.now[WF_MEMORY_GRAPH] > 0);
    CU_ASSERT_EQUAL(planned.memory.peak, ran.memory.peak);
    CU_ASSERT_EQUAL(planned.memory.in_use, ran.memory.in_use);
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        CU_ASSERT_EQUAL(planned.memory.most[k], ran.memory.most[k]);
    CU_ASSERT(planned.flops > 0 && planned.flops == ran.flops);
}

static void refused(void)
{
    static const struct {
        const char *device, *says;
        int dp;
    } rows[] = {{"cpu", "cuda_graph is of device cuda, not of cpu", 1},
                {"cuda", "2 ranks meet on their hosts in every step: use tp 1 and dp 1", 2}};

    for (int i = 0; i < 2; i++) {
        training t = make_training(WF_NN_GPT2);
        wf_error error = {WF_OK, ""};

        t.layout.cuda_graph = true;
        t.layout.device = rows[i].device;
        t.layout.dp = rows[i].dp;
        CU_ASSERT(wf_launch(&(wf_launch_options){.ranks = rows[i].dp}, training_rank, &t,
                            &error) != WF_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, rows[i].says));
    }
}

int main(void)
{
    static const wf_test tests[] = {{"a run has the bits of the calls", runs_are_calls},
                                    {"updates of the step that runs", updates},
                                    {"memory is counted", memory},
                                    {"what cannot be recorded", what_cannot_be},
                                    {"gpt2 by graphs", training_of_gpt2},
                                    {"llama by graphs", training_of_llama},
                                    {"other optimizers and types by graphs", other_ways},
                                    {"a recorded step calls no op", no_op_is_called},
                                    {"evaluations in between", evaluation},
                                    {"checkpoints in between", checkpoints},
                                    {"numbers that are not finite", not_finite},
                                    {"a plan is the run", plan_is_run},
                                    {"what is refused", refused},
                                    {NULL, NULL}};
    wf_error why = {WF_OK, ""};

    if (wf_cuda_count(false, &why) == 0) {
        wf_test_skip_all(why.text);
        return 77;
    }
    return wf_test_main("cuda_graph", tests);
}
