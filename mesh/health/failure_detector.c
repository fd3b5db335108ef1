/* mesh/health/failure_detector.c - the watch over a world, its thread and its ends: see the header. */
#include "core/thread.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    STACK_BYTES = 256 << 10,
    LAST_WORDS_MS = 200, /* of a world that has failed */
    DECIDE_MS = 800,     /* who tells of a crash; launchers end all a second after a death */
    SAID_MS = 200        /* for other processes to be sent that this one has told */
};

/* Of this process, for a signal. */
static wf_world_watch *_Atomic current;

/* Time in which this process did not run itself counts for nobody. */
static void tick(wf_world_watch *w, int64_t passed)
{
    int most = 2 * wf_watch_period(w), by = passed > most ? most : (int)passed;

    if (passed > WF_WATCH_SILENCE * 1000 / 2)
        w->woken = wf_watch_now();
    wf_watch_look_at_ranks(w, wf_watch_now());
    for (int i = 0; i < w->n_peers; i++) {
        watch_peer *p = &w->peer[i];

        if (p->state != PEER_HERE)
            continue;
        wf_watch_send(p, WATCH_STATUS, w->mine, (size_t)w->o.here * sizeof *w->mine);
        p->silent_ms += by;
        if (p->silent_ms > WF_WATCH_SILENCE * 1000)
            wf_watch_lose(w, p, "has been silent for 10 s", false);
    }
    if (wf_watch_is_head(w) && w->o.limit > 0 && !wf_watch_has_verdict(w))
        wf_watch_find_stall(w);
}

/* ---- the thread ---- */

/* The user has been told, by this process or another. A process that was lost because it was stopped
   may go on, and has the verdict: it hears of this too, or it would report the verdict again. */
static void tell_on(wf_world_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->told = true;
    atomic_store(&w->all_told, true);
    pthread_cond_broadcast(&w->heard);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; wf_watch_is_head(w) && i < w->n_peers; i++)
        if (w->peer[i].state != PEER_LEFT)
            wf_watch_send(&w->peer[i], WATCH_TOLD, NULL, 0);
}

/* This process has told. */
static void tell_others(wf_world_watch *w)
{
    bool tells;

    pthread_mutex_lock(&w->lock);
    tells = (w->tells || atomic_load(&w->said)) && !w->told;
    pthread_mutex_unlock(&w->lock);
    if (!tells)
        return;
    if (!wf_watch_is_head(w))
        wf_watch_send(&w->peer[0], WATCH_TOLD, NULL, 0);
    tell_on(w);
    atomic_store(&w->said_on, true);
}

static void take_status(wf_world_watch *w, const watch_peer *p, const char *data)
{
    for (int i = 0; i < w->o.here; i++) {
        watch_rank r;

        memcpy(&r, data + (size_t)i * sizeof r, sizeof r);
        r.where[sizeof r.where - 1] = '\0';
        r.process = p->process;
        if (r.rank >= 0 && r.rank < w->o.ranks)
            w->rank[r.rank] = r;
    }
}

static void take(wf_world_watch *w, watch_peer *p, const watch_head *h, const void *data)
{
    size_t status = (size_t)w->o.here * sizeof *w->rank;
    wf_verdict v;

    p->silent_ms = 0;
    if (h->kind == WATCH_STATUS && h->bytes == status)
        take_status(w, p, data);
    if ((h->kind == WATCH_CAUSE || h->kind == WATCH_VERDICT) && h->bytes == sizeof v) {
        memcpy(&v, data, sizeof v);
        v.text[sizeof v.text - 1] = '\0';
        wf_watch_decide(w, &v);
    }
    if (h->kind == WATCH_TOLD)
        tell_on(w);
    if (h->kind == WATCH_BYE) {
        p->state = PEER_LEFT;
        shutdown(p->fd, SHUT_WR);
    }
}

