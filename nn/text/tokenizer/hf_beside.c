/* nn/text/tokenizer/hf_beside.c - what lies beside a tokenizer.json or a vocab.json: more
   tokens, and which ones begin and end documents. */
#include "nn/text/tokenizer/load_internal.h"
#include <stdlib.h>
#include <string.h>

/* Keys of special tokens; the last ones have several. */
static const char *const names[] = {
    "bos_token",           "eos_token", "unk_token",  "sep_token",
    "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
    "extra_special_tokens"};
enum { NAMES = sizeof names / sizeof *names, ONE_TOKEN = 7 };

bool wf_tok_open_beside(const char *path, const char *name, wf_text_json *json,
                        char beside[WF_TOK_MOST_PATH], wf_error *error)
{
    size_t bytes;
    char *text;

    wf_tok_file_beside(path, name, beside);
    if (!wf_tok_file_there(beside) || wf_tok_file_read(beside, &text, &bytes, error) != WF_OK)
        return false;
    if (wf_text_json_open(json, beside, text, bytes, error) == WF_OK &&
        wf_text_json_is(json, 0) == WF_TEXT_JSON_OBJECT)
        return true;
    wf_text_json_close(json);
    return false;
}

/* Returns the id of a token that is there as its text, or as an object with its content; -1. */
static int32_t named(const wf_tok *t, const wf_text_json *json, const char *key)
{
    uint32_t value = wf_text_json_get(json, 0, key);
    const char *text;
    size_t bytes;

    if (value != WF_TEXT_JSON_NONE && wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT)
        value = wf_text_json_get(json, value, "content");
    if (value == WF_TEXT_JSON_NONE || wf_text_json_is(json, value) != WF_TEXT_JSON_STRING)
        return -1;
    text = wf_text_json_text(json, value, &bytes);
    return wf_tok_id(t, text, bytes);
}

/* Returns the id of a key, or the first of several; -1. */
static int32_t numbered(const wf_tok *t, const wf_text_json *json, const char *key)
{
    uint32_t value = wf_text_json_get(json, 0, key);

    if (value != WF_TEXT_JSON_NONE && wf_text_json_is(json, value) == WF_TEXT_JSON_ARRAY)
        value = json->values[value].count ? value + 1 : WF_TEXT_JSON_NONE;
    return value == WF_TEXT_JSON_NONE
               ? -1
               : (int32_t)wf_text_json_int(json, value, 0, t->vocabulary.size - 1);
}

wf_status wf_tok_load_ends(wf_tok *t, const char *path, wf_error *error)
{
    char beside[WF_TOK_MOST_PATH];
    wf_text_json json;

    if (t->alone)
        return error->code;
    if (wf_tok_open_beside(path, "tokenizer_config.json", &json, beside, error)) {
        t->bos = t->bos < 0 ? named(t, &json, "bos_token") : t->bos;
        t->eos = t->eos < 0 ? named(t, &json, "eos_token") : t->eos;
        t->pad = t->pad < 0 ? named(t, &json, "pad_token") : t->pad;
        wf_text_json_close(&json);
    }
    if (error->code == WF_OK && (t->bos < 0 || t->eos < 0) &&
        wf_tok_open_beside(path, "config.json", &json, beside, error)) {
        t->bos = t->bos < 0 ? numbered(t, &json, "bos_token_id") : t->bos;
        t->eos = t->eos < 0 ? numbered(t, &json, "eos_token_id") : t->eos;
        wf_text_json_close(&json);
    }
    t->bos = t->bos < 0 && t->before_count ? t->before[0] : t->bos;
    t->eos = t->eos < 0 && t->after_count ? t->after[0] : t->eos;
    return error->code;
}

int32_t wf_tok_hf_next_id(const wf_tok *t)
{
    return t->last_added >= t->pieces ? t->last_added + 1 : t->pieces;
}

