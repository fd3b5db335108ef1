/* parallel/generate/model.c - a model by the path that a user gives; see the header. */
#include "parallel/generate/model.h"
#include "core/files/input.h"
#include "parallel/models/gpt/gpt.h"
#include "parallel/shard/materialize.h"
#include <dirent.h>
#include <errno.h>
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

bool wf_gen_model_named_gguf(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* The first file of GGUF in a folder; empty: there is none. */
static void find_gguf(const char *folder, char *name, size_t room)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    *name = 0;
    while (dir && !*name && (entry = readdir(dir)))
        if (wf_gen_model_named_gguf(entry->d_name))
            snprintf(name, room, "%s", entry->d_name);
    if (dir)
        closedir(dir);
}

static const char a_model[] =
    "a model is a folder of Hugging Face, a checkpoint of gpt_train or a "
    "directory of these";

/* Refuses a path that cannot be a model. */
static wf_status check_path(const char *path, wf_error *error)
{
    const char *pointer = wf_input_pointer_at(path);
    char why[1400];
    struct stat s;

    if (stat(path, &s) != 0)
        return wf_error_set(error, WF_EIO, "%.3000s: %s: %s", path,
                            wf_input_why_not(path, why, sizeof why), a_model);
    if (pointer)
        return wf_error_set(error, WF_EDATA, "%.3000s %s", path, pointer);
    if (!S_ISDIR(s.st_mode))
        return wf_error_set(error, WF_EIO, "%.3000s is a file: %s", path, a_model);
    return WF_OK;
}

/* A folder without a checkpoint may have a file that is to become a model. */
static wf_status check_folder(const char *path, wf_error *error)
{
    char config[4200], gguf[256], inside[4400];
    const char *pointer;
    struct stat s;

    snprintf(config, sizeof config, "%.4000s/config.json", path);
    find_gguf(path, gguf, sizeof gguf);
    snprintf(inside, sizeof inside, "%.4000s/%s", path, gguf);
    pointer = *gguf && stat(config, &s) != 0 ? wf_input_pointer_at(inside) : NULL;
    if (pointer)
        return wf_error_set(error, WF_EDATA, "%.3000s %s", inside, pointer);
    if (*gguf && stat(config, &s) != 0)
        return wf_error_set(error, WF_EIO,
                            "%.3000s is no model, but has one as GGUF, %s: make it a folder by "
                            "gpt_export %.3000s/%s FOLDER",
                            path, gguf, path, gguf);
    if (stat(config, &s) != 0 && errno == ENOENT)
        return wf_error_set(error, WF_EIO, "%.4000s: No such file: %s", config, a_model);
    return WF_OK;
}

/* The folder with what belongs to a model beside its weights: the one that is read, or what a
   run that began with one has kept beside its checkpoints. */
static void find_like(wf_gen_model *m)
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

static bool is_option(const wf_par_checkpoint *c, const char *key, const char *json)
{
    const char *saved = wf_par_checkpoint_option(c, key);

    return saved && strcmp(saved, json) == 0;
}

wf_status wf_gen_model_open(const char *path, wf_gen_read_config *read, wf_gen_model *m,
                            wf_error *error)
{
    wf_status status;

    *m = (wf_gen_model){.path = path};
    m->is_gguf = wf_par_gguf_there(path);
    if (!m->is_gguf && check_path(path, error) == WF_OK)
        m->checkpoint = find_checkpoint(path, error);
    if (error->code == WF_OK && !m->is_gguf && !m->checkpoint)
        check_folder(path, error);
    if (error->code != WF_OK)
        return error->code;
    if (m->checkpoint && !read)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s is a checkpoint, and nothing here reads which model it is of: "
                            "give wf_gen_model_open a "
                            "reader, or export it to a folder",
                            path);
    status = m->checkpoint ? read(m->checkpoint, &m->config, &m->lora, error)
                           : wf_par_pretrained_config(path, &m->config, error);
    find_like(m);
    if (m->checkpoint && wf_par_checkpoint_option(m->checkpoint, "seed"))
        m->seed = strtoull(wf_par_checkpoint_option(m->checkpoint, "seed"), NULL, 10);
    m->nf4 = m->lora.rank && is_option(m->checkpoint, "base_dtype", "\"nf4\"");
    return status;
}

