/* nn/models/gpt/gpt.c - the forward pass of decoder-only transformers. Their construction is in
   nn/models/gpt/gpt_new.c. */
#include "kernels/ops.h"
#include "nn/models/gpt/gpt_internal.h"

static wf_tensor *scaled(wf_tensor *x, float factor)
{
    return factor == 1 ? x : wf_scale(x, factor);
}

static wf_tensor *mlp_of(wf_nn_block *m, wf_tensor *x)
{
    return m->moe ? wf_nn_call(m->moe, x) : wf_nn_call(m->mlp, x);
}

/* Norms the branches that are added to the residual stream, which itself is normed at the end
   alone. */
static wf_tensor *post_norm_forward(wf_nn_block *m, wf_tensor *x)
{
    wf_tensor *y = wf_nn_call(m->norm1, wf_nn_call(m->attn, x));

    x = wf_dropout_add(x, scaled(y, m->scale), m->dropout, m->site);
    y = wf_nn_call(m->norm2, mlp_of(m, x));
    return wf_dropout_add(x, scaled(y, m->scale), m->dropout, m->site + 1);
}

/* Adds two branches to what both have taken. */
static wf_tensor *parallel_forward(wf_nn_block *m, wf_tensor *x)
{
    wf_tensor *in = wf_nn_call(m->norm1, x), *y = wf_nn_call(m->attn, in);
    wf_tensor *z = mlp_of(m, m->norm2 ? wf_nn_call(m->norm2, x) : in);

    x = wf_dropout_add(x, scaled(y, m->scale), m->dropout, m->site);
    return wf_dropout_add(x, scaled(z, m->scale), m->dropout, m->site + 1);
}

/* Returns true where a branch is added to the residual stream as it is. */
static bool drops_nothing(const wf_nn_block *m)
{
    return !(m->dropout > 0) || !wf_context_is_training(m->base.ctx);
}

static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_block *m = (wf_nn_block *)self;
    wf_tensor *y;

    if (m->order == WF_NN_POST_NORM)
        return post_norm_forward(m, x);
    if (m->parallel)
        return parallel_forward(m, x);
    y = wf_nn_call(m->attn, wf_nn_call(m->norm1, x));
    y = scaled(m->post1 ? wf_nn_call(m->post1, y) : y, m->scale);
    y = wf_nn_add_norm(m->norm2, &x, y, m->dropout, m->site); /* x += y */
    if (!m->moe && !m->post2 && m->scale == 1 && drops_nothing(m))
        return wf_nn_mlp_add(m->mlp, x, y);
    y = mlp_of(m, y);
    y = scaled(m->post2 ? wf_nn_call(m->post2, y) : y, m->scale);
    return wf_dropout_add(x, y, m->dropout, m->site + 1);
}

static bool takes(wf_nn_gpt *model, wf_tensor *tokens)
{
    char text[128];

    if (!model || !tokens)
        return false;
    if (tokens->ndim == 2 && tokens->dim[1].size <= model->config.positions)
        return true;
    wf_fail(
        model->base.ctx, WF_ESHAPE,
        "the model takes tokens [batch, up to %lld tokens], not %s: use shorter sequences or "
        "build it with more positions",
        (long long)model->config.positions, wf_tensor_describe(tokens, text, sizeof text));
    return false;
}

/* Makes the first rows of the residual stream, stored as all of it will be (wf_op.follows). */
static wf_tensor *rows_of(wf_nn_gpt *m, wf_tensor *tokens)
{
    wf_context *ctx = m->base.ctx;
    wf_dtype storage, computed = wf_context_device(ctx)->dtype;
    wf_tensor *x;

    if (!wf_context_fp32_residual(ctx))
        return wf_nn_call(m->embed, tokens);
    storage = wf_context_storage(ctx, computed);
    x = wf_nn_call(m->embed, tokens);
    wf_context_storage(ctx, storage);
    return x;
}

static wf_tensor *embedded(wf_nn_gpt *m, wf_tensor *tokens)
{
    wf_tensor *x;

    if (!takes(m, tokens))
        return NULL;
    x = scaled(rows_of(m, tokens), (float)m->config.embedding_scale);
    if (m->position)
        x = wf_nn_call(m->position, x);
    return wf_dropout(x, m->config.dropout, WF_NN_EMBEDDING_SITE);
}

/* Step 0 embeds, steps 1 to `layers` are the blocks, the last one is the norm. */
static int64_t gpt_steps(const wf_nn_module *self)
{
    return ((const wf_nn_gpt *)self)->layers + 2;
}

