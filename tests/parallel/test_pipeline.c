/*
 * tests/parallel/test_pipeline.c - no schedule, cut or number of pipeline ranks changes a bit
 * of a training run: losses, norms and digest are those of one rank.
 *
 * ctest: builds address thread, cost 50
 */
#include "tests/parallel/parallel_harness.h"

enum { STEPS = 3, BATCH = 8 };

static training run_of(model_kind kind, int layers)
{
    training t = new_training(kind, HEADS, BATCH);

    t.model.layers = layers;
    t.options.micro_batch = 1;
    t.steps = STEPS;
    return t;
}

/* The same run without a pipeline, on one rank. */
static training reference_of(training t)
{
    t.layout.pp = t.layout.tp = t.layout.dp = 1;
    t.layout.strategy = NULL;
    t.layout.sequence_parallel = false;
    t.options.micro_batch = 1;
    t.pipeline.schedule = NULL;
    train(&t);
    return t;
}

static bool same(const training *a, const training *b)
{
    return a->digest == b->digest && a->digest != 0 &&
           memcmp(a->loss, b->loss, STEPS * sizeof(float)) == 0 &&
           memcmp(a->grad_norm, b->grad_norm, STEPS * sizeof(double)) == 0;
}

static void check(training t, const training *reference, const char *what)
{
    bool good = train(&t) && same(&t, reference);

    CU_ASSERT(good);
    if (!good)
        printf("\n    %s: %s, pp %d x tp %d x dp %d, split %s: loss %.9g %.9g, not %.9g %.9g\n",
               what, t.pipeline.schedule, t.layout.pp, t.layout.tp, t.layout.dp,
               t.pipeline.split ? t.pipeline.split : "auto", (double)t.loss[0],
               (double)t.loss[2], (double)reference->loss[0], (double)reference->loss[2]);
}

static void every_schedule(void)
{
    wf_pipe_schedule schedule;

    for (int kind = UNDER_SANITIZER; kind < 2; kind++) {
        training t = run_of(kind ? LLAMA : GPT2, 4);
        const training reference = reference_of(t);

        for (int i = 0; (schedule = wf_pipe_schedule_at(i)).name; i++)
            for (int pp = 1; pp <= 4; pp *= 2) {
                t.layout.pp = pp;
                t.pipeline = (wf_par_pipeline_options){.schedule = schedule.name};
                if (pp * schedule.per_rank <= 6 && (!UNDER_THREAD_SANITIZER || pp == 2))
                    check(t, &reference, "schedule");
            }
    }
}

/* The layouts of one run that all give one digest. A sanitizer's build takes a quarter of them,
   and of the next run another one, so that each is run with several of the choices. */
static void over_layouts(training t, const char *what)
{
    static const struct {
        int pp, tp, dp;
        const char *strategy, *schedule, *split;
        int per_rank, resident;
    } runs[] = {
        {2, 2, 1, NULL, "1f1b", NULL, 0, 0},
        {2, 1, 2, "no_shard", "zb-h1", NULL, 0, 0},
        {2, 1, 2, "zero1", "1f1b", "2,4", 0, 0},
        {2, 1, 2, "shard_grad_op", "zb-v", NULL, 0, 0},
        {2, 1, 2, "full_shard", "1f1b", NULL, 0, 0},
        {2, 1, 2, "full_shard", "interleaved", NULL, 0, 1},
        {2, 2, 2, "full_shard", "zb-v", "1,2,0,3", 0, 0},
        {2, 1, 2, "shard_grad_op", "dualpipe-v", "1,1,4,0", 0, 0},
        {3, 1, 1, NULL, "zb-h2", "3,0,3", 0, 0},
        {2, 2, 2, "zero1", "looped-bfs", NULL, 3, 0},
    };

    enum { RUNS = sizeof runs / sizeof *runs };
    static int turn;
    int apart = UNDER_SANITIZER ? 7 : wf_test_one_in(2);
    const training reference = reference_of(t);

    for (int i = turn++ % apart; i < RUNS; i += apart) {
        training r = t;

        r.layout.pp = runs[i].pp;
        r.layout.tp = runs[i].tp;
        r.layout.sequence_parallel &= runs[i].tp > 1;
        r.layout.dp = runs[i].dp;
        r.layout.strategy = runs[i].strategy;
        r.pipeline = (wf_par_pipeline_options){.schedule = runs[i].schedule,
                                               .split = runs[i].split,
                                               .stages_per_rank = runs[i].per_rank,
                                               .recompute = t.pipeline.recompute,
                                               .resident = runs[i].resident};
        check(r, &reference, what);
    }
}

static void layouts(void)
{
    over_layouts(run_of(GPT2, 4), "gpt2");
    over_layouts(run_of(LLAMA, 4), "llama");
}

