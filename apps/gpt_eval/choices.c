/* apps/gpt_eval/choices.c - log probabilities of continuations, on any mesh; see the header. */
#include "apps/gpt_eval/choices.h"
#include "apps/generate/engine.h"
#include "apps/gpt_eval/requests.h"
#include "apps/model/gather.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 32 }; /* tokens of a continuation whose logits are there together */

/* What a request comes to: written by the copy of the model that has it. */
typedef struct answer {
    double logprob;
    bool greedy; /* each token of the continuation is the likeliest */
} answer;

typedef struct job {
    const app_choices_request *q;
    app_model_source source;
    app_tokenizer *tokenizer;
    app_requests requests;
    answer *answer; /* [requests.count] */
} job;

/* What a copy of the model holds in its only slot, and the logits of some tokens. */
typedef struct slot {
    app_engine e;
    int32_t *ids; /* what is in the cache */
    int64_t count;
    float *logits, *logsumexp;
} slot;

static const int32_t *ids_of(const job *j, const app_request *r)
{
    return j->requests.ids.data + r->begin;
}

static bool is_likeliest(const float *logits, int64_t vocabulary, int32_t id)
{
    for (int64_t i = 0; i < vocabulary; i++)
        if (logits[i] > logits[id] || (logits[i] == logits[id] && i < id))
            return false;
    return true;
}

/* The tokens of a request go in but for its last one; what a request before has had is there already. */
static void run_request(const job *j, slot *s, const app_request *r, answer *to)
{
    const int32_t *ids = ids_of(j, r);
    int64_t first = r->context - 1, begin = 0, end = r->count - 1;

    while (begin < first && begin < s->count && s->ids[begin] == ids[begin] &&
           app_engine_keeps(&s->e, 0, end))
        begin++;
    *to = (answer){.greedy = true};
    if (begin < first)
        app_engine_prefill(&s->e, 0, end, begin, ids + begin, first - begin, NULL, NULL);
    for (int64_t at = first, n; at < end; at += n) {
        n = end - at < AT_ONCE ? end - at : AT_ONCE;
        if (app_engine_prefill(&s->e, 0, end, at, ids + at, n, s->logits, s->logsumexp) !=
            WF_OK)
            return;
        for (int64_t i = 0; i < n; i++) {
            const float *row = s->logits + i * s->e.vocabulary;
            int32_t id = ids[at + i + 1];

            to->logprob += (double)(row[id] - s->logsumexp[i]);
            to->greedy = to->greedy && is_likeliest(row, s->e.vocabulary, id);
        }
    }
    for (s->count = 0; s->count < end; s->count++)
        s->ids[s->count] = ids[s->count];
}

static int64_t longest_of(const app_requests *r)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < r->count; i++)
        longest = r->list[i].count > longest ? r->list[i].count : longest;
    return longest;
}

/* Questions go around the copies of the model, all choices of one to the same copy. */
static void run_requests(job *j, wf_rank *rank, wf_par *par, slot *s)
{
    const app_requests *all = &j->requests;
    const bool keeps = rank->index % (int)j->q->run.tp == 0;
    int64_t question = 0;

    for (int64_t i = 0; i < all->count && wf_context_status(s->e.ctx) == WF_OK; i++) {
        answer a;

        question += i > 0 && all->list[i].doc != all->list[i - 1].doc;
        if (question % j->q->run.dp != wf_par_dp_rank(par))
            continue;
        run_request(j, s, &all->list[i], &a);
        if (keeps)
            j->answer[i] = a;
    }
}

/* An app_gather_take: the answers of the questions that a copy of the model has had. */
static void take_answers(void *arg, wf_par *par, int from, const char *data, size_t bytes)
{
    job *j = arg;
    const app_requests *all = &j->requests;
    int64_t question = 0;

    (void)par;
    for (int64_t i = 0; i < all->count && bytes; i++) {
        question += i > 0 && all->list[i].doc != all->list[i - 1].doc;
        if (question % j->q->run.dp == from / j->q->run.tp)
            memcpy(&j->answer[i], data + (size_t)i * sizeof *j->answer, sizeof *j->answer);
    }
}

static void run_model(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model)
{
    job *j = arg;
    wf_context *ctx = wf_par_context(par);
    const int64_t longest = longest_of(&j->requests);
    const app_engine_options options = {
        .par = par, .model = model, .slots = 1, .positions = longest, .chunk = 512};
    slot s = {.count = 0};

    wf_context_training(ctx, false);
    s.ids = malloc((size_t)longest * sizeof *s.ids);
    s.logits = malloc(AT_ONCE * (size_t)j->source.config.vocabulary * sizeof *s.logits);
    s.logsumexp = malloc(AT_ONCE * sizeof *s.logsumexp);
    if (!s.ids || !s.logits || !s.logsumexp)
        wf_fail(ctx, WF_ENOMEM, "no memory for logits");
    else if (app_engine_open(&s.e, &options) == WF_OK)
        run_requests(j, rank, par, &s);
    app_engine_close(&s.e);
    if (app_gather_needed(rank) && wf_context_status(ctx) == WF_OK) {
        bool has = app_gather_from(rank) && rank->index % (int)j->q->run.tp == 0;

        app_gather(rank, par, j->answer,
                   has ? (size_t)j->requests.count * sizeof *j->answer : 0, take_answers, j);
    }
    free(s.ids);
    free(s.logits);
    free(s.logsumexp);
}

