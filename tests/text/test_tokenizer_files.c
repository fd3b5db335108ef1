/*
 * tests/text/test_tokenizer_files.c - files of tokenizers that are damaged, hostile or not
 * known.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "nn/text/tokenizer/tokenizer.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[WF_TEST_FOLDER];

static char *path_of(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static char *write_file(const char *name, const char *text, size_t bytes)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(text, 1, bytes, file);
    fclose(file);
    return path;
}

static void check_refused(const char *path, wf_status wanted, const char *words)
{
    wf_tok *tokenizer = (wf_tok *)folder;
    wf_error error = {WF_OK, ""};
    wf_status status = wf_tok_open(path, &tokenizer, &error);

    if (status != wanted || !strstr(error.text, words))
        printf("\n    wanted %d: %s\n    gave %d: %s\n", wanted, words, status, error.text);
    CU_ASSERT_EQUAL(status, wanted);
    CU_ASSERT_EQUAL(status, error.code);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
    CU_ASSERT_PTR_NULL(tokenizer);
}

/* tokenizer.json with one part in place of what is there: `model` in the model, `rest` behind
   it. */
static const char *json_with(const char *model, const char *rest)
{
    static char text[4096];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"BPE\", %s\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
             "\"merges\": [\"a b\"]}%s}",
             model, rest);
    return text;
}

static void check_json(const char *text, wf_status wanted, const char *words)
{
    check_refused(write_file("tokenizer.json", text, strlen(text)), wanted, words);
}

static void json_that_is_none(void)
{
    char deep[201] = "{\"model\":";

    check_json("{", WF_EDATA,
               "tokenizer.json: no JSON that can be used, byte 1: a key or a string");
    check_json("{\"a\": \"\xff\"}", WF_EDATA, "byte 7: no UTF-8");
    check_json("{\"a\": \"\\ud800\"}", WF_EDATA, "no such escape sequence");
    check_json("{\"a\": [1 2]}", WF_EDATA, "a comma or an end is expected");
    check_json("{\"a\": 1} x", WF_EDATA, "text after its end");
    check_json("{\"model\": [3]}", WF_EDATA, "model: is not an object");
    check_json("{\"a\": \"b", WF_EDATA, "a string has no end");
    check_json("{}", WF_EDATA, "the key \"model\" is missing");
    memset(deep + 9, '[', 190);
    check_json(deep, WF_EDATA, "it nests deeper than 32");
    check_json("{\"model\": {}, \"model\": {}}", WF_EDATA, "model: this key is there twice");
    check_json("{\"model\": {}, \"model\": {}, \"other\": 1}", WF_EDATA,
               "model: this key is there twice");
}

