/*
 * apps/options/options_init.c - flags that a model decides: the folder of --init-from, which
 * has to be agreed with, and the name of --model, which gives way to what is given.
 */
#include "apps/options/options_table.h"
#include "parallel/models/gpt/pretrained.h"
#include <stdlib.h>
#include <string.h>

const char app_model_names[] = "none"
#define MODEL(name, ...) " " #name
#include "apps/options/models.def"
#undef MODEL
    ;

static bool *property_of(wf_nn_gpt_config *config, int i)
{
    return (bool *)((char *)config + app_properties[i].offset);
}

/* Returns the family that fits a model best, but for what flags may change; NULL: no family has
   the other properties. */
static const char *family_of(const wf_nn_gpt_config *config)
{
    static const char *const names[] = {
#define FAMILY(name, ...) #name,
#include "nn/models/gpt/families.def"
#undef FAMILY
    };
    const char *found = NULL;
    int fewest = app_property_count + 3;

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        wf_nn_gpt_config family = *wf_nn_gpt_family(names[n]);
        int differ = 0;

        for (int i = 0; i < app_property_count; i++) {
            const bool has = *property_of((wf_nn_gpt_config *)config, i);

            differ += *property_of(&family, i) != has;
            *property_of(&family, i) = has;
        }
        differ += family.router != config->router;
        differ += family.router_normalised != config->router_normalised;
        family.router = config->router;
        family.router_normalised = config->router_normalised;
        if (differ < fewest && wf_nn_gpt_alike(&family, config)) {
            fewest = differ;
            found = names[n];
        }
    }
    return found;
}

/* The sizes of a name and its family; false: it is none. */
static bool find_model(const char *name, const char **family, wf_nn_gpt_config *config)
{
    static const struct {
        const char *name, *family;
        wf_nn_gpt_config sizes;
        const char *scaling;
    } models[] = {
#define MODEL(called, kind, blocks, query, kv, features, wide, mlp, words, longest, epsilon,   \
              base, how, tie, ...)                                                             \
    {#called,                                                                                  \
     #kind,                                                                                    \
     {.vocabulary = words,                                                                     \
      .positions = longest,                                                                    \
      .layers = blocks,                                                                        \
      .heads = query,                                                                          \
      .kv_heads = kv,                                                                          \
      .width = wide,                                                                           \
      .ffn = mlp,                                                                              \
      .eps = epsilon,                                                                          \
      .rope_base = base,                                                                       \
      .tied = tie,                                                                             \
      .head_dim = features,                                                                    \
      .rotary = __VA_ARGS__},                                                                  \
     how},
#include "apps/options/models.def"
#undef MODEL
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0) {
            const wf_nn_gpt_config *has = wf_nn_gpt_family(models[i].family);

            *family = models[i].family;
            *config = models[i].sizes;
            for (int k = 0; k < app_property_count; k++)
                *property_of(config, k) |= *property_of((wf_nn_gpt_config *)has, k);
            return wf_rope_scaling_parse(models[i].scaling, &config->rope_scaling,
                                         &config->rope_factors);
        }
    return false;
}

/* A model that is only named gives way to a flag. */
static bool is_given(const app_options *o, app_option_id id)
{
    return !o->init_from && o->given[id];
}

/* Takes a value; a flag that was given has to agree, where 0 was a default. */
static wf_status take_int(app_options *o, app_option_id id, int64_t *field, int64_t value,
                          wf_error *error)
{
    if (is_given(o, id))
        return WF_OK;
    if (o->given[id] && *field && *field != value)
        return wf_error_set(error, WF_EINVAL,
                            "%s %lld contradicts --init-from %s, whose model has %lld; drop %s",
                            app_option_flag(&app_option_rows[id]).text, (long long)*field,
                            o->init_from, (long long)value,
                            app_option_flag(&app_option_rows[id]).text);
    *field = value;
    return WF_OK;
}

static wf_status take_real(app_options *o, app_option_id id, double *field, double value,
                           wf_error *error)
{
    if (is_given(o, id))
        return WF_OK;
    if (o->given[id] && (float)*field != (float)value)
        return wf_error_set(error, WF_EINVAL,
                            "%s %g contradicts --init-from %s, whose model has %g; drop %s",
                            app_option_flag(&app_option_rows[id]).text, *field, o->init_from,
                            value, app_option_flag(&app_option_rows[id]).text);
    *field = value;
    return WF_OK;
}

/* Takes what a folder's model has not, where any number below 0 says so. */
static wf_status take_none(app_options *o, app_option_id id, double *field, wf_error *error)
{
    if (*field < 0)
        *field = -1;
    return take_real(o, id, field, -1, error);
}

