/*
 * mesh/health/verdict.c - what has become of a world: what its ranks are at, which of them stalls, what
 * is said of a process that is lost, and the one verdict.
 */
#include "mesh/health/recorder_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LONGEST_PERIOD_MS = 5000,
    DOUBT_MS = 200,
    MISSED_MS = 50 /* from a loss to the verdict */
};

int64_t wf_watch_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The handle of a rank here, or NULL. */
static wf_comm *comm_of(const wf_watch_options *o, int rank)
{
    for (int i = 0; i < o->here; i++)
        if (o->rank[i] == rank)
            return o->comm[i];
    return NULL;
}

bool wf_watch_look(const wf_watch_options *o, wf_verdict *v)
{
    wf_error cause = {WF_OK, ""};
    int culprit = 0;

    if (o->transport->cause(o->world, &culprit, &cause) == WF_OK)
        return false;
    if (comm_of(o, culprit))
        wf_recorder_locate(comm_of(o, culprit), &cause);
    *v = (wf_verdict){.culprit = culprit, .teller = o->process, .code = (int32_t)cause.code};
    snprintf(v->text, sizeof v->text, "%s", cause.text);
    return true;
}

/* ---- the verdict ---- */

bool wf_watch_has_verdict(wf_world_watch *w)
{
    bool has;

    pthread_mutex_lock(&w->lock);
    has = w->has_verdict;
    pthread_mutex_unlock(&w->lock);
    return has;
}

/* The first one stands. Process 0 tells all, and here the ranks' waits end. */
void wf_watch_decide(wf_world_watch *w, const wf_verdict *v)
{
    wf_error cause = {(wf_status)v->code, ""};
    bool first;

    pthread_mutex_lock(&w->lock);
    first = !w->has_verdict;
    if (first)
        w->verdict = *v;
    w->has_verdict = true;
    atomic_store(&w->decided, w->verdict.teller);
    pthread_cond_broadcast(&w->heard);
    pthread_mutex_unlock(&w->lock);
    if (!first)
        return;
    for (int i = 0; wf_watch_is_head(w) && i < w->n_peers; i++)
        if (w->peer[i].state != PEER_LEFT) /* what was stopped may go on */
            wf_watch_send(&w->peer[i], WATCH_VERDICT, v, sizeof *v);
    snprintf(cause.text, sizeof cause.text, "%s", v->text);
    w->o.transport->fail(w->o.world, v->culprit, &cause, v->stuck != 0);
}

void wf_watch_hear_crash(wf_world_watch *w)
{
    if (!atomic_load(&w->crashed) || w->crash_heard)
        return;
    w->crash_heard = true;
    if (wf_watch_is_head(w))
        wf_watch_decide(w, &w->crash);
    else if (!wf_watch_has_verdict(w))
        wf_watch_send(&w->peer[0], WATCH_CAUSE, &w->crash, sizeof w->crash);
}

/* What has gone wrong among the ranks here goes to process 0. That another one is missed has a
   reason, which may be on its way. */
void wf_watch_look_here(wf_world_watch *w)
{
    wf_verdict v;

    if (w->proposed || w->lost || wf_watch_has_verdict(w) || !wf_watch_look(&w->o, &v))
        return;
    w->doubted = w->doubted ? w->doubted : wf_watch_now();
    if (v.code == WF_ELOST && w->n_peers && wf_watch_now() - w->doubted < DOUBT_MS)
        return;
    w->proposed = true;
    if (wf_watch_is_head(w))
        wf_watch_decide(w, &v);
    else
        wf_watch_send(&w->peer[0], WATCH_CAUSE, &v, sizeof v);
}

/* ---- what the ranks are at ---- */

static int64_t limit_ms(const wf_world_watch *w)
{
    return (int64_t)(w->o.limit * 1e3);
}

int wf_watch_period(const wf_world_watch *w)
{
    int64_t most = w->n_peers ? WF_WATCH_PERIOD_MS : LONGEST_PERIOD_MS, part = limit_ms(w) / 4;

    return (int)(w->o.limit <= 0 || part > most ? most : part < 10 ? 10 : part);
}

void wf_watch_look_at_ranks(wf_world_watch *w, int64_t now)
{
    for (int i = 0; i < w->o.here; i++) {
        const wf_recorder *r = wf_recorder_of(w->o.comm[i]);
        watch_rank *to = &w->mine[i];
        bool waits = false;
        uint64_t pulse = r ? wf_recorder_pulse(r, &waits) : 0;

        if (pulse != w->pulse[i] || w->since[i] == 0)
            w->since[i] = now;
        w->pulse[i] = pulse;
        to->quiet_ms = now - w->since[i];
        to->waits = waits;
        to->finished = !r || atomic_load(&w->finished[i]);
        if (r)
            wf_recorder_where(r, to->where, sizeof to->where);
        to->rank = w->o.rank[i];
        to->process = w->o.process;
        w->rank[to->rank] = *to;
    }
}

