/*
 * tiny.c - a model, a mesh, tensor parallelism over one axis, fully sharded data parallelism
 * over the other, and a training loop, in one page; README.md has the same in PyTorch.
 */
#include <stdio.h>
#include <weft/weft.h>

enum { VOCABULARY = 67, TOKENS = 16, WIDTH = 32 };

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

/* Token t is followed by 5 t + 3. Sequence `first + i` has the same tokens on any mesh. */
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

static const wf_par_train_options training = {
    .global_batch = 8,
    .field = WF_PAR_GPT_FIELDS(TOKENS),
    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f},
    .schedule = {.lr = 1e-2, .min_lr = 1e-3, .steps = 50},
    .loss = cross_entropy};

static wf_status train(wf_par *par, void *unused)
{
    wf_context *ctx = wf_par_context(par);
    wf_dim vocabulary = wf_dim_chunked(VOCABULARY), width = wf_dim_width(WIDTH);
    wf_nn_linear_options head = {.in = width, .out = vocabulary, .deviation = 0.1f};
    wf_nn_module *model = wf_nn_module_new(
        ctx, "model", forward,
        WF_CHILD("embed", wf_nn_embedding_new(ctx, vocabulary, width, 0.1f)),
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
        WF_CHILD("mlp", wf_nn_swiglu_mlp_new(ctx, &(wf_nn_mlp_options){.width = WIDTH})),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)), WF_CHILD("loss", wf_nn_loss_new(ctx)));
    wf_par_trainer *trainer;
    wf_par_step result = {0};
    uint64_t digest = 0;

    (void)unused;
    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "mlp", "dp", NULL);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &training);
    for (int step = 1; step <= 50 && wf_context_status(ctx) == WF_OK; step++)
        wf_par_train_step(trainer, step, &(wf_par_data){.read = read_data}, &result);
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
