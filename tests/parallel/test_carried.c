/*
 * tests/parallel/test_carried.c - several tensors over the borders of stages: a residual
 * stream, a memory that every block reads, and integers without a gradient. Every schedule has
 * the digest of one rank; evaluation too, and what a plan says moves.
 */
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "parallel/plan/job.h"
#include "parallel/train/report.h"
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 8, STEPS = 3, BLOCKS = 4, STEPS_OF_CHAIN = BLOCKS + 2 };

typedef struct net {
    wf_nn_module base;
    wf_nn_embedding *embed, *remember;
    int64_t blocks;
    wf_nn_module **read, **mlp; /* [blocks] */
    wf_nn_norm *norm;
    wf_nn_linear *head;
    wf_nn_loss *loss;
} net;

static const wf_nn_field fields[] = {
    {"embed", WF_NN_CHILD, offsetof(net, embed), 0},
    {"remember", WF_NN_CHILD, offsetof(net, remember), 0},
    {"read", WF_NN_CHILDREN, offsetof(net, read), offsetof(net, blocks)},
    {"mlp", WF_NN_CHILDREN, offsetof(net, mlp), offsetof(net, blocks)},
    {"norm", WF_NN_CHILD, offsetof(net, norm), 0},
    {"head", WF_NN_CHILD, offsetof(net, head), 0},
    {"loss", WF_NN_CHILD, offsetof(net, loss), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type net_type = {"net", sizeof(net), fields, NULL, NULL, NULL};

static int64_t steps(const wf_nn_module *model)
{
    (void)model;
    return STEPS_OF_CHAIN;
}

static wf_nn_module *module(const wf_nn_module *model, int64_t i, int k)
{
    const net *m = (const net *)model;
    wf_nn_module *of[3] = {NULL, NULL, NULL};

    if (i == 0)
        of[0] = &m->embed->base, of[1] = &m->remember->base;
    else if (i <= BLOCKS)
        of[0] = m->read[i - 1], of[1] = m->mlp[i - 1];
    else if (i == BLOCKS + 1)
        of[0] = &m->norm->base;
    else
        of[0] = &m->head->base, of[1] = &m->loss->base;
    return k < 2 ? of[k] : NULL;
}

/* x[0] is the stream, x[1] the memory, x[2] the tokens, which the last step alone leaves
   out. */
static int run(wf_nn_module *model, int64_t i, int n, wf_tensor **x)
{
    net *m = (net *)model;

    (void)n;
    if (i == 0) {
        x[2] = x[0];
        x[0] = wf_nn_call(m->embed, x[0]);
        x[1] = wf_nn_call(m->remember, x[1]);
        return 3;
    }
    if (i == BLOCKS + 1) {
        x[0] = wf_nn_call(m->norm, x[0]);
        return 1;
    }
    x[0] = wf_add(x[0], wf_nn_call(m->read[i - 1], x[1]));
    x[0] = wf_add(x[0], wf_nn_call(m->mlp[i - 1], x[0]));
    return 3;
}

static const wf_nn_chain chain = {steps, module, run};

static wf_tensor *head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    net *m = (net *)model;

    return wf_nn_cross_entropy(m->loss, wf_nn_call(m->head, x),
                               wf_par_batch_tensor(batch, "targets"));
}

static wf_tensor *whole_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    const char *outside = wf_nn_enter(model);
    wf_tensor *x[WF_NN_CARRIED], *loss = NULL;
    int n = wf_par_inputs(batch, "tokens,targets", x);

    if (wf_nn_chain_run(model, 0, STEPS_OF_CHAIN, n, x))
        loss = head_loss(model, x[0], batch);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}

static const wf_par_rule rules[] =
    WF_RULES({"embed", WF_VOCAB}, {"remember", WF_VOCAB}, WF_SWIGLU_MLP_RULES("mlp.*"),
             {"head", WF_COLUMN}, {"loss", WF_LOSS});

static wf_nn_module *make(wf_par *par, void *arg)
{
    wf_context *ctx = wf_par_context(par);
    const wf_dim words = wf_dim_chunked(VOCABULARY), width = wf_dim_width(WIDTH);
    const wf_nn_linear_options square = {.in = width, .out = width, .deviation = 0.1f};
    const wf_nn_linear_options head = {.in = width, .out = words, .deviation = 0.1f};
    net *m = wf_nn_new(ctx, &net_type);

    (void)arg;
    if (!m)
        return NULL;
    m->base.chain = &chain;
    m->embed = wf_nn_embedding_new(ctx, words, width, 0.5f);
    m->remember = wf_nn_embedding_new(ctx, words, width, 0.5f);
    m->read = calloc(BLOCKS, sizeof *m->read);
    m->mlp = calloc(BLOCKS, sizeof *m->mlp);
    for (; m->read && m->mlp && m->blocks < BLOCKS; m->blocks++) {
        m->read[m->blocks] = (wf_nn_module *)wf_nn_linear_new(ctx, &square);
        m->mlp[m->blocks] =
            (wf_nn_module *)wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH});
    }
    m->norm = wf_nn_rmsnorm_new(ctx, width, 1e-5f);
    m->head = wf_nn_linear_new(ctx, &head);
    m->loss = wf_nn_loss_new(ctx);
    wf_par_plan(par, &m->base, rules);
    return &m->base;
}

/* A run, and what it came to on the first rank. */
typedef struct trial {
    wf_par_options layout;
    const char *schedule; /* NULL: no pipeline */
    bool recompute;
    int64_t micro;
    bool frozen;
    uint64_t digest;
    float loss, evaluated;
    wf_par_pipeline *pipeline;
    size_t peak;
} trial;

