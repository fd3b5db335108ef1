/* mesh/watch.c - the watch over a world: see the header. */
#include "mesh/recorder_parts.h"
#include "mesh/watch_parts.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    STACK_BYTES = 256 << 10,
    LONGEST_PERIOD_MS = 5000,
    LAST_WORDS_MS = 200, /* of a world that has failed */
    DOUBT_MS = 200,
    MISSED_MS = 100 /* from a loss to the verdict */
};

/* Of this process, for a signal. */
static wf_watch *_Atomic current;

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool is_head(const wf_watch *w)
{
    return w->o.process == 0;
}

static bool is_here(const wf_watch_options *o, int rank)
{
    return rank >= o->first && rank < o->first + o->here;
}

bool wf_watch_look(const wf_watch_options *o, wf_verdict *v)
{
    wf_error cause = {WF_OK, ""};
    int culprit = 0;

    if (o->transport->cause(o->world, &culprit, &cause) == WF_OK)
        return false;
    if (is_here(o, culprit))
        wf_recorder_locate(o->comm[culprit - o->first], &cause);
    *v = (wf_verdict){.culprit = culprit, .teller = o->process, .code = (int32_t)cause.code};
    snprintf(v->text, sizeof v->text, "%s", cause.text);
    return true;
}

/* ---- the verdict ---- */

static bool has_verdict(wf_watch *w)
{
    bool has;

    pthread_mutex_lock(&w->lock);
    has = w->has_verdict;
    pthread_mutex_unlock(&w->lock);
    return has;
}

/* The first one stands. Process 0 tells all, and here the ranks' waits end. */
static void decide(wf_watch *w, const wf_verdict *v)
{
    wf_error cause = {(wf_status)v->code, ""};
    bool first;

    pthread_mutex_lock(&w->lock);
    first = !w->has_verdict;
    if (first)
        w->verdict = *v;
    w->has_verdict = true;
    pthread_cond_broadcast(&w->decided);
    pthread_mutex_unlock(&w->lock);
    if (!first)
        return;
    for (int i = 0; is_head(w) && i < w->n_peers; i++)
        if (w->peer[i].state != PEER_LEFT) /* what was stopped may go on */
            wf_watch_send(&w->peer[i], WATCH_VERDICT, v, sizeof *v);
    snprintf(cause.text, sizeof cause.text, "%s", v->text);
    w->o.transport->fail(w->o.world, v->culprit, &cause, v->stuck != 0);
}

/* What has gone wrong among the ranks here goes to process 0. That another one is missed has a
   reason, which may be on its way. */
static void look_here(wf_watch *w)
{
    wf_verdict v;

    if (w->proposed || w->lost || has_verdict(w) || !wf_watch_look(&w->o, &v))
        return;
    w->doubted = w->doubted ? w->doubted : now_ms();
    if (v.code == WF_ELOST && w->n_peers && now_ms() - w->doubted < DOUBT_MS)
        return;
    w->proposed = true;
    if (is_head(w))
        decide(w, &v);
    else
        wf_watch_send(&w->peer[0], WATCH_CAUSE, &v, sizeof v);
}

/* ---- what the ranks are at ---- */

static int64_t limit_ms(const wf_watch *w)
{
    return (int64_t)(w->o.limit * 1e3);
}

static int period_ms(const wf_watch *w)
{
    int64_t most = w->n_peers ? WF_WATCH_PERIOD_MS : LONGEST_PERIOD_MS, part = limit_ms(w) / 4;

    return (int)(w->o.limit <= 0 || part > most ? most : part < 10 ? 10 : part);
}

static void look_at_ranks(wf_watch *w, int64_t now)
{
    for (int i = 0; i < w->o.here; i++) {
        const wf_recorder *r = w->o.comm[i]->recorder;
        watch_rank *to = &w->rank[w->o.first + i];
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
    }
}

/* Of the ranks that wait, or of those that do not, the one that has been quiet for longest. */
static int quietest(const wf_watch *w, bool waits)
{
    int longest = -1;

    for (int i = 0; i < w->o.ranks; i++)
        if (!w->rank[i].finished && !w->rank[i].waits == !waits &&
            (longest < 0 || w->rank[i].quiet_ms > w->rank[longest].quiet_ms))
            longest = i;
    return longest;
}

/* A rank that neither waits nor goes on is to blame; where all wait, they wait for each other. */
static void find_stall(wf_watch *w)
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
    decide(w, &v);
}

/* A peer is gone. Its ranks are missed soon, and where that is belongs to the verdict. */
static void lose(wf_watch *w, watch_peer *p, const char *how)
{
    wf_error unknown = {WF_ELOST, ""};

    p->state = PEER_LOST;
    if (w->lost || has_verdict(w))
        return;
    w->lost = p;
    w->how = how;
    w->lost_at = now_ms();
    w->o.transport->fail(w->o.world, p->process * w->o.here, &unknown, true);
}

