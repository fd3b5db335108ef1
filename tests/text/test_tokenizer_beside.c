/* tests/text/test_tokenizer_beside.c - tokens that lie beside a model of SentencePiece are its
   own, or refused by name. */
#include "nn/text/tokenizer/tokenizer.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[WF_TEST_FOLDER];

static void write_file(const char *name, const char *text, size_t bytes, char path[128])
{
    FILE *file;

    snprintf(path, 128, "%s/%s", folder, name);
    file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(text, 1, bytes, file);
    fclose(file);
}

/* Opens the model with a file beside it, which is refused with these words, or, where they are
   NULL, read. */
static void check(const char *model, const char *name, const char *text, const char *words)
{
    wf_error error = {WF_OK, ""};
    wf_tok *tokenizer = NULL;
    char beside[128];

    write_file(name, text, strlen(text), beside);
    CU_ASSERT_EQUAL(wf_tok_open(model, &tokenizer, &error), words ? WF_EUNSUPPORTED : WF_OK);
    if (words && (!strstr(error.text, words) || !strstr(error.text, beside)))
        printf("\n    wanted: %s\n    gave: %s\n", words, error.text);
    CU_ASSERT_TRUE(!words || (strstr(error.text, words) && strstr(error.text, beside)));
    wf_tok_close(tokenizer);
    remove(beside);
}

static void tokens_beside_sentencepiece(void)
{
    /* <s> of type 3, control, and "a", normal; BPE, blanks stay. */
    static const char model[] = "\n\7\n\3<s>\30\3\n\3\n\1a\22\2\30\2\32\2\40\0";
    static const struct {
        const char *name, *text, *words;
    } rows[] = {
        {"added_tokens.json", "{\"<new>\": 2}", "<new>"},
        {"added_tokens.json", "{\"<s>\": 1}", "is no such token of tokenizer.model"},
        {"added_tokens.json", "{\"a\": 1}", "is no such token of tokenizer.model"},
        {"added_tokens.json", "{\"<s>\": 0}", NULL},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"2\": {\"content\": \"<n>\"}}}",
         "is no such token of tokenizer.model"},
        {"tokenizer_config.json", "{\"pad_token\": \"[PAD]\"}", "pad_token"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [\"<s>\", \"<t>\"]}",
         "is no such token of tokenizer.model"},
        {"special_tokens_map.json", "{\"pad_token\": {\"content\": \"[PAD]\"}}", "pad_token"},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\": {\"0\": {\"content\": \"<s>\"}}, \"bos_token\": "
         "\"<s>\", \"pad_token\": null}",
         NULL},
    };
    char path[128];

    write_file("tokenizer.model", model, sizeof model - 1, path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(path, rows[i].name, rows[i].text, rows[i].words);
    remove(path);
}

static const wf_test tests[] = {
    {"tokens beside a model of SentencePiece", tokens_beside_sentencepiece},
    {NULL, NULL},
};

int main(void)
{
    wf_test_new_folder(folder);
    return wf_test_main("tokenizer_beside", tests);
}
