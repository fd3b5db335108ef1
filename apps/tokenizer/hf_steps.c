/* apps/tokenizer/hf_steps.c - normalizers and pre-tokenizers of tokenizer.json. */
#include "apps/tokenizer/load_internal.h"
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81";

static wf_status no_memory(const app_json *json)
{
    return wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
}

static app_step *add_step(const app_json *json, uint32_t value, app_step_list *list,
                          app_step_kind kind)
{
    app_step *step = app_step_add(list, kind);

    if (!step)
        app_json_refuse(json, value, WF_EUNSUPPORTED, "more than %d steps are not supported",
                        APP_MOST_STEPS);
    return step;
}

/* The string of a key, copied. */
static wf_status take_text(const app_json *json, uint32_t object, const char *key, char **to,
                           size_t *bytes)
{
    uint32_t value = app_json_need(json, object, key, APP_JSON_STRING);
    const char *text;

    if (value == APP_JSON_NONE)
        return json->error->code;
    text = app_json_text(json, value, bytes);
    return app_step_text(to, bytes, text, *bytes) ? WF_OK : no_memory(json);
}

static wf_status compile(const app_json *json, uint32_t value, app_pattern *pattern,
                         const char *text, size_t bytes)
{
    bool unsupported;
    const char *wrong =
        app_pattern_compile(pattern, text, bytes, APP_PATTERN_RUBY, &unsupported);

    return wrong ? app_json_refuse(json, value,
                                   unsupported ? WF_EUNSUPPORTED : app_wrong_code(wrong), "%s",
                                   wrong)
                 : WF_OK;
}

/* {"String": ...} as a pattern that finds just this. */
static wf_status take_literal(const app_json *json, uint32_t object, app_step *step)
{
    uint32_t value = app_json_need(json, object, "String", APP_JSON_STRING);
    app_tokenizer_bytes pattern = {0};
    bool ok = true;
    size_t bytes;
    const char *text;

    if (value == APP_JSON_NONE)
        return json->error->code;
    text = app_json_text(json, value, &bytes);
    for (size_t i = 0; i < bytes && ok; i++) {
        const bool plain = (text[i] & 0x80) || (text[i] >= '0' && text[i] <= '9') ||
                           ((text[i] | 32) >= 'a' && (text[i] | 32) <= 'z');

        ok = (plain || app_tokenizer_bytes_add(&pattern, "\\", 1)) &&
             app_tokenizer_bytes_add(&pattern, text + i, 1);
    }
    if (!ok)
        no_memory(json);
    else if (bytes == 0)
        app_json_refuse(json, value, WF_EUNSUPPORTED, "an empty text cuts everywhere");
    else
        compile(json, value, &step->pattern, pattern.data, pattern.bytes);
    app_tokenizer_bytes_free(&pattern);
    return json->error->code;
}

/* {"String": ...} or {"Regex": ...} of a key. A string that may not stay one becomes a pattern. */
static wf_status take_pattern(const app_json *json, uint32_t object, app_step *step,
                              bool string)
{
    uint32_t pattern = app_json_need(json, object, "pattern", APP_JSON_OBJECT), regex;
    size_t bytes;
    const char *text;

    if (pattern == APP_JSON_NONE || app_hf_keys(json, pattern, "String Regex") != WF_OK)
        return json->error->code;
    regex = app_json_get(json, pattern, "Regex");
    if (regex == APP_JSON_NONE && string)
        return take_text(json, pattern, "String", &step->text, &step->text_bytes);
    if (regex == APP_JSON_NONE)
        return take_literal(json, pattern, step);
    if (app_json_is(json, regex) != APP_JSON_STRING)
        return app_json_refuse(json, regex, WF_EDATA, "is not a string");
    text = app_json_text(json, regex, &bytes);
    return compile(json, regex, &step->pattern, text, bytes);
}

/* A step for each element of a list. */
static wf_status each(app_tokenizer *t, const app_json *json, uint32_t value, const char *key,
                      wf_status (*read)(app_tokenizer *, const app_json *, uint32_t))
{
    uint32_t list = app_json_need(json, value, key, APP_JSON_ARRAY);

    if (list == APP_JSON_NONE)
        return json->error->code;
    for (uint32_t i = list + 1; i < json->values[list].next; i = app_json_after(json, i))
        if (read(t, json, i) != WF_OK)
            return json->error->code;
    return WF_OK;
}

