/*
 * parallel/models/gpt/lora_names_internal.h - where PEFT keeps what is trained of an adapted
 * model. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_LORA_NAMES_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_LORA_NAMES_INTERNAL_H

#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/models/gpt/lora.h"

enum { WF_PEFT_NAME = WF_HF_NAME + 64 };

typedef struct wf_peft_tensor {
    wf_nn_parameter *parameter;
    char name
        [WF_PEFT_NAME]; /* "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" */
    char module[WF_HF_NAME]; /* "q_proj" of a factor A, else "" */
    bool copy;               /* a tied head, whose numbers are those of the tensor before it */
    int ndim;
    int64_t shape[WF_MAX_DIMS]; /* the shape of PEFT's tensor */
    /* A factor of adapters of experts. Element (e, i, j) is theirs[e * rows + i, column + j],
       or, of a B, theirs[row + i, j * experts + e]; swapped: element (e, j, i) is. One that
       begins at a row or column is in the tensor of the one before it */
    bool of_experts, factor_b, swapped;
    int64_t row, column;
} wf_peft_tensor;

/* All that is trained, in the order of the model; an embedding that is the head too, under both
   names. WF_EUNSUPPORTED where PEFT keeps something in another shape. Owner: caller, free. */
wf_status wf_peft_tensors(wf_nn_gpt *model, const char *like, wf_peft_tensor **list,
                          int64_t *count, wf_error *error);

/* Parses adapter_config.json; `name` is the file's, for errors. WF_EDATA, WF_EUNSUPPORTED. */
wf_status wf_peft_config_parse(wf_par_lora *lora, const char *name, const char *text,
                               size_t bytes, wf_error *error);

/* Reads the next name of a list with commas in between, without the blanks around it; false at
   its end. */
bool wf_peft_next(const char **list, char *name, size_t size);

/* Appends a name to a list, unless it is there; false where it has no room. */
bool wf_peft_add(char *list, size_t size, const char *name);

#endif
