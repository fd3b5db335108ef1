/* parallel/models/gpt/gpt.c - the sharding plan and the loss of GPT-2 and Llama. */
#include "parallel/models/gpt/gpt.h"
#include <string.h>

/* Positions and a gelu MLP are GPT-2's, a SwiGLU MLP is Llama's; and a model may have no
   blocks. */
const wf_par_rule wf_par_gpt_plan[] = WF_RULES(
    {"embed", WF_VOCAB}, {"?position", WF_POSITION}, WF_ATTENTION_RULES("?block.*.attn"),
    {"?block.*.attn.q_norm", WF_WIDE_NORM}, {"?block.*.attn.k_norm", WF_WIDE_NORM},
    WF_GELU_MLP_RULES("?block.*.mlp"), WF_SWIGLU_MLP_RULES("?block.*.mlp"),
    WF_MOE_RULES("?block.*.moe"), {"head", WF_COLUMN}, {"loss", WF_LOSS});

wf_nn_documents wf_par_gpt_documents(const wf_par_batch *batch)
{
    wf_nn_documents none = {NULL, NULL};

    for (int i = 0; batch && i < batch->fields; i++)
        if (strcmp(batch->field[i].name, "first") == 0)
            return (wf_nn_documents){wf_par_batch_tensor(batch, "first"),
                                     wf_par_batch_tensor(batch, "positions")};
    return none;
}

wf_tensor *wf_par_gpt_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *tokens = wf_par_batch_tensor(batch, "tokens"), *loss;
    wf_tensor *targets = wf_par_batch_tensor(batch, "targets");
    wf_nn_documents outside;

    if (!tokens || !targets)
        return NULL;
    outside = wf_nn_documents_switch(model->ctx, wf_par_gpt_documents(batch));
    loss = wf_nn_gpt_loss((wf_nn_gpt *)model, tokens, targets,
                          wf_par_batch_weight(batch, targets));
    wf_nn_documents_switch(model->ctx, outside);
    return loss;
}

wf_tensor *wf_par_gpt_head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    wf_tensor *targets = wf_par_batch_tensor(batch, "targets");

    return wf_nn_gpt_head_loss((wf_nn_gpt *)model, x, targets,
                               wf_par_batch_weight(batch, targets));
}

wf_nn_module *wf_par_gpt_make(wf_par *par, void *config)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), config);

    if (!model)
        return NULL;
    wf_par_plan(par, &model->base, wf_par_gpt_plan);
    return &model->base;
}

static int64_t windowed_blocks(const wf_nn_gpt_config *c)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->layers; i++)
        n += wf_nn_gpt_window(c, i) > 0;
    return n;
}

wf_sim_model wf_par_gpt_sizes(const wf_nn_gpt_config *config, int64_t tokens)
{
    const wf_nn_gpt_config c = wf_nn_gpt_complete(config);
    const int64_t mixtures = c.experts ? c.layers - wf_nn_blocks_count(&c.dense_blocks) : 0;
    const int64_t features = mixtures * c.shared_ffn + (c.layers - mixtures) * c.ffn;
    const double share = c.layers ? (double)mixtures / (double)c.layers : 0;

    return (wf_sim_model){
        .layers = c.layers,
        .width = c.width,
        .heads = c.heads,
        .kv_heads = c.kv_heads,
        .head_dim = c.head_dim ? c.head_dim : c.width / c.heads,
        .ffn = c.layers ? features / c.layers : c.ffn, /* the mean of blocks */
        .vocabulary = c.vocabulary,
        .seq = tokens,
        .gated = c.mlp != WF_NN_GELU,
        .tied = c.tied,
        .head_norms = c.qk_norm && !c.qk_norm_wide,
        .experts = mixtures ? c.experts : 0,
        .top_k = c.top_k,
        .expert_ffn = share * (double)c.expert_ffn,
        .mixtures = share,
        .shared_ffn = mixtures ? (double)c.shared_ffn : 0,
        .windowed = c.layers ? (double)windowed_blocks(&c) / (double)c.layers : 0,
        .window = c.window_chunks ? -c.window : c.window};
}