static void decide_loss(wf_watch *w)
{
    int process = w->lost ? w->lost->process : 0, rank = process * w->o.here, waiting;
    wf_verdict v = {
        .culprit = rank, .teller = is_head(w) ? 0 : w->deputy, .code = WF_ELOST, .stuck = true};
    char others[32] = "", where[WF_WATCH_WHERE + 16], other[WF_WATCH_WHERE + 64] = "";

    if (!w->lost || has_verdict(w) || now_ms() - w->lost_at < MISSED_MS)
        return;
    look_at_ranks(w, now_ms());
    for (int i = 0; i < w->o.here; i++) /* they wait no more */
        w->rank[rank + i].finished = true;
    if ((waiting = quietest(w, true)) >= 0)
        snprintf(other, sizeof other, "; rank %d waits %s", waiting, w->rank[waiting].where);
    if (w->o.here > 1)
        snprintf(others, sizeof others, "s %d to", rank);
    snprintf(where, sizeof where, "on %s", w->lost->hello.host);
    if (*w->rank[rank].where)
        snprintf(where, sizeof where, "%s", w->rank[rank].where);
    snprintf(v.text, sizeof v.text,
             "rank %d: lost: process %d (pid %d, rank%s %d) %s; it was last heard of %s%s",
             rank, process, (int)w->lost->hello.pid, others, rank + w->o.here - 1, w->how,
             where, other);
    decide(w, &v);
}

/* Time in which this process did not run itself counts for nobody. */
static void tick(wf_watch *w, int64_t passed)
{
    int most = 2 * period_ms(w), by = passed > most ? most : (int)passed;

    look_at_ranks(w, now_ms());
    for (int i = 0; i < w->n_peers; i++) {
        watch_peer *p = &w->peer[i];

        if (p->state != PEER_HERE)
            continue;
        wf_watch_send(p, WATCH_STATUS, &w->rank[w->o.first],
                      (size_t)w->o.here * sizeof *w->rank);
        p->silent_ms += by;
        if (p->silent_ms > WF_WATCH_SILENCE * 1000)
            lose(w, p, "has been silent for 10 s");
    }
    if (is_head(w) && w->o.limit > 0 && !has_verdict(w))
        find_stall(w);
}

/* ---- the thread ---- */

static void take(wf_watch *w, watch_peer *p, const watch_head *h, const void *data)
{
    size_t status = (size_t)w->o.here * sizeof *w->rank;
    wf_verdict v;

    p->silent_ms = 0;
    if (h->kind == WATCH_STATUS && h->bytes == status)
        memcpy(&w->rank[p->process * w->o.here], data, status);
    if ((h->kind == WATCH_CAUSE || h->kind == WATCH_VERDICT) && h->bytes == sizeof v) {
        memcpy(&v, data, sizeof v);
        v.text[sizeof v.text - 1] = '\0';
        decide(w, &v);
    }
    if (h->kind == WATCH_BYE) {
        p->state = PEER_LEFT;
        shutdown(p->fd, SHUT_WR);
    }
}

static void hear(wf_watch *w, struct pollfd *set, int wait_ms)
{
    uint64_t pokes;

    set[w->n_peers] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    for (int i = 0; i < w->n_peers; i++)
        set[i] = (struct pollfd){.fd = w->peer[i].state == PEER_HERE ? w->peer[i].fd : -1,
                                 .events = POLLIN};
    if (poll(set, (nfds_t)w->n_peers + 1, wait_ms) <= 0)
        return;
    if (set[w->n_peers].revents && read(w->wake, &pokes, sizeof pokes) < 0)
        return;
    for (int i = 0; i < w->n_peers; i++) {
        watch_peer *p = &w->peer[i];
        bool closing;

        if (!set[i].revents || wf_watch_receive(w, p, take) || p->state != PEER_HERE)
            continue;
        pthread_mutex_lock(&w->lock);
        closing = w->closing && !is_head(w);
        pthread_mutex_unlock(&w->lock);
        if (closing || has_verdict(w))
            p->state = PEER_LEFT;
        else
            lose(w, p, "has ended");
    }
}

/* Who leaves says so, and goes when the other side knows. */
static bool may_leave(wf_watch *w, int64_t *since)
{
    bool closing, here = false;

    pthread_mutex_lock(&w->lock);
    closing = w->closing;
    pthread_mutex_unlock(&w->lock);
    if (!closing)
        return false;
    if (*since == 0) {
        *since = now_ms();
        if (!is_head(w) && w->peer[0].state == PEER_HERE)
            wf_watch_send(&w->peer[0], WATCH_BYE, NULL, 0);
    }
    for (int i = 0; i < w->n_peers; i++)
        here = here || w->peer[i].state == PEER_HERE;
    return (!here && (!w->lost || has_verdict(w))) ||
           (has_verdict(w) && now_ms() - *since > LAST_WORDS_MS);
}

