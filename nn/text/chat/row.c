/* nn/text/chat/row.c - a line of chat data: a conversation in JSON, from an untrusted
   source. */
#include "nn/text/chat/chat_internal.h"
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

static bool is_one_of(const wf_text_json *json, uint32_t key, const char *const *words,
                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (wf_text_json_equals(json, key, words[i]))
            return true;
    return false;
}

bool wf_chat_is_harmless(const char *field)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], field) == 0)
            return true;
    return false;
}

static wf_chat_message *add(wf_chat_row *row)
{
    if (row->count == row->room) {
        size_t room = 2 * row->room + 8;
        wf_chat_message *m = realloc(row->messages, room * sizeof *m);

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
static wf_status read_trained(const wf_text_json *json, uint32_t value, wf_chat_message *m)
{
    uint32_t weight = wf_text_json_get(json, value, "weight"),
             train = wf_text_json_get(json, value, "train");
    bool yes = m->assistant;

    if (json->error->code != WF_OK)
        return json->error->code;
    if (weight != WF_TEXT_JSON_NONE) {
        const wf_text_json_value *v = &json->values[weight];
        const char *text = json->text + v->begin;
        bool zero = v->kind == WF_TEXT_JSON_NUMBER && strspn(text, "0.") >= v->count;

        if (!zero &&
            !(v->kind == WF_TEXT_JSON_NUMBER && *text == '1' &&
              strspn(text + 1, "0.") + 1 >= v->count && (v->count == 1 || text[1] == '.')))
            return wf_text_json_refuse(json, weight, WF_EUNSUPPORTED,
                                       "is neither 0 nor 1: a message is trained or is not");
        yes = !zero;
    }
    if (train != WF_TEXT_JSON_NONE) {
        if (wf_text_json_is(json, train) != WF_TEXT_JSON_TRUE &&
            wf_text_json_is(json, train) != WF_TEXT_JSON_FALSE)
            return wf_text_json_refuse(json, train, WF_EDATA, "is neither true nor false");
        if (weight != WF_TEXT_JSON_NONE &&
            yes != (wf_text_json_is(json, train) == WF_TEXT_JSON_TRUE))
            return wf_text_json_refuse(json, train, WF_EDATA,
                                       "says something else than \"weight\"");
        yes = wf_text_json_is(json, train) == WF_TEXT_JSON_TRUE;
    }
    if (yes && !m->assistant)
        return wf_text_json_refuse(
            json, weight != WF_TEXT_JSON_NONE ? weight : train, WF_EUNSUPPORTED,
            "would train what no assistant says: .train all trains a whole text");
    m->trained = yes && m->trained;
    return WF_OK;
}

static wf_status read_message(wf_chat_row *row, const wf_chat_template *t, uint32_t value,
                              bool trained)
{
    static const char *const roles[] = {"system", "developer", "user",   "assistant",
                                        "tool",   "function",  "ipython"};
    wf_text_json *json = &row->json;
    uint32_t role = wf_text_json_need(json, value, "role", WF_TEXT_JSON_STRING), content;
    wf_chat_message *m;
    const char *text;
    size_t bytes;

    if (role == WF_TEXT_JSON_NONE)
        return json->error->code;
    text = wf_text_json_text(json, role, &bytes);
    if (!is_one_of(json, role, roles, sizeof roles / sizeof *roles) &&
        !wf_jinja_mentions(t->plain, text, bytes))
        return wf_text_json_refuse(
            json, role, WF_EUNSUPPORTED,
            "is none of system, developer, user, assistant and tool, and "
            "none that the chat template %s knows",
            t->name);
    content = wf_text_json_get(json, value, "content");
    if (content != WF_TEXT_JSON_NONE && wf_text_json_is(json, content) != WF_TEXT_JSON_STRING &&
        wf_text_json_is(json, content) != WF_TEXT_JSON_ARRAY)
        return wf_text_json_refuse(json, content, WF_EDATA,
                                   "is neither a text nor a list of parts");
    if (!(m = add(row)))
        return json->error->code;
    *m = (wf_chat_message){.value = value,
                           .assistant = wf_text_json_equals(json, role, "assistant"),
                           .trained = trained};
    return read_trained(json, value, m);
}

/* Reads a list of messages, or, where `role` is given, what that one says. */
static wf_status read_part(wf_chat_row *row, const wf_chat_template *t, const char *key,
                           const char *role, bool trained)
{
    wf_text_json *json = &row->json;
    uint32_t value = wf_text_json_get(json, 0, key);
    wf_chat_message *m;

    if (role && value != WF_TEXT_JSON_NONE &&
        wf_text_json_is(json, value) == WF_TEXT_JSON_STRING) {
        if ((m = add(row)))
            *m = (wf_chat_message){
                .value = value, .role = role, .assistant = *role == 'a', .trained = trained};
        return json->error->code;
    }
    value = wf_text_json_need(json, 0, key, WF_TEXT_JSON_ARRAY);
    if (value == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;
         i = wf_text_json_after(json, i))
        read_message(row, t, i, trained);
    return json->error->code;
}

/* Refuses an unknown field of a row, since it may control training. */
static wf_status check_fields(const wf_text_json *json, const wf_chat_template *t, bool pair)
{
    static const char *const known[] = {"tools",    "documents", "chat_template_kwargs",
                                        "messages", "prompt",    "completion"};

    for (uint32_t i = 1; i < json->values[0].next; i = wf_text_json_after(json, i + 1)) {
        size_t bytes;
        const char *key = wf_text_json_text(json, i, &bytes);
        bool own = is_one_of(json, i, known, 3) ||
                   is_one_of(json, i, pair ? known + 4 : known + 3, pair ? 2 : 1);

        if (own || wf_text_json_is(json, i + 1) == WF_TEXT_JSON_NULL ||
            is_one_of(json, i, harmless, sizeof harmless / sizeof *harmless) ||
            wf_chat_is_ignored(t, key, bytes))
            continue;
        return wf_text_json_refuse(
            json, i, WF_EUNSUPPORTED,
            "is a field that is not known here and may say what is trained: "
            ".ignored %.*s leaves it out",
            (int)(bytes < 60 ? bytes : 60), key);
    }
    return WF_OK;
}

/* Reads a list of objects that a template gets as a variable. */
static uint32_t read_list(const wf_text_json *json, const wf_chat_template *t, const char *key)
{
    uint32_t list = wf_text_json_get(json, 0, key);

    if (list == WF_TEXT_JSON_NONE)
        return list;
    if (wf_text_json_is(json, list) != WF_TEXT_JSON_ARRAY)
        wf_text_json_refuse(json, list, WF_EDATA, "is no list");
    else if (!wf_jinja_mentions(t->tools ? t->tools : t->plain, key, strlen(key)))
        wf_text_json_refuse(json, list, WF_EUNSUPPORTED,
                            "is nothing that the chat template %s writes", t->name);
    for (uint32_t i = list + 1; json->error->code == WF_OK && i < json->values[list].next;
         i = wf_text_json_after(json, i))
        if (wf_text_json_is(json, i) != WF_TEXT_JSON_OBJECT)
            wf_text_json_refuse(json, i, WF_EDATA, "is no object");
    return list;
}

static wf_status read_row(wf_chat_row *row, const wf_chat_template *t)
{
    wf_text_json *json = &row->json;
    bool pair;

    if (wf_text_json_is(json, 0) != WF_TEXT_JSON_OBJECT)
        return wf_text_json_refuse(json, 0, WF_EDATA, "is no object");
    pair = wf_text_json_get(json, 0, "messages") == WF_TEXT_JSON_NONE &&
           wf_text_json_get(json, 0, "prompt") != WF_TEXT_JSON_NONE;
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
    row->variables = wf_text_json_get(json, 0, "chat_template_kwargs");
    if (json->error->code == WF_OK && row->variables != WF_TEXT_JSON_NONE)
        wf_chat_check_variables(json, row->variables);
    if (json->error->code == WF_OK && row->count == 0)
        wf_error_set(json->error, WF_EDATA, "%s: the conversation has no messages", json->name);
    return json->error->code;
}

wf_status wf_chat_row_read(const wf_chat_template *t, const char *name, const char *text,
                           size_t bytes, wf_chat_row **row, wf_error *error)
{
    wf_chat_row *r = calloc(1, sizeof *r);
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
    if (wf_text_json_open(&r->json, name, copy, bytes, error) == WF_OK)
        read_row(r, t);
    if (error->code == WF_OK)
        *row = r;
    else
        wf_chat_row_free(r);
    return error->code;
}

void wf_chat_row_free(wf_chat_row *row)
{
    if (!row)
        return;
    wf_text_json_close(&row->json);
    free(row->messages);
    free(row);
}
