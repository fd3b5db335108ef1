/* tests/bench/models.c - the models that are trained here, and a rank's part of training
   one. */
#include "tests/bench/models.h"
#include <stdlib.h>
#include <string.h>

static const bench_model models[] = {
    {.name = "tiny",
     .config =
         {.vocabulary = 256, .positions = 32, .layers = 2, .heads = 8, .width = 64, .ffn = 256},
     .batch = 4,
     .seq = 32},
    {.name = "small",
     .config = {.vocabulary = 256,
                .positions = 256,
                .layers = 6,
                .heads = 6,
                .width = 384,
                .ffn = 1536},
     .batch = 8,
     .seq = 256},
    {.name = "demo",
     .config = {.vocabulary = 256,
                .positions = 128,
                .layers = 4,
                .heads = 8,
                .width = 256,
                .ffn = 1024},
     .batch = 16,
     .seq = 128},
    {.name = "wide",
     .config = {.vocabulary = 256,
                .positions = 256,
                .layers = 4,
                .heads = 8,
                .width = 512,
                .ffn = 2048},
     .batch = 16,
     .seq = 256},
    {.name = "gpt2-256",
     .config = {.vocabulary = 50304,
                .positions = 256,
                .layers = 12,
                .heads = 12,
                .width = 768,
                .ffn = 3072},
     .batch = 4,
     .seq = 256},
    {.name = "gpt2-1024",
     .config = {.vocabulary = 50304,
                .positions = 1024,
                .layers = 12,
                .heads = 12,
                .width = 768,
                .ffn = 3072},
     .batch = 4,
     .seq = 1024},
};

const bench_model *bench_model_find(const char *name, wf_error *error)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    }
    wf_error_set(error, WF_EINVAL,
                 "there is no model %s; use tiny, small, demo, wide, gpt2-256 or gpt2-1024",
                 name);
    return NULL;
}

double bench_model_flops(const bench_model *model)
{
    const wf_nn_gpt_config *c = &model->config;
    double block = 4.0 * (double)(c->width * c->width) + 2.0 * (double)(c->width * c->ffn);
    double weights =
        (double)c->layers * block + (double)c->vocabulary * (double)c->width; /* the head */

    return 6 * weights + 6.0 * (double)(model->seq * c->width) * (double)c->layers;
}

static wf_status read_tokens(void *self, int64_t step, int64_t first, int64_t count,
                             void *const *field, wf_error *error)
{
    const bench_model *model = self;
    int32_t *tokens = field[0], *targets = field[1];
    int64_t length = model->seq;

    (void)error;
    for (int64_t i = 0; i < count * length; i++) {
        uint64_t at = (uint64_t)(step * 1009 + first + i / length) * 0x9e3779b97f4a7c15u +
                      (uint64_t)(i % length);

        tokens[i] = (int32_t)((at >> 7) * 2654435761u % (uint64_t)model->config.vocabulary);
        targets[i] = (int32_t)((tokens[i] + 1) % model->config.vocabulary);
    }
    return WF_OK;
}

wf_nn_module *bench_model_new(wf_par *par, void *arg)
{
    const bench_model *model = arg;
    wf_nn_gpt_config config = model->config;
    wf_nn_gpt *gpt;

    config.kv_heads = config.heads;
    gpt = wf_nn_gpt_new(wf_par_context(par), &config);
    if (gpt && wf_nn_recompute(&gpt->base, model->recompute) == WF_OK)
        wf_par_plan(par, &gpt->base, wf_par_gpt_plan);
    return (wf_nn_module *)gpt;
}

wf_par_train_options bench_training(const bench_model *model)
{
    return (wf_par_train_options){.global_batch = model->batch,
                                  .micro_batch = model->micro,
                                  .field = WF_PAR_GPT_FIELDS(model->seq),
                                  .clip = 1,
                                  .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                                                .eps = 1e-8f, .weight_decay = 0.1f},
                                  .schedule = {.lr = 1e-4, .min_lr = 1e-5, .steps = 1 << 20},
                                  .loss = wf_par_gpt_loss};
}

static wf_status open_model(bench_trainee *t, const bench_model *model,
                            const wf_par_pipeline *pipeline)
{
    wf_par_train_options training = bench_training(model);

    training.pipeline = pipeline;
    t->model = bench_model_new(t->par, (void *)model);
    if (pipeline)
        wf_par_pipeline_materialize(pipeline, t->par, t->model);
    else
        wf_par_materialize(t->par, t->model);
    t->trainer = wf_par_trainer_open(t->par, t->model, &training);
    return wf_context_status(wf_par_context(t->par));
}

bench_trainee *bench_trainee_open(wf_rank *rank, const wf_par_options *options,
                                  const bench_model *model, const wf_par_pipeline *pipeline)
{
    bench_trainee *t = calloc(1, sizeof *t);

    if (!t) {
        wf_error_set(&rank->error, WF_ENOMEM, "no memory for a rank of %s", model->name);
        return NULL;
    }
    t->par = wf_par_open(rank, options, &rank->error);
    if (t->par && open_model(t, model, pipeline) == WF_OK)
        return t;
    if (t->par)
        wf_error_set(&rank->error, wf_context_status(wf_par_context(t->par)), "%s",
                     wf_context_error(wf_par_context(t->par))->text);
    bench_trainee_close(t);
    return NULL;
}

wf_status bench_trainee_step(wf_rank *rank, bench_trainee *t, const bench_model *model,
                             float *loss)
{
    const wf_par_data data = {.read = read_tokens, .self = (void *)model};
    wf_context *ctx = wf_par_context(t->par);
    wf_par_step result;

    if (wf_par_train_step(t->trainer, ++t->step, &data, &result) != WF_OK)
        return wf_error_set(&rank->error, wf_context_status(ctx), "%s",
                            wf_context_error(ctx)->text);
    *loss = result.loss;
    return WF_OK;
}

void bench_trainee_close(bench_trainee *t)
{
    if (!t)
        return;
    wf_par_trainer_close(t->trainer);
    wf_nn_free(t->model);
    wf_par_close(t->par);
    free(t);
}
