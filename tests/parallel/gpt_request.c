/* tests/parallel/gpt_request.c - see the header. */
#include "tests/parallel/gpt_request.h"
#include <string.h>

enum { VOCABULARY = 512 };

static wf_nn_module *shortened(wf_par *par, void *arg, int64_t blocks, int64_t vocabulary)
{
    wf_nn_gpt_config config = *(const wf_nn_gpt_config *)arg;
    wf_nn_gpt *model;

    config.layers = blocks;
    config.vocabulary = vocabulary;
    model = wf_nn_gpt_new(wf_par_context(par), &config);
    if (model)
        wf_par_plan(par, &model->base, wf_par_gpt_plan);
    return (wf_nn_module *)model;
}

static wf_nn_module *whole(wf_par *par, void *arg)
{
    const wf_nn_gpt_config *config = arg;

    return shortened(par, arg, config->layers, config->vocabulary);
}

wf_plan_request *gpt_request_make(const char *family, int64_t blocks, int64_t width,
                                  int64_t tokens, int64_t batch, gpt_request *a)
{
    wf_plan_request *r = &a->request;

    a->config = *wf_nn_gpt_family(family);
    a->config.vocabulary = VOCABULARY;
    a->config.layers = blocks;
    a->config.heads = a->config.kv_heads = 4;
    a->config.width = width;
    a->config.ffn = strcmp(family, "gpt2") == 0 ? 4 * width : 3 * width;
    a->config.positions = tokens;
    a->sizes = wf_par_gpt_sizes(&a->config, tokens);
    a->pipeline =
        (wf_par_pipeline_options){.input = "tokens", .head_loss = wf_par_gpt_head_loss};
    const wf_par_job job = {
        .model = whole,
        .shortened = shortened,
        .arg = &a->config,
        .mesh = {.prefetch = 1, .seed = 1, .threads = 1},
        .train = {.global_batch = batch,
                  .field = WF_PAR_GPT_FIELDS(tokens),
                  .clip = 1,
                  .optimizer = {WF_NN_ADAMW, .beta1 = .9f, .beta2 = .95f, .eps = 1e-8f},
                  .schedule = {.lr = 1e-3, .min_lr = 1e-4, .steps = 200},
                  .loss = wf_par_gpt_loss},
        .pipeline = &a->pipeline,
        .sizes = &a->sizes,
        .steps = 200};

    wf_plan_request_of(&job, r);
    r->machine = WEFT_MACHINE;
    r->given[WF_SETTING_threads_per_rank] = true;
    return r;
}