const char *wf_tok_hf_special(wf_tok *t, const char *text, size_t bytes)
{
    wf_tok_added token = {
        .text = (char *)(uintptr_t)text, .bytes = (uint32_t)bytes, .special = true};

    if (wf_tok_lexicon_added(&t->vocabulary, text, bytes) >= 0)
        return NULL;
    token.id = wf_tok_hf_model_id(t, text, bytes);
    if (token.id < 0)
        token.id = wf_tok_hf_next_id(t);
    return wf_tok_load_added(t, &token, false);
}

/* Returns true where a token includes white space around it. */
static bool takes_around(const wf_text_json *json, uint32_t value)
{
    static const char *const keys[] = {"lstrip", "rstrip", "single_word"};
    bool takes = false;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        takes = wf_text_json_bool(json, value, keys[i], false) || takes;
    return takes;
}

/* Takes a token that is named, as its text or as an object; null: none. */
static wf_status take_named(wf_tok *t, const wf_text_json *json, uint32_t value)
{
    const bool object = wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT;
    uint32_t content = value;
    const char *text, *wrong;
    size_t bytes;

    if (wf_text_json_is(json, value) == WF_TEXT_JSON_NULL)
        return WF_OK;
    if (object)
        content = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING);
    if (content == WF_TEXT_JSON_NONE)
        return json->error->code;
    if (wf_text_json_is(json, content) != WF_TEXT_JSON_STRING)
        return wf_text_json_refuse(json, value, WF_EDATA, "is no token");
    text = wf_text_json_text(json, content, &bytes);
    if (object && wf_tok_lexicon_added(&t->vocabulary, text, bytes) < 0 &&
        takes_around(json, value))
        return wf_text_json_refuse(json, value, WF_EUNSUPPORTED,
                                   "a token that takes what is around it has to be among "
                                   "added_tokens");
    wrong = bytes && json->error->code == WF_OK ? wf_tok_hf_special(t, text, bytes) : NULL;
    return wrong ? wf_text_json_refuse(json, value, wf_tok_wrong_code(wrong), "%s", wrong)
                 : json->error->code;
}

/* Takes a token, a list of them, or an object of those with names of their own. */
static wf_status take_value(wf_tok *t, const wf_text_json *json, uint32_t value, bool several)
{
    const bool object = several && wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT;

    if (!object && wf_text_json_is(json, value) != WF_TEXT_JSON_ARRAY)
        return take_named(t, json, value);
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;) {
        take_named(t, json, i + object);
        i = wf_text_json_after(json, i + object);
    }
    return json->error->code;
}

/* Takes the special tokens of tokenizer_config.json or, where that has none of a name, of
   special_tokens_map.json, in transformers' order. */
static wf_status take_names(wf_tok *t, const wf_text_json *const files[2], wf_error *error)
{
    for (size_t i = 0; i < NAMES; i++)
        for (int k = 0; k < 2 && error->code == WF_OK; k++) {
            uint32_t value =
                files[k] ? wf_text_json_get(files[k], 0, names[i]) : WF_TEXT_JSON_NONE;

            if (value == WF_TEXT_JSON_NONE)
                continue;
            take_value(t, files[k], value, i >= ONE_TOKEN);
            break;
        }
    return error->code;
}

/* added_tokens.json: {"text": id}. */
static wf_status take_plain(wf_tok *t, const wf_text_json *json)
{
    for (uint32_t i = 1; i < json->values[0].next; i = wf_text_json_after(json, i + 1)) {
        size_t bytes;
        const char *text = wf_text_json_text(json, i, &bytes), *wrong = NULL;
        wf_tok_added token = {.text = (char *)(uintptr_t)text, .bytes = (uint32_t)bytes};

        token.id = (int32_t)wf_text_json_int(json, i + 1, 0, WF_TOK_LEXICON_MOST - 1);
        if (json->error->code != WF_OK)
            return json->error->code;
        if (wf_tok_lexicon_added(&t->vocabulary, text, bytes) == token.id)
            continue;
        if (wf_tok_hf_added_id(t, json, i, text, bytes, token.id) != WF_OK)
            return json->error->code;
        wrong = wf_tok_load_added(t, &token, true);
        if (wrong)
            return wf_text_json_refuse(json, i, wf_tok_wrong_code(wrong), "%s", wrong);
    }
    return WF_OK;
}