static wf_status eval_rank(wf_rank *rank, void *arg)
{
    job *j = arg;

    return app_model_run_rank(&j->q->run, &j->source, false, rank, run_model, j);
}

/* Of questions whose right answer is known. */
typedef struct score {
    int64_t questions, labelled, right, right_by_bytes;
    double bits_per_byte; /* the sum of those of right answers */
} score;

/* One question: requests from `begin` on to before `end`. */
static void count_question(const job *j, int64_t begin, int64_t end, score *s)
{
    const double ln2 = 0.693147180559945309417;
    const app_request *r = j->requests.list;
    int64_t best = begin, best_by_bytes = begin, right = r[begin].label;

    s->questions++;
    if (right < 0 || right >= end - begin)
        return;
    for (int64_t i = begin; i < end; i++) {
        const double *best_logprob = &j->answer[best].logprob;

        best = j->answer[i].logprob > *best_logprob ? i : best;
        if (j->answer[i].logprob / (double)r[i].bytes >
            j->answer[best_by_bytes].logprob / (double)r[best_by_bytes].bytes)
            best_by_bytes = i;
    }
    s->labelled++;
    s->right += best == begin + right;
    s->right_by_bytes += best_by_bytes == begin + right;
    s->bits_per_byte -= j->answer[begin + right].logprob / ln2 / (double)r[begin + right].bytes;
}

static void print_answer(const app_request *r, const answer *a)
{
    printf(
        "{\"doc_id\": %lld, \"logprob\": %.17g, \"greedy\": %s, \"tokens\": %lld, \"bytes\": "
        "%lld}\n",
        (long long)r->doc, a->logprob, a->greedy ? "true" : "false",
        (long long)(r->count - r->context), (long long)r->bytes);
}

static void print(const job *j)
{
    const app_requests *all = &j->requests;
    score s = {.questions = 0};

    for (int64_t i = 0, begin = 0; i < all->count; i++) {
        if (j->q->json)
            print_answer(&all->list[i], &j->answer[i]);
        if (i + 1 < all->count && all->list[i + 1].doc == all->list[begin].doc)
            continue;
        count_question(j, begin, i + 1, &s);
        begin = i + 1;
    }
    if (j->q->json)
        printf("{\"questions\": %lld, \"labelled\": %lld, \"right\": %lld, \"right_by_bytes\": "
               "%lld, \"bits_per_byte\": %.17g}\n",
               (long long)s.questions, (long long)s.labelled, (long long)s.right,
               (long long)s.right_by_bytes,
               s.labelled ? s.bits_per_byte / (double)s.labelled : 0);
    else if (s.labelled)
        printf("%lld requests, %lld questions with a right answer: acc %.4f, acc_norm %.4f, "
               "%.6f bits a byte of it\n",
               (long long)all->count, (long long)s.labelled,
               (double)s.right / (double)s.labelled,
               (double)s.right_by_bytes / (double)s.labelled,
               s.bits_per_byte / (double)s.labelled);
    else
        printf("%lld requests, of which none has a label: --json has what each comes to\n",
               (long long)all->count);
}

static wf_status prepare(job *j, app_choices_request *q, wf_error *error)
{
    const char *path;

    if (app_model_run_check(&q->run, error) != WF_OK ||
        app_model_source_open(q->run.model, &j->source, error) != WF_OK ||
        app_model_run_tokenizer(&q->run, &j->source, &j->tokenizer, &path, error) != WF_OK ||
        app_requests_read(q->requests, j->tokenizer, j->source.config.positions, &j->requests,
                          error) != WF_OK)
        return error->code;
    j->answer = calloc((size_t)j->requests.count, sizeof *j->answer);
    return j->answer ? WF_OK
                     : wf_error_set(error, WF_ENOMEM, "no memory for %lld requests",
                                    (long long)j->requests.count);
}

wf_status app_choices(app_choices_request *q, wf_error *error)
{
    job j = {.q = q};

    if (prepare(&j, q, error) == WF_OK &&
        wf_launch(&(wf_launch_options){.ranks = (int)(q->run.tp * q->run.dp)}, eval_rank, &j,
                  error) == WF_OK &&
        wf_launcher_detected().process <= 0)
        print(&j);
    app_tokenizer_close(j.tokenizer);
    app_model_source_close(&j.source);
    app_requests_free(&j.requests);
    free(j.answer);
    return error->code;
}
