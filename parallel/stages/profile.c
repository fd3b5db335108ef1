/* parallel/stages/profile.c - what is known of actions, written down as they run; see the
   headers. */
#include "parallel/stages/profile_internal.h"
#include <stdlib.h>
#include <string.h>

/* Steps of which a profile keeps entries: the first one, which finds things as they were made,
   and all later ones. */
enum { STEPS = 2, FEWEST = 256, MERGES = 63 };

typedef struct entry {
    uint64_t key; /* 0: empty */
    int64_t delta, peak;
} entry;

/* The entries of a step: a hash table, never more than half full. */
typedef struct entries {
    entry *at;
    size_t room, n;
} entries;

/* A rank's memory before each step; `stage` is its first stage. */
typedef struct base {
    int stage;
    size_t before[STEPS], peak[STEPS]; /* in use as the step begins; the peak until then */
} base;

struct wf_par_profile {
    wf_par_profile_sums sums;
    entries of[STEPS];
    base *base; /* [ranks] */
    int ranks;
    wf_status failed;
    /* while it is written */
    wf_par_profile_row row;
    wf_pool *pool;
    int step; /* counted from 0 */
    size_t before;
    bool resting;
};

wf_par_profile *wf_par_profile_new(void)
{
    return calloc(1, sizeof(wf_par_profile));
}

void wf_par_profile_free(wf_par_profile *p)
{
    if (!p)
        return;
    wf_par_profile_end(p);
    for (int i = 0; i < STEPS; i++)
        free(p->of[i].at);
    free(p->base);
    free(p);
}

int64_t wf_par_profile_entries(const wf_par_profile *p)
{
    return (int64_t)p->of[STEPS - 1].n;
}

static entry *place_of(const entries *e, uint64_t key)
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
            *place_of(&wider, e->at[i].key) = e->at[i];
    free(e->at);
    *e = wider;
    return true;
}

/* Stores an entry; one that is there already keeps the larger of both values. */
static void put(wf_par_profile *p, uint64_t key, int64_t delta, int64_t peak)
{
    entries *e = &p->of[p->step < STEPS ? p->step : STEPS - 1];
    entry *at;

    if (!grow(e)) {
        p->failed = WF_ENOMEM;
        return;
    }
    at = place_of(e, key);
    if (!at->key) {
        *at = (entry){key, delta, peak};
        e->n++;
    } else {
        at->delta = delta > at->delta ? delta : at->delta;
        at->peak = peak > at->peak ? peak : at->peak;
    }
}

/* ---- recording ---- */

void wf_par_profile_before(wf_par_profile *p)
{
    wf_memory_report report;

    if (!p || p->failed != WF_OK)
        return;
    wf_pool_mark(p->pool);
    wf_pool_report(p->pool, &report);
    p->before = report.in_use;
}

static void note(wf_par_profile *p, uint64_t key)
{
    wf_memory_report report;

    wf_pool_report(p->pool, &report);
    put(p, key, (int64_t)report.in_use - (int64_t)p->before,
        (int64_t)wf_pool_most(p->pool) - (int64_t)p->before);
}

static void end_rest(wf_par_profile *p)
{
    if (p->resting && p->failed == WF_OK)
        note(p, wf_par_profile_rest_key(p->base[p->ranks - 1].stage));
    p->resting = false;
}

static bool same_row(const wf_par_profile *p, const wf_pipe_table *table, int rank,
                     const wf_pool *pool)
{
    return p->row.table == table && p->row.rank == rank && p->pool == pool;
}

/* Another rank than before, or the first one. */
static void open_rank(wf_par_profile *p, const wf_pipe_table *table, int rank,
                      wf_par_profile_sums sums, wf_pool *pool)
{
    wf_error error = {WF_OK, ""};
    base *more;

    wf_par_profile_end(p);
    more = realloc(p->base, ((size_t)p->ranks + 1) * sizeof *more);
    p->base = more ? more : p->base;
    p->failed =
        more ? wf_par_profile_row_open(&p->row, table, rank, NULL, sums, &error) : WF_ENOMEM;
    if (p->failed != WF_OK)
        return;
    p->pool = pool;
    p->step = 0;
    p->sums = sums;
    p->base[p->ranks++] = (base){.stage = p->row.stages ? p->row.stage[0] : 0};
}

void wf_par_profile_begin(wf_par_profile *p, const wf_pipe_table *table, int rank,
                          wf_par_profile_sums sums, wf_pool *pool)
{
    wf_memory_report report;
    int step;

    if (!p || p->failed != WF_OK)
        return;
    if (same_row(p, table, rank, pool)) {
        end_rest(p);
        wf_par_profile_row_restart(&p->row);
        p->step++;
    } else {
        open_rank(p, table, rank, sums, pool);
    }
    if (p->failed != WF_OK)
        return;
    wf_pool_report(pool, &report);
    step = p->step < STEPS ? p->step : STEPS - 1;
    p->base[p->ranks - 1].before[step] = report.in_use;
    p->base[p->ranks - 1].peak[step] = report.peak;
}

void wf_par_profile_after(wf_par_profile *p, const wf_pipe_action *action)
{
    if (p && p->failed == WF_OK)
        note(p, wf_par_profile_row_key(&p->row, action));
}

void wf_par_profile_bucket(wf_par_profile *p, int k)
{
    uint64_t key = p && p->failed == WF_OK ? wf_par_profile_row_bucket(&p->row, k) : 0;

    if (key)
        note(p, key);
}

