/*
 * parallel/generate/model.h - opens a model by the path that a user gives: a folder of Hugging
 * Face, a GGUF file, a checkpoint of gpt_train, or a directory of checkpoints, of which the
 * newest is taken. A checkpoint of adapters is loaded onto its base model.
 */
#ifndef WF_PARALLEL_GENERATE_MODEL_H
#define WF_PARALLEL_GENERATE_MODEL_H

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/models/gpt/lora.h"
#include "parallel/models/gpt/pretrained.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_gen_model {
    const char *path;              /* as it was given */
    wf_par_checkpoint *checkpoint; /* NULL: path is a folder of Hugging Face, or */
    bool is_gguf;                  /* a GGUF file */
    wf_nn_gpt_config config;
    wf_par_lora lora; /* a checkpoint's adapters; of rank 0: it has none */
    uint64_t seed;    /* seed of a checkpoint's run */
    /* a checkpoint's run had its base in 4 bits, for which its adapters were trained */
    bool nf4;
    /* set by the caller: the moving average of a checkpoint's weights is loaded */
    bool average;
    /* NULL, or the folder of the base model, instead of the one that the run names */
    const char *base;
    /* a folder with the model's other files (tokenizer, chat template), or "" */
    char like[4096];
} wf_gen_model;

/** wf_gen_model_named_gguf - returns whether a path has the name of a GGUF file. */
WF_API bool wf_gen_model_named_gguf(const char *path);

/* Reads the model config and adapters of a checkpoint, as the program that trained it has
   stored them. */
typedef wf_status wf_gen_read_config(const wf_par_checkpoint *checkpoint,
                                     wf_nn_gpt_config *config, wf_par_lora *lora,
                                     wf_error *error);

/**
 * wf_gen_model_open - finds the kind and config of the model at a path; no weights are read
 *
 * @param read  reads the config of a checkpoint's model; NULL: a checkpoint is refused
 * Owner:   the caller, wf_gen_model_close, also after an error
 * Errors:  WF_EIO, WF_EDATA, WF_EUNSUPPORTED (a checkpoint without `read`), WF_EINVAL (a
 *          checkpoint of another program)
 */
WF_API wf_status wf_gen_model_open(const char *path, wf_gen_read_config *read, wf_gen_model *m,
                                   wf_error *error);

/** wf_gen_model_close - closes the checkpoint. */
WF_API void wf_gen_model_close(wf_gen_model *m);

/**
 * wf_gen_model_load - makes the model, planned for the mesh and materialised, with its weights
 *
 * @param plan  weights are not read (wf_par_options.plan)
 * Collective over the world. Owner: the caller, wf_nn_free. Errors: NULL, in the context
 */
WF_API wf_nn_gpt *wf_gen_model_load(const wf_gen_model *m, wf_par *par, bool plan);

WF_END_DECLS

#endif