static void choices(void)
{
    training t = run_of(GPT2, 4);

    t.model.dropout = 0.1f;
    over_layouts(t, "dropout");
    t.pipeline.recompute = true;
    over_layouts(t, "dropout and stages again");
    t.pipeline.recompute = false;
    t.recompute = "block";
    over_layouts(t, "dropout and recompute");
    t = run_of(LLAMA, 4);
    t.layout.dtype = WF_BF16;
    over_layouts(t, "bf16");
    t.layout.param_dtype = WF_BF16;
    over_layouts(t, "bf16 parameters");
    t = run_of(GPT2, 4);
    t.options.optimizer.method = WF_NN_MUON;
    over_layouts(t, "muon");
    t.options.optimizer =
        (wf_nn_optimizer_options){WF_NN_SGD, .beta1 = 0.9f, .weight_decay = 0.1f};
    over_layouts(t, "sgd");
    t = run_of(LLAMA, 4);
    t.layout.sequence_parallel = true;
    over_layouts(t, "sequence parallel");
    t.layout.accumulate = WF_PAR_LOCAL;
    over_layouts(t, "local");
    t.layout.accumulate = WF_PAR_REDUCED;
    over_layouts(t, "reduced");
    t.layout.accumulate = WF_PAR_GROUP;
    t.layout.accumulate_group = 2;
    over_layouts(t, "groups");
}

static wf_status freeze_beginning(wf_par *par, wf_nn_module *model)
{
    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_nn_freeze(model, "embed");
    wf_nn_freeze(model, "block.0");
    return wf_nn_freeze(model, "block.1");
}

static wf_status freeze_middle(wf_par *par, wf_nn_module *model)
{
    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_nn_freeze(model, "block.1");
    return wf_nn_freeze(model, "block.2");
}

/* No gradient comes back to stages at the begin that have nothing to train; it passes
   others. */
static void frozen(void)
{
    training t = run_of(LLAMA, 4);

    t.parallelize = freeze_beginning;
    over_layouts(t, "frozen at the begin");
    t.model.dropout = 0.1f;
    t.pipeline.recompute = true;
    over_layouts(t, "frozen at the begin, stages again");
    t = run_of(GPT2, 4);
    t.parallelize = freeze_middle;
    over_layouts(t, "frozen in the middle");
}

/* Sequences of two documents each, of 5 tokens and of the rest. */
static wf_status two_documents(void *self, int64_t step, int64_t first, int64_t count,
                               void *const *field, wf_error *error)
{
    int32_t *begins = field[2], *positions = field[3];

    for (int64_t i = 0; i < count * TOKENS; i++) {
        int32_t at = (int32_t)(i % TOKENS);

        begins[i] = at < 5 ? 0 : 5;
        positions[i] = at - begins[i];
    }
    return count_up(self, step, first, count, field, error);
}

/* The losses of an evaluation before a step, of the step and of one after it, bit by bit; no
   documents are left in the context. */
static wf_status evaluate_around_a_step(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = two_documents};
    wf_rank *rank = p->rank;
    float *loss = p->arg, mean[2];
    wf_par_step result;

    for (int i = 0; i < 2; i++) {
        GOOD(wf_par_evaluate(trainer, 1, &data, NULL, &mean[i]));
        NEED(!wf_nn_documents_now(p->ctx).first && !wf_nn_documents_now(p->ctx).positions);
        if (i == 0)
            GOOD(wf_par_train_step(trainer, 1, &data, &result));
    }
    if (rank->index == 0)
        memcpy(loss, (float[]){mean[0], result.loss, mean[1]}, 3 * sizeof *loss);
    return WF_OK;
}

typedef struct documents_run {
    training t;
    float loss[3];
} documents_run;

static wf_status documents_rank(wf_rank *rank, void *arg)
{
    documents_run *r = arg;

    return on_trainer(rank, &r->t, evaluate_around_a_step, r->loss);
}

/* Stages in the middle, which have neither input nor loss, see documents as all do, in training
   and in evaluation. */
static void documents(void)
{
    static const wf_par_field fields[] = WF_PAR_GPT_DOCUMENT_FIELDS(TOKENS);
    static const char *const split[] = {"4", "1,2,1", "1,1,1,1"};
    documents_run r[3];

    for (int i = 0; i < 3; i++) {
        wf_error error = {WF_OK, ""};
        wf_par_pipeline *pipeline;

        r[i] = (documents_run){.t = run_of(LLAMA, 2)};
        memcpy(r[i].t.options.field, fields, sizeof fields);
        r[i].t.layout.pp = i + 1 + (i > 0);
        r[i].t.pipeline = (wf_par_pipeline_options){
            .schedule = "1f1b", .split = split[i], .documents = wf_par_gpt_documents};
        r[i].t.options.pipeline = pipeline = pipeline_of(&r[i].t, &error);
        if (error.code == WF_OK)
            wf_launch(&(wf_launch_options){.ranks = r[i].t.layout.pp}, documents_rank, &r[i],
                      &error);
        CU_ASSERT_EQUAL(error.code, WF_OK);
        if (error.code != WF_OK)
            printf("\n    split %s: %s\n", split[i], error.text);
        CU_ASSERT_EQUAL(memcmp(r[i].loss, r[0].loss, sizeof r[0].loss), 0);
        wf_par_pipeline_free(pipeline);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"every schedule", every_schedule}, {"every layout", layouts},
        {"every choice", choices},          {"frozen parameters", frozen},
        {"documents", documents},           {NULL, NULL},
    };

    return wf_test_main("pipeline", tests);
}
