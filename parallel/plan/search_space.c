/* parallel/plan/search_space.c - all layouts of a model over ranks, and which of them can
   be. */
#include "parallel/plan/search_internal.h"
#include "core/numerics/tree.h"
#include <stdlib.h>
#include <string.h>

const char *const wf_search_recompute[] = {"none", "attention", "block", "stage", NULL};
const char *const wf_search_accumulate[] = {"local", "group:4", "reduced", NULL};

enum { MOST_PP = 256, MOST_MICRO = 64, MOST_TP = 8, GROUP = 4, SHORTEST_PART = 1024 };

static bool is_power(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* Returns true where a choice by name is allowed: choices of the command line are fixed. */
static bool may(const wf_plan_request *o, wf_setting id, const char *given, const char *name)
{
    return !o->given[id] || strcmp(given, name) == 0;
}

static bool may_be(const wf_plan_request *o, wf_setting id, int64_t given, int64_t value)
{
    return !o->given[id] || given == value;
}

/* Returns whether a schedule is tried: what the command line names is, whatever its row
   says. */
static bool may_schedule(const wf_plan_request *o, const wf_pipe_schedule *schedule)
{
    return o->given[WF_SETTING_pp_schedule] ? strcmp(o->pp_schedule, schedule->name) == 0
                                            : schedule->searched > 0;
}

static void leave_out(wf_search *s, wf_search_reason reason)
{
    s->left_out[reason]++;
}

/* Returns whether `ranks` ranks cut the experts at halves, and halves of these, of which the
   sum over a token's experts is made. */
static bool cuts_halves(int64_t experts, int64_t ranks)
{
    for (int64_t n = 1; n < ranks; n *= 2)
        for (int64_t i = 0; i < n; i++) {
            int64_t first = wf_cut(experts, 1, n, i), end = wf_cut(experts, 1, n, i + 1);

            if (wf_cut(experts, 1, 2 * n, 2 * i + 1) != first + (end - first) / 2)
                return false;
        }
    return true;
}

static bool is_exact(const wf_search *s, const wf_search_candidate *c)
{
    int most = s->options->job.mesh.exact_tp;
    int64_t ep = wf_search_owners(c);

    if (s->model.experts && (!is_power(ep) || !cuts_halves(s->model.experts, ep)))
        return false;

    if (wf_search_cp(c) * (c->sequence_parallel ? c->tp : 1) >
            (c->cp > 1 ? wf_token_chunks(s->model.seq) : c->tp) ||
        !is_power(wf_search_cp(c)))
        return false;
    return c->tp <= (most ? most : WF_MAX_CHUNKS) && is_power(c->tp) &&
           is_power((int64_t)c->shard * c->replicate) && is_power(c->micros);
}

/* Returns whether activations may be of a type: the machine's file has to say how fast its
   products are. */
static bool may_store(const wf_search *s, wf_dtype dtype)
{
    return wf_dtype_is_stored(dtype) && s->machine.rate[dtype] > 0 &&
           may(s->options, WF_SETTING_dtype, s->options->dtype, wf_dtype_word(dtype));
}

static wf_status keep(wf_search *s, wf_search_candidate *c, wf_error *error)
{
    s->considered++;
    if (!s->inexact && !s->options->job.mesh.exact_off && !is_exact(s, c)) {
        leave_out(s, WF_SEARCH_INEXACT);
        return WF_OK;
    }
    if (s->options->device_memory && !s->timed &&
        wf_search_memory_bound(s, c) > (double)s->options->device_memory) {
        leave_out(s, WF_SEARCH_MEMORY);
        return WF_OK;
    }
    c->bound = s->timed ? 0 : (float)wf_search_time_bound(s, c);
    if (s->count == s->room) {
        int64_t wider = s->room ? 2 * s->room : 1024;
        wf_search_candidate *more = realloc(s->candidate, (size_t)wider * sizeof *more);

        if (!more)
            return wf_error_set(error, WF_ENOMEM, "no memory for %lld layouts",
                                (long long)wider);
        s->candidate = more;
        s->room = wider;
    }
    s->candidate[s->count++] = *c;
    return WF_OK;
}

/* Tries all choices that do not change where ranks are: recomputation, when gradients are
   summed, types. */
static void each_detail(wf_search *s, wf_search_candidate c, wf_error *error)
{
    const wf_plan_request *o = s->options;
    bool sums = c.shard * c.replicate > 1;

    if (s->timed) { /* as they were asked for */
        c.dtype = (int8_t)wf_dtype_find(o->dtype);
        keep(s, &c, error);
        return;
    }
    for (int r = 0; wf_search_recompute[r]; r++)
        for (int a = 0; wf_search_accumulate[a]; a++)
            for (int d = WF_DTYPES - 1; d >= 0 && error->code == WF_OK;
                 d--) { /* narrow ones first */
                if (!may(o, WF_SETTING_recompute, o->recompute, wf_search_recompute[r]) ||
                    !may(o, WF_SETTING_accumulate, o->accumulate, wf_search_accumulate[a]) ||
                    !may_store(s, (wf_dtype)d))
                    continue;
                if ((r == 3 && c.pp == 1) ||
                    (a == 1 && (c.micros <= GROUP || c.micros % GROUP)) ||
                    (a > 0 && (!sums || !wf_search_strategy(&c)->split_gradients)) ||
                    (a == 1 && wf_search_ep(&c) > 1)) /* is refused */
                    continue;                         /* no other layout than the first */
                c.recompute = (int8_t)r;
                c.accumulate = (int8_t)a;
                c.dtype = (int8_t)d;
                keep(s, &c, error);
            }
}

static void each_schedule(wf_search *s, wf_search_candidate c, wf_error *error)
{
    const wf_plan_request *o = s->options;

    if (c.pp == 1) {
        each_detail(s, c, error);
        return;
    }
    for (int n = 0; wf_pipe_schedule_at(n).name; n++) {
        const wf_pipe_schedule schedule = wf_pipe_schedule_at(n);
        int v = schedule.per_rank;

        if (!may_schedule(o, &schedule))
            continue;
        do {
            if (!may_be(o, WF_SETTING_pp_virtual, o->pp_virtual, v))
                continue;
            if ((int64_t)c.pp * v > s->model.layers + 1 || c.micros < schedule.needs * c.pp) {
                s->considered++;
                leave_out(s, WF_SEARCH_SIZES);
                continue;
            }
            c.schedule = (int8_t)n;
            c.per_rank = (int16_t)v;
            each_detail(s, c, error);
        } while ((v *= 2) <= schedule.searched && error->code == WF_OK);
    }
}

static void each_micro(wf_search *s, wf_search_candidate c, wf_error *error)
{
    const wf_plan_request *o = s->options;
    int64_t dp = (int64_t)c.shard * c.replicate, each = o->global_batch_size / dp;

    for (int64_t micro = 1; micro <= MOST_MICRO && micro <= each && error->code == WF_OK;
         micro++) {
        if (o->given[WF_SETTING_micro_batch_size] ? micro != o->micro_batch_size
                                                  : !is_power(micro))
            continue;
        if (each % micro) {
            s->considered++;
            leave_out(s, WF_SEARCH_SIZES);
            continue;
        }
        c.micro = (int32_t)micro;
        c.micros = (int32_t)(each / micro);
        each_schedule(s, c, error);
    }
}

/* Experts of a mixture are on 1, 2, 4, .. of the data-parallel ranks that shard, times those of
   tp, if these do not split their features. */
static void each_ep_of(wf_search *s, wf_search_candidate c, wf_error *error)
{
    const wf_plan_request *o = s->options;
    bool given = o->given[WF_SETTING_ep] || s->timed;
    const int64_t tp = c.features ? 1 : c.tp;
    int64_t asked = o->ep > tp && tp ? o->ep / tp : 1, most = given ? asked : c.shard;
    /* one rank has no other to exchange tokens with */
    int64_t fewest = o->job.mesh.dispatch == WF_PAR_DISPATCH_EXCHANGE ? 2 : 1;

    if (given && (c.shard % asked || (o->ep > tp && o->ep % tp))) {
        s->considered++;
        leave_out(s, WF_SEARCH_SIZES);
        return;
    }
    for (int64_t ep = given ? asked : fewest; ep <= most && error->code == WF_OK; ep *= 2) {
        if (ep > 1 && (c.shard % ep || (!s->timed && tp * ep > s->model.experts)))
            break;
        c.ep = (int32_t)ep;
        each_micro(s, c, error);
    }
}

/* Ranks of tp split experts, or the features of each. */
static void each_ep(wf_search *s, wf_search_candidate c, wf_error *error)
{
    const wf_plan_request *o = s->options;
    const bool given =
        o->given[WF_SETTING_etp] || o->etp > 1 || s->timed || o->job.mesh.axes != NULL;

    for (int features = 0; features < 2 && error->code == WF_OK; features++) {
        if (given ? features != (o->etp > 1) : features && (c.tp == 1 || !s->model.experts))
            continue;
        if (given && features && c.tp != o->etp) {
            s->considered++;
            leave_out(s, WF_SEARCH_SIZES);
            continue;
        }
        c.features = (int8_t)features;
        each_ep_of(s, c, error);
    }
}

/* Groups of a hybrid strategy have 2, 4, .. ranks, and there are two at least. */
static void each_group(wf_search *s, wf_search_candidate c, int64_t dp, wf_error *error)
{
    const wf_plan_request *o = s->options;

    for (int64_t shard = 2; shard < dp && error->code == WF_OK; shard *= 2) {
        if (dp % shard || !may_be(o, WF_SETTING_shard_group_size, o->shard_group_size, shard) ||
            !may_be(o, WF_SETTING_dp_replicate, o->dp_replicate, dp / shard))
            continue;
        c.shard = (int32_t)shard;
        c.replicate = (int32_t)(dp / shard);
        each_ep(s, c, error);
    }
}

static void each_strategy(wf_search *s, wf_search_candidate c, int64_t dp, wf_error *error)
{
    const wf_plan_request *o = s->options;

    for (int n = 0; wf_strategy_to_search(n) && error->code == WF_OK; n++) {
        if ((o->given[WF_SETTING_strategy] || o->job.mesh.axes) &&
            n != wf_strategy_index(o->strategy) && dp > 1)
            continue; /* axes of one's own are laid out as they are */
        if (dp == 1 && n > 0)
            break; /* they are all the same */
        c.strategy = (int8_t)n;
        if (wf_search_strategy(&c)->groups) {
            each_group(s, c, dp, error);
            continue;
        }
        c.shard = (int32_t)dp;
        c.replicate = 1;
        each_ep(s, c, error);
    }
}

bool wf_search_must_gather(const wf_search *s, const wf_search_candidate *c)
{
    return c->tp * wf_search_cp(c) > s->model.heads || c->sequence_parallel;
}

/* Attention over split tokens is tried in each form that it has. */
static void each_form(wf_search *s, wf_search_candidate c, int64_t dp, wf_error *error)
{
    const wf_plan_request *o = s->options;
    bool fixed = o->given[WF_SETTING_cp_form] && strcmp(o->cp_form, "auto") != 0;

    for (int gather = 0; gather < (c.cp > 1 && !s->timed ? 2 : 1); gather++) {
        if (c.cp > 1 && !s->timed &&
            ((!gather && wf_search_must_gather(s, &c)) ||
             (fixed && gather != (strcmp(o->cp_form, "gather") == 0))))
            continue;
        c.gather_keys = (int8_t)gather;
        each_strategy(s, c, dp, error);
    }
}

static void each_tensor(wf_search *s, int64_t pp, int64_t tp, int64_t cp, wf_error *error)
{
    const wf_plan_request *o = s->options;
    int64_t dp = s->ranks / (pp * tp * cp);

    if (s->ranks % (pp * tp * cp) || tp > s->model.heads || o->global_batch_size % dp) {
        s->considered++;
        leave_out(s, WF_SEARCH_SIZES);
        return;
    }
    if (!may_be(o, WF_SETTING_dp, o->dp, dp))
        return;
    for (int sp = 0; sp < 2; sp++) /* a run refuses it with tp 1, which may be given */
        if (o->given[WF_SETTING_sequence_parallel] ? sp == o->sequence_parallel : !sp || tp > 1)
            each_form(s,
                      (wf_search_candidate){.pp = (int32_t)pp,
                                            .tp = (int32_t)tp,
                                            .cp = (int32_t)cp,
                                            .sequence_parallel = (int8_t)sp},
                      dp, error);
}

/* Tokens are split over 1, 2, 4, .. ranks, where sequences are long enough to have the numbers
   of one rank, or that does not matter. */
static void each_context(wf_search *s, int64_t pp, int64_t tp, wf_error *error)
{
    const wf_plan_request *o = s->options;
    bool given = o->given[WF_SETTING_cp] || s->timed;
    int64_t most = given                                 ? o->cp
                   : s->inexact || o->job.mesh.exact_off ? s->model.seq / SHORTEST_PART
                                                         : wf_token_chunks(s->model.seq);

    for (int64_t cp = given ? o->cp : 1; cp <= most || cp == 1; cp *= 2) {
        if (cp > 1 && pp * tp * cp > s->ranks && !given)
            break;
        each_tensor(s, pp, tp, cp, error);
        if (error->code != WF_OK || given)
            break;
    }
}

wf_status wf_search_enumerate(wf_search *s, wf_error *error)
{
    const wf_plan_request *o = s->options;
    int64_t most = s->machine.devices > MOST_TP ? s->machine.devices : MOST_TP;

    for (int64_t pp = 1; pp <= MOST_PP && pp <= s->model.layers + 1; pp++)
        for (int64_t tp = 1; tp <= most && pp * tp <= s->ranks && error->code == WF_OK; tp++) {
            if (!may_be(o, WF_SETTING_pp, o->pp, pp) || !may_be(o, WF_SETTING_tp, o->tp, tp) ||
                (!o->given[WF_SETTING_pp] && s->ranks % pp) ||
                (!o->given[WF_SETTING_tp] && !is_power(tp)))
                continue;
            each_context(s, pp, tp, error);
        }
    return error->code;
}
