/* parallel/train/step_alike.c - what ranks have alike in a step; see the header. */
#include "core/numerics/bits.h"
#include "parallel/agree_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/step_alike_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's facts of a step; gathered where ranks differ. */
typedef struct facts {
    int64_t step, updated;
    uint64_t batch, evaluated;
    float rate, updated_rate,
        clip; /* rate: below 0 where a loop gives it to wf_par_optimizer_step */
    bool reads;
    wf_par_party party;
} facts;

static uint64_t factor_of(int rank)
{
    return wf_mix64((uint64_t)rank) | 1;
}

static bool reads(const wf_par_trainer *t, int rank)
{
    return !t->engine->reads || t->engine->reads(t, rank);
}

/* Returns true where two ranks have to read the same sequences. */
static bool share_batch(const wf_par *par, int a, int b)
{
    for (int i = 0; i < par->n_dp; i++)
        if (wf_mesh_coordinate_of(par->mesh, a, par->dp_axis[i]) !=
            wf_mesh_coordinate_of(par->mesh, b, par->dp_axis[i]))
            return false;
    return true;
}

/* The first rank that has to read what `rank` does, itself maybe. */
static int first_reader(const wf_par_trainer *t, int rank)
{
    int first = 0;

    while (first < rank && !(reads(t, first) && share_batch(t->par, first, rank)))
        first++;
    return first;
}

wf_status wf_par_alike_open(wf_par_trainer *t)
{
    wf_par_alike *a = &t->alike;
    int rank = wf_context_rank(t->par->ctx), ranks = wf_mesh_ranks(t->par->mesh);

    a->batch = calloc((size_t)t->micros + 1, sizeof *a->batch);
    if (!a->batch)
        return wf_fail(t->par->ctx, WF_ENOMEM, "no memory for %" PRId64 " micro-steps",
                       t->micros);
    a->of_world = rank ? factor_of(rank) : 0;
    for (int r = 1; rank == 0 && r < ranks; r++)
        a->of_world -= factor_of(r);
    if (!reads(t, rank))
        return WF_OK;
    a->of_batch = factor_of(rank + ranks);
    if (first_reader(t, rank) < rank)
        return WF_OK;
    a->of_batch = 0;
    for (int r = rank + 1; r < ranks; r++)
        if (reads(t, r) && share_batch(t->par, rank, r))
            a->of_batch -= factor_of(r + ranks);
    return WF_OK;
}

void wf_par_alike_begin(wf_par_trainer *t)
{
    memset(t->alike.batch, 0, (size_t)t->micros * sizeof *t->alike.batch);
    t->alike.rate = -1;
    t->alike.clip = -1;
    t->alike.done = false;
}

void wf_par_alike_read(wf_par_trainer *t, int64_t step, int64_t k, uint64_t hash)
{
    if (t->step.at == WF_PAR_AT_MICRO_STEPS)
        t->alike.batch[k] = hash;
    else
        t->alike.evaluated += wf_mix64(wf_mix64(hash ^ (uint64_t)step) + (uint64_t)k);
}

static facts facts_of(const wf_par_trainer *t)
{
    const wf_par_alike *a = &t->alike;
    facts f;

    memset(&f, 0, sizeof f);
    f.step = t->step.number;
    f.updated = t->committed.step;
    f.evaluated = a->evaluated;
    f.rate = a->rate;
    f.updated_rate = t->committed.lr;
    f.clip = a->clip;
    for (int64_t k = 0; k < t->micros; k++)
        f.batch = wf_mix64(f.batch ^ a->batch[k]);
    return f;
}

static uint64_t add_number(uint64_t hash, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return wf_mix64(hash ^ bits);
}

uint64_t wf_par_alike_summand(const wf_par_trainer *t)
{
    const facts f = facts_of(t);
    uint64_t hash = wf_mix64(wf_mix64((uint64_t)f.step) ^ (uint64_t)f.updated);

    hash = add_number(add_number(add_number(hash, f.rate), f.updated_rate), f.clip);
    return t->alike.of_world * hash + t->alike.of_batch * wf_mix64(f.batch ^ f.evaluated);
}

