/* parallel/formats/gguf_parse.c - the header of a GGUF file, checked; see the internal
   header. */
#include "parallel/formats/gguf_internal.h"
#include "core/files/input.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY = 9, NAME = 256, MOST_DIMS = 4, TEXT_SHOWN = 80 };

static const int64_t most_elements = (int64_t)1 << 48;

typedef struct reader {
    const char *file; /* its name */
    const char *bytes;
    size_t have, at;
    int64_t size, alignment;
    bool more;
    char what[NAME]; /* the key or tensor that is read */
    wf_error *error;
} reader;

static bool wrong(reader *r, wf_status status, const char *format, ...) WF_PRINTF(3, 4);

static bool wrong(reader *r, wf_status status, const char *format, ...)
{
    char text[400], what[NAME + 16] = "";
    va_list more;

    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    if (*r->what)
        snprintf(what, sizeof what, "%s: ", r->what);
    wf_error_set(r->error, status, "%.900s: %s%s", r->file, wf_text_visible(what), text);
    return false;
}

static bool no_memory(reader *r)
{
    return wrong(r, WF_ENOMEM, "no memory for the header");
}

/* The next n bytes; NULL where there are no such, or not yet. */
static const char *take(reader *r, uint64_t n)
{
    const char *from = r->bytes + r->at;

    if (n > (uint64_t)r->size - r->at) {
        wrong(r, WF_EDATA, "the file ends before its header does: it is cut short, or damaged");
        return NULL;
    }
    if (n > r->have - r->at) {
        r->more = true;
        return NULL;
    }
    r->at += (size_t)n;
    return from;
}

static bool take_u32(reader *r, uint32_t *value)
{
    const char *from = take(r, sizeof *value);

    if (from)
        memcpy(value, from, sizeof *value);
    return from != NULL;
}

static bool take_u64(reader *r, uint64_t *value)
{
    const char *from = take(r, sizeof *value);

    if (from)
        memcpy(value, from, sizeof *value);
    return from != NULL;
}

static bool take_text(reader *r, wf_par_gguf_text *text)
{
    uint64_t n;

    if (!take_u64(r, &n))
        return false;
    text->text = take(r, n);
    text->bytes = (int64_t)n;
    return text->text != NULL;
}

/* Reads a name of less than `room` bytes, and terminates it; errors name it from here on. */
static bool take_name(reader *r, const char *of, char *name, size_t room)
{
    wf_par_gguf_text text;

    *r->what = 0;
    if (!take_text(r, &text))
        return false;
    snprintf(r->what, sizeof r->what, "%s \"%.*s\"", of,
             (int)(text.bytes < TEXT_SHOWN ? text.bytes : TEXT_SHOWN), text.text);
    if (text.bytes < 1 || text.bytes >= (int64_t)room ||
        memchr(text.text, 0, (size_t)text.bytes))
        return wrong(r, WF_EDATA, "a name has 1 to %zu bytes, and none of them is 0", room - 1);
    memcpy(name, text.text, (size_t)text.bytes);
    name[text.bytes] = 0;
    return true;
}

/* Kinds of values by their numbers in a file: their bytes, and what they are read as. */
typedef struct kind {
    int bytes; /* 0: a text */
    wf_par_gguf_kind read;
    bool is_signed;
} kind;

static const kind value_kinds[] = {{1, WF_PAR_GGUF_I64, false}, {1, WF_PAR_GGUF_I64, true},
                                   {2, WF_PAR_GGUF_I64, false}, {2, WF_PAR_GGUF_I64, true},
                                   {4, WF_PAR_GGUF_I64, false}, {4, WF_PAR_GGUF_I64, true},
                                   {4, WF_PAR_GGUF_F64, true},  {1, WF_PAR_GGUF_BOOL, false},
                                   {0, WF_PAR_GGUF_TEXT, 0},    {0, 0, 0},
                                   {8, WF_PAR_GGUF_I64, false}, {8, WF_PAR_GGUF_I64, true},
                                   {8, WF_PAR_GGUF_F64, true}};

static const kind *kind_of(reader *r, uint32_t number)
{
    if (number < sizeof value_kinds / sizeof *value_kinds && number != ARRAY)
        return &value_kinds[number];
    wrong(r, WF_EDATA,
          "a value is of kind %u: it is an array of arrays, or there is no such kind", number);
    return NULL;
}

static size_t size_as_read(wf_par_gguf_kind read)
{
    return read == WF_PAR_GGUF_BOOL   ? sizeof(bool)
           : read == WF_PAR_GGUF_TEXT ? sizeof(wf_par_gguf_text)
                                      : 8;
}

/* A little-endian number of 1 to 8 bytes. */
static int64_t whole(const char *from, const kind *k)
{
    uint64_t value = 0;

    memcpy(&value, from, (size_t)k->bytes);
    if (k->is_signed && k->bytes < 8 && value >> (8 * k->bytes - 1))
        value |= UINT64_MAX << 8 * k->bytes;
    return (int64_t)value;
}

