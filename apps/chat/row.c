/* apps/chat/row.c - a line of chat data: a conversation in JSON, from strangers. */
#include "apps/chat/chat_internal.h"
#include <stdlib.h>
#include <string.h>

/* Fields of a row that say nothing of what is trained. */
static const char *const harmless[] = {"id",
                                       "_id",
                                       "idx",
                                       "index",
                                       "uuid",
                                       "prompt_id",
                                       "conversation_id",
                                       "conversation_hash",
                                       "source",
                                       "sources",
                                       "dataset",
                                       "dataset_name",
                                       "split",
                                       "subset",
                                       "metadata",
                                       "meta",
                                       "language",
                                       "lang",
                                       "license",
                                       "url",
                                       "category",
                                       "topic",
                                       "task",
                                       "tags",
                                       "model",
                                       "timestamp",
                                       "date",
                                       "created_at",
                                       "updated_at",
                                       "num_turns",
                                       "author",
                                       "version"};

static bool is_one_of(const app_json *json, uint32_t key, const char *const *words,
                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (app_json_equals(json, key, words[i]))
            return true;
    return false;
}

bool app_chat_is_harmless(const char *field)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], field) == 0)
            return true;
    return false;
}

static app_chat_message *add(app_chat_row *row)
{
    if (row->count == row->room) {
        size_t room = 2 * row->room + 8;
        app_chat_message *m = realloc(row->messages, room * sizeof *m);

        if (!m) {
            wf_error_set(row->json.error, WF_ENOMEM, "%s: out of memory", row->json.name);
            return NULL;
        }
        row->messages = m;
        row->room = room;
    }
    return &row->messages[row->count++];
}

/* Reads whether a message is trained: "weight" of OpenAI's format, "train" of axolotl's. */
static wf_status read_trained(const app_json *json, uint32_t value, app_chat_message *m)
{
    uint32_t weight = app_json_get(json, value, "weight"),
             train = app_json_get(json, value, "train");
    bool yes = m->assistant;

    if (json->error->code != WF_OK)
        return json->error->code;
    if (weight != APP_JSON_NONE) {
        const app_json_value *v = &json->values[weight];
        const char *text = json->text + v->begin;
        bool zero = v->kind == APP_JSON_NUMBER && strspn(text, "0.") >= v->count;

        if (!zero &&
            !(v->kind == APP_JSON_NUMBER && *text == '1' &&
              strspn(text + 1, "0.") + 1 >= v->count && (v->count == 1 || text[1] == '.')))
            return app_json_refuse(json, weight, WF_EUNSUPPORTED,
                                   "is neither 0 nor 1: a message is trained or is not");
        yes = !zero;
    }
    if (train != APP_JSON_NONE) {
        if (app_json_is(json, train) != APP_JSON_TRUE &&
            app_json_is(json, train) != APP_JSON_FALSE)
            return app_json_refuse(json, train, WF_EDATA, "is neither true nor false");
        if (weight != APP_JSON_NONE && yes != (app_json_is(json, train) == APP_JSON_TRUE))
            return app_json_refuse(json, train, WF_EDATA,
                                   "says something else than \"weight\"");
        yes = app_json_is(json, train) == APP_JSON_TRUE;
    }
    if (yes && !m->assistant)
        return app_json_refuse(
            json, weight != APP_JSON_NONE ? weight : train, WF_EUNSUPPORTED,
            "would train what no assistant says: --train all trains a whole text");
    m->trained = yes && m->trained;
    return WF_OK;
}

static wf_status read_message(app_chat_row *row, const app_chat_template *t, uint32_t value,
                              bool trained)
{
    static const char *const roles[] = {"system", "developer", "user",   "assistant",
                                        "tool",   "function",  "ipython"};
    app_json *json = &row->json;
    uint32_t role = app_json_need(json, value, "role", APP_JSON_STRING), content;
    app_chat_message *m;
    const char *text;
    size_t bytes;

    if (role == APP_JSON_NONE)
        return json->error->code;
    text = app_json_text(json, role, &bytes);
    if (!is_one_of(json, role, roles, sizeof roles / sizeof *roles) &&
        !app_jinja_mentions(t->plain, text, bytes))
        return app_json_refuse(json, role, WF_EUNSUPPORTED,
                               "is none of system, developer, user, assistant and tool, and "
                               "none that the chat template %s knows",
                               t->name);
    content = app_json_get(json, value, "content");
    if (content != APP_JSON_NONE && app_json_is(json, content) != APP_JSON_STRING &&
        app_json_is(json, content) != APP_JSON_ARRAY)
        return app_json_refuse(json, content, WF_EDATA,
                               "is neither a text nor a list of parts");
    if (!(m = add(row)))
        return json->error->code;
    *m = (app_chat_message){.value = value,
                            .assistant = app_json_equals(json, role, "assistant"),
                            .trained = trained};
    return read_trained(json, value, m);
}

