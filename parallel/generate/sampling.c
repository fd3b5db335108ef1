/* parallel/generate/sampling.c - penalties, filters and a draw; see the header. */
#include "parallel/generate/sampling.h"
#include "core/numerics/math.h"
#include <stdbool.h>
#include <stdlib.h>

static int by_score(const void *a, const void *b)
{
    const wf_gen_sampling_candidate *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const wf_gen_sampling_candidate *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Divided or multiplied once for an id that the text has; less for each time that it was
   generated. */
static void penalize(const wf_gen_sampling *s, const wf_gen_sampling_text *text, int64_t size,
                     wf_gen_sampling_candidate *c)
{
    for (int64_t i = 0; i < text->count; i++)
        if (text->ids[i] >= 0 && text->ids[i] < size) {
            int32_t *seen = &c[text->ids[i]].seen;

            *seen = i < text->prompt ? 1 : (*seen & 1) + 2 * (*seen / 2 + 1);
        }
    for (int64_t i = 0; i < size; i++) {
        int32_t generated = c[i].seen / 2;

        if (!c[i].seen)
            continue;
        c[i].score = c[i].score < 0 ? c[i].score * s->repetition_penalty
                                    : c[i].score / s->repetition_penalty;
        if (generated)
            c[i].score -= s->presence_penalty + generated * s->frequency_penalty;
    }
}

static bool penalizes(const wf_gen_sampling *s)
{
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static bool filters(const wf_gen_sampling *s)
{
    return s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

/* Scores of all tokens, in the order of ids; returns the first of the greatest. */
static int64_t score(const wf_gen_sampling *s, const wf_gen_sampling_text *text,
                     const float *logits, int64_t size, wf_gen_sampling_candidate *c)
{
    int64_t best = 0;

    for (int64_t i = 0; i < size; i++)
        c[i] = (wf_gen_sampling_candidate){(double)logits[i], (int32_t)i, 0};
    if (penalizes(s))
        penalize(s, text, size, c);
    for (int64_t i = 0; i < size && s->temperature > 0; i++)
        c[i].score /= s->temperature;
    for (int64_t i = 1; i < size; i++)
        if (c[i].score > c[best].score)
            best = i;
    return best;
}

/* Those near the best go to the front, and only they are sorted where that is enough: a
   vocabulary is large, and nearly all of it far below. */
static int64_t bring_near(wf_gen_sampling_candidate *c, int64_t n, double least)
{
    int64_t near = 0;

    for (int64_t i = 0; i < n; i++)
        if (c[i].score >= least) {
            wf_gen_sampling_candidate other = c[near];

            c[near++] = c[i];
            c[i] = other;
        }
    return near;
}

/* Returns how many of `size` candidates are kept, of which the first `sorted` are the likeliest
   in order; a number of at least `sorted` where more have to be sorted. */
static int64_t kept_of(const wf_gen_sampling *s, const wf_gen_sampling_candidate *c,
                       int64_t sorted, int64_t size)
{
    int64_t n = size, kept = 0;
    double sum = 0, before = 0;

    if (s->top_k > 0 && s->top_k < size) {
        if (s->top_k >= sorted && sorted < size)
            return sorted;
        for (n = s->top_k; n < sorted && c[n].score == c[s->top_k - 1].score;)
            n++;
    }
    if (s->top_p < 1) {
        for (int64_t i = 0; i < n; i++)
            sum += wf_expd(c[i].score - c[0].score);
        for (; kept < n && kept < sorted && (kept == 0 || before < s->top_p * sum); kept++)
            before += wf_expd(c[kept].score - c[0].score);
        n = kept;
    }
    if (s->min_p > 0) {
        for (kept = 1;
             kept < n && kept < sorted && wf_expd(c[kept].score - c[0].score) >= s->min_p;)
            kept++;
        n = kept;
    }
    return n;
}

int64_t wf_gen_sampling_filter(const wf_gen_sampling *s, const wf_gen_sampling_text *text,
                               const float *logits, int64_t size,
                               wf_gen_sampling_candidate *room)
{
    const double far = 12; /* 6e-6 of the best's probability */
    int64_t best = score(s, text, logits, size, room);
    int64_t sorted = bring_near(room, size, room[best].score - far), kept;

    qsort(room, (size_t)sorted, sizeof *room, by_score);
    kept = kept_of(s, room, sorted, size);
    if (kept < sorted || sorted == size)
        return kept;
    qsort(room, (size_t)size, sizeof *room, by_score);
    return kept_of(s, room, size, size);
}

int32_t wf_gen_sampling_draw(const wf_gen_sampling *s, const wf_gen_sampling_text *text,
                             const float *logits, int64_t size, double uniform,
                             wf_gen_sampling_candidate *room)
{
    int64_t n = size, best = 0;
    double sum = 0;

    if (s->temperature <= 0 || !filters(s)) {
        best = score(s, text, logits, size, room);
        if (s->temperature <= 0)
            return (int32_t)best;
    } else {
        n = wf_gen_sampling_filter(s, text, logits, size, room);
        qsort(room, (size_t)n, sizeof *room, by_id);
        for (int64_t i = 1; i < n; i++)
            best = room[i].score > room[best].score ? i : best;
    }
    for (int64_t i = 0; i < n; i++)
        sum += wf_expd(room[i].score - room[best].score);
    uniform *= sum;
    for (int64_t i = 0; i < n; i++) {
        uniform -= wf_expd(room[i].score - room[best].score);
        if (uniform < 0)
            return room[i].id;
    }
    return room[best].id;
}

void wf_gen_sampling_top(const float *logits, int64_t size, int64_t count, int32_t *ids,
                         wf_gen_sampling_candidate *room)
{
    for (int64_t i = 0; i < size; i++)
        room[i] = (wf_gen_sampling_candidate){(double)logits[i], (int32_t)i, 0};
    qsort(room, (size_t)size, sizeof *room, by_score);
    for (int64_t i = 0; i < count && i < size; i++)
        ids[i] = room[i].id;
}
