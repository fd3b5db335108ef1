/* parallel/generate/answers.c - questions in slots of a cache, answers of several of them in
   one pass; see the header. */
#include "parallel/generate/answers.h"
#include "parallel/generate/engine.h"
#include <stdlib.h>

enum {
    CHUNK = 512,  /* tokens of a context that go together */
    PASSES = 64,  /* sizes of passes that a plan remembers */
    AT_ONCE = 128 /* tokens whose logits are there together: of one question or of several */
};

/* A question's slot of the cache. */
typedef struct slot {
    int64_t begin, end; /* its requests */
    int32_t *ids;       /* [count], what is in the cache */
    int64_t count;
} slot;

/* The sizes of a pass, and of a prefill of a context, whose parts are 0. */
typedef struct pass {
    int64_t parts, tokens, length;
} pass;

/* The work of a copy of the model: requests that it has at once, and logits of some of their
   tokens. */
typedef struct desk {
    const wf_gen_answers_options *o;
    wf_gen_answer *answer; /* NULL: they are not wanted */
    wf_gen_engine e;
    slot *slot;               /* [batch] */
    wf_gen_engine_part *part; /* [batch], of one pass; and whose they are */
    const wf_gen_request **of;
    float *logits, *logsumexp;
    bool stopped;
    bool planned; /* a dry run: no pass that is smaller than another */
    int passes;
    pass taken[PASSES];
} desk;

/* Returns true where a plan has taken a pass that is as large in every size. */
static bool is_taken(desk *d, pass next)
{
    if (!d->planned)
        return false;
    for (int i = 0; i < d->passes; i++) {
        const pass *p = &d->taken[i];

        if (!p->parts == !next.parts && p->parts >= next.parts && p->tokens >= next.tokens &&
            p->length >= next.length)
            return true;
    }
    if (d->passes < PASSES)
        d->taken[d->passes++] = next;
    return false;
}

static const int32_t *ids_of(const desk *d, const wf_gen_request *r)
{
    return d->o->requests->ids.data + r->begin;
}

static bool is_likeliest(const float *logits, int64_t vocabulary, int32_t id)
{
    for (int64_t i = 0; i < vocabulary; i++)
        if (logits[i] > logits[id] || (logits[i] == logits[id] && i < id))
            return false;
    return true;
}

/* Adds the log probabilities of the tokens of a request after [first, first + count), by their
   logits. */
static void take_logits(const desk *d, const wf_gen_request *r, int64_t first, int64_t count,
                        const float *logits, const float *logsumexp)
{
    const int64_t vocabulary = d->e.vocabulary;
    wf_gen_answer *to = &d->answer[r - d->o->requests->list];

    for (int64_t i = 0; i < count; i++) {
        const float *row = logits + i * vocabulary;
        int32_t id = ids_of(d, r)[first + i + 1];

        to->logprob += (double)(row[id] - logsumexp[i]);
        to->greedy = to->greedy && is_likeliest(row, vocabulary, id);
    }
}

/* Prefills a slot with the context, except for tokens that it has already. */
static wf_status run_context(desk *d, int64_t at, const wf_gen_request *r)
{
    slot *s = &d->slot[at];
    const int32_t *ids = ids_of(d, r);
    int64_t first = r->context - 1, begin = 0, end = r->count - 1;

    while (begin < first && begin < s->count && s->ids[begin] == ids[begin] &&
           wf_gen_engine_keeps(&d->e, at, end))
        begin++;
    for (int64_t i = begin; i < end; i++)
        s->ids[i] = ids[i];
    s->count = end;
    if (begin == first || is_taken(d, (pass){0, first - begin, end}))
        return WF_OK;
    return wf_gen_engine_prefill(&d->e, at, end, begin, ids + begin, first - begin, NULL, NULL);
}

/* Returns the tokens of a continuation that are still to be predicted after `done` of them. */
static int64_t left_of(const wf_gen_request *r, int64_t done)
{
    return r->count - r->context - done;
}

/* Runs a pass over the next n tokens of continuations. One that has fewer left begins sooner,
   with computed tokens; one whose text has fewer than n tokens takes the ids after it, whose
   logits are not used. */