static void models_that_are_refused(void)
{
    check_json("{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", WF_EUNSUPPORTED,
               "model.type: of all models only BPE is supported");
    check_json(json_with("", ", \"version\": \"2.0\""), WF_EUNSUPPORTED, "version: is not 1.0");
    check_json(json_with("\"dropout\": 0.1, ", ""), WF_EDATA, "model.dropout: is 0.1");
    check_json(json_with("\"end_of_word_suffix\": \"</w>\", ", ""), WF_EUNSUPPORTED,
               "model.end_of_word_suffix: is not supported");
    check_json(json_with("\"byte_fallback\": true, ", ""), WF_EDATA,
               "byte_fallback is true, and the vocabulary has no <0x00>");
    check_json(json_with("\"unk_token\": \"<unk>\", ", ""), WF_EDATA,
               "model.unk_token: is not in the vocabulary");
    check_json(json_with("\"surprise\": 1, ", ""), WF_EUNSUPPORTED,
               "model.surprise: this key is not supported");
    check_json("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a c\"]}}",
               WF_EDATA, "model.merges[0]: a token of it is not in the vocabulary");
    check_json("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}}",
               WF_EDATA, "model.merges[0]: what it makes is not in the vocabulary");
    check_json("{\"model\": {\"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": [\"a a\", [\"a\", "
               "\"a\"]]}}",
               WF_EDATA, "model.merges[1]: these two are merged twice");
    check_json("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [7]}}", WF_EDATA,
               "model.merges[0]: is not two tokens");
    check_json("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", WF_EDATA,
               "model.vocab.b: another token has the id 0");
    check_json("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}", WF_EDATA,
               "model.vocab.a: another id has the same text");
    check_json("{\"model\": {\"vocab\": {\"a\": 1048576}, \"merges\": []}}", WF_EDATA,
               "model.vocab.a: is 1048576, and it has to be a whole number in [0, 1048575]");
    check_json("{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", WF_EDATA,
               "model.vocab.a: is -1");
    check_json("{\"model\": {\"vocab\": {\"\": 1}, \"merges\": []}}", WF_EDATA,
               "a token without text");
}

static void steps_that_are_refused(void)
{
    check_json(json_with("", ", \"normalizer\": {\"type\": \"Lowercase\"}"), WF_EUNSUPPORTED,
               "normalizer.type: \"Lowercase\" is not supported");
    check_json(json_with("", ", \"normalizer\": {\"type\": \"Split\"}"), WF_EUNSUPPORTED,
               "normalizer: \"Split\" is no normalizer");
    check_json(json_with("", ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": "
                             "[{\"type\": \"Whitespace\"}]}"),
               WF_EUNSUPPORTED, "pre_tokenizer.pretokenizers[0].type: \"Whitespace\"");
    check_json(json_with("", ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
                             "\"_\"}"),
               WF_EUNSUPPORTED, "pre_tokenizer.replacement: is not U+2581");
    check_json(json_with("",
                         ", \"decoder\": {\"type\": \"Strip\", \"content\": \"x\", \"start\": "
                         "1, \"stop\": 0}"),
               WF_EUNSUPPORTED, "decoder: only one space at the beginning");
    check_json(json_with("", ", \"post_processor\": {\"type\": \"TemplateProcessing\", "
                             "\"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
                             "\"special_tokens\": {}}"),
               WF_EDATA, "single[0].SpecialToken.id: is not among special_tokens");
    check_json(json_with("", ", \"padding\": null, \"surprise\": {}"), WF_EUNSUPPORTED,
               "surprise: this key is not supported");
    check_json(json_with("",
                         ", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": "
                         "\"\"}, \"content\": \"x\"}"),
               WF_EDATA, "normalizer: an empty text is replaced");
}

static void added_tokens_that_are_refused(void)
{
    check_json(json_with("", ", \"added_tokens\": [{\"id\": 2, \"content\": \"x\"}]"),
               WF_EUNSUPPORTED, "added_tokens[0]: its id is 2, and tokenizers give it 3");
    check_json(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"<\xef\xbd\x9c>\": 0, \"a\": 1}, "
        "\"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": "
        "false}, \"added_tokens\": [{\"id\": 0, \"content\": \"<\xef\xbd\x9c>\"}, {\"id\": 3, "
        "\"content\": \"x\"}]}",
        WF_EUNSUPPORTED, "added_tokens[1]: its id is 3, and tokenizers give it 2");
    check_json(json_with("", ", \"added_tokens\": [{\"id\": 9, \"content\": \"x\"}]"),
               WF_EUNSUPPORTED,
               "its id is 9, and tokenizers give it 3, whatever the file says");
    check_json(json_with("", ", \"added_tokens\": [{\"id\": 3, \"content\": \"x\"}, "
                             "{\"id\": 4, \"content\": \"x\"}]"),
               WF_EDATA, "added_tokens[1]: another id has the same text");
    check_json(json_with("", ", \"added_tokens\": [{\"id\": 3}]"), WF_EDATA,
               "added_tokens[0]: the key \"content\" is missing");
    check_json(json_with("", ", \"added_tokens\": [{\"id\": 1e9, \"content\": \"x\"}]"),
               WF_EDATA, "added_tokens[0].id: is 1e9");
}

/* A rank file says nothing of its pattern, so that it has to be known by its size. */
static void rank_files(void)
{
    check_refused(write_file("x.tiktoken", "YQ== 0\nYg== 1\n", 14), WF_EDATA,
                  "x.tiktoken: byte 0 has no token of its own");
    check_refused(write_file("x.tiktoken", "YQ== 0\nYQ== 1\n", 14), WF_EDATA,
                  "line 2: another id has the same text");
    check_refused(write_file("x.tiktoken", "YQ== 0\nYg== 0\n", 14), WF_EDATA,
                  "line 2: its rank is out of range, or there twice");
    check_refused(write_file("x.tiktoken", "YQ== 1\n", 7), WF_EDATA, "rank 0 is missing");
    check_refused(write_file("x.tiktoken", "YQ== 0\nYg=\n", 11), WF_EDATA,
                  "line 2: is not a token in base64 and its rank");
    check_refused(write_file("x", "what is this", 12), WF_EDATA, "is no tokenizer");
    check_refused(path_of("missing"), WF_EIO, "missing: No such file or directory");
    check_refused("/dev/null", WF_EIO, "is not a regular file");
}

static void models_of_sentencepiece(void)
{
    /* A piece "a" of score 0; trainer_spec.model_type: 1 is Unigram. */
    check_refused(write_file("m.model", "\n\3\n\1a\22\2\30\1", 9), WF_EUNSUPPORTED,
                  "m.model: trainer_spec.model_type: only BPE is supported");
    check_refused(write_file("m.model", "\n\7\n\1a", 5), WF_EDATA,
                  "no message of SentencePiece");
    check_refused(write_file("m.model", "\n\3\n\1a\n\3\n\1a", 10), WF_EDATA,
                  "m.model: pieces[1]: another id has the same text");
    check_refused(write_file("m.model", "\n\5\n\1a\30\7", 7), WF_EDATA,
                  "pieces[0]: pieces of this type are not supported");
    check_refused(write_file("m.model", "\n\3\n\1a\22\2\30\2\32\3\22\1x", 14), WF_EUNSUPPORTED,
                  "normalizer_spec.precompiled_charsmap");
    check_refused(write_file("m.model", "\n\3\n\1a\22\2\30\2", 9), WF_EUNSUPPORTED,
                  "normalizer_spec.remove_extra_whitespaces is not supported");
}

/* A file that ends anywhere is reported. */
static void cut_files(void)
{
    FILE *file = fopen(WEFT_TOKENIZERS "/llama2.json", "r");
    static char text[1 << 16];
    size_t n = file ? fread(text, 1, sizeof text, file) : 0;

    CU_ASSERT_TRUE_FATAL(n > 5000);
    fclose(file);
    for (size_t cut = 1; cut + 2 < n; cut += 97) {
        wf_tok *tokenizer;
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_tok_open(write_file("cut.json", text, cut), &tokenizer, &error),
                        WF_EDATA);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "cut.json: no JSON that can be used"));
    }
}

