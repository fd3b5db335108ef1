/*
 * parallel/models/gpt/hf_layers_internal.h - arrays of config.json that say something of each
 * layer, and what a model has that says the same. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_LAYERS_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_LAYERS_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include <jansson.h>

/* Reads n, 0 for none, from an array with a one for each layer but a zero for every n-th;
   false: it is no such array. */
bool wf_hf_skip_read(const json_t *array, int64_t layers, int64_t *every);
json_t *wf_hf_skip_write(int64_t layers, int64_t every);

/* Reads a list of wf_rope_factors, whose other one has `count` numbers, or 0 where it is not
   read yet; a value that is no number is 0. false: it is no such array. */
bool wf_hf_factors_read(const json_t *array, float list[WF_ROPE_PAIRS], int64_t *count);

/* "full_attention", or "sliding_attention" or "chunked_attention", of each layer, from and to
   the window of a model (nn/models/gpt/gpt.h), whose layers are known; without any that slides
   it has none. What is wrong with it, or NULL. */
const char *wf_hf_layer_types_read(const json_t *array, wf_nn_gpt_config *model);
json_t *wf_hf_layer_types_write(const wf_nn_gpt_config *model);

/* Layers with an MLP among those with experts, from three keys: n, where each n-th one has
   experts, a list of those that have none, and one of those that have some, which counts alone;
   to a list. What is wrong, or NULL. */
const char *wf_hf_sparse_step_read(const json_t *value, wf_nn_gpt_config *model);
const char *wf_hf_dense_layers_read(const json_t *array, wf_nn_gpt_config *model);
const char *wf_hf_mixed_layers_read(const json_t *array, wf_nn_gpt_config *model);
/* Lists the layers that have experts, or those that have none. */
json_t *wf_hf_layers_write(const wf_nn_gpt_config *model, bool mixed);

#endif
