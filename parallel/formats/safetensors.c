/* parallel/formats/safetensors.c - headers of safetensors files; see the header. */
#include "parallel/formats/safetensors_internal.h"
#include "parallel/formats/json_internal.h"
#include "core/files/input.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_DEPTH = 3 }; /* header, tensor, its shape */

static const struct {
    const char *name;
    int64_t size;
} dtypes[] = {
    [WF_ST_F64] = {"F64", 8},   [WF_ST_F32] = {"F32", 4}, [WF_ST_F16] = {"F16", 2},
    [WF_ST_BF16] = {"BF16", 2}, [WF_ST_I64] = {"I64", 8}, [WF_ST_I32] = {"I32", 4},
    [WF_ST_I16] = {"I16", 2},   [WF_ST_I8] = {"I8", 1},   [WF_ST_U64] = {"U64", 8},
    [WF_ST_U32] = {"U32", 4},   [WF_ST_U16] = {"U16", 2}, [WF_ST_U8] = {"U8", 1},
    [WF_ST_BOOL] = {"BOOL", 1},
};

/* The text being parsed, for errors. */
typedef struct source {
    const char *file, *tensor;
    wf_error *error;
} source;

const char *wf_safetensors_dtype_name(wf_safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t wf_safetensors_dtype_size(wf_safetensors_dtype dtype)
{
    return dtypes[dtype].size;
}

static wf_status wrong(const source *s, const char *what)
{
    if (!s->tensor)
        return wf_error_set(s->error, WF_EDATA,
                            "%s is no safetensors file that can be used: %s", s->file, what);
    return wf_error_set(s->error, WF_EDATA, "%s: tensor \"%.80s\": %s", s->file, s->tensor,
                        what);
}

static wf_status no_memory(const source *s)
{
    return wf_error_set(s->error, WF_ENOMEM, "no memory for the header of %s", s->file);
}

static wf_status parse_dtype(const source *s, const json_t *value, wf_safetensors_dtype *dtype)
{
    const char *text = json_string_value(value);

    if (!text)
        return wrong(s, "\"dtype\" is missing or no text");
    for (int i = 0; i < WF_ST_DTYPES; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            *dtype = (wf_safetensors_dtype)i;
            return WF_OK;
        }
    return wrong(s, "its \"dtype\" is not known");
}

/* The bytes of a shape, or -1 where there are more than 2^63. */
static int64_t shape_bytes(int ndim, const int64_t *shape, int64_t element)
{
    int64_t bytes = element;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            return 0;
        if (bytes > INT64_MAX / shape[i])
            return -1;
        bytes *= shape[i];
    }
    return bytes;
}

static wf_status parse_shape(const source *s, const json_t *value, wf_safetensors_entry *e)
{
    size_t n = json_array_size(value);

    if (!json_is_array(value))
        return wrong(s, "\"shape\" is missing or no list");
    if (n > WF_SAFETENSORS_DIMS)
        return wrong(s, "\"shape\" has more than 8 dims");
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(value, i);

        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return wrong(s, "a size in \"shape\" is no whole number from 0 on");
        e->shape[i] = json_integer_value(size);
    }
    e->ndim = (int)n;
    return WF_OK;
}

static wf_status parse_offsets(const source *s, const json_t *value, wf_safetensors_entry *e,
                               int64_t data_bytes)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    int64_t bytes = shape_bytes(e->ndim, e->shape, dtypes[e->dtype].size);

    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return wrong(s, "\"data_offsets\" is not a list of two whole numbers");
    e->begin = json_integer_value(begin);
    e->end = json_integer_value(end);
    if (e->begin < 0 || e->end < e->begin)
        return wrong(s, "\"data_offsets\" do not rise from 0 on");
    if (e->end > data_bytes)
        return wrong(s, "\"data_offsets\" reach past the end of the file: it is cut short, or "
                        "its header is damaged");
    if (bytes < 0)
        return wrong(s, "\"shape\" has more bytes than any file");
    if (bytes != e->end - e->begin)
        return wrong(s,
                     "\"data_offsets\" are not as many bytes as \"shape\" and \"dtype\" say");
    return WF_OK;
}

static wf_status parse_entry(const source *s, json_t *value, wf_safetensors_entry *e,
                             int64_t data_bytes)
{
    wf_status status;

    if (!json_is_object(value) || json_object_size(value) != 3)
        return wrong(s,
                     "it is not described by \"dtype\", \"shape\" and \"data_offsets\" alone");
    status = parse_dtype(s, json_object_get(value, "dtype"), &e->dtype);
    if (status == WF_OK)
        status = parse_shape(s, json_object_get(value, "shape"), e);
    if (status == WF_OK)
        status = parse_offsets(s, json_object_get(value, "data_offsets"), e, data_bytes);
    return status;
}

