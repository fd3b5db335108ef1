/* parallel/models/gpt/hf_save.c - a model as a folder of Hugging Face, written by all ranks. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/formats/convert_internal.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_identity_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/files/folder_internal.h"
#include "parallel/agree_internal.h"
#include "parallel/checkpoint/parts_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "parallel/parallel_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS       "model.safetensors"
#define WEIGHTS_INDEX "model.safetensors.index.json"
#define CONFIG        "config.json"
#define PARTIAL       ".partial"
#define REPLACED      ".replaced"

static const int64_t slab_elements = 1 << 20; /* written at a time: 2 to 4 MiB */

/* A file that is being written: what all ranks know of it. */
typedef struct save {
    wf_par *par;
    wf_nn_gpt *model;
    const wf_hf_family *family;
    const char *like; /* the folder that it is made of, or NULL */
    wf_nn_parameter **parameter;
    wf_hf_place *place; /* each parameter's */
    int64_t *entry_of;  /* number of the tensor in the file */
    int64_t count, entries;
    wf_safetensors_entry *entry;
    wf_safetensors_dtype dtype;
    char *header;
    size_t header_bytes;
    wf_file file;
    wf_error error;
} save;

/* Write rows [row, row + rows) of the part of parameter i. */
static wf_status write_slab(save *s, int64_t i, const float *from, const wf_part *part,
                            int64_t row, int64_t rows, float *plain, char *raw)
{
    const wf_hf_place *place = &s->place[i];
    wf_part slab = *part, whole = {.ndim = part->ndim};
    int64_t columns = wf_part_count(part) / (part->ndim ? part->local[0] : 1);

    memcpy(whole.local, place->shape, sizeof whole.local);
    if (slab.ndim) {
        slab.start[0] += row;
        slab.local[0] = rows;
    }
    if (place->transposed)
        wf_hf_transpose(from + row, part->local[0], columns, rows, plain, columns);
    wf_convert_to(s->dtype, place->transposed ? plain : from + row * columns, raw,
                  rows * columns);
    return wf_part_write(&slab, &whole, raw, wf_safetensors_dtype_size(s->dtype), &s->file,
                         (int64_t)s->header_bytes + s->entry[s->entry_of[i]].begin, &s->error);
}

/* Of ranks that hold the same part one writes it, in turns. */
static bool writes_here(const save *s, int64_t i)
{
    const wf_saved_mesh mesh = wf_saved_mesh_of(wf_par_mesh(s->par));
    const wf_saved_layout layout = wf_saved_layout_of(s->parameter[i]->tensor->layout,
                                                      wf_par_holding_of(s->parameter[i])->home);
    int64_t rank = wf_context_rank(wf_par_context(s->par));
    int coordinate[WF_MAX_AXES];

    wf_saved_mesh_coordinates(&mesh, rank, coordinate);
    return wf_saved_writer(&mesh, &layout, s->parameter[i]->tensor->ndim, i, coordinate) ==
           rank;
}

static wf_status write_parameter(save *s, int64_t i)
{
    const wf_part part = wf_hf_part(&s->place[i], s->parameter[i]->tensor);
    int64_t count = wf_part_count(&part), rows = part.ndim ? part.local[0] : 1, columns, step;
    wf_status status = WF_OK;
    wf_host_data view;
    const float *from;
    float *plain;
    char *raw;

    if (count == 0 || !writes_here(s, i))
        return WF_OK;
    columns = count / rows;
    step = columns < slab_elements ? slab_elements / columns : 1;
    step = step < rows ? step : rows;
    raw = malloc((size_t)(step * columns) * sizeof *plain);
    plain = malloc((size_t)(step * columns) * sizeof *plain);
    from = wf_data_read(s->parameter[i]->tensor, &view);
    if (!raw || !plain || !from)
        status =
            wf_error_set(&s->error, WF_ENOMEM, "no memory to write %s", s->parameter[i]->path);
    for (int64_t row = 0; row < rows && status == WF_OK; row += step)
        status = write_slab(s, i, from, &part, row, rows - row < step ? rows - row : step,
                            plain, raw);
    wf_data_close(&view);
    free(raw);
    free(plain);
    return status;
}

