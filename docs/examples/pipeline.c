/*
 * pipeline.c - a model of one's own in pipeline stages, over tensor and data parallelism: a
 * chain of blocks, cut where the work is even, and schedules of which one is written here.
 * Whatever runs, the digest is that of one rank. With flags it is a program like gpt_train,
 * which plans, and searches the layouts of, this model.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { VOCABULARY = 67, TOKENS = 16, WIDTH = 32, BLOCKS = 6, STEPS = 40 };

typedef struct run {
    const char *schedule; /* NULL: no pipeline */
    wf_par_options options;
    wf_par_pipeline *pipeline;
    float loss;
    uint64_t digest;
} run;

static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    return wf_add(x, wf_nn_run(self, "mlp", wf_nn_run(self, "norm", x)));
}

/* Computes the loss from the chain's last result: the chain and this together are the model's
   loss. */
static wf_tensor *head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    return wf_nn_cross_entropy((wf_nn_loss *)wf_nn_child(model, "loss"),
                               wf_nn_run(model, "head", x),
                               wf_par_batch_tensor(batch, "targets"));
}

static wf_tensor *whole_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *x = wf_par_batch_tensor(batch, "tokens");

    wf_nn_chain_run(model, 0, wf_nn_chain_steps(model), 1, &x);
    return x ? head_loss(model, x, batch) : NULL;
}

static wf_nn_module *block_new(wf_context *ctx)
{
    return wf_nn_module_new(
        ctx, "block", block_forward,
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, wf_dim_width(WIDTH), 1e-5f)),
        WF_CHILD("mlp", wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH})));
}

static const wf_par_rule rules[] =
    WF_RULES({"embed", WF_VOCAB}, WF_SWIGLU_MLP_RULES("block.*.mlp"), {"head", WF_COLUMN},
             {"loss", WF_LOSS});

/* The whole model on every rank, in no memory: a rank makes its own stages real. */
static wf_nn_module *model_new(wf_par *par, void *unused)
{
    wf_context *ctx = wf_par_context(par);
    wf_dim vocabulary = wf_dim_chunked(VOCABULARY), width = wf_dim_width(WIDTH);
    wf_nn_linear_options head = {.in = width, .out = vocabulary, .deviation = 0.1f};
    wf_nn_module **block = calloc(BLOCKS, sizeof *block), *model; /* the model's from then on */

    (void)unused;
    for (int i = 0; block && i < BLOCKS; i++)
        block[i] = block_new(ctx);
    model = wf_nn_module_new(
        ctx, "model", NULL,
        WF_CHILD("embed", wf_nn_embedding_new(ctx, vocabulary, width, 0.1f)),
        WF_CHILDREN("block", block, BLOCKS),
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)), WF_CHILD("loss", wf_nn_loss_new(ctx)));
    WF_NN_CHAIN(model, "embed", "block", "norm");
    wf_par_tensor(par, model, "tp", rules);
    for (int i = 0; i < BLOCKS; i++) {
        char path[16];

        snprintf(path, sizeof path, "block.%d", i);
        wf_par_shard(par, model, path, "dp", NULL);
    }
    return model;
}

/* A schedule: all forwards, all gradients of inputs from the last stage on, and weights at the
   end. */
static wf_status weights_last(const wf_pipe_shape *shape, wf_pipe_table *table)
{
    static const wf_pipe_kind kinds[] = {WF_PIPE_F, WF_PIPE_I, WF_PIPE_W};

    for (int k = 0; k < 3; k++)
        for (int s = 0; s < shape->stages; s++) {
            int stage = k == 1 ? shape->stages - 1 - s : s;

            wf_pipe_table_set_rank(table, stage, stage % shape->ranks);
            for (int micro = 0; micro < shape->micro; micro++)
                wf_pipe_table_add(table, stage % shape->ranks, kinds[k], stage, micro);
        }
    return WF_OK;
}

/* Token t is followed by 5 t + 3. */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];

    (void)self, (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] = (int32_t)((31 * step + 7 * first * TOKENS + 7 * i) % VOCABULARY);
        targets[i] = (5 * tokens[i] + 3) % VOCABULARY;
    }
    return WF_OK;
}

static const wf_par_train_options training = {
    .global_batch = 16,
    .micro_batch = 1,
    .field = WF_PAR_GPT_FIELDS(TOKENS),
    .clip = 1,
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
    .schedule = {.lr = 1e-2, .min_lr = 1e-3, .steps = STEPS},
    .loss = whole_loss};