/* Writes the difference between two ranks over the world; false: there is none. */
static bool put_difference(const facts *a, const facts *b, char *text, size_t room)
{
    const char *one = a->party.text, *other = b->party.text;

    if (a->step != b->step)
        snprintf(text, room, "%s is in step %" PRId64 " and %s in step %" PRId64, one, a->step,
                 other, b->step);
    else if (a->updated != b->updated)
        snprintf(text, room,
                 "the last update of %s was that of step %" PRId64
                 " and that of %s of step %" PRId64 ": one of them has skipped an update",
                 one, a->updated, other, b->updated);
    else if (memcmp(&a->rate, &b->rate, sizeof a->rate) != 0)
        snprintf(text, room, "the learning rate is %.9g on %s and %.9g on %s", (double)a->rate,
                 one, (double)b->rate, other);
    else if (memcmp(&a->updated_rate, &b->updated_rate, sizeof a->updated_rate) != 0)
        snprintf(text, room,
                 "the learning rate of the update before was %.9g on %s and %.9g on %s",
                 (double)a->updated_rate, one, (double)b->updated_rate, other);
    else if (memcmp(&a->clip, &b->clip, sizeof a->clip) != 0)
        snprintf(text, room, "gradients are clipped by %.9g on %s and by %.9g on %s",
                 (double)a->clip, one, (double)b->clip, other);
    else
        return false;
    return true;
}

/* The same of two ranks that share a batch. */
static bool put_batch(const facts *a, const facts *b, char *text, size_t room)
{
    bool now = a->batch != b->batch;

    if (!now && a->evaluated == b->evaluated)
        return false;
    snprintf(text, room,
             "%s and %s have to read the same sequences and read different ones%s: digests "
             "%016" PRIx64 " and %016" PRIx64,
             a->party.text, b->party.text, now ? "" : " in an evaluation",
             now ? a->batch : a->evaluated, now ? b->batch : b->evaluated);
    return true;
}

wf_status wf_par_alike_check(wf_par_trainer *t, uint64_t sum)
{
    int rank = wf_context_rank(t->par->ctx), ranks = wf_mesh_ranks(t->par->mesh);
    char text[500] = "facts of ranks differ", message[WF_ERROR_TEXT];
    bool found = false;
    int other = 0;
    const facts *all;
    facts mine;

    t->alike.done = true;
    if (wf_context_status(t->par->ctx) != WF_OK || wf_context_dry_run(t->par->ctx) ||
        sum == 0) {
        t->alike.evaluated = 0;
        return wf_context_status(t->par->ctx);
    }
    mine = facts_of(t);
    mine.reads = reads(t, rank);
    mine.party = wf_par_party_of(rank);
    all = wf_mesh_gather(t->par->mesh, &mine, sizeof mine);
    if (!all)
        return wf_context_status(t->par->ctx);
    for (int r = 1; r < ranks && !found; r++) {
        found = put_difference(&all[0], &all[r], text, sizeof text);
        other = found ? r : 0;
    }
    for (int r = 1; r < ranks && !found; r++) {
        found = all[r].reads && put_batch(&all[first_reader(t, r)], &all[r], text, sizeof text);
        other = found ? r : 0;
    }
    snprintf(message, sizeof message, "ranks do not do the same in step %" PRId64 ": %s",
             all[0].step, text);
    return wf_par_fail_as(t->par, other, WF_EMISMATCH, message);
}

static void add(void *into, const void *from, size_t bytes)
{
    (void)bytes;
    *(uint64_t *)into += *(const uint64_t *)from;
}

wf_status wf_par_alike_agree(wf_par_trainer *t)
{
    uint64_t sum = wf_par_alike_summand(t);

    if (wf_mesh_ranks(t->par->mesh) == 1 || wf_agree_on(t->par, sizeof sum, &sum, add) != WF_OK)
        return wf_context_status(t->par->ctx);
    return wf_par_alike_check(t, sum);
}
