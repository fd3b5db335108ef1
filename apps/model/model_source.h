/*
 * apps/model/model_source.h - a model by the path that a user gives: a folder of Hugging Face, a GGUF file, a
 * checkpoint of gpt_train, or a directory of checkpoints, of which the newest is taken. One of adapters is put on the
 * model that it was trained on.
 */
#ifndef WF_APPS_MODEL_MODEL_SOURCE_H
#define WF_APPS_MODEL_MODEL_SOURCE_H

#include <weft/weft.h>

typedef struct app_model_source {
    const char *path;              /* as it was given */
    wf_par_checkpoint *checkpoint; /* NULL: path is a folder of Hugging Face, or */
    bool is_gguf;                  /* a GGUF file */
    wf_nn_gpt_config config;
    wf_par_lora lora; /* a checkpoint's adapters; of rank 0: it has none */
    uint64_t seed;    /* the run of a checkpoint had this one */
    bool nf4; /* the run of a checkpoint had its base in 4 bits, which its adapters are for */
    const char *
        base; /* NULL, or the folder of the model that is adapted, in place of the one that the run names */
    char like[4096]; /* a folder with what belongs to the model beside its weights, or "" */
} app_model_source;

/* Whether a file has the name of a GGUF file. */
bool app_model_source_named_gguf(const char *path);

/* What model it is; nothing of its size is made. Owner: caller, app_model_source_close, also after an
   error. Errors: WF_EIO, WF_EDATA, WF_EUNSUPPORTED, WF_EINVAL (a checkpoint of another program). */
wf_status app_model_source_open(const char *path, app_model_source *m, wf_error *error);
void app_model_source_close(app_model_source *m);

/* The model, planned for the mesh and materialised; with its weights, but for a plan (wf_par_options.plan), which
   has none. Collective over the world. Owner: caller, wf_nn_free. NULL on errors, which are in the context. */
wf_nn_gpt *app_model_source_load(const app_model_source *m, wf_par *par, bool plan);

#endif
