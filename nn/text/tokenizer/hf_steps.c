/* nn/text/tokenizer/hf_steps.c - normalizers and pre-tokenizers of tokenizer.json. */
#include "nn/text/tokenizer/load_internal.h"
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81";

static wf_status no_memory(const wf_text_json *json)
{
    return wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
}

static wf_tok_step *add_step(const wf_text_json *json, uint32_t value, wf_tok_step_list *list,
                             wf_tok_step_kind kind)
{
    wf_tok_step *step = wf_tok_step_add(list, kind);

    if (!step)
        wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                            "more than %d steps are not supported", WF_TOK_MOST_STEPS);
    return step;
}

/* Copies the string of a key. */
static wf_status take_text(const wf_text_json *json, uint32_t object, const char *key,
                           char **to, size_t *bytes)
{
    uint32_t value = wf_text_json_need(json, object, key, WF_TEXT_JSON_STRING);
    const char *text;

    if (value == WF_TEXT_JSON_NONE)
        return json->error->code;
    text = wf_text_json_text(json, value, bytes);
    return wf_tok_step_text(to, bytes, text, *bytes) ? WF_OK : no_memory(json);
}

static wf_status compile(const wf_text_json *json, uint32_t value, wf_tok_pattern *pattern,
                         const char *text, size_t bytes)
{
    bool unsupported;
    const char *wrong =
        wf_tok_pattern_compile(pattern, text, bytes, WF_TOK_PATTERN_RUBY, &unsupported);

    return wrong ? wf_text_json_refuse(json, value,
                                       unsupported ? WF_EUNSUPPORTED : wf_tok_wrong_code(wrong),
                                       "%s", wrong)
                 : WF_OK;
}

/* {"String": ...} as a pattern that finds just this. */
static wf_status take_literal(const wf_text_json *json, uint32_t object, wf_tok_step *step)
{
    uint32_t value = wf_text_json_need(json, object, "String", WF_TEXT_JSON_STRING);
    wf_tok_bytes pattern = {0};
    bool ok = true;
    size_t bytes;
    const char *text;

    if (value == WF_TEXT_JSON_NONE)
        return json->error->code;
    text = wf_text_json_text(json, value, &bytes);
    for (size_t i = 0; i < bytes && ok; i++) {
        const bool plain = (text[i] & 0x80) || (text[i] >= '0' && text[i] <= '9') ||
                           ((text[i] | 32) >= 'a' && (text[i] | 32) <= 'z');

        ok = (plain || wf_tok_bytes_add(&pattern, "\\", 1)) &&
             wf_tok_bytes_add(&pattern, text + i, 1);
    }
    if (!ok)
        no_memory(json);
    else if (bytes == 0)
        wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "an empty text cuts everywhere");
    else
        compile(json, value, &step->pattern, pattern.data, pattern.bytes);
    wf_tok_bytes_free(&pattern);
    return json->error->code;
}

/* {"String": ...} or {"Regex": ...} of a key. A string that may not stay one becomes a
   pattern. */
static wf_status take_pattern(const wf_text_json *json, uint32_t object, wf_tok_step *step,
                              bool string)
{
    uint32_t pattern = wf_text_json_need(json, object, "pattern", WF_TEXT_JSON_OBJECT), regex;
    size_t bytes;
    const char *text;

    if (pattern == WF_TEXT_JSON_NONE || wf_tok_hf_keys(json, pattern, "String Regex") != WF_OK)
        return json->error->code;
    regex = wf_text_json_get(json, pattern, "Regex");
    if (regex == WF_TEXT_JSON_NONE && string)
        return take_text(json, pattern, "String", &step->text, &step->text_bytes);
    if (regex == WF_TEXT_JSON_NONE)
        return take_literal(json, pattern, step);
    if (wf_text_json_is(json, regex) != WF_TEXT_JSON_STRING)
        return wf_text_json_refuse(json, regex, WF_EDATA, "is not a string");
    text = wf_text_json_text(json, regex, &bytes);
    return compile(json, regex, &step->pattern, text, bytes);
}

/* Reads a step for each element of a list. */
static wf_status each(wf_tok *t, const wf_text_json *json, uint32_t value, const char *key,
                      wf_status (*read)(wf_tok *, const wf_text_json *, uint32_t))
{
    uint32_t list = wf_text_json_need(json, value, key, WF_TEXT_JSON_ARRAY);

    if (list == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (uint32_t i = list + 1; i < json->values[list].next; i = wf_text_json_after(json, i))
        if (read(t, json, i) != WF_OK)
            return json->error->code;
    return WF_OK;
}

wf_status wf_tok_load_nfc(wf_tok *t, const char *name, wf_error *error)
{
#if WEFT_HAS_UTF8PROC
    return wf_tok_step_add(&t->normalizers, WF_TOK_STEP_NFC)
               ? WF_OK
               : wf_error_set(error, WF_EUNSUPPORTED, "%s: too many normalizers", name);
#else
    (void)t;
    return wf_error_set(
        error, WF_EUNSUPPORTED,
        "%s: its texts are normalized to NFC; this needs utf8proc, which was not "
        "there when this program was built (Debian: libutf8proc-dev)",
        name);
#endif
}

/* Limits the growth of normalized text: no real normalizers make one 64 times as long. */
static wf_status may_grow(wf_tok *t, const wf_text_json *json, uint32_t value, size_t times)
{
    if (times > 64 || (t->growth *= (int)times + (times == 0)) > 64)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "a text may become 64 times as long, and not more");
    return WF_OK;
}

