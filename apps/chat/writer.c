/* apps/chat/writer.c - conversations as texts: the template is rendered, and what of it is trained is found. */
#include "apps/chat/chat_internal.h"
#include "apps/tokenizer/tokenizer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_status app_chat_writer_new(const app_chat_template *t, app_chat_writer **w, wf_error *error)
{
    *w = calloc(1, sizeof **w);
    if (!*w)
        return wf_error_set(error, WF_ENOMEM, "out of memory: a thread's chat template");
    (*w)->t = t;
    return app_jinja_run_new(&(*w)->run, error);
}

void app_chat_writer_free(app_chat_writer *w)
{
    if (!w)
        return;
    app_jinja_run_free(w->run);
    free(w->messages);
    free(w);
}

void app_chat_written_free(app_chat_written *w)
{
    app_tokenizer_bytes_free(&w->text);
    free(w->spans);
    *w = (app_chat_written){.count = 0};
}

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: a conversation");
}

static app_jinja_value word(app_jinja_run *run, const char *text)
{
    return app_jinja_text(run, text, strlen(text));
}

const char *const app_chat_reasoning[APP_CHAT_REASONING] = {"reasoning_content", "thinking",
                                                            "reasoning"};

/* A message as its template gets it: without fields that are null, and with both names of what is thought. */
static app_jinja_value message_value(app_chat_writer *w, const app_chat_message *m)
{
    const app_json *json = &w->row->json;
    app_jinja_value dict = app_jinja_dict(w->run), thought = app_jinja_none();
    size_t bytes;

    if (m->role) {
        app_jinja_dict_set(w->run, dict, word(w->run, "role"), word(w->run, m->role));
        app_jinja_dict_set(w->run, dict, word(w->run, "content"),
                           app_chat_json_value(w->run, json, m->value));
        return dict;
    }
    for (int i = 0; i < APP_CHAT_REASONING && thought.kind == APP_JINJA_NONE; i++)
        for (uint32_t k = m->value + 1; k < json->values[m->value].next;
             k = app_json_after(json, k + 1))
            if (app_json_equals(json, k, app_chat_reasoning[i]) &&
                !app_chat_is_ignored(w->t, app_chat_reasoning[i],
                                     strlen(app_chat_reasoning[i])))
                thought = app_chat_json_value(w->run, json, k + 1);
    if (thought.kind != APP_JINJA_NONE)
        app_jinja_dict_set(w->run, dict, word(w->run, "thinking"), thought);
    for (uint32_t k = m->value + 1; k < json->values[m->value].next;
         k = app_json_after(json, k + 1)) {
        const char *key = app_json_text(json, k, &bytes);

        if (app_json_is(json, k + 1) != APP_JSON_NULL && !app_chat_is_ignored(w->t, key, bytes))
            app_jinja_dict_set(w->run, dict, app_jinja_text(w->run, key, bytes),
                               app_chat_json_value(w->run, json, k + 1));
    }
    if (thought.kind != APP_JINJA_NONE)
        app_jinja_dict_set(w->run, dict, word(w->run, "reasoning_content"), thought);
    return dict;
}

/* Sets the variables of an object of JSON. */
static void set_variables(app_chat_writer *w, const app_json *json, uint32_t object)
{
    size_t bytes;

    for (uint32_t i = object + 1; i < json->values[object].next;
         i = app_json_after(json, i + 1)) {
        const char *name = app_json_text(json, i, &bytes);

        app_jinja_dict_set(w->run, w->variables, app_jinja_text(w->run, name, bytes),
                           app_chat_json_value(w->run, json, i + 1));
    }
}

static app_jinja_value list_value(app_chat_writer *w, uint32_t list)
{
    return list == APP_JSON_NONE ? app_jinja_none()
                                 : app_chat_json_value(w->run, &w->row->json, list);
}

