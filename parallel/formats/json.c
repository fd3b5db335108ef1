/* parallel/formats/json.c - JSON from strangers; see the header. */
#include "parallel/formats/json_internal.h"
#include "core/files/checksum_internal.h"
#include "core/files/input.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const size_t most_values = 1 << 21; /* 100,000 tensors have fewer */

static wf_status wrong(const char *name, wf_error *error, const char *what)
{
    return wf_error_set(error, WF_EDATA, "%s: %s", name, what);
}

/* Measures a text before it is parsed: its depth, and the number of values, an object as five
   of them. Only text outside of strings counts; syntax errors are left to the parser. */
static wf_status measure(const char *name, const char *text, size_t bytes, int depth,
                         wf_error *error)
{
    size_t values = 0;
    bool in_text = false;
    int open = 0;

    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];

        if (in_text) {
            i += c == '\\';
            in_text = c != '"';
            continue;
        }
        in_text = c == '"';
        values += c == '{' ? 5 : c == ',' || c == '[';
        open += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (open > depth)
            return wf_error_set(error, WF_EDATA, "%s: its JSON nests deeper than %d", name,
                                depth);
    }
    if (values > bytes / 3 + 64 || values > most_values)
        return wrong(name, error, "its JSON has more values than a file of its size would");
    return WF_OK;
}

/* Checks that there is memory: jansson reports a lack of it as a mistake in the text. */
static bool may_take(size_t bytes)
{
    void *memory = malloc(bytes + 1);

    free(memory);
    return memory != NULL;
}

wf_status wf_json_parse(json_t **object, const char *name, const char *text, size_t bytes,
                        int depth, wf_error *error)
{
    json_error_t why;
    const char *pointer = wf_input_pointer(text, bytes);
    wf_status status = pointer ? wf_error_set(error, WF_EDATA, "%s %s", name, pointer)
                               : measure(name, text, bytes, depth, error);

    *object = NULL;
    if (status != WF_OK)
        return status;
    *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!*object && (!*why.text || !may_take(bytes)))
        return wf_error_set(error, WF_ENOMEM, "%s: no memory to read it", name);
    if (!*object)
        return wf_error_set(error, WF_EDATA, "%s: no JSON that can be used, line %d: %s", name,
                            why.line, why.text);
    if (json_is_object(*object))
        return WF_OK;
    json_decref(*object);
    *object = NULL;
    return wrong(name, error, "its JSON is no object");
}

static wf_status wrong_key(const wf_json_source *from, const char *key, const char *what)
{
    return wf_error_set(from->error, WF_EDATA, "%s: \"%s\" %s", from->name, key, what);
}

/* The value of a key; NULL where it is missing or null. */
static const json_t *value_of(const wf_json_source *from, const char *key)
{
    const json_t *value = json_object_get(from->object, key);

    return json_is_null(value) ? NULL : value;
}

wf_status wf_json_int(const wf_json_source *from, const char *key, int64_t least, int64_t most,
                      const int64_t *standard, int64_t *value)
{
    const json_t *v = value_of(from, key);
    int64_t given;

    if (!v && standard) {
        *value = *standard;
        return WF_OK;
    }
    if (!json_is_integer(v))
        return wrong_key(from, key, v ? "is no whole number" : "is missing");
    given = json_integer_value(v);
    if (given < least || given > most)
        return wf_error_set(from->error, WF_EDATA,
                            "%s: \"%s\" is %" PRId64 ", and it has to lie in [%" PRId64
                            ", %" PRId64 "]",
                            from->name, key, given, least, most);
    *value = given;
    return WF_OK;
}

wf_status wf_json_real(const wf_json_source *from, const char *key, double least, double most,
                       const double *standard, double *value)
{
    const json_t *v = value_of(from, key);
    double given;

    if (!v && standard) {
        *value = *standard;
        return WF_OK;
    }
    if (!json_is_number(v))
        return wrong_key(from, key, v ? "is no number" : "is missing");
    given = json_number_value(v);
    if (!(given >= least && given <= most))
        return wf_error_set(from->error, WF_EDATA,
                            "%s: \"%s\" is %g, and it has to lie in [%g, %g]", from->name, key,
                            given, least, most);
    *value = given;
    return WF_OK;
}

wf_status wf_json_bool(const wf_json_source *from, const char *key, const bool *standard,
                       bool *value)
{
    const json_t *v = value_of(from, key);

    if (!v && standard) {
        *value = *standard;
        return WF_OK;
    }
    if (!json_is_boolean(v))
        return wrong_key(from, key, v ? "is neither true nor false" : "is missing");
    *value = json_is_true(v);
    return WF_OK;
}

bool wf_json_printable(const char *text)
{
    for (; *text; text++) {
        unsigned char here = (unsigned char)*text, next = (unsigned char)text[1];

        if (here < 0x20 || here == 0x7f || (here == 0xc2 && next >= 0x80 && next < 0xa0))
            return false;
    }
    return true;
}

wf_status wf_json_text(const wf_json_source *from, const char *key, size_t size,
                       const char *standard, const char **value)
{
    const json_t *v = value_of(from, key);

    *value = standard;
    if (!v && standard)
        return WF_OK;
    if (!json_is_string(v))
        return wrong_key(from, key, v ? "is no text" : "is missing");
    *value = json_string_value(v);
    if (strlen(*value) >= size)
        return wrong_key(from, key, "is too long");
    return wf_json_printable(*value) ? WF_OK
                                     : wrong_key(from, key, "has control characters in it");
}

wf_status wf_json_checksum(const wf_json_source *from, const char *key, uint64_t *value)
{
    const char *text;
    wf_status status = wf_json_text(from, key, WF_CHECKSUM_TEXT, NULL, &text);

    if (status == WF_OK && !wf_checksum_parse(text, value))
        status = wrong_key(from, key, "is not made of 16 hexadecimal digits");
    return status;
}

wf_status wf_json_array(const wf_json_source *from, const char *key, size_t least, size_t most,
                        const json_t **value)
{
    *value = json_object_get(from->object, key);
    if (!json_is_array(*value))
        return wrong_key(from, key, "is no list");
    if (json_array_size(*value) >= least && json_array_size(*value) <= most)
        return WF_OK;
    return wf_error_set(from->error, WF_EDATA,
                        "%s: \"%s\" has %zu entries, and it has to have %zu to %zu", from->name,
                        key, json_array_size(*value), least, most);
}

wf_status wf_json_object(const wf_json_source *from, const char *key, const json_t **value)
{
    *value = json_object_get(from->object, key);
    return json_is_object(*value) ? WF_OK : wrong_key(from, key, "is no object");
}