/* Who was to tell, or to say who, is gone: who waits for that hears it. */
static void orphan(wf_world_watch *w, const watch_peer *p)
{
    pthread_mutex_lock(&w->lock);
    if (p->process == 0 || p->process == w->verdict.teller)
        w->orphaned = true;
    pthread_cond_broadcast(&w->heard);
    pthread_mutex_unlock(&w->lock);
}

static void hear(wf_world_watch *w, struct pollfd *set, int wait_ms)
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
        closing = w->closing && !wf_watch_is_head(w);
        pthread_mutex_unlock(&w->lock);
        if (wf_watch_has_verdict(w))
            orphan(w, p);
        if (closing || wf_watch_has_verdict(w))
            p->state = PEER_LEFT;
        else
            wf_watch_lose(w, p, "has ended", true);
    }
}

/* Who leaves says so, and goes when the other side knows. */
static bool may_leave(wf_world_watch *w, int64_t *since)
{
    bool closing, here = false;

    pthread_mutex_lock(&w->lock);
    closing = w->closing;
    pthread_mutex_unlock(&w->lock);
    if (!closing)
        return false;
    if (*since == 0) {
        *since = wf_watch_now();
        if (!wf_watch_is_head(w) && w->peer[0].state == PEER_HERE)
            wf_watch_send(&w->peer[0], WATCH_BYE, NULL, 0);
    }
    for (int i = 0; i < w->n_peers; i++)
        here = here || w->peer[i].state == PEER_HERE;
    return (!here && (!w->lost || wf_watch_has_verdict(w))) ||
           (wf_watch_has_verdict(w) && wf_watch_now() - *since > LAST_WORDS_MS);
}

static void *run(void *arg)
{
    wf_world_watch *w = arg;
    struct pollfd *set = calloc((size_t)w->n_peers + 1, sizeof *set);
    int64_t leaving = 0;

    w->ticked = wf_watch_now() - wf_watch_period(w); /* the first tick is now */
    while (set && !may_leave(w, &leaving)) {
        int64_t now = wf_watch_now(), due = w->ticked + wf_watch_period(w);

        if (now >= due) {
            tick(w, now - w->ticked);
            w->ticked = now;
            due = now + wf_watch_period(w);
        }
        hear(w, set,
             leaving || w->lost || (w->doubted && !w->proposed) ? 20 : (int)(due - now));
        wf_watch_hear_crash(w);
        wf_watch_decide_loss(w);
        wf_watch_look_here(w);
        tell_others(w);
    }
    free(set);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->heard);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* With no signal coming to it. */
static wf_status start(wf_world_watch *w, wf_error *error)
{
    pthread_attr_t attributes;
    int failure;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    failure = wf_thread_start(&w->thread, &attributes, run, w);
    pthread_attr_destroy(&attributes);
    return failure ? wf_error_set(error, WF_ENOMEM, "no thread to watch the ranks: %s",
                                  strerror(failure))
                   : WF_OK;
}

static void watch_free(wf_world_watch *w)
{
    for (int i = 0; w->peer && i < w->n_peers; i++) {
        if (w->peer[i].fd >= 0)
            close(w->peer[i].fd);
        free(w->peer[i].in);
    }
    if (w->wake >= 0)
        close(w->wake);
    pthread_cond_destroy(&w->heard);
    pthread_mutex_destroy(&w->lock);
    free(w->peer);
    free(w->rank);
    free(w->mine);
    free(w->pulse);
    free(w->since);
    free((void *)w->finished);
    free(w);
}

static bool make_room(wf_world_watch *w)
{
    size_t here = (size_t)w->o.here, peers = (size_t)w->n_peers;
    bool good;

    w->peer = calloc(peers + 1, sizeof *w->peer);
    w->rank = calloc((size_t)w->o.ranks, sizeof *w->rank);
    w->mine = calloc(here, sizeof *w->mine);
    w->pulse = calloc(here, sizeof *w->pulse);
    w->since = calloc(here, sizeof *w->since);
    w->finished = calloc(here, sizeof *w->finished);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    good = w->peer && w->rank && w->mine && w->pulse && w->since && w->finished && w->wake >= 0;
    for (int i = 0; w->peer && i < w->n_peers; i++) {
        w->peer[i].fd = -1;
        w->peer[i].process = wf_watch_is_head(w) ? i + 1 : 0;
        w->peer[i].in = malloc(wf_watch_room(w));
        good = good && w->peer[i].in;
    }
    return good;
}

