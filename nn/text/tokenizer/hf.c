/* nn/text/tokenizer/hf.c - tokenizer.json as a whole, vocab.json with merges.txt, and what lies
   beside them. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/utf8_internal.h"
#include <stdlib.h>
#include <string.h>

wf_status wf_tok_load_hf(wf_tok *t, const wf_text_json *json)
{
    uint32_t model = wf_text_json_need(json, 0, "model", WF_TEXT_JSON_OBJECT);
    uint32_t version = wf_text_json_get(json, 0, "version");
    wf_status status;

    if (model == WF_TEXT_JSON_NONE)
        return json->error->code;
    t->characters = true; /* until ByteLevel is read */
    if (version != WF_TEXT_JSON_NONE && !wf_text_json_equals(json, version, "1.0"))
        return wf_text_json_refuse(json, version, WF_EUNSUPPORTED, "is not 1.0");
    status = wf_tok_hf_keys(json, 0,
                            "version truncation padding added_tokens normalizer pre_tokenizer "
                            "post_processor decoder model");
    if (status == WF_OK)
        status = wf_tok_hf_normalizer(t, json, wf_text_json_get(json, 0, "normalizer"));
    if (status == WF_OK)
        status = wf_tok_hf_pre_tokenizer(t, json, wf_text_json_get(json, 0, "pre_tokenizer"));
    if (status == WF_OK)
        status = wf_tok_hf_model(t, json, model);
    if (status == WF_OK)
        status = wf_tok_hf_added(t, json, wf_text_json_get(json, 0, "added_tokens"));
    if (status == WF_OK)
        status = wf_tok_hf_beside(t, json->name, json->error);
    if (status == WF_OK && !t->characters)
        status = wf_tok_hf_front(t, json->name, false, false, json->error);
    if (status == WF_OK)
        status = wf_tok_hf_decoder(t, json, wf_text_json_get(json, 0, "decoder"));
    if (status == WF_OK)
        status = wf_tok_hf_template(t, json, wf_text_json_get(json, 0, "post_processor"));
    if (status == WF_OK && !wf_tok_load_safe_words(t))
        status = wf_error_set(json->error, WF_ENOMEM, "%s: out of memory", json->name);
    return status == WF_OK ? wf_tok_load_ends(t, json->name, json->error) : status;
}

/* Reads one line of merges.txt: two tokens with a blank between them. Returns NULL, or the
   error. */
static const char *merge_line(wf_tok *t, const char *line, size_t bytes, int32_t rank)
{
    const char *space = memchr(line, ' ', bytes);
    size_t left = space ? (size_t)(space - line) : 0, right = bytes - left - 1;
    char both[2 * WF_TOK_TOKEN_MOST_BYTES];
    int32_t a, b, made;

    if (!space || left > WF_TOK_TOKEN_MOST_BYTES || right > WF_TOK_TOKEN_MOST_BYTES)
        return "is not two tokens";
    memcpy(both, line, left);
    memcpy(both + left, space + 1, right);
    a = wf_tok_hf_piece(t, line, left);
    b = wf_tok_hf_piece(t, space + 1, right);
    made = wf_tok_hf_piece(t, both, left + right);
    if (a < 0 || b < 0 || made < 0)
        return "a token of it is not in vocab.json";
    return wf_tok_lexicon_merge(&t->vocabulary, a, b, rank, made);
}

static wf_status read_merges(wf_tok *t, const char *path, const char *text, size_t bytes,
                             wf_error *error)
{
    const char *end = text + bytes;
    int32_t lines = 1, rank = 0;
    wf_status status;

    if (wf_text_utf8_valid((const uint8_t *)text, bytes) < bytes)
        return wf_error_set(error, WF_EDATA, "%s: no UTF-8", path);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    status = wf_tok_lexicon_end(&t->vocabulary, lines, lines, error);
    for (int32_t number = 1; status == WF_OK && text < end; number++) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        size_t line = (size_t)((line_end ? line_end : end) - text);
        size_t used = line - (line && text[line - 1] == '\r');
        bool head = number == 1 && used >= 8 && memcmp(text, "#version", 8) == 0;
        const char *wrong = used && !head ? merge_line(t, text, used, rank++) : NULL;

        if (wrong)
            status = wf_error_set(error, wf_tok_wrong_code(wrong), "%s: line %d: %s", path,
                                  number, wrong);
        text += line + (line_end != NULL);
    }
    return status;
}

/* Returns the pattern of the class that a folder names; GPT-2's where none is named. NULL:
   another one. */
static const char *class_pattern(wf_tok *t, const char *path, bool *nfc, wf_error *error)
{
    const char *pattern = "gpt2";
    char beside[WF_TOK_MOST_PATH];
    uint32_t name;
    wf_text_json json;

    *nfc = false;
    (void)t;
    if (!wf_tok_open_beside(path, "tokenizer_config.json", &json, beside, error))
        return pattern;
    name = wf_text_json_get(&json, 0, "tokenizer_class");
    if (name != WF_TEXT_JSON_NONE && (wf_text_json_equals(&json, name, "Qwen2Tokenizer") ||
                                      wf_text_json_equals(&json, name, "Qwen2TokenizerFast"))) {
        pattern = "qwen";
        *nfc = true;
    } else if (name != WF_TEXT_JSON_NONE &&
               !wf_text_json_equals(&json, name, "GPT2Tokenizer") &&
               !wf_text_json_equals(&json, name, "GPT2TokenizerFast")) {
        wf_text_json_refuse(
            &json, name, WF_EUNSUPPORTED,
            "beside vocab.json only GPT2Tokenizer and Qwen2Tokenizer are supported: "
            "use a tokenizer.json");
    }
    wf_text_json_close(&json);
    return pattern;
}

/* Adds the tokens with which both classes begin and end texts, whatever the folder says. */
static void add_standard(wf_tok *t, const char *path, wf_error *error)
{
    static const char end[] = "<|endoftext|>";
    const char *wrong = wf_tok_hf_special(t, end, sizeof end - 1);

    if (wrong)
        wf_error_set(error, wf_tok_wrong_code(wrong), "%s: %s: %s", path, end, wrong);
}

wf_status wf_tok_load_merges(wf_tok *t, const wf_text_json *json)
{
    char merges[WF_TOK_MOST_PATH], *text = NULL;
    const char *path = json->name, *pattern;
    wf_error *error = json->error;
    wf_status status;
    size_t bytes;
    bool nfc;

    wf_tok_file_beside(path, "merges.txt", merges);
    t->characters = false;
    status = wf_tok_file_read(merges, &text, &bytes, error);
    if (status == WF_OK)
        status = wf_tok_hf_vocabulary(t, json, 0);
    if (status == WF_OK)
        status = read_merges(t, merges, text, bytes, error);
    free(text);
    pattern = wf_tok_scan_pattern(class_pattern(t, path, &nfc, error));
    if (error->code == WF_OK && nfc)
        wf_tok_load_nfc(t, path, error);
    if (error->code == WF_OK)
        wf_tok_hf_front(t, path, true, !nfc, error);
    if (error->code == WF_OK)
        wf_tok_load_split(t, pattern, strlen(pattern), path, error);
    if (error->code == WF_OK)
        wf_tok_hf_beside(t, path, error);
    if (error->code == WF_OK)
        add_standard(t, path, error);
    if (error->code == WF_OK)
        wf_tok_load_ends(t, path, error);
    t->eos = t->eos < 0 ? wf_tok_id(t, "<|endoftext|>", 13) : t->eos;
    return error->code;
}