static double number(const char *from, const kind *k)
{
    double value;
    float narrow;

    if (k->bytes == 8) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&narrow, from, sizeof narrow);
    return (double)narrow;
}

static bool take_value(reader *r, const kind *k, void *to, int64_t i)
{
    const char *from;

    if (k->read == WF_PAR_GGUF_TEXT)
        return take_text(r, (wf_par_gguf_text *)to + i);
    from = take(r, (uint64_t)k->bytes);
    if (!from)
        return false;
    if (k->read == WF_PAR_GGUF_BOOL && *from != 0 && *from != 1)
        return wrong(r, WF_EDATA, "a bool is neither 0 nor 1");
    if (k->read == WF_PAR_GGUF_BOOL)
        ((bool *)to)[i] = *from;
    else if (k->read == WF_PAR_GGUF_I64)
        ((int64_t *)to)[i] = whole(from, k);
    else
        ((double *)to)[i] = number(from, k);
    return true;
}

static bool take_key(reader *r, wf_par_gguf_key *key)
{
    char name[NAME];
    const kind *k;
    uint32_t number;
    uint64_t count = 1;
    void *values;

    if (!take_name(r, "key", name, sizeof name) || !take_u32(r, &number))
        return false;
    key->array = number == ARRAY;
    if (key->array && (!take_u32(r, &number) || !take_u64(r, &count)))
        return false;
    k = kind_of(r, number);
    if (!k)
        return false;
    if (count > ((uint64_t)r->size - r->at) / (k->bytes ? (uint64_t)k->bytes : 8))
        return wrong(r, WF_EDATA, "it has more values than the rest of the file can have");
    key->kind = k->read;
    key->count = (int64_t)count;
    key->key = strdup(name);
    key->values = values = calloc(count + !count, size_as_read(k->read));
    if (!key->key || !values)
        return no_memory(r);
    for (int64_t i = 0; i < key->count; i++)
        if (!take_value(r, k, values, i))
            return false;
    return true;
}

/* The shape of a tensor, the slowest dim first, and its bytes. */
static bool take_shape(reader *r, wf_gguf_tensor *t, uint32_t dims)
{
    int64_t count = 1;

    if (dims < 1 || dims > MOST_DIMS)
        return wrong(r, WF_EDATA, "it has %u dims, and may have 1 to %d", dims, MOST_DIMS);
    t->ndim = (int)dims;
    for (int d = t->ndim - 1; d >= 0; d--) {
        uint64_t size;

        if (!take_u64(r, &size))
            return false;
        if (size < 1 || size > (uint64_t)(most_elements / count))
            return wrong(r, WF_EDATA, "a dim has no elements, or all together more than 2^48");
        t->shape[d] = (int64_t)size;
        count *= t->shape[d];
    }
    t->bytes = count;
    return true;
}

static bool take_tensor(reader *r, wf_gguf_tensor *t)
{
    uint32_t dims, type;
    uint64_t begin;
    int block;

    if (!take_name(r, "tensor", t->name, sizeof t->name) || !take_u32(r, &dims) ||
        !take_shape(r, t, dims) || !take_u32(r, &type) || !take_u64(r, &begin))
        return false;
    block = wf_gguf_block(type);
    if (!block)
        return wrong(r, WF_EUNSUPPORTED,
                     "its type is number %u; what is read is F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
                     "Q5_1, Q8_0, Q4_K, Q5_K and Q6_K",
                     type);
    if (t->shape[t->ndim - 1] % block)
        return wrong(r, WF_EDATA,
                     "its rows have %lld elements, which its type has in blocks of %d",
                     (long long)t->shape[t->ndim - 1], block);
    if (begin > (uint64_t)r->size || begin % (uint64_t)r->alignment)
        return wrong(
            r, WF_EDATA,
            "it begins at byte %llu, which is past the file's end or no multiple of %lld",
            (unsigned long long)begin, (long long)r->alignment);
    t->type = (wf_gguf_type)type;
    t->begin = (int64_t)begin;
    t->bytes = wf_gguf_bytes(t->type, t->bytes);
    return true;
}

int wf_gguf_by_key(const void *a, const void *b)
{
    return strcmp(((const wf_par_gguf_key *)a)->key, ((const wf_par_gguf_key *)b)->key);
}

int wf_gguf_by_name(const void *a, const void *b)
{
    return strcmp(((const wf_gguf_tensor *)a)->name, ((const wf_gguf_tensor *)b)->name);
}

