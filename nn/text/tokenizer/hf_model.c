/* nn/text/tokenizer/hf_model.c - vocabulary, merges and added tokens of tokenizer.json. */
#include "nn/text/tokenizer/encode_internal.h"
#include "nn/text/tokenizer/load_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A token as letters, of which each has two bytes at most. */
enum { MOST_LETTERS = 2 * WF_TOK_TOKEN_MOST_BYTES };

/* Returns true where a word is one of several, separated by blanks. */
static bool among(const char *words, const char *word, size_t bytes)
{
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (n == bytes && memcmp(words, word, n) == 0)
            return true;
    }
    return false;
}

wf_status wf_tok_hf_keys(const wf_text_json *json, uint32_t object, const char *known)
{
    for (uint32_t i = object + 1; i < json->values[object].next; i = json->values[i + 1].next) {
        size_t bytes;
        const char *key = wf_text_json_text(json, i, &bytes);

        if (!among(known, key, bytes) && json->values[i + 1].kind != WF_TEXT_JSON_NULL)
            return wf_text_json_refuse(json, i, WF_EUNSUPPORTED, "this key is not supported");
    }
    return json->error->code;
}

const char *wf_tok_hf_type(const wf_text_json *json, uint32_t object)
{
    static const char *const types[] = {"BPE",
                                        "NFC",
                                        "Prepend",
                                        "Replace",
                                        "Sequence",
                                        "Split",
                                        "ByteLevel",
                                        "Digits",
                                        "Metaspace",
                                        "ByteFallback",
                                        "Fuse",
                                        "Strip",
                                        "TemplateProcessing"};
    uint32_t type = wf_text_json_need(json, object, "type", WF_TEXT_JSON_STRING);
    size_t bytes;
    const char *text;

    if (type == WF_TEXT_JSON_NONE)
        return "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (wf_text_json_equals(json, type, types[i]))
            return types[i];
    text = wf_text_json_text(json, type, &bytes);
    wf_text_json_refuse(json, type, WF_EUNSUPPORTED, "\"%.*s\" is not supported",
                        (int)(bytes < 40 ? bytes : 40), text);
    return "";
}

/* Gives a token's text as the model has it: of a byte-level one the bytes that its letters
   encode; false: some are no such letters. */
static bool model_text(const wf_tok *t, const char *text, size_t bytes, char out[MOST_LETTERS],
                       size_t *out_bytes)
{
    int64_t count;

    *out_bytes = bytes;
    if (t->characters || bytes > MOST_LETTERS)
        return false;
    count = wf_tok_letters_to_bytes(text, bytes, out);
    *out_bytes = count < 0 ? bytes : (size_t)count;
    return count >= 0;
}

int32_t wf_tok_hf_piece(const wf_tok *t, const char *text, size_t bytes)
{
    char changed[MOST_LETTERS];
    size_t n;

    if (model_text(t, text, bytes, changed, &n))
        return wf_tok_lexicon_piece(&t->vocabulary, changed, n);
    return t->characters ? wf_tok_lexicon_piece(&t->vocabulary, text, bytes) : -1;
}

int32_t wf_tok_hf_model_id(const wf_tok *t, const char *text, size_t bytes)
{
    const wf_tok_lexicon *v = &t->vocabulary;
    char changed[MOST_LETTERS];
    size_t n;

    if (t->characters || model_text(t, text, bytes, changed, &n))
        return wf_tok_hf_piece(t, text, bytes);
    for (int32_t id = 0; id < v->size; id++)
        if (v->tokens[id].kind & WF_TOK_TOKEN_NAME && v->tokens[id].bytes == bytes &&
            memcmp(v->texts + v->tokens[id].at, text, bytes) == 0)
            return id;
    return -1;
}

