/*
 * mesh/threads_exchange.c - an exchange between threads: posted as a pointer to the poster's
 * own wf_exchange, worked on in place by whoever is awake, and left. See threads_world.h.
 */
#include "mesh/threads_exchange.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Waking another core to help takes some microseconds: less than these bytes take one core. */
enum { WORTH_HELP = 256 << 10 };

static uint64_t stage_target(const threads_comm *c, uint64_t sequence)
{
    return (sequence / RING + 1) * (uint64_t)c->base.size;
}

static need stage_need(const threads_comm *c, const wf_exchange *x, const place *p,
                       uint64_t sequence, enum stage stage)
{
    return (need){.group = c->group,
                  .word = &p->count[stage],
                  .target = stage_target(c, sequence),
                  .marks = p->mark,
                  .mark = stage_mark(sequence, stage),
                  .op = x->print.op,
                  .call = x->sequence};
}

/* True for the member that comes last. */
static bool arrive(threads_comm *c, place *p, uint64_t sequence, enum stage stage)
{
    atomic_store(&p->mark[c->base.rank], stage_mark(sequence, stage));
    return atomic_fetch_add(&p->count[stage], 1) + 1 == stage_target(c, sequence);
}

wf_status wf_threads_begin_reading(threads_comm *c, wf_exchange *x, wf_error *error)
{
    atomic_fetch_add(&c->group->readers, 1);
    x->reading = true;
    return wf_threads_check(c, x->print.op, x->sequence, error);
}

void wf_threads_end_reading(threads_comm *c, wf_exchange *x)
{
    if (x->reading)
        atomic_fetch_sub(&c->group->readers, 1);
    x->reading = false;
}

wf_status wf_threads_give_up(threads_comm *c, wf_exchange *x, wf_status status)
{
    wf_threads_end_reading(c, x);
    wf_threads_quiesce(c->group);
    return status;
}

bool wf_threads_all_posted(const wf_exchange *x)
{
    const place *p = x->place;

    return atomic_load(&p->count[POSTED]) >=
           stage_target((const threads_comm *)x->comm, x->sequence);
}

static int64_t pieces_of(const wf_exchange *x, int share)
{
    return !x->work ? 0 : x->pieces ? x->pieces[share] : 1;
}

static int64_t all_pieces(const threads_comm *c, const wf_exchange *x)
{
    int64_t sum = 0;

    for (int i = 0; i < c->base.size; i++)
        sum += pieces_of(x, i);
    return sum;
}

/* The first one says so, whoever it is. */
static void note_begin(place *p, const wf_exchange *x)
{
    int64_t unset = 0;

    if (x->timed && atomic_load(&p->began) == 0)
        atomic_compare_exchange_strong(&p->began, &unset, wf_trace_now());
}