static wf_status parse_metadata(const source *s, json_t *object, wf_safetensors *h)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return wrong(s, "\"__metadata__\" is no object");
    h->metadata = calloc(2 * json_object_size(object) + 1, sizeof *h->metadata);
    if (!h->metadata)
        return no_memory(s);
    json_object_foreach(object, key, value)
    {
        char **pair = h->metadata + 2 * h->metadata_count;

        if (!json_is_string(value))
            return wrong(s, "a value in \"__metadata__\" is no text");
        pair[0] = strdup(key);
        pair[1] = strdup(json_string_value(value));
        h->metadata_count++;
        if (!pair[0] || !pair[1])
            return no_memory(s);
    }
    return WF_OK;
}

static int by_begin(const void *a, const void *b)
{
    const wf_safetensors_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const wf_safetensors_entry *)a)->name,
                  ((const wf_safetensors_entry *)b)->name);
}

/* The tensors have to lie side by side and fill the data. */
static wf_status check_cover(source *s, wf_safetensors *h)
{
    int64_t at = 0;

    qsort(h->entry, (size_t)h->count, sizeof *h->entry, by_begin);
    for (int64_t i = 0; i < h->count; i++) {
        s->tensor = h->entry[i].name;
        if (h->entry[i].begin < at)
            return wrong(s, "it lies over the tensor before it");
        if (h->entry[i].begin > at)
            return wrong(s, "there is a gap before it");
        at = h->entry[i].end;
    }
    s->tensor = NULL;
    if (at != h->data_bytes)
        return wrong(s, "there are bytes after the last tensor");
    qsort(h->entry, (size_t)h->count, sizeof *h->entry, by_name);
    return WF_OK;
}

static wf_status parse_object(source *s, json_t *object, wf_safetensors *h)
{
    wf_status status = WF_OK;
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return wrong(s, "its header is no JSON object");
    h->entry = calloc(json_object_size(object) + 1, sizeof *h->entry);
    if (!h->entry)
        return no_memory(s);
    json_object_foreach(object, key, value)
    {
        wf_safetensors_entry *e = &h->entry[h->count];

        s->tensor = NULL;
        if (strcmp(key, "__metadata__") == 0) {
            status = parse_metadata(s, value, h);
        } else {
            if (!*key || strlen(key) >= WF_SAFETENSORS_NAME || !wf_json_printable(key))
                return wrong(s, "the name of a tensor is empty, longer than 511 bytes, or has "
                                "control characters in it");
            s->tensor = key;
            status = parse_entry(s, value, e, h->data_bytes);
            if (status == WF_OK && !(e->name = strdup(key)))
                status = no_memory(s);
            h->count += e->name != NULL;
        }
        if (status != WF_OK)
            return status;
    }
    s->tensor = NULL;
    return check_cover(s, h);
}

wf_status wf_safetensors_parse(wf_safetensors *h, const char *name, const char *json,
                               size_t json_bytes, int64_t data_bytes, wf_error *error)
{
    source s = {.file = name, .error = error};
    json_t *object;
    wf_status status;

    *h = (wf_safetensors){.data = 8 + (int64_t)json_bytes, .data_bytes = data_bytes};
    if (!json_bytes || json[0] != '{') /* so the format demands */
        return wrong(&s, "its header does not begin with {");
    status = wf_json_parse(&object, name, json, json_bytes, HEADER_DEPTH, error);
    if (status != WF_OK)
        return status;
    status = parse_object(&s, object, h);
    json_decref(object);
    if (status != WF_OK)
        wf_safetensors_close(h);
    return status;
}

wf_status wf_safetensors_read(wf_safetensors *h, const wf_file *file, wf_error *error)
{
    source s = {.file = file->path, .error = error};
    unsigned char length[8];
    char begin[32] = "";
    uint64_t n = 0;
    wf_status status;
    char *json;

    *h = (wf_safetensors){.count = 0};
    if (file->bytes < 8)
        return wrong(&s, "it has fewer than 8 bytes");
    status = wf_file_read(file, length, sizeof length, 0, error);
    if (status != WF_OK)
        return status;
    if (memcmp(length, "version ", sizeof length) == 0 && file->bytes >= (int64_t)sizeof begin)
        status = wf_file_read(file, begin, sizeof begin, 0, error);
    if (status != WF_OK || wf_input_pointer(begin, sizeof begin))
        return status != WF_OK ? status : wrong(&s, wf_input_pointer(begin, sizeof begin));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (n > WF_SAFETENSORS_HEADER || n > (uint64_t)(file->bytes - 8))
        return wrong(&s, "the length of its header is longer than the file or than 16 MiB");
    json = malloc(n + 1);
    if (!json)
        return no_memory(&s);
    status = wf_file_read(file, json, n, 8, error);
    if (status == WF_OK)
        status =
            wf_safetensors_parse(h, file->path, json, n, file->bytes - 8 - (int64_t)n, error);
    free(json);
    return status;
}

