/*
 * tests/parallel/test_predictions.c - predictions [batch, classes] are no losses, and numbers
 * to evaluate all the same; a loss for each class is one, and so is a critic's number per
 * sequence.
 * ctest: builds plain
 */
#include "kernels/elementwise_ops.h"
#include "kernels/row_ops.h"
#include "nn/children.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/parallel_harness.h"

enum { BATCH = 8, FEATURES = 6, CLASSES = 5 };

static wf_tensor *classify(wf_nn_module *self, wf_tensor *x)
{
    return wf_nn_run(self, "head", wf_nn_run(self, "norm", x));
}

static wf_nn_module *classifier_new(wf_context *ctx)
{
    const wf_nn_linear_options head = {.in = wf_dim_width(FEATURES),
                                       .out = wf_dim_chunked(CLASSES),
                                       .bias = true,
                                       .deviation = 0.4f};

    return wf_nn_module_new(
        ctx, "classifier", classify,
        WF_CHILD("norm", wf_nn_layernorm_new(ctx, wf_dim_width(FEATURES), 1e-5f)),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)));
}

static wf_tensor *logits(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_nn_call(model, wf_par_batch_tensor(batch, "features"));
}

static wf_tensor *probabilities(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_softmax(logits(model, batch), 1);
}

/* Some classes of a sum of logits. */
static wf_tensor *summed(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *y = logits(model, batch);

    return wf_slice(wf_add(y, wf_transpose(wf_transpose(y, 0, 1), 0, 1)), 1, 1, 3);
}

static wf_tensor *normed(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_nn_run(model, "norm", wf_par_batch_tensor(batch, "features"));
}

/* The square of each probability less 1. */
static wf_tensor *squares(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *d = wf_add_constant(probabilities(model, batch), -1);

    return wf_mul(d, d);
}

/* [batch, 1]: a number per sequence that the head made. */
static wf_tensor *score(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_slice(logits(model, batch), 1, 0, 1);
}

/* The distance from classes that are alike. */
static wf_tensor *from_uniform(wf_nn_module *model, const wf_par_batch *batch)
{
    return wf_neg(wf_log_softmax(logits(model, batch)));
}

/* s + exp(-s), of logarithms s of variances, which has a least value. */
static wf_tensor *variances(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *s = logits(model, batch);

    return wf_add(s, wf_exp(wf_neg(s)));
}

static const struct {
    wf_par_loss_function *loss;
    const char *words; /* NULL: it is legal */
} cases[] = {
    {logits, "as bias_add in head made it: a prediction or features, which no target"},
    {squares, NULL},
    {probabilities, "as softmax made it: a prediction or"},
    {score, NULL},
    {summed, "the loss is f32 [8,3]"},
    {from_uniform, NULL},
    {normed, "as layernorm in norm made it: a prediction"},
    {variances, NULL},
};

static wf_status read_features(void *self, int64_t step, int64_t first, int64_t count,
                               void *const *field, wf_error *error)
{
    (void)self, (void)error;
    for (int64_t i = 0; i < count * FEATURES; i++)
        ((float *)field[0])[i] = (float)((step + first * FEATURES + i) % 7) - 3;
    return WF_OK;
}

static wf_status take_each(part *p, wf_par_trainer *trainer)
{
    const wf_par_data data = {.read = read_features};
    wf_rank *rank = p->rank;
    float mean;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wf_par_batch *batch;
        wf_tensor *loss;

        GOOD(wf_par_evaluate(trainer, 1, &data, cases[i].loss, &mean));
        GOOD(wf_par_step_begin(trainer, 1));
        batch = wf_par_micro_step_begin(trainer, &data);
        loss = cases[i].loss(p->model, batch);
        if (!cases[i].words)
            GOOD(wf_par_backward(trainer, loss));
        else {
            wf_par_backward(trainer, loss);
            GOOD(refused(rank, p->ctx, NULL, WF_ESHAPE, cases[i].words));
        }
        GOOD(wf_par_zero_grad(trainer));
    }
    return WF_OK;
}

static wf_status classifier_part(part *p)
{
    training *t = p->arg;
    wf_par_trainer *trainer = NULL;
    wf_status status;
    part mine = *p;

    mine.model = classifier_new(p->ctx);
    if (mine.model && wf_par_plan(p->par, mine.model, NULL) == WF_OK &&
        wf_par_materialize(p->par, mine.model) == WF_OK)
        trainer = wf_par_trainer_open(p->par, mine.model, &t->options);
    status = trainer ? take_each(&mine, trainer) : wf_context_status(p->ctx);
    wf_par_trainer_close(trainer);
    wf_nn_free(mine.model);
    return status;
}

static void predictions_are_no_losses(void)
{
    const wf_par_field field = {"features", WF_F32, {wf_dim_width(FEATURES)}};

    for (int dp = 1; dp <= 2; dp++) {
        training t = new_training(GPT2, HEADS, BATCH);

        memset(t.options.field, 0, sizeof t.options.field);
        t.options.field[0] = field;
        t.options.loss = squares;
        t.layout.dp = dp;
        t.layout.strategy = "no_shard"; /* a loss function uses the norm by itself */
        run_parts((part_test){
            .options = t.layout, .config = &t.model, .body = classifier_part, .arg = &t});
    }
}

int main(void)
{
    static const wf_test tests[] = {{"predictions", predictions_are_no_losses}, {NULL, NULL}};

    return wf_test_main("predictions", tests);
}
