/* nn/text/chat/writer.c - conversations as texts: the template is rendered, and what of it is
   trained is found. */
#include "nn/text/chat/chat_internal.h"
#include "nn/text/tokenizer/tokenizer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_chat_writer_new(const wf_chat_template *t, wf_chat_writer **w, wf_error *error)
{
    *w = calloc(1, sizeof **w);
    if (!*w)
        return wf_error_set(error, WF_ENOMEM, "out of memory: a thread's chat template");
    (*w)->t = t;
    return wf_jinja_run_new(&(*w)->run, error);
}

void wf_chat_writer_free(wf_chat_writer *w)
{
    if (!w)
        return;
    wf_jinja_run_free(w->run);
    free(w->messages);
    free(w);
}

void wf_chat_written_free(wf_chat_written *w)
{
    wf_tok_bytes_free(&w->text);
    free(w->spans);
    *w = (wf_chat_written){.count = 0};
}

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: a conversation");
}

static wf_jinja_value word(wf_jinja_run *run, const char *text)
{
    return wf_jinja_text(run, text, strlen(text));
}

const char *const wf_chat_reasoning[WF_CHAT_REASONING] = {"reasoning_content", "thinking",
                                                          "reasoning"};

/* Returns a message as its template gets it: without fields that are null, and with both names
   of what is thought. */
static wf_jinja_value message_value(wf_chat_writer *w, const wf_chat_message *m)
{
    const wf_text_json *json = &w->row->json;
    wf_jinja_value dict = wf_jinja_dict(w->run), thought = wf_jinja_none();
    size_t bytes;

    if (m->role) {
        wf_jinja_dict_set(w->run, dict, word(w->run, "role"), word(w->run, m->role));
        wf_jinja_dict_set(w->run, dict, word(w->run, "content"),
                          wf_chat_json_value(w->run, json, m->value));
        return dict;
    }
    for (int i = 0; i < WF_CHAT_REASONING && thought.kind == WF_JINJA_NONE; i++)
        for (uint32_t k = m->value + 1; k < json->values[m->value].next;
             k = wf_text_json_after(json, k + 1))
            if (wf_text_json_equals(json, k, wf_chat_reasoning[i]) &&
                !wf_chat_is_ignored(w->t, wf_chat_reasoning[i], strlen(wf_chat_reasoning[i])))
                thought = wf_chat_json_value(w->run, json, k + 1);
    if (thought.kind != WF_JINJA_NONE)
        wf_jinja_dict_set(w->run, dict, word(w->run, "thinking"), thought);
    for (uint32_t k = m->value + 1; k < json->values[m->value].next;
         k = wf_text_json_after(json, k + 1)) {
        const char *key = wf_text_json_text(json, k, &bytes);

        if (wf_text_json_is(json, k + 1) != WF_TEXT_JSON_NULL &&
            !wf_chat_is_ignored(w->t, key, bytes))
            wf_jinja_dict_set(w->run, dict, wf_jinja_text(w->run, key, bytes),
                              wf_chat_json_value(w->run, json, k + 1));
    }
    if (thought.kind != WF_JINJA_NONE)
        wf_jinja_dict_set(w->run, dict, word(w->run, "reasoning_content"), thought);
    return dict;
}

/* Sets the variables of an object of JSON. */
static void set_variables(wf_chat_writer *w, const wf_text_json *json, uint32_t object)
{
    size_t bytes;

    for (uint32_t i = object + 1; i < json->values[object].next;
         i = wf_text_json_after(json, i + 1)) {
        const char *name = wf_text_json_text(json, i, &bytes);

        wf_jinja_dict_set(w->run, w->variables, wf_jinja_text(w->run, name, bytes),
                          wf_chat_json_value(w->run, json, i + 1));
    }
}

static wf_jinja_value list_value(wf_chat_writer *w, uint32_t list)
{
    return list == WF_TEXT_JSON_NONE ? wf_jinja_none()
                                     : wf_chat_json_value(w->run, &w->row->json, list);
}