/* Reads a list of messages, or, where `role` is given, what that one says. */
static wf_status read_part(app_chat_row *row, const app_chat_template *t, const char *key,
                           const char *role, bool trained)
{
    app_json *json = &row->json;
    uint32_t value = app_json_get(json, 0, key);
    app_chat_message *m;

    if (role && value != APP_JSON_NONE && app_json_is(json, value) == APP_JSON_STRING) {
        if ((m = add(row)))
            *m = (app_chat_message){
                .value = value, .role = role, .assistant = *role == 'a', .trained = trained};
        return json->error->code;
    }
    value = app_json_need(json, 0, key, APP_JSON_ARRAY);
    if (value == APP_JSON_NONE)
        return json->error->code;
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;
         i = app_json_after(json, i))
        read_message(row, t, i, trained);
    return json->error->code;
}

/* Refuses a field of a row that is not known, since it may say what is trained. */
static wf_status check_fields(const app_json *json, const app_chat_template *t, bool pair)
{
    static const char *const known[] = {"tools",    "documents", "chat_template_kwargs",
                                        "messages", "prompt",    "completion"};

    for (uint32_t i = 1; i < json->values[0].next; i = app_json_after(json, i + 1)) {
        size_t bytes;
        const char *key = app_json_text(json, i, &bytes);
        bool own = is_one_of(json, i, known, 3) ||
                   is_one_of(json, i, pair ? known + 4 : known + 3, pair ? 2 : 1);

        if (own || app_json_is(json, i + 1) == APP_JSON_NULL ||
            is_one_of(json, i, harmless, sizeof harmless / sizeof *harmless) ||
            app_chat_is_ignored(t, key, bytes))
            continue;
        return app_json_refuse(json, i, WF_EUNSUPPORTED,
                               "is a field that is not known here and may say what is trained: "
                               "--ignore-fields %.*s leaves it out",
                               (int)(bytes < 60 ? bytes : 60), key);
    }
    return WF_OK;
}

/* Reads a list of objects that a template gets as a variable. */
static uint32_t read_list(const app_json *json, const app_chat_template *t, const char *key)
{
    uint32_t list = app_json_get(json, 0, key);

    if (list == APP_JSON_NONE)
        return list;
    if (app_json_is(json, list) != APP_JSON_ARRAY)
        app_json_refuse(json, list, WF_EDATA, "is no list");
    else if (!app_jinja_mentions(t->tools ? t->tools : t->plain, key, strlen(key)))
        app_json_refuse(json, list, WF_EUNSUPPORTED,
                        "is nothing that the chat template %s writes", t->name);
    for (uint32_t i = list + 1; json->error->code == WF_OK && i < json->values[list].next;
         i = app_json_after(json, i))
        if (app_json_is(json, i) != APP_JSON_OBJECT)
            app_json_refuse(json, i, WF_EDATA, "is no object");
    return list;
}

static wf_status read_row(app_chat_row *row, const app_chat_template *t)
{
    app_json *json = &row->json;
    bool pair;

    if (app_json_is(json, 0) != APP_JSON_OBJECT)
        return app_json_refuse(json, 0, WF_EDATA, "is no object");
    pair = app_json_get(json, 0, "messages") == APP_JSON_NONE &&
           app_json_get(json, 0, "prompt") != APP_JSON_NONE;
    if (json->error->code != WF_OK)
        return json->error->code;
    if (pair) {
        if (read_part(row, t, "prompt", "user", false) == WF_OK)
            read_part(row, t, "completion", "assistant", true);
    } else {
        read_part(row, t, "messages", NULL, true);
    }
    if (json->error->code != WF_OK || check_fields(json, t, pair) != WF_OK)
        return json->error->code;
    row->tools = read_list(json, t, "tools");
    row->documents = read_list(json, t, "documents");
    row->variables = app_json_get(json, 0, "chat_template_kwargs");
    if (json->error->code == WF_OK && row->variables != APP_JSON_NONE)
        app_chat_check_variables(json, row->variables);
    if (json->error->code == WF_OK && row->count == 0)
        wf_error_set(json->error, WF_EDATA, "%s: the conversation has no messages", json->name);
    return json->error->code;
}

wf_status app_chat_row_read(const app_chat_template *t, const char *name, const char *text,
                            size_t bytes, app_chat_row **row, wf_error *error)
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
        read_row(r, t);
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
