/*
 * axes.c - a model of named children, one of them with an op and a sharding style of this
 * project's own, on meshes with axes of one's own: tensor parallelism over one axis, sharding
 * module by module over others, a hook, and a training loop of parts. Nothing divides: 67
 * tokens and 27 hidden units on 2 ranks. Four meshes give the same digest.
 *
 * In PyTorch this is init_device_mesh, parallelize_module, fully_shard, register_forward_hook,
 * and zero_grad, backward, clip_grad_norm_, step; see README.md for the lines side by side.
 */
#include "my_op.h"
#include <stdio.h>

enum {
    STEPS = 20,
    VOCABULARY = 67,
    TOKENS = 16,
    WIDTH = 24,
    HIDDEN = 27,
    HEADS = 6,
    LAYERS = 2
};

typedef struct run {
    const char *name;
    wf_par_options options;
    const char *strategy; /* the blocks' */
    const char *axis;     /* the one that they are sharded over */
    float loss;
    uint64_t digest;
    int calls; /* counted by the hook on the first rank */
} run;

/* y = relu2(x U^T) D^T, by an op of this project's own. */
static wf_tensor *feed_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_tensor *hidden = my_relu2(wf_linear(wf_nn_at(self, "in", x), wf_nn_weight(self, "up")));

    return wf_nn_at(self, "sum", wf_linear(hidden, wf_nn_weight(self, "down")));
}

/* A dim says how sums over it are cut: `hidden` in 8 chunks, which tensor parallelism
   splits. */
static wf_nn_module *feed_forward_new(wf_context *ctx)
{
    wf_dim width = wf_dim_width(WIDTH), hidden = wf_dim_chunked(HIDDEN);
    wf_nn_parameter *up = wf_nn_parameter_new(ctx, 2, (wf_dim[]){hidden, width}, true);
    wf_nn_module *made;
    wf_nn_parameter *down = wf_nn_parameter_new(ctx, 2, (wf_dim[]){width, hidden}, true);

    wf_nn_init_normal(up, 0, 0.1f);
    wf_nn_init_normal(down, 0, 0.1f);
    made = wf_nn_module_new(ctx, "feed_forward", feed_forward, WF_PARAMETER("up", up),
                            WF_PARAMETER("down", down));
    wf_nn_points(made, "in sum"); /* the points at which a style may have borders */
    return made;
}

/* Tensor parallelism for it: `up` by its rows and `down` by its columns, so that a rank
   computes with its own hidden units alone; its input is whole, and what "sum" sees is a
   partial sum, taken there. */
static const wf_par_style feed_forward_style = {
    .name = "feed_forward",
    .splits = (const wf_par_split[]){{"up", 0}, {"down", 1}, {NULL, 0}},
    .borders = (const wf_par_border[]){{"in", WF_PAR_WHOLE, 0, true},
                                       {"sum", WF_PAR_RESIDUAL, 1, false},
                                       {NULL, 0, 0, false}}};

static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    x = wf_add(x, wf_nn_run(self, "attn", wf_nn_run(self, "norm1", x)));
    return wf_add(x, wf_nn_run(self, "feed", wf_nn_run(self, "norm2", x)));
}

