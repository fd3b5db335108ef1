/* parallel/models/gpt/gpt.c - the sharding plan and the loss of GPT-2 and Llama. */
#include "parallel/models/gpt/gpt.h"

/* Positions and a gelu MLP are GPT-2's, a SwiGLU MLP is Llama's; and a model may have no blocks. */
const wf_par_rule wf_par_gpt_plan[] = {{"embed", WF_VOCAB},
                                       {"?position", WF_POSITION},
                                       WF_ATTENTION_RULES("?block.*.attn"),
                                       {"?block.*.attn.q_norm", WF_WIDE_NORM},
                                       {"?block.*.attn.k_norm", WF_WIDE_NORM},
                                       WF_GELU_MLP_RULES("?block.*.mlp"),
                                       WF_SWIGLU_MLP_RULES("?block.*.mlp"),
                                       {"head", WF_COLUMN},
                                       {"loss", WF_LOSS},
                                       {NULL, NULL}};

wf_tensor *wf_par_gpt_loss(wf_nn_module *model, const wf_par_batch *batch)
{
    wf_tensor *tokens = wf_par_batch_tensor(batch, "tokens");
    wf_tensor *targets = wf_par_batch_tensor(batch, "targets");

    return wf_nn_gpt_loss((wf_nn_gpt *)model, tokens, targets,
                          wf_par_batch_weight(batch, targets));
}

wf_tensor *wf_par_gpt_head_loss(wf_nn_module *model, wf_tensor *x, const wf_par_batch *batch)
{
    wf_tensor *targets = wf_par_batch_tensor(batch, "targets");

    return wf_nn_gpt_head_loss((wf_nn_gpt *)model, x, targets,
                               wf_par_batch_weight(batch, targets));
}
