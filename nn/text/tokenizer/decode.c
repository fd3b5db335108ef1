/* nn/text/tokenizer/decode.c - ids as text, and what else is asked of a vocabulary. */
#include "nn/text/tokenizer/tokenizer_internal.h"
#include "nn/text/utf8_internal.h"
#include <string.h>

int32_t wf_tok_size(const wf_tok *t)
{
    return t->vocabulary.size;
}

int32_t wf_tok_bos(const wf_tok *t)
{
    return t->bos;
}

int32_t wf_tok_eos(const wf_tok *t)
{
    return t->eos;
}

int32_t wf_tok_pad(const wf_tok *t)
{
    return t->pad;
}

int32_t wf_tok_id(const wf_tok *t, const char *text, size_t bytes)
{
    int32_t id = wf_tok_lexicon_added(&t->vocabulary, text, bytes);

    return id >= 0 ? id : wf_tok_lexicon_piece(&t->vocabulary, text, bytes);
}

static const wf_tok_token *token_of(const wf_tok *t, int32_t id)
{
    return id >= 0 && id < t->vocabulary.size && t->vocabulary.tokens[id].kind
               ? &t->vocabulary.tokens[id]
               : NULL;
}

const char *wf_tok_text(const wf_tok *t, int32_t id, size_t *bytes)
{
    const wf_tok_token *token = token_of(t, id);

    *bytes = token ? token->bytes : 0;
    return token ? t->vocabulary.texts + token->at : NULL;
}

bool wf_tok_special(const wf_tok *t, int32_t id)
{
    const wf_tok_token *token = token_of(t, id);

    return token && token->kind & WF_TOK_TOKEN_SPECIAL;
}

/* Appends the text of one id; `begun`: a token was there before. */
static wf_status decode_one(const wf_tok *t, int32_t id, int flags, bool *begun,
                            wf_tok_bytes *text, wf_error *error)
{
    const wf_tok_token *token = token_of(t, id);
    const char *from;
    size_t n;

    if (!token)
        return wf_error_set(error, WF_EINVAL,
                            "id %d is no token: the tokenizer has ids below %d", id,
                            t->vocabulary.size);
    if (token->kind & WF_TOK_TOKEN_SPECIAL && flags & WF_TOK_SKIP_SPECIAL)
        return WF_OK;
    from = t->vocabulary.texts + token->decoded_at;
    n = token->decoded_bytes;
    if (t->strip_first && !*begun && n && *from == ' ') {
        from++;
        n--;
    }
    *begun = true;
    return wf_tok_bytes_add(text, from, n)
               ? WF_OK
               : wf_error_set(error, WF_ENOMEM, "out of memory: a text that is decoded");
}

wf_status wf_tok_decode(const wf_tok *t, const int32_t *ids, size_t count, int flags,
                        wf_tok_bytes *text, wf_error *error)
{
    wf_status status = WF_OK;
    bool begun = false;

    for (size_t i = 0; i < count && status == WF_OK; i++)
        status = decode_one(t, ids[i], flags, &begun, text, error);
    return status;
}

size_t wf_tok_whole(const char *text, size_t n)
{
    for (size_t held = 1; held <= 3 && held <= n; held++) {
        const uint8_t *begin = (const uint8_t *)text + n - held;
        int wrong;

        if ((*begin & 0xc0) == 0x80)
            continue;
        return !wf_text_utf8_take(begin, held, &wrong) && *begin >= 0xc2 && *begin <= 0xf4 &&
                       (size_t)wrong == held && held < (size_t)wf_text_utf8_bytes(*begin)
                   ? n - held
                   : n;
    }
    return n;
}

wf_status wf_tok_decode_next(const wf_tok *t, wf_tok_stream *stream, int32_t id, int flags,
                             wf_tok_bytes *text, wf_error *error)
{
    size_t begin = text->bytes, held;
    wf_status status = WF_OK;

    if (!wf_tok_bytes_add(text, stream->bytes, (size_t)stream->held))
        return wf_error_set(error, WF_ENOMEM, "out of memory: a text that is decoded");
    status = decode_one(t, id, flags, &stream->begun, text, error);
    held = (size_t)stream->held;
    if (status == WF_OK && text->bytes > begin)
        held = text->bytes - begin - wf_tok_whole(text->data + begin, text->bytes - begin);
    text->bytes -= held;
    if (held)
        memmove(stream->bytes, text->data + text->bytes, held);
    stream->held = (int)held;
    return status;
}

wf_status wf_tok_decode_end(wf_tok_stream *stream, wf_tok_bytes *text, wf_error *error)
{
    bool ok = wf_tok_bytes_add(text, stream->bytes, (size_t)stream->held);

    *stream = (wf_tok_stream){0};
    return ok ? WF_OK : wf_error_set(error, WF_ENOMEM, "out of memory: a text that is decoded");
}
