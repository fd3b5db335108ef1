/* parallel/models/gpt/gguf_save.c - a model as one GGUF file, a tensor at a time; see
   pretrained.h. */
#include "parallel/checkpoint/contents.h"
#include "core/files/output_internal.h"
#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/pretrained_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t slab_elements =
    1 << 18; /* converted at a time: 1 MiB of floats at most, or a row */

/* Numbers of general.file_type: what most tensors are. */
enum { MOSTLY_F32 = 0, MOSTLY_F16 = 1, MOSTLY_Q8_0 = 7, MOSTLY_BF16 = 32, QUANTISATION = 2 };

typedef struct save {
    wf_nn_gpt *model;
    const wf_par_gguf_options *options;
    wf_nn_parameter **parameter;
    wf_gguf_location *location; /* each parameter's */
    int64_t *tensor_of;         /* the number of its tensor */
    int64_t count, tensors;
    int64_t factors; /* the first tensors, which are of no parameter */
    wf_gguf_tensor *tensor;
    wf_hf_weights weights;            /* the folder's, or */
    wf_par_checkpoint_reader *reader; /* the checkpoint's */
    wf_gguf_header header;
    int64_t data; /* position of tensors in the file */
    wf_file *file;
    wf_error *error;
} save;

/* The type that the files have most of: that of the embedding. */
static wf_gguf_type type_of(save *s)
{
    wf_safetensors_dtype stored = WF_ST_F32;

    switch (s->options->type) {
    case WF_PAR_GGUF_FLOAT32:
        return WF_GGUF_F32;
    case WF_PAR_GGUF_FLOAT16:
        return WF_GGUF_F16;
    case WF_PAR_GGUF_Q8_0:
        return WF_GGUF_Q8_0;
    case WF_PAR_GGUF_STORED:
        break;
    }
    if (s->options->folder)
        stored = wf_hf_weights_dtype(&s->weights, &s->model->config, s->parameter[0]);
    return stored == WF_ST_F16    ? WF_GGUF_F16
           : stored == WF_ST_BF16 ? WF_GGUF_BF16
                                  : WF_GGUF_F32;
}

/* Returns true for the tensor of a router. */
static bool is_router(const wf_gguf_tensor *t)
{
    return strstr(t->name, ".ffn_gate_inp.") != NULL;
}

/* llama.cpp reads vectors and learned positions as f32 alone, and writes routers so. */
static wf_gguf_type type_of_tensor(const wf_gguf_tensor *t, wf_gguf_type type)
{
    if (t->ndim < 2 || strcmp(t->name, "position_embd.weight") == 0 || is_router(t))
        return WF_GGUF_F32;
    if (type == WF_GGUF_Q8_0 && t->shape[t->ndim - 1] % WF_GGUF_BLOCK)
        return WF_GGUF_F16;
    return type;
}

static void add_factors(save *s, const char *name, int64_t count)
{
    wf_gguf_tensor *t = &s->tensor[s->tensors++];

    *t = (wf_gguf_tensor){.ndim = 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->shape[0] = count;
    s->factors++;
}

/* Writes the tensor of divisors of frequencies, which comes first. */
static void describe_factors(save *s)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(&s->model->config);

    if (m.rope_scaling.kind == WF_ROPE_LLAMA3)
        add_factors(s, "rope_freqs.weight", m.head_dim / 2);
    if (m.rope_scaling.kind == WF_ROPE_LONG) {
        add_factors(s, WF_GGUF_LONG_FACTORS, m.rope_factors.count);
        add_factors(s, WF_GGUF_SHORT_FACTORS, m.rope_factors.count);
    }
}

/* The tensors of the file, in the order of parameters; queries, keys and values of one are
   neighbours. */
static wf_status describe(save *s)
{
    wf_gguf_type type = type_of(s);

    describe_factors(s);
    for (int64_t i = 0; i < s->count; i++) {
        const wf_tensor *p = s->parameter[i]->tensor;
        wf_gguf_location *location = &s->location[i];
        int64_t k = s->tensors > 8 ? s->tensors - 8 : 0;
        wf_gguf_tensor *t;

        if (!wf_gguf_location_of(NULL, &s->model->config, s->parameter[i], location))
            return wf_error_set(s->error, WF_EUNSUPPORTED,
                                "parameter %s has no name in GGUF: such a model is written for "
                                "transformers alone",
                                s->parameter[i]->path);
        while (k < s->tensors && strcmp(s->tensor[k].name, location->name) != 0)
            k++;
        s->tensor_of[i] = k;
        if (k < s->tensors)
            continue;
        t = &s->tensor[s->tensors++];
        memcpy(t->name, location->name, sizeof t->name);
        t->ndim = p->ndim;
        for (int d = 0; d < p->ndim; d++)
            t->shape[d] = d ? p->dim[d].size : location->rows;
        t->type = type_of_tensor(t, type);
    }
    return WF_OK;
}