static wf_nn_module *gpt_module(const wf_nn_module *self, int64_t i, int k)
{
    const wf_nn_gpt *m = (const wf_nn_gpt *)self;
    wf_nn_module *const first[] = {&m->embed->base, m->position ? &m->position->base : NULL};
    wf_nn_module *const end[] = {&m->head->base, &m->loss->base};

    if (i == 0)
        return k < 2 ? first[k] : NULL;
    if (i == m->layers + 2)
        return k < 2 ? end[k] : NULL;
    if (k > 0)
        return NULL;
    return i <= m->layers ? m->block[i - 1] : &m->norm->base;
}

static int gpt_run(wf_nn_module *self, int64_t i, int n, wf_tensor **x)
{
    wf_nn_gpt *m = (wf_nn_gpt *)self;

    (void)n;
    x[0] = i == 0 ? embedded(m, x[0]) : wf_nn_call(gpt_module(self, i, 0), x[0]);
    if (i == m->layers + 1) /* the head is linear: its input is divided, not the vocabulary */
        x[0] = scaled(x[0], (float)(1 / m->config.logit_divisor));
    return 1;
}

const wf_nn_chain wf_nn_gpt_chain = {gpt_steps, gpt_module, gpt_run};

/* Computes the input of the head. */
static wf_tensor *features(wf_nn_gpt *m, wf_tensor *x)
{
    wf_nn_chain_run(&m->base, 0, gpt_steps(&m->base), 1, &x);
    return x;
}

wf_tensor *wf_nn_gpt_features(wf_nn_gpt *model, wf_tensor *tokens)
{
    const char *outside;
    wf_tensor *x;

    if (!model || !tokens)
        return NULL;
    outside = wf_nn_enter(model);
    x = features(model, tokens);
    wf_nn_leave(model, outside, 1, &x);
    return x;
}

static wf_tensor *gpt_forward(wf_nn_module *self, wf_tensor *tokens)
{
    wf_nn_gpt *m = (wf_nn_gpt *)self;

    return wf_nn_call(m->head, features(m, tokens));
}

static const wf_nn_field block_fields[] = {
    {"norm1", WF_NN_CHILD, offsetof(wf_nn_block, norm1), 0},
    {"attn", WF_NN_CHILD, offsetof(wf_nn_block, attn), 0},
    {"post1", WF_NN_CHILD, offsetof(wf_nn_block, post1), 0},
    {"norm2", WF_NN_CHILD, offsetof(wf_nn_block, norm2), 0},
    {"mlp", WF_NN_CHILD, offsetof(wf_nn_block, mlp), 0},
    {"moe", WF_NN_CHILD, offsetof(wf_nn_block, moe), 0},
    {"post2", WF_NN_CHILD, offsetof(wf_nn_block, post2), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_field gpt_fields[] = {
    {"embed", WF_NN_CHILD, offsetof(wf_nn_gpt, embed), 0},
    {"position", WF_NN_CHILD, offsetof(wf_nn_gpt, position), 0},
    {"block", WF_NN_CHILDREN, offsetof(wf_nn_gpt, block), offsetof(wf_nn_gpt, layers)},
    {"norm", WF_NN_CHILD, offsetof(wf_nn_gpt, norm), 0},
    {"head", WF_NN_CHILD, offsetof(wf_nn_gpt, head), 0},
    {"loss", WF_NN_CHILD, offsetof(wf_nn_gpt, loss), 0},
    {NULL, 0, 0, 0}};

const wf_nn_type wf_nn_block_type = {
    "block", sizeof(wf_nn_block), block_fields, block_forward, NULL, NULL};
const wf_nn_type wf_nn_gpt_type = {"gpt", sizeof(wf_nn_gpt), gpt_fields, gpt_forward, NULL,
                                   NULL};

wf_tensor *wf_nn_gpt_logits(wf_nn_gpt *model, wf_tensor *tokens)
{
    return model && tokens ? wf_nn_call(model, tokens) : NULL;
}

wf_tensor *wf_nn_gpt_head_loss(wf_nn_gpt *m, wf_tensor *x, wf_tensor *targets, float weight)
{
    return m && x ? wf_nn_linear_cross_entropy(m->head, m->loss, x, targets, weight) : NULL;
}

wf_tensor *wf_nn_gpt_loss(wf_nn_gpt *model, wf_tensor *tokens, wf_tensor *targets, float weight)
{
    const char *outside;
    wf_tensor *loss;

    if (!model || !tokens)
        return NULL;
    outside = wf_nn_enter(model);
    loss = wf_nn_gpt_head_loss(model, features(model, tokens), targets, weight);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}