static wf_nn_module *block_new(wf_context *ctx)
{
    wf_dim width = wf_dim_width(WIDTH);
    const wf_nn_attention_options attention = {
        .width = WIDTH, .heads = HEADS, .causal = true, .rope_base = 10000};

    return wf_nn_module_new(ctx, "block", block_forward,
                            WF_CHILD("norm1", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
                            WF_CHILD("attn", wf_nn_attention_new(ctx, &attention)),
                            WF_CHILD("norm2", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
                            WF_CHILD("feed", feed_forward_new(ctx)));
}

static wf_nn_module *model_new(wf_context *ctx)
{
    wf_dim width = wf_dim_width(WIDTH), vocabulary = wf_dim_chunked(VOCABULARY);
    const wf_nn_linear_options head = {.in = width, .out = vocabulary, .deviation = 0.1f};

    return wf_nn_module_new(
        ctx, "model", NULL,
        WF_CHILD("embed", wf_nn_embedding_new(ctx, vocabulary, width, 0.1f)),
        WF_CHILD("block0", block_new(ctx)), WF_CHILD("block1", block_new(ctx)),
        WF_CHILD("norm", wf_nn_rmsnorm_new(ctx, width, 1e-5f)),
        WF_CHILD("head", wf_nn_linear_new(ctx, &head)), WF_CHILD("loss", wf_nn_loss_new(ctx)));
}

/* The losses of all tokens, [batch, tokens]. The parameters at the root are its unit's, so a
   forward pass is a run of the root. */
static wf_tensor *losses(wf_nn_module *model, const wf_par_batch *batch)
{
    const char *outside = wf_nn_enter(model);
    wf_tensor *x = wf_nn_run(model, "embed", wf_par_batch_tensor(batch, "tokens")), *result;

    x = wf_nn_run(model, "block1", wf_nn_run(model, "block0", x));
    x = wf_nn_run(model, "head", wf_nn_run(model, "norm", x));
    result = wf_nn_cross_entropy((wf_nn_loss *)wf_nn_child(model, "loss"), x,
                                 wf_par_batch_tensor(batch, "targets"));
    wf_nn_leave(model, outside, 1, &result);
    return result;
}

static const wf_par_rule rules[] =
    WF_RULES({"embed", WF_VOCAB}, WF_ATTENTION_RULES("*.attn"), {"*.feed", &feed_forward_style},
             {"head", WF_COLUMN}, {"loss", WF_LOSS});

static wf_tensor *count_call(void *self, wf_nn_module *module, wf_tensor *x, wf_tensor *y)
{
    (void)module;
    (void)x;
    ++*(int *)self;
    return y;
}

/* Each token is followed by 5 t + 3. */
static wf_status read_data(void *self, int64_t step, int64_t first, int64_t count,
                           void *const *field, wf_error *error)
{
    uint64_t key = wf_random_key(1, WF_RANDOM_DATA);
    int32_t *tokens = field[0], *targets = field[1];

    (void)self;
    (void)error;
    for (int64_t i = 0; i < count * TOKENS; i++) {
        tokens[i] = (int32_t)wf_random_below(key, (uint64_t)step,
                                             (uint64_t)(first * TOKENS + i), VOCABULARY);
        targets[i] = (5 * tokens[i] + 3) % VOCABULARY;
    }
    return WF_OK;
}

/* The loop: what wf_par_train_step does, by its parts. */
static void loop(wf_par_trainer *trainer, wf_nn_module *model, float *loss)
{
    const wf_par_data data = {.read = read_data};
    double norm;

    for (int step = 1; step <= STEPS; step++) {
        wf_par_step_begin(trainer, step);
        for (int64_t k = 0; k < wf_par_micro_steps(trainer); k++)
            wf_par_backward(trainer, losses(model, wf_par_micro_step_begin(trainer, &data)));
        wf_par_reduce(trainer, loss);
        wf_par_clip(trainer, 1.0f, &norm);
        wf_par_optimizer_step(trainer, 1e-2f);
    }
}

static wf_status train(wf_par *par, void *arg)
{
    run *r = arg;
    const wf_par_train_options options = {.global_batch = 8,
                                          .micro_batch = 1,
                                          .field = WF_PAR_GPT_FIELDS(TOKENS),
                                          .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f,
                                                        .beta2 = 0.95f, .eps = 1e-8f,
                                                        .weight_decay = 0.01f}};
    const wf_par_shard_options blocks = {.strategy = r->strategy, .prefetch = 1};
    wf_context *ctx = wf_par_context(par);
    wf_nn_module *model = model_new(ctx);
    int calls = 0;
    const wf_nn_hooks counter = {.post_forward = count_call, .self = &calls};
    wf_par_trainer *trainer;
    uint64_t digest = 0;
    float loss = 0;

    if (wf_mesh_axis(wf_par_mesh(par), "cols") >= 0)
        wf_par_tensor(par, model, "cols", rules);
    if (r->axis) {
        wf_par_shard(par, model, "block0", r->axis, &blocks);
        wf_par_shard(par, model, "block1", r->axis, NULL);
    }
    wf_par_materialize(par, model);
    if (model)
        wf_nn_hook_add(wf_nn_child(model, "block0"), &counter);
    trainer = wf_par_trainer_open(par, model, &options);
    if (trainer) {
        loop(trainer, model, &loss);
        wf_par_trainer_digest(trainer, &digest);
    }
    wf_par_trainer_close(trainer);
    wf_nn_free(model);
    if (wf_context_rank(ctx) == 0) {
        r->loss = loss;
        r->digest = digest;
        r->calls = calls;
    }
    return wf_context_status(ctx);
}

int main(int argc, char **argv)
{
    run runs[] = {
        {.name = "one rank", .options = {.axes = WF_AXES({"rows", 1}), .dp_axes = "rows"}},
        {.name = "rows 2 x cols 2",
         .options = {.axes = WF_AXES({"rows", 2}, {"cols", 2}), .dp_axes = "rows"},
         .strategy = "full_shard",
         .axis = "rows"},
        {.name = "hosts 2 x rows 2",
         .options = {.axes = WF_AXES({"hosts", 2}, {"rows", 2}), .dp_axes = "hosts/rows"},
         .strategy = "shard_grad_op",
         .axis = "rows"},
        {.name = "cols 2 x rows 4",
         .options = {.axes = WF_AXES({"cols", 2}, {"rows", 4}), .dp_axes = "rows"},
         .strategy = "zero1",
         .axis = "rows"},
    };
    bool same = true;

    (void)argc;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run *r = &runs[i];
        int status = wf_par_main(1, argv, &r->options, train, r);

        if (status != 0)
            return status;
        same = same && r->digest == runs[0].digest && r->calls > 0;
        printf("%-17s loss %.6f, digest %016llx%s\n", r->name, (double)r->loss,
               (unsigned long long)r->digest,
               r->digest == runs[0].digest ? "" : "  DIFFERENT BITS");
    }
    return same && runs[0].loss < 4 ? 0 : 1;
}
