/*
 * tests/text/test_vocabulary.c - tokenizers as lists for GGUF files: names, texts, types,
 * merges and scores.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/vocabulary.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

typedef struct subject {
    wf_tok *tokenizer;
    wf_tok_vocabulary v;
    wf_error error;
} subject;

static void open_subject(subject *s, const char *name, int64_t rows)
{
    char path[512];

    *s = (subject){.error = {WF_OK, ""}};
    snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s", name);
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(path, &s->tokenizer, &s->error), WF_OK);
    wf_tok_vocabulary_open(s->tokenizer, rows, &s->v, &s->error);
}

static void close_subject(subject *s)
{
    wf_tok_vocabulary_close(&s->v);
    wf_tok_close(s->tokenizer);
}

static bool is(const wf_tok_vocabulary_text *text, const char *wanted)
{
    return text->bytes == (int64_t)strlen(wanted) &&
           memcmp(text->text, wanted, (size_t)text->bytes) == 0;
}

/* The id that a token of the lists has; -1. */
static int32_t find(const wf_tok_vocabulary *v, const char *text, size_t bytes)
{
    for (int32_t id = 0; id < v->count; id++)
        if (v->tokens[id].bytes == (int64_t)bytes &&
            memcmp(v->tokens[id].text, text, bytes) == 0)
            return id;
    return -1;
}

static void names_are_those_of_llama_cpp(void)
{
    static const char *const names[][3] = {
        {"smollm.json", "gpt2", "smollm"},    {"llama3.json", "gpt2", "llama-bpe"},
        {"qwen_plain.json", "gpt2", "qwen2"}, {"gpt2.json", "gpt2", "gpt-2"},
        {"tekken.json", "gpt2", "tekken"},    {"o200k.json", "gpt2", "gpt-4o"},
        {"front.json", "gpt2", "gpt-2"},      {"llama2.json", "llama", "default"},
        {"pieces.model", "llama", "default"}};
    subject s;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        open_subject(&s, names[i][0], 1000);
        CU_ASSERT_EQUAL_FATAL(s.error.code, WF_OK);
        CU_ASSERT_STRING_EQUAL(s.v.model, names[i][1]);
        CU_ASSERT_STRING_EQUAL(s.v.pre, names[i][2]);
        CU_ASSERT_EQUAL(s.v.count, 1000);
        CU_ASSERT_EQUAL(s.v.scores != NULL, strcmp(s.v.model, "llama") == 0);
        CU_ASSERT_EQUAL(s.v.merge_count > 0, strcmp(s.v.model, "gpt2") == 0);
        close_subject(&s);
    }
}

/* Both parts of a merge are tokens, and so is what it makes. */
static void merges_are_of_tokens(void)
{
    static const char *const names[] = {"smollm.json", "qwen_plain.json", "tekken.json"};
    subject s;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        open_subject(&s, names[i], 1000);
        CU_ASSERT_EQUAL_FATAL(s.error.code, WF_OK);
        for (int64_t m = 0; m < s.v.merge_count; m++) {
            const wf_tok_vocabulary_text *merge = &s.v.merges[m];
            const char *blank = memchr(merge->text, ' ', (size_t)merge->bytes);
            size_t left = (size_t)(blank - merge->text),
                   right = (size_t)merge->bytes - left - 1;
            char made[512];

            CU_ASSERT_FATAL(blank && left && right && left + right < sizeof made);
            memcpy(made, merge->text, left);
            memcpy(made + left, blank + 1, right);
            CU_ASSERT(find(&s.v, merge->text, left) >= 0 && find(&s.v, blank + 1, right) >= 0 &&
                      find(&s.v, made, left + right) >= 0);
        }
        close_subject(&s);
    }
}