static void set_over(threads_comm *c, place *p, const wf_exchange *x)
{
    note_begin(p, x);
    if (x->timed)
        p->ended = wf_trace_now();
    atomic_store(&p->over, x->sequence + 1);
    wf_threads_wake(c->group);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* For tests, a link of limited speed: sleep until one more piece of the work would have crossed
   it, *due being when the last one had; 0: the first. */
static void cross_link(const threads_comm *c, const wf_exchange *x, int64_t all, double *due)
{
    uint64_t speed = atomic_load(&c->group->world->link);

    if (!speed || x->print.bytes <= 0)
        return;
    *due = (*due > 0 ? *due : now()) + (double)x->print.bytes / (double)all / (double)speed;
    while (now() < *due && wf_threads_check(c, x->print.op, 0, NULL) == WF_OK)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

wf_status wf_threads_work(threads_comm *c, wf_exchange *x, wf_error *error)
{
    int64_t all = all_pieces(c, x);
    int size = c->base.size;
    place *p = x->place;
    double due = 0;
    wf_status status = wf_threads_begin_reading(c, x, error);

    for (int k = 0; status == WF_OK && k < size && atomic_load(&p->over) <= x->sequence; k++) {
        int share = (c->base.rank + k) % size;
        int64_t pieces = pieces_of(x, share), piece;

        while (status == WF_OK && atomic_load(&p->taken[share]) < pieces &&
               (piece = atomic_fetch_add(&p->taken[share], 1)) < pieces) {
            wf_error wrong = {WF_OK, ""};

            note_begin(p, x);
            cross_link(c, x, all, &due);
            status = wf_threads_check(c, x->print.op, x->sequence, error);
            if (status == WF_OK && x->work(x, share, piece, &wrong) != WF_OK)
                status = wf_threads_break(c->group, wrong.code, wrong.text, error);
            if (atomic_fetch_add(&p->done, 1) + 1 == all && status == WF_OK)
                set_over(c, p, x);
        }
    }
    wf_threads_end_reading(c, x);
    return status;
}

/* The last member has posted: it will work itself, or its thread in the background will; wake
   as many more as there are cores and pieces for. */
static void start_work(threads_comm *c, place *p, wf_exchange *x)
{
    int64_t all = all_pieces(c, x), bytes = x->print.bytes * c->base.size;
    int64_t helpers = c->group->world->cores < all ? c->group->world->cores : all;

    if (all == 0) {
        set_over(c, p, x);
        return;
    }
    if (x->background)
        wf_threads_poke(c->group, c->base.rank, (int)helpers);
    if (helpers > 1 && (bytes < 0 || bytes >= WORTH_HELP))
        wf_threads_wake_some(c->group, (int)helpers - 1);
}

static wf_status wait_until(threads_comm *c, wf_exchange *x, const need *n, wf_error *error)
{
    wf_status status = wf_threads_wait(c, n, error);

    return status == WF_OK ? WF_OK : wf_threads_give_up(c, x, status);
}

wf_status wf_threads_finish_exchange(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    place *p = x->place;
    need n = stage_need(c, x, p, x->sequence, POSTED);
    wf_status status;

    wf_threads_take_back(c, x);
    status = wait_until(c, x, &n, error);
    if (status == WF_OK && atomic_load(&p->over) <= x->sequence) {
        status = wf_threads_work(c, x, error);
        if (status != WF_OK)
            return wf_threads_give_up(c, x, status);
        n.end = &p->over;
        n.end_target = x->sequence + 1;
        status = wait_until(c, x, &n, error);
    }
    if (status == WF_OK && x->timed) {
        x->began = atomic_load(&p->began);
        x->ended = p->ended;
    }
    if (status == WF_OK && arrive(c, p, x->sequence, LEFT) &&
        atomic_load(&c->group->place_waiters))
        wf_threads_wake(c->group);
    return status;
}

wf_status wf_threads_mismatch(threads_comm *c, const wf_exchange *x, int other,
                              const wf_fingerprint *theirs, wf_error *error)
{
    char text[WF_ERROR_TEXT];

    wf_fingerprint_differ(&c->base, x->sequence, &x->print, other, theirs, text, sizeof text);
    return wf_threads_break(c->group, WF_EMISMATCH, text, error);
}

/* Wait for the ring's next place; only the peers may be late with it. */
static wf_status take_place(threads_comm *c, wf_exchange *x, wf_error *error)
{
    place *p = &c->group->ring[c->sequence % RING];
    wf_status status;
    need n;

    x->comm = &c->base;
    x->sequence = c->sequence;
    x->place = p;
    x->reading = x->queued = false;
    status = wf_threads_check(c, x->print.op, x->sequence, error);
    if (status != WF_OK || c->sequence < RING)
        return status;
    n = stage_need(c, x, p, c->sequence - RING, LEFT);
    if (atomic_load(&p->mark[c->base.rank]) < n.mark)
        return wf_error_set(
            error, WF_EINVAL,
            "rank %d has %d exchanges in flight over %s, the most there can be; "
            "end one before beginning %s",
            c->world_rank, RING, c->group->name, x->print.op);
    atomic_fetch_add(&c->group->place_waiters, 1);
    status = wf_threads_wait(c, &n, error);
    atomic_fetch_sub(&c->group->place_waiters, 1);
    return status;
}

wf_status wf_threads_settle(const wf_exchange *x, wf_error *error)
{
    return x->device ? x->device->far->wait(x->device, error) : WF_OK;
}

wf_status wf_threads_copy(const wf_exchange *x, void *to, const void *from, size_t bytes,
                          wf_error *error)
{
    wf_copy copy = {.from = from, .to = to, .bytes = bytes, .rows = 1};

    if (!bytes || to == from)
        return WF_OK;
    if (x->device)
        return x->device->far->copy(x->device, &copy, true, error);
    memcpy(to, from, bytes);
    return WF_OK;
}

wf_status wf_threads_post(threads_comm *c, wf_exchange *x, wf_error *error)
{
    wf_status status = wf_threads_settle(x, error);
    wf_fingerprint theirs;
    place *p;
    int first;

    if (status == WF_OK)
        status = take_place(c, x, error);
    p = x->place;
    if (status != WF_OK)
        return status;
    pthread_mutex_lock(&c->group->lock);
    if (p->printed != x->sequence + 1) {
        p->printed = x->sequence + 1;
        p->print = x->print;
        p->first = c->base.rank;
        atomic_store(&p->done, 0);
        atomic_store(&p->began, 0);
        p->ended = 0;
        for (int i = 0; i < c->base.size; i++)
            atomic_store(&p->taken[i], 0);
    }
    theirs = p->print;
    first = p->first;
    pthread_mutex_unlock(&c->group->lock);
    if (!wf_fingerprint_same(&x->print, &theirs))
        return wf_threads_mismatch(c, x, first, &theirs, error);
    p->posted[c->base.rank] = x;
    x->finish = wf_threads_finish_exchange;
    c->sequence++;
    if (x->background)
        wf_threads_leave_to_progress(c, x);
    if (arrive(c, p, x->sequence, POSTED))
        start_work(c, p, x);
    return WF_OK;
}

static wf_status expose(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    return wf_threads_post(wf_threads_of(comm), x, error);
}

static void *owner(const wf_exchange *x, int member)
{
    return wf_threads_peer(x, member)->owner;
}

const wf_exposure wf_threads_exposure = {.expose = expose, .owner = owner};