wf_status wf_watch_open(const wf_watch_options *options, wf_world_watch **watch,
                        wf_error *error)
{
    wf_world_watch *w = calloc(1, sizeof *w);
    wf_status status;

    *watch = NULL;
    if (!w)
        return wf_error_set(error, WF_ENOMEM, "no memory to watch %d ranks", options->ranks);
    w->o = *options;
    w->n_peers = wf_watch_is_head(w) ? options->processes - 1 : 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->heard, NULL);
    atomic_store(&w->decided, WF_WATCH_UNDECIDED);
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

void wf_watch_poke(wf_world_watch *w)
{
    uint64_t one = 1;

    if (w && write(w->wake, &one, sizeof one) < 0)
        return; /* it has been poked very often */
}

void wf_watch_finished(wf_world_watch *w, int i)
{
    if (w)
        atomic_store(&w->finished[i], true);
}

static struct timespec in_a_while(int milliseconds)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += milliseconds % 1000 * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

bool wf_watch_verdict(wf_world_watch *w, int milliseconds, wf_verdict *verdict)
{
    const struct timespec until = in_a_while(milliseconds);
    bool has;

    pthread_mutex_lock(&w->lock);
    while (!w->has_verdict && !w->stop && milliseconds > 0 &&
           pthread_cond_timedwait(&w->heard, &w->lock, &until) == 0)
        ;
    has = w->has_verdict;
    if (has)
        *verdict = w->verdict;
    pthread_mutex_unlock(&w->lock);
    return has;
}

void wf_watch_told(wf_world_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->tells = true;
    pthread_mutex_unlock(&w->lock);
    wf_watch_poke(w);
}

bool wf_watch_await_told(wf_world_watch *w, int milliseconds)
{
    const struct timespec until = in_a_while(milliseconds);
    bool told;

    pthread_mutex_lock(&w->lock);
    while (!w->told && !w->orphaned && !w->stop &&
           pthread_cond_timedwait(&w->heard, &w->lock, &until) == 0)
        ;
    told = w->told || w->verdict.teller == WF_WATCH_NONE || wf_watch_given_up(w);
    pthread_mutex_unlock(&w->lock);
    return told;
}

void wf_watch_leave(wf_world_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_mutex_unlock(&w->lock);
    wf_watch_poke(w);
    pthread_join(w->thread, NULL);
}

void wf_watch_close(wf_world_watch *w)
{
    wf_world_watch *mine = w;

    atomic_compare_exchange_strong(&current, &mine, NULL);
    watch_free(w);
}

bool wf_watch_last_words(int rank, const char *text)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    wf_world_watch *w = atomic_load(&current);

    if (!w || !w->n_peers)
        return true;
    w->crash = (wf_verdict){.culprit = rank >= 0 ? rank : w->o.rank[0],
                            .teller = w->o.process,
                            .code = WF_ELOST,
                            .stuck = true,
                            .ended = true};
    memcpy(w->crash.text, text, strnlen(text, sizeof w->crash.text - 1));
    atomic_store(&w->crashed, true);
    wf_watch_poke(w);
    for (int ms = 0; ms < DECIDE_MS && !atomic_load(&w->all_told); ms += 2) {
        if (atomic_load(&w->decided) == w->o.process)
            return true;
        nanosleep(&nap, NULL);
    }
    return !atomic_load(&w->all_told);
}

void wf_watch_said(void)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    wf_world_watch *w = atomic_load(&current);

    if (!w || !w->n_peers)
        return;
    atomic_store(&w->said, true);
    wf_watch_poke(w);
    for (int ms = 0; ms < SAID_MS && !atomic_load(&w->said_on); ms++)
        nanosleep(&nap, NULL);
}
