/* nn/gpt_types.h - the module types of nn/gpt.c, for nn/gpt_new.c. Not installed. */
#ifndef WF_NN_GPT_TYPES_H
#define WF_NN_GPT_TYPES_H

#include "nn/gpt.h"

extern const wf_nn_type wf_nn_attention_type, wf_nn_mlp_type, wf_nn_block_type, wf_nn_gpt_type;

/* Dropout sites: the embedding has 0, block i has three from 1 + 3 i. */
enum { WF_NN_EMBEDDING_SITE = 0, WF_NN_BLOCK_SITES = 3 };

#endif
