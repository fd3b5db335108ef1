/* nn/text/chat/encode.c - the text of a conversation as ids, and which of them are trained. */
#include "nn/text/chat/chat.h"
#include "nn/text/tokenizer/encode_internal.h"

/* Counts the ids before the one that has byte `at` of the text: those of its beginning, too. */
static wf_status ids_before(wf_tok_encoder *encoder, const wf_chat_written *w, size_t at,
                            const int32_t *all, size_t most, size_t *count, wf_error *error)
{
    wf_tok_ids some = {0};
    wf_status status = wf_tok_encode(encoder, w->text.data, at, WF_TOK_SPECIAL, &some, error);

    *count = 0;
    while (*count < some.count && *count < most && some.data[*count] == all[*count])
        ++*count;
    wf_tok_ids_free(&some);
    return status;
}

/* Marks ids up to a number of them. */
static wf_status mark(wf_tok_ids *trained, size_t count, int32_t value, wf_error *error)
{
    while (trained->count < count)
        if (wf_tok_ids_append(trained, value, error) != WF_OK)
            return error->code;
    return WF_OK;
}

/* Leaves out white space after the special token that ends a turn, since no model is asked for
   it. */
static wf_status trim_end(wf_tok_encoder *encoder, const wf_chat_written *w,
                          const wf_chat_span *span, const int32_t *all, size_t most,
                          size_t begin, size_t *end, wf_error *error)
{
    const char *text = w->text.data;
    size_t at = span->end, before;

    while (at > span->begin &&
           (text[at - 1] == ' ' || (text[at - 1] >= '\t' && text[at - 1] <= '\r')))
        at--;
    if (w->exact || at == span->end || at == span->begin)
        return WF_OK;
    if (ids_before(encoder, w, at, all, most, &before, error) == WF_OK && before > begin &&
        wf_tok_special(encoder->tokenizer, all[before - 1]))
        *end = before;
    return error->code;
}

wf_status wf_chat_encode(wf_tok_encoder *encoder, const wf_chat_written *w, wf_tok_ids *ids,
                         wf_tok_ids *trained, wf_error *error)
{
    const size_t base = ids->count, marked = trained ? trained->count : 0;
    wf_status status =
        wf_tok_encode(encoder, w->text.data, w->text.bytes, WF_TOK_SPECIAL, ids, error);
    const size_t all = ids->count - base;
    const int32_t *first = all ? ids->data + base : NULL;

    for (size_t i = 0; trained && status == WF_OK && i < w->count; i++) {
        size_t begin, end;

        status = ids_before(encoder, w, w->spans[i].begin, first, all, &begin, error);
        if (status == WF_OK)
            status = ids_before(encoder, w, w->spans[i].end, first, all, &end, error);
        if (status == WF_OK)
            status = trim_end(encoder, w, &w->spans[i], first, all, begin, &end, error);
        if (status == WF_OK)
            status = mark(trained, marked + begin, 0, error);
        if (status == WF_OK)
            status = mark(trained, marked + end, 1, error);
    }
    return status == WF_OK && trained ? mark(trained, marked + all, 0, error) : status;
}
