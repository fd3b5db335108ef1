/*
 * parallel/models/gpt/pretrained_internal.h - the weights of a folder, or of a GGUF file, by
 * file calls of one's own: into a model, or one by one.
 */
#ifndef WF_PARALLEL_MODELS_GPT_PRETRAINED_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_PRETRAINED_INTERNAL_H

#include "parallel/formats/hf_files_internal.h"
#include "parallel/models/gpt/gguf_weights_internal.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/models/gpt/pretrained.h"

/* wf_par_pretrained_load by these calls. */
wf_status wf_hf_load(wf_par *par, wf_nn_gpt *model, const wf_file_calls *calls,
                     const char *folder);

/* The weights of a folder or a GGUF file, which no model has to hold all at once. */
typedef struct wf_hf_weights {
    bool is_gguf; /* then gguf is read, else files and what follows it */
    wf_hf_files files;
    wf_hf_config config;
    wf_gguf_weights gguf;
} wf_hf_weights;

/* WF_EINVAL where `model` is tied and the folder's has a head of its own; else as of the files.
   Owner: caller, wf_hf_weights_close, always. */
wf_status wf_hf_weights_open(wf_hf_weights *w, const wf_file_calls *calls, const char *folder,
                             const wf_nn_gpt_config *model, wf_error *error);
void wf_hf_weights_close(wf_hf_weights *w);

/* The elements of a parameter's part, row by row; of one that has no layout, all. WF_EDATA,
   WF_EIO, WF_ENOMEM. */
wf_status wf_hf_weights_read(wf_hf_weights *w, const wf_nn_gpt_config *model,
                             const wf_nn_parameter *p, float *to, wf_error *error);

/* Finds the tensors of a parameter, and reads none of them. WF_EDATA, WF_EUNSUPPORTED. */
wf_status wf_hf_weights_find_parameter(wf_hf_weights *w, const wf_nn_gpt_config *model,
                                       const wf_nn_parameter *p, wf_error *error);

/* Calls `each` for every parameter of a model but adapters, which start from their recipes, and
   then checks that no tensor is left over. Errors: of the calls; WF_ENOMEM. */
typedef wf_status wf_hf_weights_call(void *arg, wf_hf_weights *w, const wf_nn_gpt_config *model,
                                     wf_nn_parameter *p, wf_error *error);
wf_status wf_hf_weights_each(wf_hf_weights *w, wf_nn_gpt *model, wf_hf_weights_call *each,
                             void *arg, wf_error *error);

/* Returns the type that the files have it in; F32 where they have none, which is an error when
   it is read. */
wf_safetensors_dtype wf_hf_weights_dtype(wf_hf_weights *w, const wf_nn_gpt_config *model,
                                         const wf_nn_parameter *p);

/* Finds the tensor of a location, and its file; where the config ties head and embedding,
   either one serves for both. NULL: there is none. */
const wf_safetensors_entry *wf_hf_weights_find(wf_hf_weights *w, const wf_hf_location *location,
                                               int64_t *file);

/* WF_EDATA where a tensor of the files has not been read. */
wf_status wf_hf_weights_check_unused(wf_hf_weights *w, wf_error *error);

#endif
