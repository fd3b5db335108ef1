/*
 * apps/options/options.h - the command line of gpt_train: app_options has one field per row of
 * apps/options/options.def, from which parsing, help, config files, JSON and completion follow
 * too.
 */
#ifndef WF_APPS_OPTIONS_H
#define WF_APPS_OPTIONS_H

#include "nn/dataset/dataset.h"
#include "core/job.h"
#include "core/status.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/models/gpt/lora.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { APP_CHOICE_LENGTH = 24 };

typedef struct app_text_list {
    char **item;
    int64_t count;
} app_text_list;

typedef struct app_steps {
    int64_t first, last;
} app_steps;

/* The C type of each kind of row. Texts belong to the options; an absent one is NULL. */
typedef int64_t app_option_INT;
typedef double app_option_REAL;
typedef double app_option_FLOAT;
typedef bool app_option_BOOL;
typedef bool app_option_SWITCH;
typedef char app_option_CHOICE[APP_CHOICE_LENGTH];
typedef char app_option_LEVEL[APP_CHOICE_LENGTH];
typedef char *app_option_TEXT;
typedef char *app_option_FILE;
typedef app_text_list app_option_FILES;
typedef int64_t app_option_BYTES;
typedef app_steps app_option_STEPS;

/* APP_OPTION_<field>: the index of a row; a group has one as well. */
typedef enum app_option_id {
#define GROUP(name, title)                                   APP_OPTION_GROUP_##name,
#define OPTION(kind, field, standard, domain, metavar, help) APP_OPTION_##field,
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
    APP_OPTION_COUNT
} app_option_id;

/** app_options - the user's choices; after app_options_parse complete and checked. */
typedef struct app_options {
#define GROUP(name, title)
#define OPTION(kind, field, standard, domain, metavar, help) app_option_##kind field;
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
    bool given[APP_OPTION_COUNT]; /* by the command line or the config file, not by default */
    bool from_config[APP_OPTION_COUNT]; /* by the config file alone */
    wf_nn_schedule schedule;            /* by lr_schedule and the flags beside it */
    bool whole_batches; /* micro_batch_size is not asked for: as many sequences as a rank has */
    bool is_fed;        /* its batches come from its caller, and not from files of --data */
    bool bad_checkpoint; /* after a failure: it is of the checkpoint to continue from */
} app_options;

/**
 * app_options_parse - defaults, then the config file, then the command line; then all checks.
 *
 * Values that follow from others (micro_batch_size, ffn, n_kv_head, min_lr, ...) are filled in.
 * Only threads_per_rank may stay 0: it depends on the machine. With --help, --version or
 * --completion the rest of the command line is not read or checked: ask app_options_asks first.
 *
 * @param options  filled; app_options_free it after success, it is empty after a failure
 * Errors:         WF_EINVAL (a flag), WF_EIO (the config file), WF_ENOMEM; WF_EIO, WF_EDATA
 *                 with bad_checkpoint: the one to continue from, which decides flags
 */
wf_status app_options_parse(int argc, char **argv, app_options *options, wf_error *error);

/** app_options_parse_fed - the same for a run that gets its batches from its caller: it needs
 * no --data. */
wf_status app_options_parse_fed(int argc, char **argv, app_options *options, wf_error *error);

/** app_options_derive_compute - products are made as activations are stored, where --compute is
 * not given: for who changes dtype. */
void app_options_derive_compute(app_options *options);

/** app_options_ranks - ranks of the mesh: pp x tp x dp. */
int64_t app_options_ranks(const app_options *options);

/** app_options_micro_steps - micro-steps of a step. app_options_idle - how many data-parallel
 * ranks have no sequence in the last one, which is 0 but for micro-batches of 1. */
int64_t app_options_micro_steps(const app_options *options);
int64_t app_options_idle(const app_options *options);

/** app_options_model - the model that the flags describe. */
wf_nn_gpt_config app_options_model(const app_options *options);

/** app_options_lora - the adapters that the flags describe; of rank 0: none. */
wf_par_lora app_options_lora(const app_options *options);

/**
 * app_options_saved_model - the model that a checkpoint of gpt_train is of, and its adapters
 * (NULL: not asked for), by the flags that it keeps
 *
 * Errors:  WF_EINVAL (it keeps none), WF_EDATA (one is damaged, or the model has more layers
 *          than the checkpoint tensors: what comes from a file is no reason to build for ever)
 */
wf_status app_options_saved_model(const wf_par_checkpoint *checkpoint, wf_nn_gpt_config *config,
                                  wf_par_lora *lora, wf_error *error);

/** app_options_data - the data that the flags ask for; its texts are those of the options. */
wf_dataset_options app_options_data(const app_options *options);

/** app_options_masks_documents - returns true where tokens see their own document alone. */
bool app_options_masks_documents(const app_options *options);

/** app_options_warn - prints a line for each option that was given and has no effect on this
 * mesh, and why */
void app_options_warn(const app_options *options, FILE *out);

/** app_options_pipelined - returns true where a schedule runs the steps: with more than one
 * pipeline rank, or where one rank has several stages, a schedule or a cut of its own. */
bool app_options_pipelined(const app_options *options);

/** app_options_uncaptured - returns why steps cannot be captured as CUDA graphs with these
 * options, as far as they say; NULL: they can. */
const char *app_options_uncaptured(const app_options *options);

/** app_options_asks - returns true where a text was asked for (help, version, completion)
 * instead of a run; app_options_answer - prints it. */
bool app_options_asks(const app_options *options);
void app_options_answer(const app_options *options, FILE *out);

/**
 * app_options_job - adds to a job the options that all processes of a run must have alike: all
 * but those that options.def gives to each process; content of files instead of their paths
 *
 * @param options  complete, as the run has them
 */
void app_options_job(const app_options *options, wf_job *job);

/**
 * app_options_prepare_outputs - makes the folders of what the options name to be written, and
 * checks that it can be; what is there stays (core/files/prepare.h)
 *
 * Errors:  WF_EIO with flag, path and reason, WF_ENOMEM
 */
wf_status app_options_prepare_outputs(const app_options *options, wf_error *error);

/**
 * app_options_show - writes complete options as --save-config and --print-config ask; without
 * these it does nothing
 *
 * Errors:  WF_EIO (the file), WF_ENOMEM
 */
wf_status app_options_show(const app_options *options, FILE *out, wf_error *error);

/** app_options_free - frees the texts; the struct itself is the caller's. */
void app_options_free(app_options *options);

/**
 * app_options_json - the options as an object that --config reads back to the same options.
 *
 * Owner:  the caller; NULL when memory ran out
 */
json_t *app_options_json(const app_options *options);

/** app_options_help - the whole help text. */
void app_options_help(FILE *out);

/** app_options_completion - a completion script; shell is "bash" or "zsh". */
void app_options_completion(FILE *out, const char *shell);

#endif