void wf_safetensors_close(wf_safetensors *h)
{
    for (int64_t i = 0; i < h->count; i++)
        free(h->entry[i].name);
    for (int64_t i = 0; i < 2 * h->metadata_count; i++)
        free(h->metadata[i]);
    free(h->entry);
    free(h->metadata);
    *h = (wf_safetensors){.count = 0};
}

const wf_safetensors_entry *wf_safetensors_find(const wf_safetensors *h, const char *name)
{
    const wf_safetensors_entry key = {.name = (char *)name};

    return h->count ? bsearch(&key, h->entry, (size_t)h->count, sizeof key, by_name) : NULL;
}

const char *wf_safetensors_metadata(const wf_safetensors *h, const char *key)
{
    for (int64_t i = 0; i < h->metadata_count; i++)
        if (strcmp(h->metadata[2 * i], key) == 0)
            return h->metadata[2 * i + 1];
    return NULL;
}

/* Places a tensor after the last one. */
static wf_status append(wf_safetensors_entry *e, int64_t *at, wf_error *error)
{
    int64_t bytes = shape_bytes(e->ndim, e->shape, dtypes[e->dtype].size);

    if (bytes < 0 || bytes > INT64_MAX - *at)
        return wf_error_set(error, WF_EINVAL, "tensor \"%s\" has more bytes than any file",
                            e->name);
    e->begin = *at;
    e->end = *at += bytes;
    return WF_OK;
}

static json_t *describe(const wf_safetensors_entry *e)
{
    json_t *shape = json_array();

    for (int i = 0; i < e->ndim; i++)
        json_array_append_new(shape, json_integer(e->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[e->dtype].name, "shape", shape,
                     "data_offsets", (json_int_t)e->begin, (json_int_t)e->end);
}

static char *with_length(const char *json, size_t *n_bytes)
{
    size_t n = strlen(json), padded = (n + 7) / 8 * 8;
    char *bytes = malloc(8 + padded);

    if (!bytes)
        return NULL;
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(padded >> 8 * i & 0xff);
    memcpy(bytes + 8, json, n);
    memset(bytes + 8 + n, ' ', padded - n);
    *n_bytes = 8 + padded;
    return bytes;
}

wf_status wf_safetensors_format(int64_t count, wf_safetensors_entry *entry,
                                int64_t metadata_count, const char *const *metadata,
                                char **bytes, size_t *n_bytes, wf_error *error)
{
    json_t *object = json_object(), *texts = json_object();
    wf_status status = WF_OK;
    int64_t at = 0;
    char *json;
    int bad = 0; /* jansson gives -1 where memory is short or a text is no UTF-8 */

    for (int64_t i = 0; i < metadata_count; i++)
        bad |= json_object_set_new(texts, metadata[2 * i], json_string(metadata[2 * i + 1]));
    if (metadata_count)
        bad |= json_object_set(object, "__metadata__", texts);
    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        status = append(&entry[i], &at, error);
        bad |= json_object_set_new(object, entry[i].name, describe(&entry[i]));
    }
    json = bad || status != WF_OK ? NULL : json_dumps(object, JSON_COMPACT);
    *bytes = json ? with_length(json, n_bytes) : NULL;
    free(json);
    json_decref(object);
    json_decref(texts);
    if (!*bytes && status == WF_OK)
        status = wf_error_set(error, WF_ENOMEM, "no memory for a header of %" PRId64 " tensors",
                              count);
    if (status == WF_OK && *n_bytes - 8 > WF_SAFETENSORS_HEADER) {
        free(*bytes);
        *bytes = NULL;
        status =
            wf_error_set(error, WF_EINVAL,
                         "a header of %" PRId64 " tensors has %zu bytes, and no reader takes "
                         "more than %d: save in more files",
                         count, *n_bytes, WF_SAFETENSORS_HEADER);
    }
    return status;
}