static wf_status take_word(app_options *o, app_option_id id, const char *word, wf_error *error)
{
    const app_option_row *row = &app_option_rows[id];
    char *field = (char *)o + row->offset;

    if (is_given(o, id))
        return WF_OK;
    if (o->given[id] && strcmp(field, "auto") != 0 && strcmp(field, word) != 0)
        return wf_error_set(
            error, WF_EINVAL, "%s %s contradicts --init-from %s, whose model has %s; drop %s",
            app_option_flag(row).text, field, o->init_from, word, app_option_flag(row).text);
    snprintf(field, APP_CHOICE_LENGTH, "%s", word);
    return WF_OK;
}

/* Returns true where a tied folder's head is to begin as the embedding and be trained by
   itself: that may be asked for. */
static bool unties(const app_options *o, const app_property *property,
                   const wf_nn_gpt_config *c)
{
    return o->init_from && property->id == APP_OPTION_tie_embeddings && c->tied &&
           o->given[property->id] && strcmp(o->tie_embeddings, "off") == 0;
}

/* The family, and what the model has beside it or lacks. */
static wf_status take_properties(app_options *o, const char *family, wf_nn_gpt_config *c,
                                 wf_error *error)
{
    wf_status status = take_word(o, APP_OPTION_arch, family, error);

    for (int i = 0; i < app_property_count && status == WF_OK; i++)
        if (!unties(o, &app_properties[i], c))
            status =
                take_word(o, app_properties[i].id, *property_of(c, i) ? "on" : "off", error);
    if (c->experts && status == WF_OK)
        status = take_word(o, APP_OPTION_moe_router, app_routers[c->router], error);
    if (c->experts && status == WF_OK)
        status =
            take_word(o, APP_OPTION_moe_normalise, c->router_normalised ? "on" : "off", error);
    return status;
}

static wf_status take_text(app_options *o, app_option_id id, const char *text, wf_error *error)
{
    const app_option_row *row = &app_option_rows[id];
    const char *given = *(char *const *)((const char *)o + row->offset);

    if (is_given(o, id))
        return WF_OK;
    if (o->given[id] && strcmp(given, text) != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "%s %.200s contradicts --init-from %s, whose model has %.200s; drop %s",
            app_option_flag(row).text, given, o->init_from, text, app_option_flag(row).text);
    return app_option_set(o, row, app_option_flag(row).text, text, error);
}

static wf_status take_blocks(app_options *o, app_option_id id, const wf_nn_blocks *list,
                             const char *empty, wf_error *error)
{
    char *text = app_blocks_print(list, empty);
    wf_status status = text ? take_text(o, id, text, error)
                            : wf_error_set(error, WF_ENOMEM, "no memory for flags");

    free(text);
    return status;
}

/* Takes the scaling of RoPE, and lists of blocks. */
static wf_status take_texts(app_options *o, const wf_nn_gpt_config *c, wf_error *error)
{
    char scaling[WF_ROPE_SCALING_TEXT];
    wf_status status;

    wf_rope_scaling_print(&c->rope_scaling, &c->rope_factors, scaling);
    status = take_text(o, APP_OPTION_rope_scaling, scaling, error);
    if (status == WF_OK)
        status = take_blocks(o, APP_OPTION_window_blocks, &c->window_blocks, "all", error);
    if (status == WF_OK)
        status = take_blocks(o, APP_OPTION_moe_dense, &c->dense_blocks, "none", error);
    return status;
}

/* Checks that a model can be read from there, and that no other option names a model. */
static wf_status check_init_from(const app_options *o, wf_error *error)
{
    if (o->init_from && strcmp(o->model, "none") != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--model %s and --init-from %s both say what model it is; drop --model", o->model,
            o->init_from);
    if (o->init_from && wf_par_gguf_there(o->init_from))
        return wf_error_set(
            error, WF_EINVAL,
            "--init-from %s is a GGUF file: make it a folder with its tokenizer "
            "first, gpt_export %s FOLDER",
            o->init_from, o->init_from);
    return WF_OK;
}

/* Numbers that are no sizes. */
static wf_status take_reals(app_options *o, const wf_nn_gpt_config *c, wf_error *error)
{
    wf_status status = take_real(o, APP_OPTION_norm_eps, &o->norm_eps, (double)c->eps, error);

    if (status == WF_OK && c->rope_base > 0)
        status = take_real(o, APP_OPTION_rope_base, &o->rope_base, c->rope_base, error);
    if (status == WF_OK)
        status = take_real(o, APP_OPTION_rotary_percent, &o->rotary_percent,
                           c->rotary > 0 ? c->rotary : 1, error);
    if (status == WF_OK)
        status = take_real(o, APP_OPTION_window_rope_base, &o->window_rope_base,
                           c->window_rope_base, error);
    for (int i = 0; i < app_scale_count && status == WF_OK; i++) {
        double value = *(const double *)((const char *)c + app_scales[i].offset);
        size_t at = app_option_rows[app_scales[i].id].offset;

        if (value > 0)
            status = take_real(o, app_scales[i].id, (double *)((char *)o + at), value, error);
    }
    return status;
}

