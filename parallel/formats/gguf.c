/* parallel/formats/gguf.c - the header of a GGUF file, written; see the internal header. */
#include "parallel/formats/gguf_internal.h"
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ARRAY = 9, PROLOGUE = 24 /* magic, version and two counts */ };

static void put(wf_gguf_header *h, const void *from, size_t n)
{
    if (h->room - h->count < n && !h->no_memory) {
        size_t room = 2 * h->room + n + 4096;
        char *bytes = realloc(h->bytes, room);

        h->no_memory = !bytes;
        h->bytes = bytes ? bytes : h->bytes;
        h->room = bytes ? room : h->room;
    }
    if (h->no_memory)
        return;
    if (n)
        memcpy(h->bytes + h->count, from, n);
    h->count += n;
}

static void put_u32(wf_gguf_header *h, uint32_t x)
{
    put(h, &x, sizeof x);
}

static void put_u64(wf_gguf_header *h, uint64_t x)
{
    put(h, &x, sizeof x);
}

static void put_text(wf_gguf_header *h, const char *text, size_t bytes)
{
    put_u64(h, bytes);
    put(h, text, bytes);
}

/* The number of a kind in a file, and bytes of a value; 0: a text. */
static const struct {
    uint32_t number;
    size_t bytes;
} kinds[] = {
    [WF_PAR_GGUF_U32] = {4, 4},  [WF_PAR_GGUF_I32] = {5, 4},  [WF_PAR_GGUF_F32] = {6, 4},
    [WF_PAR_GGUF_BOOL] = {7, 1}, [WF_PAR_GGUF_TEXT] = {8, 0}, [WF_PAR_GGUF_I64] = {11, 8},
    [WF_PAR_GGUF_F64] = {12, 8}};

void wf_gguf_put(wf_gguf_header *h, const wf_par_gguf_key *key)
{
    const wf_par_gguf_text *texts = key->values;
    int64_t count = key->array ? key->count : 1;

    if (h->count == 0)
        put(h, (char[PROLOGUE]){0}, PROLOGUE);
    h->keys++;
    put_text(h, key->key, strlen(key->key));
    if (key->array)
        put_u32(h, ARRAY);
    put_u32(h, kinds[key->kind].number);
    if (key->array)
        put_u64(h, (uint64_t)count);
    if (kinds[key->kind].bytes)
        put(h, key->values, kinds[key->kind].bytes * (size_t)count);
    for (int64_t i = 0; i < count && !kinds[key->kind].bytes; i++)
        put_text(h, texts[i].text, (size_t)texts[i].bytes);
}

static int64_t aligned(int64_t n)
{
    return (n + WF_GGUF_ALIGNMENT - 1) / WF_GGUF_ALIGNMENT * WF_GGUF_ALIGNMENT;
}

static void put_tensor(wf_gguf_header *h, wf_gguf_tensor *t)
{
    int64_t rows = 1, columns = t->ndim ? t->shape[t->ndim - 1] : 1;

    put_text(h, t->name, strlen(t->name));
    put_u32(h, (uint32_t)t->ndim);
    for (int d = t->ndim - 1; d >= 0; d--)
        put_u64(h, (uint64_t)t->shape[d]);
    for (int d = 0; d < t->ndim - 1; d++)
        rows *= t->shape[d];
    put_u32(h, (uint32_t)t->type);
    put_u64(h, (uint64_t)t->begin);
    t->bytes = rows * wf_gguf_bytes(t->type, columns);
}

wf_status wf_gguf_end(wf_gguf_header *h, wf_gguf_tensor *tensors, int64_t count, int64_t *data,
                      wf_error *error)
{
    const uint64_t counts[] = {(uint64_t)count, h->keys};
    int64_t at = 0;

    for (int64_t i = 0; i < count; i++) {
        tensors[i].begin = at;
        put_tensor(h, &tensors[i]);
        at += aligned(tensors[i].bytes);
    }
    *data = aligned((int64_t)h->count);
    put(h, (char[WF_GGUF_ALIGNMENT]){0}, (size_t)*data - h->count);
    if (h->no_memory)
        return wf_error_set(error, WF_ENOMEM, "no memory for the header of a GGUF file");
    memcpy(h->bytes, "GGUF", 4);
    memcpy(h->bytes + 4, &(uint32_t){VERSION}, sizeof(uint32_t));
    memcpy(h->bytes + 8, counts, sizeof counts);
    return WF_OK;
}
