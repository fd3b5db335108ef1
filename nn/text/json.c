/* nn/text/json.c - see the header. */
#include "nn/text/json.h"
#include "nn/text/utf8_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEEP = 32 };

typedef struct reader {
    wf_text_json *json;
    size_t at, bytes;
    uint32_t open[MOST_DEEP]; /* arrays and objects that have not ended */
    int depth;
} reader;

static wf_status no_json(const reader *r, const char *what)
{
    return wf_error_set(r->json->error, WF_EDATA, "%s: no JSON that can be used, byte %zu: %s",
                        r->json->name, r->at, what);
}

static wf_status add(reader *r, wf_text_json_kind kind, size_t begin, size_t count)
{
    wf_text_json *json = r->json;

    if (json->count == json->room) {
        uint32_t room = json->room ? 2 * json->room : 256;
        wf_text_json_value *values = realloc(json->values, room * sizeof *values);

        if (!values)
            return wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
        json->values = values;
        json->room = room;
    }
    json->values[json->count] =
        (wf_text_json_value){(uint32_t)begin, (uint32_t)count, json->count + 1, kind};
    json->count++;
    return WF_OK;
}

static bool take(reader *r, const char *word)
{
    size_t n = strlen(word);

    if (r->bytes - r->at < n || memcmp(r->json->text + r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static int peek(const reader *r)
{
    return r->at < r->bytes ? (unsigned char)r->json->text[r->at] : -1;
}

static void skip_blanks(reader *r)
{
    int c = peek(r);

    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        r->at++;
        c = peek(r);
    }
}

/* Returns the number of \uXXXX after the backslash, or -1. */
static int32_t hexadecimal(const reader *r, size_t at)
{
    int32_t code = 0;

    if (r->bytes - at < 5 || r->json->text[at] != 'u')
        return -1;
    for (size_t i = at + 1; i < at + 5; i++) {
        int c = (unsigned char)r->json->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) - 'a' + 10;

        if (digit < 0 || digit > 15 || (digit > 9 && ((c | 32) < 'a' || (c | 32) > 'f')))
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Unescapes the characters after a backslash to `out`; returns the number of bytes, or 0. */
static int unescape(reader *r, uint8_t *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *simple = peek(r) > 0 ? strchr(from, peek(r)) : NULL;
    int32_t code, low;

    if (simple) {
        *out = (uint8_t)to[simple - from];
        r->at++;
        return 1;
    }
    code = hexadecimal(r, r->at);
    if (code < 0 || (code >= 0xdc00 && code < 0xe000))
        return 0;
    r->at += 5;
    if (code >= 0xd800 && code < 0xdc00) {
        low = peek(r) == '\\' ? hexadecimal(r, r->at + 1) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return 0;
        r->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    return wf_text_utf8_encode((uint32_t)code, out);
}

static wf_status read_string(reader *r)
{
    char *text = r->json->text;
    size_t begin, to;

    if (peek(r) != '"')
        return no_json(r, "a key or a string is expected");
    begin = to = ++r->at;
    while (peek(r) != '"') {
        int c = peek(r);

        if (c < 0x20)
            return no_json(r, c < 0 ? "a string has no end" : "a control character");
        r->at++;
        if (c != '\\') {
            text[to++] = (char)c;
        } else {
            uint8_t bytes[4];
            int n = unescape(r, bytes);

            if (!n)
                return no_json(r, "no such escape sequence");
            memcpy(text + to, bytes, (size_t)n);
            to += (size_t)n;
        }
    }
    r->at++;
    return add(r, WF_TEXT_JSON_STRING, begin, to - begin);
}

static wf_status read_number(reader *r)
{
    size_t begin = r->at;

    while (peek(r) > 0 && strchr("+-.0123456789eE", peek(r)))
        r->at++;
    if (r->at == begin)
        return no_json(r, "a value is expected");
    return add(r, WF_TEXT_JSON_NUMBER, begin, r->at - begin);
}

static wf_status read_value(reader *r)
{
    bool object = peek(r) == '{';

    if (object || peek(r) == '[') {
        if (r->depth == MOST_DEEP)
            return no_json(r, "it nests deeper than 32");
        r->open[r->depth++] = r->json->count;
        r->at++;
        return add(r, object ? WF_TEXT_JSON_OBJECT : WF_TEXT_JSON_ARRAY, r->at, 0);
    }
    if (peek(r) == '"')
        return read_string(r);
    if (take(r, "null"))
        return add(r, WF_TEXT_JSON_NULL, r->at, 0);
    if (take(r, "true"))
        return add(r, WF_TEXT_JSON_TRUE, r->at, 0);
    if (take(r, "false"))
        return add(r, WF_TEXT_JSON_FALSE, r->at, 0);
    return read_number(r);
}

/* Reads the next value of the innermost array or object, or its end. */
static wf_status read_member(reader *r)
{
    wf_text_json_value *inside = &r->json->values[r->open[r->depth - 1]];
    bool object = inside->kind == WF_TEXT_JSON_OBJECT, first = inside->count == 0;
    wf_status status;

    skip_blanks(r);
    if (take(r, object ? "}" : "]")) {
        inside->next = r->json->count;
        r->depth--;
        return WF_OK;
    }
    if (!first && !take(r, ","))
        return no_json(r, "a comma or an end is expected");
    inside->count++;
    skip_blanks(r);
    if (object) {
        status = read_string(r);
        skip_blanks(r);
        if (status == WF_OK && !take(r, ":"))
            status = no_json(r, "a colon is expected");
        if (status != WF_OK)
            return status;
        skip_blanks(r);
    }
    return read_value(r);
}

wf_status wf_text_json_open(wf_text_json *json, const char *name, char *text, size_t bytes,
                            wf_error *error)
{
    reader r = {.json = json, .bytes = bytes};
    wf_status status;

    *json = (wf_text_json){.name = name, .text = text, .error = error};
    r.at = wf_text_utf8_valid((const uint8_t *)text, bytes);
    if (r.at < bytes)
        return no_json(&r, "no UTF-8");
    r.at = 0;
    skip_blanks(&r);
    status = read_value(&r);
    while (status == WF_OK && r.depth > 0)
        status = read_member(&r);
    skip_blanks(&r);
    if (status == WF_OK && r.at < bytes)
        status = no_json(&r, "text after its end");
    return status;
}

void wf_text_json_close(wf_text_json *json)
{
    free(json->text);
    free(json->values);
    json->text = NULL;
    json->values = NULL;
}

/* Writes the path of a value to a text: walks down from the whole to what it lies in. */
static void write_path(const wf_text_json *json, uint32_t value, char *text, size_t room)
{
    uint32_t in = 0;
    size_t used = 0;

    *text = '\0';
    while (in != value && used < room) {
        uint32_t i = in + 1, number = 0;
        bool object = json->values[in].kind == WF_TEXT_JSON_OBJECT;

        while (i < json->count &&
               (object ? json->values[i + 1].next : json->values[i].next) <= value) {
            i = object ? json->values[i + 1].next : json->values[i].next;
            number++;
        }
        if (object)
            used +=
                (size_t)snprintf(text + used, room - used, "%s%.*s", used ? "." : "",
                                 (int)(json->values[i].count < 60 ? json->values[i].count : 60),
                                 json->text + json->values[i].begin);
        else
            used += (size_t)snprintf(text + used, room - used, "[%u]", number);
        if (object && i == value)
            return; /* a key */
        in = object ? i + 1 : i;
    }
}

wf_status wf_text_json_refuse(const wf_text_json *json, uint32_t value, wf_status status,
                              const char *format, ...)
{
    char where[256], what[512];
    va_list args;

    write_path(json, value == WF_TEXT_JSON_NONE ? 0 : value, where, sizeof where);
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return wf_error_set(json->error, status, "%s: %s%s%s", json->name, where,
                        *where ? ": " : "", what);
}

uint32_t wf_text_json_get(const wf_text_json *json, uint32_t object, const char *key)
{
    uint32_t found = WF_TEXT_JSON_NONE;

    if (json->values[object].kind != WF_TEXT_JSON_OBJECT) {
        wf_text_json_refuse(json, object, WF_EDATA, "is no object");
        return WF_TEXT_JSON_NONE;
    }
    for (uint32_t i = object + 1; i < json->values[object].next; i = json->values[i + 1].next) {
        if (!wf_text_json_equals(json, i, key))
            continue;
        if (found != WF_TEXT_JSON_NONE)
            wf_text_json_refuse(json, i, WF_EDATA, "this key is there twice");
        found = i + 1;
    }
    return found == WF_TEXT_JSON_NONE || json->values[found].kind == WF_TEXT_JSON_NULL
               ? WF_TEXT_JSON_NONE
               : found;
}

uint32_t wf_text_json_need(const wf_text_json *json, uint32_t object, const char *key,
                           wf_text_json_kind kind)
{
    static const char *const kinds[] = {"null",     "true or false", "true or false",
                                        "a number", "a string",      "an array",
                                        "an object"};
    uint32_t value = wf_text_json_get(json, object, key);

    if (value == WF_TEXT_JSON_NONE)
        wf_text_json_refuse(json, object, WF_EDATA, "the key \"%s\" is missing", key);
    else if (json->values[value].kind == kind)
        return value;
    else
        wf_text_json_refuse(json, value, WF_EDATA, "is not %s", kinds[kind]);
    return WF_TEXT_JSON_NONE;
}

const char *wf_text_json_text(const wf_text_json *json, uint32_t value, size_t *bytes)
{
    *bytes = json->values[value].count;
    return json->text + json->values[value].begin;
}

bool wf_text_json_equals(const wf_text_json *json, uint32_t value, const char *text)
{
    const wf_text_json_value *v = &json->values[value];

    return v->kind == WF_TEXT_JSON_STRING && v->count == strlen(text) &&
           memcmp(json->text + v->begin, text, v->count) == 0;
}

int64_t wf_text_json_int(const wf_text_json *json, uint32_t value, int64_t least, int64_t most)
{
    const wf_text_json_value *v = &json->values[value];
    char digits[24] = "";
    char *end = digits;
    long long number = 0;

    if (v->kind != WF_TEXT_JSON_NUMBER && v->kind != WF_TEXT_JSON_STRING) {
        wf_text_json_refuse(json, value, WF_EDATA, "is no number");
        return least;
    }
    if (v->count < sizeof digits - 1) {
        memcpy(digits, json->text + v->begin, v->count);
        number = strtoll(digits, &end, 10);
    }
    if (end != digits && !*end && number >= least && number <= most)
        return number;
    wf_text_json_refuse(json, value, WF_EDATA,
                        "is %.*s, and it has to be a whole number in [%lld, %lld]",
                        (int)(v->count < 40 ? v->count : 40), json->text + v->begin,
                        (long long)least, (long long)most);
    return least;
}

bool wf_text_json_bool(const wf_text_json *json, uint32_t object, const char *key,
                       bool standard)
{
    uint32_t value = wf_text_json_get(json, object, key);

    if (value == WF_TEXT_JSON_NONE)
        return standard;
    if (json->values[value].kind == WF_TEXT_JSON_TRUE ||
        json->values[value].kind == WF_TEXT_JSON_FALSE)
        return json->values[value].kind == WF_TEXT_JSON_TRUE;
    wf_text_json_refuse(json, value, WF_EDATA, "is neither true nor false");
    return standard;
}
