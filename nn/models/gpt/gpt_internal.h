/* nn/models/gpt/gpt_internal.h - the module types of nn/models/gpt/gpt.c, for
   nn/models/gpt/gpt_new.c. Not installed. */
#ifndef WF_NN_MODELS_GPT_GPT_INTERNAL_H
#define WF_NN_MODELS_GPT_GPT_INTERNAL_H

#include "nn/models/gpt/gpt.h"

extern const wf_nn_type wf_nn_block_type, wf_nn_gpt_type;
extern const wf_nn_chain wf_nn_gpt_chain;

/* Dropout sites: the embedding has 0, block i has three from 1 + 3 i. */
enum { WF_NN_EMBEDDING_SITE = 0, WF_NN_BLOCK_SITES = 3 };

#endif
