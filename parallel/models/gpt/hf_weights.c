/* parallel/models/gpt/hf_weights.c - the config and the tensors of a folder together; see
   pretrained_internal.h. */
#include "parallel/formats/convert_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLAB = 1 << 20 }; /* numbers that are compared at a time */

/* Finds a tensor under its name, or under the one that a model without its head gives. */
static const wf_safetensors_entry *find(wf_hf_files *files, const char *base, const char *name,
                                        int64_t *file)
{
    size_t n = strlen(base);
    const wf_safetensors_entry *e = wf_hf_find(files, name, file);

    return e || strncmp(name, base, n) != 0 ? e : wf_hf_find(files, name + n, file);
}

/* The tensor of the head in files of this family. */
static const char *head_name(const wf_hf_weights *w, char name[WF_HF_NAME])
{
    if (!wf_hf_name_of(w->config.family, "head.weight", name))
        *name = 0;
    return name;
}

static const wf_safetensors_entry *find_table(wf_hf_weights *w, int64_t *file)
{
    char name[WF_HF_NAME];

    return wf_hf_name_of(w->config.family, "embed.table", name)
               ? find(&w->files, w->config.family->base, name, file)
               : NULL;
}

const wf_safetensors_entry *wf_hf_weights_find(wf_hf_weights *w, const wf_hf_location *location,
                                               int64_t *file)
{
    const wf_safetensors_entry *e = find(&w->files, location->base, location->name, file);
    char table[WF_HF_NAME], head[WF_HF_NAME];

    if (e || !w->config.model.tied)
        return e;
    if (strcmp(location->name, head_name(w, head)) == 0)
        return find_table(w, file);
    return wf_hf_name_of(w->config.family, "embed.table", table) &&
                   strcmp(location->name, table) == 0
               ? wf_hf_find(&w->files, head_name(w, head), file)
               : NULL;
}

static int64_t count_of(const wf_safetensors_entry *e)
{
    int64_t n = 1;

    for (int d = 0; d < e->ndim; d++)
        n *= e->shape[d];
    return n;
}

/* Reads n numbers of a tensor as floats. */
static wf_status read_floats(wf_hf_weights *w, const wf_safetensors_entry *e, int64_t file,
                             int64_t at, int64_t n, char *raw, float *to, wf_error *error)
{
    const int64_t size = wf_safetensors_dtype_size(e->dtype);
    const wf_file *reader;

    if (wf_hf_reader(&w->files, file, &reader, error) == WF_OK &&
        wf_file_read(reader, raw, (size_t)(n * size),
                     w->files.file[file].header.data + e->begin + at * size, error) == WF_OK)
        wf_convert_from(e->dtype, raw, to, n);
    return error->code;
}

/* Compares two tensors number by number, until two differ. */
static wf_status compare(wf_hf_weights *w, const wf_safetensors_entry *const e[2],
                         const int64_t file[2], bool *same, wf_error *error)
{
    const int64_t count = count_of(e[0]);
    float *numbers = malloc((size_t)SLAB * 2 * sizeof *numbers);
    char *raw = malloc((size_t)SLAB * sizeof(float));

    *same = e[0]->ndim == e[1]->ndim &&
            memcmp(e[0]->shape, e[1]->shape, (size_t)e[0]->ndim * sizeof *e[0]->shape) == 0 &&
            wf_converts(e[0]->dtype) && wf_converts(e[1]->dtype);
    if (!numbers || !raw)
        wf_error_set(error, WF_ENOMEM, "no memory to compare %s with the embedding",
                     e[0]->name);
    for (int64_t at = 0; *same && at < count && error->code == WF_OK; at += SLAB) {
        const int64_t n = count - at < SLAB ? count - at : SLAB;

        for (int i = 0; i < 2 && error->code == WF_OK; i++)
            read_floats(w, e[i], file[i], at, n, raw, numbers + i * SLAB, error);
        *same = error->code == WF_OK &&
                memcmp(numbers, numbers + SLAB, (size_t)n * sizeof *numbers) == 0;
    }
    free(numbers);
    free(raw);
    return error->code;
}

/* A tied config beside files that have a head: *own is whether that differs from the embedding,
   as transformers decide it. */
static wf_status find_own_head(wf_hf_weights *w, bool *own, wf_error *error)
{
    int64_t file[2];
    char head[WF_HF_NAME];
    const wf_safetensors_entry *const e[2] = {
        wf_hf_find(&w->files, head_name(w, head), &file[0]), find_table(w, &file[1])};
    bool same = true;

    if (e[0] && e[1] && compare(w, e, file, &same, error) != WF_OK)
        return error->code;
    *own = !same;
    return WF_OK;
}

