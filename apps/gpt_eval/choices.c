/* apps/gpt_eval/choices.c - log probabilities of continuations, on any mesh; see the header. */
#include "apps/gpt_eval/choices.h"
#include "apps/generate/engine.h"
#include "apps/gpt_eval/requests.h"
#include "apps/model/gather.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STANDARD_BATCH = 8, /* questions at once, and at most */
    MOST_BATCH = 64,
    AT_ONCE = 128 /* tokens whose logits are there together: of one question or of several */
};

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

/* A question's slot of the cache. */
typedef struct slot {
    int64_t begin, end; /* its requests */
    int32_t *ids;       /* [count], what is in the cache */
    int64_t count;
} slot;

/* What a copy of the model works with: questions that it has at once, and logits of some of their tokens. */
typedef struct desk {
    app_engine e;
    slot *slot;            /* [batch] */
    app_engine_part *part; /* [batch], of one pass; and whose they are */
    const app_request **of;
    float *logits, *logsumexp;
} desk;

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

/* What logits say of the tokens of a request behind [first, first + count). */
static void take_logits(const job *j, const app_request *r, int64_t first, int64_t count,
                        const float *logits, const float *logsumexp)
{
    const int64_t vocabulary = j->source.config.vocabulary;
    answer *to = &j->answer[r - j->requests.list];

    for (int64_t i = 0; i < count; i++) {
        const float *row = logits + i * vocabulary;
        int32_t id = ids_of(j, r)[first + i + 1];

        to->logprob += (double)(row[id] - logsumexp[i]);
        to->greedy = to->greedy && is_likeliest(row, vocabulary, id);
    }
}

/* The context goes to the slot, but for what is there already. */
static wf_status run_context(const job *j, desk *d, int64_t at, const app_request *r)
{
    slot *s = &d->slot[at];
    const int32_t *ids = ids_of(j, r);
    int64_t first = r->context - 1, begin = 0, end = r->count - 1;

    while (begin < first && begin < s->count && s->ids[begin] == ids[begin] &&
           app_engine_keeps(&d->e, at, end))
        begin++;
    for (int64_t i = begin; i < end; i++)
        s->ids[i] = ids[i];
    s->count = end;
    return begin == first ? WF_OK
                          : app_engine_prefill(&d->e, at, end, begin, ids + begin,
                                               first - begin, NULL, NULL);
}

/* How many tokens of a continuation are still to be foretold behind `done` of them. */
static int64_t left_of(const app_request *r, int64_t done)
{
    return r->count - r->context - done;
}

/* A pass over the next n tokens of continuations. One that has fewer left begins sooner, with what is there already; one
   whose text has fewer than n tokens takes what comes behind it, whose logits nobody reads. */
static wf_status run_pass(const job *j, desk *d, int64_t parts, int64_t done, int64_t n,
                          bool keeps)
{
    const int64_t row = j->source.config.vocabulary;

    for (int64_t i = 0; i < parts; i++) {
        const app_request *r = d->of[i];
        int64_t wanted = r->context - 1 + done, last = r->count - 1 - n;
        int64_t first = wanted < last ? wanted : last;

        d->part[i].length = r->count - 1;
        d->part[i].first = first > 0 ? first : 0;
        d->part[i].ids = d->slot[d->part[i].slot].ids + d->part[i].first;
    }
    if (app_engine_prefill_together(&d->e, parts, d->part, n, d->logits, d->logsumexp) != WF_OK)
        return wf_context_status(d->e.ctx);
    for (int64_t i = 0; i < parts && keeps; i++) {
        int64_t left = left_of(d->of[i], done), wanted = d->of[i]->context - 1 + done;
        int64_t at = i * n + wanted - d->part[i].first;

        take_logits(j, d->of[i], wanted, left < n ? left : n, d->logits + at * row,
                    d->logsumexp + at);
    }
    return WF_OK;
}

/* The answer number `choice` of all questions that have it: contexts first, then the answers together. */
static wf_status run_choice(const job *j, desk *d, int64_t questions, int64_t choice,
                            bool keeps)
{
    const app_request *all = j->requests.list;
    wf_status status = WF_OK;
    int64_t parts, n;

    for (int64_t i = 0; i < questions && status == WF_OK; i++)
        if (d->slot[i].begin + choice < d->slot[i].end)
            status = run_context(j, d, i, &all[d->slot[i].begin + choice]);
    for (int64_t done = 0; status == WF_OK; done += n) {
        parts = n = 0;
        for (int64_t i = 0; i < questions; i++) {
            const app_request *r = &all[d->slot[i].begin + choice];
            int64_t left = d->slot[i].begin + choice < d->slot[i].end ? left_of(r, done) : 0;

            if (left <= 0)
                continue;
            n = left > n ? left : n;
            d->part[parts].slot = i;
            d->of[parts++] = r;
        }
        if (!parts)
            break;
        n = n < AT_ONCE / parts ? n : AT_ONCE / parts;
        status = run_pass(j, d, parts, done, n, keeps);
    }
    return status;
}

