/* parallel/plan/search.c - the search: candidates by their bounds, simulated until no bound is
   better, and planned. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 2 };

static void choose(char *field, const char *word)
{
    snprintf(field, WF_WORD, "%s", word);
}

/* Sets what a search varies of models whose sizes are known. */
static void choose_details(wf_plan_request *o, const wf_search_candidate *c)
{
    const char *dtype = wf_dtype_word((wf_dtype)c->dtype);

    choose(o->recompute, wf_search_recompute[c->recompute]);
    choose(o->dtype, dtype);
    wf_plan_derive_compute(o);
    if (!o->given[WF_SETTING_param_dtype])
        choose(o->param_dtype, dtype);
    if (o->dp > 1)
        choose(o->accumulate, wf_search_accumulate[c->accumulate]);
}

wf_plan_request wf_search_options(const wf_search *s, const wf_search_candidate *c)
{
    wf_plan_request o = *s->options; /* its texts stay the caller's */

    o.threads_per_rank = s->threads;
    o.pp = c->pp;
    o.tp = c->tp;
    o.cp = wf_search_cp(c);
    if (o.cp > 1 && !o.given[WF_SETTING_cp_form] && !s->timed)
        choose(o.cp_form, c->gather_keys && !wf_search_must_gather(s, c) ? "gather" : "auto");
    o.dp = (int64_t)c->shard * c->replicate;
    o.micro_batch_size = c->micro;
    o.sequence_parallel = c->sequence_parallel;
    if (!o.job.mesh.axes)
        choose(o.strategy, (o.dp > 1 ? wf_search_strategy(c) : wf_strategy_to_search(0))->name);
    if (!o.job.mesh.axes)
        o.etp = c->features ? c->tp : 1;
    wf_plan_set_ep(&o, wf_search_ep(c));
    o.dp_replicate = wf_search_strategy(c)->groups ? c->replicate : 0;
    o.shard_group_size = wf_search_strategy(c)->groups ? c->shard : 0;
    if (!s->timed)
        choose_details(&o, c);
    if (c->pp > 1) {
        o.pp_schedule = wf_search_schedule(c).name;
        o.pp_virtual = c->per_rank;
    } else if (o.pipeline_field) { /* a simple layout beside those that were asked for */
        o.pp_schedule = WF_PIPE_SCHEDULE;
        o.pp_virtual = 0;
    }
    o.job.steps = 2;
    o.job.train.schedule.warmup = 0; /* longer than the run is refused */
    o.job.eval_interval = 0;
    o.rank = wf_plan_ranks(&o) - 1;
    return o;
}

/* Takes from the end of a plan whether it fits, or why it is refused. */
static bool take_outcome(wf_search *s, wf_search_found *found, const wf_error *error)
{
    found->fits = error->code == WF_OK;
    found->refused = !found->fits && error->code != WF_ENOMEM;
    if (found->refused && s->refusal.code == WF_OK)
        s->refusal = *error;
    return found->fits;
}

bool wf_search_plan_fullest(wf_search *s, wf_search_found *found)
{
    wf_plan_request o = wf_search_options(s, &found->candidate);
    wf_error error = {WF_OK, ""};
    wf_plan run;

    o.job.steps = 1;
    o.rank = (found->rank + 1) * (s->ranks / o.pp) - 1;
    wf_plan_request_within(&o, false, (size_t)o.device_memory, &run, &error);
    return take_outcome(s, found, &error);
}

bool wf_search_plan(wf_search *s, wf_search_found *found)
{
    wf_plan_request o = wf_search_options(s, &found->candidate);
    wf_error error = {WF_OK, ""};
    wf_plan_peak peak;

    o.job.steps = STEPS;
    s->planned++;
    found->planned = true;
    wf_plan_request_peaks(&o, (size_t)o.device_memory, &peak, &error);
    found->peak = error.code == WF_OK ? peak.bytes : 0;
    found->rank = peak.rank;
    return take_outcome(s, found, &error);
}

bool wf_search_may_run(wf_search *s, const wf_search_candidate *c)
{
    const wf_plan_request o = wf_search_options(s, c);
    wf_error error = {WF_OK, ""};

    if (wf_plan_request_check(&o, &error) != WF_OK && s->refusal.code == WF_OK)
        s->refusal = error;
    return error.code == WF_OK;
}

/* Returns true where an estimate leaves it open that a candidate fits; counts the others. */
static bool may_fit(wf_search *s, double bytes)
{
    bool may = wf_search_may_fit(s, bytes);

    s->left_out[WF_SEARCH_ESTIMATE] += !may;
    return may;
}

static bool least_may_fit(wf_search *s, const wf_search_candidate *c)
{
    return s->timed || !s->options->device_memory || may_fit(s, wf_search_least_memory(s, c));
}

