/* parallel/models/gpt/hf_load.c - weights of Hugging Face into this rank's parts. */
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/formats/convert_internal.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/formats/hf_files_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/models/gpt/hf_nf4_internal.h"
#include "parallel/shard/quantise_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t slab_elements = 1 << 20; /* read at a time: 2 to 4 MiB */

/* One tensor on its way from a file to a part of a parameter. */
typedef struct source {
    const wf_file *file;
    const wf_safetensors_entry *entry;
    int64_t data;  /* position of the tensor in the file */
    char *raw;     /* a slab's bytes */
    wf_hf_nf4 nf4; /* a tensor of 4 bits, read as floats */
    wf_error *error;
} source;

static wf_status read_run(void *arg, int64_t at_slab, int64_t at_file, int64_t n)
{
    const source *s = arg;
    int64_t size = wf_safetensors_dtype_size(s->entry->dtype);

    if (s->nf4.numbers)
        return wf_hf_nf4_read(&s->nf4, s->file, at_file, n, (float *)(void *)s->raw + at_slab,
                              s->error);
    return wf_file_read(s->file, s->raw + at_slab * size, (size_t)(n * size),
                        s->data + at_file * size, s->error);
}

/* Read rows [row, row + rows) of the part and put them into the parameter. */
static wf_status read_slab(source *s, const wf_hf_location *location, const wf_part *part,
                           int64_t row, int64_t rows, float *plain, float *to)
{
    wf_part slab = *part, whole = {.ndim = part->ndim};
    wf_safetensors_dtype dtype;
    int64_t columns, together;
    wf_status status;

    memcpy(whole.local, location->shape, sizeof whole.local);
    if (slab.ndim) {
        slab.start[0] = wf_hf_row(location, part, row, &together);
        slab.local[0] = rows;
    }
    status = wf_part_runs(&slab, &whole, read_run, s);
    if (status != WF_OK)
        return status;
    columns = wf_part_count(&slab) / rows;
    dtype = s->nf4.numbers ? WF_ST_F32 : s->entry->dtype;
    if (!location->transposed) {
        wf_convert_from(dtype, s->raw, to + row * columns, rows * columns);
        return WF_OK;
    }
    wf_convert_from(dtype, s->raw, plain, rows * columns);
    if (part->ndim == 2)
        wf_hf_transpose(plain, columns, rows, columns, to + row, part->local[0]);
    for (int64_t e = 0; part->ndim == 3 && e < rows; e++) /* a matrix each */
        wf_hf_transpose(plain + e * columns, part->local[2], part->local[1], part->local[2],
                        to + (row + e) * columns, part->local[1]);
    return WF_OK;
}

/* A part, row by row, to where its elements lie side by side. */
static wf_status read_part(source *s, const wf_hf_location *location, const wf_part *part,
                           float *to)
{
    int64_t count = wf_part_count(part), rows = part->ndim ? part->local[0] : 1, columns, step,
            n;
    float *plain;
    wf_status status = WF_OK;

    if (count == 0)
        return WF_OK;
    columns = count / rows;
    step = columns < slab_elements ? slab_elements / columns : 1;
    step = step < rows ? step : rows;
    s->raw = malloc((size_t)(step * columns) * sizeof(float));
    plain = malloc((size_t)(location->transposed ? step * columns : 1) * sizeof(float));
    if (!s->raw || !plain || !to)
        status = wf_error_set(s->error, WF_ENOMEM, "no memory to read %s", s->entry->name);
    for (int64_t row = 0; row < rows && status == WF_OK; row += n) {
        wf_hf_row(location, part, row, &n);
        n = n < step ? n : step;
        n = n < rows - row ? n : rows - row;
        status = read_slab(s, location, part, row, n, plain, to);
    }
    free(s->raw);
    free(plain);
    return status;
}

