/* apps/quickstart.c - mesh, model, plan, train step: a small GPT on 2 x 2 ranks of this
 * process. */
#include <stdio.h>
#include <weft/weft.h>

/* Every sequence counts up from somewhere: something that a model learns quickly. */
static wf_status count_up(void *self, int64_t step, int64_t first, int64_t count,
                          int64_t length, int32_t *tokens, int32_t *targets, wf_error *error)
{
    (void)self, (void)error;
    for (int64_t i = 0; i < count * length; i++) {
        tokens[i] = (int32_t)((37 * step + 101 * (first + i / length) + i % length) % 256);
        targets[i] = (tokens[i] + 1) % 256;
    }
    return WF_OK;
}

static const wf_nn_gpt_config small = {.arch = WF_NN_LLAMA,
                                       .vocabulary = 256,
                                       .positions = 64,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .width = 64,
                                       .ffn = 192};

static const wf_par_train_options training = {
    .global_batch = 8,
    .seq_len = 64,
    .clip = 1,
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                  .weight_decay = 0.1f},
    .schedule = {.lr = 3e-3, .min_lr = 3e-4, .warmup = 10, .steps = 100},
    .loss = wf_par_gpt_loss};

/* Every rank runs this; nothing in it depends on how many there are. */
static wf_status rank_main(wf_rank *rank, void *options)
{
    const wf_par_data data = {.read = count_up};
    wf_par *par = wf_par_open(rank, options, &rank->error);
    wf_context *ctx = par ? wf_par_context(par) : NULL;
    wf_nn_module *model;
    wf_par_trainer *trainer;
    wf_par_step result;

    if (!par)
        return rank->error.code;
    model = (wf_nn_module *)wf_nn_gpt_new(ctx, &small);
    wf_par_plan(par, model, wf_par_gpt_plan); /* who holds what */
    wf_par_materialize(par, model);           /* only now is memory taken */
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= 100 && wf_context_status(ctx) == WF_OK; step++)
        if (wf_par_train_step(trainer, step, &data, &result) == WF_OK && step % 20 == 0 &&
            rank->index == 0)
            printf("step %3d  loss %.6f\n", step, (double)result.loss);
    rank->error = *wf_context_error(ctx); /* the first one, if there was any */
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    wf_par_close(par);
    return rank->error.code;
}

int main(void)
{
    wf_par_options options = {.tp = 2, .dp = 2, .seed = 1}; /* try 4 and 1: the same losses */
    wf_launch_options launch = {.ranks = options.tp * options.dp};
    wf_error error = {WF_OK, ""};

    if (wf_launch(&launch, rank_main, &options, &error) != WF_OK)
        fprintf(stderr, "%s\n", error.text);
    return error.code != WF_OK;
}