static wf_status run_questions(const job *j, desk *d, int64_t questions, bool keeps)
{
    wf_status status = WF_OK;
    int64_t most = 0;

    for (int64_t i = 0; i < questions; i++)
        if (d->slot[i].end - d->slot[i].begin > most)
            most = d->slot[i].end - d->slot[i].begin;
    for (int64_t choice = 0; choice < most && status == WF_OK; choice++)
        status = run_choice(j, d, questions, choice, keeps);
    return status;
}

static int64_t longest_of(const app_requests *r)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < r->count; i++)
        longest = r->list[i].count > longest ? r->list[i].count : longest;
    return longest;
}

/* Questions go around the copies of the model, all choices of one to the same copy. */
static void run_requests(job *j, wf_rank *rank, wf_par *par, desk *d)
{
    const app_requests *all = &j->requests;
    const bool keeps = rank->index % (int)j->q->run.tp == 0;
    int64_t question = 0, taken = 0;

    for (int64_t begin = 0, end; begin < all->count; begin = end, question++) {
        for (end = begin + 1; end < all->count; end++)
            if (all->list[end].doc != all->list[begin].doc)
                break;
        if (question % j->q->run.dp != wf_par_dp_rank(par))
            continue;
        d->slot[taken].begin = begin;
        d->slot[taken++].end = end;
        if (taken < j->q->batch)
            continue;
        if (run_questions(j, d, taken, keeps) != WF_OK)
            return;
        taken = 0;
    }
    run_questions(j, d, taken, keeps);
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

static void desk_free(desk *d, int64_t batch)
{
    for (int64_t i = 0; d->slot && i < batch; i++)
        free(d->slot[i].ids);
    free(d->slot);
    free(d->part);
    free(d->of);
    free(d->logits);
    free(d->logsumexp);
}

/* False where memory ran out. */
static bool desk_new(const job *j, desk *d, int64_t longest)
{
    const size_t batch = (size_t)j->q->batch, vocabulary = (size_t)j->source.config.vocabulary;

    *d = (desk){.slot = calloc(batch, sizeof *d->slot),
                .part = calloc(batch, sizeof *d->part),
                .of = calloc(batch, sizeof *d->of),
                .logits = malloc(AT_ONCE * vocabulary * sizeof *d->logits),
                .logsumexp = malloc(AT_ONCE * sizeof *d->logsumexp)};
    for (size_t i = 0; d->slot && i < batch; i++) {
        d->slot[i].ids = calloc((size_t)longest, sizeof *d->slot[i].ids);
        if (!d->slot[i].ids)
            return false;
    }
    return d->slot && d->part && d->of && d->logits && d->logsumexp;
}

static void run_model(void *arg, wf_rank *rank, wf_par *par, wf_nn_gpt *model)
{
    job *j = arg;
    wf_context *ctx = wf_par_context(par);
    const int64_t longest = longest_of(&j->requests);
    const app_engine_options options = {
        .par = par, .model = model, .slots = j->q->batch, .positions = longest, .chunk = 512};
    desk d;

    wf_context_training(ctx, false);
    if (!desk_new(j, &d, longest))
        wf_fail(ctx, WF_ENOMEM, "no memory for logits");
    else if (app_engine_open(&d.e, &options) == WF_OK)
        run_requests(j, rank, par, &d);
    app_engine_close(&d.e);
    if (app_gather_needed(rank) && wf_context_status(ctx) == WF_OK) {
        bool has = app_gather_from(rank) && rank->index % (int)j->q->run.tp == 0;

        app_gather(rank, par, j->answer,
                   has ? (size_t)j->requests.count * sizeof *j->answer : 0, take_answers, j);
    }
    desk_free(&d, j->q->batch);
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

static wf_status check_batch(const app_choices_request *q, wf_error *error)
{
    return q->batch <= MOST_BATCH
               ? WF_OK
               : wf_error_set(error, WF_EINVAL, "--batch-size %lld: of choices %d at most",
                              (long long)q->batch, MOST_BATCH);
}

static wf_status prepare(job *j, app_choices_request *q, wf_error *error)
{
    const char *path;

    if (app_model_run_check(&q->run, error) != WF_OK || check_batch(q, error) != WF_OK ||
        app_model_source_open(q->run.model, &j->source, error) != WF_OK ||
        app_model_run_tokenizer(&q->run, &j->source, &j->tokenizer, &path, error) != WF_OK ||
        app_requests_read(q->requests, j->tokenizer, j->source.config.positions, &j->requests,
                          error) != WF_OK)
        return error->code;
    q->batch = q->batch ? q->batch : STANDARD_BATCH;
    j->answer = calloc((size_t)j->requests.count, sizeof *j->answer);
    for (int64_t i = 0; j->answer && i < j->requests.count; i++)
        j->answer[i].greedy = true;
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
