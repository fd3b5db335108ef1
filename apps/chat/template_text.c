/* apps/chat/template_text.c - see the header. */
#include "apps/chat/template_text.h"
#include "apps/tokenizer/load_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The template among several: [{"name": "default", "template": ".."}, ..]; APP_JSON_NONE: none has that name. */
static uint32_t default_of(const app_json *json, uint32_t list)
{
    for (uint32_t i = list + 1; i < json->values[list].next; i = app_json_after(json, i)) {
        uint32_t name = app_json_need(json, i, "name", APP_JSON_STRING);

        if (name == APP_JSON_NONE)
            break;
        if (app_json_equals(json, name, "default"))
            return app_json_need(json, i, "template", APP_JSON_STRING);
    }
    return APP_JSON_NONE;
}

static wf_status of_config(const app_json *json, char **text, size_t *bytes)
{
    uint32_t value = app_json_is(json, 0) == APP_JSON_OBJECT
                         ? app_json_get(json, 0, "chat_template")
                         : APP_JSON_NONE;
    const char *found;

    if (value != APP_JSON_NONE && app_json_is(json, value) == APP_JSON_ARRAY)
        value = default_of(json, value);
    if (json->error->code != WF_OK || value == APP_JSON_NONE)
        return json->error->code;
    if (app_json_is(json, value) != APP_JSON_STRING)
        return app_json_refuse(json, value, WF_EDATA, "is no text");
    found = app_json_text(json, value, bytes);
    *text = malloc(*bytes + 1);
    if (!*text)
        return wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
    memcpy(*text, found, *bytes);
    (*text)[*bytes] = '\0';
    return WF_OK;
}

wf_status app_chat_template_text(const char *folder, char **text, size_t *bytes,
                                 wf_error *error)
{
    char path[APP_MOST_PATH], *config;
    size_t config_bytes;
    app_json json;

    *text = NULL;
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (app_file_there(path))
        return app_file_read(path, text, bytes, error);
    snprintf(path, sizeof path, "%.4000s/tokenizer_config.json", folder);
    if (!app_file_there(path) || app_file_read(path, &config, &config_bytes, error) != WF_OK)
        return error->code;
    if (app_json_open(&json, path, config, config_bytes, error) == WF_OK)
        of_config(&json, text, bytes);
    app_json_close(&json);
    return error->code;
}
