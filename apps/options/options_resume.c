/*
 * apps/options/options_resume.c - takes the flags that are decided by the checkpoint which a
 * run continues from: those of the groups "Model" and "Adapters", and --optimizer, whose
 * tensors it holds.
 */
#include "apps/options/options_table.h"
#include "parallel/checkpoint/checkpoint.h"
#include <stdlib.h>
#include <string.h>

enum { DIFFERENCES = 1024 };

/* Flags of a checkpoint beside those that were given. */
typedef struct decision {
    app_options *o;
    const wf_par_checkpoint *from;
    app_options saved;        /* the flags that it was made with, complete */
    bool known;               /* gpt_train has made it: saved is filled */
    char differ[DIFFERENCES]; /* all that contradict */
} decision;

/* Sequences may be shorter than the model allows, and what is dropped and how frozen matrices
   are stored may change from here on. */
static bool is_fixed(const app_option_row *row)
{
    app_option_id id = (app_option_id)(row - app_option_rows);

    return id != APP_OPTION_seq_len && id != APP_OPTION_dropout &&
           id != APP_OPTION_lora_dropout && id != APP_OPTION_base_dtype;
}

/* Returns true where a flag was given by the user, or by --init-from; 0 is a default where the
   row has a rule for one, and "auto" decides nothing. */
static bool is_decided(const app_options *o, const app_option_row *row)
{
    bool rule = row->standard && *row->standard == '=';
    bool of_model = row < &app_option_rows[APP_OPTION_GROUP_adapters];

    if (row->kind == APP_KIND_CHOICE && strcmp((const char *)o + row->offset, "auto") == 0)
        return false;
    if (rule && row->kind == APP_KIND_SWITCH)
        return o->given[row - app_option_rows];
    if (rule && *(const int64_t *)((const char *)o + row->offset) == 0)
        return false;
    return o->given[row - app_option_rows] ||
           ((o->init_from || strcmp(o->model, "none") != 0) && is_fixed(row) && of_model);
}

/* Takes what a checkpoint was made with; a flag that was given has to mean the same. */
static wf_status settle(decision *d, const app_option_row *row, const app_options *theirs,
                        const char *where, wf_error *error)
{
    char texts[2][APP_VALUE];
    const char *mine = app_option_text(d->o, row, texts[0]);
    const char *other = app_option_text(theirs, row, texts[1]);
    const bool decided = is_decided(d->o, row), alike = strcmp(mine, other) == 0;
    size_t used = strlen(d->differ);

    if (decided && !is_fixed(row))
        return WF_OK;
    if (!decided || (!alike && d->known && app_option_same(&d->saved, row, d->o)))
        return app_option_set(d->o, row, where, other, error);
    if (!alike)
        snprintf(d->differ + used, sizeof d->differ - used, "%s%s %.200s (it has %.200s)",
                 used ? ", " : "", app_option_flag(row).text, mine, other);
    return WF_OK;
}

static wf_status take(decision *d, const app_option_row *row, const char *saved,
                      wf_error *error)
{
    app_options theirs = {0}; /* one field of it is filled */
    json_t *value = json_loads(saved, JSON_DECODE_ANY, NULL);
    char where[512];
    wf_status status;

    snprintf(where, sizeof where, "%.440s: \"%s\"", wf_par_checkpoint_path(d->from), row->name);
    status = app_option_set_json(&theirs, row, where, value, error);
    json_decref(value);
    /* each layer is built before anything can be compared with the tensors that there are */
    if (status == WF_OK && theirs.n_layer > wf_par_checkpoint_parameters(d->from))
        status = wf_error_set(error, WF_EDATA, "%s is %lld, and it has %lld tensors", where,
                              (long long)theirs.n_layer,
                              (long long)wf_par_checkpoint_parameters(d->from));
    if (status == WF_OK)
        status = settle(d, row, &theirs, where, error);
    app_option_clear(&theirs, row);
    return status;
}

/* Returns true for the flags that a checkpoint decides. */
static bool decides(const app_options *o, int i)
{
    if (i == APP_OPTION_optimizer)
        return !(o->reset_optimizer && o->given[i]);
    return i > APP_OPTION_GROUP_model && i < APP_OPTION_GROUP_mesh && i != APP_OPTION_model &&
           app_option_rows[i].kind != APP_KIND_FILE &&
           app_option_in_config(&app_option_rows[i]);
}

/* Takes each flag. One that the checkpoint lacks, since it is older than the flag, had its
   default. */
static wf_status take_all(decision *d, wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = 0; i < APP_OPTION_COUNT && status == WF_OK; i++) {
        const app_option_row *row = &app_option_rows[i];
        const char *saved =
            decides(d->o, i) ? wf_par_checkpoint_option(d->from, row->name) : NULL;

        if (saved)
            status = take(d, row, saved, error);
        else if (decides(d->o, i) && d->known && is_decided(d->o, row))
            status = settle(d, row, &d->saved, app_option_flag(row).text, error);
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
    wf_error unknown = {WF_OK, ""};
    wf_par_checkpoint *c;

    if (check_reset(o, error) != WF_OK || !path || strcmp(path, "none") == 0)
        return error->code;
    c = path == o->resume && wf_par_checkpoint_there(path) ? wf_par_checkpoint_open(path, error)
                                                           : open_first(path, error);
    d.from = c;
    d.known = c && app_options_saved(c, &d.saved, &unknown) == WF_OK;
    if (c)
        take_all(&d, error);
    if (d.known)
        app_options_free(&d.saved);
    wf_par_checkpoint_close(c);
    o->bad_checkpoint = error->code == WF_EIO || error->code == WF_EDATA;
    return error->code;
}
