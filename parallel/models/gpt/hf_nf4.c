/* parallel/models/gpt/hf_nf4.c - see the header. */
#include "parallel/models/gpt/hf_nf4_internal.h"
#include "core/host_data.h"
#include "parallel/formats/json_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLAB = 1 << 20,     /* numbers that are read at a time */
    STATE_BYTES = 4096, /* most bytes of a quant_state */
    NAME = WF_SAFETENSORS_NAME + 64
};

/* A matrix that is being opened: its files, and the name that those of its parts begin with. */
typedef struct beside {
    wf_hf_files *files;
    const char *name;
    wf_error *error;
} beside;

/* The numbers of the tensor that is called so; NULL on errors. Owner: caller, free. */
static void *read_beside(const beside *b, const char *what, wf_safetensors_dtype dtype,
                         int64_t count)
{
    char name[NAME];
    const wf_safetensors_entry *e;
    const wf_file *reader;
    int64_t file, bytes = count * wf_safetensors_dtype_size(dtype);
    char *data;

    snprintf(name, sizeof name, "%s.%s", b->name, what);
    e = wf_hf_find(b->files, name, &file);
    if (!e || e->dtype != dtype || e->end - e->begin != bytes) {
        wf_error_set(b->error, WF_EDATA,
                     "%s: a matrix \"%s\" of u8 needs \"%s\" beside it, %lld numbers of %s, as "
                     "bitsandbytes stores NF4, and it %s",
                     b->files->folder, b->name, name, (long long)count,
                     wf_safetensors_dtype_name(dtype), e ? "is something else" : "is missing");
        return NULL;
    }
    data = calloc((size_t)bytes + 1, 1);
    if (!data)
        wf_error_set(b->error, WF_ENOMEM, "no memory for \"%s\"", name);
    else if (wf_hf_reader(b->files, file, &reader, b->error) == WF_OK &&
             wf_file_read(reader, data, (size_t)bytes,
                          b->files->file[file].header.data + e->begin, b->error) == WF_OK)
        return data;
    free(data);
    return NULL;
}

/* Checks that levels are those that Weft knows. */
static wf_status check_map(const beside *b, const char *what, int64_t count, const float *known)
{
    float *map = read_beside(b, what, WF_ST_F32, count);

    if (map && memcmp(map, known, (size_t)count * sizeof *map) != 0 && b->error->code == WF_OK)
        wf_error_set(b->error, WF_EDATA, "%s: the levels of \"%s.%s\" are not those of NF4",
                     b->files->folder, b->name, what);
    free(map);
    return b->error->code;
}

static int64_t bytes_of(const beside *b, const char *what)
{
    char name[NAME];
    const wf_safetensors_entry *e;
    int64_t file;

    snprintf(name, sizeof name, "%s.%s", b->name, what);
    e = wf_hf_find(b->files, name, &file);
    return e ? e->end - e->begin : 0;
}

static wf_status check_shape(const json_t *state, int ndim, const int64_t *shape,
                             const char *name, wf_error *error)
{
    const json_t *list = json_object_get(state, "shape");
    bool same = json_array_size(list) == (size_t)ndim;

    for (int d = 0; same && d < ndim; d++)
        same = json_integer_value(json_array_get(list, (size_t)d)) == shape[d];
    return same ? WF_OK
                : wf_error_set(error, WF_EDATA,
                               "%s is of a matrix of another shape than "
                               "config.json makes of it",
                               name);
}