wf_status app_load_nfc(app_tokenizer *t, const char *name, wf_error *error)
{
#if WEFT_HAS_UTF8PROC
    return app_step_add(&t->normalizers, APP_STEP_NFC)
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

/* Nobody's normalizers make a text 64 times as long. */
static wf_status may_grow(app_tokenizer *t, const app_json *json, uint32_t value, size_t times)
{
    if (times > 64 || (t->growth *= (int)times + (times == 0)) > 64)
        return app_json_refuse(json, value, WF_EUNSUPPORTED,
                               "a text may become 64 times as long, and not more");
    return WF_OK;
}

wf_status app_hf_normalizer(app_tokenizer *t, const app_json *json, uint32_t value)
{
    const char *type;
    app_step *step;

    if (value == APP_JSON_NONE)
        return WF_OK;
    type = app_hf_type(json, value);
    if (strcmp(type, "Sequence") == 0)
        return app_hf_keys(json, value, "type normalizers") == WF_OK
                   ? each(t, json, value, "normalizers", app_hf_normalizer)
                   : json->error->code;
    if (strcmp(type, "NFC") == 0)
        return app_load_nfc(t, json->name, json->error);
    if (strcmp(type, "Prepend") == 0) {
        step = add_step(json, value, &t->normalizers, APP_STEP_PREPEND);
        app_hf_keys(json, value, "type prepend");
        if (!step || take_text(json, value, "prepend", &step->text, &step->text_bytes) != WF_OK)
            return json->error->code;
        return may_grow(t, json, value, step->text_bytes / 8);
    }
    if (strcmp(type, "Replace") == 0) {
        step = add_step(json, value, &t->normalizers, APP_STEP_REPLACE);
        app_hf_keys(json, value, "type pattern content");
        if (!step || take_pattern(json, value, step, true) != WF_OK)
            return json->error->code;
        if (step->text && !step->text_bytes)
            return app_json_refuse(json, value, WF_EDATA, "an empty text is replaced");
        if (take_text(json, value, "content", &step->with, &step->with_bytes) != WF_OK)
            return json->error->code;
        return may_grow(t, json, value, step->with_bytes / (step->text ? step->text_bytes : 1));
    }
    if (*type)
        app_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no normalizer", type);
    return json->error->code;
}

static wf_status read_split(app_tokenizer *t, const app_json *json, uint32_t value)
{
    static const char *const behaviors[] = {"Isolated", "Removed", NULL, "MergedWithNext",
                                            "MergedWithPrevious"};
    uint32_t behavior = app_json_need(json, value, "behavior", APP_JSON_STRING);
    bool invert = app_json_bool(json, value, "invert", false);
    app_step *step = add_step(json, value, &t->pre_tokenizers, APP_STEP_SPLIT);
    int found = -1;

    if (!step || behavior == APP_JSON_NONE ||
        app_hf_keys(json, value, "type pattern behavior invert") != WF_OK ||
        take_pattern(json, value, step, false) != WF_OK)
        return json->error->code;
    for (int i = 0; i < 5; i++)
        if (behaviors[i] && app_json_equals(json, behavior, behaviors[i]))
            found = i;
    if (found < 0 || (invert && found > APP_SPLIT_REMOVED))
        return app_json_refuse(json, behavior, WF_EUNSUPPORTED,
                               "of behaviors Isolated and Removed are supported, and without "
                               "invert MergedWithNext and MergedWithPrevious");
    step->split = invert && found == APP_SPLIT_REMOVED ? APP_SPLIT_KEPT : (app_split)found;
    return json->error->code;
}

static wf_status add_pattern(app_tokenizer *t, const app_json *json, uint32_t value,
                             const char *pattern)
{
    app_step *step = add_step(json, value, &t->pre_tokenizers, APP_STEP_SPLIT);

    return step ? compile(json, value, &step->pattern, pattern, strlen(pattern))
                : json->error->code;
}

static wf_status read_byte_level(app_tokenizer *t, const app_json *json, uint32_t value)
{
    app_hf_keys(json, value, "type add_prefix_space trim_offsets use_regex");
    if (app_json_bool(json, value, "add_prefix_space", true)) {
        app_step *step = add_step(json, value, &t->pre_tokenizers, APP_STEP_SPACE_IN_FRONT);

        if (step && !app_step_text(&step->text, &step->text_bytes, " ", 1))
            return no_memory(json);
    }
    t->characters = false;
    if (json->error->code == WF_OK && app_json_bool(json, value, "use_regex", true))
        return add_pattern(t, json, value, app_scan_pattern("gpt2"));
    return json->error->code;
}

/* When one is put in front; older files say add_prefix_space in place of it. */
static app_prepend prepend_of(const app_json *json, uint32_t value)
{
    uint32_t scheme = app_json_get(json, value, "prepend_scheme");

    if (scheme == APP_JSON_NONE)
        return app_json_bool(json, value, "add_prefix_space", true) ? APP_PREPEND_ALWAYS
                                                                    : APP_PREPEND_NEVER;
    if (app_json_equals(json, scheme, "first"))
        return APP_PREPEND_FIRST;
    if (app_json_equals(json, scheme, "never"))
        return APP_PREPEND_NEVER;
    if (!app_json_equals(json, scheme, "always"))
        app_json_refuse(json, scheme, WF_EUNSUPPORTED, "is none of always, first and never");
    return APP_PREPEND_ALWAYS;
}

static wf_status read_metaspace(app_tokenizer *t, const app_json *json, uint32_t value)
{
    app_step *step = add_step(json, value, &t->pre_tokenizers, APP_STEP_METASPACE), *cut;
    uint32_t letter = app_json_get(json, value, "replacement");

    app_hf_keys(json, value, "type replacement prepend_scheme add_prefix_space split str_rep");
    if (letter != APP_JSON_NONE && !app_json_equals(json, letter, metaspace))
        return app_json_refuse(json, letter, WF_EUNSUPPORTED, "is not U+2581");
    if (!step || json->error->code != WF_OK)
        return json->error->code;
    step->when = prepend_of(json, value);
    if (!app_step_text(&step->text, &step->text_bytes, metaspace, 3))
        return no_memory(json);
    if (!app_json_bool(json, value, "split", true))
        return json->error->code;
    cut = add_step(json, value, &t->pre_tokenizers, APP_STEP_WORDS);
    if (cut && !app_step_text(&cut->text, &cut->text_bytes, metaspace, 3))
        return no_memory(json);
    return json->error->code;
}

wf_status app_hf_pre_tokenizer(app_tokenizer *t, const app_json *json, uint32_t value)
{
    const char *type;

    if (value == APP_JSON_NONE)
        return WF_OK;
    type = app_hf_type(json, value);
    if (*type && !t->characters)
        return app_json_refuse(json, value, WF_EUNSUPPORTED,
                               "a step behind ByteLevel is not supported");
    if (strcmp(type, "Sequence") == 0)
        return app_hf_keys(json, value, "type pretokenizers") == WF_OK
                   ? each(t, json, value, "pretokenizers", app_hf_pre_tokenizer)
                   : json->error->code;
    if (strcmp(type, "Split") == 0)
        return read_split(t, json, value);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, json, value);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, json, value);
    if (strcmp(type, "Digits") == 0) {
        app_hf_keys(json, value, "type individual_digits");
        return add_pattern(t, json, value,
                           app_json_bool(json, value, "individual_digits", false) ? "\\p{N}"
                                                                                  : "\\p{N}+");
    }
    if (*type)
        app_json_refuse(json, value, WF_EUNSUPPORTED, "\"%s\" is no pre-tokenizer", type);
    return json->error->code;
}

