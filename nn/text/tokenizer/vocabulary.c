/* nn/text/tokenizer/vocabulary.c - see the header. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/tokenizer/vocabulary.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool whole_words, digits;
    const char *pattern;
} names[] = {
#define NAME(name, whole_words, digits, pattern) {name, whole_words, digits, pattern},
#include "nn/text/tokenizer/llama_cpp_names.def"
#undef NAME
};

static bool is_split(const wf_tok_step *step, const char *pattern)
{
    return step->kind == WF_TOK_STEP_SPLIT && step->split == WF_TOK_SPLIT_ISOLATED &&
           strcmp(step->pattern.text, pattern) == 0;
}

/* llama.cpp's name of how a byte-level tokenizer cuts texts; NULL: it has none. */
static const char *name_of(const wf_tok *t)
{
    const wf_tok_step *steps = t->pre_tokenizers.steps;
    int count = t->pre_tokenizers.count;
    const char *found = NULL;
    bool digits;

    while (count && steps->kind == WF_TOK_STEP_SPACE_IN_FRONT) {
        steps++;
        count--;
    }
    digits = count == 2 && is_split(steps, "\\p{N}");
    if (count != 1 + digits)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].digits == digits &&
            is_split(&steps[digits], wf_tok_scan_pattern(names[i].pattern)) &&
            (!found || names[i].whole_words == t->whole_words))
            found = names[i].name;
    return found;
}

bool wf_tok_vocabulary_split_of(const char *pre, size_t bytes, wf_tok_vocabulary_split *split)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == bytes && memcmp(names[i].name, pre, bytes) == 0) {
            *split = (wf_tok_vocabulary_split){wf_tok_scan_pattern(names[i].pattern),
                                               names[i].digits, names[i].whole_words,
                                               strcmp(names[i].pattern, "qwen") == 0};
            return true;
        }
    return false;
}

/* Returns true where a text gets a space in front. */
static bool space_in_front(const wf_tok *t)
{
    const wf_tok_step_list *lists[] = {&t->normalizers, &t->pre_tokenizers};

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < lists[k]->count; i++) {
            const wf_tok_step *step = &lists[k]->steps[i];

            if (step->kind == WF_TOK_STEP_PREPEND || step->kind == WF_TOK_STEP_SPACE_IN_FRONT ||
                (step->kind == WF_TOK_STEP_METASPACE && step->when != WF_TOK_PREPEND_NEVER))
                return true;
        }
    return false;
}

static int32_t type_of(const wf_tok *t, int32_t id)
{
    int kind = id < t->vocabulary.size ? t->vocabulary.tokens[id].kind : 0;

    if (!kind)
        return WF_TOK_VOCABULARY_UNUSED;
    if (kind & WF_TOK_TOKEN_BYTE)
        return WF_TOK_VOCABULARY_BYTE;
    if (id == t->unknown)
        return WF_TOK_VOCABULARY_UNKNOWN;
    if (kind & WF_TOK_TOKEN_SPECIAL)
        return WF_TOK_VOCABULARY_CONTROL;
    return kind & WF_TOK_TOKEN_ADDED ? WF_TOK_VOCABULARY_USER : WF_TOK_VOCABULARY_NORMAL;
}

/* Texts grow while they are written, so they are known by offsets until all are there. */
typedef struct writer {
    const wf_tok *t;
    wf_tok_bytes texts;
    bool ok;
} writer;

static void add(writer *w, const void *text, size_t bytes)
{
    w->ok = w->ok && wf_tok_bytes_add(&w->texts, text, bytes);
}

/* Adds the text of a token as a file has it: of a byte-level piece its letters. */
static void add_token(writer *w, int32_t id)
{
    const wf_tok_lexicon *v = &w->t->vocabulary;
    const wf_tok_token *token = id < v->size && v->tokens[id].kind ? &v->tokens[id] : NULL;
    char unused[24];

    if (!token) {
        add(w, unused, (size_t)snprintf(unused, sizeof unused, "[PAD%d]", id));
        return;
    }
    if (w->t->characters || token->kind & WF_TOK_TOKEN_ADDED ||
        !(token->kind & WF_TOK_TOKEN_PIECE)) {
        add(w, v->texts + token->at, token->bytes);
        return;
    }
    for (uint32_t i = 0; i < token->bytes; i++) {
        uint8_t letter[4];

        add(w, letter, (size_t)wf_tok_letter_of_byte((uint8_t)v->texts[token->at + i], letter));
    }
}

/* Finds a list's texts, whose bytes are written; the next one begins at *at. */
static void find_texts(wf_tok_vocabulary_text *list, int64_t count, const char *texts,
                       size_t *at)
{
    for (int64_t i = 0; i < count; i++) {
        list[i].text = texts + *at;
        *at += (size_t)list[i].bytes;
    }
}

