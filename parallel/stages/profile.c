/* parallel/stages/profile.c - what is known of actions, written down as they run; see the
   headers. */
#include "parallel/stages/profile_internal.h"
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 256, LAST = WF_PAR_PROFILE_STEPS - 1 };

typedef wf_par_profile_entry entry;
typedef wf_par_profile_table entries;

wf_par_profile *wf_par_profile_new(void)
{
    return calloc(1, sizeof(wf_par_profile));
}

void wf_par_profile_free(wf_par_profile *p)
{
    if (!p)
        return;
    wf_par_profile_end(p);
    for (int i = 0; i < WF_PAR_PROFILE_STEPS; i++)
        free(p->of[i].at);
    free(p->base);
    free(p);
}

int64_t wf_par_profile_entries(const wf_par_profile *p)
{
    return (int64_t)p->of[LAST].n;
}

entry *wf_par_profile_slot(const entries *e, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(hash >> 20) & (e->room - 1);

    while (e->at[i].key && e->at[i].key != key)
        i = (i + 1) & (e->room - 1);
    return &e->at[i];
}

static bool grow(entries *e)
{
    entries wider = {.room = e->room ? 2 * e->room : FEWEST, .n = e->n};

    if (e->room && 2 * e->n < e->room)
        return true;
    wider.at = calloc(wider.room, sizeof *wider.at);
    if (!wider.at)
        return false;
    for (size_t i = 0; i < e->room; i++)
        if (e->at[i].key)
            *wf_par_profile_slot(&wider, e->at[i].key) = e->at[i];
    free(e->at);
    *e = wider;
    return true;
}

static bool same_bytes(const wf_par_profile_bytes *a, const wf_par_profile_bytes *b)
{
    return memcmp(a, b, sizeof *a) == 0; /* whole numbers alone */
}

/* Stores what an action took; of one that is there already the larger stays. */
static void put(wf_par_profile *p, uint64_t key, const entry *taken)
{
    entries *e = &p->of[p->steps - 1 < LAST ? p->steps - 1 : LAST];
    entry *at;

    if (!grow(e)) {
        p->failed = WF_ENOMEM;
        return;
    }
    at = wf_par_profile_slot(e, key);
    if (!at->key) {
        *at = *taken;
        at->key = key;
        e->n++;
        return;
    }
    at->varies |=
        !same_bytes(&at->delta, &taken->delta) || !same_bytes(&at->peak, &taken->peak);
    if (taken->delta.total > at->delta.total)
        at->delta = taken->delta;
    if (taken->peak.total > at->peak.total)
        at->peak = taken->peak;
}

static void keep_text(char *to, size_t size, const char *from)
{
    to[size - 1] = 0;
    memccpy(to, from ? from : "", 0, size - 1);
}

static void watch(void *self, const wf_pool_change *change)
{
    entry *now = self;

    now->delta.total += change->bytes;
    now->delta.kind[change->kind] += change->bytes;
    if (now->delta.total <= now->peak.total)
        return;
    now->peak = now->delta;
    keep_text(now->phase, sizeof now->phase, change->phase);
    keep_text(now->module, sizeof now->module, change->module);
}

void wf_par_profile_before(wf_par_profile *p)
{
    if (!p || p->failed != WF_OK)
        return;
    p->now = (entry){.key = 0};
    p->before[0] = wf_context_flops(p->ctx);
    p->before[1] = wf_context_model_flops(p->ctx);
    wf_pool_watch(wf_context_pool(p->ctx), watch, &p->now);
}

static void note(wf_par_profile *p, uint64_t key)
{
    p->now.flops = wf_context_flops(p->ctx) - p->before[0];
    p->now.model_flops = wf_context_model_flops(p->ctx) - p->before[1];
    put(p, key, &p->now);
}

static void note_action(wf_par_profile *p, uint64_t key)
{
    note(p, key);
    p->flops += p->now.flops;
    p->model_flops += p->now.model_flops;
}

static void end_stored(wf_par_profile *p)
{
    if (p->resting && p->failed == WF_OK)
        note(p, wf_par_profile_stored_key(p->base[p->ranks - 1].stage));
    p->resting = false;
}

static bool same_row(const wf_par_profile *p, const wf_pipe_table *table, int rank,
                     const wf_context *ctx)
{
    return p->row.table == table && p->row.rank == rank && p->ctx == ctx;
}

/* Another rank than before, or the first one. */
static void open_rank(wf_par_profile *p, const wf_pipe_table *table, int rank,
                      wf_par_profile_sums sums, wf_context *ctx)
{
    wf_error error = {WF_OK, ""};
    wf_par_profile_base *more;

    wf_par_profile_end(p);
    more = realloc(p->base, ((size_t)p->ranks + 1) * sizeof *more);
    p->base = more ? more : p->base;
    p->failed =
        more ? wf_par_profile_row_open(&p->row, table, rank, NULL, sums, &error) : WF_ENOMEM;
    if (p->failed != WF_OK)
        return;
    p->ctx = ctx;
    p->steps = 1;
    p->sums = sums;
    p->base[p->ranks++] = (wf_par_profile_base){.stage = p->row.stages ? p->row.stage[0] : 0};
}

void wf_par_profile_begin(wf_par_profile *p, const wf_pipe_table *table, int rank,
                          wf_par_profile_sums sums, wf_context *ctx)
{
    if (!p || p->failed != WF_OK)
        return;
    if (same_row(p, table, rank, ctx)) {
        end_stored(p);
        wf_par_profile_row_restart(&p->row);
        p->steps++;
    } else {
        open_rank(p, table, rank, sums, ctx);
    }
    if (p->failed != WF_OK)
        return;
    p->flops = p->model_flops = 0;
    wf_pool_report(wf_context_pool(ctx),
                   &p->base[p->ranks - 1].before[p->steps - 1 < LAST ? p->steps - 1 : LAST]);
}

void wf_par_profile_after(wf_par_profile *p, const wf_pipe_action *action)
{
    if (p && p->failed == WF_OK)
        note_action(p, wf_par_profile_row_key(&p->row, action));
}

void wf_par_profile_bucket(wf_par_profile *p, int k)
{
    uint64_t key = p && p->failed == WF_OK ? wf_par_profile_row_bucket(&p->row, k) : 0;

    if (key)
        note_action(p, key);
}

void wf_par_profile_stored(wf_par_profile *p)
{
    if (!p || p->failed != WF_OK)
        return;
    wf_par_profile_before(p);
    p->resting = true;
}

void wf_par_profile_end(wf_par_profile *p)
{
    if (!p)
        return;
    end_stored(p);
    if (p->ctx)
        wf_pool_watch(wf_context_pool(p->ctx), NULL, NULL);
    wf_par_profile_row_close(&p->row);
    p->ctx = NULL;
}