void wf_par_profile_rest(wf_par_profile *p)
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
    end_rest(p);
    wf_par_profile_row_close(&p->row);
    p->pool = NULL;
}

/* ---- replay ---- */

typedef struct replaying {
    const entries *of;
    int64_t now, peak, at, unknown;
} replaying;

static const entry *find(const entries *e, uint64_t key)
{
    const entry *at = e->room ? place_of(e, key) : NULL;

    return at && at->key ? at : NULL;
}

static bool sums(uint64_t key)
{
    int kind = (int)(key >> 58) - 2;

    return kind == WF_PIPE_B || kind == WF_PIPE_W;
}

/* Finds the bytes that one further merge of a stage gives back, from two entries of W or B that
   differ in their merges alone; the number of merges is in 6 bits of the keys from `shift`
   on. */
static bool find_return(const entries *e, uint64_t key, int shift, int64_t *given)
{
    const uint64_t stage = UINT64_C(0x3fff) << 44;

    for (size_t i = 0; i < e->room; i++) {
        const entry *a = &e->at[i], *b;

        if (!sums(a->key) || (a->key ^ key) & stage || !(a->key >> shift & MERGES))
            continue;
        b = find(e, a->key + (UINT64_C(1) << shift));
        if (!b)
            continue;
        *given = b->delta - a->delta;
        return true;
    }
    return false;
}

/* More merges than the profile has seen where all else is alike: each further one gives back as
   much as another. */
static bool extrapolate_from(const entries *e, uint64_t key, int shift, entry *made)
{
    int64_t merges = (int64_t)(key >> shift & MERGES), seen = merges, given;
    uint64_t none = key & ~((uint64_t)MERGES << shift);
    const entry *a = NULL;

    while (seen > 1 && !a)
        a = find(e, none | (uint64_t)--seen << shift);
    if (!a || !find_return(e, key, shift, &given))
        return false;
    *made = (entry){key, a->delta + (merges - seen) * given, a->peak};
    return true;
}

static bool extrapolate(const entries *e, uint64_t key, entry *made)
{
    return sums(key) &&
           (extrapolate_from(e, key, 0, made) || extrapolate_from(e, key, 6, made));
}

static void add_entry(replaying *r, const entry *e, int64_t i)
{
    if (r->now + e->peak > r->peak) {
        r->peak = r->now + e->peak;
        r->at = i;
    }
    r->now += e->delta;
}

static void add(replaying *r, uint64_t key, int64_t i)
{
    const entry *e = find(r->of, key);
    entry made;

    if (!e && extrapolate(r->of, key, &made))
        e = &made;
    if (!e) {
        r->unknown++;
        return;
    }
    add_entry(r, e, i);
}

static int like_of(const wf_par_profile_row *row, int k)
{
    return row->like ? row->like[row->stage[k]] : row->stage[k];
}

static void replay_step(replaying *r, wf_par_profile_row *row)
{
    int64_t n;
    const wf_pipe_action *a = wf_pipe_table_row(row->table, row->rank, &n);
    entry rest = {.key = 0};

    for (int64_t i = 0; i < n && a[i].kind != WF_PIPE_NORM; i++) {
        add(r, wf_par_profile_row_key(row, &a[i]), i);
        for (int k = 0; a[i].kind <= WF_PIPE_R && k < row->stages; k++) {
            uint64_t key = wf_par_profile_row_bucket(row, k);

            if (key && find(r->of, key)) /* nothing follows the last bucket */
                add(r, key, i);
        }
    }
    for (int k = 0; k < row->stages; k++) {
        const entry *e = find(r->of, wf_par_profile_rest_key(like_of(row, k)));

        rest.delta += e ? e->delta : 0;
        rest.peak += e ? e->peak : 0;
    }
    add_entry(r, &rest, -1);
}

/* Adds the memory of profiled ranks whose first stage is like each of these. */
static void add_bases(const wf_par_profile *p, const wf_par_profile_row *row, int step,
                      replaying *r)
{
    for (int k = 0; k < row->stages; k++)
        for (int i = p->ranks - 1; i >= 0; i--)
            if (p->base[i].stage == like_of(row, k)) {
                r->now += (int64_t)p->base[i].before[step];
                r->peak += (int64_t)p->base[i].peak[step];
                break;
            }
}

wf_status wf_par_profile_replay(const wf_par_profile *p, const wf_pipe_table *table, int rank,
                                const int *like, wf_par_profile_memory *memory, wf_error *error)
{
    wf_par_profile_row row;

    *memory = (wf_par_profile_memory){.action = -1};
    if (p->failed != WF_OK)
        return wf_error_set(error, WF_ENOMEM, "there was no memory to write a profile");
    if (!p->of[STEPS - 1].n || !wf_pipe_table_facts(table).lowered)
        return wf_error_set(error, WF_EINVAL,
                            "a profile of two steps and a table that is lowered are needed to "
                            "replay a row");
    if (wf_par_profile_row_open(&row, table, rank, like, p->sums, error) != WF_OK)
        return error->code;
    for (int step = 0; step < STEPS; step++) {
        replaying r = {.of = &p->of[step], .at = -1};

        add_bases(p, &row, step, &r);
        if (step > 0) {
            r.peak = (int64_t)memory->peak;
            r.at = memory->action;
        }
        wf_par_profile_row_restart(&row);
        replay_step(&r, &row);
        memory->peak = (size_t)r.peak;
        memory->action = r.at;
        memory->unknown += r.unknown;
    }
    wf_par_profile_row_close(&row);
    return WF_OK;
}
