/* parallel/generate/tokens.c - the tokens that count, and their bytes of text; see the
   header. */
#include "parallel/generate/tokens.h"
#include "nn/dataset/source.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_status no_memory(const char *path, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory for the tokens of %s", path);
}

/* Encodes the bytes of a text source. */
static wf_status encode(const wf_dataset_source *source, const char *path,
                        const wf_tok *tokenizer, wf_gen_tokens *d, wf_error *error)
{
    int64_t bytes = source->tokens;
    int32_t *wide = malloc((size_t)bytes * sizeof *wide);
    char *text = malloc((size_t)bytes);
    wf_tok_encoder *encoder = NULL;
    wf_tok_ids ids = {NULL, 0, 0};

    if (!wide || !text)
        no_memory(path, error);
    else if (wf_dataset_source_read(source, 0, bytes, wide, error) == WF_OK &&
             wf_tok_encoder_new(tokenizer, &encoder, error) == WF_OK) {
        for (int64_t i = 0; i < bytes; i++)
            text[i] = (char)wide[i];
        wf_tok_encode(encoder, text, (size_t)bytes, WF_TOK_TEMPLATE, &ids, error);
    }
    wf_tok_encoder_free(encoder);
    free(wide);
    free(text);
    d->ids = ids.data;
    d->tokens = (int64_t)ids.count;
    return error->code;
}

static wf_status read_ids(const wf_dataset_source *source, const char *path, wf_gen_tokens *d,
                          wf_error *error)
{
    d->tokens = source->tokens;
    d->ids = malloc((size_t)d->tokens * sizeof *d->ids);
    d->counted = source->masked ? malloc((size_t)d->tokens * sizeof *d->counted) : NULL;
    if (!d->ids || (source->masked && !d->counted))
        return no_memory(path, error);
    if (wf_dataset_source_read(source, 0, d->tokens, d->ids, error) == WF_OK && d->counted)
        wf_dataset_source_read_mask(source, 0, d->tokens, d->counted, error);
    return error->code;
}

static bool any_counts(const wf_gen_tokens *d)
{
    bool any = !d->counted;

    for (int64_t i = 1; i < d->tokens && !any; i++)
        any = d->counted[i];
    return any;
}

/* Counts bytes of the tokens that count; the first never does. */
static wf_status count_bytes(const wf_tok *tokenizer, wf_gen_tokens *d, wf_error *error)
{
    wf_tok_bytes text = {NULL, 0, 0};

    for (int64_t i = 1; i < d->tokens && error->code == WF_OK; i++) {
        int64_t begin = i;

        while (i < d->tokens && (!d->counted || d->counted[i]))
            i++;
        text.bytes = 0;
        wf_tok_decode(tokenizer, d->ids + begin, (size_t)(i - begin), WF_TOK_SKIP_SPECIAL,
                      &text, error);
        d->bytes += (int64_t)text.bytes;
    }
    wf_tok_bytes_free(&text);
    return error->code;
}

wf_status wf_gen_tokens_read(const char *path, const wf_tok *tokenizer, int64_t vocabulary,
                             wf_gen_tokens *d, wf_error *error)
{
    char *file = (char *)path;
    const wf_dataset_source_files files = {
        .name = "data", .weight = 1, .file = &file, .count = 1};
    wf_dataset_source source = {.name = NULL};
    size_t n = strlen(path);

    *d = (wf_gen_tokens){.ids = NULL};
    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0)
        return wf_error_set(error, WF_EINVAL,
                            ".data %s has documents in lines of JSON: make token ids of them "
                            "first (gpt_data tokenize %s), and "
                            "give ids.idx",
                            path, path);
    if (wf_dataset_source_open(&files, ".data", (wf_token_count){vocabulary, true}, &source,
                               error) == WF_OK) {
        if (!source.is_text)
            read_ids(&source, path, d, error);
        else if (tokenizer)
            encode(&source, path, tokenizer, d, error);
        else
            wf_error_set(error, WF_EINVAL,
                         ".data %s is text, and the model has no tokenizer beside it: give "
                         ".tokenizer PATH",
                         path);
    }
    wf_dataset_source_close(&source);
    if (error->code == WF_OK && d->tokens < 2)
        wf_error_set(error, WF_EINVAL, ".data %s has %lld token%s, and none to foretell", path,
                     (long long)d->tokens, d->tokens == 1 ? "" : "s");
    if (error->code == WF_OK && !any_counts(d))
        wf_error_set(error, WF_EDATA,
                     ".data %s: its loss mask lets none of the %lld tokens count, so that "
                     "there is no mean",
                     path, (long long)d->tokens);
    return error->code == WF_OK && tokenizer ? count_bytes(tokenizer, d, error) : error->code;
}

void wf_gen_tokens_free(wf_gen_tokens *d)
{
    free(d->ids);
    free(d->counted);
}
