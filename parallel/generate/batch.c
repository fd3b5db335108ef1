/* parallel/generate/batch.c - slots, and the texts in them; see the header. */
#include "parallel/generate/batch.h"
#include "core/numerics/random.h"
#include <stdlib.h>
#include <string.h>

enum { ECHO = 64 }; /* tokens of a prompt whose logits are there at once */

typedef struct batch {
    wf_gen_engine *e;
    const wf_gen_options *o;
    const wf_gen_prompt *prompts;
    const wf_gen_events *events;
    wf_gen_text **slot; /* NULL: free */
    wf_gen_engine_row *row;
    float *logits, *logsumexp;
    wf_gen_sampling_candidate *room;
    uint64_t key;
} batch;

void wf_gen_text_free(wf_gen_text *t)
{
    if (!t)
        return;
    free(t->ids);
    free(t->logprob);
    free(t->top);
    free(t->top_logprob);
    wf_tok_bytes_free(&t->text);
    memset(t, 0, sizeof *t);
}

size_t wf_gen_text_settled(const wf_gen_options *o, const wf_gen_text *t)
{
    size_t longest = 0;

    if (t->finish)
        return t->text.bytes;
    for (int64_t i = 0; i < o->n_stops; i++)
        if (strlen(o->stops[i]) > longest)
            longest = strlen(o->stops[i]);
    if (longest <= 1)
        return t->text.bytes;
    return t->text.bytes < longest - 1
               ? 0
               : wf_tok_whole(t->text.data, t->text.bytes - (longest - 1));
}

static wf_status no_memory(batch *b)
{
    return wf_fail(b->e->ctx, WF_ENOMEM, "no memory for texts");
}

static wf_gen_text *text_new(batch *b, int64_t index)
{
    const wf_gen_prompt *p = &b->prompts[index];
    size_t most = (size_t)(p->count + b->o->most), top = (size_t)b->o->top;
    wf_gen_text *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->index = index;
    t->count = t->prompt = p->count;
    t->ids = calloc(most + 1, sizeof *t->ids);
    if (b->o->logprobs || b->o->prompt_logprobs)
        t->logprob = calloc(most + 1, sizeof *t->logprob);
    if (top) {
        t->top = calloc(most * top, sizeof *t->top);
        t->top_logprob = calloc(most * top, sizeof *t->top_logprob);
    }
    if (t->ids && (t->logprob || !(b->o->logprobs || b->o->prompt_logprobs)) &&
        (!top || (t->top && t->top_logprob))) {
        memcpy(t->ids, p->ids, (size_t)p->count * sizeof *t->ids);
        return t;
    }
    wf_gen_text_free(t);
    free(t);
    return NULL;
}

/* The bits of a loss: log probabilities are rounded where losses are (wf_nn_logsumexp). */
static float logprob_of(float logit, float logsumexp)
{
    return -(logsumexp - (logit + 0.0f));
}

wf_status wf_gen_logprobs(wf_gen_engine *e, int64_t slot, int64_t length, const int32_t *ids,
                          int64_t count, float *logprob)
{
    int64_t v = e->vocabulary;
    float *logits = malloc(sizeof *logits * ECHO * (size_t)v);
    float *sums = malloc(sizeof *sums * ECHO);
    wf_status status = wf_context_status(e->ctx);

    if (!logits || !sums)
        status = wf_fail(e->ctx, WF_ENOMEM, "no memory for log probabilities");
    for (int64_t at = 0; at < count && status == WF_OK; at += ECHO) {
        int64_t n = count - at < ECHO ? count - at : ECHO;

        status = wf_gen_engine_prefill(e, slot, length, at, ids + at, n, logits, sums);
        for (int64_t i = 0; i < n && status == WF_OK; i++)
            logprob[at + i + 1] = logprob_of(logits[i * v + ids[at + i + 1]], sums[i]);
    }
    free(logits);
    free(sums);
    return status;
}

/* All of the prompt but its last token goes to the slot. */
static wf_status prefill(batch *b, int64_t slot, wf_gen_text *t)
{
    int64_t before = t->prompt - 1;

    return b->o->prompt_logprobs
               ? wf_gen_logprobs(b->e, slot, t->prompt, t->ids, before, t->logprob)
               : wf_gen_engine_prefill(b->e, slot, t->prompt, 0, t->ids, before, NULL, NULL);
}

/* Returns true where a stop string has come; the text is cut before the first one. */
static bool stop_in(const wf_gen_options *o, wf_gen_text *t, size_t before)
{
    size_t cut = SIZE_MAX;

    for (int64_t i = 0; i < o->n_stops; i++) {
        size_t n = strlen(o->stops[i]), from = before < n ? 0 : before - n + 1;
        char *found = t->text.bytes - from >= n && n
                          ? memmem(t->text.data + from, t->text.bytes - from, o->stops[i], n)
                          : NULL;

        if (found && (size_t)(found - t->text.data) < cut)
            cut = (size_t)(found - t->text.data);
    }
    if (cut == SIZE_MAX)
        return false;
    t->text.bytes = cut;
    return true;
}

static bool is_end(const wf_gen_options *o, int32_t id)
{
    for (int64_t i = 0; i < o->n_ends; i++)
        if (o->ends[i] == id)
            return true;
    return false;
}