static int by_begin(const void *a, const void *b)
{
    const wf_gguf_tensor *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

static bool take_keys(reader *r, wf_par_gguf *g, uint64_t count)
{
    const uint64_t least = 8 + 1 + 4 + 1; /* bytes of a key */

    *r->what = 0;
    if (count > (uint64_t)r->size / least)
        return wrong(r, WF_EDATA, "it has more keys than a file of this size can have");
    g->key = calloc(count + 1, sizeof *g->key);
    if (!g->key)
        return no_memory(r);
    while ((uint64_t)g->keys < count)
        if (!take_key(r, &g->key[g->keys++]))
            return false;
    qsort(g->key, (size_t)g->keys, sizeof *g->key, wf_gguf_by_key);
    *r->what = 0;
    for (int64_t i = 1; i < g->keys; i++)
        if (wf_gguf_by_key(&g->key[i - 1], &g->key[i]) == 0) {
            snprintf(r->what, sizeof r->what, "key \"%.*s\"", TEXT_SHOWN, g->key[i].key);
            return wrong(r, WF_EDATA, "it is there twice");
        }
    return true;
}

/* Reads general.alignment; 32 by default. */
static bool find_alignment(reader *r, const wf_par_gguf *g)
{
    const wf_par_gguf_key *key =
        wf_par_gguf_find(g, "general.alignment", WF_PAR_GGUF_I64, false, r->error);
    const int64_t largest = 1 << 20;

    r->alignment = key ? *(const int64_t *)key->values : WF_GGUF_ALIGNMENT;
    *r->what = 0;
    if (r->error->code != WF_OK)
        return false;
    if (r->alignment < 1 || r->alignment > largest || r->alignment & (r->alignment - 1))
        return wrong(r, WF_EDATA, "\"general.alignment\" is no power of two up to %lld",
                     (long long)largest);
    return true;
}

static bool take_tensors(reader *r, wf_par_gguf *g, uint64_t count)
{
    const uint64_t least = 8 + 1 + 4 + 8 + 4 + 8; /* bytes of what describes one */

    if (count > (uint64_t)r->size / least)
        return wrong(r, WF_EDATA, "it has more tensors than a file of this size can have");
    g->tensor = calloc(count + 1, sizeof *g->tensor);
    if (!g->tensor)
        return no_memory(r);
    while ((uint64_t)g->tensors < count)
        if (!take_tensor(r, &g->tensor[g->tensors++]))
            return false;
    return true;
}

/* Checks that tensors lie in the file and do not overlap; then sorts them. */
static bool check_tensors(reader *r, wf_par_gguf *g)
{
    int64_t end = 0;

    g->data = ((int64_t)r->at + r->alignment - 1) / r->alignment * r->alignment;
    qsort(g->tensor, (size_t)g->tensors, sizeof *g->tensor, by_begin);
    for (int64_t i = 0; i < g->tensors; i++) {
        const wf_gguf_tensor *t = &g->tensor[i];

        snprintf(r->what, sizeof r->what, "tensor \"%.*s\"", TEXT_SHOWN, t->name);
        if (t->begin < end)
            return wrong(r, WF_EDATA, "it lies over the tensor before it");
        end = t->begin + t->bytes;
        if (end > r->size - g->data)
            return wrong(r, WF_EDATA,
                         "it ends past the end of the file: that is cut short, or damaged");
    }
    qsort(g->tensor, (size_t)g->tensors, sizeof *g->tensor, wf_gguf_by_name);
    for (int64_t i = 1; i < g->tensors; i++) {
        snprintf(r->what, sizeof r->what, "tensor \"%.*s\"", TEXT_SHOWN, g->tensor[i].name);
        if (wf_gguf_by_name(&g->tensor[i - 1], &g->tensor[i]) == 0)
            return wrong(r, WF_EDATA, "it is there twice");
    }
    return true;
}

static bool parse(reader *r, wf_par_gguf *g)
{
    const char *magic = take(r, 4), *pointer;
    uint32_t version;
    uint64_t tensors, keys;

    if (!magic)
        return false;
    pointer = wf_input_pointer(magic, r->have);
    if (memcmp(magic, "GGUF", 4) != 0)
        return wrong(r, WF_EDATA, "it %s", pointer ? pointer : "is no GGUF file");
    if (!take_u32(r, &version))
        return false;
    if (version > UINT16_MAX) /* the bytes of a small number the other way round */
        return wrong(r, WF_EUNSUPPORTED, "it is big-endian, and what is read is little-endian");
    if (version != 2 && version != 3)
        return wrong(r, WF_EUNSUPPORTED,
                     "it is of version %u of GGUF, and what is read are 2 and 3, little-endian",
                     version);
    return take_u64(r, &tensors) && take_u64(r, &keys) && take_keys(r, g, keys) &&
           find_alignment(r, g) && take_tensors(r, g, tensors) && check_tensors(r, g);
}

wf_status wf_gguf_parse(wf_par_gguf *g, const char *name, size_t have, int64_t size, bool *more,
                        wf_error *error)
{
    reader r = {.file = name, .bytes = g->bytes, .have = have, .size = size, .error = error};

    g->name = strdup(name);
    if (g->name)
        parse(&r, g);
    else
        no_memory(&r);
    *more = r.more;
    return error->code;
}