wf_status wf_tok_hf_normalizer(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    const char *type;
    wf_tok_step *step;

    if (value == WF_TEXT_JSON_NONE)
        return WF_OK;
    type = wf_tok_hf_type(json, value);
    if (strcmp(type, "Sequence") == 0)
        return wf_tok_hf_keys(json, value, "type normalizers") == WF_OK
                   ? each(t, json, value, "normalizers", wf_tok_hf_normalizer)
                   : json->error->code;
    if (strcmp(type, "NFC") == 0)
        return wf_tok_load_nfc(t, json->name, json->error);
    if (strcmp(type, "Prepend") == 0) {
        step = add_step(json, value, &t->normalizers, WF_TOK_STEP_PREPEND);
        wf_tok_hf_keys(json, value, "type prepend");
        if (!step || take_text(json, value, "prepend", &step->text, &step->text_bytes) != WF_OK)
            return json->error->code;
        return may_grow(t, json, value, step->text_bytes / 8);
    }
    if (strcmp(type, "Replace") == 0) {
        step = add_step(json, value, &t->normalizers, WF_TOK_STEP_REPLACE);
        wf_tok_hf_keys(json, value, "type pattern content");
        if (!step || take_pattern(json, value, step, true) != WF_OK)
            return json->error->code;
        if (step->text && !step->text_bytes)
            return wf_text_json_refuse(json, value, WF_EDATA, "an empty text is replaced");
        if (take_text(json, value, "content", &step->with, &step->with_bytes) != WF_OK)
            return json->error->code;
        return may_grow(t, json, value, step->with_bytes / (step->text ? step->text_bytes : 1));
    }
    if (*type)
        wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no normalizer", type);
    return json->error->code;
}

static wf_status read_split(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    static const char *const behaviors[] = {"Isolated", "Removed", NULL, "MergedWithNext",
                                            "MergedWithPrevious"};
    uint32_t behavior = wf_text_json_need(json, value, "behavior", WF_TEXT_JSON_STRING);
    bool invert = wf_text_json_bool(json, value, "invert", false);
    wf_tok_step *step = add_step(json, value, &t->pre_tokenizers, WF_TOK_STEP_SPLIT);
    int found = -1;

    if (!step || behavior == WF_TEXT_JSON_NONE ||
        wf_tok_hf_keys(json, value, "type pattern behavior invert") != WF_OK ||
        take_pattern(json, value, step, false) != WF_OK)
        return json->error->code;
    for (int i = 0; i < 5; i++)
        if (behaviors[i] && wf_text_json_equals(json, behavior, behaviors[i]))
            found = i;
    if (found < 0 || (invert && found > WF_TOK_SPLIT_REMOVED))
        return wf_text_json_refuse(
            json, behavior, WF_EUNSUPPORTED,
            "of behaviors Isolated and Removed are supported, and without "
            "invert MergedWithNext and MergedWithPrevious");
    step->split =
        invert && found == WF_TOK_SPLIT_REMOVED ? WF_TOK_SPLIT_KEPT : (wf_tok_split)found;
    return json->error->code;
}

static wf_status add_pattern(wf_tok *t, const wf_text_json *json, uint32_t value,
                             const char *pattern)
{
    wf_tok_step *step = add_step(json, value, &t->pre_tokenizers, WF_TOK_STEP_SPLIT);

    return step ? compile(json, value, &step->pattern, pattern, strlen(pattern))
                : json->error->code;
}

static wf_status read_byte_level(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    wf_tok_hf_keys(json, value, "type add_prefix_space trim_offsets use_regex");
    if (wf_text_json_bool(json, value, "add_prefix_space", true)) {
        wf_tok_step *step =
            add_step(json, value, &t->pre_tokenizers, WF_TOK_STEP_SPACE_IN_FRONT);

        if (step && !wf_tok_step_text(&step->text, &step->text_bytes, " ", 1))
            return no_memory(json);
    }
    t->characters = false;
    if (json->error->code == WF_OK && wf_text_json_bool(json, value, "use_regex", true))
        return add_pattern(t, json, value, wf_tok_scan_pattern("gpt2"));
    return json->error->code;
}