static wf_par_train_options training_of(const trial *t)
{
    return (wf_par_train_options){
        .global_batch = BATCH,
        .micro_batch = t->micro,
        .field = WF_PAR_GPT_FIELDS(TOKENS),
        .clip = 1,
        .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
        .schedule = {.lr = 1e-2f, .min_lr = 1e-2f, .steps = STEPS},
        .loss = whole_loss,
        .pipeline = t->pipeline};
}

static wf_status on_rank(wf_rank *rank, void *arg)
{
    trial *t = arg;
    wf_par *par = wf_par_open(rank, &t->layout, &rank->error);
    wf_par_train_options options = training_of(t);
    const wf_par_data data = {.read = count_up};
    wf_par_trainer *trainer;
    wf_nn_module *model;
    wf_par_step result;
    uint64_t digest = 0;
    float mean = 0;
    wf_status status;

    if (!par)
        return rank->error.code;
    model = make(par, NULL);
    wf_par_job_materialize(t->pipeline, par, model);
    trainer = wf_par_trainer_open(par, model, &options);
    for (int step = 1; step <= STEPS && wf_context_status(wf_par_context(par)) == WF_OK; step++)
        wf_par_train_step(trainer, step, &data, &result);
    wf_par_evaluate(trainer, 2, &data, NULL, &mean);
    if (rank->index == 0) {
        wf_memory_report report;

        wf_pool_report(wf_context_pool(wf_par_context(par)), &report);
        t->peak = report.peak;
    }
    if (!t->layout.plan)
        wf_par_trainer_digest(trainer, &digest);
    if (rank->index == 0) {
        t->loss = result.loss;
        t->evaluated = mean;
        t->digest = digest;
    }
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    status = came_to(rank, wf_par_context(par), wf_context_status(wf_par_context(par)));
    wf_par_close(par);
    return status;
}

static bool train_trial(trial *t)
{
    const wf_par_pipeline_options how = {.model = make,
                                         .schedule = t->schedule,
                                         .recompute = t->recompute,
                                         .input = "tokens,targets",
                                         .head_loss = head_loss};
    wf_launch_options launch = {.ranks = (int)wf_par_ranks(&t->layout),
                                .transport = t->layout.plan ? "fake" : NULL};
    wf_par_train_options options = training_of(t);
    wf_error error = {WF_OK, ""};

    if (t->schedule)
        wf_par_pipeline_new(&t->layout, &options, &how, &t->pipeline, &error);
    if (error.code == WF_OK)
        wf_launch(&launch, on_rank, t, &error);
    CU_ASSERT_EQUAL(error.code, WF_OK);
    if (error.code != WF_OK)
        printf("\n    %s pp %d: %s\n", t->schedule, t->layout.pp, error.text);
    wf_par_pipeline_free(t->pipeline);
    t->pipeline = NULL;
    return error.code == WF_OK;
}

static void same_bits_on_all(void)
{
    trial one = {.layout = {.seed = 3}, .micro = BATCH};
    trial rows[] = {
        {.layout = {.dp = 2, .tp = 2}, .micro = 2},
        {.layout = {.pp = 2}, .schedule = "1f1b", .micro = 1},
        {.layout = {.pp = 2, .tp = 2, .dp = 2}, .schedule = "zb-v", .micro = 1},
        {.layout = {.pp = 4, .dp = 2, .strategy = "no_shard"}, .schedule = "gpipe", .micro = 2},
        {.layout = {.pp = 2, .tp = 2}, .schedule = "zb-h1", .micro = 2},
        {.layout = {.pp = 2, .dp = 2}, .schedule = "interleaved", .micro = 1},
        {.layout = {.pp = 2, .tp = 2}, .schedule = "1f1b", .recompute = true, .micro = 2},
    };

    if (!train_trial(&one))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rows[i].layout.seed = 3;
        if (!train_trial(&rows[i]))
            continue;
        CU_ASSERT_EQUAL(rows[i].digest, one.digest);
        CU_ASSERT(same_bits(rows[i].loss, one.loss));
        CU_ASSERT(same_bits(rows[i].evaluated, one.evaluated));
        if (rows[i].digest != one.digest)
            printf("\n    row %zu: %016" PRIx64 " for %016" PRIx64 "\n", i, rows[i].digest,
                   one.digest);
    }
}

/* The plan of a rank has the run's peak, to the byte. */
static void planned(void)
{
    trial run = {.layout = {.pp = 2, .dp = 2, .seed = 3}, .schedule = "1f1b", .micro = 1};
    trial plan = run;

    plan.layout.plan = true;
    if (train_trial(&run) && train_trial(&plan))
        CU_ASSERT_EQUAL(run.peak, plan.peak);
}

static void refused(void)
{
    const wf_par_pipeline_options how = {
        .model = make, .schedule = "1f1b", .input = "tokens,words", .head_loss = head_loss};
    trial t = {.layout = {.pp = 2}, .micro = 1};
    wf_par_train_options options = training_of(&t);
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_par_pipeline_new(&t.layout, &options, &how, &t.pipeline, &error),
                    WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "words"));
}

int main(void)
{
    static const wf_test tests[] = {{"the bits of one rank in stages", same_bits_on_all},
                                    {"a plan has the run's memory", planned},
                                    {"fields that there are not", refused},
                                    {NULL, NULL}};

    return wf_test_main("carried", tests);
}
