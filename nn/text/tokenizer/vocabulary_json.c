/* nn/text/tokenizer/vocabulary_json.c - the lists of a vocabulary as tokenizer.json; see
   vocabulary.h. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/utf8_internal.h"
#include "nn/text/tokenizer/vocabulary.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METASPACE "\xe2\x96\x81"
#define BYTE_LEVEL(space, regex)                                                               \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": " space                                   \
    ", \"trim_offsets\": true, \"use_regex\": " regex "}"

/* A growing output text, which notes when memory ran out. */
typedef struct writer {
    const wf_tok_vocabulary *v;
    wf_tok_bytes *json;
    bool ok;
} writer;

static void add_bytes(writer *w, const char *text, size_t bytes)
{
    w->ok = w->ok && wf_tok_bytes_add(w->json, text, bytes);
}

static void add(writer *w, const char *text)
{
    add_bytes(w, text, strlen(text));
}

static void add_number(writer *w, int64_t number)
{
    char text[24];

    add_bytes(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)number));
}

static void add_bool(writer *w, bool value)
{
    add(w, value ? "true" : "false");
}

static void add_string(writer *w, const char *text, size_t bytes)
{
    char escape[8];

    add(w, "\"");
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < ' ')
            add_bytes(w, escape,
                      (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)text[i]));
        else if (text[i] == '"' || text[i] == '\\')
            add_bytes(w, (char[]){'\\', text[i]}, 2);
        else
            add_bytes(w, &text[i], 1);
    }
    add(w, "\"");
}

static void add_token(writer *w, int64_t id)
{
    add_string(w, w->v->tokens[id].text, (size_t)w->v->tokens[id].bytes);
}

static bool is_special(const wf_tok_vocabulary *v, int64_t id)
{
    return v->types[id] == WF_TOK_VOCABULARY_CONTROL ||
           v->types[id] == WF_TOK_VOCABULARY_UNKNOWN;
}

static bool is_added(const wf_tok_vocabulary *v, int64_t id)
{
    return is_special(v, id) || v->types[id] == WF_TOK_VOCABULARY_USER;
}

static void add_added(writer *w)
{
    const wf_tok_vocabulary *v = w->v;
    bool first = true;

    add(w, "  \"added_tokens\": [");
    for (int32_t id = 0; id < v->count; id++) {
        if (!is_added(v, id))
            continue;
        add(w, first ? "\n    {\"id\": " : ",\n    {\"id\": ");
        add_number(w, id);
        add(w, ", \"content\": ");
        add_token(w, id);
        add(w, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
               "\"normalized\": false, \"special\": ");
        add_bool(w, is_special(v, id));
        add(w, "}");
        first = false;
    }
    add(w, "\n  ],\n");
}

