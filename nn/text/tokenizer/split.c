/*
 * nn/text/tokenizer/split.c - pre-tokenizers: a stretch of text is cut, each part goes to the
 * next step, and after the last one to the model.
 */
#include "nn/text/tokenizer/encode_internal.h"
#include <string.h>

static wf_status no_memory(const wf_tok_encoder *e)
{
    return wf_error_set(e->error, WF_ENOMEM, "out of memory: a text to be encoded");
}

static wf_status next(wf_tok_encoder *e, int step, const uint8_t *text, size_t n, bool first,
                      size_t readable)
{
    if (step + 1 < e->tokenizer->pre_tokenizers.count)
        return wf_tok_split_words(e, step + 1, text, n, first);
    if (n > WF_TOK_MOST_WORD)
        return wf_error_set(e->error, WF_EDATA, "a word of %zu bytes; at most %d are supported",
                            n, WF_TOK_MOST_WORD);
    return wf_tok_bpe_word(e->bpe, text, n, readable, e->ids) ? WF_OK : no_memory(e);
}

/* The state of a split: a part that waits for the following text, or for nothing more. */
typedef struct cutting {
    wf_tok_encoder *e;
    const uint8_t *text;
    size_t n, begin; /* text before `begin` is done */
    int step;
    bool first;
} cutting;

/* Gives what lies between `begin` and `end`, if anything does, to the next step. */
static wf_status give(cutting *c, size_t end)
{
    size_t begin = c->begin;

    c->begin = end;
    if (begin == end)
        return WF_OK;
    return next(c->e, c->step, c->text + begin, end - begin, c->first && begin == 0,
                c->n - begin);
}

/* Cuts at a match from `begin` to `end`, after the text in front of it that is none. */
static wf_status cut(cutting *c, wf_tok_split split, size_t begin, size_t end)
{
    wf_status status = WF_OK;

    if (split == WF_TOK_SPLIT_KEPT)
        c->begin = begin;
    if (split == WF_TOK_SPLIT_KEPT || split == WF_TOK_SPLIT_MERGED_WITH_PREVIOUS)
        return give(c, end);
    status = give(c, begin);
    if (split == WF_TOK_SPLIT_MERGED_WITH_NEXT || status != WF_OK)
        return status;
    if (split == WF_TOK_SPLIT_ISOLATED)
        return give(c, end);
    c->begin = end;
    return WF_OK;
}

/* Finds the next match from `at` on, by a scanner where the pattern has one. */
static int match(const cutting *c, const wf_tok_step *s, size_t at, size_t *begin, size_t *end)
{
    *begin = at;
    *end = wf_tok_pattern_scan(&s->pattern, c->text, c->n, at);
    return *end ? 1
                : wf_tok_pattern_find(&s->pattern, &c->e->matcher, c->text, c->n, at, begin,
                                      end);
}

/* Returns true where a step cuts words by a known pattern, which matches all of a text, and is
   the last one. */
static bool cuts_words(const cutting *c, const wf_tok_step *s)
{
    return s->pattern.scan && s->split == WF_TOK_SPLIT_ISOLATED &&
           c->step + 1 == c->e->tokenizer->pre_tokenizers.count && c->n <= WF_TOK_MOST_WORD;
}

/* Splits in one loop, where each match is a word. */
static wf_status split_words(cutting *c, const wf_tok_step *s)
{
    wf_tok_encoder *e = c->e;
    size_t begin, end;

    for (size_t at = 0; at < c->n; at = end) {
        end = wf_tok_pattern_scan(&s->pattern, c->text, c->n, at);
        if (!end &&
            wf_tok_pattern_find(&s->pattern, &e->matcher, c->text, c->n, at, &begin, &end) <= 0)
            return wf_tok_pattern_slow(&s->pattern, e->error, at, c->n);
        if (!wf_tok_bpe_word(e->bpe, c->text + at, end - at, c->n - at, e->ids))
            return no_memory(e);
    }
    return WF_OK;
}

static wf_status split(cutting *c, const wf_tok_step *s)
{
    wf_status status = WF_OK;
    size_t at = 0, begin, end;
    int found = 1;

    while (status == WF_OK && at < c->n && (found = match(c, s, at, &begin, &end)) > 0) {
        status = cut(c, s->split, begin, end);
        at = end;
    }
    if (found < 0)
        return wf_tok_pattern_slow(&s->pattern, c->e->error, at, c->n);
    if (s->split == WF_TOK_SPLIT_KEPT)
        c->begin = c->n;
    return status == WF_OK ? give(c, c->n) : status;
}

/* Cuts before each `text`; where `safe` is given, not after these bytes. */
static wf_status before_each(cutting *c, const wf_tok_step *s, const uint8_t *safe)
{
    wf_status status = WF_OK;
    size_t at = 1;

    while (status == WF_OK && at < c->n) {
        const uint8_t *found = memmem(c->text + at, c->n - at, s->text, s->text_bytes);

        if (!found)
            break;
        at = (size_t)(found - c->text);
        if (!safe || !safe[c->text[at - 1]])
            status = give(c, at);
        at += safe ? 1 : s->text_bytes;
    }
    return status == WF_OK ? give(c, c->n) : status;
}

/* Rewrites a stretch: with something in front, and with each space as U+2581. */
static wf_status rewrite(wf_tok_encoder *e, int step, const uint8_t *text, size_t n, bool first)
{
    const wf_tok_step *s = &e->tokenizer->pre_tokenizers.steps[step];
    wf_tok_bytes *to = &e->rewritten[step];
    bool meta = s->kind == WF_TOK_STEP_METASPACE, front;
    wf_status status;

    front = meta
                ? s->when == WF_TOK_PREPEND_ALWAYS || (s->when == WF_TOK_PREPEND_FIRST && first)
                : true;
    front = front && text[0] != ' ' &&
            !(meta && n >= s->text_bytes && memcmp(text, s->text, s->text_bytes) == 0);
    to->bytes = 0;
    if (front && !wf_tok_bytes_add(to, s->text, s->text_bytes))
        return no_memory(e);
    while (n) {
        const uint8_t *space = meta ? memchr(text, ' ', n) : NULL;
        size_t run = space ? (size_t)(space - text) : n;

        if (!wf_tok_bytes_add(to, text, run) ||
            (space && !wf_tok_bytes_add(to, s->text, s->text_bytes)))
            return no_memory(e);
        text += run + (space != NULL);
        n -= run + (space != NULL);
    }
    status = next(e, step, (const uint8_t *)to->data, to->bytes, first, to->bytes);
    if (status == WF_OK && !wf_tok_bpe_flush(e->bpe, e->ids)) /* its words lie in `to` */
        status = no_memory(e);
    return status;
}

wf_status wf_tok_split_words(wf_tok_encoder *e, int step, const uint8_t *text, size_t n,
                             bool first)
{
    const wf_tok_step *s = &e->tokenizer->pre_tokenizers.steps[step];
    cutting c = {.e = e, .text = text, .n = n, .step = step, .first = first};

    if (n == 0)
        return WF_OK;
    if (step >= e->tokenizer->pre_tokenizers.count)
        return next(e, step, text, n, first, n);
    switch (s->kind) {
    case WF_TOK_STEP_SPLIT:
        return cuts_words(&c, s) ? split_words(&c, s) : split(&c, s);
    case WF_TOK_STEP_WORDS:
        return before_each(&c, s, NULL);
    case WF_TOK_STEP_SAFE:
        return before_each(&c, s, s->safe);
    default:
        return rewrite(e, step, text, n, first);
    }
}
