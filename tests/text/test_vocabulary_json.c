/*
 * tests/text/test_vocabulary_json.c - a tokenizer's lists, as GGUF files have them, as
 * tokenizer.json: the same ids of texts, and lists that are damaged are refused by their key.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/vocabulary.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[WF_TEST_FOLDER];

static wf_tok *open_json(const wf_tok_bytes *json)
{
    wf_tok *t = NULL;
    wf_error error = {WF_OK, ""};
    char path[96];
    FILE *file;

    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(json->data, 1, json->bytes, file), json->bytes);
    fclose(file);
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(path, &t, &error), WF_OK);
    return t;
}

static void same_ids(const wf_tok *a, const wf_tok *b, const char *text, int flags)
{
    const wf_tok *both[] = {a, b};
    wf_tok_ids ids[2] = {{0}, {0}};
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < 2; i++) {
        wf_tok_encoder *encoder;

        CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(both[i], &encoder, &error), WF_OK);
        CU_ASSERT_EQUAL(wf_tok_encode(encoder, text, strlen(text), flags, &ids[i], &error),
                        WF_OK);
        wf_tok_encoder_free(encoder);
    }
    CU_ASSERT_EQUAL(ids[0].count, ids[1].count);
    CU_ASSERT(ids[0].count == ids[1].count &&
              (!ids[0].count ||
               memcmp(ids[0].data, ids[1].data, ids[0].count * sizeof *ids[0].data) == 0));
    for (int i = 0; i < 2; i++)
        wf_tok_ids_free(&ids[i]);
}

static void same_texts(const wf_tok *a, const wf_tok *b)
{
    const wf_tok *both[] = {a, b};

    for (int32_t id = 0; id < wf_tok_size(a); id++) {
        wf_tok_bytes text[2] = {{0}, {0}};
        wf_error error = {WF_OK, ""};

        for (int i = 0; i < 2; i++)
            wf_tok_decode(both[i], (int32_t[]){id, id}, 2, 0, &text[i], &error);
        CU_ASSERT(text[0].bytes == text[1].bytes &&
                  (!text[0].bytes || memcmp(text[0].data, text[1].data, text[0].bytes) == 0));
        for (int i = 0; i < 2; i++)
            wf_tok_bytes_free(&text[i]);
    }
}

static void ids_stay_the_same(void)
{
    static const char *const names[] = {"smollm.json", "llama3.json", "qwen_plain.json",
                                        "gpt2.json",   "tekken.json", "o200k.json",
                                        "front.json",  "llama2.json", "pieces.model"};
    static const char *const texts[] = {"The capital of France is Paris.",
                                        "",
                                        " ",
                                        "a  b\n\n c\td 123 4567 it's We'LL <s>",
                                        "na\xc3\xafve caf\xc3\xa9 \xe6\x9d\xb1\xe4\xba\xac",
                                        "\xf0\x9f\x98\x80 e\xcc\x81 \xe2\x96\x81x",
                                        "<|im_start|>user\nHi<|im_end|>",
                                        "\"\\\x01\x7f"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        wf_tok_bytes json = {0};
        wf_tok *from, *to;
        wf_tok_vocabulary v;
        wf_error error = {WF_OK, ""};
        char path[512];

        snprintf(path, sizeof path, WEFT_TOKENIZERS "/%s", names[i]);
        CU_ASSERT_EQUAL_FATAL(wf_tok_open(path, &from, &error), WF_OK);
        CU_ASSERT_EQUAL_FATAL(wf_tok_vocabulary_open(from, 1000, &v, &error), WF_OK);
        wf_tok_vocabulary_json(&v, "x.gguf", &json, &error);
        CU_ASSERT_STRING_EQUAL_FATAL(error.text, "");
        to = open_json(&json);
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            for (int flags = 0; flags < 4; flags++)
                same_ids(from, to, texts[k], flags);
        same_texts(from, to);
        wf_tok_bytes_free(&json);
        wf_tok_vocabulary_close(&v);
        wf_tok_close(from);
        wf_tok_close(to);
    }
}

static void is_refused(const wf_tok_vocabulary *v, wf_status status, const char *what)
{
    wf_tok_bytes json = {0};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_tok_vocabulary_json(v, "x.gguf", &json, &error), status);
    CU_ASSERT(strncmp(error.text, "x.gguf: ", 8) == 0 && strstr(error.text, what));
    if (!strstr(error.text, what))
        printf("wanted %s: %s\n", what, error.text);
    wf_tok_bytes_free(&json);
}

#define TEXT(s) ((wf_tok_vocabulary_text){s, sizeof(s) - 1})

/* Each list with one thing wrong. */
static void damaged_lists(void)
{
    const wf_tok_vocabulary_text long_one = {(const char[5000]){"x"}, 5000};
    wf_tok_vocabulary_text tokens[] = {TEXT("a"), TEXT("b"), TEXT("ab"), TEXT("<s>")};
    wf_tok_vocabulary_text merges[] = {TEXT("a b")};
    int32_t types[] = {1, 1, 1, 3};
    const wf_tok_vocabulary good = {.model = "gpt2",
                                    .pre = "gpt-2",
                                    .count = 4,
                                    .tokens = tokens,
                                    .types = types,
                                    .merge_count = 1,
                                    .merges = merges,
                                    .unknown = -1,
                                    .bos = -1,
                                    .eos = -1};
    wf_tok_vocabulary v = good;
    wf_tok_bytes json = {0};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_tok_vocabulary_json(&good, "x.gguf", &json, &error), WF_OK);
    wf_tok_bytes_free(&json);
    v.pre = "odd";
    is_refused(&v, WF_EUNSUPPORTED,
               "tokenizer.ggml.pre: how texts are cut has the name \"odd\"");
    v.pre = "qwen2";
    v.space_in_front = true;
    is_refused(
        &v, WF_EUNSUPPORTED,
        "tokenizer.ggml.add_space_prefix: a space in front of texts that are cut as qwen2");
    v = good;
    v.begin = true;
    is_refused(&v, WF_EDATA, "add_bos_token: there is no such token");
    v = good;
    v.end = true;
    is_refused(&v, WF_EDATA, "add_eos_token: there is no such token");
    tokens[1] = TEXT("a");
    is_refused(&good, WF_EDATA, "model.vocab");
    tokens[1] = TEXT("\xff");
    is_refused(&good, WF_EDATA, "tokenizer.ggml.tokens: one is no UTF-8");
    tokens[1] = TEXT("");
    is_refused(&good, WF_EDATA, "tokenizer.ggml.tokens: one is empty");
    tokens[1] = long_one;
    is_refused(&good, WF_EDATA, "tokenizer.ggml.tokens: one is empty, or has more than 4096");
    tokens[1] = TEXT("b");
    types[0] = 7;
    is_refused(&good, WF_EDATA, "tokenizer.ggml.token_type");
    types[0] = 1;
    merges[0] = TEXT("ab");
    is_refused(&good, WF_EDATA, "tokenizer.ggml.merges: one has no blank");
    merges[0] = TEXT("a c");
    is_refused(&good, WF_EDATA, "model.merges");
    merges[0] = TEXT("a b");
}

static void damaged_scores(void)
{
    wf_tok_vocabulary_text tokens[] = {TEXT("a"), TEXT("b"), TEXT("ab")};
    int32_t types[] = {1, 1, 1};
    float scores[] = {0, 0, -1};
    const wf_tok_vocabulary v = {.model = "llama",
                                 .pre = "default",
                                 .count = 3,
                                 .tokens = tokens,
                                 .types = types,
                                 .scores = scores,
                                 .unknown = -1,
                                 .bos = -1,
                                 .eos = -1};

    is_refused(&v, WF_EDATA, "byte_fallback");
    memset(&scores[2], 0xff, sizeof *scores);
    is_refused(&v, WF_EDATA, "tokenizer.ggml.scores: one is no number");
}

static const wf_test tests[] = {{"ids stay the same", ids_stay_the_same},
                                {"damaged lists", damaged_lists},
                                {"damaged scores", damaged_scores},
                                {NULL, NULL}};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("vocabulary_json", tests);
}