static void put_general(save *s)
{
    static const wf_par_gguf_text model = {"model", 5};
    const char *given = s->options->name;
    const wf_par_gguf_text name = {given, (int64_t)strlen(given)};
    wf_gguf_type type = type_of(s);
    const uint32_t most = type == WF_GGUF_F16    ? MOSTLY_F16
                          : type == WF_GGUF_Q8_0 ? MOSTLY_Q8_0
                          : type == WF_GGUF_BF16 ? MOSTLY_BF16
                                                 : MOSTLY_F32,
                   version = QUANTISATION;
    const wf_par_gguf_key keys[] = {
        {"general.type", WF_PAR_GGUF_TEXT, false, 0, &model},
        {"general.name", WF_PAR_GGUF_TEXT, false, 0, &name},
        {"general.file_type", WF_PAR_GGUF_U32, false, 0, &most},
        {"general.quantization_version", WF_PAR_GGUF_U32, false, 0, &version}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        wf_gguf_put(&s->header, &keys[i]);
}

static wf_status open_weights(save *s)
{
    const wf_par_gguf_options *o = s->options;

    if (o->folder)
        return wf_hf_weights_open(&s->weights, &wf_system_files, o->folder, &s->model->config,
                                  s->error);
    if (wf_par_checkpoint_fits(&s->model->base, o->checkpoint, s->error) == WF_OK &&
        wf_par_checkpoint_verify(o->checkpoint, s->error) == WF_OK)
        s->reader = wf_par_checkpoint_reader_open(o->checkpoint, s->error);
    return s->error->code;
}

static wf_status prepare(save *s)
{
    const char *rope = wf_gguf_rope_missing(&s->model->config);
    int64_t all = 0;

    if (rope)
        return wf_error_set(s->error, WF_EUNSUPPORTED,
                            "GGUF is written of no model with %s: write it for transformers "
                            "(gpt_export FROM TO)",
                            rope);
    if (!wf_gguf_has(&s->model->config))
        return wf_error_set(s->error, WF_EUNSUPPORTED,
                            "GGUF is written of models that have what those of one "
                            "architecture of llama.cpp have "
                            "(docs/models.md), and this one has %s: write it for transformers "
                            "(gpt_export FROM TO)",
                            wf_gguf_missing(&s->model->config));
    s->parameter = wf_nn_parameters(&s->model->base, &all);
    for (int64_t i = 0; s->parameter && i < all; i++)
        if (!wf_nn_is_counts(s->parameter[i])) /* no part of a model there */
            s->parameter[s->count++] = s->parameter[i];
    s->location = calloc((size_t)s->count + 1, sizeof *s->location);
    s->tensor = calloc((size_t)s->count + 2, sizeof *s->tensor); /* two more: factors */
    s->tensor_of = calloc((size_t)s->count + 1, sizeof *s->tensor_of);
    if (!s->parameter || !s->location || !s->tensor || !s->tensor_of)
        return wf_error_set(s->error, WF_ENOMEM, "no memory for a list of tensors");
    if (open_weights(s) != WF_OK || describe(s) != WF_OK)
        return s->error->code;
    wf_gguf_put_config(&s->header, &s->model->config);
    put_general(s);
    for (int64_t i = 0; i < s->options->key_count; i++)
        wf_gguf_put(&s->header, &s->options->key[i]);
    return wf_gguf_end(&s->header, s->tensor, s->tensors, &s->data, s->error);
}

/* All elements of a parameter. */
static wf_status read_whole(save *s, int64_t i, float *to)
{
    const wf_nn_parameter *p = s->parameter[i];

    if (s->options->folder)
        return wf_hf_weights_read(&s->weights, &s->model->config, p, to, s->error);
    return wf_par_checkpoint_reader_read(
        s->reader, wf_par_checkpoint_find(s->options->checkpoint, p->path), WF_PAR_SAVED_VALUE,
        to, s->error);
}

static wf_status check_numbers(const save *s, int64_t i, const float *x, int64_t n)
{
    const wf_gguf_tensor *t = &s->tensor[s->tensor_of[i]];
    const float largest = wf_gguf_largest(t->type);

    for (int64_t k = 0; k < n; k++)
        if (!(fabsf(x[k]) <= largest))
            return wf_error_set(
                s->error, WF_EDATA,
                "parameter %s has the number %g, which the type of tensor %s has "
                "not: its largest is %g; .type f32 has all finite ones",
                s->parameter[i]->path, (double)x[k], t->name, (double)largest);
    return WF_OK;
}

/* Write rows [row, row + rows) of what the file has of parameter i, whose elements are at
   `from`. */
static wf_status write_rows(save *s, int64_t i, const float *from, int64_t row, int64_t rows,
                            float *ordered, char *raw)
{
    const wf_gguf_tensor *t = &s->tensor[s->tensor_of[i]];
    const wf_gguf_location *location = &s->location[i];
    int64_t all = s->parameter[i]->tensor->dim[0].size, bytes = t->bytes / t->shape[0];
    int64_t columns = wf_tensor_count(s->parameter[i]->tensor) / all, n = rows * columns;

    for (int64_t r = 0; r < rows; r++)
        memcpy(ordered + r * columns, from + wf_gguf_row(location, all, row + r) * columns,
               (size_t)columns * sizeof *ordered);
    for (int64_t k = 0; k < n && location->added != 0; k++)
        ordered[k] += location->added;
    if (check_numbers(s, i, ordered, n) != WF_OK)
        return s->error->code;
    wf_gguf_convert(t->type, ordered, raw, n);
    return wf_file_write(s->file, raw, (size_t)(rows * bytes),
                         s->data + t->begin + (location->row + row) * bytes, s->error);
}

static wf_status write_parameter(save *s, int64_t i)
{
    const wf_tensor *p = s->parameter[i]->tensor;
    int64_t count = wf_tensor_count(p), rows = p->dim[0].size, columns = count / rows, step;
    float *whole = malloc((size_t)count * sizeof *whole + 1), *ordered;
    wf_status status = WF_OK;
    char *raw;

    step = columns < slab_elements ? slab_elements / columns : 1;
    step = step < rows ? step : rows;
    ordered = malloc((size_t)(step * columns) * sizeof *ordered + 1);
    raw = malloc((size_t)(step * columns) * sizeof *ordered + 1);
    if (!whole || !ordered || !raw)
        status =
            wf_error_set(s->error, WF_ENOMEM, "no memory to write %s", s->parameter[i]->path);
    if (status == WF_OK)
        status = read_whole(s, i, whole);
    for (int64_t row = 0; row < rows && status == WF_OK; row += step)
        status =
            write_rows(s, i, whole, row, rows - row < step ? rows - row : step, ordered, raw);
    free(whole);
    free(ordered);
    free(raw);
    return status;
}

static wf_status write_factors(save *s)
{
    const wf_nn_gpt_config *m = &s->model->config;

    for (int64_t i = 0; i < s->factors && s->error->code == WF_OK; i++) {
        const wf_gguf_tensor *t = &s->tensor[i];
        float *factors = malloc((size_t)t->bytes);

        if (!factors)
            return wf_error_set(s->error, WF_ENOMEM, "no memory for the factors of a rotation");
        if (m->rope_scaling.kind == WF_ROPE_LLAMA3)
            wf_gguf_rope_factors(m, factors);
        else
            memcpy(factors, i == 0 ? m->rope_factors.long_factor : m->rope_factors.short_factor,
                   (size_t)t->bytes);
        wf_file_write(s->file, factors, (size_t)t->bytes, s->data + t->begin, s->error);
        free(factors);
    }
    return s->error->code;
}

static wf_status write_all(save *s)
{
    const wf_gguf_tensor *last = &s->tensor[s->tensors - 1];
    wf_status status;

    s->file->need = s->data + last->begin + last->bytes;
    status = wf_file_resize(s->file, s->file->need, s->error);
    if (status == WF_OK)
        status = wf_file_write(s->file, s->header.bytes, s->header.count, 0, s->error);
    if (status == WF_OK)
        status = write_factors(s);
    for (int64_t i = 0; i < s->count && status == WF_OK; i++)
        status = write_parameter(s, i);
    if (status == WF_OK && s->options->folder)
        status = wf_hf_weights_check_unused(&s->weights, s->error);
    return status;
}

static wf_status publish(save *s, const char *path)
{
    wf_output *output = wf_output_open(path, s->error);

    if (!output)
        return s->error->code;
    s->file = wf_output_file(output);
    if (write_all(s) == WF_OK)
        return wf_output_publish(output, s->error);
    wf_output_discard(output);
    return s->error->code;
}

wf_status wf_par_pretrained_save_gguf(wf_nn_gpt *model, const wf_par_gguf_options *options,
                                      const char *path, wf_error *error)
{
    save s = {.model = model, .options = options, .error = error};

    s.weights.files.open = -1;
    if (prepare(&s) == WF_OK)
        publish(&s, path);
    wf_hf_weights_close(&s.weights);
    wf_par_checkpoint_reader_close(s.reader);
    free(s.parameter);
    free(s.location);
    free(s.tensor);
    free(s.tensor_of);
    free(s.header.bytes);
    return error->code;
}
