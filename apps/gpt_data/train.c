/* apps/gpt_data/train.c - gpt_data train-bpe. */
#include "apps/gpt_data/commands.h"
#include "apps/gpt_data/documents.h"
#include "nn/text/tokenizer/trainer.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    wf_tok *untrained;
    wf_tok_counter *total;
    wf_error error; /* an error of adding up */
    pthread_mutex_t lock;
} job;

typedef struct worker {
    job *job;
    wf_tok_counter *counter;
} worker;

static void *open_worker(void *arg, wf_error *error)
{
    worker *w = calloc(1, sizeof *w);

    if (!w) {
        wf_error_set(error, WF_ENOMEM, "out of memory: a thread's words");
        return NULL;
    }
    w->job = arg;
    wf_tok_counter_new(w->job->untrained, &w->counter, error);
    return w;
}

/* Adds the counts of a worker that ends: a sum has no order. */
static void close_worker(void *own)
{
    worker *w = own;

    pthread_mutex_lock(&w->job->lock);
    if (w->counter)
        wf_tok_counter_add(w->job->total, w->counter, &w->job->error);
    pthread_mutex_unlock(&w->job->lock);
    wf_tok_counter_free(w->counter);
    free(w);
}

static wf_status count_text(void *own, const char *name, const char *text, size_t bytes,
                            bool ends, void *result, wf_error *error)
{
    worker *w = own;

    (void)name, (void)ends, (void)result;
    return wf_tok_count(w->counter, text, bytes, error);
}

wf_status app_gpt_data_train(const app_gpt_data_request *q, wf_error *error)
{
    job j = {.error = {WF_OK, ""}};
    const int32_t vocabulary = q->vocabulary ? (int32_t)q->vocabulary : 32000;
    app_bad_rows bad = {.count = 0};
    app_document_work work = {.files = q->files,
                              .bad = q->skips ? &bad : NULL,
                              .file_count = q->file_count,
                              .key = q->key ? q->key : "text",
                              .threads = q->threads,
                              .open = open_worker,
                              .close = close_worker,
                              .work = count_text,
                              .arg = &j};
    int32_t size;

    pthread_mutex_init(&j.lock, NULL);
    if (wf_tok_untrained(&j.untrained, error) == WF_OK &&
        wf_tok_counter_new(j.untrained, &j.total, error) == WF_OK) {
        work.tokenizer = j.untrained;
        app_documents_run(&work, error);
        if (error->code == WF_OK && j.error.code != WF_OK)
            *error = j.error;
        if (error->code == WF_OK &&
            wf_tok_train(j.total, vocabulary, q->output, &size, error) == WF_OK)
            printf("%s/tokenizer.json: a vocabulary of %d%s\n", q->output, size,
                   size < vocabulary ? ", since nothing else stands beside each other twice"
                                     : "");
    }
    app_bad_rows_report(&bad);
    wf_tok_counter_free(j.total);
    wf_tok_close(j.untrained);
    pthread_mutex_destroy(&j.lock);
    return error->code;
}