wf_status wf_tok_hf_added_id(const wf_tok *t, const wf_text_json *json, uint32_t value,
                             const char *text, size_t bytes, int32_t id)
{
    int32_t theirs = wf_tok_hf_model_id(t, text, bytes);

    if (theirs < 0)
        theirs = wf_tok_hf_next_id(t);
    if (theirs == id)
        return WF_OK;
    return wf_text_json_refuse(
        json, value, WF_EUNSUPPORTED,
        "its id is %d, and tokenizers give it %d, whatever the file says: "
        "ids of added tokens go on where the vocabulary ends, without a gap",
        id, theirs);
}

/* Takes the tokens that have ids of their own: those of tokenizer_config.json, or, where it has
   no list, of added_tokens.json. */
static wf_status take_listed(wf_tok *t, const char *path, const wf_text_json *config,
                             wf_error *error)
{
    const uint32_t list =
        config ? wf_text_json_get(config, 0, "added_tokens_decoder") : WF_TEXT_JSON_NONE;
    char beside[WF_TOK_MOST_PATH];
    wf_text_json json;

    if (list != WF_TEXT_JSON_NONE && wf_text_json_is(config, list) == WF_TEXT_JSON_OBJECT)
        return wf_tok_hf_added(t, config, list);
    if (wf_tok_open_beside(path, "added_tokens.json", &json, beside, error)) {
        take_plain(t, &json);
        wf_text_json_close(&json);
    }
    return error->code;
}

wf_status wf_tok_hf_beside(wf_tok *t, const char *path, wf_error *error)
{
    static const char *const files_of[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char beside[2][WF_TOK_MOST_PATH];
    const wf_text_json *files[2] = {NULL, NULL};
    wf_text_json json[2];

    if (t->alone)
        return error->code;
    for (int i = 0; i < 2 && error->code == WF_OK; i++)
        if (wf_tok_open_beside(path, files_of[i], &json[i], beside[i], error))
            files[i] = &json[i];
    if (error->code == WF_OK && take_listed(t, path, files[0], error) == WF_OK)
        take_names(t, files, error);
    for (int i = 0; i < 2; i++)
        if (files[i])
            wf_text_json_close(&json[i]);
    return error->code;
}

/* Refuses a token that a model of SentencePiece has not as one of its own that texts are
   searched for: transformers append it, or match it where the model would cut it. */
static wf_status check_of_model(const wf_tok *t, const wf_text_json *json, uint32_t at,
                                uint32_t content, int64_t id)
{
    const wf_tok_lexicon *v = &t->vocabulary;
    size_t bytes;
    const char *text = wf_text_json_text(json, content, &bytes);

    for (int32_t i = id < 0 ? 0 : (int32_t)id; i < v->size && (id < 0 || i == id); i++)
        if (v->tokens[i].kind & (WF_TOK_TOKEN_ADDED | WF_TOK_TOKEN_SPECIAL) &&
            v->tokens[i].bytes == bytes && memcmp(v->texts + v->tokens[i].at, text, bytes) == 0)
            return WF_OK;
    return wf_text_json_refuse(json, at, WF_EUNSUPPORTED,
                               "is no such token of tokenizer.model, to which transformers add "
                               "it: save the tokenizer as tokenizer.json, which is read with "
                               "its added tokens (save_pretrained of AutoTokenizer)");
}

/* Checks a token that is named; null: none. */
static wf_status check_named(const wf_tok *t, const wf_text_json *json, uint32_t value)
{
    uint32_t content = value;

    if (wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT)
        content = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING);
    return content == WF_TEXT_JSON_NONE || wf_text_json_is(json, content) != WF_TEXT_JSON_STRING
               ? json->error->code
               : check_of_model(t, json, value, content, -1);
}

/* Checks an object of ids, each with its text or an object for it (added_tokens_decoder), or,
   where they are the values, of texts (added_tokens.json). */
