/* nn/text/tokenizer/hf_decoder.c - decoders and templates of tokenizer.json. */
#include "nn/text/tokenizer/load_internal.h"
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81";

/* The combined effect of the decoders read so far on one token after the other. */
typedef struct decoding {
    wf_tok *tokenizer;
    const wf_text_json *json;
    int replaced; /* number of Replace among them */
    bool fused;   /* the following ones apply to the whole text */
} decoding;

bool wf_tok_load_decode_replaced(wf_tok_lexicon *v, const char *from, size_t bytes,
                                 const char *to, size_t to_bytes)
{
    wf_tok_bytes text = {0};
    bool ok = true;

    for (int32_t id = 0; id < v->size && ok; id++) {
        const char *at = v->texts + v->tokens[id].decoded_at, *found;
        size_t left = v->tokens[id].decoded_bytes;

        if (!memmem(at, left, from, bytes))
            continue;
        text.bytes = 0;
        while (ok && (found = memmem(at, left, from, bytes)) != NULL) {
            ok = wf_tok_bytes_add(&text, at, (size_t)(found - at)) &&
                 wf_tok_bytes_add(&text, to, to_bytes);
            left -= (size_t)(found - at) + bytes;
            at = found + bytes;
        }
        ok = ok && wf_tok_bytes_add(&text, at, left) &&
             !wf_tok_lexicon_decodes(v, id, text.data, text.bytes);
    }
    wf_tok_bytes_free(&text);
    return ok;
}

static wf_status replace(const decoding *d, const char *from, size_t bytes, const char *to,
                         size_t to_bytes)
{
    return wf_tok_load_decode_replaced(&d->tokenizer->vocabulary, from, bytes, to, to_bytes)
               ? WF_OK
               : wf_error_set(d->json->error, WF_ENOMEM, "%s: out of memory", d->json->name);
}

static wf_status bytes_fall_back(const decoding *d)
{
    wf_tok *t = d->tokenizer;

    for (int byte = 0; t->characters && byte < 256; byte++) {
        char c = (char)byte;

        if (t->fallback[byte] >= 0 &&
            wf_tok_lexicon_decodes(&t->vocabulary, t->fallback[byte], &c, 1))
            return wf_error_set(d->json->error, WF_ENOMEM, "%s: out of memory", d->json->name);
    }
    return WF_OK;
}

static wf_status read_replace(decoding *d, uint32_t value)
{
    const wf_text_json *json = d->json;
    uint32_t pattern = wf_text_json_need(json, value, "pattern", WF_TEXT_JSON_OBJECT),
             content = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING), from;
    const char *text, *with;
    size_t bytes, with_bytes;

    if (pattern == WF_TEXT_JSON_NONE || content == WF_TEXT_JSON_NONE)
        return json->error->code;
    from = wf_text_json_need(json, pattern, "String", WF_TEXT_JSON_STRING);
    wf_tok_hf_keys(json, value, "type pattern content");
    if (from == WF_TEXT_JSON_NONE || wf_tok_hf_keys(json, pattern, "String") != WF_OK)
        return json->error->code;
    if (++d->replaced > WF_TOK_MOST_STEPS)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "more than %d are not supported", WF_TOK_MOST_STEPS);
    text = wf_text_json_text(json, from, &bytes);
    with = wf_text_json_text(json, content, &with_bytes);
    if (!bytes || with_bytes > bytes)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "only what is as long, or longer, may be replaced");
    return replace(d, text, bytes, with, with_bytes);
}

/* Reads a step that removes one space at the beginning of the text, which an earlier step has
   put there. */
static wf_status read_strip(const decoding *d, uint32_t value)
{
    const wf_text_json *json = d->json;
    uint32_t content = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING),
             start = wf_text_json_need(json, value, "start", WF_TEXT_JSON_NUMBER),
             stop = wf_text_json_need(json, value, "stop", WF_TEXT_JSON_NUMBER);

    wf_tok_hf_keys(json, value, "type content start stop");
    if (json->error->code != WF_OK)
        return json->error->code;
    if (!d->fused || !wf_text_json_equals(json, content, " ") ||
        wf_text_json_int(json, stop, 0, 1) != 0)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "only one space at the beginning is stripped, after Fuse");
    d->tokenizer->strip_first = wf_text_json_int(json, start, 0, 1) == 1;
    return json->error->code;
}

