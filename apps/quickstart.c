/* apps/quickstart.c - mesh, model, plan, train step: a small GPT on 2 x 2 ranks of this
 * process. */
#include <stdio.h>
#include <weft/weft.h>

enum { TOKENS = 64 };

/* Every sequence counts up from somewhere: something that a model learns quickly. */
static wf_status count_up(void *self, int64_t step, int64_t first, int64_t count,
                          void *const *field, wf_error *error)
{
    int32_t *tokens = field[0], *targets = field[1];

    (void)self, (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] = (int32_t)((37 * step + 101 * (first + i / TOKENS) + i % TOKENS) % 256);
        targets[i] = (tokens[i] + 1) % 256;
    }
    return WF_OK;
}

static const wf_nn_gpt_config small = {.vocabulary = 256,
                                       .positions = TOKENS,
                                       .layers = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .width = 64,
                                       .ffn = 192};

static const wf_par_train_options training = {
    .global_batch = 8,
    .field = WF_PAR_GPT_FIELDS(TOKENS),
    .clip = 1,
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                  .weight_decay = 0.1f},
    .schedule = {.lr = 3e-3, .min_lr = 3e-4, .warmup = 10, .steps = 100},
    .loss = wf_par_gpt_loss};

/* Every rank runs this; nothing in it depends on how many there are. */
static wf_status train(wf_par *par, void *unused)
{
    const wf_par_data data = {.read = count_up};
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = (wf_nn_module *)wf_nn_gpt_new(ctx, &small);
    wf_par_trainer *trainer;
    wf_par_step result;

    (void)unused;
    wf_par_plan(par, model, wf_par_gpt_plan); /* who holds what */
    wf_par_materialize(par, model);           /* only now is memory taken */
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= 100 && wf_context_status(ctx) == WF_OK; step++)
        if (wf_par_train_step(trainer, step, &data, &result) == WF_OK && step % 20 == 0 &&
            wf_context_rank(ctx) == 0)
            printf("step %3d  loss %.6f\n", step, (double)result.loss);
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    return wf_context_status(ctx); /* the first error, if there was any */
}

/* Try --tp 4 --dp 1, or mpirun -np 4: the same losses. */
int main(int argc, char **argv)
{
    return wf_par_main(argc, argv, &(wf_par_options){.tp = 2, .dp = 2, .seed = 1}, train, NULL);
}