wf_status wf_tok_hf_vocabulary(wf_tok *t, const wf_text_json *json, uint32_t vocabulary)
{
    for (uint32_t i = vocabulary + 1; i < json->values[vocabulary].next; i += 2) {
        char changed[MOST_LETTERS];
        size_t bytes, n;
        const char *text = wf_text_json_text(json, i, &bytes), *wrong;
        bool letters = model_text(t, text, bytes, changed, &n);
        int kind = letters || t->characters ? WF_TOK_TOKEN_PIECE : WF_TOK_TOKEN_NAME;
        int64_t id = wf_text_json_int(json, i + 1, 0, WF_TOK_LEXICON_MOST - 1);

        if (json->error->code != WF_OK)
            return json->error->code;
        if (t->vocabulary.size > id && t->vocabulary.tokens[id].kind)
            return wf_text_json_refuse(json, i, WF_EDATA, "another token has the id %lld",
                                       (long long)id);
        wrong =
            wf_tok_lexicon_add(&t->vocabulary, (int32_t)id, letters ? changed : text, n, kind);
        if (wrong)
            return wf_text_json_refuse(json, i, wf_tok_wrong_code(wrong), "%s", wrong);
        t->pieces++;
    }
    return WF_OK;
}

/* Finds the two tokens of a merge: "a b", or ["a", "b"]. */
static bool two_tokens(const wf_tok *t, const wf_text_json *json, uint32_t merge, int32_t id[2],
                       char text[2 * MOST_LETTERS], size_t *bytes)
{
    const wf_text_json_value *v = &json->values[merge];
    const char *part[2];
    size_t n[2];

    if (v->kind == WF_TEXT_JSON_ARRAY && v->count == 2 &&
        json->values[merge + 1].kind == WF_TEXT_JSON_STRING &&
        json->values[merge + 2].kind == WF_TEXT_JSON_STRING) {
        part[0] = wf_text_json_text(json, merge + 1, &n[0]);
        part[1] = wf_text_json_text(json, merge + 2, &n[1]);
    } else if (v->kind == WF_TEXT_JSON_STRING) {
        const char *space;

        part[0] = wf_text_json_text(json, merge, &n[1]);
        space = memchr(part[0], ' ', n[1]);
        if (!space)
            return false;
        n[0] = (size_t)(space - part[0]);
        n[1] -= n[0] + 1;
        part[1] = space + 1;
    } else {
        return false;
    }
    if (n[0] > MOST_LETTERS || n[1] > MOST_LETTERS)
        return false;
    *bytes = n[0] + n[1];
    memcpy(text, part[0], n[0]);
    memcpy(text + n[0], part[1], n[1]);
    id[0] = wf_tok_hf_piece(t, part[0], n[0]);
    id[1] = wf_tok_hf_piece(t, part[1], n[1]);
    return true;
}

static wf_status read_merges(wf_tok *t, const wf_text_json *json, uint32_t merges)
{
    int32_t count = (int32_t)json->values[merges].count, rank = 0, made = -1;
    wf_status status = wf_tok_lexicon_end(&t->vocabulary, count, count, json->error);

    for (uint32_t i = merges + 1; status == WF_OK && i < json->values[merges].next;
         i = wf_text_json_after(json, i), rank++) {
        char text[2 * MOST_LETTERS];
        const char *wrong = NULL;
        int32_t id[2];
        size_t bytes;

        if (!two_tokens(t, json, i, id, text, &bytes))
            wrong = "is not two tokens";
        else if (id[0] < 0 || id[1] < 0)
            wrong = "a token of it is not in the vocabulary";
        else if (!wf_tok_lexicon_is_pair(&t->vocabulary, ++made, id[0], id[1]) &&
                 (made = wf_tok_hf_piece(t, text, bytes)) < 0) /* mostly they are in order */
            wrong = "what it makes is not in the vocabulary";
        else
            wrong = wf_tok_lexicon_merge(&t->vocabulary, id[0], id[1], rank, made);
        if (wrong)
            status = wf_text_json_refuse(json, i, wf_tok_wrong_code(wrong), "%s", wrong);
    }
    return status;
}