static wf_status run_pass(desk *d, int64_t parts, int64_t done, int64_t n)
{
    const int64_t row = d->e.vocabulary;
    int64_t length = 0;

    for (int64_t i = 0; i < parts; i++) {
        const wf_gen_request *r = d->of[i];
        int64_t wanted = r->context - 1 + done, last = r->count - 1 - n;
        int64_t first = wanted < last ? wanted : last;

        d->part[i].length = r->count - 1;
        d->part[i].first = first > 0 ? first : 0;
        d->part[i].ids = d->slot[d->part[i].slot].ids + d->part[i].first;
        length = d->part[i].length > length ? d->part[i].length : length;
    }
    if (is_taken(d, (pass){parts, n, length}))
        return WF_OK;
    if (wf_gen_engine_prefill_together(&d->e, parts, d->part, n, true, d->logits,
                                       d->logsumexp) != WF_OK)
        return wf_context_status(d->e.ctx);
    for (int64_t i = 0; i < parts && d->answer; i++) {
        int64_t left = left_of(d->of[i], done), wanted = d->of[i]->context - 1 + done;
        int64_t at = i * n + wanted - d->part[i].first;

        take_logits(d, d->of[i], wanted, left < n ? left : n, d->logits + at * row,
                    d->logsumexp + at);
    }
    return WF_OK;
}

/* The answer number `choice` of all questions that have it: contexts first, then the answers
   together. */
static wf_status run_choice(desk *d, int64_t questions, int64_t choice)
{
    const wf_gen_request *all = d->o->requests->list;
    wf_status status = WF_OK;
    int64_t parts, n;

    for (int64_t i = 0; i < questions && status == WF_OK; i++)
        if (d->slot[i].begin + choice < d->slot[i].end)
            status = run_context(d, i, &all[d->slot[i].begin + choice]);
    for (int64_t done = 0; status == WF_OK; done += n) {
        parts = n = 0;
        for (int64_t i = 0; i < questions; i++) {
            int64_t at = d->slot[i].begin + choice;
            int64_t left = at < d->slot[i].end ? left_of(&all[at], done) : 0;

            if (left <= 0)
                continue;
            n = left > n ? left : n;
            d->part[parts].slot = i;
            d->of[parts++] = &all[at];
        }
        if (!parts)
            break;
        n = n < AT_ONCE / parts ? n : AT_ONCE / parts;
        status = run_pass(d, parts, done, n);
    }
    return status;
}

static wf_status run_questions(desk *d, int64_t questions)
{
    wf_status status = WF_OK;
    int64_t most = 0;

    for (int64_t i = 0; i < questions; i++)
        if (d->slot[i].end - d->slot[i].begin > most)
            most = d->slot[i].end - d->slot[i].begin;
    for (int64_t choice = 0; choice < most && status == WF_OK && !d->stopped; choice++) {
        d->stopped = d->o->stop && d->o->stop(d->o->arg);
        if (!d->stopped)
            status = run_choice(d, questions, choice);
    }
    return status;
}

static int64_t longest_of(const wf_gen_requests *r)
{
    int64_t longest = 0;

    for (int64_t i = 0; i < r->count; i++)
        longest = r->list[i].count > longest ? r->list[i].count : longest;
    return longest;
}

/* Questions go around the copies of the model, all choices of one to the same copy. */
static void run_requests(desk *d)
{
    const wf_gen_requests *all = d->o->requests;
    int64_t question = 0, taken = 0;

    for (int64_t begin = 0, end; begin < all->count; begin = end, question++) {
        end = wf_gen_requests_next(all, begin);
        if (question % d->o->copies != d->o->copy)
            continue;
        for (int64_t i = begin; d->answer && i < end; i++)
            d->answer[i] = (wf_gen_answer){.greedy = true};
        d->slot[taken].begin = begin;
        d->slot[taken++].end = end;
        if (taken < d->o->batch)
            continue;
        if (run_questions(d, taken) != WF_OK || d->stopped)
            return;
        taken = 0;
    }
    run_questions(d, taken);
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
static bool desk_new(desk *d, const wf_gen_answers_options *o, int64_t longest)
{
    const size_t batch = (size_t)o->batch, vocabulary = (size_t)o->model->config.vocabulary;

    *d = (desk){.o = o,
                .slot = calloc(batch, sizeof *d->slot),
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

wf_status wf_gen_answers_find(const wf_gen_answers_options *o, wf_gen_answer *answer)
{
    wf_context *ctx = wf_par_context(o->par);
    const int64_t longest = longest_of(o->requests);
    desk d;

    wf_context_training(ctx, false);
    if (!desk_new(&d, o, longest)) {
        wf_fail(ctx, WF_ENOMEM, "no memory for logits");
    } else if (wf_gen_engine_open(&d.e, &(wf_gen_engine_options){.par = o->par,
                                                                 .model = o->model,
                                                                 .pipelined = o->pipelined,
                                                                 .slots = o->batch,
                                                                 .positions = longest,
                                                                 .chunk = CHUNK}) == WF_OK) {
        d.answer = answer;
        d.planned = wf_context_dry_run(ctx);
        run_requests(&d);
    }
    wf_gen_engine_close(&d.e);
    desk_free(&d, o->batch);
    wf_context_training(ctx, true);
    return wf_context_status(ctx);
}
