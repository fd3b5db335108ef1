/* tests/nn/safetensors_file.c - reading safetensors; see the header. */
#include "tests/nn/safetensors_file.h"
#include <endian.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct safetensors {
    char *bytes, *data;
    size_t data_size;
    json_t *header;
};

static const char metadata[] = "__metadata__";

static char *read_whole(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    long n = -1;

    if (f && fseek(f, 0, SEEK_END) == 0)
        n = ftell(f);
    if (n > 0 && fseek(f, 0, SEEK_SET) == 0)
        bytes = malloc((size_t)n);
    if (bytes && fread(bytes, 1, (size_t)n, f) != (size_t)n) {
        free(bytes);
        bytes = NULL;
    }
    if (f)
        fclose(f);
    *size = (size_t)n;
    return bytes;
}

static bool parse(safetensors *file, size_t size)
{
    uint64_t n;

    if (!file->bytes || size < sizeof n)
        return false;
    memcpy(&n, file->bytes, sizeof n);
    n = le64toh(n);
    if (n > size - sizeof n)
        return false;
    file->data = file->bytes + sizeof n + n;
    file->data_size = size - sizeof n - n;
    file->header = json_loadb(file->bytes + sizeof n, n, JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(file->header);
}

safetensors *safetensors_open(const char *path)
{
    safetensors *file = calloc(1, sizeof *file);
    size_t size = 0;

    if (!file)
        return NULL;
    file->bytes = read_whole(path, &size);
    if (!parse(file, size)) {
        printf("%s is not a file of safetensors\n", path);
        safetensors_close(file);
        return NULL;
    }
    return file;
}

void safetensors_close(safetensors *file)
{
    if (!file)
        return;
    json_decref(file->header);
    free(file->bytes);
    free(file);
}

bool safetensors_find(const safetensors *file, const char *name, const char *dtype,
                      safetensors_entry *e)
{
    json_t *entry = json_object_get(file->header, name), *shape, *offsets;
    const char *stored = json_string_value(json_object_get(entry, "dtype"));
    json_int_t begin, end;

    shape = json_object_get(entry, "shape");
    offsets = json_object_get(entry, "data_offsets");
    if (!stored || strcmp(stored, dtype) != 0 || json_array_size(shape) > SAFETENSORS_DIMS ||
        json_array_size(offsets) != 2)
        return false;
    *e = (safetensors_entry){.ndim = (int)json_array_size(shape), .count = 1};
    for (int i = 0; i < e->ndim; i++) {
        e->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
        e->count *= e->dim[i];
    }
    begin = json_integer_value(json_array_get(offsets, 0));
    end = json_integer_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin || (uint64_t)end > file->data_size ||
        end - begin != 4 * e->count)
        return false;
    e->data = file->data + begin;
    return true;
}

const char *safetensors_text(const safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, metadata), key));
}

double safetensors_number(const safetensors *file, const char *key)
{
    const char *text = safetensors_text(file, key);
    char *end;
    double value = text ? strtod(text, &end) : (double)NAN;

    return text && end != text && !*end ? value : (double)NAN;
}

int64_t safetensors_count(const safetensors *file)
{
    return (int64_t)json_object_size(file->header) -
           (json_object_get(file->header, metadata) != NULL);
}
