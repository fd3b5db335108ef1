/*
 * apps/options/options.h - the command line of gpt_train: wf_options has one field per row of
 * apps/options/options.def, from which parsing, help, config files, JSON and completion follow too.
 */
#ifndef WF_APPS_OPTIONS_H
#define WF_APPS_OPTIONS_H

#include "core/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { WF_CHOICE_LENGTH = 24 };

typedef struct wf_text_list {
    char **item;
    int64_t count;
} wf_text_list;

typedef struct wf_steps {
    int64_t first, last;
} wf_steps;

/* The C type of each kind of row. Texts belong to the options; an absent one is NULL. */
typedef int64_t wf_option_INT;
typedef double wf_option_REAL;
typedef bool wf_option_BOOL;
typedef bool wf_option_SWITCH;
typedef char wf_option_CHOICE[WF_CHOICE_LENGTH];
typedef char wf_option_LEVEL[WF_CHOICE_LENGTH];
typedef char *wf_option_TEXT;
typedef char *wf_option_FILE;
typedef wf_text_list wf_option_FILES;
typedef int64_t wf_option_BYTES;
typedef wf_steps wf_option_STEPS;

/* WF_OPTION_<field>: the index of a row; a group has one as well. */
typedef enum wf_option_id {
#define GROUP(name, title)                                   WF_OPTION_GROUP_##name,
#define OPTION(kind, field, standard, domain, metavar, help) WF_OPTION_##field,
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
    WF_OPTION_COUNT
} wf_option_id;

/** wf_options - what the user asked for; after wf_options_parse complete and checked. */
typedef struct wf_options {
#define GROUP(name, title)
#define OPTION(kind, field, standard, domain, metavar, help) wf_option_##kind field;
#include "apps/options/options.def"
#undef GROUP
#undef OPTION
    bool given[WF_OPTION_COUNT]; /* by the command line or the config file, not by default */
    bool bad_checkpoint;         /* after a failure: it is the checkpoint's to go on from */
} wf_options;

/**
 * wf_options_parse - defaults, then the config file, then the command line; then all checks.
 *
 * Values that follow from others (micro_batch_size, ffn, n_kv_head, min_lr, ...) are filled in.
 * Only threads_per_rank may stay 0: it depends on the machine. With --help, --version or
 * --completion the rest of the command line is not read or checked: ask wf_options_asks first.
 *
 * @param options  filled; wf_options_free it after success, it is empty after a failure
 * Errors:         WF_EINVAL (a flag), WF_EIO (the config file), WF_ENOMEM; WF_EIO, WF_EDATA with
 *                 bad_checkpoint: the one to go on from, which decides flags
 */
wf_status wf_options_parse(int argc, char **argv, wf_options *options, wf_error *error);

/** wf_options_asks - whether a text was asked for (help, version, completion) in place of a run;
 * wf_options_answer - prints it. */
bool wf_options_asks(const wf_options *options);
void wf_options_answer(const wf_options *options, FILE *out);

/** wf_options_free - frees the texts; the struct itself is the caller's. */
void wf_options_free(wf_options *options);

/**
 * wf_options_json - the options as an object that --config reads back to the same options.
 *
 * Owner:  the caller; NULL when memory ran out
 */
json_t *wf_options_json(const wf_options *options);

/** wf_options_help - the whole help text. */
void wf_options_help(FILE *out);

/** wf_options_completion - a completion script; shell is "bash" or "zsh". */
void wf_options_completion(FILE *out, const char *shell);

#endif
