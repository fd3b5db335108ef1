/* apps/options/options_table.h - the rows of apps/options/options.def as data, for the other
   options files. */
#ifndef WF_APPS_OPTIONS_TABLE_H
#define WF_APPS_OPTIONS_TABLE_H

#include "apps/options/options.h"

typedef enum app_option_kind {
    APP_KIND_GROUP,
    APP_KIND_INT,
    APP_KIND_REAL,
    APP_KIND_FLOAT, /* a double here, and a float where it is used */
    APP_KIND_BOOL,
    APP_KIND_SWITCH,
    APP_KIND_CHOICE,
    APP_KIND_LEVEL,
    APP_KIND_TEXT,
    APP_KIND_FILE,
    APP_KIND_FILES,
    APP_KIND_BYTES,
    APP_KIND_STEPS, /* only commands have it: there is no such value in JSON */
    APP_KIND_COUNT
} app_option_kind;

typedef struct app_option_row {
    app_option_kind kind;
    const char *name; /* underscores between words; a group's is its title */
    const char *standard, *domain, *metavar, *help;
    size_t offset; /* the field's, in app_options */
} app_option_row;

/* The words of --model: "none", and the rows of models.def; of --arch: the rows of
   families.def. */
extern const char app_model_names[], app_family_names[];

/* The words of --dtype and its like, and of --base-dtype: rows of dtype.def by their kind. */
extern const char app_stored_words[], app_base_words[];

/* The names of --pp-schedule, which may be a file too: the rows of schedules.def. */
extern const char app_schedule_names[];

/* The words of --strategy: the rows of strategies.def, and what others call some of them. */
extern const char app_strategy_names[];

/* A property that a family of --arch has, and a flag may change; which words the flag has. */
typedef struct app_property {
    app_option_id id;
    size_t offset; /* the property's, a bool, in wf_nn_gpt_config */
} app_property;

/* Adds the blocks of a text, the word for an empty list or numbers such as 0,2,5-7, to a list,
   and prints one; false: it is no such text of a model of `blocks` blocks. The text is the
   caller's, free; NULL: no memory. */
bool app_blocks_parse(const char *text, const char *empty, int64_t blocks, wf_nn_blocks *list);
char *app_blocks_print(const wf_nn_blocks *list, const char *empty);

extern const app_property app_properties[];
extern const int app_property_count;

/* The families whose models have what a row of these two lists is about, as " (gpt2, qwen2)";
   "" for other rows. */
typedef struct app_family_list {
    char text[256];
} app_family_list;
app_family_list app_families_with(const app_option_row *row);

/* A number that models have beside their sizes: a double of wf_nn_gpt_config, which 0 leaves as
   the family has it. */
extern const app_property app_scales[];

/* Takes what flags say of experts, beside what the family has; checks it, and fills in
   defaults. */
void app_options_experts(const app_options *o, wf_nn_gpt_config *c);
wf_status app_options_check_experts(app_options *o, wf_error *error);

extern const char *const app_routers[]; /* words of --moe-router, by wf_nn_router_kind */
extern const int app_scale_count;

extern const app_option_row app_option_rows[APP_OPTION_COUNT];

/* One word of a CHOICE or LEVEL row. An alias has a name of its own and means another word. */
typedef struct app_choice {
    char name[APP_CHOICE_LENGTH], means[APP_CHOICE_LENGTH];
    bool alias;
} app_choice;

/* Returns true where the flag may stand without a value, and is "on" then; its value follows
   "=" alone. */
bool app_option_is_bare(const app_option_row *row);

/* The flag of a row, with its two dashes, as a value that lasts for one expression. */
typedef struct app_flag {
    char text[48];
} app_flag;

app_flag app_option_flag(const app_option_row *row);

/* Why processes of one run may differ in a row; NULL: they may not. */
const char *app_option_own(const app_option_row *row);

/* Returns true where a row may stand in a config file and in the JSON form. */
bool app_option_in_config(const app_option_row *row);