static int by_bound(const void *a, const void *b)
{
    const wf_search_candidate *x = a, *y = b;

    return x->bound < y->bound ? -1 : x->bound > y->bound;
}

static bool insert(wf_search *s, const wf_search_found *found)
{
    int64_t at = s->n_top;

    if (s->n_top == s->room_top) {
        int64_t wider = s->room_top ? 2 * s->room_top : 64;
        wf_search_found *more = realloc(s->top, (size_t)wider * sizeof *more);

        if (!more)
            return false;
        s->top = more;
        s->room_top = wider;
    }
    while (at > 0 && s->top[at - 1].seconds > found->seconds)
        at--;
    memmove(s->top + at + 1, s->top + at, (size_t)(s->n_top++ - at) * sizeof *s->top);
    s->top[at] = *found;
    return true;
}

/* Keeps what an estimate lets pass, in the order of time. The bound of a candidate without one
   becomes its time. */
static wf_status look_at(wf_search *s, wf_search_candidate *c, wf_error *error)
{
    wf_search_found found;
    bool made;

    if (!least_may_fit(s, c))
        return WF_OK;
    if (!wf_search_may_run(s, c)) {
        s->left_out[WF_SEARCH_REFUSED]++;
        return WF_OK;
    }
    made = wf_search_simulate(s, c, 0, &found);
    if (s->timed)
        c->bound = made ? (float)found.seconds : INFINITY;
    if (!made)
        s->left_out[WF_SEARCH_SIZES]++;
    else if (may_fit(s, found.estimate) && !insert(s, &found))
        return wf_error_set(error, WF_ENOMEM, "no memory for layouts that may fit");
    return WF_OK;
}

static void add_path(wf_search *s, wf_search_found *found)
{
    wf_search_found path;

    if (wf_search_simulate(s, &found->candidate, WF_SIM_PATH, &path))
        found->path = path.path;
}

/* Plan what is listed, in the order of time. False: one does not fit or is refused, and is
   gone, so that what comes next may be another. */
static bool all_fit(wf_search *s)
{
    for (int64_t i = 0; i < WF_SEARCH_TOP && i < s->n_top; i++) {
        if (s->top[i].planned || wf_search_plan(s, &s->top[i]))
            continue;
        s->left_out[s->top[i].refused ? WF_SEARCH_REFUSED : WF_SEARCH_PLAN]++;
        s->n_top--;
        memmove(s->top + i, s->top + i + 1, (size_t)(s->n_top - i) * sizeof *s->top);
        return false;
    }
    return true;
}

/* Candidates in the order of their bounds, until none can come before the last one of the
   list. */
static int64_t simulate_all(wf_search *s, wf_error *error)
{
    int64_t i = 0;

    for (;;) {
        bool more = i < s->count,
             late = more && s->n_top >= WF_SEARCH_TOP &&
                    (double)s->candidate[i].bound >= s->top[WF_SEARCH_TOP - 1].seconds;

        if (more && !late) {
            if (look_at(s, &s->candidate[i++], error) != WF_OK)
                return i;
        } else if (all_fit(s)) {
            return i;
        }
    }
}

static bool is_plain(const wf_search_candidate *c)
{
    return c->pp == 1 && c->tp == 1 && wf_search_ep(c) == 1 && wf_search_cp(c) == 1;
}

/* Data parallelism alone, by its best layout, is always compared. Its bound is its time but for
   a message. It is refused where some of its layouts are, and none is too large. */
static void find_plain(wf_search *s)
{
    bool refused = false, large = false;

    s->no_plain = true;
    for (int64_t i = 0; i < s->count && !s->plain.fits; i++) {
        const wf_search_candidate *c = &s->candidate[i];

        if (!is_plain(c))
            continue;
        s->no_plain = false;
        if (!s->timed && s->options->device_memory &&
            !wf_search_may_fit(s, wf_search_least_memory(s, c))) {
            large = true;
        } else if (!wf_search_may_run(s, c)) {
            refused = true;
        } else if (wf_search_simulate(s, c, WF_SIM_PATH, &s->plain)) {
            wf_search_plan(s, &s->plain);
            refused |= s->plain.refused;
            large |= !s->plain.fits && !s->plain.refused;
        }
    }
    s->plain.refused = refused && !large && !s->plain.fits;
}

static double work(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void wf_search_go(wf_search *s, wf_error *error)
{
    double start = work();

    if (wf_search_enumerate(s, error) != WF_OK)
        return;
    if (s->count)
        qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_bound);
    s->left_out[WF_SEARCH_TIME] = s->count - simulate_all(s, error);
    if (s->timed && s->count) /* by their times */
        qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_bound);
    for (; s->n_top > WF_SEARCH_TOP; s->n_top--)
        s->left_out[WF_SEARCH_SLOWER]++;
    for (int i = 0; i < s->n_top; i++)
        add_path(s, &s->top[i]);
    find_plain(s);
    s->seconds = work() - start;
}
