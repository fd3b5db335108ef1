/* parallel/models/gpt/gguf_weights_internal.h - a GGUF file as a model: its config, its weights
   one by one. Not installed. */
#ifndef WF_PARALLEL_MODELS_GPT_GGUF_WEIGHTS_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_GGUF_WEIGHTS_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include "parallel/formats/gguf_internal.h"

typedef struct wf_gguf_weights {
    wf_par_gguf header;
    wf_file file;
    bool open;
    char architecture[32];
    wf_nn_gpt_config model;
    bool *used; /* per tensor: a parameter, or the config, was read from it */
} wf_gguf_weights;

/* WF_EIO, WF_EDATA, WF_EUNSUPPORTED (another kind of model, by the key that says so),
   WF_ENOMEM. Owner: caller, wf_gguf_weights_close, always; zero-initialise it. */
wf_status wf_gguf_weights_open(wf_gguf_weights *w, const wf_file_calls *calls, const char *path,
                               wf_error *error);
void wf_gguf_weights_close(wf_gguf_weights *w);

/* The config of a file whose header is read. Errors as above. */
wf_status wf_gguf_config(wf_gguf_weights *w, wf_error *error);

/* WF_EUNSUPPORTED, with their names, where keys of the architecture are not known, and not 0 or
   false. */
wf_status wf_gguf_keys_check(const wf_par_gguf *g, const char *path, const char *arch,
                             wf_error *error);

/* The elements of a parameter's part, row by row, as wf_hf_weights_read. */
wf_status wf_gguf_weights_read(wf_gguf_weights *w, const wf_nn_gpt_config *model,
                               const wf_nn_parameter *p, float *to, wf_error *error);

/* That the parameter's tensor is there, and of its shape; it counts as read. */
wf_status wf_gguf_weights_find(wf_gguf_weights *w, const wf_nn_gpt_config *model,
                               const wf_nn_parameter *p, wf_error *error);

/* Returns the type of the tensor that a parameter is read from; F32 where there is none, which
   is an error when it is read. */
wf_gguf_type wf_gguf_weights_type(const wf_gguf_weights *w, const wf_nn_gpt_config *model,
                                  const wf_nn_parameter *p);

/* WF_EDATA where a tensor of the file has not been read. */
wf_status wf_gguf_weights_check_unused(const wf_gguf_weights *w, wf_error *error);

#endif