static bool write_texts(const wf_tok *t, wf_tok_vocabulary *v, const wf_tok_merge *merges)
{
    writer w = {.t = t, .ok = true};
    size_t at = 0;

    for (int32_t id = 0; id < v->count; id++) {
        size_t begin = w.texts.bytes;

        add_token(&w, id);
        v->tokens[id].bytes = (int64_t)(w.texts.bytes - begin);
    }
    for (int64_t i = 0; i < v->merge_count; i++) {
        size_t begin = w.texts.bytes;

        add_token(&w, merges[i].left);
        add(&w, " ", 1);
        add_token(&w, merges[i].right);
        v->merges[i].bytes = (int64_t)(w.texts.bytes - begin);
    }
    v->texts = w.texts.data;
    if (!w.ok)
        return false;
    find_texts(v->tokens, v->count, v->texts, &at);
    find_texts(v->merges, v->merge_count, v->texts, &at);
    return true;
}

/* Fills in scores: the token merged first has the highest one; tokens of no merge have the
   lowest. */
static void fill_scores(const wf_tok *t, wf_tok_vocabulary *v, const wf_tok_merge *merges,
                        int64_t count)
{
    for (int32_t id = 0; id < v->count; id++)
        v->scores[id] =
            v->types[id] == WF_TOK_VOCABULARY_NORMAL ? -(float)t->vocabulary.ranks : 0;
    for (int64_t i = count - 1; i >= 0; i--)
        v->scores[merges[i].made] = -(float)merges[i].rank;
}

static wf_status fill(const wf_tok *t, wf_tok_vocabulary *v, wf_error *error)
{
    int64_t count = 0;
    wf_tok_merge *merges = wf_tok_lexicon_sorted_merges(&t->vocabulary, &count);
    bool ok;

    v->merge_count = t->characters ? 0 : count;
    v->tokens = calloc((size_t)v->count, sizeof *v->tokens);
    v->types = calloc((size_t)v->count, sizeof *v->types);
    v->scores = t->characters ? calloc((size_t)v->count, sizeof *v->scores) : NULL;
    v->merges = calloc((size_t)v->merge_count + 1, sizeof *v->merges);
    ok = merges && v->tokens && v->types && v->merges && (v->scores || !t->characters);
    for (int32_t id = 0; ok && id < v->count; id++)
        v->types[id] = type_of(t, id);
    ok = ok && write_texts(t, v, merges);
    if (ok && v->scores)
        fill_scores(t, v, merges, count);
    free(merges);
    return ok ? WF_OK : wf_error_set(error, WF_ENOMEM, "out of memory: a vocabulary");
}

/* Returns the property of a tokenizer that llama.cpp's has not, by the key of a tokenizer.json;
   NULL: none. */
static const char *lost(const wf_tok *t)
{
    const wf_tok_added_set *sets[] = {&t->added, &t->added_normalized};

    for (int i = 0; i < t->pre_tokenizers.count; i++)
        if (t->pre_tokenizers.steps[i].kind == WF_TOK_STEP_METASPACE &&
            t->pre_tokenizers.steps[i].when == WF_TOK_PREPEND_FIRST)
            return "\"prepend_scheme\": \"first\", and llama.cpp puts a space after special "
                   "tokens, too";
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < sets[k]->count; i++) {
            const wf_tok_added *a = &sets[k]->tokens[i];
            const wf_tok_token *own = &t->vocabulary.tokens[a->id];

            if (a->left || a->right || a->single_word)
                return "an added token with \"lstrip\", \"rstrip\" or \"single_word\", which "
                       "llama.cpp has not";
            if (own->bytes != a->bytes ||
                memcmp(t->vocabulary.texts + own->at, a->text, a->bytes) != 0)
                return "an added token that is \"normalized\" to another text, which llama.cpp "
                       "has not";
        }
    if ((t->before_count && !(t->before_count == 1 && t->before[0] == t->bos)) ||
        (t->after_count && !(t->after_count == 1 && t->after[0] == t->eos)))
        return "a \"post_processor\" with more than one token that begins texts and one that "
               "ends them";
    return NULL;
}

wf_status wf_tok_vocabulary_open(const wf_tok *t, int64_t rows, wf_tok_vocabulary *v,
                                 wf_error *error)
{
    *v = (wf_tok_vocabulary){
        .count = (int32_t)rows, .unknown = t->unknown, .bos = t->bos, .eos = t->eos};
    if (t->vocabulary.size > rows)
        return wf_error_set(
            error, WF_EINVAL,
            "the tokenizer has %d ids and the model %lld: it is another model's",
            t->vocabulary.size, (long long)rows);
    if (!t->bytes)
        v->pre = t->characters ? "default" : name_of(t);
    if (!v->pre || (t->characters && !t->byte_fallback))
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "llama.cpp has no name for how this tokenizer cuts texts: it knows "
                            "byte-level BPE as "
                            "of GPT-2, Llama 3, Qwen 2, SmolLM, Mistral's tekken and o200k, "
                            "and SentencePiece's "
                            "BPE with bytes");
    if (lost(t))
        return wf_error_set(error, WF_EUNSUPPORTED, "the tokenizer has %s", lost(t));
    v->model = t->characters ? "llama" : "gpt2";
    v->space_in_front = space_in_front(t);
    v->begin = t->before_count == 1 && t->before[0] == t->bos;
    v->end = t->after_count == 1 && t->after[0] == t->eos;
    return fill(t, v, error);
}

void wf_tok_vocabulary_close(wf_tok_vocabulary *v)
{
    free(v->tokens);
    free(v->types);
    free(v->scores);
    free(v->merges);
    free(v->texts);
    *v = (wf_tok_vocabulary){0};
}
