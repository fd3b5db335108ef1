/* parallel/models/gpt/hf_writer.c - see the header. */
#include "parallel/models/gpt/hf_writer_internal.h"
#include "core/files/folder_internal.h"
#include "parallel/formats/convert_internal.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_identity_internal.h"
#include "parallel/models/gpt/hf_nf4_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS       "model.safetensors"
#define WEIGHTS_INDEX "model.safetensors.index.json"
#define CONFIG        "config.json"
#define REPLACED      ".replaced"

static const int64_t slab_elements = 1 << 20; /* written at a time: 2 to 4 MiB */

/* Write rows [row, row + rows) of the part of parameter i. */
static wf_status write_slab(wf_hf_writer *w, int64_t i, const float *from, const wf_part *part,
                            int64_t row, int64_t rows, float *plain, char *raw)
{
    const wf_hf_location *location = &w->location[i];
    wf_part slab = *part, whole = {.ndim = part->ndim};
    int64_t columns = wf_part_count(part) / (part->ndim ? part->local[0] : 1), together;

    memcpy(whole.local, location->shape, sizeof whole.local);
    if (slab.ndim) {
        slab.start[0] = wf_hf_row(location, part, row, &together);
        slab.local[0] = rows;
    }
    if (location->transposed && part->ndim == 2)
        wf_hf_transpose(from + row, part->local[0], columns, rows, plain, columns);
    for (int64_t e = 0; location->transposed && part->ndim == 3 && e < rows; e++)
        wf_hf_transpose(from + (row + e) * columns, part->local[1], part->local[2],
                        part->local[1], plain + e * columns, part->local[2]);
    wf_convert_to(w->dtype, location->transposed ? plain : from + row * columns, raw,
                  rows * columns);
    return wf_part_write(&slab, &whole, raw, wf_safetensors_dtype_size(w->dtype), &w->file,
                         (int64_t)w->header_bytes + w->entry[w->entry_of[i]].begin, &w->error);
}

wf_status wf_hf_writer_write(wf_hf_writer *w, int64_t i, const wf_part *part, const float *from)
{
    int64_t count = wf_part_count(part), rows = part->ndim ? part->local[0] : 1, columns, step,
            n;
    wf_status status = WF_OK;
    float *plain;
    char *raw;

    if (count == 0)
        return WF_OK;
    if (wf_hf_writer_is_nf4(w, i))
        return wf_hf_nf4_write(&w->file, (int64_t)w->header_bytes, &w->entry[w->entry_of[i]],
                               part->local[0], part->local[1], from, &w->error);
    columns = count / rows;
    step = columns < slab_elements ? slab_elements / columns : 1;
    step = step < rows ? step : rows;
    raw = malloc((size_t)(step * columns) * sizeof *plain);
    plain = malloc((size_t)(step * columns) * sizeof *plain);
    if (!raw || !plain || !from)
        status =
            wf_error_set(&w->error, WF_ENOMEM, "no memory to write %s", w->parameter[i]->path);
    for (int64_t row = 0; row < rows && status == WF_OK; row += n) {
        wf_hf_row(&w->location[i], part, row, &n);
        n = n < step ? n : step;
        n = n < rows - row ? n : rows - row;
        status = write_slab(w, i, from, part, row, n, plain, raw);
    }
    free(raw);
    free(plain);
    return status;
}

bool wf_hf_writer_is_nf4(const wf_hf_writer *w, int64_t i)
{
    return w->nf4 && w->parameter[i]->matrix && w->location[i].ndim == 2;
}

/* Tensor number `entries` of the file, and those after it, are of parameter i. */
static wf_status add_entry(wf_hf_writer *w, int64_t i)
{
    const wf_hf_location *location = &w->location[i];
    wf_safetensors_entry *e = &w->entry[w->entries];

    if (wf_hf_writer_is_nf4(w, i)) {
        if (location->transposed || location->shape[0] != w->parameter[i]->tensor->dim[0].size)
            return wf_error_set(
                &w->error, WF_EUNSUPPORTED,
                "a %s has \"%s\" with other linears in one tensor, or transposed, whose blocks "
                "in 4 bits are not those of a linear: write it as "
                "bf16",
                w->family->type, location->name);
        w->entries += WF_HF_NF4_ENTRIES;
        return wf_hf_nf4_describe(location->name, location->shape[0], location->shape[1], e,
                                  &w->error);
    }
    for (int64_t k = 0; k < (location->pieces ? location->pieces : 1); k++, e++) {
        wf_hf_location one;

        wf_hf_location_piece(location, k, &one);
        *e = (wf_safetensors_entry){
            .name = strdup(one.name), .dtype = w->dtype, .ndim = one.ndim};
        memcpy(e->shape, one.shape, (size_t)one.ndim * sizeof *e->shape);
        w->entries++;
        if (!e->name)
            return wf_error_set(&w->error, WF_ENOMEM, "no memory for a list of tensors");
    }
    return WF_OK;
}

