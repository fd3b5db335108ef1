/* apps/chat/row.c - see the header. */
#include "apps/chat/row.h"
#include "apps/tokenizer/json_internal.h"
#include <stdlib.h>
#include <string.h>

struct app_chat_row {
    app_json json; /* contents lie in its text */
    app_chat_message *messages;
    size_t count, room;
};

static wf_status add(app_chat_row *row, app_chat_role role, uint32_t content)
{
    app_chat_message *m;

    if (row->count == row->room) {
        size_t room = 2 * row->room + 8;

        m = realloc(row->messages, room * sizeof *m);
        if (!m)
            return wf_error_set(row->json.error, WF_ENOMEM, "%s: out of memory",
                                row->json.name);
        row->messages = m;
        row->room = room;
    }
    m = &row->messages[row->count++];
    m->role = role;
    m->content = app_json_text(&row->json, content, &m->bytes);
    return WF_OK;
}

static wf_status read_message(app_chat_row *row, uint32_t value)
{
    app_json *json = &row->json;
    uint32_t role = app_json_need(json, value, "role", APP_JSON_STRING), content, calls;
    app_chat_role number;
    const char *text;
    size_t bytes;

    if (role == APP_JSON_NONE)
        return json->error->code;
    text = app_json_text(json, role, &bytes);
    if (!app_chat_role_of(text, bytes, &number))
        return app_json_refuse(json, role, WF_EUNSUPPORTED,
                               "is none of system, user and assistant");
    calls = app_json_get(json, value, "tool_calls");
    if (calls != APP_JSON_NONE)
        return app_json_refuse(json, calls, WF_EUNSUPPORTED, "is not supported");
    content = app_json_get(json, value, "content");
    if (content != APP_JSON_NONE && app_json_is(json, content) == APP_JSON_ARRAY)
        return app_json_refuse(json, content, WF_EUNSUPPORTED,
                               "is a list of parts, and a text is supported");
    content = app_json_need(json, value, "content", APP_JSON_STRING);
    return content == APP_JSON_NONE ? json->error->code : add(row, number, content);
}

/* A list of messages, or, where `role` is given, what that one says. */
static wf_status read_part(app_chat_row *row, const char *key, const app_chat_role *role)
{
    app_json *json = &row->json;
    uint32_t value = app_json_get(json, 0, key);

    if (role && value != APP_JSON_NONE && app_json_is(json, value) == APP_JSON_STRING)
        return add(row, *role, value);
    value = app_json_need(json, 0, key, APP_JSON_ARRAY);
    if (value == APP_JSON_NONE)
        return json->error->code;
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;
         i = app_json_after(json, i))
        read_message(row, i);
    return json->error->code;
}

static wf_status read_row(app_chat_row *row)
{
    static const app_chat_role user = APP_CHAT_USER, assistant = APP_CHAT_ASSISTANT;
    app_json *json = &row->json;

    if (app_json_is(json, 0) != APP_JSON_OBJECT)
        return app_json_refuse(json, 0, WF_EDATA, "is no object");
    if (app_json_get(json, 0, "prompt") == APP_JSON_NONE)
        return json->error->code == WF_OK ? read_part(row, "messages", NULL)
                                          : json->error->code;
    if (read_part(row, "prompt", &user) == WF_OK)
        read_part(row, "completion", &assistant);
    return json->error->code;
}

wf_status app_chat_row_read(const char *name, const char *text, size_t bytes,
                            app_chat_row **row, wf_error *error)
{
    app_chat_row *r = calloc(1, sizeof *r);
    char *copy = malloc(bytes + 1);

    *row = NULL;
    if (!r || !copy) {
        free(r);
        free(copy);
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", name);
    }
    if (bytes)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    if (app_json_open(&r->json, name, copy, bytes, error) == WF_OK)
        read_row(r);
    if (error->code == WF_OK)
        *row = r;
    else
        app_chat_row_free(r);
    return error->code;
}

void app_chat_row_free(app_chat_row *row)
{
    if (!row)
        return;
    app_json_close(&row->json);
    free(row->messages);
    free(row);
}

const app_chat_message *app_chat_row_messages(const app_chat_row *row, size_t *count)
{
    *count = row->count;
    return row->messages;
}