/* Makes the variables of a row but its messages; those of the row go before those of the
   options. */
static void build(wf_jinja_run *run, void *arg)
{
    wf_chat_writer *w = arg;
    const wf_chat_row *row = w->row;

    w->variables = wf_jinja_dict(run);
    for (int i = 0; i < w->t->specials.count; i++)
        if (w->t->specials.item[i].text)
            wf_jinja_dict_set(run, w->variables, word(run, w->t->specials.item[i].name),
                              word(run, w->t->specials.item[i].text));
    if (w->t->variables.count)
        set_variables(w, &w->t->variables, 0);
    if (row->variables != WF_TEXT_JSON_NONE)
        set_variables(w, &row->json, row->variables);
    wf_jinja_dict_set(run, w->variables, word(run, "tools"), list_value(w, row->tools));
    wf_jinja_dict_set(run, w->variables, word(run, "documents"), list_value(w, row->documents));
    for (size_t i = 0; i < row->count; i++)
        w->messages[i] = message_value(w, &row->messages[i]);
}

static wf_status begin(wf_chat_writer *w, const wf_chat_row *row, wf_error *error)
{
    if (w->room < row->count) {
        wf_jinja_value *messages = realloc(w->messages, row->count * sizeof *messages);

        if (!messages)
            return no_memory(error);
        w->messages = messages;
        w->room = row->count;
    }
    w->row = row;
    w->jinja = w->t->tools && row->tools != WF_TEXT_JSON_NONE ? w->t->tools : w->t->plain;
    wf_jinja_run_reset(w->run);
    return wf_jinja_protect(w->run, build, w, error);
}

/* Sets the messages of a render. */
static void cut(wf_jinja_run *run, void *arg)
{
    wf_chat_writer *w = arg;
    wf_jinja_value list = wf_jinja_list(run);

    for (size_t i = 0; i < w->count; i++)
        wf_jinja_list_add(run, list, w->messages[i]);
    wf_jinja_dict_set(run, w->variables, word(run, "messages"), list);
    wf_jinja_dict_set(run, w->variables, word(run, "add_generation_prompt"),
                      wf_jinja_bool(w->prompt));
}

/* Renders the first messages of a row. */
wf_status wf_chat_render(wf_chat_writer *w, size_t count, bool prompt, wf_jinja_output *out,
                         wf_error *error)
{
    w->count = count;
    w->prompt = prompt;
    if (wf_jinja_protect(w->run, cut, w, error) != WF_OK)
        return error->code;
    return wf_jinja_render(w->run, w->jinja, w->variables, out, error);
}

static wf_status write_row(wf_chat_writer *w, wf_chat_train train, size_t part,
                           wf_chat_written *written, wf_error *error)
{
    const wf_chat_row *row = w->row;
    const size_t turn =
        wf_chat_turn(row, train == WF_CHAT_EACH ? part : 0, train != WF_CHAT_EACH);
    const size_t count = train == WF_CHAT_EACH ? turn + 1 : row->count;
    wf_jinja_output out;

    if (turn == row->count && train != WF_CHAT_PROMPT && train != WF_CHAT_ALL)
        return wf_error_set(
            error, WF_EDATA,
            "no turn of an assistant is trained, so there is nothing to train on");
    if (wf_chat_render(w, count, train == WF_CHAT_PROMPT, &out, error) != WF_OK ||
        wf_chat_check(w, count, error) != WF_OK)
        return error->code;
    if (!wf_tok_bytes_add(&written->text, out.text, out.bytes))
        return no_memory(error);
    return train == WF_CHAT_PROMPT
               ? WF_OK
               : wf_chat_find_spans(w, train, turn, count, &out, written, error);
}

wf_status wf_chat_write(wf_chat_writer *w, const wf_chat_row *row, wf_chat_train train,
                        size_t part, wf_chat_written *written, wf_error *error)
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