/* The tensors of the file, in the order of parameters; three that lie side by side are one. */
static wf_status describe(wf_hf_writer *w)
{
    static const char *const metadata[] = {"format", "pt"};

    for (int64_t i = 0; i < w->count; i++) {
        wf_hf_location *location = &w->location[i];
        int64_t k = 0;

        if (!wf_hf_location_of(w->family, &w->model->config, w->parameter[i], location))
            return wf_error_set(&w->error, WF_EUNSUPPORTED,
                                "parameter %s has no name in a %s of transformers",
                                w->parameter[i]->path, w->family->type);
        /* members of a group are near each other: look at the last ones */
        for (k = w->entries > 8 ? w->entries - 8 : 0; k < w->entries; k++)
            if (strcmp(w->entry[k].name, location->name) == 0)
                break;
        w->entry_of[i] = k;
        if (k == w->entries && add_entry(w, i) != WF_OK)
            return w->error.code;
    }
    return wf_safetensors_format(w->entries, w->entry, 1, metadata, &w->header,
                                 &w->header_bytes, &w->error);
}

/* Leaves out what is no part of a model of transformers: adapters, which have been merged, and
   counts that balance experts. */
static void leave_out(wf_hf_writer *w)
{
    int64_t all = w->parameter ? w->count : 0;

    w->count = 0;
    for (int64_t i = 0; i < all; i++)
        if (!w->parameter[i]->adapter && !wf_nn_is_counts(w->parameter[i]))
            w->parameter[w->count++] = w->parameter[i];
}

/* The types that weights can be written as: rows of core/dtype.def, and one that tensors never
   have. */
static const struct {
    const char *text;
    wf_safetensors_dtype type;
} files[] = {
#define WF_ST_NONE                                WF_ST_DTYPES
#define DTYPE(name, type, text, word, kind, file) {text, WF_ST_##file},
#include "core/dtype.def"
#undef DTYPE
#undef WF_ST_NONE
    {"f16", WF_ST_F16}};

enum { FILE_TYPES = sizeof files / sizeof *files };

static wf_safetensors_dtype file_dtype(const char *text)
{
    for (int i = 0; i < FILE_TYPES; i++)
        if (strcmp(files[i].text, text) == 0)
            return files[i].type;
    return WF_ST_DTYPES;
}

const char *wf_par_pretrained_dtype_at(int i)
{
    for (int k = 0; k < FILE_TYPES; k++)
        if (files[k].type != WF_ST_DTYPES && i-- == 0)
            return files[k].text;
    return NULL;
}

