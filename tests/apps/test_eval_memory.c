/*
 * tests/apps/test_eval_memory.c - every allocation of reading tokenizers, prompts and requests,
 * and of packing, fails once: each is reported, and nothing leaks.
 *
 * ctest: defines WEFT_TOKENIZERS=tests/text/tokenizers, links weft_app_texts weft_allocations
 */
#include "nn/dataset/packing.h"
#include "parallel/generate/requests.h"
#include "apps/gpt_generate/prompts.h"
#include "tests/allocations.h"
#include "tests/nn/dataset_files.h"

static wf_status use_requests(wf_error *error)
{
    wf_tok *tokenizer;
    wf_gen_requests all = {.count = 0};

    if (wf_tok_open(NULL, &tokenizer, error) == WF_OK) {
        wf_gen_requests_read(path_of("requests.jsonl"), tokenizer, 32, &all, error);
        wf_tok_close(tokenizer);
    }
    wf_gen_requests_free(&all);
    return error->code;
}

static void requests(void)
{
    char text[4096] = "";
    size_t n = 0;

    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(
            text + n, sizeof text - n,
            "{\"request\":{\"context\":\"one and \",\"continuation\":\" two\"},"
            "\"doc_id\":%d,\"label\":%d}\n",
            i / 2, i / 2 % 2);
    write_bytes("requests.jsonl", text, n);
    each_allocation_fails(use_requests, 20);
}

static wf_status use_prompts(wf_error *error)
{
    app_generate_request request = {.prompts = path_of("prompts.jsonl")};
    wf_tok *tokenizer;
    app_prompts prompts = {.count = 0};

    if (wf_tok_open(NULL, &tokenizer, error) == WF_OK) {
        app_prompts_read(&request, tokenizer, NULL, 256, &prompts, error);
        wf_tok_close(tokenizer);
    }
    app_prompts_free(&prompts);
    return error->code;
}

static void prompts(void)
{
    char text[4096] = "";
    size_t n = 0;

    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              i % 2 ? "{\"ids\":[1,2,%d]}\n" : "{\"prompt\":\"text %d\"}\n", i);
    write_bytes("prompts.jsonl", text, n);
    each_allocation_fails(use_prompts, 20);
}

static wf_status pack(wf_error *error)
{
    static const int32_t length[] = {7, 3, 9, 1, 1, 8, 2, 5};
    wf_dataset_packing packing = {.windows = 0};

    wf_dataset_packing_new(length, sizeof length / sizeof *length, 10, &packing, error);
    wf_dataset_packing_free(&packing);
    return error->code;
}

static void packing(void)
{
    each_allocation_fails(pack, 2);
}

static const char *file; /* the tokenizer's */

static wf_status use_tokenizer(wf_error *error)
{
    wf_tok *tokenizer;
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {.count = 0};

    if (wf_tok_open(file, &tokenizer, error) != WF_OK)
        return error->code;
    if (wf_tok_encoder_new(tokenizer, &encoder, error) == WF_OK)
        wf_tok_encode(encoder, "one and two", 11, 0, &ids, error);
    wf_tok_encoder_free(encoder);
    wf_tok_ids_free(&ids);
    wf_tok_close(tokenizer);
    return error->code;
}

static void tokenizers(void)
{
    static const char *const files[] = {WEFT_TOKENIZERS "/metaspace.json",
                                        WEFT_TOKENIZERS "/pieces.model",
                                        WEFT_TOKENIZERS "/gpt2.json"};

    for (int i = 0; i < 2 + WEFT_HAS_PCRE2; i++) {
        file = files[i];
        each_allocation_fails(use_tokenizer, 20);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"requests", requests},
                                    {"prompts", prompts},
                                    {"packing", packing},
                                    {"tokenizers", tokenizers},
                                    {NULL, NULL}};

    return data_main("memory of gpt_eval", tests);
}
