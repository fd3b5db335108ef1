/* nn/text/chat/json_value.c - see the header. */
#include "nn/text/chat/json_value_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static wf_jinja_value number(wf_jinja_run *run, const wf_text_json *json, uint32_t value)
{
    const wf_text_json_value *v = &json->values[value];
    char copy[400];
    long long integer;

    if (v->count >= sizeof copy)
        wf_jinja_abort(run, WF_EDATA, "%s: a number has more than %zu characters", json->name,
                       sizeof copy - 1);
    memcpy(copy, json->text + v->begin, v->count);
    copy[v->count] = '\0';
    if (strpbrk(copy, ".eE"))
        return wf_jinja_real(strtod(copy, NULL));
    errno = 0;
    integer = strtoll(copy, NULL, 10);
    if (errno == ERANGE)
        wf_jinja_abort(run, WF_EUNSUPPORTED,
                       "%s: the number %.40s is beyond 64 bits, which is not supported",
                       json->name, copy);
    return wf_jinja_integer(integer);
}

static wf_jinja_value object(wf_jinja_run *run, const wf_text_json *json, uint32_t value)
{
    wf_jinja_value dict = wf_jinja_dict(run);
    size_t bytes;

    for (uint32_t i = value + 1; i < json->values[value].next;
         i = wf_text_json_after(json, i + 1)) {
        const char *key = wf_text_json_text(json, i, &bytes);

        wf_jinja_dict_set(run, dict, wf_jinja_text(run, key, bytes),
                          wf_chat_json_value(run, json, i + 1));
    }
    return dict;
}

wf_jinja_value wf_chat_json_value(wf_jinja_run *run, const wf_text_json *json, uint32_t value)
{
    const char *text;
    wf_jinja_value list;
    size_t bytes;

    switch (wf_text_json_is(json, value)) {
    case WF_TEXT_JSON_NULL:
        return wf_jinja_none();
    case WF_TEXT_JSON_FALSE:
        return wf_jinja_bool(false);
    case WF_TEXT_JSON_TRUE:
        return wf_jinja_bool(true);
    case WF_TEXT_JSON_NUMBER:
        return number(run, json, value);
    case WF_TEXT_JSON_STRING:
        text = wf_text_json_text(json, value, &bytes);
        return wf_jinja_text(run, text, bytes);
    case WF_TEXT_JSON_OBJECT:
        return object(run, json, value);
    default:
        break;
    }
    list = wf_jinja_list(run);
    for (uint32_t i = value + 1; i < json->values[value].next; i = wf_text_json_after(json, i))
        wf_jinja_list_add(run, list, wf_chat_json_value(run, json, i));
    return list;
}