static wf_status read_decoder(decoding *d, uint32_t value)
{
    const wf_text_json *json = d->json;
    const char *type = wf_tok_hf_type(json, value);

    if (d->fused && *type && strcmp(type, "Strip") != 0)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "\"%s\" after Fuse is not supported", type);
    if (strcmp(type, "ByteLevel") == 0 && !d->tokenizer->characters)
        return wf_tok_hf_keys(json, value, "type add_prefix_space trim_offsets use_regex");
    if (strcmp(type, "ByteFallback") == 0)
        return bytes_fall_back(d);
    if (strcmp(type, "Replace") == 0)
        return read_replace(d, value);
    if (strcmp(type, "Strip") == 0)
        return read_strip(d, value);
    if (strcmp(type, "Fuse") == 0) {
        d->fused = true;
        return WF_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        uint32_t scheme = wf_text_json_get(json, value, "prepend_scheme");

        d->tokenizer->strip_first =
            wf_text_json_bool(json, value, "add_prefix_space", true) &&
            (scheme == WF_TEXT_JSON_NONE || !wf_text_json_equals(json, scheme, "never"));
        return replace(d, metaspace, 3, " ", 1);
    }
    if (*type)
        wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no decoder of this model",
                            type);
    return json->error->code;
}

wf_status wf_tok_hf_decoder(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    decoding d = {.tokenizer = t, .json = json};
    uint32_t list;

    if (value == WF_TEXT_JSON_NONE)
        return WF_OK;
    if (strcmp(wf_tok_hf_type(json, value), "Sequence") != 0)
        return json->error->code == WF_OK ? read_decoder(&d, value) : json->error->code;
    list = wf_text_json_need(json, value, "decoders", WF_TEXT_JSON_ARRAY);
    if (list == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = list + 1; i < json->values[list].next; i = wf_text_json_after(json, i))
        if (read_decoder(&d, i) != WF_OK)
            return json->error->code;
    return WF_OK;
}

/* Reads the ids of one of the special tokens of a template, before the text or after it. */
static wf_status special_ids(wf_tok *t, const wf_text_json *json, uint32_t tokens,
                             uint32_t name, bool after)
{
    int32_t *to = after ? t->after : t->before;
    int *count = after ? &t->after_count : &t->before_count;
    uint32_t found = WF_TEXT_JSON_NONE, ids;
    size_t bytes, n;
    const char *text = wf_text_json_text(json, name, &bytes);

    for (uint32_t i = tokens + 1; i < json->values[tokens].next; i = json->values[i + 1].next)
        if (memcmp(wf_text_json_text(json, i, &n), text, bytes < n ? bytes : n) == 0 &&
            n == bytes)
            found = i + 1;
    if (found == WF_TEXT_JSON_NONE)
        return wf_text_json_refuse(json, name, WF_EDATA, "is not among special_tokens");
    ids = wf_text_json_need(json, found, "ids", WF_TEXT_JSON_ARRAY);
    if (ids == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = ids + 1; i < json->values[ids].next; i = wf_text_json_after(json, i)) {
        if (*count == WF_TOK_MOST_TEMPLATE)
            return wf_text_json_refuse(json, i, WF_EUNSUPPORTED,
                                       "more than %d ids are not supported",
                                       WF_TOK_MOST_TEMPLATE);
        to[(*count)++] = (int32_t)wf_text_json_int(json, i, 0, t->vocabulary.size - 1);
        if (json->error->code == WF_OK && !t->vocabulary.tokens[to[*count - 1]].kind)
            wf_text_json_refuse(json, i, WF_EDATA, "there is no token of this id");
    }
    return json->error->code;
}

static wf_status read_template(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    uint32_t single = wf_text_json_need(json, value, "single", WF_TEXT_JSON_ARRAY),
             tokens = wf_text_json_need(json, value, "special_tokens", WF_TEXT_JSON_OBJECT);
    bool after = false;

    if (single == WF_TEXT_JSON_NONE || tokens == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = single + 1; i < json->values[single].next;
         i = wf_text_json_after(json, i)) {
        uint32_t special = wf_text_json_get(json, i, "SpecialToken"), name;

        if (special == WF_TEXT_JSON_NONE) {
            after = wf_text_json_need(json, i, "Sequence", WF_TEXT_JSON_OBJECT) !=
                    WF_TEXT_JSON_NONE;
        } else {
            name = wf_text_json_need(json, special, "id", WF_TEXT_JSON_STRING);
            if (name != WF_TEXT_JSON_NONE)
                special_ids(t, json, tokens, name, after);
        }
        if (json->error->code != WF_OK)
            return json->error->code;
    }
    return WF_OK;
}

wf_status wf_tok_hf_template(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    const char *type;
    uint32_t list;

    if (value == WF_TEXT_JSON_NONE)
        return WF_OK;
    type = wf_tok_hf_type(json, value);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, json, value);
    if (strcmp(type, "ByteLevel") == 0 || !*type) /* it changes offsets alone */
        return json->error->code;
    if (strcmp(type, "Sequence") != 0)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no template", type);
    list = wf_text_json_need(json, value, "processors", WF_TEXT_JSON_ARRAY);
    if (list == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = list + 1; i < json->values[list].next; i = wf_text_json_after(json, i))
        if (wf_tok_hf_template(t, json, i) != WF_OK)
            return json->error->code;
    return WF_OK;
}