/* The tensors of the file, in the order of parameters; three that lie side by side are one. */
static wf_status describe(save *s)
{
    static const char *const metadata[] = {"format", "pt"};

    for (int64_t i = 0; i < s->count; i++) {
        wf_hf_place *place = &s->place[i];
        wf_safetensors_entry *e;
        int64_t k = 0;

        if (!wf_hf_place_of(s->family, &s->model->config, s->parameter[i], place))
            return wf_error_set(&s->error, WF_EUNSUPPORTED,
                                "parameter %s has no name in a %s of transformers",
                                s->parameter[i]->path, s->family->type);
        /* members of a group are near each other: look at the last ones */
        for (k = s->entries > 8 ? s->entries - 8 : 0; k < s->entries; k++)
            if (strcmp(s->entry[k].name, place->name) == 0)
                break;
        s->entry_of[i] = k;
        if (k < s->entries)
            continue;
        e = &s->entry[s->entries++];
        *e =
            (wf_safetensors_entry){.name = place->name, .dtype = s->dtype, .ndim = place->ndim};
        memcpy(e->shape, place->shape, (size_t)place->ndim * sizeof *e->shape);
    }
    return wf_safetensors_format(s->entries, s->entry, 1, metadata, &s->header,
                                 &s->header_bytes, &s->error);
}

static wf_status prepare(save *s, const char *dtype)
{
    s->dtype = WF_ST_DTYPES;
    if (!dtype || strcmp(dtype, "f32") == 0)
        s->dtype = WF_ST_F32;
    else if (strcmp(dtype, "bf16") == 0)
        s->dtype = WF_ST_BF16;
    else if (strcmp(dtype, "f16") == 0)
        s->dtype = WF_ST_F16;
    if (s->dtype == WF_ST_DTYPES)
        return wf_error_set(&s->error, WF_EINVAL,
                            "weights cannot be written as %s: f32, bf16 and f16 can", dtype);
    s->parameter = wf_nn_parameters(&s->model->base, &s->count);
    s->place = calloc((size_t)s->count + 1, sizeof *s->place);
    s->entry = calloc((size_t)s->count + 1, sizeof *s->entry);
    s->entry_of = calloc((size_t)s->count + 1, sizeof *s->entry_of);
    if (!s->parameter || !s->place || !s->entry || !s->entry_of)
        return wf_error_set(&s->error, WF_ENOMEM, "no memory for a list of tensors");
    if (wf_hf_config_family(&s->model->config, s->like, &s->family, &s->error) != WF_OK)
        return s->error.code;
    return describe(s);
}

/* All ranks go on, or all stop with the first reason among them. */
static wf_status agree(save *s)
{
    wf_error error = s->error;

    if (wf_agree(s->par, 0, NULL, &error) == WF_OK)
        return WF_OK;
    return wf_fail(wf_par_context(s->par), error.code, "%s", error.text);
}

static int64_t file_bytes(const save *s)
{
    return (int64_t)s->header_bytes + (s->entries ? s->entry[s->entries - 1].end : 0);
}

/* Rank 0: the folder, and the file with its size and header. */
static void create(save *s, const char *path)
{
    wf_folder folder = {.fd = -1};
    wf_file file;

    if (wf_files_make_directory(&wf_system_files, path, &s->error) == WF_OK &&
        wf_folder_open(&folder, &wf_system_files, path, &s->error) == WF_OK &&
        /* a run that was stopped left it */
        wf_folder_remove(&folder, WEIGHTS PARTIAL, &s->error) == WF_OK &&
        wf_folder_file(&folder, WEIGHTS PARTIAL, WF_FILE_CREATE, &file, &s->error) == WF_OK) {
        if (wf_file_resize(&file, file_bytes(s), &s->error) == WF_OK)
            wf_file_write(&file, s->header, s->header_bytes, 0, &s->error);
        wf_file_close(&file, &s->error);
    }
    wf_folder_close(&folder);
}