static void add_split(writer *w, const char *pattern)
{
    add(w, "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    add_string(w, pattern, strlen(pattern));
    add(w, "}, \"behavior\": \"Isolated\", \"invert\": false},\n");
}

/* GPT-2's own pattern is known to a step that puts a space in front of the text; after a split
   it would be in front of each word. */
static void add_bytes_steps(writer *w, const wf_tok_vocabulary_split *split)
{
    add(w,
        split->nfc ? "  \"normalizer\": {\"type\": \"NFC\"},\n" : "  \"normalizer\": null,\n");
    add(w, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    if (split->digits)
        add_split(w, "\\p{N}");
    if (w->v->space_in_front)
        add(w, "    " BYTE_LEVEL("true", "true"));
    else {
        add_split(w, split->pattern);
        add(w, "    " BYTE_LEVEL("false", "false"));
    }
    add(w, "\n  ]},\n  \"decoder\": " BYTE_LEVEL("false", "false") ",\n");
}

static void add_characters_steps(writer *w)
{
    const bool front = w->v->space_in_front;

    add(w, "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [\n");
    if (front)
        add(w, "    {\"type\": \"Prepend\", \"prepend\": \"" METASPACE "\"},\n");
    add(w, "    {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
           "\"" METASPACE
           "\"}\n  ]},\n  \"pre_tokenizer\": null,\n  \"decoder\": {\"type\": \"Sequence\", "
           "\"decoders\": [\n    {\"type\": \"Replace\", \"pattern\": {\"String\": \"" METASPACE
           "\"}, \"content\": \" \"},\n    {\"type\": \"ByteFallback\"},\n    {\"type\": "
           "\"Fuse\"}");
    if (front)
        add(w, ",\n    {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    add(w, "\n  ]},\n");
}

static void add_one_id(writer *w, int32_t id)
{
    add_token(w, id);
    add(w, ": {\"id\": ");
    add_token(w, id);
    add(w, ", \"ids\": [");
    add_number(w, id);
    add(w, "], \"tokens\": [");
    add_token(w, id);
    add(w, "]}");
}

/* Writes the ids before and after each text. */
static void add_template(writer *w)
{
    const wf_tok_vocabulary *v = w->v;

    if (!v->begin && !v->end) {
        add(w, "  \"post_processor\": null,\n");
        return;
    }
    add(w, "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n");
    for (int pair = 0; pair < 2; pair++) {
        add(w, pair ? "    \"pair\": [" : "    \"single\": [");
        for (int part = 0; part <= pair; part++) {
            if (v->begin) {
                add(w,
                    part ? ", {\"SpecialToken\": {\"id\": " : "{\"SpecialToken\": {\"id\": ");
                add_token(w, v->bos);
                add(w, part ? ", \"type_id\": 1}}, " : ", \"type_id\": 0}}, ");
            } else if (part) {
                add(w, ", ");
            }
            add(w, part ? "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}"
                        : "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
            if (v->end) {
                add(w, ", {\"SpecialToken\": {\"id\": ");
                add_token(w, v->eos);
                add(w, part ? ", \"type_id\": 1}}" : ", \"type_id\": 0}}");
            }
        }
        add(w, "],\n");
    }
    add(w, "    \"special_tokens\": {");
    if (v->begin)
        add_one_id(w, v->bos);
    if (v->begin && v->end && v->eos != v->bos)
        add(w, ", ");
    if (v->end && !(v->begin && v->eos == v->bos))
        add_one_id(w, v->eos);
    add(w, "}},\n");
}

/* Adds pieces of words with their ids, and added tokens before the last of those: other
   programs renumber added tokens that are not here, after all that are. Tokens that no text
   gets fill a file up, and are left out. */
static void add_pieces(writer *w, bool characters)
{
    const wf_tok_vocabulary *v = w->v;
    int32_t last = v->count - 1;
    bool first = true;

    while (last > 0 && !characters &&
           (is_added(v, last) || v->types[last] == WF_TOK_VOCABULARY_UNUSED))
        last--;
    add(w, "{");
    for (int32_t id = 0; id <= last; id++) {
        if (v->types[id] == WF_TOK_VOCABULARY_UNUSED)
            continue;
        add(w, first ? "\n      " : ",\n      ");
        add_token(w, id);
        add(w, ": ");
        add_number(w, id);
        first = false;
    }
    add(w, "\n    }");
}

static void add_model(writer *w, bool characters, bool whole_words)
{
    const wf_tok_vocabulary *v = w->v;

    add(w,
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    if (characters && v->unknown >= 0)
        add_token(w, v->unknown);
    else
        add(w, "null");
    add(w,
        ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
        "\"fuse_unk\": ");
    add_bool(w, characters);
    add(w, ",\n    \"byte_fallback\": ");
    add_bool(w, characters);
    add(w, ",\n    \"ignore_merges\": ");
    add_bool(w, whole_words);
    add(w, ",\n    \"vocab\": ");
    add_pieces(w, characters);
    add(w, ",\n    \"merges\": [");
}

static void add_merge(writer *w, int64_t number, const wf_tok_vocabulary_text part[2])
{
    add(w, number ? ",\n      [" : "\n      [");
    add_string(w, part[0].text, (size_t)part[0].bytes);
    add(w, ", ");
    add_string(w, part[1].text, (size_t)part[1].bytes);
    add(w, "]");
}

/* Merges as they stand: two tokens with a blank between them. */
static const char *add_merges(writer *w)
{
    for (int64_t i = 0; i < w->v->merge_count; i++) {
        const wf_tok_vocabulary_text *m = &w->v->merges[i];
        const char *blank = m->bytes ? memchr(m->text, ' ', (size_t)m->bytes) : NULL;
        wf_tok_vocabulary_text part[2];

        if (!blank)
            return "tokenizer.ggml.merges: one has no blank";
        part[0] = (wf_tok_vocabulary_text){m->text, blank - m->text};
        part[1] = (wf_tok_vocabulary_text){blank + 1, m->bytes - part[0].bytes - 1};
        add_merge(w, i, part);
    }
    return NULL;
}

/* Makes a lexicon of the pieces, whose merges follow from the scores. */
static wf_status merges_of_scores(const wf_tok_vocabulary *v, const char *name,
                                  wf_tok_lexicon *lexicon, wf_error *error)
{
    int32_t *rank_of = malloc(((size_t)v->count + 1) * sizeof *rank_of), ranks = 0;
    const char *wrong = NULL;

    if (!rank_of)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", name);
    for (int32_t id = 0; id < v->count && !wrong; id++) {
        const wf_tok_vocabulary_text *t = &v->tokens[id];

        if (t->bytes > WF_TOK_RANKED_MOST_BYTES)
            wrong = "a piece has more than 512 bytes";
        else if (v->types[id] == WF_TOK_VOCABULARY_NORMAL)
            wrong =
                wf_tok_lexicon_add(lexicon, id, t->text, (size_t)t->bytes, WF_TOK_TOKEN_PIECE);
    }
    if (wrong)
        wf_error_set(error, wf_tok_wrong_code(wrong), "%s: tokenizer.ggml.tokens: %s", name,
                     wrong);
    else if (wf_tok_load_rank_scores(v->scores, v->count, rank_of, &ranks) != WF_OK)
        wf_error_set(error, WF_ENOMEM, "%s: out of memory", name);
    else
        wf_tok_lexicon_merge_all(lexicon, rank_of, ranks, name, error);
    free(rank_of);
    return error->code;
}

static wf_status add_scored_merges(writer *w, const char *name, wf_error *error)
{
    wf_tok_lexicon lexicon = {0};
    wf_tok_merge *merges = NULL;
    int64_t count = 0;

    if (wf_tok_lexicon_begin(&lexicon, error) == WF_OK &&
        merges_of_scores(w->v, name, &lexicon, error) == WF_OK) {
        merges = wf_tok_lexicon_sorted_merges(&lexicon, &count);
        w->ok = w->ok && merges;
    }
    for (int64_t i = 0; merges && i < count; i++)
        add_merge(w, i,
                  (wf_tok_vocabulary_text[]){w->v->tokens[merges[i].left],
                                             w->v->tokens[merges[i].right]});
    free(merges);
    wf_tok_lexicon_free(&lexicon);
    return error->code;
}

/* Checks the lists; returns NULL, or the error. */
static const char *check(const wf_tok_vocabulary *v, bool characters)
{
    if (v->begin && v->bos < 0)
        return "tokenizer.ggml.add_bos_token: there is no such token";
    if (v->end && v->eos < 0)
        return "tokenizer.ggml.add_eos_token: there is no such token";
    for (int32_t id = 0; id < v->count; id++) {
        const wf_tok_vocabulary_text *t = &v->tokens[id];

        if (t->bytes > WF_TOK_TOKEN_MOST_BYTES ||
            (!t->bytes && v->types[id] != WF_TOK_VOCABULARY_UNUSED))
            return "tokenizer.ggml.tokens: one is empty, or has more than 4096 bytes";
        if (wf_text_utf8_valid((const uint8_t *)t->text, (size_t)t->bytes) != (size_t)t->bytes)
            return "tokenizer.ggml.tokens: one is no UTF-8";
        if (v->types[id] < WF_TOK_VOCABULARY_NORMAL || v->types[id] > WF_TOK_VOCABULARY_BYTE)
            return "tokenizer.ggml.token_type: one is none of 1 to 6";
        if (characters && isnan(v->scores[id]))
            return "tokenizer.ggml.scores: one is no number";
    }
    return NULL;
}

wf_status wf_tok_vocabulary_json(const wf_tok_vocabulary *v, const char *name,
                                 wf_tok_bytes *json, wf_error *error)
{
    const bool characters = strcmp(v->model, "llama") == 0;
    const char *wrong = check(v, characters);
    wf_tok_vocabulary_split split = {.whole_words = false};
    writer w = {v, json, true};

    if (!characters && !wf_tok_vocabulary_split_of(v->pre, strlen(v->pre), &split))
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "%s: tokenizer.ggml.pre: how texts are cut has the name \"%.40s\", and "
            "known are llama-bpe, dbrx, qwen2, gpt-2, smollm, tekken and gpt-4o; "
            ".tokenizer none converts the model without a tokenizer",
            name, v->pre);
    if (!characters && v->space_in_front &&
        (split.digits || strcmp(split.pattern, wf_tok_scan_pattern("gpt2")) != 0))
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "%s: tokenizer.ggml.add_space_prefix: a space in front of texts that "
            "are cut as %.40s is not supported",
            name, v->pre);
    if (wrong)
        return wf_error_set(error, wf_tok_wrong_code(wrong), "%s: %s", name, wrong);
    add(&w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    add_added(&w);
    if (characters)
        add_characters_steps(&w);
    else
        add_bytes_steps(&w, &split);
    add_template(&w);
    add_model(&w, characters, split.whole_words);
    if (characters && add_scored_merges(&w, name, error) != WF_OK)
        return error->code;
    wrong = characters ? NULL : add_merges(&w);
    add(&w, "\n    ]\n  }\n}\n");
    if (wrong)
        return wf_error_set(error, wf_tok_wrong_code(wrong), "%s: %s", name, wrong);
    if (!w.ok)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory: a tokenizer", name);
    return wf_tok_check(name, json->data, json->bytes, error);
}
