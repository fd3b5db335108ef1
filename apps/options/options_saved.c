/*
 * apps/options/options_saved.c - the flags that a checkpoint keeps: read, completed with the
 * defaults of those that it lacks, and compared by what they mean.
 */
#include "apps/options/options_table.h"
#include "parallel/checkpoint/checkpoint.h"
#include <string.h>

const char *app_option_text(const app_options *o, const app_option_row *row,
                            char text[APP_VALUE])
{
    const void *field = (const char *)o + row->offset;

    if (row->kind == APP_KIND_INT)
        snprintf(text, APP_VALUE, "%lld", (long long)*(const int64_t *)field);
    else if (row->kind == APP_KIND_REAL || row->kind == APP_KIND_FLOAT)
        snprintf(text, APP_VALUE, "%.15g", *(const double *)field);
    else if (row->kind == APP_KIND_BOOL)
        snprintf(text, APP_VALUE, "%s", *(const bool *)field ? "on" : "off");
    else
        return row->kind == APP_KIND_TEXT ? *(char *const *)field : (const char *)field;
    return text;
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

/* Reads the flags of the model and of its adapters over the defaults of all. */
static wf_status read_saved(const wf_par_checkpoint *c, app_options *o, wf_error *error)
{
    wf_status status = app_options_defaults(o, error);

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
            app_option_clear(o, row);
        if (saved)
            status = app_option_set_json(o, row, where, value, error);
        json_decref(value);
    }
    if (status == WF_EINVAL) /* it is no flag of this command */
        status = error->code = WF_EDATA;
    return status == WF_OK ? check_saved(c, o, error) : status;
}

wf_status app_options_saved_model(const wf_par_checkpoint *c, wf_nn_gpt_config *config,
                                  wf_par_lora *lora, wf_error *error)
{
    app_options o = {0};
    wf_status status = read_saved(c, &o, error);

    if (status == WF_OK)
        *config = app_options_model(&o);
    if (status == WF_OK && lora)
        *lora = app_options_lora(&o);
    app_options_free(&o);
    return status;
}

wf_status app_options_saved(const wf_par_checkpoint *c, app_options *saved, wf_error *error)
{
    *saved = (app_options){0};
    if (read_saved(c, saved, error) != WF_OK || app_options_check_model(saved, error) != WF_OK)
        app_options_free(saved);
    return error->code;
}

/* Copies a row's field of the options, not what it points to, into a copy of others. */
static app_options with(const app_options *others, const app_option_row *row,
                        const app_options *o)
{
    static const size_t sizes[APP_KIND_COUNT] = {
        [APP_KIND_INT] = sizeof(int64_t),      [APP_KIND_REAL] = sizeof(double),
        [APP_KIND_FLOAT] = sizeof(double),     [APP_KIND_BOOL] = sizeof(bool),
        [APP_KIND_CHOICE] = APP_CHOICE_LENGTH, [APP_KIND_TEXT] = sizeof(char *)};
    app_options copy = *others;

    memcpy((char *)&copy + row->offset, (const char *)o + row->offset, sizes[row->kind]);
    return copy;
}

/* Returns true where two models are the same, and are trained by the same loss. */
static bool train_alike(const wf_nn_gpt_config *a, const wf_nn_gpt_config *b)
{
    return wf_nn_gpt_same(a, b) && a->dropout == b->dropout && a->bias_step == b->bias_step &&
           a->sequence_weight == b->sequence_weight && a->global_weight == b->global_weight &&
           a->z_weight == b->z_weight;
}

bool app_option_same(const app_options *saved, const app_option_row *row, const app_options *o)
{
    const bool adapts = row > &app_option_rows[APP_OPTION_GROUP_adapters];
    app_options copy = with(saved, row, o);
    const double *theirs = (const double *)((const char *)saved + row->offset);
    const double *mine = (const double *)((const char *)o + row->offset);
    wf_error wrong = {WF_OK, ""};
    wf_nn_gpt_config a, b;
    wf_par_lora one, other;

    if (row->kind == APP_KIND_FLOAT && (float)*theirs == (float)*mine)
        return true;
    if (row == &app_option_rows[APP_OPTION_label_smoothing] ||
        row == &app_option_rows[APP_OPTION_z_loss] || (adapts && row->kind != APP_KIND_TEXT) ||
        row > &app_option_rows[APP_OPTION_GROUP_mesh] ||
        (!adapts && app_options_check_model(&copy, &wrong) != WF_OK))
        return false;
    a = app_options_model(saved);
    b = app_options_model(&copy);
    if (!adapts)
        return train_alike(&a, &b);
    one = app_options_lora(saved);
    other = app_options_lora(&copy);
    return wf_par_lora_same(&a, &one, &other);
}