static void write_parts(save *s, const char *path)
{
    wf_folder folder;

    if (wf_folder_open(&folder, &wf_system_files, path, &s->error) == WF_OK &&
        wf_folder_file(&folder, WEIGHTS PARTIAL, WF_FILE_WRITE, &s->file, &s->error) == WF_OK) {
        s->file.need = file_bytes(s);
        for (int64_t i = 0; i < s->count && s->error.code == WF_OK; i++)
            write_parameter(s, i);
        if (s->error.code == WF_OK)
            wf_file_sync(&s->file, &s->error);
        wf_file_close(&s->file, &s->error);
    }
    wf_folder_close(&folder);
}

/* config.json under another name, on the disk when it returns. */
static wf_status write_config(save *s, const wf_folder *folder)
{
    char *text = NULL;
    wf_file file;
    wf_status status = wf_folder_remove(folder, CONFIG PARTIAL, &s->error);

    if (status == WF_OK)
        status = wf_hf_config_format(&s->model->config, s->dtype, s->like, &text, &s->error);
    if (status == WF_OK)
        status = wf_folder_file(folder, CONFIG PARTIAL, WF_FILE_CREATE, &file, &s->error);
    if (status == WF_OK) {
        if (wf_file_write(&file, text, strlen(text), 0, &s->error) == WF_OK)
            wf_file_sync(&file, &s->error);
        wf_file_close(&file, &s->error);
    }
    free(text);
    return s->error.code;
}

/*
 * The names that readers look for. A model is in two files or more, and no rename brings all at
 * once: so first the old config.json goes, without which a folder is no model, and the new one
 * comes last. Whoever is stopped in between leaves a folder that is refused, and no mixture.
 */
static void replace(save *s, const wf_folder *folder)
{
    wf_error *e = &s->error;
    bool old = false;

    if (wf_folder_has(folder, CONFIG, &old, e) != WF_OK ||
        (old && wf_folder_rename(folder, CONFIG, CONFIG REPLACED, e) != WF_OK))
        return;
    if (wf_folder_sync(folder, e) == WF_OK &&
        wf_folder_rename(folder, WEIGHTS PARTIAL, WEIGHTS, e) == WF_OK) {
        wf_folder_remove(folder, WEIGHTS_INDEX, e); /* what it names is of the old one */
        if (s->like)
            wf_hf_identity_copy(s->like, folder, e);
        if (e->code == WF_OK && wf_folder_sync(folder, e) == WF_OK &&
            wf_folder_rename(folder, CONFIG PARTIAL, CONFIG, e) == WF_OK &&
            wf_folder_sync(folder, e) == WF_OK)
            wf_folder_remove(folder, CONFIG REPLACED, e);
    } else if (old) { /* the old weights are there still */
        wf_folder_rename(folder, CONFIG REPLACED, CONFIG, NULL);
    }
}

/* Rank 0: config.json beside the weights, and both where readers look for them. */
static void publish(save *s, const char *path)
{
    wf_folder folder;

    if (wf_folder_open(&folder, &wf_system_files, path, &s->error) == WF_OK &&
        write_config(s, &folder) == WF_OK)
        replace(s, &folder);
    wf_folder_close(&folder);
}

wf_status wf_par_pretrained_save(wf_par *par, wf_nn_gpt *model, const char *folder,
                                 const char *dtype, const char *like)
{
    wf_context *ctx = wf_par_context(par);
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    save *s;
    bool first = wf_context_rank(ctx) == 0;
    wf_status status;

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    s = calloc(1, sizeof *s);
    if (!s)
        return wf_fail(ctx, WF_ENOMEM, "no memory to save a model");
    *s = (save){.par = par, .model = model, .like = like};
    wf_comm_at_files(world, true);
    if (prepare(s, dtype) == WF_OK && first)
        create(s, folder);
    wf_comm_at_files(world, false);
    status = agree(s);
    if (status == WF_OK) {
        wf_comm_at_files(world, true);
        write_parts(s, folder);
        wf_comm_at_files(world, false);
        status = agree(s);
    }
    if (status == WF_OK) {
        wf_comm_at_files(world, true);
        if (first)
            publish(s, folder);
        wf_comm_at_files(world, false);
        status = agree(s);
    }
    free(s->parameter);
    free(s->place);
    free(s->entry);
    free(s->entry_of);
    free(s->header);
    free(s);
    return status;
}