wf_status wf_hf_nf4_state_parse(wf_hf_nf4_state *s, const char *name, const char *text,
                                size_t bytes, int ndim, const int64_t *shape, wf_error *error)
{
    int64_t block = 0, nested_block = WF_NF4_NESTED;
    wf_json_source from = {.name = name, .error = error};
    json_t *state = NULL;

    *s = (wf_hf_nf4_state){.nested = false};
    if (wf_json_parse(&state, name, text, bytes, 3, error) != WF_OK)
        return error->code;
    from.object = state;
    s->nested = json_object_get(state, "nested_offset") != NULL;
    if (wf_json_int(&from, "blocksize", 1, INT_MAX, NULL, &block) == WF_OK &&
        wf_json_int(&from, "nested_blocksize", 1, INT_MAX, &nested_block, &nested_block) ==
            WF_OK &&
        check_shape(state, ndim, shape, name, error) == WF_OK && s->nested)
        wf_json_real(&from, "nested_offset", -1e38, 1e38, NULL, &s->offset);
    json_decref(state);
    if (error->code == WF_OK && (block != WF_NF4_BLOCK || nested_block != WF_NF4_NESTED))
        wf_error_set(error, WF_EUNSUPPORTED,
                     "%s has blocks of %lld numbers and %lld scales, and %d and %d are "
                     "what Weft reads (bitsandbytes' own)",
                     name, (long long)block, (long long)nested_block, WF_NF4_BLOCK,
                     WF_NF4_NESTED);
    return error->code;
}

static wf_status read_state(const beside *b, wf_hf_nf4 *q, int ndim, const int64_t *shape,
                            double *offset)
{
    static const char what[] = "quant_state.bitsandbytes__nf4";
    int64_t bytes = bytes_of(b, what);
    char *text, name[NAME + 304];
    wf_hf_nf4_state state;

    snprintf(name, sizeof name, "%.300s: %s.%s", b->files->folder, b->name, what);
    if (bytes > STATE_BYTES)
        return wf_error_set(b->error, WF_EDATA, "%s has %lld bytes, %d at most", name,
                            (long long)bytes, STATE_BYTES);
    text = read_beside(b, what, WF_ST_U8, bytes);
    if (text && wf_hf_nf4_state_parse(&state, name, text, (size_t)bytes, ndim, shape,
                                      b->error) == WF_OK) {
        q->nested = state.nested;
        *offset = state.offset;
    }
    free(text);
    return b->error->code;
}

/* The scales themselves, of their codes. */
static wf_status widen_scales(const beside *b, wf_hf_nf4 *q, double offset)
{
    int64_t nested = wf_nf4_nested(q->blocks);
    float *by = read_beside(b, "nested_absmax", WF_ST_F32, nested);

    q->code = read_beside(b, "absmax", WF_ST_U8, q->blocks);
    q->absmax = malloc((size_t)q->blocks * sizeof *q->absmax + 1);
    q->scales = malloc((size_t)(1 + nested) * sizeof *q->scales);
    if (by && q->code && q->absmax && q->scales) {
        q->scales[0] = (float)offset;
        memcpy(q->scales + 1, by, (size_t)nested * sizeof *by);
        for (int64_t i = 0; i < q->blocks; i++) {
            float x = wf_dynamic8_signed[q->code[i]] * by[i / WF_NF4_NESTED];

            q->absmax[i] = x + q->scales[0];
        }
    } else if (b->error->code == WF_OK) {
        wf_error_set(b->error, WF_ENOMEM, "no memory for the scales of \"%s\"", b->name);
    }
    free(by);
    return b->error->code;
}

wf_status wf_hf_nf4_open(wf_hf_nf4 *q, wf_hf_files *files, int64_t file,
                         const wf_safetensors_entry *entry, int ndim, const int64_t *shape,
                         wf_error *error)
{
    const beside b = {files, entry->name, error};
    double offset = 0;

    *q = (wf_hf_nf4){.numbers = 1, .file = file};
    q->at = files->file[file].header.data + entry->begin;
    for (int d = 0; d < ndim; d++)
        q->numbers *= shape[d];
    q->blocks = wf_nf4_blocks(q->numbers);
    if (entry->end - entry->begin != (q->numbers + 1) / 2)
        return wf_error_set(error, WF_EDATA,
                            "%s: tensor \"%s\" has %lld bytes of u8, and as NF4 it would have "
                            "%lld: it is stored as something that Weft does not read",
                            files->folder, entry->name, (long long)(entry->end - entry->begin),
                            (long long)((q->numbers + 1) / 2));
    if (read_state(&b, q, ndim, shape, &offset) != WF_OK ||
        check_map(&b, "quant_map", WF_NF4_LEVELS, wf_nf4_levels) != WF_OK)
        return error->code;
    if (q->nested)
        return check_map(&b, "nested_quant_map", WF_DYNAMIC8_LEVELS, wf_dynamic8_signed) ==
                       WF_OK
                   ? widen_scales(&b, q, offset)
                   : error->code;
    q->absmax = read_beside(&b, "absmax", WF_ST_F32, q->blocks);
    return error->code;
}