#if WEFT_HAS_PCRE2
static void patterns_that_are_refused(void)
{
    static const struct {
        const char *regex, *words;
    } rows[] = {
        {"(", "Regex: no regular expression that PCRE2 can read"},
        {"a*", "Regex: a pattern that may find nothing is not supported"},
        {"\\\\w+", "Regex: a pattern with \\w"},
        {"[a[b]]", "Regex: a pattern with a class inside a class"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char rest[256];

        snprintf(rest, sizeof rest,
                 ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, "
                 "\"behavior\": \"Isolated\"}",
                 rows[i].regex);
        check_json(json_with("", rest), i ? WF_EUNSUPPORTED : WF_EDATA, rows[i].words);
    }
    check_json(json_with("",
                         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
                         "\"a\"}, \"behavior\": \"Contiguous\"}"),
               WF_EUNSUPPORTED, "pre_tokenizer.behavior: of behaviors Isolated");
}

/* Two of 256 bytes and then all pairs of them, as many as a known vocabulary has. */
static void rank_file_of_a_known_size(void)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(50256 * 12), *at = text;
    wf_tok *tokenizer = NULL;
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {0};
    wf_error error = {WF_OK, ""};

    for (int id = 0; id < 50256; id++) {
        int a = id < 256 ? id : (id - 256) / 256, b = (id - 256) % 256;

        if (id < 256)
            at += sprintf(at, "%c%c== %d\n", letters[a >> 2], letters[(a & 3) << 4], id);
        else
            at += sprintf(at, "%c%c%c= %d\n", letters[a >> 2], letters[(a & 3) << 4 | b >> 4],
                          letters[(b & 15) << 2], id);
    }
    wf_tok_open(write_file("gpt2.tiktoken", text, (size_t)(at - text)), &tokenizer, &error);
    printf("%s", error.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tokenizer);
    CU_ASSERT_EQUAL(wf_tok_size(tokenizer), 50257);
    CU_ASSERT_EQUAL(wf_tok_eos(tokenizer), 50256);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(tokenizer, &encoder, &error), WF_OK);
    wf_tok_encode(encoder, "cab's<|endoftext|>", 18, 1, &ids, &error);
    /* Words are cab and 's: of ca and ab the first has the larger id. */
    CU_ASSERT_EQUAL_FATAL(ids.count, 4);
    CU_ASSERT_EQUAL(ids.data[0], 'c');
    CU_ASSERT_EQUAL(ids.data[1], 256 + 'a' * 256 + 'b');
    CU_ASSERT_EQUAL(ids.data[2], 256 + '\'' * 256 + 's');
    CU_ASSERT_EQUAL(ids.data[3], 50256);
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    wf_tok_close(tokenizer);
    at += sprintf(at, "AAAA 50256\n");
    check_refused(write_file("gpt2.tiktoken", text, (size_t)(at - text)), WF_EUNSUPPORTED,
                  "has 50257 ranks, and a rank file does not say how its text is cut");
    free(text);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

