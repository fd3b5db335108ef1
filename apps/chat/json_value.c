/* apps/chat/json_value.c - see the header. */
#include "apps/chat/json_value_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static app_jinja_value number(app_jinja_run *run, const app_json *json, uint32_t value)
{
    const app_json_value *v = &json->values[value];
    char copy[400];
    long long integer;

    if (v->count >= sizeof copy)
        app_jinja_abort(run, WF_EDATA, "%s: a number has more than %zu characters", json->name,
                        sizeof copy - 1);
    memcpy(copy, json->text + v->begin, v->count);
    copy[v->count] = '\0';
    if (strpbrk(copy, ".eE"))
        return app_jinja_real(strtod(copy, NULL));
    errno = 0;
    integer = strtoll(copy, NULL, 10);
    if (errno == ERANGE)
        app_jinja_abort(run, WF_EUNSUPPORTED,
                        "%s: the number %.40s is beyond 64 bits, which is not supported",
                        json->name, copy);
    return app_jinja_integer(integer);
}

static app_jinja_value object(app_jinja_run *run, const app_json *json, uint32_t value)
{
    app_jinja_value dict = app_jinja_dict(run);
    size_t bytes;

    for (uint32_t i = value + 1; i < json->values[value].next;
         i = app_json_after(json, i + 1)) {
        const char *key = app_json_text(json, i, &bytes);

        app_jinja_dict_set(run, dict, app_jinja_text(run, key, bytes),
                           app_chat_json_value(run, json, i + 1));
    }
    return dict;
}

app_jinja_value app_chat_json_value(app_jinja_run *run, const app_json *json, uint32_t value)
{
    const char *text;
    app_jinja_value list;
    size_t bytes;

    switch (app_json_is(json, value)) {
    case APP_JSON_NULL:
        return app_jinja_none();
    case APP_JSON_FALSE:
        return app_jinja_bool(false);
    case APP_JSON_TRUE:
        return app_jinja_bool(true);
    case APP_JSON_NUMBER:
        return number(run, json, value);
    case APP_JSON_STRING:
        text = app_json_text(json, value, &bytes);
        return app_jinja_text(run, text, bytes);
    case APP_JSON_OBJECT:
        return object(run, json, value);
    default:
        break;
    }
    list = app_jinja_list(run);
    for (uint32_t i = value + 1; i < json->values[value].next; i = app_json_after(json, i))
        app_jinja_list_add(run, list, app_chat_json_value(run, json, i));
    return list;
}
