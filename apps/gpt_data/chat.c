/* apps/gpt_data/chat.c - gpt_data chat: conversations as token ids, and which of them are
   trained. */
#include "nn/text/chat/chat.h"
#include "nn/dataset/file_kind.h"
#include "nn/dataset/megatron_writer.h"
#include "apps/gpt_data/commands.h"
#include "apps/gpt_data/documents.h"
#include "apps/gpt_data/encoded.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct job {
    const app_gpt_data_request *q;
    wf_chat_train train;
    wf_tok *tokenizer;
    wf_chat_template *template;
    wf_megatron_writer *writer, *mask;
    int64_t trained;
} job;

typedef struct worker {
    const job *job;
    wf_tok_encoder *encoder;
    wf_chat_writer *writer;
    wf_chat_written written;
} worker;

static void close_worker(void *own)
{
    worker *w = own;

    wf_tok_encoder_free(w->encoder);
    wf_chat_writer_free(w->writer);
    wf_chat_written_free(&w->written);
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
    if (wf_tok_encoder_new(w->job->tokenizer, &w->encoder, error) == WF_OK)
        wf_chat_writer_new(w->job->template, &w->writer, error);
    return w;
}

static wf_status encode_row(void *own, const char *name, const char *text, size_t bytes,
                            bool ends, void *result, wf_error *error)
{
    worker *w = own;
    const job *j = w->job;
    app_encoded *e = result;
    wf_chat_row *row;
    size_t begin = e->trained.count;
    const size_t ids = e->ids.count, trained = begin;

    (void)ends; /* a line always does */
    if (wf_chat_row_read(j->template, name, text, bytes, &row, error) != WF_OK)
        return error->code;
    for (size_t i = 0; error->code == WF_OK && i < wf_chat_parts(row, j->train); i++)
        if (wf_chat_write(w->writer, row, j->train, i, &w->written, error) == WF_OK &&
            wf_chat_encode(w->encoder, &w->written, &e->ids, &e->trained, error) == WF_OK)
            app_encoded_end(e, error);
    wf_chat_row_free(row);
    for (; error->code == WF_OK && begin < e->trained.count; begin++)
        e->ones += e->trained.data[begin];
    if (error->code != WF_OK) {
        e->ids.count = ids;
        e->trained.count = trained;
    }
    return error->code;
}

static wf_status order_block(void *arg, void *result, wf_error *error)
{
    job *j = arg;
    app_encoded *e = result;
    const int64_t count = (int64_t)e->ids.count;

    j->trained += e->ones;
    if (wf_megatron_writer_reserve(j->writer, count, e->ends, e->count, &e->at, error) == WF_OK)
        wf_megatron_writer_reserve(j->mask, count, e->ends, e->count, &e->at_mask, error);
    return error->code;
}

static wf_status write_block(void *arg, void *result, wf_error *error)
{
    const job *j = arg;
    app_encoded *e = result;
    const int64_t count = (int64_t)e->ids.count;

    if (wf_megatron_writer_put(j->writer, e->at, e->ids.data, count, error) == WF_OK)
        wf_megatron_writer_put(j->mask, e->at_mask, e->trained.data, count, error);
    app_encoded_clear(e);
    return error->code;
}

/* Both pairs of files, which get their names together: data without its mask would be trained
   whole. */
static wf_status write_all(job *j, const char *mask_prefix, wf_error *error)
{
    app_bad_rows bad = {.count = 0};
    const app_document_work work = {.files = j->q->files,
                                    .bad = j->q->skips ? &bad : NULL,
                                    .file_count = j->q->file_count,
                                    .tokenizer = j->tokenizer,
                                    .threads = j->q->threads,
                                    .open = open_worker,
                                    .close = close_worker,
                                    .work = encode_row,
                                    .result = app_encoded_new,
                                    .order = order_block,
                                    .done = write_block,
                                    .free_result = app_encoded_free,
                                    .arg = j};
    int64_t tokens, documents;

    if (wf_megatron_writer_open(j->q->output, wf_tok_size(j->tokenizer), &j->writer, error) !=
        WF_OK)
        return error->code;
    if (wf_megatron_writer_open(mask_prefix, 2, &j->mask, error) != WF_OK ||
        app_documents_run(&work, error) != WF_OK) {
        wf_megatron_writer_discard(j->mask);
        wf_megatron_writer_discard(j->writer);
        return error->code;
    }
    tokens = wf_megatron_writer_tokens(j->writer);
    documents = wf_megatron_writer_documents(j->writer);
    if (wf_megatron_writer_finish(j->writer, j->mask, error) != WF_OK)
        return error->code;
    printf("%s.bin: %" PRId64 " tokens, of which %" PRId64 " are trained, %" PRId64
           " conversations by the template %s\n",
           j->q->output, tokens, j->trained, documents, wf_chat_template_name(j->template));
    app_bad_rows_report(&bad);
    return WF_OK;
}

static wf_status check(job *j, wf_error *error)
{
    static const struct {
        const char *name;
        wf_chat_train train;
    } names[] = {{"assistant", WF_CHAT_ASSISTANT},
                 {"last", WF_CHAT_LAST},
                 {"each", WF_CHAT_EACH},
                 {"all", WF_CHAT_ALL}};
    const app_gpt_data_request *q = j->q;
    int number = 0;

    while (number < 4 && q->train && strcmp(names[number].name, q->train) != 0)
        number++;
    if (number == 4)
        return wf_error_set(error, WF_EINVAL,
                            "--train %s is none of assistant, last, each and all", q->train);
    j->train = names[number].train;
    for (int64_t i = 0; i < q->file_count; i++) {
        int fd = open(q->files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        const char *advice;
        bool text =
            fd >= 0 && wf_dataset_file_look(fd, q->files[i], &advice) == WF_DATASET_FILE_TEXT;

        if (fd >= 0)
            close(fd);
        if (text) /* a path that cannot be opened or read is refused as it is read */
            return wf_error_set(error, WF_EINVAL,
                                "chat: %s does not end in .jsonl and has no rows of JSON: a "
                                "conversation is a line of JSON",
                                q->files[i]);
    }
    return WF_OK;
}

wf_status app_gpt_data_chat(const app_gpt_data_request *q, wf_error *error)
{
    job j = {.q = q};
    const wf_chat_options options = {.tokenizer = q->tokenizer,
                                     .name = q->chat_template,
                                     .variables = q->chat_variables,
                                     .ignored = q->ignored_fields};
    char mask_prefix[4096];

    if (snprintf(mask_prefix, sizeof mask_prefix, "%s.loss", q->output) >=
        (int)sizeof mask_prefix)
        return wf_error_set(error, WF_EINVAL, "--output: the name is too long");
    if (check(&j, error) == WF_OK &&
        wf_chat_template_open(&options, &j.template, error) == WF_OK &&
        wf_tok_open(q->tokenizer, &j.tokenizer, error) == WF_OK)
        write_all(&j, mask_prefix, error);
    wf_tok_close(j.tokenizer);
    wf_chat_template_close(j.template);
    return error->code;
}
