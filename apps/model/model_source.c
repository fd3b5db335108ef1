/* apps/model/model_source.c - a model by the path that a user gives; see the header. */
#include "apps/model/model_source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The checkpoint that a path is, or the newest in it; NULL without an error: there is none. */
static wf_par_checkpoint *find_checkpoint(const char *path, wf_error *error)
{
    char **paths;
    wf_par_checkpoint *found = NULL;
    int64_t count;

    if (wf_par_checkpoint_there(path))
        return wf_par_checkpoint_open(path, error);
    wf_par_checkpoint_list(path, &paths, &count, error);
    if (count && error->code == WF_OK)
        found = wf_par_checkpoint_open(paths[0], error);
    for (int64_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return found;
}

/* A whole number that gpt_train has kept with a checkpoint. What comes from a file is no reason to
   build for ever: the model's parameters are compared with the checkpoint's before they are made. */
static int64_t kept(const wf_par_checkpoint *c, const char *key, int64_t most, wf_error *error)
{
    const char *text = wf_par_checkpoint_option(c, key);
    char *end = NULL;
    long long n = text ? strtoll(text, &end, 10) : -1;

    if (text && end != text && !*end && n > most)
        wf_error_set(error, WF_EDATA, "%s says that %s is %lld, and it has %lld at most",
                     wf_par_checkpoint_path(c), key, n, (long long)most);
    if (text && end != text && !*end && n >= 1)
        return n <= most ? n : 1;
    wf_error_set(error, WF_EINVAL,
                 "%s says nothing of %s: gpt_train has not made it, so its model is not known",
                 wf_par_checkpoint_path(c), key);
    return 1;
}

static wf_status config_of(const wf_par_checkpoint *c, wf_nn_gpt_config *config,
                           wf_error *error)
{
    const char *arch = wf_par_checkpoint_option(c, "arch");
    const char *eps = wf_par_checkpoint_option(c, "norm_eps");
    const char *base = wf_par_checkpoint_option(c, "rope_base");
    const char *tie = wf_par_checkpoint_option(c, "tie_embeddings");
    const char *bias = wf_par_checkpoint_option(c, "qkv_bias");
    const char *norm = wf_par_checkpoint_option(c, "qk_norm");
    const char *scaling = wf_par_checkpoint_option(c, "rope_scaling");
    char plain[WF_ROPE_SCALING_TEXT] = "none"; /* without its quotes */
    const int64_t most = 1 << 24, tensors = wf_par_checkpoint_parameters(c);

    *config = (wf_nn_gpt_config){.arch = arch && strcmp(arch, "\"llama\"") == 0 ? WF_NN_LLAMA
                                                                                : WF_NN_GPT2,
                                 .vocabulary = kept(c, "vocab_size", most, error),
                                 .positions = kept(c, "positions", most, error),
                                 .layers = kept(c, "n_layer", tensors, error),
                                 .heads = kept(c, "n_head", most, error),
                                 .kv_heads = kept(c, "n_kv_head", most, error),
                                 .width = kept(c, "n_embd", most, error),
                                 .ffn = kept(c, "ffn", most, error),
                                 .eps = eps ? (float)strtod(eps, NULL) : 0,
                                 .rope_base = base ? strtod(base, NULL) : 0,
                                 .qkv_bias = bias && strcmp(bias, "\"on\"") == 0,
                                 .qk_norm = norm && strcmp(norm, "\"on\"") == 0,
                                 .tied = tie && strcmp(tie, "\"on\"") == 0};
    if (wf_par_checkpoint_option(c, "head_dim") &&
        strcmp(wf_par_checkpoint_option(c, "head_dim"), "0") != 0)
        config->head_dim = kept(c, "head_dim", most, error);
    if (scaling)
        sscanf(scaling, "\"%127[^\"]", plain);
    if (error->code == WF_OK && !wf_rope_scaling_parse(plain, &config->rope_scaling))
        wf_error_set(error, WF_EDATA, "%s says that rope_scaling is %s, which is none",
                     wf_par_checkpoint_path(c), plain);
    return error->code;
}

/* The folder with what belongs to a model beside its weights: the one that is read, or what a run that began with one
   has kept beside its checkpoints. */
static void find_like(app_model_source *m)
{
    char config[4200];
    struct stat s;

    if (m->checkpoint)
        snprintf(m->like, sizeof m->like, "%.3900s/../" WF_PAR_PRETRAINED_KEPT,
                 wf_par_checkpoint_path(m->checkpoint));
    else
        snprintf(m->like, sizeof m->like, "%.4000s", m->path);
    snprintf(config, sizeof config, "%s/config.json", m->like);
    if (stat(config, &s) != 0)
        m->like[0] = 0;
}

wf_status app_model_source_open(const char *path, app_model_source *m, wf_error *error)
{
    wf_status status;

    *m = (app_model_source){.path = path};
    m->checkpoint = find_checkpoint(path, error);
    if (error->code != WF_OK)
        return error->code;
    status = m->checkpoint ? config_of(m->checkpoint, &m->config, error)
                           : wf_par_pretrained_config(path, &m->config, error);
    find_like(m);
    return status;
}

void app_model_source_close(app_model_source *m)
{
    wf_par_checkpoint_close(m->checkpoint);
    m->checkpoint = NULL;
}

static wf_status load(const app_model_source *m, wf_par *par, wf_nn_gpt *model)
{
    wf_error error = {WF_OK, ""};

    if (!m->checkpoint)
        return wf_par_pretrained_load(par, model, m->path);
    if (wf_par_checkpoint_load_model(par, &model->base, m->checkpoint, &error) != WF_OK)
        wf_fail(wf_par_context(par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(par));
}

/* Before anything of a size that a file speaks of is made. */
static wf_status fits(const app_model_source *m, wf_par *par, wf_nn_gpt *model)
{
    wf_error error = {WF_OK, ""};

    if (m->checkpoint && wf_par_checkpoint_fits(&model->base, m->checkpoint, &error) != WF_OK)
        wf_fail(wf_par_context(par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(par));
}

wf_nn_gpt *app_model_source_load(const app_model_source *m, wf_par *par, bool plan)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), &m->config);

    if (model && fits(m, par, model) == WF_OK &&
        wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK &&
        (plan || load(m, par, model) == WF_OK))
        return model;
    if (model)
        wf_nn_free(&model->base);
    return NULL;
}
