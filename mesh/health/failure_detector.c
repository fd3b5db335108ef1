/* mesh/health/failure_detector.c - the failure detector of a world, its thread and its ends:
 * see the header. */
#include "core/thread.h"
#include "mesh/health/failure_detector_parts_internal.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    STACK_BYTES = 256 << 10,
    LINGER_MS = 200, /* the thread stays so long when its world has failed */
};

/* Advances the clocks; time in which this process did not run itself is not counted. */
static void tick(wf_detector *d, int64_t passed)
{
    int most = wf_detector_period(d) * 3 / 2, by = passed > most ? most : (int)passed;

    if (passed > WF_DETECTOR_SILENCE * 1000 / 2)
        d->woken = wf_detector_now();
    wf_detector_look_at_ranks(d, by);
    for (int i = 0; i < d->n_peers; i++) {
        detector_peer *p = &d->peer[i];

        if (p->state != PEER_HERE)
            continue;
        wf_detector_send(p, DETECTOR_STATUS, d->mine,
                         (size_t)d->o.local_size * sizeof *d->mine);
        p->silent_ms += by;
        if (p->silent_ms > WF_DETECTOR_SILENCE * 1000)
            wf_detector_lose(d, p, "has been silent for 10 s", false);
    }
    if (wf_detector_is_head(d) && d->o.limit > 0 && !wf_detector_has_failure(d))
        wf_detector_find_stall(d, by);
}

/* ---- the thread ---- */

/* Passes on that this process or another has reported to the user. A process that was lost
   because it was stopped may continue, and has the failure cause: it hears of this too, or it
   would report the failure cause a second time. */
static void pass_report_on(wf_detector *d)
{
    pthread_mutex_lock(&d->lock);
    d->reported = true;
    pthread_cond_broadcast(&d->heard);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; wf_detector_is_head(d) && i < d->n_peers; i++)
        if (d->peer[i].state != PEER_LEFT)
            wf_detector_send(&d->peer[i], DETECTOR_REPORTED, NULL, 0);
    atomic_store(&d->passed_on, true);
}

/* Notes that this process has reported, and says so to the others. */
static void report_to_others(wf_detector *d)
{
    bool reports;

    pthread_mutex_lock(&d->lock);
    reports = (d->reports || atomic_load(&d->notified)) && !d->reported;
    pthread_mutex_unlock(&d->lock);
    if (!reports)
        return;
    if (!wf_detector_is_head(d))
        wf_detector_send(&d->peer[0], DETECTOR_REPORTED, NULL, 0);
    pass_report_on(d);
}

static void take_status(wf_detector *d, const detector_peer *p, const char *data)
{
    for (int i = 0; i < d->o.local_size; i++) {
        detector_rank r;

        memcpy(&r, data + (size_t)i * sizeof r, sizeof r);
        r.where[sizeof r.where - 1] = '\0';
        r.process = p->process;
        if (r.rank >= 0 && r.rank < d->o.ranks)
            d->rank[r.rank] = r;
    }
}

static void take(wf_detector *d, detector_peer *p, const detector_head *h, const void *data)
{
    size_t status = (size_t)d->o.local_size * sizeof *d->rank;
    wf_failure v;

    p->silent_ms = 0;
    if (h->kind == DETECTOR_STATUS && h->bytes == status)
        take_status(d, p, data);
    if ((h->kind == DETECTOR_CAUSE || h->kind == DETECTOR_FAILURE) && h->bytes == sizeof v) {
        memcpy(&v, data, sizeof v);
        v.text[sizeof v.text - 1] = '\0';
        wf_detector_decide(d, &v);
    }
    if (h->kind == DETECTOR_REPORTED)
        pass_report_on(d);
    if (h->kind == DETECTOR_BYE) {
        p->state = PEER_LEFT;
        shutdown(p->fd, SHUT_WR);
    }
}

/* Notes that the process that was to report, or to name the reporter, is gone, and wakes those
   that wait for it. */
static void orphan(wf_detector *d, const detector_peer *p)
{
    pthread_mutex_lock(&d->lock);
    if (p->process == 0 || p->process == d->failure.reporter)
        atomic_store(&d->orphaned, true);
    pthread_cond_broadcast(&d->heard);
    pthread_mutex_unlock(&d->lock);
}