static wf_status check_entry(const wf_hf_files *files, int64_t file,
                             const wf_safetensors_entry *e, const wf_hf_location *location,
                             const char *path, wf_error *error)
{
    bool same = e->ndim == location->ndim;

    if (e->dtype == WF_ST_U8)
        return WF_OK; /* tensors beside it have its shape */

    for (int d = 0; same && d < e->ndim; d++)
        same = e->shape[d] == location->shape[d];
    if (!same)
        return wf_error_set(error, WF_EDATA,
                            "%s: tensor \"%s\" has another shape than config.json makes of it "
                            "(parameter %s): the two belong to different models",
                            files->file[file].path, e->name, path);
    if (!wf_converts(e->dtype))
        return wf_error_set(error, WF_EDATA,
                            "%s: tensor \"%s\" is %s, and weights are read from F32, BF16 and "
                            "F16",
                            files->file[file].path, e->name,
                            wf_safetensors_dtype_name(e->dtype));
    return WF_OK;
}

/* Finds where a parameter lies in the files: in one tensor, or a tensor for each expert. */
static wf_status location_of(const wf_hf_weights *w, const wf_nn_gpt_config *model,
                             const wf_nn_parameter *p, wf_hf_location *location,
                             wf_error *error)
{
    if (wf_hf_location_of(w->config.family, model, p, location))
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        "parameter %s has no name in a %s of transformers", p->path,
                        w->config.family->type);
}

/* Finds the tensor of a location. */
static wf_status locate(wf_hf_weights *w, const wf_nn_parameter *p, source *s,
                        const wf_hf_location *location)
{
    int64_t file;
    wf_status status;

    s->entry = wf_hf_weights_find(w, location, &file);
    if (!s->entry)
        return wf_error_set(s->error, WF_EDATA,
                            "%s has no tensor \"%s\", which parameter %s would be read from",
                            w->files.folder, location->name, p->path);
    status = check_entry(&w->files, file, s->entry, location, p->path, s->error);
    if (status == WF_OK)
        status = wf_hf_reader(&w->files, file, &s->file, s->error);
    s->data = w->files.file[file].header.data + s->entry->begin;
    if (status == WF_OK && s->entry->dtype == WF_ST_U8) {
        status = wf_hf_nf4_open(&s->nf4, &w->files, file, s->entry, location->ndim,
                                location->shape, s->error);
        if (status == WF_OK) /* tensors beside it may be in another file */
            status = wf_hf_reader(&w->files, file, &s->file, s->error);
    }
    return status;
}

/* Reads piece k of a location into its rows of the rank's part, where it has them; a piece that
   the files lack is an error on all ranks. */
static wf_status read_piece(wf_hf_weights *w, const wf_nn_parameter *p,
                            const wf_hf_location *location, int64_t k, float *to,
                            wf_error *error)
{
    source s = {.error = error};
    wf_part part = wf_hf_part(location, p->tensor);
    wf_hf_location one;

    wf_hf_location_piece(location, k, &one);
    if (location->pieces) {
        int64_t row = k - part.start[0];

        part.ndim--;
        memmove(part.start, part.start + 1, (size_t)part.ndim * sizeof *part.start);
        if (row < 0 || row >= part.local[0])
            to = NULL;
        memmove(part.local, part.local + 1, (size_t)part.ndim * sizeof *part.local);
        to = to ? to + row * wf_part_count(&part) : NULL;
    }
    if (locate(w, p, &s, &one) == WF_OK && (to || !location->pieces))
        read_part(&s, &one, &part, to);
    wf_hf_nf4_close(&s.nf4);
    return error->code;
}

wf_status wf_hf_weights_read(wf_hf_weights *w, const wf_nn_gpt_config *model,
                             const wf_nn_parameter *p, float *to, wf_error *error)
{
    wf_hf_location location;

    if (w->is_gguf)
        return wf_gguf_weights_read(&w->gguf, model, p, to, error);
    if (location_of(w, model, p, &location, error) != WF_OK)
        return error->code;
    for (int64_t k = 0; k < (location.pieces ? location.pieces : 1) && error->code == WF_OK;
         k++)
        read_piece(w, p, &location, k, to, error);
    return error->code;
}

