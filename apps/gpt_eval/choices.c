/* apps/gpt_eval/choices.c - requests from a file, answers from any mesh, and their scores; see
   the header. */
#include "apps/options/options.h"
#include "apps/gpt_eval/choices.h"
#include "parallel/generate/answers.h"
#include "parallel/formats/json_number.h"
#include "parallel/gather.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

typedef struct job {
    const app_choices_request *q;
    wf_gen_model source;
    wf_tok *tokenizer;
    wf_gen_requests requests;
    wf_gen_answer *answer; /* [requests.count], written by the copy of the model that has it */
} job;

/* An wf_par_gather_take: the answers of the questions that a copy of the model has had. */
static void take_answers(void *arg, wf_par *par, int from, const char *data, size_t bytes)
{
    job *j = arg;
    const wf_gen_requests *all = &j->requests;
    int64_t question = 0;

    (void)par;
    for (int64_t i = 0; i < all->count && bytes; i++) {
        question += i > 0 && all->list[i].doc != all->list[i - 1].doc;
        if (question % j->q->run.of.dp == from / j->q->run.of.tp)
            memcpy(&j->answer[i], data + (size_t)i * sizeof *j->answer, sizeof *j->answer);
    }
}

static void run_model(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model)
{
    job *j = arg;
    const bool keeps = rank->index % (int)j->q->run.of.tp == 0;
    const wf_gen_answers_options options = {.par = par,
                                            .model = model,
                                            .requests = &j->requests,
                                            .batch = j->q->batch,
                                            .copies = j->q->run.of.dp,
                                            .copy = wf_par_dp_rank(par)};

    if (wf_gen_answers_find(&options, keeps ? j->answer : NULL) == WF_OK &&
        wf_par_gather_needed(rank))
        wf_par_gather(rank, par, j->answer,
                      keeps && wf_par_gather_from(rank)
                          ? (size_t)j->requests.count * sizeof *j->answer
                          : 0,
                      take_answers, j);
}

static wf_status eval_rank(wf_rank *rank, void *arg)
{
    job *j = arg;

    return wf_gen_model_run_rank(&j->q->run.of, &j->source, false, rank, run_model, j);
}

static wf_status print_answer(const wf_gen_request *r, const wf_gen_answer *a, wf_error *error)
{
    char what[64];

    snprintf(what, sizeof what, "the answer to line %lld", (long long)r->line);
    return wf_json_line(json_pack("{s:I, s:o?, s:b, s:I, s:I}", "doc_id", (json_int_t)r->doc,
                                  "logprob", wf_json_number("logprob", a->logprob), "greedy",
                                  a->greedy, "tokens", (json_int_t)(r->count - r->context),
                                  "bytes", (json_int_t)r->bytes),
                        stdout, 17, what, error);
}

static wf_status print_json(const job *j, const wf_gen_score *s, wf_error *error)
{
    const wf_gen_requests *all = &j->requests;

    for (int64_t i = 0; i < all->count; i++)
        if (print_answer(&all->list[i], &j->answer[i], error) != WF_OK)
            return error->code;
    return wf_json_line(
        json_pack("{s:I, s:I, s:I, s:I, s:o?}", "questions", (json_int_t)s->questions,
                  "labelled", (json_int_t)s->labelled, "right", (json_int_t)s->right,
                  "right_by_bytes", (json_int_t)s->right_by_bytes, "bits_per_byte",
                  s->labelled ? wf_json_number("bits_per_byte", s->bits_per_byte)
                              : json_null()),
        stdout, 17, "the sum of the answers", error);
}

static wf_status print(const job *j, wf_error *error)
{
    const wf_gen_requests *all = &j->requests;
    const wf_gen_score s = wf_gen_answers_score(all, j->answer);

    if (wf_gen_answers_check(all, j->answer, j->q->requests, error) != WF_OK)
        return error->code;
    if (j->q->json)
        return print_json(j, &s, error);
    if (s.labelled)
        printf("%lld requests, %lld of %lld questions with a right answer: acc %.4f, acc_norm "
               "%.4f, %.6f bits a byte of it\n",
               (long long)all->count, (long long)s.labelled, (long long)s.questions,
               (double)s.right / (double)s.labelled,
               (double)s.right_by_bytes / (double)s.labelled, s.bits_per_byte);
    else
        printf("%lld requests, of which none has a label: --json has the result of each\n",
               (long long)all->count);
    return WF_OK;
}

static wf_status check_batch(const app_choices_request *q, wf_error *error)
{
    return q->batch <= WF_GEN_ANSWERS_MOST_BATCH
               ? WF_OK
               : wf_error_set(error, WF_EINVAL, "--batch-size %lld: of choices %d at most",
                              (long long)q->batch, WF_GEN_ANSWERS_MOST_BATCH);
}

static wf_status prepare(job *j, app_choices_request *q, wf_error *error)
{
    const char *path;

    if (app_model_run_check(&q->run, false, error) != WF_OK || check_batch(q, error) != WF_OK ||
        wf_gen_model_open(q->run.of.model, app_options_saved_model, &j->source, error) !=
            WF_OK ||
        wf_gen_model_run_tokenizer(&q->run.of, &j->source, &j->tokenizer, &path, error) !=
            WF_OK ||
        wf_gen_requests_read(q->requests, j->tokenizer, j->source.config.positions,
                             &j->requests, error) != WF_OK)
        return error->code;
    app_model_run_content(&q->run, &j->source, "content of --requests", q->requests);
    q->batch = q->batch ? q->batch : WF_GEN_ANSWERS_BATCH;
    j->answer = calloc((size_t)j->requests.count, sizeof *j->answer);
    return j->answer ? WF_OK
                     : wf_error_set(error, WF_ENOMEM, "no memory for %lld requests",
                                    (long long)j->requests.count);
}

wf_status app_choices(app_choices_request *q, wf_error *error)
{
    job j = {.q = q};

    if (prepare(&j, q, error) != WF_OK)
        wf_launch_meet(NULL, error);
    else if (wf_launch(&(wf_launch_options){.ranks = (int)(q->run.of.tp * q->run.of.dp),
                                            .job = q->run.job},
                       eval_rank, &j, error) == WF_OK &&
             wf_launcher_detected().process <= 0)
        print(&j, error);
    wf_tok_close(j.tokenizer);
    wf_gen_model_close(&j.source);
    wf_gen_requests_free(&j.requests);
    free(j.answer);
    return error->code;
}
