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
#include <stdlib.h>
#include <weft/weft.h>

enum { VOCABULARY = 67, TOKENS = 16, WIDTH = 32, STEPS = 60 };

/* Momenta by parameter, each of this rank's part of its gradient; NULL before its first one. */
typedef struct lion {
    int64_t count;
    wf_nn_parameter **parameter;
    float **momentum;
} lion;

static const float beta1 = 0.9f, beta2 = 0.99f;

/* Makes the state of an optimizer; lion_close takes one that could not be made. */
static bool lion_open(lion *l, wf_nn_module *model)
{
    l->parameter = wf_nn_parameters(model, &l->count);
    l->momentum = l->parameter ? calloc((size_t)l->count, sizeof *l->momentum) : NULL;
    return l->momentum != NULL;
}

static void lion_close(lion *l)
{
    for (int64_t i = 0; l->momentum && i < l->count; i++)
        free(l->momentum[i]);
    free(l->momentum);
    free(l->parameter);
}

/* Replaces a gradient by the direction of its parameter, and updates the momentum. */
static bool direct(float **momentum, wf_tensor *gradient)
{
    const int64_t n = wf_tensor_local_count(gradient);
    wf_host_data view;
    float *g = wf_data_write(gradient, true, &view), *m;

    if (!*momentum)
        *momentum = calloc(n > 0 ? (size_t)n : 1, sizeof **momentum);
    m = *momentum;
    for (int64_t i = 0; g && m && i < n; i++) {
        const float c = beta1 * m[i] + (1 - beta1) * g[i];

        m[i] = beta2 * m[i] + (1 - beta2) * g[i];
        g[i] = (float)((c > 0) - (c < 0));
    }
    wf_data_close(&view);
    return g && m;
}

/* Updates all parameters; nothing is communicated. */
static bool lion_step(lion *l, wf_par_trainer *trainer, float lr)
{
    for (int64_t i = 0; i < l->count; i++) {
        wf_tensor *gradient = wf_par_gradient(trainer, l->parameter[i]);

        if (gradient && !direct(&l->momentum[i], gradient))
            return false;
    }
    return wf_par_optimizer_step(trainer, lr) == WF_OK;
}

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
    const wf_par_train_options training = {.global_batch = 8,
                                           .field = WF_PAR_GPT_FIELDS(TOKENS),
                                           .optimizer = {WF_NN_SGD, .weight_decay = 0.01f}};
    const wf_par_data data = {.read = read_data};
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = model_new(ctx);
    wf_par_trainer *trainer;
    lion optimizer = {0};
    uint64_t digest = 0;
    float loss = 0;
    bool ok = true;

    (void)unused;
    wf_par_tensor(par, model, "tp", rules);
    wf_par_shard(par, model, "", "dp", NULL);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &training);
    ok = trainer && lion_open(&optimizer, model);
    for (int step = 1; ok && step <= STEPS; step++) {
        wf_par_step_begin(trainer, step);
        for (int64_t k = 0; k < wf_par_micro_steps(trainer); k++)
            wf_par_backward(trainer,
                            cross_entropy(model, wf_par_micro_step_begin(trainer, &data)));
        wf_par_reduce(trainer, &loss);
        ok = lion_step(&optimizer, trainer, 3e-3f);
    }
    if (!ok)
        wf_fail(ctx, WF_ENOMEM, "lion: the optimizer's state");
    if (wf_par_trainer_digest(trainer, &digest) == WF_OK && wf_context_rank(ctx) == 0)
        printf("loss %.6f, digest %016llx\n", (double)loss, (unsigned long long)digest);
    lion_close(&optimizer);
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
