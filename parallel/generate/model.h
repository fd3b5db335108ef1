/*
 * parallel/generate/model.h - a model by the path that a user gives: a folder of Hugging Face,
 * a GGUF file, a checkpoint of gpt_train, or a directory of checkpoints, of which the newest is
 * taken. One of adapters is put on the model that it was trained on.
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
    uint64_t seed;    /* the run of a checkpoint had this one */
    bool nf4; /* the run of a checkpoint had its base in 4 bits, which its adapters are for */
    /* NULL, or the folder of the model that is adapted, in place of the one that the run
       names */
    const char *base;
    char like[4096]; /* a folder with what belongs to the model beside its weights, or "" */
} wf_gen_model;

/** wf_gen_model_named_gguf - returns whether a path has the name of a GGUF file. */
WF_API bool wf_gen_model_named_gguf(const char *path);

/* Reads which model a checkpoint is of, and its adapters: what the program that trained it has
   kept with it. */
typedef wf_status wf_gen_read_config(const wf_par_checkpoint *checkpoint,
                                     wf_nn_gpt_config *config, wf_par_lora *lora,
                                     wf_error *error);

/**
 * wf_gen_model_open - finds which model a path is; nothing of its size is made
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
