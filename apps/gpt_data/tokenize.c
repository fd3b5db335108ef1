/* apps/gpt_data/tokenize.c - gpt_data tokenize. */
#include "nn/dataset/megatron_writer.h"
#include "apps/gpt_data/commands.h"
#include "apps/gpt_data/documents.h"
#include "apps/gpt_data/encoded.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    const app_gpt_data_request *q;
    wf_tok *tokenizer;
    wf_megatron_writer *writer;
    int64_t ended; /* documents that were read */
} job;

typedef struct worker {
    const job *job;
    wf_tok_encoder *encoder;
} worker;

static void close_worker(void *own)
{
    worker *w = own;

    wf_tok_encoder_free(w->encoder);
    free(w);
}

static void *open_worker(void *arg, wf_error *error)
{
    worker *w = calloc(1, sizeof *w);

    if (!w) {
        wf_error_set(error, WF_ENOMEM, "out of memory: a thread's encoder");
        return NULL;
    }
    w->job = arg;
    wf_tok_encoder_new(w->job->tokenizer, &w->encoder, error);
    return w;
}

static wf_status encode_text(void *own, const char *name, const char *text, size_t bytes,
                             bool ends, void *result, wf_error *error)
{
    const worker *w = own;
    const job *j = w->job;
    app_encoded *e = result;
    const size_t begin = e->ids.count;
    wf_status status;

    (void)name;
    status = wf_tok_encode(w->encoder, text, bytes, j->q->special_tokens ? WF_TOK_SPECIAL : 0,
                           &e->ids, error);

    if (status == WF_OK && ends && j->q->append_eod)
        status = wf_tok_ids_append(&e->ids, wf_tok_eos(j->tokenizer), error);
    if (status == WF_OK && ends)
        status = app_encoded_end(e, error);
    if (status != WF_OK)
        e->ids.count = begin;
    return status;
}

static wf_status order_block(void *arg, void *result, wf_error *error)
{
    job *j = arg;
    app_encoded *e = result;

    j->ended += (int64_t)e->count;
    return wf_megatron_writer_reserve(j->writer, (int64_t)e->ids.count, e->ends, e->count,
                                      &e->at, error);
}

static wf_status write_block(void *arg, void *result, wf_error *error)
{
    const job *j = arg;
    app_encoded *e = result;
    wf_status status =
        wf_megatron_writer_put(j->writer, e->at, e->ids.data, (int64_t)e->ids.count, error);

    app_encoded_clear(e);
    return status;
}

/* All files, and the pair of files; neither has its name after an error. */
static wf_status write_all(job *j, wf_error *error)
{
    app_bad_rows bad = {.count = 0};
    const app_document_work work = {.files = j->q->files,
                                    .bad = j->q->skips ? &bad : NULL,
                                    .file_count = j->q->file_count,
                                    .key = j->q->key ? j->q->key : "text",
                                    .tokenizer = j->tokenizer,
                                    .threads = j->q->threads,
                                    .open = open_worker,
                                    .close = close_worker,
                                    .work = encode_text,
                                    .result = app_encoded_new,
                                    .order = order_block,
                                    .done = write_block,
                                    .free_result = app_encoded_free,
                                    .arg = j};
    int64_t tokens, documents;

    if (wf_megatron_writer_open(j->q->output, wf_tok_size(j->tokenizer), &j->writer, error) !=
        WF_OK)
        return error->code;
    if (app_documents_run(&work, error) != WF_OK) {
        wf_megatron_writer_discard(j->writer);
        return error->code;
    }
    tokens = wf_megatron_writer_tokens(j->writer);
    documents = wf_megatron_writer_documents(j->writer);
    if (wf_megatron_writer_finish(j->writer, NULL, error) != WF_OK)
        return error->code;
    printf("%s.bin: %" PRId64 " tokens, %" PRId64 " documents, a vocabulary of %d\n",
           j->q->output, tokens, documents, wf_tok_size(j->tokenizer));
    app_bad_rows_report(&bad);
    if (documents < j->ended)
        fprintf(stderr,
                "gpt_data: left out %" PRId64 " of %" PRId64 " documents: they are empty\n",
                j->ended - documents, j->ended);
    return WF_OK;
}

wf_status app_gpt_data_tokenize(const app_gpt_data_request *q, wf_error *error)
{
    job j = {.q = q};

    if (wf_tok_open(q->tokenizer, &j.tokenizer, error) != WF_OK)
        return error->code;
    if (q->append_eod && wf_tok_eos(j.tokenizer) < 0)
        wf_error_set(error, WF_EINVAL,
                     "--append-eod: the tokenizer %s does not say which token ends a text",
                     q->tokenizer ? q->tokenizer : "of bytes");
    else
        write_all(&j, error);
    wf_tok_close(j.tokenizer);
    return error->code;
}