wf_safetensors_dtype wf_hf_weights_dtype(wf_hf_weights *w, const wf_nn_gpt_config *model,
                                         const wf_nn_parameter *p)
{
    const wf_safetensors_entry *entry;
    wf_hf_location location;
    int64_t file;

    if (w->is_gguf) {
        wf_gguf_type type = wf_gguf_weights_type(&w->gguf, model, p);

        return type == WF_GGUF_F16 ? WF_ST_F16 : type == WF_GGUF_BF16 ? WF_ST_BF16 : WF_ST_F32;
    }
    entry = NULL;
    if (wf_hf_location_of(w->config.family, model, p, &location)) {
        wf_hf_location_piece(&location, 0, &location);
        entry = wf_hf_weights_find(w, &location, &file);
    }
    return entry && entry->dtype != WF_ST_U8 ? entry->dtype : WF_ST_F32;
}

/* A file's own codes and scales, where it has such of just this matrix; *done says whether. */
static wf_status load_stored(wf_hf_weights *w, const wf_nn_gpt_config *model,
                             wf_nn_parameter *p, bool *done, wf_error *error)
{
    source s = {.error = error};
    wf_hf_location at;

    if (!w->is_gguf && location_of(w, model, p, &at, error) == WF_OK && !at.pieces &&
        locate(w, p, &s, &at) == WF_OK && s.nf4.nested && !at.transposed &&
        s.nf4.numbers == wf_tensor_count(p->tensor)) {
        *done = true;
        wf_hf_nf4_store(&s.nf4, s.file, p->tensor, error);
    }
    wf_hf_nf4_close(&s.nf4);
    return error->code;
}

/* Returns true where a folder has matrices of 4 bits, as bitsandbytes stores them. */
static bool has_nf4(const wf_hf_weights *w)
{
    for (int64_t i = 0; !w->is_gguf && i < w->files.count; i++)
        for (int64_t k = 0; k < w->files.file[i].header.count; k++)
            if (strstr(w->files.file[i].header.entry[k].name, ".quant_state.bitsandbytes__nf4"))
                return true;
    return false;
}

/* Refuses to quantise what a folder in 4 bits has left as floats, as its llm_int8_skip_modules
   say. */
static wf_status check_left(wf_hf_weights *w, const wf_nn_gpt_config *model,
                            const wf_nn_parameter *p, wf_error *error)
{
    wf_hf_location location = {.pieces = 0}, one;
    int64_t file;
    const wf_safetensors_entry *e = NULL;

    if (!w->is_gguf && has_nf4(w) && wf_hf_location_of(w->config.family, model, p, &location)) {
        wf_hf_location_piece(&location, 0, &one);
        e = wf_hf_weights_find(w, &one, &file);
    }
    if (e && e->dtype == WF_ST_U8 && location.pieces)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s: \"%s\" is one expert in 4 bits, whose scales would be "
                            "quantised once more with those of all experts: store the base as "
                            "floats (its numbers stay those of the files)",
                            w->files.folder, e->name);
    if (!e || e->dtype == WF_ST_U8)
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        "%s: \"%s\" is left as floats beside matrices of 4 bits, and would be "
                        "quantised with the rest of the base: store the base as floats (its "
                        "numbers stay those of the files)",
                        w->files.folder, e->name);
}

/* Numbers of any file become nf4 here. */
static wf_status load_nf4(wf_par *par, wf_hf_weights *w, const wf_nn_gpt_config *model,
                          wf_nn_parameter *p, wf_error *error)
{
    float *values;
    bool done = false;
    wf_status status = check_left(w, model, p, error);

    if (status == WF_OK)
        status = load_stored(w, model, p, &done, error);
    if (status != WF_OK || done)
        return status;
    values = malloc((size_t)wf_tensor_local_count(p->tensor) * sizeof *values + 1);
    if (!values)
        return wf_error_set(error, WF_ENOMEM, "no memory for the numbers of %s", p->path);
    status = wf_hf_weights_read(w, model, p, values, error);
    if (status == WF_OK && wf_par_quantise(par, p->tensor, values) != WF_OK)
        status = wf_error_set(error, wf_context_status(wf_par_context(par)), "%s: %s", p->path,
                              wf_context_error(wf_par_context(par))->text);
    free(values);
    return status;
}