static void hear(wf_detector *d, struct pollfd *set, int wait_ms)
{
    uint64_t wakes;

    set[d->n_peers] = (struct pollfd){.fd = d->wake, .events = POLLIN};
    for (int i = 0; i < d->n_peers; i++)
        set[i] = (struct pollfd){.fd = d->peer[i].state == PEER_HERE ? d->peer[i].fd : -1,
                                 .events = POLLIN};
    if (poll(set, (nfds_t)d->n_peers + 1, wait_ms) <= 0)
        return;
    if (set[d->n_peers].revents && read(d->wake, &wakes, sizeof wakes) < 0)
        return;
    for (int i = 0; i < d->n_peers; i++) {
        detector_peer *p = &d->peer[i];
        bool closing;

        if (!set[i].revents || wf_detector_receive(d, p, take) || p->state != PEER_HERE)
            continue;
        pthread_mutex_lock(&d->lock);
        closing = d->closing && !wf_detector_is_head(d);
        pthread_mutex_unlock(&d->lock);
        if (wf_detector_has_failure(d))
            orphan(d, p);
        if (closing || wf_detector_has_failure(d))
            p->state = PEER_LEFT;
        else
            wf_detector_lose(d, p, "has ended", true);
    }
}

/* Who leaves says so, and goes when the other side knows. */
static bool may_leave(wf_detector *d, int64_t *since)
{
    bool closing, connected = false;

    pthread_mutex_lock(&d->lock);
    closing = d->closing;
    pthread_mutex_unlock(&d->lock);
    if (!closing)
        return false;
    if (*since == 0) {
        *since = wf_detector_now();
        if (!wf_detector_is_head(d) && d->peer[0].state == PEER_HERE)
            wf_detector_send(&d->peer[0], DETECTOR_BYE, NULL, 0);
    }
    for (int i = 0; i < d->n_peers; i++)
        connected = connected || d->peer[i].state == PEER_HERE;
    return (!connected && (!d->lost || wf_detector_has_failure(d))) ||
           (wf_detector_has_failure(d) && wf_detector_now() - *since > LINGER_MS);
}

static void *run(void *arg)
{
    wf_detector *d = arg;
    struct pollfd *set = calloc((size_t)d->n_peers + 1, sizeof *set);
    int64_t leaving = 0;

    d->ticked = wf_detector_now() - wf_detector_period(d); /* the first tick is now */
    while (set && !may_leave(d, &leaving)) {
        int64_t now = wf_detector_now(), due = d->ticked + wf_detector_period(d);

        if (now >= due) {
            tick(d, now - d->ticked);
            d->ticked = now;
            due = now + wf_detector_period(d);
        }
        hear(d, set,
             leaving || d->lost || (d->doubted && !d->proposed) ? 20 : (int)(due - now));
        wf_detector_hear_crash(d);
        wf_detector_decide_loss(d);
        wf_detector_look_here(d);
        report_to_others(d);
    }
    free(set);
    pthread_mutex_lock(&d->lock);
    atomic_store(&d->stop, true);
    pthread_cond_broadcast(&d->heard);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Starts the thread, with no signal coming to it. */
static wf_status start(wf_detector *d, wf_error *error)
{
    pthread_attr_t attributes;
    int failure;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    failure = wf_thread_start(&d->thread, &attributes, run, d);
    pthread_attr_destroy(&attributes);
    return failure ? wf_error_set(error, WF_ENOMEM,
                                  "no thread to watch the ranks: %s; ask for fewer ranks, or "
                                  "raise the limits on threads and memory",
                                  strerror(failure))
                   : WF_OK;
}

static void detector_free(wf_detector *d)
{
    for (int i = 0; d->peer && i < d->n_peers; i++) {
        if (d->peer[i].fd >= 0)
            close(d->peer[i].fd);
        free(d->peer[i].in);
    }
    if (d->wake >= 0)
        close(d->wake);
    pthread_cond_destroy(&d->heard);
    pthread_mutex_destroy(&d->lock);
    free(d->peer);
    free(d->rank);
    free(d->mine);
    free(d->pulse);
    free((void *)d->finished);
    free(d);
}

static wf_status no_memory(int ranks, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM,
                        "no memory to watch %d ranks: ask for fewer ranks, or raise the limits "
                        "on threads and memory",
                        ranks);
}

