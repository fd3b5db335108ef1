/* nn/text/chat/spans.c - what of a conversation is trained. */
#include "nn/text/chat/chat_internal.h"
#include <stdlib.h>
#include <string.h>

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: a conversation");
}

static bool add_span(wf_chat_written *w, size_t begin, size_t end)
{
    if (w->count == w->room) {
        size_t room = 2 * w->room + 8;
        wf_chat_span *spans = realloc(w->spans, room * sizeof *spans);

        if (!spans)
            return false;
        w->spans = spans;
        w->room = room;
    }
    w->spans[w->count++] = (wf_chat_span){begin, end};
    return true;
}

/* Returns the number of an assistant's turn that is trained, from the first on or from the last
   one back; count: there is none. */
size_t wf_chat_turn(const wf_chat_row *row, size_t number, bool last)
{
    for (size_t k = 0; k < row->count; k++) {
        size_t i = last ? row->count - 1 - k : k;

        if (row->messages[i].assistant && row->messages[i].trained && number-- == 0)
            return i;
    }
    return row->count;
}

size_t wf_chat_parts(const wf_chat_row *row, wf_chat_train train)
{
    size_t turns = 0;

    for (size_t i = 0; i < row->count; i++)
        turns += row->messages[i].assistant && row->messages[i].trained;
    return train == WF_CHAT_EACH && turns ? turns : 1;
}

/* Renders the first messages and checks that the written text begins with them. */
static wf_status prefix(wf_chat_writer *w, size_t turn, bool prompt,
                        const wf_chat_written *written, size_t *end, wf_error *error)
{
    wf_jinja_output out;
    wf_error why = {WF_OK, ""};

    if (wf_chat_render(w, turn + !prompt, prompt, &out, &why) != WF_OK)
        return wf_error_set(
            error, why.code,
            "what is trained is found by writing the conversation up to message %zu, and %s",
            turn, why.text);
    *end = out.bytes;
    if (out.bytes <= written->text.bytes &&
        memcmp(out.text, written->text.data, out.bytes) == 0)
        return WF_OK;
    if (prompt)
        return wf_error_set(error, WF_EDATA,
                            "the chat template %s asks for an answer by another text than the "
                            "one that it writes before message %zu, so that the answer "
                            "would be trained after what no model reads: give a template with "
                            "generation blocks, or %s",
                            w->t->name, turn,
                            turn + 1 == w->row->count ? "variables that make both alike"
                                                      : ".train each");
    return wf_error_set(
        error, WF_EDATA,
        "the chat template %s writes message %zu in another way once others follow (as some "
        "leave out what was thought earlier): .train "
        "each makes a text of each answer, .train last trains the last one alone",
        w->t->name, turn);
}

/* Adds the span of a turn, found by rendering up to it. */
static wf_status add_turn(wf_chat_writer *w, size_t turn, bool ends, wf_chat_written *written,
                          wf_error *error)
{
    size_t begins, end = written->text.bytes;

    if (prefix(w, turn, true, written, &begins, error) != WF_OK ||
        (!ends && prefix(w, turn, false, written, &end, error) != WF_OK))
        return error->code;
    if (begins > end)
        return wf_error_set(error, WF_EDATA,
                            "the chat template %s writes nothing of message %zu", w->t->name,
                            turn);
    return add_span(written, begins, end) ? WF_OK : no_memory(error);
}

/* Takes the generation blocks of the first `count` messages: all of them, or those of some
   turns, which need one each. */
static wf_status take_blocks(const wf_chat_writer *w, wf_chat_train train, size_t chosen,
                             size_t count, const wf_jinja_output *out, wf_chat_written *written,
                             wf_error *error)
{
    const wf_chat_row *row = w->row;
    bool all = train == WF_CHAT_ASSISTANT;
    size_t turns = 0;

    for (size_t i = 0; i < count; i++) {
        turns += row->messages[i].assistant;
        all = all && row->messages[i].assistant == row->messages[i].trained;
    }
    if (!all && out->span_count != turns)
        return wf_error_set(error, WF_EDATA,
                            "the chat template %s marks %zu parts of %zu turns of assistants, "
                            "so that those of one turn are not known",
                            w->t->name, out->span_count, turns);
    for (size_t i = 0; all && i < out->span_count; i++)
        if (!add_span(written, out->spans[i].begin, out->spans[i].end))
            return no_memory(error);
    for (size_t i = 0, turn = 0; !all && i < count; turn += row->messages[i].assistant, i++)
        if (row->messages[i].assistant &&
            (train == WF_CHAT_ASSISTANT ? row->messages[i].trained : i == chosen) &&
            !add_span(written, out->spans[turn].begin, out->spans[turn].end))
            return no_memory(error);
    return WF_OK;
}

wf_status wf_chat_find_spans(wf_chat_writer *w, wf_chat_train train, size_t turn, size_t count,
                             const wf_jinja_output *out, wf_chat_written *written,
                             wf_error *error)
{
    const wf_chat_row *row = w->row;

    if (train == WF_CHAT_ALL) {
        for (size_t i = 0; i < row->count; i++)
            if (row->messages[i].assistant && !row->messages[i].trained)
                return wf_error_set(
                    error, WF_EDATA,
                    "message %zu is not to be trained, and .train all trains the whole text",
                    i);
        return add_span(written, 0, written->text.bytes) ? WF_OK : no_memory(error);
    }
    written->exact = wf_jinja_marks(w->jinja);
    if (written->exact)
        return take_blocks(w, train, turn, count, out, written, error);
    if (train != WF_CHAT_ASSISTANT)
        return add_turn(w, turn, turn + 1 == count, written, error);
    for (size_t i = 0; i < row->count && error->code == WF_OK; i++)
        if (row->messages[i].assistant && row->messages[i].trained)
            add_turn(w, i, i + 1 == count, written, error);
    return error->code;
}
