/* apps/model/model_source.c - a model by the path that a user gives; see the header. */
#include "apps/model/model_source.h"
#include "apps/options/options.h"
#include <stdio.h>
#include <stdlib.h>
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
    m->is_gguf = wf_par_gguf_there(path);
    if (!m->is_gguf)
        m->checkpoint = find_checkpoint(path, error);
    if (error->code != WF_OK)
        return error->code;
    status = m->checkpoint ? app_options_saved_model(m->checkpoint, &m->config, error)
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