/* Returns when a space is put in front; older files say add_prefix_space instead. */
static wf_tok_prepend prepend_of(const wf_text_json *json, uint32_t value)
{
    uint32_t scheme = wf_text_json_get(json, value, "prepend_scheme");

    if (scheme == WF_TEXT_JSON_NONE)
        return wf_text_json_bool(json, value, "add_prefix_space", true) ? WF_TOK_PREPEND_ALWAYS
                                                                        : WF_TOK_PREPEND_NEVER;
    if (wf_text_json_equals(json, scheme, "first"))
        return WF_TOK_PREPEND_FIRST;
    if (wf_text_json_equals(json, scheme, "never"))
        return WF_TOK_PREPEND_NEVER;
    if (!wf_text_json_equals(json, scheme, "always"))
        wf_text_json_refuse(json, scheme, WF_EUNSUPPORTED,
                            "is none of always, first and never");
    return WF_TOK_PREPEND_ALWAYS;
}

static wf_status read_metaspace(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    wf_tok_step *step = add_step(json, value, &t->pre_tokenizers, WF_TOK_STEP_METASPACE), *cut;
    uint32_t letter = wf_text_json_get(json, value, "replacement");

    wf_tok_hf_keys(json, value,
                   "type replacement prepend_scheme add_prefix_space split str_rep");
    if (letter != WF_TEXT_JSON_NONE && !wf_text_json_equals(json, letter, metaspace))
        return wf_text_json_refuse(json, letter, WF_EUNSUPPORTED, "is not U+2581");
    if (!step || json->error->code != WF_OK)
        return json->error->code;
    step->when = prepend_of(json, value);
    if (!wf_tok_step_text(&step->text, &step->text_bytes, metaspace, 3))
        return no_memory(json);
    if (!wf_text_json_bool(json, value, "split", true))
        return json->error->code;
    cut = add_step(json, value, &t->pre_tokenizers, WF_TOK_STEP_WORDS);
    if (cut && !wf_tok_step_text(&cut->text, &cut->text_bytes, metaspace, 3))
        return no_memory(json);
    return json->error->code;
}

wf_status wf_tok_hf_pre_tokenizer(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    const char *type;

    if (value == WF_TEXT_JSON_NONE)
        return WF_OK;
    type = wf_tok_hf_type(json, value);
    if (*type && !t->characters)
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "a step after ByteLevel is not supported");
    if (strcmp(type, "Sequence") == 0)
        return wf_tok_hf_keys(json, value, "type pretokenizers") == WF_OK
                   ? each(t, json, value, "pretokenizers", wf_tok_hf_pre_tokenizer)
                   : json->error->code;
    if (strcmp(type, "Split") == 0)
        return read_split(t, json, value);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, json, value);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, json, value);
    if (strcmp(type, "Digits") == 0) {
        wf_tok_hf_keys(json, value, "type individual_digits");
        return add_pattern(
            t, json, value,
            wf_text_json_bool(json, value, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    }
    if (*type)
        wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no pre-tokenizer", type);
    return json->error->code;
}

wf_status wf_tok_load_split(wf_tok *t, const char *pattern, size_t bytes, const char *name,
                            wf_error *error)
{
    wf_tok_step *step = wf_tok_step_add(&t->pre_tokenizers, WF_TOK_STEP_SPLIT);
    bool unsupported = true;
    const char *wrong = step ? wf_tok_pattern_compile(&step->pattern, pattern, bytes,
                                                      WF_TOK_PATTERN_RUST, &unsupported)
                             : "too many steps";

    return wrong ? wf_error_set(error, unsupported ? WF_EUNSUPPORTED : wf_tok_wrong_code(wrong),
                                "%s: %s", name, wrong)
                 : WF_OK;
}

bool wf_tok_load_safe_words(wf_tok *t)
{
    const wf_tok_lexicon *v = &t->vocabulary;
    wf_tok_step *step;
    wf_tok_step_list *list = &t->pre_tokenizers;

    if (!t->byte_fallback && t->unknown < 0)
        return true; /* unknown characters are left out, and merges go across them */
    if (!t->characters || t->whole_words || wf_tok_lexicon_piece(v, metaspace, 3) < 0 ||
        list->count == WF_TOK_MOST_STEPS ||
        (list->count && list->steps[list->count - 1].kind == WF_TOK_STEP_WORDS))
        return true;
    step = wf_tok_step_add(list, WF_TOK_STEP_SAFE);
    for (uint32_t i = 0; i <= v->merges_mask; i++) {
        const wf_tok_token *left, *right;

        if (v->merges[i].left < 0)
            continue;
        left = &v->tokens[v->merges[i].left];
        right = &v->tokens[v->merges[i].right];
        if (right->bytes < 3 || memcmp(v->texts + right->at, metaspace, 3) != 0)
            continue;
        if (left->kind & WF_TOK_TOKEN_BYTE || v->merges[i].left == t->unknown)
            memset(step->safe, 1, sizeof step->safe);
        else
            step->safe[(uint8_t)v->texts[left->at + left->bytes - 1]] = 1;
    }
    return wf_tok_step_text(&step->text, &step->text_bytes, metaspace, 3);
}