static void note_top(batch *b, wf_gen_text *t, const float *logits, float logsumexp)
{
    int64_t n = b->o->top, at = t->count * n;

    if (!n)
        return;
    wf_gen_sampling_top(logits, b->o->size, n, t->top + at, b->room);
    for (int64_t i = 0; i < n; i++)
        t->top_logprob[at + i] = logprob_of(logits[t->top[at + i]], logsumexp);
}

/* One token more, drawn from these logits. */
static wf_status grow(batch *b, wf_gen_text *t, const float *logits, float logsumexp)
{
    const wf_gen_options *o = b->o;
    const wf_gen_sampling_text so_far = {t->ids, t->count, t->prompt};
    double uniform =
        (double)wf_random_uniform(b->key, b->prompts[t->index].stream, (uint64_t)t->count);
    int32_t id = wf_gen_sampling_draw(&o->sampling, &so_far, logits, o->size, uniform, b->room);
    size_t before = t->text.bytes;
    wf_error error = {WF_OK, ""};
    bool cut;

    if (o->logprobs)
        t->logprob[t->count] = logprob_of(logits[id], logsumexp);
    note_top(b, t, logits, logsumexp);
    t->ids[t->count++] = id;
    if (is_end(o, id))
        t->finish = "stop";
    else if (o->tokenizer && wf_tok_decode_next(o->tokenizer, &t->stream, id,
                                                WF_TOK_SKIP_SPECIAL, &t->text, &error) != WF_OK)
        return wf_fail(b->e->ctx, error.code, "%s", error.text);
    cut = !t->finish && stop_in(o, t, before);
    if (cut)
        t->finish = "stop";
    else if (!t->finish && (t->count - t->prompt >= o->most || t->count >= b->e->o.positions))
        t->finish = "length";
    if (t->finish && o->tokenizer && !cut &&
        wf_tok_decode_end(&t->stream, &t->text, &error) != WF_OK)
        return wf_fail(b->e->ctx, error.code, "%s", error.text);
    return WF_OK;
}

static void finish(batch *b, int64_t slot)
{
    wf_gen_text *t = b->slot[slot];

    if (b->events->finished && t->finish)
        b->events->finished(b->events->arg, t);
    wf_gen_text_free(t);
    free(t);
    b->slot[slot] = NULL;
}

/* One token more of every text. */
static wf_status step(batch *b)
{
    wf_status status;
    int64_t n = 0, v = b->e->vocabulary;

    for (int64_t s = 0; s < b->e->o.slots; s++)
        if (b->slot[s]) {
            const wf_gen_text *t = b->slot[s];

            b->row[n++] = (wf_gen_engine_row){s, t->count - 1, t->ids[t->count - 1], t->ids};
        }
    status = wf_gen_engine_next(b->e, n, b->row, b->logits,
                                b->o->logprobs || b->o->top ? b->logsumexp : NULL);
    for (int64_t i = 0; i < n && status == WF_OK; i++) {
        int64_t slot = b->row[i].slot;

        status = grow(b, b->slot[slot], b->logits + i * v, b->logsumexp[i]);
        if (status == WF_OK && b->events->token)
            b->events->token(b->events->arg, b->slot[slot]);
        if (status == WF_OK && b->slot[slot]->finish)
            finish(b, slot);
    }
    return status;
}

static int64_t active(const batch *b)
{
    int64_t n = 0;

    for (int64_t s = 0; s < b->e->o.slots; s++)
        n += b->slot[s] != NULL;
    return n;
}

static wf_status run(batch *b, int64_t count, int64_t first, int64_t by)
{
    wf_status status = WF_OK;
    int64_t next = first;

    while (status == WF_OK && (next < count || active(b))) {
        for (int64_t s = 0; s < b->e->o.slots && next < count && status == WF_OK; s++) {
            if (b->slot[s])
                continue;
            b->slot[s] = text_new(b, next);
            status = b->slot[s] ? prefill(b, s, b->slot[s]) : no_memory(b);
            next += by;
        }
        if (status == WF_OK)
            status = step(b);
    }
    return status;
}

wf_status wf_gen_run(wf_gen_engine *e, const wf_gen_options *o, const wf_gen_prompt *prompts,
                     int64_t count, int64_t first, int64_t step_by, const wf_gen_events *events)
{
    size_t slots = (size_t)e->o.slots;
    batch b = {.e = e,
               .o = o,
               .prompts = prompts,
               .events = events,
               .slot = calloc(slots, sizeof *b.slot),
               .row = calloc(slots, sizeof *b.row),
               .logits = malloc(slots * (size_t)e->vocabulary * sizeof *b.logits),
               .logsumexp = calloc(slots, sizeof *b.logsumexp),
               .room = malloc((size_t)e->vocabulary * sizeof *b.room),
               .key = wf_random_key(o->seed, WF_RANDOM_SAMPLE)};
    wf_status status = b.slot && b.row && b.logits && b.logsumexp && b.room
                           ? run(&b, count, first, step_by)
                           : no_memory(&b);

    for (size_t s = 0; b.slot && s < slots; s++)
        if (b.slot[s]) {
            b.slot[s]->finish = NULL;
            finish(&b, (int64_t)s);
        }
    free(b.slot);
    free(b.row);
    free(b.logits);
    free(b.logsumexp);
    free(b.room);
    return status;
}
