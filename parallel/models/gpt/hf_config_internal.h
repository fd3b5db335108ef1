/*
 * parallel/models/gpt/hf_config_internal.h - config.json of Hugging Face's transformers, read
 * with distrust and written, by the rows of hf_config.def. What a family can do and Weft's
 * model cannot is refused by the name of its key. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_CONFIG_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_CONFIG_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include "parallel/formats/json_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/models/gpt/hf_family_internal.h"

typedef struct wf_hf_config {
    const wf_hf_family *family;
    /* dropout 0: theirs is three numbers, and a run's own choice here */
    wf_nn_gpt_config model;
} wf_hf_config;

/* WF_EDATA where it is no such config, WF_EUNSUPPORTED where the model is one of another
   kind. */
wf_status wf_hf_config_parse(wf_hf_config *config, const char *name, const char *text,
                             size_t bytes, wf_error *error);
wf_status wf_hf_config_read(wf_hf_config *config, const wf_file_calls *calls, const char *path,
                            wf_error *error);

/* The text of a folder's config.json as JSON. Owner: caller, json_decref. */
wf_status wf_hf_config_json(json_t **object, const wf_file_calls *calls, const char *path,
                            wf_error *error);

/* Refuses a config with keys of which nothing is known, by their names: WF_EUNSUPPORTED. */
wf_status wf_hf_check_unknown(const wf_json_source *s, const wf_hf_family *family);

/* wf_hf_config_read of JSON that is read already, and whose numbers are those of a file called
   `name`. */
wf_status wf_hf_config_take(wf_hf_config *config, const char *name, const json_t *object,
                            wf_error *error);

/* Fills in what keys say together: defaults for zeros, the original length of dynamic scaling.
   Checks that the numbers make a model. */
wf_status wf_hf_config_finish(const wf_json_source *s, wf_nn_gpt_config *model);

/*
 * The family that a model is written as: that of the folder `like` where its config.json is
 * that model's, else the first one whose rows say all that the model has. WF_EUNSUPPORTED: none
 * does.
 */
wf_status wf_hf_config_family(const wf_nn_gpt_config *model, const char *like,
                              const wf_hf_family **family, wf_error *error);

/*
 * Writes the text of a config.json. like: NULL, or a folder. Where its config.json is the
 * model's, it is copied, else its token ids are taken. Owner: caller, free. WF_ENOMEM,
 * WF_EUNSUPPORTED, those of the folder.
 */
wf_status wf_hf_config_format(const wf_nn_gpt_config *model, wf_safetensors_dtype dtype,
                              const char *like, char **text, wf_error *error);

/* The field of a row that is an inverse or an inverse root, in as many digits as flags have. */
double wf_hf_derived(const wf_hf_key *row, double value);

#endif