/* The tokenizer of the folder has so many ids. */
static void check_size(int32_t size)
{
    wf_tok *tokenizer = NULL;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_tok_open(folder, &tokenizer, &error), WF_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tokenizer);
    CU_ASSERT_EQUAL(wf_tok_size(tokenizer), size);
    wf_tok_close(tokenizer);
}

/* vocab.json with merges.txt; the folder's other files say where documents end. */
static void vocabulary_and_merges(void)
{
    static const char vocabulary[] = "{\"h\": 0, \"e\": 1, \"he\": 2, \"<|endoftext|>\": 3}";
    static const char merges[] = "#version: 0.2\nh e\n";
    wf_tok *tokenizer = NULL;
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {0};
    wf_error error = {WF_OK, ""};
    char *path = write_file("vocab.json", vocabulary, sizeof vocabulary - 1);

    unlink(path_of("tokenizer.json"));
    check_refused(path, WF_EIO, "merges.txt: No such file or directory");
    write_file("merges.txt", merges, sizeof merges - 1);
    wf_tok_open(folder, &tokenizer, &error);
    printf("%s", error.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tokenizer);
    CU_ASSERT_EQUAL(wf_tok_eos(tokenizer), 3);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(tokenizer, &encoder, &error), WF_OK);
    wf_tok_encode(encoder, "hehh<|endoftext|>", 17, 1, &ids, &error);
    CU_ASSERT_EQUAL_FATAL(ids.count, 4);
    CU_ASSERT_TRUE(ids.data[0] == 2 && ids.data[1] == 0 && ids.data[2] == 0 &&
                   ids.data[3] == 3);
    wf_tok_ids_free(&ids);
    wf_tok_encoder_free(encoder);
    wf_tok_close(tokenizer);
    write_file("merges.txt", "h x\n", 4);
    check_refused(path, WF_EDATA, "merges.txt: line 1: a token of it is not in vocab.json");
    write_file("merges.txt", merges, sizeof merges - 1);
    write_file("added_tokens.json", "{\"<x>\": 5}", 10);
    check_refused(folder, WF_EUNSUPPORTED,
                  "added_tokens.json: <x>: its id is 5, and tokenizers give it");
    unlink(path_of("added_tokens.json"));
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"3\": {\"content\": "
                                        "\"<|endoftext|>\"}, \"4\": {\"content\": \"<x>\"}}}");
    check_size(5);
    write_text("tokenizer_config.json", "{\"additional_special_tokens\": [\"<x>\", \"he\"]}");
    check_size(5);
    write_text("tokenizer_config.json",
               "{\"eos_token\": {\"content\": \"<x>\", \"lstrip\": true}}");
    check_refused(folder, WF_EUNSUPPORTED,
                  "tokenizer_config.json: eos_token: a token that takes");
    write_text("tokenizer_config.json",
               "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"add_prefix_space\": true}");
    check_refused(folder, WF_EUNSUPPORTED,
                  WEFT_HAS_UTF8PROC ? "tokenizer_config.json: add_prefix_space: the tokenizer's"
                                    : "utf8proc");
    write_file("tokenizer_config.json", "{\"tokenizer_class\": \"XTokenizer\"}", 33);
    check_refused(folder, WF_EUNSUPPORTED, "tokenizer_config.json: tokenizer_class: beside");
}
#else
static void rank_file_without_pcre2(void)
{
    static const char ids[] = "{\"a\": 0}";

    write_file("merges.txt", "", 0);
    check_refused(write_file("vocab.json", ids, sizeof ids - 1), WF_EUNSUPPORTED,
                  "this needs PCRE2, which was not there when this program was built");
}
#endif

static const wf_test tests[] = {
    {"JSON that is none", json_that_is_none},
    {"models that are refused", models_that_are_refused},
    {"steps that are refused", steps_that_are_refused},
#if WEFT_HAS_PCRE2
    {"patterns that are refused", patterns_that_are_refused},
    {"a rank file of a known size", rank_file_of_a_known_size},
    {"vocabulary and merges", vocabulary_and_merges},
#else
    {"a rank file without PCRE2", rank_file_without_pcre2},
#endif
    {"added tokens that are refused", added_tokens_that_are_refused},
    {"rank files", rank_files},
    {"models of SentencePiece", models_of_sentencepiece},
    {"cut files", cut_files},
    {NULL, NULL},
};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("tokenizer_files", tests);
}