static void texts_and_types(void)
{
    subject s;
    int32_t space, end;

    open_subject(&s, "smollm.json", 400);
    CU_ASSERT_EQUAL_FATAL(s.error.code, WF_OK);
    space = wf_tok_id(s.tokenizer, " ", 1);
    end = wf_tok_id(s.tokenizer, "<|im_end|>", 10);
    CU_ASSERT_FATAL(space >= 0 && end >= 0);
    CU_ASSERT(is(&s.v.tokens[space], "\xc4\xa0")); /* GPT-2's letter for a blank */
    CU_ASSERT_EQUAL(s.v.types[space], WF_TOK_VOCABULARY_NORMAL);
    CU_ASSERT(is(&s.v.tokens[end], "<|im_end|>"));
    CU_ASSERT_EQUAL(s.v.types[end], WF_TOK_VOCABULARY_CONTROL);
    CU_ASSERT(is(&s.v.tokens[399], "[PAD399]"));
    CU_ASSERT_EQUAL(s.v.types[399], WF_TOK_VOCABULARY_UNUSED);
    CU_ASSERT(!s.v.space_in_front && !s.v.begin && !s.v.end);
    close_subject(&s);
    open_subject(&s, "front.json", 400);
    CU_ASSERT(s.v.space_in_front);
    close_subject(&s);
}

/* Earlier merges have higher scores; bytes and the unknown token are known as such. */
static void scores_of_characters(void)
{
    subject s;
    int32_t byte, bytes = 0;

    open_subject(&s, "llama2.json", 600);
    CU_ASSERT_EQUAL_FATAL(s.error.code, WF_OK);
    byte = find(&s.v, "<0x0A>", 6);
    CU_ASSERT_FATAL(byte >= 0 && s.v.unknown >= 0);
    CU_ASSERT_EQUAL(s.v.types[byte], WF_TOK_VOCABULARY_BYTE);
    CU_ASSERT_EQUAL(s.v.types[s.v.unknown], WF_TOK_VOCABULARY_UNKNOWN);
    for (int32_t id = 0; id < s.v.count; id++)
        bytes += s.v.types[id] == WF_TOK_VOCABULARY_BYTE;
    CU_ASSERT_EQUAL(bytes, 256);
    CU_ASSERT(s.v.space_in_front && s.v.begin);
    close_subject(&s);
}

static void what_llama_cpp_has_not(void)
{
    subject s;
    wf_tok *plain;

    open_subject(&s, "deepseek.json", 1000);
    CU_ASSERT_EQUAL(s.error.code, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error.text, "llama.cpp has no name"));
    close_subject(&s);
    open_subject(&s, "qwen.json", 1000);
    CU_ASSERT_EQUAL(s.error.code, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error.text, "\"lstrip\""));
    close_subject(&s);
    open_subject(&s, "first.json", 1000);
    CU_ASSERT_EQUAL(s.error.code, WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error.text, "\"prepend_scheme\": \"first\""));
    close_subject(&s);
    open_subject(&s, "qwen_plain.json", 100);
    CU_ASSERT_EQUAL(s.error.code, WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error.text, "ids and the model 100"));
    close_subject(&s);
    s.error.code = WF_OK;
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(NULL, &plain, &s.error), WF_OK);
    CU_ASSERT_EQUAL(wf_tok_vocabulary_open(plain, 256, &s.v, &s.error), WF_EUNSUPPORTED);
    wf_tok_vocabulary_close(&s.v);
    wf_tok_close(plain);
}

static const wf_test tests[] = {{"names are those of llama.cpp", names_are_those_of_llama_cpp},
                                {"merges are of tokens", merges_are_of_tokens},
                                {"texts and types", texts_and_types},
                                {"scores of characters", scores_of_characters},
                                {"what llama.cpp has not", what_llama_cpp_has_not},
                                {NULL, NULL}};

int main(void)
{
    if (!WEFT_HAS_PCRE2 || !WEFT_HAS_UTF8PROC)
        wf_test_skip_all("built without PCRE2 or utf8proc");
    return wf_test_main("vocabulary", tests);
}
