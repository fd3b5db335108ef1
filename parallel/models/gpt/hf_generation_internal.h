/*
 * parallel/models/gpt/hf_generation_internal.h - generation_config.json of Hugging Face's
 * transformers, read with distrust by the rows of hf_generation.def. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_GENERATION_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_GENERATION_INTERNAL_H

#include "parallel/models/gpt/pretrained.h"

/* Appends the ends of a text of generation_config.json. WF_EDATA where it is no such file, with
   its name and the key; WF_EUNSUPPORTED where a key asks for an unsupported feature. */
wf_status wf_hf_generation_parse(wf_par_pretrained_ends *ends, const char *name,
                                 const char *text, size_t bytes, wf_error *error);

#endif
