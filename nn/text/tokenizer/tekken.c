/* nn/text/tokenizer/tekken.c - tekken.json of Mistral's models: ranks as tiktoken's, after the
   special tokens. */
#include "nn/text/tokenizer/load_internal.h"
#include <stdio.h>
#include <string.h>

/* Reads the tokens of tekken.json: "vocab" in the order of ranks, of which the first ones are
   used. */
static wf_status tekken_tokens(wf_tok *t, const wf_text_json *json, int32_t specials,
                               int32_t count)
{
    uint32_t vocabulary = wf_text_json_need(json, 0, "vocab", WF_TEXT_JSON_ARRAY), i;
    int32_t rank = 0;

    if (vocabulary == WF_TEXT_JSON_NONE)
        return json->error->code;
    for (i = vocabulary + 1; i < json->values[vocabulary].next && rank < count;
         i = wf_text_json_after(json, i), rank++) {
        uint32_t token = wf_text_json_need(json, i, "token_bytes", WF_TEXT_JSON_STRING),
                 given = wf_text_json_need(json, i, "rank", WF_TEXT_JSON_NUMBER);
        char text[WF_TOK_RANKED_MOST_BYTES];
        const char *letters, *wrong;
        size_t bytes;
        int64_t n;

        if (token == WF_TEXT_JSON_NONE || given == WF_TEXT_JSON_NONE)
            return json->error->code;
        letters = wf_text_json_text(json, token, &bytes);
        n = bytes <= 4 * WF_TOK_RANKED_MOST_BYTES / 3 - 4 ? wf_tok_base64(letters, bytes, text)
                                                          : -1;
        wf_text_json_int(json, given, rank, rank);
        wrong = n < 0 ? "is no base64 of at most 512 bytes"
                      : wf_tok_lexicon_add(&t->vocabulary, specials + rank, text, (size_t)n,
                                           WF_TOK_TOKEN_PIECE);
        if (wrong)
            return wf_text_json_refuse(json, token, wf_tok_wrong_code(wrong), "%s", wrong);
    }
    if (rank < count)
        return wf_text_json_refuse(json, vocabulary, WF_EDATA, "has %d tokens, and %d are used",
                                   rank, count);
    return json->error->code;
}

/* Adds special tokens by name, or those of files without a list; the others have numbers. */
static wf_status tekken_specials(wf_tok *t, const wf_text_json *json, int32_t specials)
{
    static const char *const standard[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
    uint32_t list = wf_text_json_get(json, 0, "special_tokens"),
             i = list == WF_TEXT_JSON_NONE ? 0 : list + 1;

    for (int32_t id = 0; id < specials && json->error->code == WF_OK; id++) {
        bool named = list != WF_TEXT_JSON_NONE && i < json->values[list].next;
        char text[64];
        wf_tok_added token = {.text = text, .id = id, .special = true};
        const char *wrong;

        snprintf(text, sizeof text, "<SPECIAL_%d>", id);
        if (list == WF_TEXT_JSON_NONE && id < 20)
            snprintf(text, sizeof text, "%s", standard[id]);
        if (named) {
            uint32_t name = wf_text_json_need(json, i, "token_str", WF_TEXT_JSON_STRING);
            uint32_t rank = wf_text_json_need(json, i, "rank", WF_TEXT_JSON_NUMBER);
            size_t bytes;

            if (name == WF_TEXT_JSON_NONE || rank == WF_TEXT_JSON_NONE)
                return json->error->code;
            token.text = (char *)wf_text_json_text(json, name, &bytes);
            token.bytes = (uint32_t)bytes;
            wf_text_json_int(json, rank, id, id);
        } else {
            token.bytes = (uint32_t)strlen(text);
        }
        wrong = wf_tok_load_added(t, &token, false);
        if (wrong)
            return wf_text_json_refuse(json, named ? i : 0, WF_EDATA, "special token %d: %s",
                                       id, wrong);
        if (named)
            i = wf_text_json_after(json, i);
    }
    return json->error->code;
}

wf_status wf_tok_load_tekken(wf_tok *t, const wf_text_json *json)
{
    uint32_t config = wf_text_json_need(json, 0, "config", WF_TEXT_JSON_OBJECT), pattern, size,
             special;
    int32_t ids, specials;
    const char *text;
    size_t bytes;
    wf_status status;

    if (config == WF_TEXT_JSON_NONE)
        return json->error->code;
    pattern = wf_text_json_need(json, config, "pattern", WF_TEXT_JSON_STRING);
    size = wf_text_json_need(json, config, "default_vocab_size", WF_TEXT_JSON_NUMBER);
    special =
        wf_text_json_need(json, config, "default_num_special_tokens", WF_TEXT_JSON_NUMBER);
    if (json->error->code != WF_OK)
        return json->error->code;
    ids = (int32_t)wf_text_json_int(json, size, 257, WF_TOK_LEXICON_MOST);
    specials = (int32_t)wf_text_json_int(json, special, 1, ids - 256);
    t->characters = false;
    status = json->error->code == WF_OK ? tekken_tokens(t, json, specials, ids - specials)
                                        : json->error->code;
    if (status == WF_OK)
        status = wf_tok_load_merge_by_id(t, json->name, json->error);
    if (status == WF_OK)
        status = tekken_specials(t, json, specials);
    text = wf_text_json_text(json, pattern, &bytes);
    if (status == WF_OK)
        status = wf_tok_load_split(t, text, bytes, json->name, json->error);
    t->bos = wf_tok_lexicon_added(&t->vocabulary, "<s>", 3);
    t->eos = wf_tok_lexicon_added(&t->vocabulary, "</s>", 4);
    if (t->bos >= 0)
        t->before[t->before_count++] = t->bos;
    return status;
}
