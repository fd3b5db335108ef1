/*
 * nn/text/json.h - a JSON reader that parses a text in place: for tokenizer.json and rows of
 * JSONL.
 *
 * A text becomes one flat list of values; strings are unescaped in place and may have any
 * character, NUL too. Its memory is bounded by the text: 16 bytes a value, of which there is
 * one in two bytes at most. The first error stays, so that a reader may ask for many values and
 * check for an error in the end; each names the file and the key: "tokenizer.json:
 * model.merges[17]: ...".
 */
#ifndef WF_NN_TEXT_JSON_H
#define WF_NN_TEXT_JSON_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef enum wf_text_json_kind {
    WF_TEXT_JSON_NULL,
    WF_TEXT_JSON_FALSE,
    WF_TEXT_JSON_TRUE,
    WF_TEXT_JSON_NUMBER,
    WF_TEXT_JSON_STRING,
    WF_TEXT_JSON_ARRAY,
    WF_TEXT_JSON_OBJECT
} wf_text_json_kind;

typedef struct wf_text_json_value {
    uint32_t begin; /* a string's or a number's first byte in the text */
    uint32_t count; /* its bytes; an array's values, an object's keys */
    uint32_t next;  /* the value that follows, and all that lies in this one */
    wf_text_json_kind kind;
} wf_text_json_value;

typedef struct wf_text_json {
    const char *name; /* the file's */
    char *text;
    wf_text_json_value
        *values; /* a key is a string before its value; the first one is the whole text */
    uint32_t count, room;
    wf_error *error;
} wf_text_json;

/* No value: of a key that is missing. */
#define WF_TEXT_JSON_NONE UINT32_MAX

/**
 * wf_text_json_open - reads a text
 *
 * @param name  of the file, for errors
 * @param text  malloc'd, with a byte after its end; the reader owns it from here on, after an
 *              error too
 * Owner:   the caller, wf_text_json_close in any case
 * Errors:  WF_EDATA (file, key and what is wrong), WF_ENOMEM
 */
WF_API wf_status wf_text_json_open(wf_text_json *json, const char *name, char *text,
                                   size_t bytes, wf_error *error);

/** wf_text_json_close - frees the values and the text. */
WF_API void wf_text_json_close(wf_text_json *json);

/** wf_text_json_refuse - sets the error: file, key, and the reason. Returns its status. */
WF_API wf_status wf_text_json_refuse(const wf_text_json *json, uint32_t value, wf_status status,
                                     const char *format, ...) WF_PRINTF(4, 5);

/**
 * wf_text_json_get - returns the value of a key; WF_TEXT_JSON_NONE where it is missing or null
 *
 * Errors:  WF_EDATA, kept in the reader: a key that is there twice, an `object` that is none
 */
WF_API uint32_t wf_text_json_get(const wf_text_json *json, uint32_t object, const char *key);

/** wf_text_json_need - returns the value of a key that has to be there, of this kind. Errors:
 * as wf_text_json_get's. */
WF_API uint32_t wf_text_json_need(const wf_text_json *json, uint32_t object, const char *key,
                                  wf_text_json_kind kind);

/** wf_text_json_after - steps through an array, or the keys of an object: for (i = first; i !=
 * end; i = after(i)); a key's value is the one after it. */
static inline uint32_t wf_text_json_after(const wf_text_json *json, uint32_t value)
{
    return json->values[value].next;
}

/** wf_text_json_is - returns the kind of a value. */
static inline wf_text_json_kind wf_text_json_is(const wf_text_json *json, uint32_t value)
{
    return json->values[value].kind;
}

/** wf_text_json_text - returns a string's bytes, which may have NUL among them. Owner: the
 * reader. */
WF_API const char *wf_text_json_text(const wf_text_json *json, uint32_t value, size_t *bytes);

/** wf_text_json_equals - compares a string with a text. */
WF_API bool wf_text_json_equals(const wf_text_json *json, uint32_t value, const char *text);

/** wf_text_json_int - returns a whole number in [least, most], which a key or a string may be
 * too. Errors: WF_EDATA, kept in the reader; it returns `least` then. */
WF_API int64_t wf_text_json_int(const wf_text_json *json, uint32_t value, int64_t least,
                                int64_t most);

/** wf_text_json_bool - returns the value of a key; `standard` where it is missing or null. */
WF_API bool wf_text_json_bool(const wf_text_json *json, uint32_t object, const char *key,
                              bool standard);

WF_END_DECLS

#endif
