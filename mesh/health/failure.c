/*
 * mesh/health/failure.c - the failure cause of a world: the states of its ranks, which of them
 * stalls, which process is lost, and the one cause that all report.
 */
#include "mesh/health/recorder_internal.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LONGEST_PERIOD_MS = 5000,
    DOUBT_MS = 200,
    MISSED_MS = 50 /* from a loss to the failure cause */
};

int64_t wf_detector_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns the handle of a rank here, or NULL. */
static wf_comm *comm_of(const wf_detector_options *o, int rank)
{
    for (int i = 0; i < o->local_size; i++)
        if (o->rank[i] == rank)
            return o->comm[i];
    return NULL;
}

bool wf_detector_look(const wf_detector_options *o, wf_failure *v)
{
    wf_error cause = {WF_OK, ""};
    int failed_rank = 0;

    if (o->transport->cause(o->world, &failed_rank, &cause) == WF_OK)
        return false;
    if (comm_of(o, failed_rank))
        wf_recorder_locate(comm_of(o, failed_rank), &cause);
    *v = (wf_failure){
        .failed_rank = failed_rank, .reporter = o->process, .code = (int32_t)cause.code};
    snprintf(v->text, sizeof v->text, "%s", cause.text);
    return true;
}

/* ---- the failure cause ---- */

bool wf_detector_has_failure(wf_detector *d)
{
    bool has;

    pthread_mutex_lock(&d->lock);
    has = d->has_failure;
    pthread_mutex_unlock(&d->lock);
    return has;
}

/* Decides a failure: the first one counts. Process 0 sends it to all, and here the ranks' waits
   end. */
void wf_detector_decide(wf_detector *d, const wf_failure *v)
{
    wf_error cause = {(wf_status)v->code, ""};
    bool first;

    pthread_mutex_lock(&d->lock);
    first = !d->has_failure;
    if (first)
        d->failure = *v;
    d->has_failure = true;
    atomic_store(&d->decided, d->failure.reporter);
    pthread_cond_broadcast(&d->heard);
    pthread_mutex_unlock(&d->lock);
    if (!first)
        return;
    for (int i = 0; wf_detector_is_head(d) && i < d->n_peers; i++)
        if (d->peer[i].state != PEER_LEFT) /* a stopped process may continue */
            wf_detector_send(&d->peer[i], DETECTOR_FAILURE, v, sizeof *v);
    snprintf(cause.text, sizeof cause.text, "%s", v->text);
    d->o.transport->fail(d->o.world, v->failed_rank, &cause, v->stuck != 0);
}

void wf_detector_hear_crash(wf_detector *d)
{
    if (!atomic_load(&d->crashed) || d->crash_heard)
        return;
    d->crash_heard = true;
    if (wf_detector_is_head(d))
        wf_detector_decide(d, &d->crash);
    else if (!wf_detector_has_failure(d))
        wf_detector_send(&d->peer[0], DETECTOR_CAUSE, &d->crash, sizeof d->crash);
}

/* Sends a failure among the ranks here to process 0. A missing rank of another process has a
   reason, whose message may be on its way. */
void wf_detector_look_here(wf_detector *d)
{
    wf_failure v;

    if (d->proposed || d->lost || wf_detector_has_failure(d) || !wf_detector_look(&d->o, &v))
        return;
    d->doubted = d->doubted ? d->doubted : wf_detector_now();
    if (v.code == WF_ELOST && d->n_peers && wf_detector_now() - d->doubted < DOUBT_MS)
        return;
    d->proposed = true;
    if (wf_detector_is_head(d))
        wf_detector_decide(d, &v);
    else
        wf_detector_send(&d->peer[0], DETECTOR_CAUSE, &v, sizeof v);
}

/* ---- what the ranks are at ---- */

static int64_t limit_ms(const wf_detector *d)
{
    return (int64_t)(d->o.limit * 1e3);
}

int wf_detector_period(const wf_detector *d)
{
    int64_t most = d->n_peers ? WF_DETECTOR_PERIOD_MS : LONGEST_PERIOD_MS,
            part = limit_ms(d) / 4;

    return (int)(d->o.limit <= 0 || part > most ? most : part < 10 ? 10 : part);
}

void wf_detector_look_at_ranks(wf_detector *d, int passed)
{
    for (int i = 0; i < d->o.local_size; i++) {
        const wf_recorder *r = wf_recorder_of(d->o.comm[i]);
        detector_rank *to = &d->mine[i];
        bool waits = false;
        uint64_t pulse = r ? wf_recorder_pulse(r, &waits) : 0;

        to->quiet_ms = pulse == d->pulse[i] ? to->quiet_ms + passed : 0;
        d->pulse[i] = pulse;
        to->waits = waits;
        to->finished = !r || atomic_load(&d->finished[i]);
        if (r)
            wf_recorder_where(r, to->where, sizeof to->where);
        to->rank = d->o.rank[i];
        to->process = d->o.process;
        d->rank[to->rank] = *to;
    }
}

/* Returns the rank that has been quiet for longest, of those that wait, or of those that do
   not. */
