/* parallel/stages/profile_replay.c - a row added up from what a profile knows of its actions;
   see the headers. */
#include "parallel/stages/profile_internal.h"
#include <stdio.h>
#include <string.h>

enum { MERGES = 63 };

typedef wf_par_profile_entry entry;
typedef wf_par_profile_table entries;
typedef wf_par_profile_bytes bytes;

typedef struct replaying {
    const entries *of;
    bytes now;
    wf_par_profile_memory *memory; /* memory, that of steps before this one included */
} replaying;

static void add_bytes(bytes *to, int64_t times, const bytes *b)
{
    to->total += times * b->total;
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        to->kind[k] += times * b->kind[k];
}

static const entry *find(const entries *e, uint64_t key)
{
    const entry *at = e->room ? wf_par_profile_slot(e, key) : NULL;

    return at && at->key ? at : NULL;
}

static bool sums(uint64_t key)
{
    int kind = (int)(key >> 58) - 2;

    return kind == WF_PIPE_B || kind == WF_PIPE_W || kind == WF_PAR_PROFILE_BOTH;
}

/* Finds the bytes that one further merge of a stage gives back, from two entries of sums that
   differ in their merges alone; the number of merges is in 6 bits of the keys from `shift`
   on. */
static bool find_return(const entries *e, uint64_t key, int shift, bytes *given)
{
    const uint64_t stage = UINT64_C(0x3fff) << 44;

    for (size_t i = 0; i < e->room; i++) {
        const entry *a = &e->at[i], *b;

        if (!sums(a->key) || (a->key ^ key) & stage || !(a->key >> shift & MERGES))
            continue;
        b = find(e, a->key + (UINT64_C(1) << shift));
        if (!b)
            continue;
        *given = b->delta;
        add_bytes(given, -1, &a->delta);
        return true;
    }
    return false;
}

/* More merges than the profile has seen where all else is alike: each further one gives back as
   much as another. */
static bool extrapolate_from(const entries *e, uint64_t key, int shift, entry *made)
{
    int64_t merges = (int64_t)(key >> shift & MERGES), seen = merges;
    uint64_t none = key & ~((uint64_t)MERGES << shift);
    const entry *a = NULL;
    bytes given;

    while (seen > 1 && !a)
        a = find(e, none | (uint64_t)--seen << shift);
    if (!a || !find_return(e, key, shift, &given))
        return false;
    *made = *a;
    made->key = key;
    add_bytes(&made->delta, merges - seen, &given);
    return true;
}

static bool extrapolate(const entries *e, uint64_t key, entry *made)
{
    return sums(key) &&
           (extrapolate_from(e, key, 0, made) || extrapolate_from(e, key, 6, made));
}

static void add_entry(replaying *r, const entry *e, int64_t i)
{
    wf_par_profile_memory *m = r->memory;
    bytes top = r->now;

    add_bytes(&r->now, 1, &e->delta);
    m->varied += e->varies;
    m->flops += e->flops;
    m->model_flops += e->model_flops;
    if (top.total + e->peak.total <= (int64_t)m->peak)
        return;
    add_bytes(&top, 1, &e->peak);
    m->peak = (size_t)top.total;
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        m->at_peak[k] = (size_t)top.kind[k];
    memcpy(m->phase, e->phase, sizeof m->phase);
    memcpy(m->module, e->module, sizeof m->module);
    m->action = i;
}

static void add(replaying *r, uint64_t key, int64_t i)
{
    const entry *e = find(r->of, key);
    entry made;

    if (!e && extrapolate(r->of, key, &made))
        e = &made;
    if (!e) {
        r->memory->unknown++;
        return;
    }
    add_entry(r, e, i);
}

static int like_of(const wf_par_profile_row *row, int k)
{
    return row->like ? row->like[row->stage[k]] : row->stage[k];
}

/* Adds the remainder after all actions: its operations are not those of the row. */
static void add_stored(replaying *r, const wf_par_profile_row *row)
{
    entry rest = {.key = 0};

    for (int k = 0; k < row->stages; k++) {
        const entry *e = find(r->of, wf_par_profile_stored_key(like_of(row, k)));

        if (!e)
            continue;
        add_bytes(&rest.delta, 1, &e->delta);
        add_bytes(&rest.peak, 1, &e->peak);
        memcpy(rest.phase, e->phase, sizeof rest.phase);
        memcpy(rest.module, e->module, sizeof rest.module);
        rest.varies |= e->varies;
    }
    add_entry(r, &rest, -1);
}

static void replay_step(replaying *r, wf_par_profile_row *row)
{
    int64_t n;
    const wf_pipe_action *a = wf_pipe_table_row(row->table, row->rank, &n);

    for (int64_t i = 0; i < n && a[i].kind != WF_PIPE_NORM;
         i += wf_par_profile_row_count(row, &a[i])) {
        add(r, wf_par_profile_row_key(row, &a[i]), i);
        for (int k = 0; a[i].kind <= WF_PIPE_R && k < row->stages; k++) {
            uint64_t key = wf_par_profile_row_bucket(row, k);

            if (key && find(r->of, key)) /* nothing follows the last bucket */
                add(r, key, i);
        }
    }
    add_stored(r, row);
}

/* Adds the memory of profiled ranks whose first stage is like each of these; the peak before
   the first step, too, which later ones have from it. */
static void add_bases(const wf_par_profile *p, const wf_par_profile_row *row, int step,
                      replaying *r)
{
    wf_par_profile_memory *m = r->memory;

    for (int k = 0; k < row->stages; k++)
        for (int i = p->ranks - 1; i >= 0; i--) {
            const wf_memory_report *before = &p->base[i].before[step];

            if (p->base[i].stage != like_of(row, k))
                continue;
            r->now.total += (int64_t)before->in_use;
            m->peak += step ? 0 : before->peak;
            for (int kind = 0; kind < WF_MEMORY_KINDS; kind++) {
                r->now.kind[kind] += (int64_t)before->now[kind];
                m->at_peak[kind] += step ? 0 : before->at_peak[kind];
            }
            if (!step) {
                memcpy(m->phase, before->phase, sizeof m->phase);
                memcpy(m->module, before->module, sizeof m->module);
            }
            break;
        }
}

wf_status wf_par_profile_replay(const wf_par_profile *p, const wf_pipe_table *table, int rank,
                                const int *like, wf_par_profile_memory *memory, wf_error *error)
{
    int steps = p->steps < WF_PAR_PROFILE_STEPS ? p->steps : WF_PAR_PROFILE_STEPS;
    wf_par_profile_row row;

    *memory = (wf_par_profile_memory){.action = -1};
    if (p->failed != WF_OK)
        return wf_error_set(error, WF_ENOMEM, "there was no memory to write a profile");
    if (!steps || !p->of[steps - 1].n || !wf_pipe_table_facts(table).lowered)
        return wf_error_set(error, WF_EINVAL,
                            "a profile of a step and a table that is lowered are needed to "
                            "replay a row");
    if (wf_par_profile_row_open(&row, table, rank, like, p->sums, error) != WF_OK)
        return error->code;
    for (int step = 0; step < steps; step++) {
        replaying r = {.of = &p->of[step], .memory = memory};

        add_bases(p, &row, step, &r);
        wf_par_profile_row_restart(&row);
        memory->flops = -p->flops;
        memory->model_flops = -p->model_flops;
        replay_step(&r, &row);
    }
    wf_par_profile_row_close(&row);
    return WF_OK;
}
