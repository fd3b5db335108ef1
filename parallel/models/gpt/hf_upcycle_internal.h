/*
 * parallel/models/gpt/hf_upcycle_internal.h - the weights of a mixture from those of a dense
 * model. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_UPCYCLE_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_UPCYCLE_INTERNAL_H

#include "parallel/models/gpt/pretrained_internal.h"

/* A dense model whose files a mixture is made of. */
typedef struct wf_hf_upcycling {
    wf_nn_gpt *model; /* on the fake device; NULL: the files are of the model itself */
    wf_nn_parameter **parameter;
    int64_t count;
} wf_hf_upcycling;

/* Looks whether `model` is a mixture and the files are of a dense one. Owner: caller,
   wf_hf_upcycling_close, always. WF_ENOMEM. */
wf_status wf_hf_upcycling_open(wf_hf_upcycling *u, const wf_nn_gpt *model,
                               const wf_hf_weights *from, wf_error *error);
void wf_hf_upcycling_close(wf_hf_upcycling *u);

/* Reads a whole parameter, row by row. Errors: those of wf_hf_weights_read. */
wf_status wf_hf_upcycling_read(const wf_hf_upcycling *u, wf_hf_weights *from,
                               const wf_nn_gpt_config *model, const wf_nn_parameter *p,
                               float *to, wf_error *error);

#endif