void wf_gen_model_close(wf_gen_model *m)
{
    wf_par_checkpoint_close(m->checkpoint);
    m->checkpoint = NULL;
}

/* Returns true where a frozen parameter is stored as this type. */
static bool has_frozen(wf_nn_gpt *model, wf_dtype dtype)
{
    int64_t count;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    bool found = false;

    for (int64_t i = 0; p && i < count; i++)
        found = found || (p[i]->frozen && p[i]->tensor->dtype == dtype);
    free(p);
    return found;
}

/* Checks that the base is the one that adapters were trained on, as far as its stored type
   shows. */
static wf_status check_base(const wf_gen_model *m, wf_par *par, wf_nn_gpt *model,
                            const char *folder)
{
    const char *saved = wf_par_checkpoint_option(m->checkpoint, WF_PAR_SAVED_BASE_DIGEST);
    bool was_bf16 = is_option(m->checkpoint, "param_dtype", "\"bf16\"");
    uint64_t digest;
    char mine[17];

    if (!saved || !*saved || (!was_bf16 && has_frozen(model, WF_BF16)) ||
        has_frozen(model, WF_NF4) != m->nf4)
        return wf_context_status(wf_par_context(par));
    if (wf_par_lora_base(par, model, was_bf16 ? WF_BF16 : WF_F32, &digest) != WF_OK)
        return wf_context_status(wf_par_context(par));
    snprintf(mine, sizeof mine, "%016llx", (unsigned long long)digest);
    if (strcmp(mine, saved) == 0)
        return WF_OK;
    return wf_fail(
        wf_par_context(par), WF_EDATA,
        "%s has adapters of a base with checksum %.16s, and %s has %s: give .base DIR, "
        "the folder that they were trained on",
        wf_par_checkpoint_path(m->checkpoint), saved,
        folder ? folder : "the model that its seed makes", mine);
}

/* Loads the base of adapters: a folder, or the initialisation by the run's seed. */
static wf_status load_base(const wf_gen_model *m, wf_par *par, wf_nn_gpt *model)
{
    const char *saved = wf_par_checkpoint_option(m->checkpoint, WF_PAR_SAVED_BASE);
    const char *folder = m->base ? m->base : saved && *saved ? saved : NULL;

    if (!m->lora.rank || (folder && wf_par_pretrained_load(par, model, folder) != WF_OK))
        return wf_context_status(wf_par_context(par));
    return check_base(m, par, model, folder);
}

static wf_status load(const wf_gen_model *m, wf_par *par, wf_nn_gpt *model)
{
    wf_error error = {WF_OK, ""};

    if (!m->checkpoint)
        return wf_par_pretrained_load(par, model, m->path);
    if (load_base(m, par, model) != WF_OK)
        return wf_context_status(wf_par_context(par));
    if ((m->average ? wf_par_checkpoint_load_average : wf_par_checkpoint_load_model)(
            par, &model->base, m->checkpoint, &error) != WF_OK)
        wf_fail(wf_par_context(par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(par));
}

/* Before anything of a size that a file speaks of is made. */
static wf_status fits(const wf_gen_model *m, wf_par *par, wf_nn_gpt *model)
{
    wf_error error = {WF_OK, ""};

    if (m->checkpoint && wf_par_checkpoint_fits(&model->base, m->checkpoint, &error) != WF_OK)
        wf_fail(wf_par_context(par), error.code, "%s", error.text);
    return wf_context_status(wf_par_context(par));
}

/* Nothing is trained, so that bf16 needs no f32 masters; but the base of adapters is identified
   by what was frozen then. */
wf_nn_gpt *wf_gen_model_load(const wf_gen_model *m, wf_par *par, bool plan)
{
    wf_nn_gpt *model = wf_nn_gpt_new(wf_par_context(par), &m->config);

    if (model && wf_par_lora_apply(model, &m->lora) == WF_OK && fits(m, par, model) == WF_OK &&
        (m->lora.rank > 0 || wf_nn_freeze(&model->base, "*") == WF_OK) &&
        wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK &&
        (plan || load(m, par, model) == WF_OK))
        return model;
    if (model)
        wf_nn_free(&model->base);
    return NULL;
}
