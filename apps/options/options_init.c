/*
 * apps/options/options_init.c - flags that a model decides: the folder of --init-from, which has to be agreed with, and
 * the name of --model, which gives way to what is given.
 */
#include "apps/options/options_table.h"
#include "parallel/models/gpt/pretrained.h"
#include <string.h>

const char app_model_names[] = "none"
#define MODEL(name, ...) " " #name
#include "apps/options/models.def"
#undef MODEL
    ;

/* The sizes of a name; false: it is none. */
static bool find_model(const char *name, wf_nn_gpt_config *config)
{
    static const struct {
        const char *name;
        wf_nn_gpt_config config;
        const char *scaling;
    } models[] = {
#define MODEL(called, family, blocks, query, kv, features, wide, mlp, words, longest, epsilon, \
              base, scaling, tie, bias, qk)                                                    \
    {#called,                                                                                  \
     {.arch = WF_NN_##family,                                                                  \
      .vocabulary = words,                                                                     \
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
      .qkv_bias = bias,                                                                        \
      .qk_norm = qk},                                                                          \
     scaling},
#include "apps/options/models.def"
#undef MODEL
    };

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0) {
            *config = models[i].config;
            return wf_rope_scaling_parse(models[i].scaling, &config->rope_scaling);
        }
    return false;
}

/* A model that is only named gives way to a flag. */
static bool is_given(const app_options *o, app_option_id id)
{
    return !o->init_from && o->given[id];
}

/* A flag that was given has to agree; 0 stood for a default. */
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

static wf_status take_arch(app_options *o, const char *arch, wf_error *error)
{
    if (is_given(o, APP_OPTION_arch))
        return WF_OK;
    if (o->given[APP_OPTION_arch] && strcmp(o->arch, arch) != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--arch %s contradicts --init-from %s, whose model is %s; drop "
                            "--arch",
                            o->arch, o->init_from, arch);
    strcpy(o->arch, arch);
    return WF_OK;
}

static wf_status take_tie(app_options *o, bool tied, wf_error *error)
{
    const char *tie = tied ? "on" : "off";

    if (is_given(o, APP_OPTION_tie_embeddings))
        return WF_OK;
    if (strcmp(o->tie_embeddings, "auto") != 0 && strcmp(o->tie_embeddings, tie) != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--tie-embeddings %s contradicts --init-from %s, whose model has %s; "
            "drop --tie-embeddings",
            o->tie_embeddings, o->init_from, tie);
    strcpy(o->tie_embeddings, tie);
    return WF_OK;
}

static wf_status take_bias(app_options *o, const wf_nn_gpt_config *c, wf_error *error)
{
    const char *bias = c->qkv_bias || c->arch == WF_NN_GPT2 ? "on" : "off";

    if (is_given(o, APP_OPTION_qkv_bias))
        return WF_OK;
    if (strcmp(o->qkv_bias, "auto") != 0 && strcmp(o->qkv_bias, bias) != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--qkv-bias %s contradicts --init-from %s, whose model has %s; drop "
            "--qkv-bias",
            o->qkv_bias, o->init_from, bias);
    strcpy(o->qkv_bias, bias);
    return WF_OK;
}

static wf_status take_norm(app_options *o, bool normed, wf_error *error)
{
    const char *norm = normed ? "on" : "off";

    if (is_given(o, APP_OPTION_qk_norm))
        return WF_OK;
    if (strcmp(o->qk_norm, "auto") != 0 && strcmp(o->qk_norm, norm) != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--qk-norm %s contradicts --init-from %s, whose model has %s; drop --qk-norm",
            o->qk_norm, o->init_from, norm);
    strcpy(o->qk_norm, norm);
    return WF_OK;
}

static wf_status take_scaling(app_options *o, const wf_rope_scaling *scaling, wf_error *error)
{
    char text[WF_ROPE_SCALING_TEXT];

    if (is_given(o, APP_OPTION_rope_scaling))
        return WF_OK;
    wf_rope_scaling_print(scaling, text);
    if (o->given[APP_OPTION_rope_scaling] && strcmp(o->rope_scaling, text) != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--rope-scaling %s contradicts --init-from %s, whose model has %s; "
                            "drop --rope-scaling",
                            o->rope_scaling, o->init_from, text);
    return app_option_set(o, &app_option_rows[APP_OPTION_rope_scaling], "--rope-scaling", text,
                          error);
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
        {APP_OPTION_vocab_size, &o->vocab_size, &c.vocabulary},
        {APP_OPTION_positions, &o->positions, &c.positions},
    };
    wf_status status;

    if (!o->init_from && !find_model(o->model, &c))
        return WF_OK;
    if (o->init_from && strcmp(o->model, "none") != 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--model %s and --init-from %s both say what model it is; drop --model", o->model,
            o->init_from);
    status = o->init_from ? wf_par_pretrained_config(o->init_from, &c, error) : WF_OK;
    if (status == WF_OK)
        status = take_arch(o, c.arch == WF_NN_LLAMA ? "llama" : "gpt2", error);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == WF_OK; i++)
        status = take_int(o, sizes[i].id, sizes[i].field, *sizes[i].value, error);
    if (status == WF_OK)
        status = take_real(o, APP_OPTION_norm_eps, &o->norm_eps, (double)c.eps, error);
    if (status == WF_OK && c.arch == WF_NN_LLAMA)
        status = take_real(o, APP_OPTION_rope_base, &o->rope_base, c.rope_base, error);
    if (status == WF_OK && c.arch == WF_NN_LLAMA)
        status = take_tie(o, c.tied, error);
    if (status == WF_OK)
        status = take_bias(o, &c, error);
    if (status == WF_OK)
        status = take_norm(o, c.qk_norm, error);
    if (status == WF_OK)
        status = take_scaling(o, &c.rope_scaling, error);
    if (status == WF_OK && c.vocabulary < 256)
        status = wf_error_set(error, WF_EINVAL,
                              "--init-from %s: its vocabulary has %lld entries, and tokens are "
                              "bytes, 256 of them; take a model with more",
                              o->init_from, (long long)c.vocabulary);
    if (status == WF_OK && !o->given[APP_OPTION_seq_len] && o->seq_len > o->positions)
        o->seq_len = o->positions;
    return status;
}