static wf_status find_piece(wf_hf_weights *w, const wf_nn_parameter *p,
                            const wf_hf_location *location, int64_t k, wf_error *error)
{
    source s = {.error = error};
    wf_hf_location one;

    wf_hf_location_piece(location, k, &one);
    if (error->code == WF_OK)
        locate(w, p, &s, &one);
    wf_hf_nf4_close(&s.nf4);
    return error->code;
}

wf_status wf_hf_weights_find_parameter(wf_hf_weights *w, const wf_nn_gpt_config *model,
                                       const wf_nn_parameter *p, wf_error *error)
{
    wf_hf_location location;

    if (w->is_gguf)
        return wf_gguf_weights_find(&w->gguf, model, p, error);
    if (location_of(w, model, p, &location, error) != WF_OK)
        return error->code;
    for (int64_t k = 0; k < (location.pieces ? location.pieces : 1); k++)
        find_piece(w, p, &location, k, error);
    return error->code;
}

static wf_status load_parameter(void *arg, wf_hf_weights *w, const wf_nn_gpt_config *model,
                                wf_nn_parameter *p, wf_error *error)
{
    wf_par *par = arg;
    wf_host_data view;
    wf_status status;

    if (wf_tensor_is_fake(p->tensor)) /* another rank's: that it is there counts for all */
        return wf_hf_weights_find_parameter(w, model, p, error);
    if (p->tensor->dtype == WF_NF4)
        return load_nf4(par, w, model, p, error);
    status = wf_hf_weights_read(w, model, p, wf_data_write_f32(p->tensor, &view), error);
    wf_data_close(&view);
    return status;
}

wf_status wf_hf_weights_each(wf_hf_weights *w, wf_nn_gpt *model, wf_hf_weights_call *each,
                             void *arg, wf_error *error)
{
    int64_t count = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);
    wf_status status = WF_OK;

    if (!p)
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; i < count && status == WF_OK; i++)
        if (!p[i]->adapter && !p[i]->counted) /* files have neither: they begin as zeros */
            status = each(arg, w, &model->config, p[i], error);
    free(p);
    return status == WF_OK ? wf_hf_weights_check_unused(w, error) : status;
}

static wf_status load_all(wf_par *par, wf_nn_gpt *model, const wf_file_calls *calls,
                          const char *folder, wf_error *error)
{
    wf_hf_weights w;
    wf_status status = wf_hf_weights_open(&w, calls, folder, &model->config, error);

    if (status == WF_OK) {
        wf_par_models_change(par);
        status = wf_hf_weights_each(&w, model, load_parameter, par, error);
    }
    wf_hf_weights_close(&w);
    return status;
}

wf_status wf_hf_load(wf_par *par, wf_nn_gpt *model, const wf_file_calls *calls,
                     const char *folder)
{
    wf_context *ctx = wf_par_context(par);
    wf_comm *world = wf_mesh_world(wf_par_mesh(par));
    wf_error error = {WF_OK, ""};
    wf_status status;

    if (!model || wf_context_status(ctx) != WF_OK || wf_context_dry_run(ctx))
        return wf_context_status(ctx);
    wf_comm_at_files(world, true);
    status = load_all(par, model, calls, folder, &error);
    wf_comm_at_files(world, false);
    return status == WF_OK ? WF_OK : wf_fail(ctx, status, "%s", error.text);
}

wf_status wf_par_pretrained_load(wf_par *par, wf_nn_gpt *model, const char *folder)
{
    return wf_hf_load(par, model, &wf_system_files, folder);
}
