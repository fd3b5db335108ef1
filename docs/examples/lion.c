/*
 * lion.c - an optimizer of one's own: Lion (Chen et al. 2023) between wf_par_reduce, after
 * which every gradient is complete, and wf_par_optimizer_step.
 *
 *     c = beta1 m + (1 - beta1) g,  p = p - lr (sign(c) + weight_decay p),  m = beta2 m + (1 -
 *     beta2) g
 *
 * Its momentum lies like the gradients, whatever the strategy: each rank has the part that it
 * updates. The update is by elements, so any layout has the same bits. The last line is done by
 * Weft's SGD without momentum, which takes sign(c) as the gradient.
 */
#include <stdio.h>
#include <weft/weft.h>

enum { VOCABULARY = 67, TOKENS = 16, WIDTH = 32, STEPS = 60 };

static void lion(const wf_update *u, int64_t n, float *p, const float *g, float *const *state)
{
    for (int64_t i = 0; i < n; i++) {
        const float c = u->beta1 * state[0][i] + (1 - u->beta1) * g[i];

        p[i] -= u->lr * ((float)((c > 0) - (c < 0)) + u->weight_decay * p[i]);
        state[0][i] = u->beta2 * state[0][i] + (1 - u->beta2) * g[i];
    }
}

static const wf_nn_method_row lion_row = {"my-lion", .states = 1, .elements = lion};

static wf_tensor *forward(wf_nn_module *self, wf_tensor *x)
{
    x = wf_nn_run(self, "embed", x);
    x = wf_add(x, wf_nn_run(self, "mlp", wf_nn_run(self, "norm", x)));
    return wf_nn_run(self, "head", x);
}

static wf_tensor *cross_entropy(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_nn_cross_entropy((wf_nn_loss *)wf_nn_child(model, "loss"),
                               wf_nn_call(model, wf_par_batch_tensor(batch, "tokens")),
                               wf_par_batch_tensor(batch, "targets"));
}

/* Reads a dataset that is a function of the step and the sequence's number: token t, then 5 t +
   3. */
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

static const wf_par_rule rules[] = WF_RULES({"embed", WF_VOCAB}, WF_SWIGLU_MLP_RULES("mlp"),
                                            {"head", WF_COLUMN}, {"loss", WF_LOSS});

static wf_nn_module *model_new(wf_context *ctx)
{
    wf_dim vocabulary = wf_dim_chunked(VOCABULARY), width = wf_dim_width(WIDTH);
    wf_nn_linear_options head = {.in = width, .out = vocabulary, .deviation = 0.1f};

    return wf_nn_module_new(
        ctx, "model", forward,
        WF_CHILD("embed", wf_nn_embedding_new(ctx, vocabulary, width, 0.1f)),
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
        WF_CHILD("mlp", wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH})),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)), WF_CHILD("loss", wf_nn_loss_new(ctx)));
}

static wf_status train(wf_par *par, void *unused)
{
    const wf_par_train_options training = {
        .global_batch = 8,
        .field = WF_PAR_GPT_FIELDS(TOKENS),
        .loss = cross_entropy,
        .optimizer = {wf_nn_method_of(&lion_row), .beta1 = 0.9f, .beta2 = 0.99f,
                      .weight_decay = 0.01f},
        .schedule = {.lr = 3e-3, .min_lr = 3e-3, .steps = STEPS}};
    const wf_par_data data = {.read = read_data};
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = model_new(ctx);
    wf_par_trainer *trainer;
    wf_par_step result = {0};
    uint64_t digest = 0;

    (void)unused;
    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "", "dp", NULL);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= STEPS && wf_context_status(ctx) == WF_OK; step++)
        wf_par_train_step(trainer, step, &data, &result);
    if (wf_par_trainer_digest(trainer, &digest) == WF_OK && wf_context_rank(ctx) == 0)
        printf("loss %.6f, digest %016llx\n", (double)result.loss, (unsigned long long)digest);
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    return wf_context_status(ctx);
}

/* Try --dp 1 --tp 1, or mpirun -np 4: the same line. */
int main(int argc, char **argv)
{
    return wf_par_main(argc, argv, &(wf_par_options){.axes = WF_AXES({"dp", 2}, {"tp", 2})},
                       train, NULL);
}