static wf_status refuse_dtype(wf_hf_writer *w, const char *dtype)
{
    char known[128] = "";
    size_t used = 0;

    for (int i = 0; wf_par_pretrained_dtype_at(i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                 !used                                ? ""
                                 : !wf_par_pretrained_dtype_at(i + 1) ? " and "
                                                                      : ", ",
                                 wf_par_pretrained_dtype_at(i));
    return wf_error_set(&w->error, WF_EINVAL,
                        "weights cannot be written as %s: %s can, and nf4 where a folder or a "
                        "GGUF file is converted",
                        dtype, known);
}

/* The most tensors that parameters can be: several of 4 bits each, or one for each expert. */
static size_t most_entries(const wf_hf_writer *w)
{
    size_t most = 1;

    for (int64_t i = 0; i < w->count; i++) {
        const wf_tensor *t = w->parameter[i]->tensor;

        most += t->ndim == 3 ? (size_t)t->dim[0].size : WF_HF_NF4_ENTRIES;
    }
    return most;
}

wf_status wf_hf_writer_prepare(wf_hf_writer *w, const char *dtype)
{
    w->nf4 = w->whole && dtype && strcmp(dtype, wf_dtype_name(WF_NF4)) == 0;
    w->dtype = dtype && !w->nf4 ? file_dtype(dtype) : WF_ST_F32;
    if (w->dtype == WF_ST_DTYPES)
        return refuse_dtype(w, dtype);
    w->parameter = wf_nn_parameters(&w->model->base, &w->count);
    leave_out(w);
    w->location = calloc((size_t)w->count + 1, sizeof *w->location);
    w->entry = w->parameter ? calloc(most_entries(w), sizeof *w->entry) : NULL;
    w->entry_of = calloc((size_t)w->count + 1, sizeof *w->entry_of);
    if (!w->parameter || !w->location || !w->entry || !w->entry_of)
        return wf_error_set(&w->error, WF_ENOMEM, "no memory for a list of tensors");
    if (wf_hf_config_family(&w->model->config, w->like, &w->family, &w->error) != WF_OK)
        return w->error.code;
    return describe(w);
}

static int64_t file_bytes(const wf_hf_writer *w)
{
    return (int64_t)w->header_bytes + (w->entries ? w->entry[w->entries - 1].end : 0);
}

wf_status wf_hf_writer_create(wf_hf_writer *w, const char *path)
{
    wf_folder folder = {.fd = -1};

    if (wf_files_make_directory(&wf_system_files, path, &w->error) == WF_OK &&
        wf_folder_open(&folder, &wf_system_files, path, &w->error) == WF_OK) {
        wf_output_clean(&folder, NULL);
        w->mark = wf_output_mark();
        w->weights = wf_output_begin(&folder, WEIGHTS, w->mark, &w->error);
    }
    wf_folder_close(&folder);
    if (w->weights &&
        wf_file_resize(wf_output_file(w->weights), file_bytes(w), &w->error) == WF_OK)
        wf_file_write(wf_output_file(w->weights), w->header, w->header_bytes, 0, &w->error);
    return w->error.code;
}

wf_status wf_hf_writer_open(wf_hf_writer *w, const char *path)
{
    char partial[WF_FILES_NAME];
    wf_folder folder;

    wf_output_partial(WEIGHTS, w->mark, partial);
    if (wf_folder_open(&folder, &wf_system_files, path, &w->error) == WF_OK)
        wf_folder_file(&folder, partial, WF_FILE_WRITE, &w->file, &w->error);
    wf_folder_close(&folder);
    w->file.need = file_bytes(w);
    return w->error.code;
}

wf_status wf_hf_writer_close(wf_hf_writer *w)
{
    if (w->error.code == WF_OK)
        wf_file_sync(&w->file, &w->error);
    wf_file_close(&w->file, &w->error);
    return w->error.code;
}

/* config.json under another name; NULL: why is in w->error. */
static wf_output *write_config(wf_hf_writer *w, const wf_folder *folder)
{
    char *text = NULL;
    wf_output *o = NULL;

    if (wf_hf_config_format(&w->model->config, w->nf4 ? WF_ST_U8 : w->dtype, w->like, &text,
                            &w->error) == WF_OK)
        o = wf_output_begin(folder, CONFIG, wf_output_mark(), &w->error);
    if (o && wf_file_write(wf_output_file(o), text, strlen(text), 0, &w->error) != WF_OK) {
        wf_output_discard(o);
        o = NULL;
    }
    free(text);
    return o;
}

/*
 * Renames the files. A model is in two files or more, and no rename moves all at once: so first
 * the old config.json goes, without which a folder is no model, and the new one comes last. A
 * run that is killed in between leaves a folder that is refused, and no mixture.
 */
static void replace(wf_hf_writer *w, const wf_folder *folder, wf_output *config)
{
    wf_error *e = &w->error;
    bool old = false, moved, fresh = false;

    moved = wf_folder_has(folder, CONFIG, &old, e) == WF_OK &&
            (!old || wf_folder_rename(folder, CONFIG, CONFIG REPLACED, e) == WF_OK);
    if (moved && wf_folder_sync(folder, e) == WF_OK) {
        fresh = wf_output_publish(w->weights, e) == WF_OK;
        w->weights = NULL;
    }
    if (moved && old && !fresh) /* the old weights are there still */
        wf_folder_rename(folder, CONFIG REPLACED, CONFIG, NULL);
    if (fresh)
        wf_folder_remove(folder, WEIGHTS_INDEX, e); /* its entries are of the old one */
    if (fresh && w->like)
        wf_hf_identity_copy(w->like, folder, e);
    if (!fresh || e->code != WF_OK)
        wf_output_discard(config);
    else if (wf_output_publish(config, e) == WF_OK)
        wf_folder_remove(folder, CONFIG REPLACED, e);
}

wf_status wf_hf_writer_publish(wf_hf_writer *w, const char *path)
{
    wf_folder folder;
    wf_output *config = NULL;

    if (wf_folder_open(&folder, &wf_system_files, path, &w->error) == WF_OK)
        config = write_config(w, &folder);
    if (config)
        replace(w, &folder, config);
    wf_folder_close(&folder);
    return w->error.code;
}

void wf_hf_writer_free(wf_hf_writer *w)
{
    wf_output_discard(w->weights);
    for (int64_t k = 0; k < w->entries; k++)
        free(w->entry[k].name);
    free(w->parameter);
    free(w->location);
    free(w->entry);
    free(w->entry_of);
    free(w->header);
}