/* The key of a config file under which --save-config writes what was not given: it is checked,
   and not taken. */
#define APP_CONFIG_DERIVED "derived"

/* The row of a name (dashes or underscores, no leading dashes), or NULL. */
const app_option_row *app_option_find(const char *name, size_t length);

/* Lists the names of all rows, and NULL after them. names: [APP_OPTION_COUNT + 1] */
void app_option_names(const char **names);

/* Walks the words of a domain: start with *cursor = row->domain; false after the last one. */
bool app_choice_next(const char **cursor, app_choice *choice);

/* Sets a value from text. `where` names its source: "--tp", or the file and its key. */
wf_status app_option_set(app_options *options, const app_option_row *row, const char *where,
                         const char *text, wf_error *error);

/* The same from JSON, as it stands in a config file. */
wf_status app_option_set_json(app_options *options, const app_option_row *row,
                              const char *where, const json_t *value, wf_error *error);

/* Frees what a text or list row holds, and leaves it empty. */
void app_option_clear(app_options *options, const app_option_row *row);

/* Sets the default of every row. */
wf_status app_options_defaults(app_options *options, wf_error *error);

/* Values from a config file, for the rows that are not given yet. */
wf_status app_options_read_config(app_options *options, const char *path, wf_error *error);

/* Takes the options that the folder of --init-from decides, where one is given. */
wf_status app_options_init_from(app_options *options, wf_error *error);

/* Takes the options that the folder of --lora-init decides, where one is given. */
wf_status app_options_lora_init(app_options *options, wf_error *error);

/* The rules of adapters: what they need, and what the folder of --lora-init has. */
wf_status app_options_check_adapters(app_options *options, wf_error *error);

/* No file is written that is read, or written as another one too. */
wf_status app_options_files(app_options *options, wf_error *error);

/* Takes the options that the checkpoint decides from which a run continues, where there is
   one. */
wf_status app_options_resume(app_options *options, wf_error *error);

/* A number, a word or a text of a row as a user would type it; other kinds are not shown. */
enum { APP_VALUE = 640 };
const char *app_option_text(const app_options *options, const app_option_row *row,
                            char text[APP_VALUE]);

/* The flags of the model and of its adapters as gpt_train had them when it made a checkpoint,
   complete; those that it lacks, and all others, have their defaults. Owner: caller,
   app_options_free. WF_EINVAL, WF_EDATA: it is none of gpt_train's, or is damaged. */
wf_status app_options_saved(const wf_par_checkpoint *checkpoint, app_options *saved,
                            wf_error *error);

/* Returns true where a row of the groups "Model" or "Adapters" means the same as in saved
   options, however it is written: "0,1" and "0-1", "q" and "q_proj", 0 and the default. */
bool app_option_same(const app_options *saved, const app_option_row *row,
                     const app_options *options);

/* "96 or 102": the multiples of `of` next to a value, as advice. */
typedef struct app_multiples {
    char text[64];
} app_multiples;

app_multiples app_multiples_near(int64_t value, int64_t of);

/* The rules of the model: sizes that fit each other, what a family has, and what follows from
   that. */
wf_status app_options_check_model(app_options *options, wf_error *error);

/* The rules of the mesh: its ranks, and the flags of a pipeline. */
wf_status app_options_check_mesh(app_options *options, wf_error *error);

/* Rates and steps of the learning rate, made a schedule; points of a file are read. */
wf_status app_options_check_schedule(app_options *options, wf_error *error);

/* Checks the global batch, how it grows, and its micro-batches, which it may choose. */
wf_status app_options_check_batch(app_options *options, wf_error *error);

/* Sets the source of validation data, and the steps of --epochs. */
wf_status app_options_derive_from_data(app_options *options, wf_error *error);

/* There are data to train on. */
wf_status app_options_check_data(app_options *options, wf_error *error);

/* The rules that join several flags, and the values that follow from others. */
wf_status app_options_check(app_options *options, wf_error *error);

#endif
