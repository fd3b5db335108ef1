/* nn/text/tokenizer/encode.c - a text as ids: the way through all steps. */
#include "nn/text/tokenizer/encode_internal.h"
#include "nn/text/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: a text to be encoded");
}

wf_status wf_tok_encoder_new(const wf_tok *tokenizer, wf_tok_encoder **encoder, wf_error *error)
{
    wf_tok_encoder *e = calloc(1, sizeof *e);

    *encoder = NULL;
    if (!e)
        return no_memory(error);
    e->tokenizer = tokenizer;
    if (!tokenizer->bytes) {
        e->bpe = wf_tok_bpe_new(tokenizer);
        if (!e->bpe || !wf_tok_matcher_open(&e->matcher)) {
            wf_tok_encoder_free(e);
            return no_memory(error);
        }
    }
    *encoder = e;
    return WF_OK;
}

void wf_tok_encoder_free(wf_tok_encoder *e)
{
    if (!e)
        return;
    wf_tok_bpe_free(e->bpe);
    wf_tok_matcher_close(&e->matcher);
    wf_tok_bytes_free(&e->valid);
    wf_tok_bytes_free(&e->normal[0]);
    wf_tok_bytes_free(&e->normal[1]);
    for (int i = 0; i < WF_TOK_MOST_STEPS; i++)
        wf_tok_bytes_free(&e->rewritten[i]);
    free(e);
}

static wf_status add_id(wf_tok_encoder *e, int32_t id)
{
    return wf_tok_ids_append(e->ids, id, e->error);
}

/* White space and letters as Rust has them, near an added token. */
static bool white_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Returns how many bytes of white space begin, or end, at a position. */
static size_t spaces_after(const uint8_t *text, size_t n, size_t at)
{
    size_t end = at;

    while (end < n && white_space(wf_text_utf8_decode(text + end)))
        end += (size_t)wf_text_utf8_bytes(text[end]);
    return end - at;
}

static size_t character_before(const uint8_t *text, size_t at)
{
    do
        at--;
    while ((text[at] & 0xc0) == 0x80);
    return at;
}

size_t wf_tok_spaces_before(const uint8_t *text, size_t at, size_t least)
{
    size_t begin = at;

    while (begin > least) {
        size_t before = character_before(text, begin);

        if (!white_space(wf_text_utf8_decode(text + before)))
            break;
        begin = before;
    }
    return at - begin;
}

/* Returns true where an added token stands alone, with no letter of a word at either side. */
static bool stands_alone(wf_tok_encoder *e, const uint8_t *text, size_t n, size_t at,
                         size_t end)
{
    const wf_tok_pattern *word = &e->tokenizer->word;
    size_t before = at > 0 ? character_before(text, at) : 0, begin, found;
    size_t after = end < n ? end + (size_t)wf_text_utf8_bytes(text[end]) : end;

    return !(at > 0 &&
             wf_tok_pattern_find(word, &e->matcher, text, at, before, &begin, &found) > 0) &&
           !(end < n &&
             wf_tok_pattern_find(word, &e->matcher, text, after, end, &begin, &found) > 0);
}

typedef wf_status (*give_stretch)(wf_tok_encoder *e, const uint8_t *text, size_t n, bool first,
                                  int flags);

/* Calls for the stretches between added tokens, whose ids are appended. */
static wf_status between_added(wf_tok_encoder *e, const wf_tok_added_set *set,
                               const uint8_t *text, size_t n, bool first, int flags,
                               give_stretch stretch)
{
    size_t done = 0, from = 0, at;
    const wf_tok_added *found;
    wf_status status = WF_OK;

    while (status == WF_OK && (found = wf_tok_added_find(set, !(flags & WF_TOK_SPECIAL), text,
                                                         n, from, &at)) != NULL) {
        size_t end = at + found->bytes;

        from = end;
        if (found->single_word && !stands_alone(e, text, n, at, end))
            continue;
        if (found->left)
            at -= wf_tok_spaces_before(text, at, done);
        if (found->right)
            end += spaces_after(text, n, end);
        if (at > done)
            status = stretch(e, text + done, at - done, first && done == 0, flags);
        if (status == WF_OK)
            status = add_id(e, found->id);
        done = end;
    }
    if (status == WF_OK && done < n)
        status = stretch(e, text + done, n - done, first && done == 0, flags);
    return status;
}

static wf_status words(wf_tok_encoder *e, const uint8_t *text, size_t n, bool first, int flags)
{
    wf_status status = wf_tok_split_words(e, 0, text, n, first);

    (void)flags;
    if (!wf_tok_bpe_flush(e->bpe, e->ids) &&
        status == WF_OK) /* after an error, too: text goes */
        status = no_memory(e->error);
    return status;
}

static wf_status normalized(wf_tok_encoder *e, const uint8_t *text, size_t n, bool first,
                            int flags)
{
    wf_status status = wf_tok_normalize(e, text, n, &text, &n);

    if (status != WF_OK)
        return status;
    return between_added(e, &e->tokenizer->added_normalized, text, n, first, flags, words);
}

static wf_status encode_bytes(wf_tok_encoder *e, const uint8_t *text, size_t n)
{
    if (!wf_tok_ids_room(e->ids, n))
        return no_memory(e->error);
    for (size_t i = 0; i < n; i++)
        e->ids->data[e->ids->count++] = text[i];
    return WF_OK;
}

static wf_status add_template(wf_tok_encoder *e, const int32_t *ids, int count, int flags)
{
    wf_status status = WF_OK;

    for (int i = 0; flags & WF_TOK_TEMPLATE && i < count && status == WF_OK; i++)
        status = add_id(e, ids[i]);
    return status;
}

wf_status wf_tok_encode(wf_tok_encoder *e, const char *text, size_t bytes, int flags,
                        wf_tok_ids *ids, wf_error *error)
{
    const wf_tok *t = e->tokenizer;
    const uint8_t *from = (const uint8_t *)text;
    wf_status status;

    e->ids = ids;
    e->error = error;
    wf_tok_matcher_begin(&e->matcher, bytes);
    if (t->bytes)
        return encode_bytes(e, from, bytes);
    status = add_template(e, t->before, t->before_count, flags);
    if (status == WF_OK && !wf_tok_valid_text(&e->valid, &from, &bytes))
        status = no_memory(error);
    if (status == WF_OK)
        status = between_added(e, &t->added, from, bytes, true, flags, normalized);
    if (status == WF_OK)
        status = add_template(e, t->after, t->after_count, flags);
    return status;
}