/* Checks that a number which a folder's model does not have is not read as the family's. */
static wf_status check_scales(const app_options *o, const char *family,
                              const wf_nn_gpt_config *folder, wf_error *error)
{
    const wf_nn_gpt_config model = app_options_model(o);
    const wf_nn_gpt_config ours = wf_nn_gpt_complete(&model);
    const wf_nn_gpt_config theirs = wf_nn_gpt_complete(folder);

    for (int i = 0; i < app_scale_count; i++) {
        double has = *(const double *)((const char *)&theirs + app_scales[i].offset);
        double is = *(const double *)((const char *)&ours + app_scales[i].offset);

        if (o->init_from && (float)has != (float)is)
            return wf_error_set(error, WF_EUNSUPPORTED,
                                "--init-from %s: its model has %g for %s, where models of "
                                "--arch %s have %g, and no flag says so: it can't be trained",
                                o->init_from, has,
                                app_option_flag(&app_option_rows[app_scales[i].id]).text,
                                family, is);
    }
    return WF_OK;
}

wf_status app_options_init_from(app_options *o, wf_error *error)
{
    wf_nn_gpt_config c;
    struct {
        app_option_id id;
        int64_t *field;
        const int64_t *value;
    } const sizes[] = {
        {APP_OPTION_n_layer, &o->n_layer, &c.layers},
        {APP_OPTION_n_head, &o->n_head, &c.heads},
        {APP_OPTION_n_kv_head, &o->n_kv_head, &c.kv_heads},
        {APP_OPTION_n_embd, &o->n_embd, &c.width},
        {APP_OPTION_head_dim, &o->head_dim, &c.head_dim},
        {APP_OPTION_ffn, &o->ffn, &c.ffn},
        {APP_OPTION_n_expert, &o->n_expert, &c.experts},
        {APP_OPTION_moe_top_k, &o->moe_top_k, &c.top_k},
        {APP_OPTION_moe_ffn, &o->moe_ffn, &c.expert_ffn},
        {APP_OPTION_moe_shared, &o->moe_shared, &c.shared_ffn},
        {APP_OPTION_vocab_size, &o->vocab_size, &c.vocabulary},
        {APP_OPTION_positions, &o->positions, &c.positions},
        {APP_OPTION_rope_skip, &o->rope_skip, &c.rope_skip},
        {APP_OPTION_sliding_window, &o->sliding_window, &c.window},
        {APP_OPTION_window_first, &o->window_first, &c.window_first},
        {APP_OPTION_window_skip, &o->window_skip, &c.window_skip},
    };
    const char *family = NULL;
    wf_status status;

    if (!o->init_from && !find_model(o->model, &family, &c))
        return WF_OK;
    if (check_init_from(o, error) != WF_OK)
        return error->code;
    status = o->init_from ? wf_par_pretrained_config(o->init_from, &c, error) : WF_OK;
    if (status == WF_OK && o->init_from)
        family = family_of(&c);
    if (status == WF_OK && !family)
        status = wf_error_set(error, WF_EINVAL,
                              "--init-from %s: no word of --arch has what its model has",
                              o->init_from);
    if (status == WF_OK)
        status = take_properties(o, family, &c, error);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == WF_OK; i++)
        status = take_int(o, sizes[i].id, sizes[i].field, *sizes[i].value, error);
    if (status == WF_OK && !c.rope_skip && wf_nn_gpt_family(family)->rope_skip)
        o->rope_skip = c.layers + 1; /* RoPE in every block: 0 is as the family has it */
    if (status == WF_OK && o->init_from && !(c.temperature > 0) &&
        wf_nn_gpt_family(family)->temperature > 0) /* likewise: none */
        status = take_none(o, APP_OPTION_query_temperature, &o->query_temperature, error);
    if (status == WF_OK)
        status = take_reals(o, &c, error);
    if (status == WF_OK)
        status = take_texts(o, &c, error);
    if (status == WF_OK)
        status = check_scales(o, family, &c, error);
    if (status == WF_OK && !o->given[APP_OPTION_seq_len] && o->seq_len > o->positions)
        o->seq_len = o->positions;
    return status;
}