/* Of the ranks that wait, or of those that do not, the one that has been quiet for longest. */
static int quietest(const wf_world_watch *w, bool waits)
{
    int longest = -1;

    for (int i = 0; i < w->o.ranks; i++)
        if (!w->rank[i].finished && !w->rank[i].waits == !waits &&
            (longest < 0 || w->rank[i].quiet_ms > w->rank[longest].quiet_ms))
            longest = i;
    return longest;
}

/* A rank that neither waits nor goes on is to blame; where all wait, they wait for each other. */
void wf_watch_find_stall(wf_world_watch *w)
{
    int busy = quietest(w, false), waiting = quietest(w, true), culprit = busy;
    wf_verdict v = {.teller = 0, .code = WF_ETIMEOUT, .stuck = busy >= 0};
    char other[WF_WATCH_WHERE + 64] = "";

    if (busy < 0 && waiting >= 0) {
        for (int i = 0; i < w->o.ranks; i++)
            if (!w->rank[i].finished && w->rank[i].quiet_ms <= limit_ms(w))
                return;
        culprit = waiting;
    }
    if (culprit < 0 || w->rank[culprit].quiet_ms <= limit_ms(w))
        return;
    if (waiting >= 0 && waiting != culprit)
        snprintf(other, sizeof other, "; rank %d waits %s", waiting, w->rank[waiting].where);
    v.culprit = culprit;
    snprintf(v.text, sizeof v.text, "rank %d: %s for %.1f s, and %.1f are allowed; it was %s%s",
             culprit,
             busy < 0 ? "deadlock, every rank has waited for another"
                      : "stalled, it has done nothing",
             (double)w->rank[culprit].quiet_ms / 1e3, w->o.limit, w->rank[culprit].where,
             other);
    wf_watch_decide(w, &v);
}

bool wf_watch_given_up(const wf_world_watch *w)
{
    enum { LONG_MS = WF_WATCH_SILENCE * 1000 / 2 };
    int64_t now = wf_watch_now(), woken = atomic_load(&w->woken);

    return now - atomic_load(&w->ticked) > LONG_MS || (woken && now - woken < LONG_MS);
}

/* A peer is gone. Its ranks are missed soon, and where that is belongs to the verdict. */
void wf_watch_lose(wf_world_watch *w, watch_peer *p, const char *how, bool ended)
{
    wf_error unknown = {WF_ELOST, ""};

    p->state = PEER_LOST;
    if (w->lost || wf_watch_has_verdict(w))
        return;
    w->lost = p;
    w->how = how;
    w->ended = ended;
    w->lost_at = wf_watch_now() - (p->silent_ms > WF_WATCH_SILENCE * 1000 ? MISSED_MS : 0);
    w->o.transport->fail(w->o.world, p->hello.rank, &unknown, true);
}

/* Of process 0, whoever is on its deputy's host: the deputy may be lost as well. */
static int who_tells_of_loss(const wf_world_watch *w)
{
    if (wf_watch_is_head(w))
        return wf_watch_given_up(w) ? w->deputy : 0;
    return w->with_deputy ? w->o.process : WF_WATCH_NONE;
}

void wf_watch_decide_loss(wf_world_watch *w)
{
    int rank = w->lost ? w->lost->hello.rank : 0, waiting;
    wf_verdict v = {.culprit = rank,
                    .teller = who_tells_of_loss(w),
                    .code = WF_ELOST,
                    .stuck = true,
                    .ended = w->ended};
    char others[32] = "", where[WF_WATCH_WHERE + 16], other[WF_WATCH_WHERE + 64] = "";

    if (!w->lost || wf_watch_has_verdict(w) || wf_watch_now() - w->lost_at < MISSED_MS)
        return;
    wf_watch_look_at_ranks(w, wf_watch_now());
    for (int r = 0; r < w->o.ranks; r++) /* they wait no more */
        w->rank[r].finished = w->rank[r].finished || w->rank[r].process == w->lost->process;
    if ((waiting = quietest(w, true)) >= 0)
        snprintf(other, sizeof other, "; rank %d waits %s", waiting, w->rank[waiting].where);
    if (w->o.here > 1)
        snprintf(others, sizeof others, " and %d more", w->o.here - 1);
    snprintf(where, sizeof where, "on %s", w->lost->hello.host);
    if (*w->rank[rank].where)
        snprintf(where, sizeof where, "%s", w->rank[rank].where);
    snprintf(v.text, sizeof v.text,
             "rank %d: lost: process %d (pid %d, rank %d%s) %s; it was last heard of %s%s",
             rank, w->lost->process, (int)w->lost->hello.pid, rank, others, w->how, where,
             other);
    wf_watch_decide(w, &v);
}
