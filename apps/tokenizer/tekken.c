/* apps/tokenizer/tekken.c - tekken.json of Mistral's models: ranks as tiktoken's, behind the special tokens. */
#include "apps/tokenizer/load_internal.h"
#include <stdio.h>
#include <string.h>

/* The tokens of tekken.json: "vocab" in the order of ranks, of which the first ones are used. */
static wf_status tekken_tokens(app_tokenizer *t, const app_json *json, int32_t specials,
                               int32_t count)
{
    uint32_t vocabulary = app_json_need(json, 0, "vocab", APP_JSON_ARRAY), i;
    int32_t rank = 0;

    if (vocabulary == APP_JSON_NONE)
        return json->error->code;
    for (i = vocabulary + 1; i < json->values[vocabulary].next && rank < count;
         i = app_json_after(json, i), rank++) {
        uint32_t token = app_json_need(json, i, "token_bytes", APP_JSON_STRING),
                 given = app_json_need(json, i, "rank", APP_JSON_NUMBER);
        char text[APP_RANKED_MOST_BYTES];
        const char *letters, *wrong;
        size_t bytes;
        int64_t n;

        if (token == APP_JSON_NONE || given == APP_JSON_NONE)
            return json->error->code;
        letters = app_json_text(json, token, &bytes);
        n = bytes <= 4 * APP_RANKED_MOST_BYTES / 3 - 4 ? app_base64(letters, bytes, text) : -1;
        app_json_int(json, given, rank, rank);
        wrong = n < 0 ? "is no base64 of at most 512 bytes"
                      : app_lexicon_add(&t->vocabulary, specials + rank, text, (size_t)n,
                                        APP_TOKEN_PIECE);
        if (wrong)
            return app_json_refuse(json, token, app_wrong_code(wrong), "%s", wrong);
    }
    if (rank < count)
        return app_json_refuse(json, vocabulary, WF_EDATA, "has %d tokens, and %d are used",
                               rank, count);
    return json->error->code;
}

/* Special tokens by name, or those that the files without a list have; the others have numbers. */
static wf_status tekken_specials(app_tokenizer *t, const app_json *json, int32_t specials)
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
    uint32_t list = app_json_get(json, 0, "special_tokens"),
             i = list == APP_JSON_NONE ? 0 : list + 1;

    for (int32_t id = 0; id < specials && json->error->code == WF_OK; id++) {
        bool named = list != APP_JSON_NONE && i < json->values[list].next;
        char text[64];
        app_added token = {.text = text, .id = id, .special = true};
        const char *wrong;

        snprintf(text, sizeof text, "<SPECIAL_%d>", id);
        if (list == APP_JSON_NONE && id < 20)
            snprintf(text, sizeof text, "%s", standard[id]);
        if (named) {
            uint32_t name = app_json_need(json, i, "token_str", APP_JSON_STRING);
            uint32_t rank = app_json_need(json, i, "rank", APP_JSON_NUMBER);
            size_t bytes;

            if (name == APP_JSON_NONE || rank == APP_JSON_NONE)
                return json->error->code;
            token.text = (char *)app_json_text(json, name, &bytes);
            token.bytes = (uint32_t)bytes;
            app_json_int(json, rank, id, id);
        } else {
            token.bytes = (uint32_t)strlen(text);
        }
        wrong = app_load_added(t, &token, false);
        if (wrong)
            return app_json_refuse(json, named ? i : 0, WF_EDATA, "special token %d: %s", id,
                                   wrong);
        if (named)
            i = app_json_after(json, i);
    }
    return json->error->code;
}

wf_status app_load_tekken(app_tokenizer *t, const app_json *json)
{
    uint32_t config = app_json_need(json, 0, "config", APP_JSON_OBJECT), pattern, size, special;
    int32_t ids, specials;
    const char *text;
    size_t bytes;
    wf_status status;

    if (config == APP_JSON_NONE)
        return json->error->code;
    pattern = app_json_need(json, config, "pattern", APP_JSON_STRING);
    size = app_json_need(json, config, "default_vocab_size", APP_JSON_NUMBER);
    special = app_json_need(json, config, "default_num_special_tokens", APP_JSON_NUMBER);
    if (json->error->code != WF_OK)
        return json->error->code;
    ids = (int32_t)app_json_int(json, size, 257, APP_LEXICON_MOST);
    specials = (int32_t)app_json_int(json, special, 1, ids - 256);
    t->characters = false;
    status = json->error->code == WF_OK ? tekken_tokens(t, json, specials, ids - specials)
                                        : json->error->code;
    if (status == WF_OK)
        status = app_load_merge_by_id(t, json->name, json->error);
    if (status == WF_OK)
        status = tekken_specials(t, json, specials);
    text = app_json_text(json, pattern, &bytes);
    if (status == WF_OK)
        status = app_load_split(t, text, bytes, json->name, json->error);
    t->bos = app_lexicon_added(&t->vocabulary, "<s>", 3);
    t->eos = app_lexicon_added(&t->vocabulary, "</s>", 4);
    if (t->bos >= 0)
        t->before[t->before_count++] = t->bos;
    return status;
}
