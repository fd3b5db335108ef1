/* parallel/models/gpt/lora_load.c - adapters of PEFT into this rank's parts. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/formats/convert_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/models/gpt/lora_names_internal.h"
#include "parallel/shard/unshard_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB = 1 << 20 }; /* bytes that are compared at a time */

typedef struct source {
    wf_file file;
    wf_safetensors header;
    const wf_safetensors_entry *entry;
    float *to;
    char *raw;
    wf_error *error;
} source;

static wf_status read_run(void *arg, int64_t at_part, int64_t at_file, int64_t n)
{
    const source *s = arg;
    int64_t size = wf_safetensors_dtype_size(s->entry->dtype);

    if (wf_file_read(&s->file, s->raw, (size_t)(n * size),
                     s->header.data + s->entry->begin + at_file * size, s->error) == WF_OK)
        wf_convert_from(s->entry->dtype, s->raw, s->to + at_part, n);
    return s->error->code;
}

static wf_status check(const source *s, const wf_peft_tensor *t)
{
    bool same = s->entry && s->entry->ndim == t->ndim;

    if (!s->entry)
        return wf_error_set(s->error, WF_EDATA,
                            "%s has no tensor \"%s\", which %s would be read from",
                            s->file.path, t->name, t->parameter->path);
    for (int d = 0; same && d < t->ndim; d++)
        same = s->entry->shape[d] == t->shape[d];
    if (!same)
        return wf_error_set(s->error, WF_EDATA,
                            "%s: tensor \"%s\" has another shape than %s of the model",
                            s->file.path, t->name, t->parameter->path);
    if (!wf_converts(s->entry->dtype))
        return wf_error_set(
            s->error, WF_EDATA,
            "%s: tensor \"%s\" is %s, and weights are read from F32, BF16 and F16",
            s->file.path, t->name, wf_safetensors_dtype_name(s->entry->dtype));
    return WF_OK;
}

/* Takes the numbers of experts [first, end) of this rank's from a row of theirs, which is row i
   of their factors here. */
static void take_row(const source *s, const wf_peft_tensor *t, const wf_part *part,
                     const float *row, int64_t i, int64_t first, int64_t end)
{
    const int di = t->swapped ? 2 : 1, dj = t->swapped ? 1 : 2;
    const int64_t experts = t->parameter->tensor->dim[0].size;

    for (int64_t e = first; e < end; e++)
        for (int64_t j = 0; j < part->local[dj]; j++) {
            const int64_t at = t->swapped ? (e * part->local[dj] + j) * part->local[di] + i
                                          : (e * part->local[di] + i) * part->local[dj] + j;
            const int64_t column = part->start[dj] + j;

            s->to[at] =
                row[t->factor_b ? column * experts + part->start[0] + e : t->column + column];
        }
}

/* Reads a part of a factor of experts whose numbers lie otherwise in theirs, row by row of it:
   rows of a B have all experts, those of an A one. */
static wf_status read_factor(source *s, const wf_peft_tensor *t, const wf_part *part)
{
    const int di = t->swapped ? 2 : 1;
    const int64_t columns = t->shape[1], each = t->parameter->tensor->dim[di].size;
    const int64_t size = wf_safetensors_dtype_size(s->entry->dtype);
    const int64_t turns = t->factor_b ? 1 : part->local[0], n = part->local[di];
    float *row = malloc((size_t)columns * (sizeof *row + (size_t)size));
    char *raw = (char *)(row + columns);

    if (!row)
        return wf_error_set(s->error, WF_ENOMEM, "no memory to read %s", t->name);
    for (int64_t k = 0; k < turns * n && s->error->code == WF_OK; k++) {
        const int64_t e = k / n, i = k % n;
        const int64_t at =
            t->row + part->start[di] + i + (t->factor_b ? 0 : (part->start[0] + e) * each);

        if (wf_file_read(&s->file, raw, (size_t)(columns * size),
                         s->header.data + s->entry->begin + at * columns * size,
                         s->error) != WF_OK)
            break;
        wf_convert_from(s->entry->dtype, raw, row, columns);
        take_row(s, t, part, row, i, t->factor_b ? 0 : e, t->factor_b ? part->local[0] : e + 1);
    }
    free(row);
    return s->error->code;
}

