/*
 * apps/options/options_resume.c - takes the flags that are decided by the checkpoint which a
 * run continues from: those of the groups "Model" and "Adapters", and --optimizer, whose
 * tensors it holds.
 */
#include "apps/options/options_table.h"
#include "parallel/checkpoint/checkpoint.h"
#include <stdlib.h>
#include <string.h>

enum { VALUE = 640, DIFFERENCES = 1024 };

/* Flags of a checkpoint beside those that were given. */
typedef struct decision {
    app_options *o;
    const wf_par_checkpoint *from;
    char differ[DIFFERENCES]; /* all that contradict */
} decision;

/* A number, a word or a text as a user would type it; other kinds decide nothing. */
static const char *value_text(const app_options *o, const app_option_row *row, char text[VALUE])
{
    const void *field = (const char *)o + row->offset;

    if (row->kind == APP_KIND_INT)
        snprintf(text, VALUE, "%lld", (long long)*(const int64_t *)field);
    else if (row->kind == APP_KIND_REAL || row->kind == APP_KIND_FLOAT)
        snprintf(text, VALUE, "%.15g", *(const double *)field);
    else if (row->kind == APP_KIND_BOOL)
        snprintf(text, VALUE, "%s", *(const bool *)field ? "on" : "off");
    else if (row->kind == APP_KIND_TEXT)
        snprintf(text, VALUE, "%s", *(char *const *)field);
    else
        snprintf(text, VALUE, "%s", (const char *)field);
    return text;
}

/* Sequences may be shorter than the model allows, and what is dropped may change from here
   on. */
static bool is_fixed(const app_option_row *row)
{
    app_option_id id = (app_option_id)(row - app_option_rows);

    return id != APP_OPTION_seq_len && id != APP_OPTION_dropout &&
           id != APP_OPTION_lora_dropout;
}

/* Returns true where a flag was given by the user, or by --init-from; 0 is a default where the
   row has a rule for one. */
static bool is_decided(const app_options *o, const app_option_row *row)
{
    bool rule = row->standard && *row->standard == '=';
    bool of_model = row < &app_option_rows[APP_OPTION_GROUP_adapters];

    if (rule && row->kind == APP_KIND_SWITCH)
        return o->given[row - app_option_rows];
    if (rule && *(const int64_t *)((const char *)o + row->offset) == 0)
        return false;
    return o->given[row - app_option_rows] ||
           ((o->init_from || strcmp(o->model, "none") != 0) && is_fixed(row) && of_model);
}

static wf_status take(decision *d, const app_option_row *row, const char *saved,
                      wf_error *error)
{
    app_options theirs = {0}; /* one field of it is filled */
    json_t *value = json_loads(saved, JSON_DECODE_ANY, NULL);
    char where[512], mine[VALUE], other[VALUE];
    size_t used = strlen(d->differ);
    wf_status status;

    snprintf(where, sizeof where, "%.440s: \"%s\"", wf_par_checkpoint_path(d->from), row->name);
    status = app_option_set_json(&theirs, row, where, value, error);
    json_decref(value);
    /* each layer is built before anything can be compared with the tensors that there are */
    if (status == WF_OK && theirs.n_layer > wf_par_checkpoint_parameters(d->from))
        status = wf_error_set(error, WF_EDATA, "%s is %lld, and it has %lld tensors", where,
                              (long long)theirs.n_layer,
                              (long long)wf_par_checkpoint_parameters(d->from));
    if (status != WF_OK)
        return status;
    value_text(d->o, row, mine);
    value_text(&theirs, row, other);
    app_option_clear(&theirs, row);
    if (!is_decided(d->o, row))
        app_option_set(d->o, row, where, other, error);
    else if (is_fixed(row) && strcmp(mine, other) != 0)
        snprintf(d->differ + used, sizeof d->differ - used, "%s%s %.200s (it has %.200s)",
                 used ? ", " : "", app_option_flag(row).text, mine, other);
    return error->code;
}

static wf_status take_all(decision *d, wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = APP_OPTION_GROUP_model + 1; i < APP_OPTION_COUNT && status == WF_OK; i++) {
        const app_option_row *row = &app_option_rows[i];
        bool decides =
            i < APP_OPTION_GROUP_mesh ||
            (i == APP_OPTION_optimizer && !(d->o->reset_optimizer && d->o->given[i]));
        const char *saved = decides && row->kind != APP_KIND_FILE
                                ? wf_par_checkpoint_option(d->from, row->name)
                                : NULL;

        if (saved)
            status = take(d, row, saved, error);
    }
    if (status == WF_OK && *d->differ)
        return wf_error_set(error, WF_EINVAL,
                            "the checkpoint %s is of another model: %s; drop these flags to go "
                            "on with it, or use another --save DIR or --resume none",
                            wf_par_checkpoint_path(d->from), d->differ);
    return status;
}

