/* nn/text/chat/checks.c - what a template drops of a message. */
#include "nn/text/chat/chat_internal.h"
#include <string.h>

/* Words that templates read of tools, too, so that to see them in a template says little of a
   message. */
static bool is_of_tools(const char *field, size_t bytes)
{
    static const char *const words[] = {"name",     "id",        "type",       "text",
                                        "function", "arguments", "parameters", "description",
                                        "index",    "title"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == bytes && memcmp(words[i], field, bytes) == 0)
            return true;
    return false;
}

static bool is_reasoning(const char *field, size_t bytes)
{
    for (int i = 0; i < WF_CHAT_REASONING; i++)
        if (strlen(wf_chat_reasoning[i]) == bytes &&
            memcmp(wf_chat_reasoning[i], field, bytes) == 0)
            return true;
    return false;
}

/* Says whether a template reads a field: it did in this message, or names it. */
static bool is_read(const wf_chat_writer *w, wf_jinja_value message, const char *field,
                    size_t bytes)
{
    if (wf_jinja_was_read(message, field, bytes))
        return true;
    if (is_reasoning(field, bytes))
        return wf_jinja_mentions(w->jinja, "reasoning_content", 17) ||
               wf_jinja_mentions(w->jinja, "thinking", 8) ||
               wf_jinja_mentions(w->jinja, field, bytes);
    return !is_of_tools(field, bytes) && wf_jinja_mentions(w->jinja, field, bytes);
}

/* Refuses a message of which the template drops something without a word. */
static wf_status check_message(const wf_chat_writer *w, size_t i, wf_error *error)
{
    const wf_text_json *json = &w->row->json;
    const wf_chat_message *m = &w->row->messages[i];
    const char *name = json->name;

    if (m->role && json->values[m->value].count &&
        !wf_jinja_was_read(w->messages[i], "content", 7))
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s: the chat template %s does not write what a %s says", name,
                            w->t->name, m->role);
    for (uint32_t k = m->value + 1; !m->role && k < json->values[m->value].next;
         k = wf_text_json_after(json, k + 1)) {
        const wf_text_json_value *v = &json->values[k + 1];
        size_t bytes;
        const char *field = wf_text_json_text(json, k, &bytes);
        const bool content = wf_text_json_equals(json, k, "content");

        if (v->kind == WF_TEXT_JSON_NULL || wf_text_json_equals(json, k, "role") ||
            wf_text_json_equals(json, k, "weight") || wf_text_json_equals(json, k, "train") ||
            wf_chat_is_ignored(w->t, field, bytes) || (content && v->count == 0))
            continue;
        if (content && v->kind == WF_TEXT_JSON_ARRAY && !wf_jinja_mentions(w->jinja, "text", 4))
            return wf_error_set(error, WF_EUNSUPPORTED,
                                "%s: message %zu: content is a list of parts, which the chat "
                                "template %s does not read: give a text",
                                name, i, w->t->name);
        if (content && !wf_jinja_was_read(w->messages[i], field, bytes))
            return wf_error_set(
                error, WF_EUNSUPPORTED,
                "%s: message %zu: the chat template %s does not write its content", name, i,
                w->t->name);
        if (!content && !is_read(w, w->messages[i], field, bytes))
            return wf_error_set(error, WF_EUNSUPPORTED,
                                "%s: message %zu: the chat template %s does not write its "
                                "field %.*s: .ignored %.*s leaves it out",
                                name, i, w->t->name, (int)(bytes < 60 ? bytes : 60), field,
                                (int)(bytes < 60 ? bytes : 60), field);
    }
    return WF_OK;
}

/* Refuses parts of a content that are no texts. */
static wf_status check_parts(const wf_chat_writer *w, size_t i, wf_error *error)
{
    const wf_text_json *json = &w->row->json;
    const wf_chat_message *m = &w->row->messages[i];

    for (uint32_t k = m->value + 1; !m->role && k < json->values[m->value].next;
         k = wf_text_json_after(json, k + 1)) {
        if (!wf_text_json_equals(json, k, "content") ||
            wf_text_json_is(json, k + 1) != WF_TEXT_JSON_ARRAY)
            continue;
        for (uint32_t p = k + 2; p < json->values[k + 1].next;
             p = wf_text_json_after(json, p)) {
            bool text = false;

            for (uint32_t f = p + 1;
                 wf_text_json_is(json, p) == WF_TEXT_JSON_OBJECT && f < json->values[p].next;
                 f = wf_text_json_after(json, f + 1))
                text = text || (wf_text_json_equals(json, f, "type") &&
                                wf_text_json_equals(json, f + 1, "text"));
            if (!text)
                return wf_error_set(error, WF_EUNSUPPORTED,
                                    "%s: message %zu: a part of its content is no text",
                                    json->name, i);
        }
    }
    return WF_OK;
}

wf_status wf_chat_check(const wf_chat_writer *w, size_t count, wf_error *error)
{
    for (size_t i = 0; i < count && error->code == WF_OK; i++)
        if (check_parts(w, i, error) == WF_OK)
            check_message(w, i, error);
    return error->code;
}
