/*
 * tests/text/test_requests.c - the ids of a context and of what follows it, as
 * lm-evaluation-harness takes them (_encode_pair).
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers
 */
#include "parallel/generate/requests.h"
#include "nn/text/tokenizer/tokenizer.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[WF_TEST_FOLDER];

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

/* The one request that there is has the ids of two texts, one behind the other. before: NULL is
   the token that ends texts. */
static void check(const char *context, const char *continuation, const char *before,
                  const char *after)
{
    wf_tok_ids wanted = {0};
    wf_gen_requests requests = {0};
    wf_tok *tokenizer;
    wf_tok_encoder *encoder;
    wf_error error = {WF_OK, ""};
    char line[256];
    size_t count;

    snprintf(line, sizeof line,
             "{\"request\": {\"context\": \"%s\", \"continuation\": \"%s\"}, \"doc_id\": 1}\n",
             context, continuation);
    write_text("requests.jsonl", line);
    CU_ASSERT_EQUAL_FATAL(wf_tok_open(folder, &tokenizer, &error), WF_OK);
    CU_ASSERT_EQUAL_FATAL(wf_tok_encoder_new(tokenizer, &encoder, &error), WF_OK);
    if (before)
        wf_tok_encode(encoder, before, strlen(before), 0, &wanted, &error);
    else
        wf_tok_ids_append(&wanted, wf_tok_eos(tokenizer), &error);
    count = wanted.count;
    wf_tok_encode(encoder, after, strlen(after), 0, &wanted, &error);
    CU_ASSERT_EQUAL_FATAL(
        wf_gen_requests_read(in_folder("requests.jsonl"), tokenizer, 64, &requests, &error),
        WF_OK);
    CU_ASSERT_EQUAL_FATAL(requests.count, 1);
    CU_ASSERT_EQUAL(requests.list[0].context, (int64_t)count);
    CU_ASSERT_EQUAL_FATAL(requests.list[0].count, (int64_t)wanted.count);
    CU_ASSERT_EQUAL(memcmp(requests.ids.data, wanted.data, wanted.count * sizeof *wanted.data),
                    0);
    wf_gen_requests_free(&requests);
    wf_tok_ids_free(&wanted);
    wf_tok_encoder_free(encoder);
    wf_tok_close(tokenizer);
}

static void blanks_begin_the_continuation(void)
{
    check("The", " end", "The", " end");
    check("The ", "end", "The", " end");
    check("The \\u3000\\u00a0\\u001c", "end", "The",
          " \xe3\x80\x80\xc2\xa0\x1c"
          "end");
}

/* If nothing is left of a context, all of the answer is predicted, after the token that ends
   texts. */
static void nothing_is_before(void)
{
    check("", "lead", NULL, "lead");
    check(" ", "lead", NULL, " lead");
}

/* ll is a token: of lll, behind the l of the context, it is the second token that is left. */
static void a_word_goes_over(void)
{
    check("l", "ll", "l", "l");
}

int main(void)
{
    static const wf_test tests[] = {
        {"blanks begin the continuation", blanks_begin_the_continuation},
        {"nothing is before", nothing_is_before},
        {"a word goes over", a_word_goes_over},
        {NULL, NULL}};

    wf_test_new_folder(folder);
    if (symlink(WEFT_TOKENIZERS "/gpt2.json", in_folder("tokenizer.json")) != 0)
        return 1;
    write_text("tokenizer_config.json", "{\"eos_token\": \"!\"}");
    return wf_test_main("requests", tests);
}