static wf_status load_one(source *s, const wf_peft_tensor *t)
{
    wf_tensor *ours = t->parameter->tensor;
    wf_part part, whole = {.ndim = ours->ndim};
    wf_host_data view;

    s->entry = wf_safetensors_find(&s->header, t->name);
    if (check(s, t) != WF_OK || wf_tensor_is_fake(ours))
        return s->error->code; /* another stage's: that it is there counts for all */
    part = wf_part_of_tensor(ours);
    for (int d = 0; d < ours->ndim; d++)
        whole.local[d] = ours->dim[d].size;
    if (wf_part_count(&part) == 0)
        return WF_OK;
    s->to = wf_data_write_f32(ours, &view);
    s->raw = malloc((size_t)wf_part_count(&part) * sizeof(float));
    if (s->to && s->raw && (t->factor_b || t->swapped))
        read_factor(s, t, &part);
    else if (s->to && s->raw)
        wf_part_runs(&part, &whole, read_run, s);
    else
        wf_error_set(s->error, WF_ENOMEM, "no memory to read %s", t->name);
    free(s->raw);
    wf_data_close(&view);
    return s->error->code;
}

/* Refuses a head that is not the embedding, where both are one. */
static wf_status check_copy(source *s, const wf_peft_tensor *t)
{
    const wf_safetensors_entry *copy = wf_safetensors_find(&s->header, t->name);
    const wf_safetensors_entry *e = wf_safetensors_find(&s->header, t[-1].name);
    int64_t bytes = copy ? copy->end - copy->begin : 0;
    bool same = !copy || (e && copy->dtype == e->dtype && bytes == e->end - e->begin);
    char *slab = malloc((size_t)SLAB * 2);

    if (!slab)
        wf_error_set(s->error, WF_ENOMEM, "no memory to compare %s", t->name);
    for (int64_t at = 0; same && slab && at < bytes && s->error->code == WF_OK; at += SLAB) {
        const size_t n = (size_t)(bytes - at < SLAB ? bytes - at : SLAB);

        same = wf_file_read(&s->file, slab, n, s->header.data + copy->begin + at, s->error) ==
                   WF_OK &&
               wf_file_read(&s->file, slab + SLAB, n, s->header.data + e->begin + at,
                            s->error) == WF_OK &&
               memcmp(slab, slab + SLAB, n) == 0;
    }
    free(slab);
    if (!same && s->error->code == WF_OK)
        wf_error_set(s->error, WF_EDATA,
                     "%s: tensor \"%s\" differs from \"%s\", and both are one in a model that "
                     "ties its head to the embedding",
                     s->file.path, t->name, t[-1].name);
    return s->error->code;
}

/* Refuses tensors that PEFT keeps separately and the model ties. */
static wf_status check_tie(const wf_nn_gpt *model, const char *folder, wf_error *error)
{
    wf_par_lora lora;

    if (wf_par_lora_config(folder, &lora, error) != WF_OK || !lora.untied ||
        !model->config.tied)
        return error->code;
    return wf_error_set(
        error, WF_EINVAL,
        "%s: its \"modules_to_save\" train the embedding or the head without the other "
        "(\"ensure_weight_tying\" is false), and the model ties them: "
        "build it untied",
        folder);
}

/* All that the file has is of something that is trained, or it is for another model. */
static wf_status check_unused(const source *s, const wf_peft_tensor *list, int64_t count)
{
    for (int64_t e = 0; e < s->header.count; e++) {
        int64_t i = 0;

        while (i < count && strcmp(list[i].name, s->header.entry[e].name) != 0)
            i++;
        if (i == count)
            return wf_error_set(
                s->error, WF_EDATA,
                "%s: tensor \"%s\" belongs to nothing that is trained of this model",
                s->file.path, s->header.entry[e].name);
    }
    return WF_OK;
}

static wf_status load(wf_par *par, wf_nn_gpt *model, const char *folder, wf_error *error)
{
    wf_peft_tensor *list = NULL;
    source s = {.error = error};
    char path[PATH_MAX];
    int64_t count = 0;

    snprintf(path, sizeof path, "%.4000s/adapter_model.safetensors", folder);
    if (check_tie(model, folder, error) == WF_OK &&
        wf_peft_tensors(model, NULL, &list, &count, error) == WF_OK &&
        wf_file_open(&s.file, &wf_system_files, path, WF_FILE_READ, error) == WF_OK) {
        if (wf_safetensors_read(&s.header, &s.file, error) == WF_OK) {
            wf_par_models_change(par);
            for (int64_t i = 0; i < count && error->code == WF_OK; i++)
                list[i].copy ? check_copy(&s, &list[i]) : load_one(&s, &list[i]);
            if (error->code == WF_OK)
                check_unused(&s, list, count);
            wf_safetensors_close(&s.header);
        }
        wf_file_close(&s.file, error->code == WF_OK ? error : NULL);
    }
    free(list);
    return error->code;
}

wf_status wf_par_lora_load(wf_par *par, wf_nn_gpt *model, const char *folder)
{
    wf_context *ctx = wf_par_context(par);
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    wf_error error = {WF_OK, ""};

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    wf_comm_at_files(world, true);
    load(par, model, folder, &error);
    wf_comm_at_files(world, false);
    return error.code == WF_OK ? WF_OK : wf_fail(ctx, error.code, "%s", error.text);
}
