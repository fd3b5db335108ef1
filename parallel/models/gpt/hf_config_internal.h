/*
 * parallel/models/gpt/hf_config_internal.h - config.json of Hugging Face's transformers, for GPT-2
 * (GPT2LMHeadModel) and Llama (LlamaForCausalLM), read with distrust and written. What those
 * models can do and Weft's cannot is refused by the name of its key. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_CONFIG_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_CONFIG_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include "parallel/formats/safetensors_internal.h"

typedef struct wf_hf_config {
    wf_nn_gpt_config
        model; /* dropout 0: theirs is three numbers, and a run's own choice here */
    bool tied; /* the head has no weight of its own in the file */
} wf_hf_config;

/* WF_EDATA where it is no such config, WF_EUNSUPPORTED where the model is one of another kind. */
wf_status wf_hf_config_parse(wf_hf_config *config, const char *name, const char *text,
                             size_t bytes, wf_error *error);
wf_status wf_hf_config_read(wf_hf_config *config, const wf_file_calls *calls, const char *path,
                            wf_error *error);

/* like: NULL, or a folder whose token ids are taken. Owner: caller, free. WF_ENOMEM, those of the folder. */
wf_status wf_hf_config_format(const wf_nn_gpt_config *model, wf_safetensors_dtype dtype,
                              const char *like, char **text, wf_error *error);

#endif