static wf_status check_listed(const wf_tok *t, const wf_text_json *json, uint32_t list,
                              bool decoder)
{
    for (uint32_t i = list + 1; i < json->values[list].next && json->error->code == WF_OK;
         i = wf_text_json_after(json, i + 1)) {
        uint32_t content =
            decoder ? wf_text_json_need(json, i + 1, "content", WF_TEXT_JSON_STRING) : i;
        int64_t id = wf_text_json_int(json, i + !decoder, 0, WF_TOK_LEXICON_MOST - 1);

        if (json->error->code == WF_OK)
            check_of_model(t, json, i, content, id);
    }
    return json->error->code;
}

/* Checks the tokens of tokenizer_config.json or special_tokens_map.json. */
static wf_status check_names(const wf_tok *t, const wf_text_json *json)
{
    uint32_t value = wf_text_json_get(json, 0, "added_tokens_decoder");

    if (value != WF_TEXT_JSON_NONE && wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT)
        check_listed(t, json, value, true);
    for (size_t i = 0; i < NAMES && json->error->code == WF_OK; i++) {
        bool object;

        value = wf_text_json_get(json, 0, names[i]);
        if (value == WF_TEXT_JSON_NONE)
            continue;
        object = i >= ONE_TOKEN && wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT;
        if (!object && wf_text_json_is(json, value) != WF_TEXT_JSON_ARRAY) {
            check_named(t, json, value);
            continue;
        }
        for (uint32_t k = value + 1; k < json->values[value].next && !json->error->code;) {
            check_named(t, json, k + object);
            k = wf_text_json_after(json, k + object);
        }
    }
    return json->error->code;
}

wf_status wf_tok_hf_beside_model(const wf_tok *t, const char *path, wf_error *error)
{
    static const char *const files[] = {"added_tokens.json", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    char beside[WF_TOK_MOST_PATH];
    wf_text_json json;

    for (int i = 0; i < 3 && error->code == WF_OK; i++) {
        if (!wf_tok_open_beside(path, files[i], &json, beside, error))
            continue;
        if (i == 0)
            check_listed(t, &json, 0, false);
        else
            check_names(t, &json);
        wf_text_json_close(&json);
    }
    return error->code;
}

/* Returns true where a step puts a space in front. */
static bool has_front(const wf_tok *t)
{
    for (int i = 0; i < t->pre_tokenizers.count; i++)
        if (t->pre_tokenizers.steps[i].kind == WF_TOK_STEP_SPACE_IN_FRONT)
            return true;
    return false;
}

/* Returns true where transformers use a tokenizer.json unchanged: classes of a model's own
   rebuild its steps. */
static bool is_generic(const wf_text_json *json)
{
    const uint32_t class = wf_text_json_get(json, 0, "tokenizer_class");

    return class == WF_TEXT_JSON_NONE ||
           wf_text_json_equals(json, class, "PreTrainedTokenizerFast") ||
           wf_text_json_equals(json, class, "TokenizersBackend");
}

wf_status wf_tok_hf_front(wf_tok *t, const char *path, bool merges, bool may, wf_error *error)
{
    char beside[WF_TOK_MOST_PATH];
    wf_text_json json;
    bool front;

    if (t->alone || !wf_tok_open_beside(path, "tokenizer_config.json", &json, beside, error))
        return error->code;
    front = wf_text_json_bool(&json, 0, "add_prefix_space", has_front(t));
    if (error->code == WF_OK && front != has_front(t) && !may && (merges || !is_generic(&json)))
        wf_text_json_refuse(&json, wf_text_json_get(&json, 0, "add_prefix_space"),
                            WF_EUNSUPPORTED, "the tokenizer's own steps say something else");
    else if (error->code == WF_OK && front != has_front(t) && may) {
        wf_tok_step *step = wf_tok_step_add(&t->pre_tokenizers, WF_TOK_STEP_SPACE_IN_FRONT);

        if (!step || !wf_tok_step_text(&step->text, &step->text_bytes, " ", 1))
            wf_error_set(error, WF_ENOMEM, "%s: out of memory", path);
    }
    wf_text_json_close(&json);
    return error->code;
}
