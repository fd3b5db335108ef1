/*
 * parallel/models/gpt/hf_identity_internal.h - what a folder of Hugging Face has beside weights
 * and sizes: the ids of tokens that begin and end a text, the tokenizer, how to generate, the
 * chat template. Without them a model that was trained further never ends a text. Not
 * installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_IDENTITY_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_IDENTITY_INTERNAL_H

#include "core/files/folder_internal.h"
#include <jansson.h>

/* Copies the files, each as it is, from one folder to another that is open; missing ones are
   left out. Each gets its name when it is whole. WF_EIO, WF_EDATA (too large), WF_ENOMEM. */
wf_status wf_hf_identity_copy(const char *from, const wf_folder *to, wf_error *error);

/* Checks that the token ids of an object are ids: numbers, lists of numbers or null. WF_EDATA
   with the name of the file and the key. */
wf_status wf_hf_identity_check(const json_t *from, const char *name, wf_error *error);

/* The ids of one config.json, put into another config's object: numbers, lists of numbers or
   null, as they are. WF_EDATA where an id is something else, with the name of the file. */
wf_status wf_hf_identity_ids(const json_t *from, const char *name, json_t *config,
                             wf_error *error);

#endif
