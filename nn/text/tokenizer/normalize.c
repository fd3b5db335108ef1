/* nn/text/tokenizer/normalize.c - texts that are changed before they are cut. */
#include "nn/text/tokenizer/encode_internal.h"
#include "nn/text/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: a text to be encoded");
}

#if WEFT_HAS_UTF8PROC
#include <utf8proc.h>

/* Appends a stretch in its normal form. */
static wf_status compose_stretch(const uint8_t *text, size_t n, wf_tok_bytes *to,
                                 wf_error *error)
{
    utf8proc_uint8_t *composed;
    utf8proc_ssize_t bytes =
        utf8proc_map(text, (utf8proc_ssize_t)n, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bool ok;

    if (bytes < 0)
        return wf_error_set(error, bytes == UTF8PROC_ERROR_NOMEM ? WF_ENOMEM : WF_EDATA,
                            "NFC of a text: %s", utf8proc_errmsg(bytes));
    ok = wf_tok_bytes_add(to, composed, (size_t)bytes);
    free(composed);
    return ok ? WF_OK : no_memory(error);
}

/* Returns true where a character is its own normal form. */
static bool is_normal(uint32_t code, const utf8proc_int32_t *parts, utf8proc_ssize_t count)
{
    uint8_t text[4], *composed = NULL;
    int n = wf_text_utf8_encode(code, text);
    bool same;

    if (count <= 1 || (code >= 0xac00 && code < 0xd7a4)) /* Hangul has its syllables composed */
        return count == 1 && parts[0] == (utf8proc_int32_t)code;
    same = utf8proc_map(text, n, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE) == n &&
           memcmp(text, composed, (size_t)n) == 0;
    free(composed);
    return same;
}

uint8_t *wf_tok_inert_new(void)
{
    uint8_t *inert = calloc(1, WF_TOK_INERT / 8), *second = calloc(1, WF_TOK_INERT);
    int class = 0;

    for (int32_t code = 0; inert && second && code < WF_TOK_INERT; code++) {
        utf8proc_int32_t parts[8];
        utf8proc_ssize_t count =
            utf8proc_decompose_char(code, parts, 8, UTF8PROC_DECOMPOSE, &class);

        for (utf8proc_ssize_t i = 1; i < count && i < 8; i++)
            if (parts[i] < WF_TOK_INERT)
                second[parts[i]] = 1;
        if (utf8proc_get_property(code)->combining_class == 0 &&
            is_normal((uint32_t)code, parts, count))
            inert[code / 8] |= (uint8_t)(1 << code % 8);
    }
    for (int32_t code = 0; inert && second && code < WF_TOK_INERT; code++)
        if (second[code])
            inert[code / 8] &= (uint8_t) ~(1 << code % 8);
    free(second);
    return inert;
}

/* Returns true where a character is its own normal form and composes with none before it, as
   all below U+0300 do not. */
static inline bool is_inert(const uint8_t *inert, const uint8_t *c)
{
    enum { FIRST_BYTE_OF_0300 = 0xcc, FIRST_BYTE_OF_10000 = 0xf0 };
    uint32_t code;

    if (c[0] < FIRST_BYTE_OF_0300)
        return true;
    if (!inert || c[0] >= FIRST_BYTE_OF_10000)
        return false;
    code = wf_text_utf8_decode(c);
    return inert[code / 8] >> code % 8 & 1;
}

/* Only from the character before one that is not inert, up to the next one that is, is there
   anything to do. */
static wf_status compose(const uint8_t *inert, const uint8_t *text, size_t n, wf_tok_bytes *to,
                         wf_error *error)
{
    size_t done = 0, before = 0, at = 0;
    wf_status status = WF_OK;

    while (at < n && status == WF_OK) {
        size_t begin = at > done ? before : at;

        if (is_inert(inert, text + at)) {
            before = at;
            at += (size_t)wf_text_utf8_bytes(text[at]);
            continue;
        }
        while (at < n && !is_inert(inert, text + at))
            at += (size_t)wf_text_utf8_bytes(text[at]);
        if (!wf_tok_bytes_add(to, text + done, begin - done))
            return no_memory(error);
        status = compose_stretch(text + begin, at - begin, to, error);
        done = at;
    }
    if (status == WF_OK && !wf_tok_bytes_add(to, text + done, n - done))
        status = no_memory(error);
    return status;
}
#else
uint8_t *wf_tok_inert_new(void)
{
    return NULL;
}

static wf_status compose(const uint8_t *inert, const uint8_t *text, size_t n, wf_tok_bytes *to,
                         wf_error *error)
{
    (void)inert, (void)text, (void)n, (void)to;
    return wf_error_set(error, WF_EUNSUPPORTED, "NFC needs utf8proc");
}
#endif

/* Finds the next match to replace: 1, 0 none, -1 it takes too long. */
static int find(const wf_tok_step *step, wf_tok_matcher *matcher, const uint8_t *text, size_t n,
                size_t from, size_t *begin, size_t *end)
{
    const uint8_t *found;

    if (!step->text)
        return wf_tok_pattern_find(&step->pattern, matcher, text, n, from, begin, end);
    found = step->text_bytes == 1 ? memchr(text + from, *step->text, n - from)
                                  : memmem(text + from, n - from, step->text, step->text_bytes);
    if (!found)
        return 0;
    *begin = (size_t)(found - text);
    *end = *begin + step->text_bytes;
    return 1;
}

static wf_status replace(const wf_tok_step *step, wf_tok_matcher *matcher, const uint8_t *text,
                         size_t n, wf_tok_bytes *to, wf_error *error)
{
    size_t from = 0, begin, end;
    int found;

    while ((found = find(step, matcher, text, n, from, &begin, &end)) > 0) {
        if (!wf_tok_bytes_add(to, text + from, begin - from) ||
            !wf_tok_bytes_add(to, step->with, step->with_bytes))
            return no_memory(error);
        from = end;
    }
    if (found < 0)
        return wf_tok_pattern_slow(&step->pattern, error, from, n);
    return wf_tok_bytes_add(to, text + from, n - from) ? WF_OK : no_memory(error);
}

wf_status wf_tok_normalize_step(const wf_tok_step *step, wf_tok_matcher *matcher,
                                const uint8_t *text, size_t n, wf_tok_bytes *to,
                                wf_error *error)
{
    if (step->kind == WF_TOK_STEP_NFC)
        return compose(step->inert, text, n, to, error);
    if (step->kind == WF_TOK_STEP_REPLACE)
        return replace(step, matcher, text, n, to, error);
    if (n && !wf_tok_bytes_add(to, step->text, step->text_bytes))
        return no_memory(error);
    return wf_tok_bytes_add(to, text, n) ? WF_OK : no_memory(error);
}

wf_status wf_tok_normalize(wf_tok_encoder *e, const uint8_t *text, size_t n, const uint8_t **to,
                           size_t *bytes)
{
    const wf_tok_step_list *list = &e->tokenizer->normalizers;

    for (int i = 0; i < list->count; i++) {
        wf_tok_bytes *out = &e->normal[i % 2];
        wf_status status;

        out->bytes = 0;
        status = wf_tok_normalize_step(&list->steps[i], &e->matcher, text, n, out, e->error);
        if (status != WF_OK)
            return status;
        text = (const uint8_t *)out->data;
        n = out->bytes;
    }
    *to = text;
    *bytes = n;
    return WF_OK;
}