static wf_status train(wf_par *par, void *arg)
{
    run *r = arg;
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = model_new(par, NULL);
    wf_par_train_options options = training;
    wf_par_trainer *trainer;
    wf_par_step result = {0};
    uint64_t digest = 0;

    options.pipeline = r->pipeline;
    if (r->pipeline)
        wf_par_pipeline_materialize(r->pipeline, par, model);
    else
        wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &options);
    for (int step = 1; step <= STEPS && wf_context_status(ctx) == WF_OK; step++)
        wf_par_train_step(trainer, step, &(wf_par_data){.read = read_data}, &result);
    if (wf_par_trainer_digest(trainer, &digest) == WF_OK && wf_context_rank(ctx) == 0) {
        r->loss = result.loss;
        r->digest = digest;
    }
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    return wf_context_status(ctx);
}

/* Trains four layouts and compares their digests. Returns the exit status. */
static int compare(char **argv)
{
    run runs[] = {
        {NULL, {.axes = WF_AXES({"pp", 1}, {"dp", 1}, {"tp", 1})}, NULL, 0, 0},
        {"1f1b", {.axes = WF_AXES({"pp", 2}, {"dp", 1}, {"tp", 1})}, NULL, 0, 0},
        {"zb-v", {.axes = WF_AXES({"pp", 2}, {"dp", 2}, {"tp", 2})}, NULL, 0, 0},
        {"weights-last", {.axes = WF_AXES({"pp", 4}, {"dp", 1}, {"tp", 2})}, NULL, 0, 0}};
    bool same = true;

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run *r = &runs[i];
        const wf_par_pipeline_options how = {.model = model_new,
                                             .schedule = r->schedule,
                                             .input = "tokens",
                                             .head_loss = head_loss};
        wf_error error = {WF_OK, ""};
        int status;

        if (r->schedule &&
            wf_par_pipeline_new(&r->options, &training, &how, &r->pipeline, &error) != WF_OK)
            return fprintf(stderr, "%s\n", error.text), 2;
        status = wf_par_main(1, argv, &r->options, train, r);
        if (status != 0)
            return status;
        printf("%s\n  loss %.6f, digest %016llx\n",
               r->pipeline ? wf_par_pipeline_text(r->pipeline) : "one rank", (double)r->loss,
               (unsigned long long)r->digest);
        wf_par_pipeline_free(r->pipeline);
        same = same && r->digest == runs[0].digest;
    }
    return same && runs[0].loss < 1 ? 0 : 1;
}

/* Prints the fastest layouts of 8 ranks on a machine, and plans the first: what a program asks
   that chooses its own layout. */
static int find_layout(const wf_par_job *job, const char *machine)
{
    wf_error error = {WF_OK, ""};
    wf_plan_request request;
    wf_plan_list list;

    wf_plan_request_of(job, &request);
    request.machine = machine;
    request.ranks = 8;
    wf_plan_search(&request, &list, &error);
    for (int64_t i = 0; i < list.count && i < 3; i++)
        printf("%.2e s, %zu bytes a rank: %s\n", list.layout[i].seconds, list.layout[i].peak,
               list.layout[i].flags);
    if (list.count)
        wf_plan_print(&list.layout[0].request, stdout, &error);
    wf_plan_list_free(&list);
    return error.code == WF_OK ? 0 : (fprintf(stderr, "%s\n", error.text), 2);
}

/* Compares layouts without flags; with flags trains one, or plans it, or searches for the
 * fastest:
 *
 *     pipeline --pp 2 --tp 2 --pp-schedule zb-v --log-jsonl run.jsonl
 *     pipeline --plan --search --ranks 8 --machine docs/machines/h100.json
 *     pipeline fastest docs/machines/h100.json        the same search as a list
 */
int main(int argc, char **argv)
{
    const wf_par_pipeline_options stages = {.input = "tokens", .head_loss = head_loss};
    wf_par_program program = {
        .job = {.mesh = {.axes = WF_AXES({"pp", 1}, {"dp", 1}, {"tp", 1})},
                .model = model_new,
                .name = "a chain of 6 blocks",
                .train = training,
                .pipeline = &stages,
                .data = {.read = read_data},
                .steps = STEPS},
        .about = "Trains a small model, whose blocks may be stages of a pipeline."};

    wf_pipe_register("weights-last", weights_last);
    if (argc == 3 && strcmp(argv[1], "fastest") == 0)
        return find_layout(&program.job, argv[2]);
    return argc > 1 ? wf_par_run(argc, argv, &program) : compare(argv);
}