/* Finds the bytes' own tokens of a vocabulary of characters: <0x00> to <0xFF>. */
static wf_status find_bytes(wf_tok *t, const wf_text_json *json, uint32_t model)
{
    for (int byte = 0; t->characters && byte < 256; byte++) {
        char name[8];

        snprintf(name, sizeof name, "<0x%02X>", byte);
        t->fallback[byte] = wf_tok_lexicon_piece(&t->vocabulary, name, 6);
        if (t->fallback[byte] >= 0)
            t->vocabulary.tokens[t->fallback[byte]].kind |= WF_TOK_TOKEN_BYTE;
        else if (t->byte_fallback)
            return wf_text_json_refuse(json, model, WF_EDATA,
                                       "byte_fallback is true, and the vocabulary has no %s",
                                       name);
    }
    return WF_OK;
}

/* Refuses fields that change ids in ways that no current model uses, unless they are absent or
   have no effect. */
static wf_status refuse_rare(const wf_text_json *json, uint32_t model)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    uint32_t dropout = wf_text_json_get(json, model, "dropout");

    if (dropout != WF_TEXT_JSON_NONE)
        wf_text_json_int(json, dropout, 0, 0);
    for (int i = 0; i < 2; i++) {
        uint32_t value = wf_text_json_get(json, model, keys[i]);

        if (value != WF_TEXT_JSON_NONE && !wf_text_json_equals(json, value, ""))
            wf_text_json_refuse(json, value, WF_EUNSUPPORTED, "is not supported");
    }
    return wf_tok_hf_keys(json, model,
                          "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                          "fuse_unk byte_fallback ignore_merges vocab merges");
}

wf_status wf_tok_hf_model(wf_tok *t, const wf_text_json *json, uint32_t model)
{
    uint32_t type = wf_text_json_get(json, model, "type"), unknown, vocabulary, merges;
    wf_status status;

    if (type != WF_TEXT_JSON_NONE && !wf_text_json_equals(json, type, "BPE"))
        return wf_text_json_refuse(json, type, WF_EUNSUPPORTED,
                                   "of all models only BPE is supported");
    vocabulary = wf_text_json_need(json, model, "vocab", WF_TEXT_JSON_OBJECT);
    merges = wf_text_json_need(json, model, "merges", WF_TEXT_JSON_ARRAY);
    if (refuse_rare(json, model) != WF_OK)
        return json->error->code;
    t->whole_words = wf_text_json_bool(json, model, "ignore_merges", false);
    t->byte_fallback = wf_text_json_bool(json, model, "byte_fallback", false);
    t->join_unknown = wf_text_json_bool(json, model, "fuse_unk", false);
    if (t->byte_fallback && !t->characters)
        return wf_text_json_refuse(json, model, WF_EUNSUPPORTED,
                                   "byte_fallback beside ByteLevel is not supported");
    unknown = wf_text_json_get(json, model, "unk_token");
    status = wf_tok_hf_vocabulary(t, json, vocabulary);
    if (status == WF_OK)
        status = read_merges(t, json, merges);
    if (status == WF_OK && unknown != WF_TEXT_JSON_NONE) {
        size_t bytes;
        const char *text = wf_text_json_text(json, unknown, &bytes);

        if (wf_text_json_is(json, unknown) == WF_TEXT_JSON_STRING)
            t->unknown = wf_tok_hf_piece(t, text, bytes);
        if (t->unknown < 0)
            return wf_text_json_refuse(json, unknown, WF_EDATA, "is not in the vocabulary");
    }
    return status == WF_OK ? find_bytes(t, json, model) : status;
}

/* Returns the text of an added token after all normalizers, which is looked for in texts after
   them. */
static const char *normal_text(const wf_tok *t, wf_tok_added *token, wf_tok_bytes to[2])
{
    const char *wrong = NULL;
    wf_tok_matcher matcher;
    wf_error error = {WF_OK, ""};

    if (!wf_tok_matcher_open(&matcher))
        wrong = "out of memory";
    for (int i = 0; i < t->normalizers.count && !wrong; i++) {
        to[i % 2].bytes = 0;
        if (wf_tok_normalize_step(&t->normalizers.steps[i], &matcher,
                                  (const uint8_t *)token->text, token->bytes, &to[i % 2],
                                  &error) != WF_OK)
            wrong = "it cannot be normalized";
        token->text = to[i % 2].data;
        token->bytes = (uint32_t)to[i % 2].bytes;
    }
    wf_tok_matcher_close(&matcher);
    return wrong || token->bytes ? wrong : "nothing is left of it when it is normalized";
}