static wf_status read_config(const char *folder, const wf_file_calls *calls,
                             wf_hf_config *config, wf_error *error)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= (int)sizeof path)
        return wf_error_set(error, WF_EIO, "the name of folder %.100s.. is too long", folder);
    if (access(path, F_OK) == 0)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s: adapters beside a model, which transformers put on it: give "
                            "the model from a folder without them, and them by themselves",
                            path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    return wf_hf_config_read(config, calls, path, error);
}

/* A layer has several tensors; of a model with more layers than any has that is compared before
   it is built. */
enum { LAYER_TENSORS = 2, USUAL_LAYERS = 256 };

static wf_status check_layers(const wf_hf_weights *w, const char *folder, wf_error *error)
{
    int64_t layers = w->config.model.layers, tensors = 0;

    for (int64_t f = 0; f < w->files.count; f++)
        tensors += w->files.file[f].header.count;
    if (layers <= USUAL_LAYERS || tensors / LAYER_TENSORS >= layers)
        return WF_OK;
    return wf_error_set(error, WF_EDATA,
                        "%s: config.json has %lld layers, and the files of weights have %lld "
                        "tensors in all: the two belong to different models",
                        folder, (long long)layers, (long long)tensors);
}

/* Reads the config of a folder, which may have no weights (wf_par_pretrained_keep). */
static wf_status read_model(const char *folder, wf_nn_gpt_config *model, wf_error *error)
{
    wf_error unread = {WF_OK, ""}; /* loading says why */
    wf_hf_weights w = {.files.open = -1};
    bool own = false;

    if (read_config(folder, &wf_system_files, &w.config, error) == WF_OK &&
        (w.config.model.tied || w.config.model.layers > USUAL_LAYERS) &&
        wf_hf_files_there(folder) &&
        wf_hf_files_open(&w.files, &wf_system_files, folder, &unread) == WF_OK &&
        check_layers(&w, folder, error) == WF_OK && w.config.model.tied)
        find_own_head(&w, &own, error);
    wf_hf_files_close(&w.files);
    *model = w.config.model;
    model->tied = model->tied && !own;
    return error->code;
}

wf_status wf_par_pretrained_config(const char *folder, wf_nn_gpt_config *config,
                                   wf_error *error)
{
    wf_gguf_weights gguf = {.open = false};

    if (!wf_par_gguf_there(folder))
        return read_model(folder, config, error);
    wf_gguf_weights_open(&gguf, &wf_system_files, folder, error);
    *config = gguf.model;
    wf_gguf_weights_close(&gguf);
    return error->code;
}

/* Refuses a tied model for a head of its own, which would be lost. The other way round the head
   begins as the embedding. */
static wf_status check_tie(const char *folder, bool theirs, bool tied, const char *why,
                           wf_error *error)
{
    if (theirs || !tied)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s: its model has a head of its own%s, and the one that it is loaded "
                        "into has a tied one: build that with wf_nn_gpt_config.tied false",
                        folder, why);
}

static void refuse_own_head(const wf_hf_weights *w, const char *folder, bool own,
                            wf_error *error)
{
    char head[WF_HF_NAME], why[WF_HF_NAME + 96];

    snprintf(why, sizeof why,
             " (\"%s\" differs from the embedding, whatever \"tie_word_embeddings\" says)",
             head_name(w, head));
    check_tie(folder, !own, true, why, error);
}

wf_status wf_hf_weights_open(wf_hf_weights *w, const wf_file_calls *calls, const char *folder,
                             const wf_nn_gpt_config *model, wf_error *error)
{
    bool own = false;

    *w = (wf_hf_weights){.is_gguf = wf_par_gguf_there(folder), .files.open = -1};
    if (w->is_gguf)
        return wf_gguf_weights_open(&w->gguf, calls, folder, error) == WF_OK
                   ? check_tie(folder, w->gguf.model.tied, model->tied, "", error)
                   : error->code;
    if (read_config(folder, calls, &w->config, error) != WF_OK ||
        check_tie(folder, w->config.model.tied, model->tied, "", error) != WF_OK ||
        wf_hf_files_open(&w->files, calls, folder, error) != WF_OK)
        return error->code;
    if (model->tied && find_own_head(w, &own, error) == WF_OK)
        refuse_own_head(w, folder, own, error);
    return error->code;
}

void wf_hf_weights_close(wf_hf_weights *w)
{
    if (w->is_gguf)
        wf_gguf_weights_close(&w->gguf);
    else
        wf_hf_files_close(&w->files);
}

wf_status wf_hf_weights_check_unused(wf_hf_weights *w, wf_error *error)
{
    const char *unused;

    if (w->is_gguf)
        return wf_gguf_weights_check_unused(&w->gguf, error);
    unused = wf_hf_unused(&w->files, wf_hf_idle);
    if (!unused)
        return WF_OK;
    return wf_error_set(
        error, WF_EDATA,
        "%s: tensor \"%s\" belongs to no parameter of the model that config.json "
        "describes",
        w->files.folder, unused);
}
