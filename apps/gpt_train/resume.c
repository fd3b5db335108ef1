/* apps/gpt_train/resume.c - flags in checkpoints, and those that differ; see the header. */
#include "apps/gpt_train/resume.h"
#include "apps/options/options_table.h"
#include "nn/dataset/source_list.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Lists flags that change numbers and not the model, which makes_model has. */
static const char *const other_flags[] = {
    "seq_len",
    "dropout",
    "exact",
    "exact_tp",
    "seed",
    "data",
    "val_data",
    "documents",
    "steps",
    "global_batch_size",
    "lr",
    "min_lr",
    "warmup_steps",
    "lr_schedule",
    "lr_decay_steps",
    "param_groups",
    "ema",
    "beta1",
    "beta2",
    "weight_decay",
    "eps",
    "val_fraction",
    "clip_grad",
    "skip_steps",
    "rampup_batch_size",
    "dtype",
    "compute",
    "fp32_residual_connection",
    "param_dtype",
    "base_dtype",
    "reduce_dtype",
    "freeze",
    "lora_dropout",
    "label_smoothing",
    "z_loss",
};

/* Returns true where a row makes another model, or belongs to its optimizer. */
static bool makes_model(const app_option_row *row)
{
    static const app_option_id others[] = {APP_OPTION_model,           APP_OPTION_seq_len,
                                           APP_OPTION_label_smoothing, APP_OPTION_z_loss,
                                           APP_OPTION_dropout,         APP_OPTION_base_dtype,
                                           APP_OPTION_lora_dropout};
    const app_option_id id = (app_option_id)(row - app_option_rows);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] == id)
            return false;
    return id == APP_OPTION_optimizer ||
           (id > APP_OPTION_GROUP_model && id < APP_OPTION_GROUP_mesh &&
            row->kind != APP_KIND_GROUP && row->kind != APP_KIND_FILE);
}

/* Returns true where a row changes numbers. */
static bool is_deciding(const app_option_row *row)
{
    for (size_t i = 0; i < sizeof other_flags / sizeof *other_flags; i++)
        if (strcmp(other_flags[i], row->name) == 0)
            return true;
    return makes_model(row);
}

/* Names entries that are no flags: bytes of the files of --data and of --val-data. */
static const char *const weighed[] = {"data_bytes", "val_data_bytes"};

enum { WEIGHED = sizeof weighed / sizeof *weighed };

/* Returns sizes as "[1200,340]": files may grow under the names that they have. */
static char *sizes_of(const app_text_list *data)
{
    json_t *sizes = json_array();
    wf_dataset_source_list list = {.count = 0};
    wf_error unlisted = {WF_OK, ""}; /* it is reported where the data are opened */
    char *text;

    wf_dataset_source_list_parse(data->item, data->count, "--data", &list, &unlisted);
    for (int64_t i = 0; i < list.count; i++)
        for (int64_t k = 0; k < list.source[i].count; k++) {
            struct stat s;
            bool known = stat(list.source[i].file[k], &s) == 0;

            json_array_append_new(sizes, known ? json_integer(s.st_size) : json_null());
        }
    wf_dataset_source_list_free(&list);
    text = json_dumps(sizes, JSON_COMPACT);
    json_decref(sizes);
    return text;
}

/* Returns a value of JSON as a checkpoint keeps it. */
static char *text_of(const json_t *value)
{
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

char **app_resume_texts(const app_options *options, int64_t *count)
{
    json_t *json = app_options_json(options);
    char **texts = calloc((size_t)2 * (APP_OPTION_COUNT + WEIGHED), sizeof *texts);
    const app_text_list *lists[WEIGHED] = {&options->data, &options->val_data};
    bool good = json && texts;

    *count = 0;
    for (int i = 0; good && i < APP_OPTION_COUNT; i++) {
        if (app_option_rows[i].kind == APP_KIND_GROUP || !is_deciding(&app_option_rows[i]))
            continue;
        texts[2 * *count] = strdup(app_option_rows[i].name);
        texts[2 * *count + 1] = text_of(json_object_get(json, app_option_rows[i].name));
        good = texts[2 * *count] && texts[2 * *count + 1];
        ++*count;
    }
    json_decref(json);
    for (int i = 0; good && i < WEIGHED; i++) {
        texts[2 * *count] = strdup(weighed[i]);
        texts[2 * *count + 1] = sizes_of(lists[i]);
        good = texts[2 * *count] && texts[2 * *count + 1];
        ++*count;
    }
    if (good)
        return texts;
    app_resume_free_texts(texts, *count);
    return NULL;
}

void app_resume_free_texts(char **texts, int64_t count)
{
    for (int64_t i = 0; texts && i < 2 * count; i++)
        free(texts[i]);
    free(texts);
}

static bool of_model(const char *key)
{
    const app_option_row *row = app_option_find(key, strlen(key));

    return row && makes_model(row);
}

/* Writes "--n-embd" for n_embd; returns text. */
static char *flag_of(const char *key, char text[64])
{
    snprintf(text, 64, "--%s", key);
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return text;
}

/* The flags that a checkpoint was made with. */
typedef struct saved_flags {
    const wf_par_checkpoint *from;
    app_options options; /* complete where it is known */
    bool known;          /* gpt_train has made the checkpoint */
    json_t *json;        /* the options, or NULL */
} saved_flags;

/* Returns what a flag was, as text; of one that is younger than the checkpoint the default,
   where that follows from no other flag. NULL: unknown. Owner: caller. */
static char *saved_text(const saved_flags *f, const char *key)
{
    const char *text = wf_par_checkpoint_option(f->from, key);
    const app_option_row *row = app_option_find(key, strlen(key));
    const char *standard = row && row->standard ? row->standard : "";
    bool follows = *standard == '=' || strcmp(standard, "auto") == 0;

    if (text)
        return strdup(text);
    return row && f->json && (makes_model(row) || !follows)
               ? text_of(json_object_get(f->json, key))
               : NULL;
}

/* Returns true where a flag of the model is written in another way alone. */
static bool means_the_same(const saved_flags *f, const char *key, const app_options *o)
{
    return f->known && of_model(key) &&
           app_option_same(&f->options, app_option_find(key, strlen(key)), o);
}

/* Calls `differs` for each flag whose value is another one in a checkpoint. */
static wf_status compare(const app_options *o, const wf_par_checkpoint *c,
                         wf_status (*differs)(const wf_par_checkpoint *c, const char *key,
                                              const char *mine, const char *saved,
                                              wf_error *error),
                         wf_error *error)
{
    wf_error unknown = {WF_OK, ""};
    saved_flags f = {.from = c};
    int64_t count;
    char **texts = app_resume_texts(o, &count);
    wf_status status =
        texts ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory to compare flags");

    f.known = app_options_saved(c, &f.options, &unknown) == WF_OK;
    f.json = f.known ? app_options_json(&f.options) : NULL;
    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        const char *key = texts[2 * i], *mine = texts[2 * i + 1];
        char *saved = saved_text(&f, key);

        if (saved && strcmp(saved, mine) != 0 && !means_the_same(&f, key, o))
            status = differs(c, key, mine, saved, error);
        free(saved);
    }
    json_decref(f.json);
    if (f.known)
        app_options_free(&f.options);
    app_resume_free_texts(texts, count);
    return status;
}