const char *wf_tok_load_added(wf_tok *t, const wf_tok_added *token, bool normalized)
{
    const char *wrong =
        wf_tok_lexicon_add(&t->vocabulary, token->id, token->text, token->bytes,
                           WF_TOK_TOKEN_ADDED | (token->special ? WF_TOK_TOKEN_SPECIAL : 0));
    static const char letter[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
    wf_tok_bytes normal[2] = {{0}};
    wf_tok_added found = *token;
    bool unsupported;

    if (!wrong && token->single_word && !t->word.code)
        wrong = wf_tok_pattern_compile(&t->word, letter, sizeof letter - 1, WF_TOK_PATTERN_RUST,
                                       &unsupported);
    if (!wrong && normalized)
        wrong = normal_text(t, &found, normal);
    if (!wrong && !wf_tok_added_add(normalized ? &t->added_normalized : &t->added, &found))
        wrong = "out of memory";
    if (!wrong && token->id > t->last_added)
        t->last_added = token->id;
    wf_tok_bytes_free(&normal[0]);
    wf_tok_bytes_free(&normal[1]);
    return wrong;
}

/* Reads an added token: in a list an id is a value; in an object it is the key. */
static wf_status read_added(wf_tok *t, const wf_text_json *json, uint32_t id, uint32_t value)
{
    uint32_t content = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING);
    wf_tok_added token = {.special = wf_text_json_bool(json, value, "special", false),
                          .left = wf_text_json_bool(json, value, "lstrip", false),
                          .right = wf_text_json_bool(json, value, "rstrip", false),
                          .single_word = wf_text_json_bool(json, value, "single_word", false)};
    bool normalized = wf_text_json_bool(json, value, "normalized", !token.special);
    const char *wrong;
    size_t bytes;

    wf_tok_hf_keys(json, value, "id content single_word lstrip rstrip normalized special");
    if (json->error->code != WF_OK)
        return json->error->code;
    token.id = (int32_t)wf_text_json_int(json, id, 0, WF_TOK_LEXICON_MOST - 1);
    token.text = (char *)wf_text_json_text(json, content, &bytes);
    token.bytes = (uint32_t)bytes;
    if (json->error->code != WF_OK ||
        wf_tok_lexicon_added(&t->vocabulary, token.text, bytes) == token.id)
        return json->error->code;
    if (t->pieces && wf_tok_hf_added_id(t, json, value, token.text, bytes, token.id) != WF_OK)
        return json->error->code;
    wrong = wf_tok_load_added(t, &token, normalized);
    return wrong ? wf_text_json_refuse(json, value, wf_tok_wrong_code(wrong), "%s", wrong)
                 : WF_OK;
}

wf_status wf_tok_hf_added(wf_tok *t, const wf_text_json *json, uint32_t all)
{
    bool object;

    if (all == WF_TEXT_JSON_NONE)
        return WF_OK;
    object = wf_text_json_is(json, all) == WF_TEXT_JSON_OBJECT;
    if (!object && wf_text_json_is(json, all) != WF_TEXT_JSON_ARRAY)
        return wf_text_json_refuse(json, all, WF_EDATA, "is not an array");
    for (uint32_t i = all + 1; i < json->values[all].next && json->error->code == WF_OK;) {
        uint32_t value = i + object,
                 id = object ? i : wf_text_json_need(json, i, "id", WF_TEXT_JSON_NUMBER);

        if (id != WF_TEXT_JSON_NONE)
            read_added(t, json, id, value);
        i = wf_text_json_after(json, value);
    }
    return json->error->code;
}
