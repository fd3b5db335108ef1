/* apps/options/options_lora.c - the adapters that the flags describe, and those that the folder
   of --lora-init decides. */
#include "apps/options/options_table.h"
#include <string.h>

wf_par_lora app_options_lora(const app_options *o)
{
    wf_par_lora lora = {.rank = o->lora_rank,
                        .alpha = o->lora_alpha,
                        .dropout = o->lora_dropout,
                        .rank_stabilized = o->rslora};

    snprintf(lora.targets, sizeof lora.targets, "%s", o->lora_targets ? o->lora_targets : "");
    snprintf(lora.modules_to_save, sizeof lora.modules_to_save, "%s",
             o->modules_to_save ? o->modules_to_save : "");
    return lora;
}

/* Takes the folder's value, where the user gives no other. */
static wf_status take(app_options *o, app_option_id id, const char *text, wf_error *error)
{
    const app_option_row *row = &app_option_rows[id];

    if (o->given[id])
        return WF_OK;
    app_option_clear(o, row);
    o->given[id] = true; /* a checkpoint may only say the same */
    return app_option_set(o, row, app_option_flag(row).text, text, error);
}

/* Returns true where two lists of names are the same, or mean the same. */
static bool name_alike(const app_options *o, const wf_par_lora *a, const wf_par_lora *b)
{
    const wf_nn_gpt_config model = app_options_model(o);

    return (strcmp(a->targets, b->targets) == 0 &&
            strcmp(a->modules_to_save, b->modules_to_save) == 0) ||
           wf_par_lora_same(&model, a, b);
}

/* Checks options that decide shapes: they may be given where they mean what the folder of
   --lora-init has. Scale and dropout may be others from here on. */
static wf_status check_folder(const app_options *o, wf_error *error)
{
    const wf_par_lora mine = app_options_lora(o);
    wf_par_lora folder, other;
    app_option_id differs = APP_OPTION_COUNT;

    if (!o->lora_init || wf_par_lora_config(o->lora_init, &folder, error) != WF_OK)
        return error->code;
    if (!*folder.modules_to_save)
        snprintf(folder.modules_to_save, sizeof folder.modules_to_save, "none");
    other = folder;
    memcpy(other.modules_to_save, mine.modules_to_save, sizeof mine.modules_to_save);
    if (o->lora_rank != folder.rank)
        differs = APP_OPTION_lora_rank;
    else if (!name_alike(o, &folder, &other))
        differs = APP_OPTION_modules_to_save;
    else if (!name_alike(o, &mine, &other))
        differs = APP_OPTION_lora_targets;
    return differs == APP_OPTION_COUNT
               ? WF_OK
               : wf_error_set(error, WF_EINVAL, "--lora-init %s decides %s; drop that flag",
                              o->lora_init, app_option_flag(&app_option_rows[differs]).text);
}

/* PEFT trains a copy of a tied embedding or head, and leaves the other one as it is. */
static wf_status untie(app_options *o, const wf_par_lora *folder, wf_error *error)
{
    if (!folder->untied || strcmp(o->tie_embeddings, "on") != 0)
        return WF_OK;
    if (o->given[APP_OPTION_tie_embeddings])
        return wf_error_set(
            error, WF_EINVAL,
            "--tie-embeddings on contradicts --lora-init %s, whose "
            "\"modules_to_save\" train the embedding or the head without the other; drop it",
            o->lora_init);
    snprintf(o->tie_embeddings, sizeof o->tie_embeddings, "off");
    return WF_OK;
}

wf_status app_options_lora_init(app_options *o, wf_error *error)
{
    wf_par_lora lora;
    char text[64];

    if (!o->lora_init)
        return WF_OK;
    if (wf_par_lora_config(o->lora_init, &lora, error) != WF_OK ||
        untie(o, &lora, error) != WF_OK)
        return error->code;
    snprintf(text, sizeof text, "%lld", (long long)lora.rank);
    take(o, APP_OPTION_lora_rank, text, error);
    snprintf(text, sizeof text, "%.15g", lora.alpha);
    take(o, APP_OPTION_lora_alpha, text, error);
    snprintf(text, sizeof text, "%.15g", lora.dropout);
    take(o, APP_OPTION_lora_dropout, text, error);
    take(o, APP_OPTION_lora_targets, lora.targets, error);
    take(o, APP_OPTION_rslora, lora.rank_stabilized ? "on" : "off", error);
    return take(o, APP_OPTION_modules_to_save,
                *lora.modules_to_save ? lora.modules_to_save : "none", error);
}

/* Checks flags of adapters. Without a rank there are none; a config file may set them all the
   same. */
static wf_status check_flags(const app_options *o, wf_error *error)
{
    const struct {
        app_option_id id;
        bool said;
    } flags[] = {{APP_OPTION_lora_alpha, o->lora_alpha != 8},
                 {APP_OPTION_lora_dropout, o->lora_dropout > 0},
                 {APP_OPTION_lora_targets, strcmp(o->lora_targets, "q,v") != 0},
                 {APP_OPTION_rslora, o->rslora},
                 {APP_OPTION_base_dtype, strcmp(o->base_dtype, "same") != 0},
                 {APP_OPTION_modules_to_save, strcmp(o->modules_to_save, "none") != 0}};

    for (size_t i = 0; i < sizeof flags / sizeof *flags && !o->lora_rank; i++)
        if (o->given[flags[i].id] && flags[i].said)
            return wf_error_set(error, WF_EINVAL,
                                "%s is of adapters; use it with --lora-rank N",
                                app_option_flag(&app_option_rows[flags[i].id]).text);
    return WF_OK;
}

/* Checks that biases of experts that are asked for are trained: PEFT's files do not have them.
   A checkpoint may have frozen ones. */
static wf_status check_balance(const app_options *o, wf_error *error)
{
    if (!o->given[APP_OPTION_moe_balance] || !o->lora_rank || !app_options_model(o).experts ||
        strcmp(o->moe_balance, "bias") != 0 || strcmp(o->modules_to_save, "none") != 0)
        return WF_OK;
    return wf_error_set(
        error, WF_EINVAL,
        "--moe-balance bias beside adapters would change nothing: --lora-rank "
        "%lld freezes the biases of experts; use --moe-balance sequence, global "
        "or none",
        (long long)o->lora_rank);
}

wf_status app_options_check_adapters(app_options *o, wf_error *error)
{
    if (check_folder(o, error) != WF_OK || check_flags(o, error) != WF_OK)
        return error->code;
    return check_balance(o, error);
}