/* Makes the variables of a row but its messages; those of the row go before those of the options. */
static void build(app_jinja_run *run, void *arg)
{
    app_chat_writer *w = arg;
    const app_chat_row *row = w->row;

    w->variables = app_jinja_dict(run);
    for (int i = 0; i < w->t->specials.count; i++)
        if (w->t->specials.item[i].text)
            app_jinja_dict_set(run, w->variables, word(run, w->t->specials.item[i].name),
                               word(run, w->t->specials.item[i].text));
    if (w->t->variables.count)
        set_variables(w, &w->t->variables, 0);
    if (row->variables != APP_JSON_NONE)
        set_variables(w, &row->json, row->variables);
    app_jinja_dict_set(run, w->variables, word(run, "tools"), list_value(w, row->tools));
    app_jinja_dict_set(run, w->variables, word(run, "documents"),
                       list_value(w, row->documents));
    for (size_t i = 0; i < row->count; i++)
        w->messages[i] = message_value(w, &row->messages[i]);
}

static wf_status begin(app_chat_writer *w, const app_chat_row *row, wf_error *error)
{
    if (w->room < row->count) {
        app_jinja_value *messages = realloc(w->messages, row->count * sizeof *messages);

        if (!messages)
            return no_memory(error);
        w->messages = messages;
        w->room = row->count;
    }
    w->row = row;
    w->jinja = w->t->tools && row->tools != APP_JSON_NONE ? w->t->tools : w->t->plain;
    app_jinja_run_reset(w->run);
    return app_jinja_protect(w->run, build, w, error);
}

/* Sets the messages of a render. */
static void cut(app_jinja_run *run, void *arg)
{
    app_chat_writer *w = arg;
    app_jinja_value list = app_jinja_list(run);

    for (size_t i = 0; i < w->count; i++)
        app_jinja_list_add(run, list, w->messages[i]);
    app_jinja_dict_set(run, w->variables, word(run, "messages"), list);
    app_jinja_dict_set(run, w->variables, word(run, "add_generation_prompt"),
                       app_jinja_bool(w->prompt));
}

/* Renders the first messages of a row. */
wf_status app_chat_render(app_chat_writer *w, size_t count, bool prompt, app_jinja_output *out,
                          wf_error *error)
{
    w->count = count;
    w->prompt = prompt;
    if (app_jinja_protect(w->run, cut, w, error) != WF_OK)
        return error->code;
    return app_jinja_render(w->run, w->jinja, w->variables, out, error);
}

static wf_status write_row(app_chat_writer *w, app_chat_train train, size_t part,
                           app_chat_written *written, wf_error *error)
{
    const app_chat_row *row = w->row;
    const size_t turn =
        app_chat_turn(row, train == APP_CHAT_EACH ? part : 0, train != APP_CHAT_EACH);
    const size_t count = train == APP_CHAT_EACH ? turn + 1 : row->count;
    app_jinja_output out;

    if (turn == row->count && train != APP_CHAT_PROMPT && train != APP_CHAT_ALL)
        return wf_error_set(
            error, WF_EDATA,
            "no turn of an assistant is trained, so there is nothing to train on");
    if (app_chat_render(w, count, train == APP_CHAT_PROMPT, &out, error) != WF_OK ||
        app_chat_check(w, count, error) != WF_OK)
        return error->code;
    if (!app_tokenizer_bytes_add(&written->text, out.text, out.bytes))
        return no_memory(error);
    return train == APP_CHAT_PROMPT
               ? WF_OK
               : app_chat_find_spans(w, train, turn, count, &out, written, error);
}

wf_status app_chat_write(app_chat_writer *w, const app_chat_row *row, app_chat_train train,
                         size_t part, app_chat_written *written, wf_error *error)
{
    const char *name = row->json.name;
    wf_error why = {WF_OK, ""};

    written->text.bytes = written->count = 0;
    written->exact = false;
    if (begin(w, row, &why) == WF_OK)
        write_row(w, train, part, written, &why);
    if (why.code == WF_OK)
        return WF_OK;
    return wf_error_set(error, why.code, "%s%s%s",
                        strncmp(why.text, name, strlen(name)) == 0 ? "" : name,
                        strncmp(why.text, name, strlen(name)) == 0 ? "" : ": ", why.text);
}
