/* nn/models/gpt/gpt.c - the forward pass of GPT-2 and Llama. Their construction is in nn/models/gpt/gpt_new.c. */
#include "kernels/ops.h"
#include "nn/models/gpt/gpt_internal.h"

static wf_tensor *block_forward(wf_nn_module *self, wf_tensor *x)
{
    wf_nn_block *m = (wf_nn_block *)self;
    wf_tensor *y;

    y = wf_nn_call(m->attn, wf_nn_call(m->norm1, x));
    y = wf_nn_add_norm(m->norm2, &x, y, m->dropout, m->site); /* x += y */
    y = wf_nn_call(m->mlp, y);
    return wf_dropout_add(x, y, m->dropout, m->site + 1);
}

/* What the head takes. */
static wf_tensor *features(wf_nn_gpt *m, wf_tensor *tokens)
{
    wf_tensor *x;

    x = wf_nn_call(m->embed, tokens);
    if (m->position)
        x = wf_nn_call(m->position, x);
    x = wf_dropout(x, m->config.dropout, WF_NN_EMBEDDING_SITE);
    for (int64_t i = 0; i < m->layers; i++)
        x = wf_nn_call(m->block[i], x);
    return wf_nn_call(m->norm, x);
}

static wf_tensor *gpt_forward(wf_nn_module *self, wf_tensor *tokens)
{
    wf_nn_gpt *m = (wf_nn_gpt *)self;

    return wf_nn_call(m->head, features(m, tokens));
}

static const wf_nn_field block_fields[] = {
    {"norm1", WF_NN_CHILD, offsetof(wf_nn_block, norm1), 0},
    {"attn", WF_NN_CHILD, offsetof(wf_nn_block, attn), 0},
    {"norm2", WF_NN_CHILD, offsetof(wf_nn_block, norm2), 0},
    {"mlp", WF_NN_CHILD, offsetof(wf_nn_block, mlp), 0},
    {NULL, 0, 0, 0}};

static const wf_nn_field gpt_fields[] = {
    {"embed", WF_NN_CHILD, offsetof(wf_nn_gpt, embed), 0},
    {"position", WF_NN_CHILD, offsetof(wf_nn_gpt, position), 0},
    {"block", WF_NN_CHILDREN, offsetof(wf_nn_gpt, block), offsetof(wf_nn_gpt, layers)},
    {"norm", WF_NN_CHILD, offsetof(wf_nn_gpt, norm), 0},
    {"head", WF_NN_CHILD, offsetof(wf_nn_gpt, head), 0},
    {"loss", WF_NN_CHILD, offsetof(wf_nn_gpt, loss), 0},
    {NULL, 0, 0, 0}};

const wf_nn_type wf_nn_block_type = {"block", sizeof(wf_nn_block), block_fields, block_forward,
                                     NULL};
const wf_nn_type wf_nn_gpt_type = {"gpt", sizeof(wf_nn_gpt), gpt_fields, gpt_forward, NULL};

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

wf_tensor *wf_nn_gpt_logits(wf_nn_gpt *model, wf_tensor *tokens)
{
    return takes(model, tokens) ? wf_nn_call(model, tokens) : NULL;
}

wf_tensor *wf_nn_gpt_loss(wf_nn_gpt *model, wf_tensor *tokens, wf_tensor *targets, float weight)
{
    const char *outside;
    wf_tensor *loss;

    if (!takes(model, tokens))
        return NULL;
    outside = wf_nn_enter(model);
    loss = wf_nn_linear_cross_entropy(model->head, model->loss, features(model, tokens),
                                      targets, weight);
    wf_nn_leave(model, outside, 1, &loss);
    return loss;
}