void wf_hf_nf4_close(wf_hf_nf4 *q)
{
    free(q->code);
    free(q->scales);
    free(q->absmax);
    *q = (wf_hf_nf4){.numbers = 0};
}

/* The bytes that n numbers from `first` on are in. */
static uint8_t *read_bytes(const wf_hf_nf4 *q, const wf_file *reader, int64_t first, int64_t n,
                           wf_error *error)
{
    int64_t begin = first / 2, end = (first + n + 1) / 2;
    uint8_t *bytes = malloc((size_t)(end - begin) + 1);

    if (!bytes)
        wf_error_set(error, WF_ENOMEM, "no memory to read %lld numbers", (long long)n);
    else if (wf_file_read(reader, bytes, (size_t)(end - begin), q->at + begin, error) == WF_OK)
        return bytes;
    free(bytes);
    return NULL;
}

wf_status wf_hf_nf4_read(const wf_hf_nf4 *q, const wf_file *reader, int64_t first, int64_t n,
                         float *to, wf_error *error)
{
    uint8_t *bytes = read_bytes(q, reader, first, n, error);

    for (int64_t i = first; bytes && i < first + n; i++) {
        uint8_t pair = bytes[i / 2 - first / 2];

        *to++ = wf_nf4_levels[i % 2 ? pair & 15 : pair >> 4] * q->absmax[i / WF_NF4_BLOCK];
    }
    free(bytes);
    return bytes ? WF_OK : error->code;
}

/* Rows [row, row + rows) of a part, from the numbers that are read. */
static wf_status store_rows(const wf_hf_nf4 *q, const wf_file *reader, const wf_nf4_part *part,
                            int64_t row, int64_t rows, uint8_t *to, wf_error *error)
{
    int64_t first = wf_nf4_row(part, row) * part->width + part->first_column;
    int64_t end =
        wf_nf4_row(part, row + rows - 1) * part->width + part->first_column + part->columns;
    uint8_t *bytes = read_bytes(q, reader, first, end - first, error);

    for (int64_t r = row; bytes && r < row + rows; r++)
        wf_nf4_copy_row(part, r, bytes, first / 2 * 2, q->code,
                        to + (size_t)r * wf_nf4_row_bytes(part));
    free(bytes);
    return bytes ? WF_OK : error->code;
}

wf_status wf_hf_nf4_store(const wf_hf_nf4 *q, const wf_file *reader, wf_tensor *t,
                          wf_error *error)
{
    const wf_nf4_part part = wf_nf4_part_of(t);
    int64_t step = part.width < SLAB ? SLAB / part.width : 1, left;
    wf_host_data view[2];
    float *scales = wf_data_write(t->scales, false, &view[0]);
    uint8_t *to = wf_data_write(t, false, &view[1]);
    wf_status status = WF_OK;

    if (!scales || !to)
        status = wf_error_set(error, WF_ENOMEM, "no memory to read a matrix of 4 bits");
    else
        memcpy(scales, q->scales, wf_tensor_bytes(t->scales));
    for (int64_t r = 0; status == WF_OK && part.columns && r < part.rows; r += step) {
        left = part.rows - r;
        status = store_rows(q, reader, &part, r, left < step ? left : step, to, error);
    }
    wf_data_close(&view[1]);
    wf_data_close(&view[0]);
    return status;
}
