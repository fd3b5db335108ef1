/* apps/gpt_eval/perplexity.c - losses of all tokens of a text, on any mesh; see the header. */
#include "apps/options/options.h"
#include "apps/gpt_eval/perplexity.h"
#include "parallel/formats/json_number.h"
#include "parallel/generate/losses.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#define LN2 0.693147180559945309417

enum { STANDARD_LENGTH = 1024 };

typedef struct job {
    const app_perplexity_request *q;
    wf_gen_model source;
    wf_tok *tokenizer;
    wf_gen_tokens data;
    wf_gen_windows windows;
    /* [tokens], of each token that counts: written by the rank that has its window */
    float *loss;
} job;

static void show(void *arg, int64_t done, int64_t windows)
{
    (void)arg;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%lld of %lld windows%s", (long long)done, (long long)windows,
                done < windows ? "" : "\n");
}

static void run_windows(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model)
{
    job *j = arg;

    wf_gen_losses(&(wf_gen_losses_options){.rank = rank,
                                           .par = par,
                                           .model = model,
                                           .copies = j->q->run.of.dp,
                                           .windows = j->windows,
                                           .ids = j->data.ids,
                                           .counted = j->data.counted,
                                           .batch = j->q->batch,
                                           .progress = show},
                  j->loss);
}

static wf_status eval_rank(wf_rank *rank, void *arg)
{
    job *j = arg;

    return wf_gen_model_run_rank(&j->q->run.of, &j->source, false, rank, run_windows, j);
}

static wf_status print_json(const job *j, double nats, int64_t count, wf_error *error)
{
    const wf_gen_tokens *d = &j->data;
    double each = nats / (double)count;

    return wf_json_line(
        json_pack("{s:I, s:I, s:I, s:I, s:o?, s:o?, s:o?, s:o?}", "tokens", (json_int_t)count,
                  "bytes", (json_int_t)d->bytes, "seq_length", (json_int_t)j->windows.length,
                  "stride", (json_int_t)j->windows.stride, "nats", wf_json_number("nats", nats),
                  "nats_per_token", wf_json_number("nats_per_token", each), "perplexity",
                  wf_json_number("perplexity", exp(each)), "bits_per_byte",
                  d->bytes ? wf_json_number("bits_per_byte", nats / LN2 / (double)d->bytes)
                           : json_null()),
        stdout, 17, "the perplexity", error);
}

/* Prints the losses' mean. They are added in the order of the text, so that the sum has no
   layout. */
static wf_status print(const job *j, wf_error *error)
{
    const wf_gen_tokens *d = &j->data;
    double nats = 0;
    int64_t count = 0;

    for (int64_t i = 1; i < d->tokens; i++)
        if (!d->counted || d->counted[i]) {
            nats += (double)j->loss[i];
            count++;
        }
    if (isnan(nats))
        return wf_error_set(error, WF_ENONFINITE,
                            "the losses of --data %s are not finite: the model's weights, or "
                            "what it makes of this text, are not",
                            j->q->data);
    if (j->q->json)
        return print_json(j, nats, count, error);
    printf("%lld tokens in windows of %lld, each foretold once: %.6f nats a token, perplexity "
           "%.4f",
           (long long)count, (long long)j->windows.length, nats / (double)count,
           exp(nats / (double)count));
    if (d->bytes)
        printf("; %.6f bits a byte of %lld", nats / LN2 / (double)d->bytes,
               (long long)d->bytes);
    printf("\n");
    return WF_OK;
}

static wf_status choose_windows(job *j, app_perplexity_request *q, wf_error *error)
{
    int64_t most = j->source.config.positions;

    if (!q->seq_length)
        q->seq_length = most < STANDARD_LENGTH ? most : STANDARD_LENGTH;
    if (!q->stride)
        q->stride = q->seq_length;
    if (q->seq_length > most)
        return wf_error_set(error, WF_EINVAL,
                            "--seq-length %lld: the model has %lld positions at most",
                            (long long)q->seq_length, (long long)most);
    if (q->stride > q->seq_length)
        return wf_error_set(error, WF_EINVAL,
                            "--stride %lld is more than --seq-length %lld, and tokens between "
                            "windows would not count",
                            (long long)q->stride, (long long)q->seq_length);
    j->windows = wf_gen_windows_of(j->data.tokens, q->seq_length, q->stride);
    j->loss = calloc((size_t)j->data.tokens, sizeof *j->loss);
    return j->loss ? WF_OK
                   : wf_error_set(error, WF_ENOMEM, "no memory for the losses of %lld tokens",
                                  (long long)j->data.tokens);
}

static wf_status prepare(job *j, app_perplexity_request *q, wf_error *error)
{
    const char *path;
    wf_error missing = {WF_OK, ""};

    if (app_model_run_check(&q->run, false, error) != WF_OK ||
        wf_gen_model_open(q->run.of.model, app_options_saved_model, &j->source, error) != WF_OK)
        return error->code;
    /* token ids need none */
    if (wf_gen_model_run_tokenizer(&q->run.of, &j->source, &j->tokenizer, &path, &missing) !=
            WF_OK &&
        q->run.of.tokenizer)
        return wf_error_set(error, missing.code, "%s", missing.text);
    if (wf_gen_tokens_read(q->data, j->tokenizer, j->source.config.vocabulary, &j->data,
                           error) != WF_OK)
        return error->code;
    app_model_run_content(&q->run, &j->source, "content of --data", q->data);
    return choose_windows(j, q, error);
}

wf_status app_perplexity(app_perplexity_request *q, wf_error *error)
{
    const wf_launcher launcher = wf_launcher_detected();
    job j = {.q = q};

    if (prepare(&j, q, error) != WF_OK)
        wf_launch_meet(NULL, error);
    else if (wf_launch(&(wf_launch_options){.ranks = (int)(q->run.of.tp * q->run.of.dp),
                                            .job = q->run.job},
                       eval_rank, &j, error) == WF_OK &&
             launcher.process <= 0)
        print(&j, error);
    wf_tok_close(j.tokenizer);
    wf_gen_model_close(&j.source);
    wf_gen_tokens_free(&j.data);
    free(j.loss);
    return error->code;
}