static wf_status make_room(wf_detector *d, wf_error *error)
{
    size_t local_size = (size_t)d->o.local_size, peers = (size_t)d->n_peers;
    bool good;

    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake < 0)
        return wf_error_set(error, WF_EIO,
                            "nothing can wake the thread that watches the ranks: %s; raise the "
                            "limit on open files (ulimit -n)",
                            strerror(errno));
    d->peer = calloc(peers + 1, sizeof *d->peer);
    d->rank = calloc((size_t)d->o.ranks, sizeof *d->rank);
    d->mine = calloc(local_size, sizeof *d->mine);
    d->pulse = calloc(local_size, sizeof *d->pulse);
    d->finished = calloc(local_size, sizeof *d->finished);
    good = d->peer && d->rank && d->mine && d->pulse && d->finished;
    for (int i = 0; d->peer && i < d->n_peers; i++) {
        d->peer[i].fd = -1;
        d->peer[i].process = wf_detector_is_head(d) ? i + 1 : 0;
        d->peer[i].in = malloc(wf_detector_room(d));
        good = good && d->peer[i].in;
    }
    return good ? WF_OK : no_memory(d->o.ranks, error);
}

wf_status wf_detector_open(const wf_detector_options *options, wf_detector **detector,
                           wf_error *error)
{
    wf_detector *d = calloc(1, sizeof *d);
    wf_status status;

    *detector = NULL;
    if (!d)
        return no_memory(options->ranks, error);
    d->o = *options;
    d->n_peers = wf_detector_is_head(d) ? options->processes - 1 : 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->heard, NULL);
    atomic_store(&d->decided, WF_DETECTOR_UNDECIDED);
    status = make_room(d, error);
    if (status == WF_OK && d->n_peers)
        status = wf_detector_meet(d, error);
    if (status == WF_OK)
        status = start(d, error);
    if (status != WF_OK) {
        detector_free(d);
        return status;
    }
    wf_detector_for_crashes(NULL, d);
    *detector = d;
    return WF_OK;
}

void wf_detector_wake(wf_detector *d)
{
    uint64_t one = 1;

    if (d && write(d->wake, &one, sizeof one) < 0)
        return; /* it has been woken very often */
}

void wf_detector_finished(wf_detector *d, int i)
{
    if (d)
        atomic_store(&d->finished[i], true);
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

bool wf_detector_failure(wf_detector *d, int milliseconds, wf_failure *failure)
{
    const struct timespec until = in_a_while(milliseconds);
    bool has;

    pthread_mutex_lock(&d->lock);
    while (!d->has_failure && !atomic_load(&d->stop) && milliseconds > 0 &&
           pthread_cond_timedwait(&d->heard, &d->lock, &until) == 0)
        ;
    has = d->has_failure;
    if (has)
        *failure = d->failure;
    pthread_mutex_unlock(&d->lock);
    return has;
}

void wf_detector_reported(wf_detector *d)
{
    pthread_mutex_lock(&d->lock);
    d->reports = true;
    pthread_mutex_unlock(&d->lock);
    wf_detector_wake(d);
}

bool wf_detector_await_reported(wf_detector *d, int milliseconds)
{
    const struct timespec until = in_a_while(milliseconds);
    bool reported;

    pthread_mutex_lock(&d->lock);
    while (!d->reported && !atomic_load(&d->orphaned) && !atomic_load(&d->stop) &&
           pthread_cond_timedwait(&d->heard, &d->lock, &until) == 0)
        ;
    reported =
        d->reported || d->failure.reporter == WF_DETECTOR_NONE || wf_detector_given_up(d);
    pthread_mutex_unlock(&d->lock);
    return reported;
}

void wf_detector_leave(wf_detector *d)
{
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_mutex_unlock(&d->lock);
    wf_detector_wake(d);
    pthread_join(d->thread, NULL);
}

void wf_detector_close(wf_detector *d)
{
    wf_detector_for_crashes(d, NULL);
    detector_free(d);
}