/* Returns the first checkpoint of a directory that can be read; errors of others are reported
   where they are loaded, or here where none can. NULL: there is none, or the reason is reported
   later. */
static wf_par_checkpoint *open_first(const char *dir, wf_error *error)
{
    char **paths = NULL;
    int64_t count = 0;
    wf_error why = {WF_OK, ""};
    wf_par_checkpoint *found = NULL;
    bool listed = wf_par_checkpoint_list(dir, &paths, &count, &why) == WF_OK;

    for (int64_t i = 0; i < count; i++) {
        wf_error another = {WF_OK, ""};

        if (listed && !found)
            found = wf_par_checkpoint_open(paths[i], why.code == WF_OK ? &why : &another);
        free(paths[i]);
    }
    free(paths);
    if (listed && count && !found)
        wf_error_set(error, why.code,
                     "none of the %lld checkpoints in %s can be used: %s; --resume none begins "
                     "anew",
                     (long long)count, dir, why.text);
    return found;
}

/* Sizes, which no model is without: an older checkpoint may lack other flags, whose defaults
   are what it had. */
static wf_status check_saved(const wf_par_checkpoint *c, const app_options *o, wf_error *error)
{
    static const app_option_id sizes[] = {
        APP_OPTION_n_layer, APP_OPTION_n_head, APP_OPTION_n_kv_head,  APP_OPTION_n_embd,
        APP_OPTION_ffn,     APP_OPTION_arch,   APP_OPTION_vocab_size, APP_OPTION_positions};
    const int64_t tensors = wf_par_checkpoint_parameters(c);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!wf_par_checkpoint_option(c, app_option_rows[sizes[i]].name))
            return wf_error_set(
                error, WF_EINVAL,
                "%s says nothing of %s: gpt_train has not made it, so its model is not known",
                wf_par_checkpoint_path(c), app_option_rows[sizes[i]].name);
    if (o->n_layer > tensors)
        return wf_error_set(
            error, WF_EDATA, "%s says that n_layer is %lld, and it has %lld at most",
            wf_par_checkpoint_path(c), (long long)o->n_layer, (long long)tensors);
    return WF_OK;
}

wf_status app_options_saved_model(const wf_par_checkpoint *c, wf_nn_gpt_config *config,
                                  wf_par_lora *lora, wf_error *error)
{
    app_options o = {0};
    wf_status status = app_options_defaults(&o, error);

    for (int i = APP_OPTION_GROUP_model + 1; i < APP_OPTION_GROUP_mesh && status == WF_OK;
         i++) {
        const app_option_row *row = &app_option_rows[i];
        const char *saved = row->kind != APP_KIND_FILE && i != APP_OPTION_model
                                ? wf_par_checkpoint_option(c, row->name)
                                : NULL;
        json_t *value = saved ? json_loads(saved, JSON_DECODE_ANY, NULL) : NULL;
        char where[512];

        snprintf(where, sizeof where, "%.440s: \"%s\"", wf_par_checkpoint_path(c), row->name);
        if (saved)
            app_option_clear(&o, row);
        if (saved)
            status = app_option_set_json(&o, row, where, value, error);
        json_decref(value);
    }
    if (status == WF_EINVAL) /* it is no flag of this command */
        status = error->code = WF_EDATA;
    if (status == WF_OK)
        status = check_saved(c, &o, error);
    if (status == WF_OK)
        *config = app_options_model(&o);
    if (status == WF_OK && lora)
        *lora = app_options_lora(&o);
    app_options_free(&o);
    return status;
}

/* Refuses a new optimizer where each start would have one. */
static wf_status check_reset(const app_options *o, wf_error *error)
{
    if (o->reset_optimizer &&
        (!o->resume || !strcmp(o->resume, "auto") || !strcmp(o->resume, "none") || o->replay))
        return wf_error_set(error, WF_EINVAL, "--reset-optimizer needs --resume PATH%s",
                            o->replay ? ", and no --replay, whose steps were made with another "
                                        "optimizer's state"
                                      : ": with the newest of --save each start would begin "
                                        "anew");
    return WF_OK;
}

wf_status app_options_resume(app_options *o, wf_error *error)
{
    const char *path = o->resume && strcmp(o->resume, "auto") != 0 ? o->resume : o->save;
    decision d = {.o = o, .differ = ""};
    wf_par_checkpoint *c;

    if (check_reset(o, error) != WF_OK || !path || strcmp(path, "none") == 0)
        return error->code;
    c = path == o->resume && wf_par_checkpoint_there(path) ? wf_par_checkpoint_open(path, error)
                                                           : open_first(path, error);
    d.from = c;
    if (c)
        take_all(&d, error);
    wf_par_checkpoint_close(c);
    o->bad_checkpoint = error->code == WF_EIO || error->code == WF_EDATA;
    return error->code;
}
