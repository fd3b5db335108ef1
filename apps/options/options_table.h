/* apps/options/options_table.h - the rows of apps/options/options.def as data, for the other options files. */
#ifndef WF_APPS_OPTIONS_TABLE_H
#define WF_APPS_OPTIONS_TABLE_H

#include "apps/options/options.h"

typedef enum wf_option_kind {
    WF_KIND_GROUP,
    WF_KIND_INT,
    WF_KIND_REAL,
    WF_KIND_BOOL,
    WF_KIND_SWITCH,
    WF_KIND_CHOICE,
    WF_KIND_LEVEL,
    WF_KIND_TEXT,
    WF_KIND_FILE,
    WF_KIND_FILES,
    WF_KIND_BYTES,
    WF_KIND_STEPS, /* of commands alone: there is no such value in JSON */
    WF_KIND_COUNT
} wf_option_kind;

typedef struct wf_option_row {
    wf_option_kind kind;
    const char *name; /* with underscores; of a group its title */
    const char *standard, *domain, *metavar, *help;
    size_t offset; /* of the field in wf_options */
} wf_option_row;

extern const wf_option_row wf_option_rows[WF_OPTION_COUNT];

/* One word of a CHOICE or LEVEL row. An alias has a name of its own and means another word. */
typedef struct wf_choice {
    char name[WF_CHOICE_LENGTH], means[WF_CHOICE_LENGTH];
    bool alias;
} wf_choice;

/* Whether the flag may stand without a value, and is "on" then; its value follows "=" alone. */
bool wf_option_is_bare(const wf_option_row *row);

/* The flag of a row, with its two dashes, as a value that lasts for one expression. */
typedef struct wf_flag {
    char text[48];
} wf_flag;

wf_flag wf_option_flag(const wf_option_row *row);

/* Whether a row may stand in a config file and in the JSON form. */
bool wf_option_in_config(const wf_option_row *row);

/* The row of a name (dashes or underscores, no leading dashes), or NULL. */
const wf_option_row *wf_option_find(const char *name, size_t length);

/* The row that a mistyped name most likely meant, or NULL when none is near. */
const wf_option_row *wf_option_nearest(const char *name, size_t length);

/* Walks the words of a domain: start with *cursor = row->domain; false after the last one. */
bool wf_choice_next(const char **cursor, wf_choice *choice);

/* A value from text. `where` names the place of the value: "--tp", or the file and its key. */
wf_status wf_option_set(wf_options *options, const wf_option_row *row, const char *where,
                        const char *text, wf_error *error);

/* The same from JSON, as it stands in a config file. */
wf_status wf_option_set_json(wf_options *options, const wf_option_row *row, const char *where,
                             const json_t *value, wf_error *error);

/* Frees what a text or list row holds, and leaves it empty. */
void wf_option_clear(wf_options *options, const wf_option_row *row);

/* Values from a config file, for the rows that are not given yet. */
wf_status wf_options_read_config(wf_options *options, const char *path, wf_error *error);

/* What the folder of --init-from decides, where one is given. */
wf_status wf_options_init_from(wf_options *options, wf_error *error);

/* No file is written that is read, or written as another one too. */
wf_status wf_options_files(wf_options *options, wf_error *error);

/* What the checkpoint decides that a run goes on from, where there is one. */
wf_status wf_options_resume(wf_options *options, wf_error *error);

/* The rules that join several flags, and the values that follow from others. */
wf_status wf_options_check(wf_options *options, wf_error *error);

#endif