wf_status app_load_split(app_tokenizer *t, const char *pattern, size_t bytes, const char *name,
                         wf_error *error)
{
    app_step *step = app_step_add(&t->pre_tokenizers, APP_STEP_SPLIT);
    bool unsupported = true;
    const char *wrong = step ? app_pattern_compile(&step->pattern, pattern, bytes,
                                                   APP_PATTERN_RUST, &unsupported)
                             : "too many steps";

    return wrong ? wf_error_set(error, unsupported ? WF_EUNSUPPORTED : app_wrong_code(wrong),
                                "%s: %s", name, wrong)
                 : WF_OK;
}

bool app_load_safe_words(app_tokenizer *t)
{
    const app_lexicon *v = &t->vocabulary;
    app_step *step;
    app_step_list *list = &t->pre_tokenizers;

    if (!t->byte_fallback && t->unknown < 0)
        return true; /* what is unknown is left out, and merges go across it */
    if (!t->characters || t->whole_words || app_lexicon_piece(v, metaspace, 3) < 0 ||
        list->count == APP_MOST_STEPS ||
        (list->count && list->steps[list->count - 1].kind == APP_STEP_WORDS))
        return true;
    step = app_step_add(list, APP_STEP_SAFE);
    for (uint32_t i = 0; i <= v->merges_mask; i++) {
        const app_token *left, *right;

        if (v->merges[i].left < 0)
            continue;
        left = &v->tokens[v->merges[i].left];
        right = &v->tokens[v->merges[i].right];
        if (right->bytes < 3 || memcmp(v->texts + right->at, metaspace, 3) != 0)
            continue;
        if (left->kind & APP_TOKEN_BYTE || v->merges[i].left == t->unknown)
            memset(step->safe, 1, sizeof step->safe);
        else
            step->safe[(uint8_t)v->texts[left->at + left->bytes - 1]] = 1;
    }
    return app_step_text(&step->text, &step->text_bytes, metaspace, 3);
}