static void *run(void *arg)
{
    wf_watch *w = arg;
    struct pollfd *set = calloc((size_t)w->n_peers + 1, sizeof *set);
    int64_t ticked = now_ms() - period_ms(w), leaving = 0; /* the first tick is now */

    while (set && !may_leave(w, &leaving)) {
        int64_t now = now_ms(), due = ticked + period_ms(w);

        if (now >= due) {
            tick(w, now - ticked);
            ticked = now;
            due = now + period_ms(w);
        }
        hear(w, set,
             leaving || w->lost || (w->doubted && !w->proposed) ? 20 : (int)(due - now));
        decide_loss(w);
        look_here(w);
    }
    free(set);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->decided);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* With no signal coming to it. */
static wf_status start(wf_watch *w, wf_error *error)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failure;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&w->thread, &attributes, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failure ? wf_error_set(error, WF_ENOMEM, "no thread to watch the ranks: %s",
                                  strerror(failure))
                   : WF_OK;
}

static void watch_free(wf_watch *w)
{
    for (int i = 0; w->peer && i < w->n_peers; i++) {
        if (w->peer[i].fd >= 0)
            close(w->peer[i].fd);
        free(w->peer[i].in);
    }
    if (w->wake >= 0)
        close(w->wake);
    pthread_cond_destroy(&w->decided);
    pthread_mutex_destroy(&w->lock);
    free(w->peer);
    free(w->rank);
    free(w->pulse);
    free(w->since);
    free((void *)w->finished);
    free(w);
}

static bool make_room(wf_watch *w)
{
    size_t here = (size_t)w->o.here, peers = (size_t)w->n_peers;
    bool good;

    w->peer = calloc(peers + 1, sizeof *w->peer);
    w->rank = calloc((size_t)w->o.ranks, sizeof *w->rank);
    w->pulse = calloc(here, sizeof *w->pulse);
    w->since = calloc(here, sizeof *w->since);
    w->finished = calloc(here, sizeof *w->finished);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    good = w->peer && w->rank && w->pulse && w->since && w->finished && w->wake >= 0;
    for (int i = 0; w->peer && i < w->n_peers; i++) {
        w->peer[i].fd = -1;
        w->peer[i].process = is_head(w) ? i + 1 : 0;
        w->peer[i].in = malloc(wf_watch_room(w));
        good = good && w->peer[i].in;
    }
    return good;
}

wf_status wf_watch_open(const wf_watch_options *options, wf_watch **watch, wf_error *error)
{
    wf_watch *w = calloc(1, sizeof *w);
    wf_status status;

    *watch = NULL;
    if (!w)
        return wf_error_set(error, WF_ENOMEM, "no memory to watch %d ranks", options->ranks);
    w->o = *options;
    w->n_peers = is_head(w) ? options->processes - 1 : 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->decided, NULL);
    status = make_room(w) ? WF_OK
                          : wf_error_set(error, WF_ENOMEM, "no memory to watch %d ranks",
                                         options->ranks);
    if (status == WF_OK && w->n_peers)
        status = wf_watch_meet(w, error);
    if (status == WF_OK)
        status = start(w, error);
    if (status != WF_OK) {
        watch_free(w);
        return status;
    }
    atomic_store(&current, w);
    *watch = w;
    return WF_OK;
}

void wf_watch_poke(wf_watch *w)
{
    uint64_t one = 1;

    if (w && write(w->wake, &one, sizeof one) < 0)
        return; /* it has been poked very often */
}

void wf_watch_finished(wf_watch *w, int rank)
{
    if (w)
        atomic_store(&w->finished[rank - w->o.first], true);
}

bool wf_watch_verdict(wf_watch *w, int milliseconds, wf_verdict *verdict)
{
    struct timespec until;
    bool has;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    while (!w->has_verdict && !w->stop && milliseconds > 0 &&
           pthread_cond_timedwait(&w->decided, &w->lock, &until) == 0)
        ;
    has = w->has_verdict;
    if (has)
        *verdict = w->verdict;
    pthread_mutex_unlock(&w->lock);
    return has;
}

void wf_watch_leave(wf_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_mutex_unlock(&w->lock);
    wf_watch_poke(w);
    pthread_join(w->thread, NULL);
}

void wf_watch_close(wf_watch *w)
{
    wf_watch *mine = w;

    atomic_compare_exchange_strong(&current, &mine, NULL);
    watch_free(w);
}

void wf_watch_last_words(int rank, const char *text)
{
    wf_watch *w = atomic_load(&current);
    wf_verdict v = {.culprit = rank, .code = WF_ELOST, .stuck = true};

    if (!w)
        return;
    v.culprit = rank >= 0 ? rank : w->o.first;
    v.teller = w->o.process;
    strncpy(v.text, text, sizeof v.text - 1);
    for (int i = 0; i < w->n_peers; i++)
        if (w->peer[i].state == PEER_HERE)
            wf_watch_send(&w->peer[i], is_head(w) ? WATCH_VERDICT : WATCH_CAUSE, &v, sizeof v);
}
