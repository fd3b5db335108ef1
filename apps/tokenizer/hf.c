/* apps/tokenizer/hf.c - tokenizer.json as a whole, vocab.json with merges.txt, and what lies beside them. */
#include "apps/tokenizer/load_internal.h"
#include "apps/tokenizer/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

wf_status app_load_hf(app_tokenizer *t, const app_json *json)
{
    uint32_t model = app_json_need(json, 0, "model", APP_JSON_OBJECT);
    wf_status status;

    if (model == APP_JSON_NONE)
        return json->error->code;
    t->characters = true; /* until ByteLevel is read */
    status = app_hf_keys(json, 0,
                         "version truncation padding added_tokens normalizer pre_tokenizer "
                         "post_processor decoder model");
    if (status == WF_OK)
        status = app_hf_normalizer(t, json, app_json_get(json, 0, "normalizer"));
    if (status == WF_OK)
        status = app_hf_pre_tokenizer(t, json, app_json_get(json, 0, "pre_tokenizer"));
    if (status == WF_OK)
        status = app_hf_model(t, json, model);
    if (status == WF_OK)
        status = app_hf_added(t, json, app_json_get(json, 0, "added_tokens"));
    if (status == WF_OK)
        status = app_hf_decoder(t, json, app_json_get(json, 0, "decoder"));
    if (status == WF_OK)
        status = app_hf_template(t, json, app_json_get(json, 0, "post_processor"));
    if (status == WF_OK && !app_load_safe_words(t))
        status = wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
    return status == WF_OK ? app_load_ends(t, json->name, json->error) : status;
}

/* A file in JSON beside another one; false: there is none, or none that can be read, which is told. */
static bool open_beside(const char *path, const char *name, app_json *json,
                        char beside[APP_MOST_PATH], wf_error *error)
{
    size_t bytes;
    char *text;

    app_file_beside(path, name, beside);
    if (!app_file_there(beside) || app_file_read(beside, &text, &bytes, error) != WF_OK)
        return false;
    if (app_json_open(json, beside, text, bytes, error) == WF_OK &&
        app_json_is(json, 0) == APP_JSON_OBJECT)
        return true;
    app_json_close(json);
    return false;
}

/* The id of a token that is there as its text, or as an object with its content; -1. */
static int32_t named(const app_tokenizer *t, const app_json *json, const char *key)
{
    uint32_t value = app_json_get(json, 0, key);
    const char *text;
    size_t bytes;

    if (value != APP_JSON_NONE && app_json_is(json, value) == APP_JSON_OBJECT)
        value = app_json_get(json, value, "content");
    if (value == APP_JSON_NONE || app_json_is(json, value) != APP_JSON_STRING)
        return -1;
    text = app_json_text(json, value, &bytes);
    return app_tokenizer_id(t, text, bytes);
}

/* The id of a key, or the first of several; -1. */
static int32_t numbered(const app_tokenizer *t, const app_json *json, const char *key)
{
    uint32_t value = app_json_get(json, 0, key);

    if (value != APP_JSON_NONE && app_json_is(json, value) == APP_JSON_ARRAY)
        value = json->values[value].count ? value + 1 : APP_JSON_NONE;
    return value == APP_JSON_NONE
               ? -1
               : (int32_t)app_json_int(json, value, 0, t->vocabulary.size - 1);
}

wf_status app_load_ends(app_tokenizer *t, const char *path, wf_error *error)
{
    char beside[APP_MOST_PATH];
    app_json json;

    if (open_beside(path, "tokenizer_config.json", &json, beside, error)) {
        t->bos = t->bos < 0 ? named(t, &json, "bos_token") : t->bos;
        t->eos = t->eos < 0 ? named(t, &json, "eos_token") : t->eos;
        t->pad = t->pad < 0 ? named(t, &json, "pad_token") : t->pad;
        app_json_close(&json);
    }
    if (error->code == WF_OK && (t->bos < 0 || t->eos < 0) &&
        open_beside(path, "config.json", &json, beside, error)) {
        t->bos = t->bos < 0 ? numbered(t, &json, "bos_token_id") : t->bos;
        t->eos = t->eos < 0 ? numbered(t, &json, "eos_token_id") : t->eos;
        app_json_close(&json);
    }
    t->bos = t->bos < 0 && t->before_count ? t->before[0] : t->bos;
    t->eos = t->eos < 0 && t->behind_count ? t->behind[0] : t->eos;
    return error->code;
}