static int quietest(const wf_detector *d, bool waits)
{
    int longest = -1;

    for (int i = 0; i < d->o.ranks; i++)
        if (!d->rank[i].finished && !d->rank[i].waits == !waits &&
            (longest < 0 || d->rank[i].quiet_ms > d->rank[longest].quiet_ms))
            longest = i;
    return longest;
}

/* Returns how long no rank has advanced, in milliseconds. A rank that finishes does: it may be
   the one that the others wait for, and they are not awake yet. */
static int64_t all_quiet_ms(wf_detector *d, int passed)
{
    int64_t least;
    int finished = 0;

    for (int i = 0; i < d->o.ranks; i++)
        finished += d->rank[i].finished;
    d->finished_ms = finished == d->n_finished ? d->finished_ms + passed : 0;
    d->n_finished = finished;
    least = d->finished_ms;
    for (int i = 0; i < d->o.ranks; i++)
        if (!d->rank[i].finished && d->rank[i].quiet_ms < least)
            least = d->rank[i].quiet_ms;
    return least;
}

/* Finds the rank that hangs: one that neither waits nor advances; where all wait, they wait for
   each other. */
void wf_detector_find_stall(wf_detector *d, int passed)
{
    int64_t all_ms = all_quiet_ms(d, passed);
    int busy = quietest(d, false), waiting = quietest(d, true), failed_rank = busy;
    wf_failure v = {.reporter = 0, .code = WF_ETIMEOUT, .stuck = busy >= 0};
    char other[WF_DETECTOR_WHERE + 64] = "";

    if (busy < 0)
        failed_rank = waiting;
    if (failed_rank < 0 || (busy < 0 ? all_ms : d->rank[failed_rank].quiet_ms) <= limit_ms(d))
        return;
    if (waiting >= 0 && waiting != failed_rank)
        snprintf(other, sizeof other, "; rank %d waits %s", waiting, d->rank[waiting].where);
    v.failed_rank = failed_rank;
    snprintf(v.text, sizeof v.text, "rank %d: %s for %.1f s, and %.1f are allowed; it was %s%s",
             failed_rank,
             busy < 0 ? "deadlock, every rank has waited for another"
                      : "stalled, it has done nothing",
             (double)d->rank[failed_rank].quiet_ms / 1e3, d->o.limit,
             d->rank[failed_rank].where, other);
    wf_detector_decide(d, &v);
}

bool wf_detector_given_up(const wf_detector *d)
{
    enum { LONG_MS = WF_DETECTOR_SILENCE * 1000 / 2 };
    int64_t now = wf_detector_now(), woken = atomic_load(&d->woken);

    return now - atomic_load(&d->ticked) > LONG_MS || (woken && now - woken < LONG_MS);
}

/* Notes that a peer is lost. Its ranks are missed soon, and where that is belongs to the
   failure cause. */
void wf_detector_lose(wf_detector *d, detector_peer *p, const char *how, bool ended)
{
    wf_error unknown = {WF_ELOST, ""};

    p->state = PEER_LOST;
    if (d->lost || wf_detector_has_failure(d))
        return;
    d->lost = p;
    d->how = how;
    d->ended = ended;
    d->lost_at =
        wf_detector_now() - (p->silent_ms > WF_DETECTOR_SILENCE * 1000 ? MISSED_MS : 0);
    d->o.transport->fail(d->o.world, p->hello.rank, &unknown, true);
}

/* Returns the process that reports a loss: process 0 or, where that gave up, its backup
   coordinator; where it is lost, a process of the backup coordinator's host, since the backup
   coordinator may be lost as well. */
static int who_reports_loss(const wf_detector *d)
{
    if (wf_detector_is_head(d))
        return wf_detector_given_up(d) ? d->backup : 0;
    return d->with_backup ? d->o.process : WF_DETECTOR_NONE;
}

void wf_detector_decide_loss(wf_detector *d)
{
    int rank = d->lost ? d->lost->hello.rank : 0, waiting;
    wf_failure v = {.failed_rank = rank,
                    .reporter = who_reports_loss(d),
                    .code = WF_ELOST,
                    .stuck = true,
                    .ended = d->ended};
    char others[32] = "", where[WF_DETECTOR_WHERE + 16], other[WF_DETECTOR_WHERE + 64] = "";

    if (!d->lost || wf_detector_has_failure(d) || wf_detector_now() - d->lost_at < MISSED_MS)
        return;
    wf_detector_look_at_ranks(d, 0);
    for (int r = 0; r < d->o.ranks; r++) /* they wait no more */
        d->rank[r].finished = d->rank[r].finished || d->rank[r].process == d->lost->process;
    if ((waiting = quietest(d, true)) >= 0)
        snprintf(other, sizeof other, "; rank %d waits %s", waiting, d->rank[waiting].where);
    if (d->o.local_size > 1)
        snprintf(others, sizeof others, " and %d more", d->o.local_size - 1);
    snprintf(where, sizeof where, "on %s", d->lost->hello.host);
    if (*d->rank[rank].where)
        snprintf(where, sizeof where, "%s", d->rank[rank].where);
    snprintf(v.text, sizeof v.text,
             "rank %d: lost: process %d (pid %d, rank %d%s) %s; it was last heard of %s%s",
             rank, d->lost->process, (int)d->lost->hello.pid, rank, others, d->how, where,
             other);
    wf_detector_decide(d, &v);
}
