/*
 * apps/tokenizer/json_internal.h - JSON of a tokenizer, read where it lies.
 *
 * A text becomes one flat list of values; strings are unescaped in place and may have any character, NUL
 * too. What it takes is bounded by the text: 16 bytes a value, of which there is one in two bytes at most.
 * The first error stays, so that a reader may ask for many values and look at the error in the end; each
 * names the file and the place: "tokenizer.json: model.merges[17]: ...".
 */
#ifndef WF_APPS_TOKENIZER_JSON_INTERNAL_H
#define WF_APPS_TOKENIZER_JSON_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum app_json_kind {
    APP_JSON_NULL,
    APP_JSON_FALSE,
    APP_JSON_TRUE,
    APP_JSON_NUMBER,
    APP_JSON_STRING,
    APP_JSON_ARRAY,
    APP_JSON_OBJECT
} app_json_kind;

typedef struct app_json_value {
    uint32_t begin; /* a string's or a number's first byte in the text */
    uint32_t count; /* its bytes; an array's values, an object's keys */
    uint32_t next;  /* the value that follows, and all that lies in this one */
    app_json_kind kind;
} app_json_value;

typedef struct app_json {
    const char *name; /* the file's */
    char *text;
    app_json_value
        *values; /* a key is a string before its value; the first one is the whole text */
    uint32_t count, room;
    wf_error *error;
} app_json;

/* No value: of a key that is missing. */
#define APP_JSON_NONE UINT32_MAX

/* Reads `text`, which is taken over whatever comes of it; with app_json_close in any case. */
wf_status app_json_open(app_json *json, const char *name, char *text, size_t bytes,
                        wf_error *error);
void app_json_close(app_json *json);

/* Sets the error: file, place, and what is wrong with it. */
wf_status app_json_refuse(const app_json *json, uint32_t value, wf_status status,
                          const char *format, ...) WF_PRINTF(4, 5);

/* The value of a key; APP_JSON_NONE where it is missing or null. A key that is there twice is refused, and
   so is `object` where it is no object. */
uint32_t app_json_get(const app_json *json, uint32_t object, const char *key);
/* The same of a key that has to be there, with a value of this kind. */
uint32_t app_json_need(const app_json *json, uint32_t object, const char *key,
                       app_json_kind kind);

/* Through an array, or the keys of an object: for (i = first; i != end; i = after(i)); a key's value is
   the one behind it. */
static inline uint32_t app_json_after(const app_json *json, uint32_t value)
{
    return json->values[value].next;
}

static inline app_json_kind app_json_is(const app_json *json, uint32_t value)
{
    return json->values[value].kind;
}

/* A string's bytes, and whether they are these. */
const char *app_json_text(const app_json *json, uint32_t value, size_t *bytes);
bool app_json_equals(const app_json *json, uint32_t value, const char *text);

/* A whole number in [least, most], which a key or a string may be too; else refused, and `least`. */
int64_t app_json_int(const app_json *json, uint32_t value, int64_t least, int64_t most);
/* The value of a key; `standard` where it is missing or null. */
bool app_json_bool(const app_json *json, uint32_t object, const char *key, bool standard);

#endif