/* Returns true where experts take a number of tokens that --seq-len decides. */
static bool has_capacity(const wf_par_checkpoint *c)
{
    const char *factor = wf_par_checkpoint_option(c, "moe_expert_capacity_factor");

    return factor && strtod(factor, NULL) > 0;
}

static wf_status refuse(const wf_par_checkpoint *c, const char *key, const char *mine,
                        const char *saved, wf_error *error)
{
    char flag[64];

    if (strcmp(key, "seq_len") == 0 && has_capacity(c))
        return wf_error_set(error, WF_EINVAL,
                            "--seq-len %s gives experts another capacity than the checkpoint "
                            "%s has, by sequences of %s (--moe-expert-capacity-factor): use "
                            "that value, another --save DIR, or --resume none",
                            mine, wf_par_checkpoint_path(c), saved);
    if (!of_model(key))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s %s does not fit the checkpoint %s, which has %s; use that value, "
                        "another --save DIR, or --resume none",
                        flag_of(key, flag), mine, wf_par_checkpoint_path(c), saved);
}

/* The same where the optimizer begins anew. */
static wf_status refuse_fresh(const wf_par_checkpoint *c, const char *key, const char *mine,
                              const char *saved, wf_error *error)
{
    return strcmp(key, "optimizer") == 0 ? WF_OK : refuse(c, key, mine, saved, error);
}

/* Reports a flag that differs; what comes from a file is made visible for a terminal. */
static wf_status warn_difference(const wf_par_checkpoint *c, const char *key, const char *mine,
                                 const char *saved, wf_error *error)
{
    char flag[64], *visible = strdup(saved);

    (void)c, (void)error;
    if (visible && (strcmp(key, weighed[0]) == 0 || strcmp(key, weighed[1]) == 0))
        fprintf(stderr,
                "from here on the files of %s have %s bytes; the checkpoint was made with "
                "%s: other sequences are drawn from them\n",
                strcmp(key, weighed[0]) == 0 ? "--data" : "--val-data", mine,
                wf_text_visible(visible));
    else if (visible && !of_model(key))
        fprintf(stderr, "from here on %s is %s; the checkpoint was made with %s\n",
                flag_of(key, flag), mine, wf_text_visible(visible));
    free(visible);
    return WF_OK;
}

void app_resume_warn(const app_options *options, const wf_par_checkpoint *checkpoint)
{
    compare(options, checkpoint, warn_difference, NULL);
}

/* Adds flags without which another state belongs to each parameter. */
static wf_status explain(const wf_par_checkpoint *c, const char *key, const char *mine,
                         const char *saved, wf_error *error)
{
    static const char *const keys[] = {"optimizer", "freeze", "param_dtype", "ema"};
    size_t used = strlen(error->text);
    char flag[64];

    (void)c;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            snprintf(error->text + used, sizeof error->text - used,
                     "; %s is %.200s, and was %.200s", flag_of(key, flag), mine, saved);
    return WF_OK;
}

void app_resume_explain(const app_options *options, const wf_par_checkpoint *checkpoint,
                        wf_error *error)
{
    const size_t used = strlen(error->text);

    if (error->code == WF_EINVAL)
        compare(options, checkpoint, explain, error);
    if (error->text[used])
        snprintf(error->text + strlen(error->text), sizeof error->text - strlen(error->text),
                 "; or take its parameters alone, by --reset-optimizer");
    wf_text_visible(error->text);
}

/* A wf_resume_options.fits. */
static wf_status check_flags(void *arg, const wf_par_checkpoint *c, wf_error *error)
{
    const app_options *o = arg;

    return compare(o, c, o->reset_optimizer ? refuse_fresh : refuse, error);
}

wf_resume_options app_resume_options(const app_options *o)
{
    return (wf_resume_options){.program = "gpt_train",
                               .save = o->save,
                               .resume = o->resume,
                               .fits = check_flags,
                               .arg = (void *)(uintptr_t)o}; /* only read */
}