/* One line of merges.txt: two tokens with a blank between them. NULL, or what is wrong. */
static const char *merge_line(app_tokenizer *t, const char *line, size_t bytes, int32_t rank)
{
    const char *space = memchr(line, ' ', bytes);
    size_t left = space ? (size_t)(space - line) : 0, right = bytes - left - 1;
    char both[2 * APP_TOKEN_MOST_BYTES];
    int32_t a, b, made;

    if (!space || left > APP_TOKEN_MOST_BYTES || right > APP_TOKEN_MOST_BYTES)
        return "is not two tokens";
    memcpy(both, line, left);
    memcpy(both + left, space + 1, right);
    a = app_hf_piece(t, line, left);
    b = app_hf_piece(t, space + 1, right);
    made = app_hf_piece(t, both, left + right);
    if (a < 0 || b < 0 || made < 0)
        return "a token of it is not in vocab.json";
    return app_lexicon_merge(&t->vocabulary, a, b, rank, made);
}

static wf_status read_merges(app_tokenizer *t, const char *path, const char *text, size_t bytes,
                             wf_error *error)
{
    const char *end = text + bytes;
    int32_t lines = 1, rank = 0;
    wf_status status;

    if (app_utf8_valid((const uint8_t *)text, bytes) < bytes)
        return wf_error_set(error, WF_EDATA, "%s: no UTF-8", path);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    status = app_lexicon_end(&t->vocabulary, lines, lines, error);
    for (int32_t number = 1; status == WF_OK && text < end; number++) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        size_t line = (size_t)((line_end ? line_end : end) - text);
        size_t used = line - (line && text[line - 1] == '\r');
        bool head = number == 1 && used >= 8 && memcmp(text, "#version", 8) == 0;
        const char *wrong = used && !head ? merge_line(t, text, used, rank++) : NULL;

        if (wrong)
            status = wf_error_set(error, app_wrong_code(wrong), "%s: line %d: %s", path, number,
                                  wrong);
        text += line + (line_end != NULL);
    }
    return status;
}

/* The pattern of the class that a folder names; GPT-2's where none is named. NULL: another one. */
static const char *class_pattern(app_tokenizer *t, const char *path, bool *nfc, wf_error *error)
{
    const char *pattern = "gpt2";
    char beside[APP_MOST_PATH];
    uint32_t name;
    app_json json;

    *nfc = false;
    (void)t;
    if (!open_beside(path, "tokenizer_config.json", &json, beside, error))
        return pattern;
    name = app_json_get(&json, 0, "tokenizer_class");
    if (name != APP_JSON_NONE && (app_json_equals(&json, name, "Qwen2Tokenizer") ||
                                  app_json_equals(&json, name, "Qwen2TokenizerFast"))) {
        pattern = "qwen";
        *nfc = true;
    } else if (name != APP_JSON_NONE && !app_json_equals(&json, name, "GPT2Tokenizer") &&
               !app_json_equals(&json, name, "GPT2TokenizerFast")) {
        app_json_refuse(
            &json, name, WF_EUNSUPPORTED,
            "beside vocab.json only GPT2Tokenizer and Qwen2Tokenizer are supported: "
            "use a tokenizer.json");
    }
    app_json_close(&json);
    return pattern;
}

/* Added tokens of tokenizer_config.json: {"added_tokens_decoder": {"50256": {"content": ...}}}. */
static wf_status added_beside(app_tokenizer *t, const char *path, wf_error *error)
{
    static const char end[] = "<|endoftext|>";
    app_added standard = {.text = (char *)end, .bytes = sizeof end - 1, .special = true};
    char beside[APP_MOST_PATH];
    uint32_t list;
    app_json json;

    if (open_beside(path, "tokenizer_config.json", &json, beside, error)) {
        list = app_json_get(&json, 0, "added_tokens_decoder");
        if (list != APP_JSON_NONE && app_json_is(&json, list) == APP_JSON_OBJECT)
            app_hf_added(t, &json, list);
        app_json_close(&json);
    }
    standard.id = app_lexicon_piece(&t->vocabulary, end, sizeof end - 1);
    if (error->code == WF_OK && standard.id >= 0 && !t->added.count &&
        app_load_added(t, &standard, false))
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", path);
    return error->code;
}

wf_status app_load_merges(app_tokenizer *t, const app_json *json)
{
    char merges[APP_MOST_PATH], *text = NULL;
    const char *path = json->name, *pattern;
    wf_error *error = json->error;
    wf_status status;
    size_t bytes;
    bool nfc;

    app_file_beside(path, "merges.txt", merges);
    t->characters = false;
    status = app_file_read(merges, &text, &bytes, error);
    if (status == WF_OK)
        status = app_hf_vocabulary(t, json, 0);
    if (status == WF_OK)
        status = read_merges(t, merges, text, bytes, error);
    free(text);
    pattern = app_scan_pattern(class_pattern(t, path, &nfc, error));
    if (error->code == WF_OK && nfc)
        app_load_nfc(t, path, error);
    if (error->code == WF_OK)
        app_load_split(t, pattern, strlen(pattern), path, error);
    if (error->code == WF_OK)
        added_beside(t, path, error);
    if (error->code == WF_OK)
        app_load_ends(t, path, error);
    t->eos = t->eos < 0 ? app_tokenizer_id(t, "<|endoftext|>", 13) : t->eos;
    return error->code;
}
