/*
 * my_module.c - modules of one's own: a feed-forward layer over the op of my_op.c, and a small
 * model of it that learns which token follows which. No rank, no layout, no collective.
 */
#include "mine.h"
#include <stddef.h>
#include <stdlib.h>

static wf_tensor *feed_forward(wf_nn_module *self, wf_tensor *x)
{
    my_feed_forward *m = (my_feed_forward *)self;
    wf_tensor *hidden;

    x = wf_nn_at(m, "in", x);
    hidden = my_relu2(wf_linear(x, wf_nn_use(m, m->up)));
    return wf_nn_at(m, "sum", wf_linear(hidden, wf_nn_use(m, m->down)));
}

static wf_tensor *layer_forward(wf_nn_module *self, wf_tensor *x)
{
    my_layer *m = (my_layer *)self;

    return wf_add(x, wf_nn_call(m->feed, wf_nn_call(m->norm, x)));
}

static wf_tensor *model_forward(wf_nn_module *self, wf_tensor *tokens)
{
    my_model *m = (my_model *)self;
    wf_tensor *x = wf_nn_call(m->embed, tokens);

    for (int64_t i = 0; i < m->layers; i++)
        x = wf_nn_call(m->layer[i], x);
    return wf_nn_call(m->head, wf_nn_call(m->norm, x));
}

/* Of plain ops, so that any weight of the losses may come back; wf_nn_linear_cross_entropy would
   need less memory, and be told that weight (wf_par_batch_weight). */
wf_tensor *my_model_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    my_model *m = (my_model *)model;
    wf_tensor *logits = wf_nn_call(m, wf_par_batch_tensor(batch, "tokens"));

    return wf_nn_cross_entropy(m->loss, logits, wf_par_batch_tensor(batch, "targets"));
}

/* Fields give paths, initialisation, optimizer state, digest and release. */
static const wf_nn_field feed_forward_fields[] = {
    {"up", WF_NN_PARAMETER, offsetof(my_feed_forward, up), 0},
    {"down", WF_NN_PARAMETER, offsetof(my_feed_forward, down), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_field layer_fields[] = {{"norm", WF_NN_CHILD, offsetof(my_layer, norm), 0},
                                           {"feed", WF_NN_CHILD, offsetof(my_layer, feed), 0},
                                           {NULL, 0, 0, 0}};

static const wf_nn_field model_fields[] = {
    {"embed", WF_NN_CHILD, offsetof(my_model, embed), 0},
    {"layer", WF_NN_CHILDREN, offsetof(my_model, layer), offsetof(my_model, layers)},
    {"norm", WF_NN_CHILD, offsetof(my_model, norm), 0},
    {"head", WF_NN_CHILD, offsetof(my_model, head), 0},
    {"loss", WF_NN_CHILD, offsetof(my_model, loss), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_type feed_forward_type = {"my_feed_forward", sizeof(my_feed_forward),
                                             feed_forward_fields, feed_forward, NULL};
static const wf_nn_type layer_type = {"my_layer", sizeof(my_layer), layer_fields, layer_forward,
                                      NULL};
static const wf_nn_type model_type = {"my_model", sizeof(my_model), model_fields, model_forward,
                                      NULL};

/* A dim says how sums over it are cut: `hidden` in 8 chunks, which tensor parallelism splits;
   the model's width in one, since nothing splits it. */
static my_feed_forward *feed_forward_new(wf_context *ctx, const my_sizes *s)
{
    wf_dim width = wf_dim_width(s->width), hidden = wf_dim_chunked(s->hidden);
    my_feed_forward *m = wf_nn_new(ctx, &feed_forward_type);

    if (!m)
        return NULL;
    m->up = wf_nn_parameter_new(ctx, 2, (wf_dim[]){hidden, width}, true);
    m->down = wf_nn_parameter_new(ctx, 2, (wf_dim[]){width, hidden}, true);
    wf_nn_init_normal(m->up, 0, 0.1f);
    wf_nn_init_normal(m->down, 0, 0.1f);
    return m;
}

static wf_nn_module *layer_new(wf_context *ctx, const my_sizes *s)
{
    my_layer *m = wf_nn_new(ctx, &layer_type);

    if (!m)
        return NULL;
    m->norm = wf_nn_rmsnorm_new(ctx, wf_dim_width(s->width), 1e-5f);
    m->feed = feed_forward_new(ctx, s);
    return &m->base;
}

my_model *my_model_new(wf_context *ctx, const my_sizes *s)
{
    wf_dim vocabulary = wf_dim_chunked(s->vocabulary), width = wf_dim_width(s->width);
    my_model *m = wf_nn_new(ctx, &model_type);

    if (!m)
        return NULL;
    m->embed = wf_nn_embedding_new(ctx, vocabulary, width, 0.1f);
    m->layer = calloc((size_t)s->layers + 1, sizeof *m->layer);
    if (!m->layer)
        wf_fail(ctx, WF_ENOMEM, "no memory for %lld layers", (long long)s->layers);
    for (; m->layer && m->layers < s->layers; m->layers++)
        m->layer[m->layers] = layer_new(ctx, s);
    m->norm = wf_nn_rmsnorm_new(ctx, width, 1e-5f);
    m->head = wf_nn_linear_new(
        ctx, &(wf_nn_linear_options){.in = width, .out = vocabulary, .deviation = 0.1f});
    m->loss = wf_nn_loss_new(ctx);
    if (wf_context_status(ctx) != WF_OK) {
        wf_nn_free(&m->base);
        return NULL;
    }
    return m;
}
