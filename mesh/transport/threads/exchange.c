/*
 * mesh/transport/threads/exchange.c - an exchange between threads: posted as a pointer to the
 * poster's own wf_exchange, worked on in place by any rank that is awake, and left. See
 * world_internal.h.
 */
#include "mesh/transport/threads/exchange_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Waking another core to help takes some microseconds: less than these bytes take one core. */
enum { WORTH_HELP = 256 << 10 };

/* Returns the need that all have posted. */
static need need_of(const threads_comm *c, const wf_exchange *x)
{
    const slot *p = x->slot;

    return (need){.group = c->group,
                  .word = &p->posted,
                  .target = p->target,
                  .marks = p->mark,
                  .mark = x->sequence + 1,
                  .op = x->print.op,
                  .call = x->sequence};
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
    const slot *p = x->slot;

    return atomic_load(&p->posted) >= p->target;
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

/* Notes the begin of an exchange, by its first member. */
static void note_begin(slot *p, const wf_exchange *x)
{
    int64_t unset = 0;

    if (x->timed && atomic_load(&p->began) == 0)
        atomic_compare_exchange_strong(&p->began, &unset, wf_trace_now());
}

static void set_over(threads_comm *c, slot *p, const wf_exchange *x)
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

/* Sleeps, for tests with a link of limited speed, until one more piece of the work would have
   crossed it, *due being when the last one had; 0: the first. */
static void cross_link(const threads_comm *c, const wf_exchange *x, int64_t all, double *due)
{
    uint64_t speed = atomic_load(&c->group->world->link);

    if (!speed || x->print.bytes <= 0)
        return;
    *due = (*due > 0 ? *due : now()) + (double)x->print.bytes / (double)all / (double)speed;
    while (now() < *due && wf_threads_check(c, x->print.op, 0, NULL) == WF_OK)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Does a piece, or has this member's device do it, after what all have posted where it is the
   member's first. What a failed piece has queued is marked as well. */
static wf_status run_piece(threads_comm *c, wf_exchange *x, int share, int64_t piece,
                           bool first, wf_error *error)
{
    wf_error wrong = {WF_OK, ""};
    wf_status status = first ? wf_threads_follow_posted(c, x, &wrong) : WF_OK, marked;

    if (status == WF_OK)
        status = x->work(x, share, piece, &wrong);
    marked = wf_threads_mark_moved(c, x, status == WF_OK ? &wrong : NULL);
    if (status == WF_OK && marked == WF_OK)
        return WF_OK;
    return wf_threads_break(c->group, wrong.code, wrong.text, error);
}

wf_status wf_threads_work(threads_comm *c, wf_exchange *x, wf_error *error)
{
    int64_t all = all_pieces(c, x);
    int size = c->base.size, shares = x->device ? 1 : size;
    slot *p = x->slot;
    bool first = true;
    double due = 0;
    wf_status status = wf_threads_begin_reading(c, x, error);

    for (int k = 0; status == WF_OK && k < shares && atomic_load(&p->over) <= x->sequence;
         k++) {
        int share = (c->base.rank + k) % size;
        int64_t pieces = pieces_of(x, share), piece;

        while (status == WF_OK && atomic_load(&p->taken[share]) < pieces &&
               (piece = atomic_fetch_add(&p->taken[share], 1)) < pieces) {
            note_begin(p, x);
            cross_link(c, x, all, &due);
            status = wf_threads_check(c, x->print.op, x->sequence, error);
            if (status == WF_OK)
                status = run_piece(c, x, share, piece, first, error);
            first = false;
            if (status == WF_OK && atomic_fetch_add(&p->done, 1) + 1 == all)
                set_over(c, p, x);
        }
    }
    wf_threads_end_reading(c, x);
    return status;
}

/* Starts the work when the last member has posted: it will work itself, or its thread in the
   background will; wakes as many more as there are cores and pieces for, and of devices all:
   each has its own share to queue. */
static void start_work(threads_comm *c, slot *p, wf_exchange *x)
{
    int64_t all = all_pieces(c, x), bytes = x->print.bytes * c->base.size;
    int64_t cores = x->device ? c->base.size : c->group->world->cores;
    int64_t helpers = cores < all || x->device ? cores : all;

    if (all == 0) {
        set_over(c, p, x);
        return;
    }
    if (x->background)
        wf_threads_wake_for(c->group, c->base.rank, (int)helpers);
    if (helpers > 1 && (x->device || bytes < 0 || bytes >= WORTH_HELP))
        wf_threads_wake_some(c->group, (int)helpers - 1);
}

static wf_status wait_until(threads_comm *c, wf_exchange *x, const need *n, wf_error *error)
{
    wf_status status = wf_threads_wait(c, n, error);

    return status == WF_OK ? WF_OK : wf_threads_give_up(c, x, status);
}

/* Who comes late to the work may find the world aborted by one that has its results already:
   the exchange has ended well for all of them, or for none. */
static wf_status work_until_over(threads_comm *c, wf_exchange *x, wf_error *error)
{
    const slot *p = x->slot;
    wf_error late = {WF_OK, ""};

    if (wf_threads_work(c, x, &late) == WF_OK || atomic_load(&p->over) > x->sequence)
        return WF_OK;
    return wf_error_set(error, late.code, "%s", late.text);
}

wf_status wf_threads_finish_exchange(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    slot *p = x->slot;
    need n = need_of(c, x);
    wf_status status;

    wf_threads_take_back(c, x);
    status = wait_until(c, x, &n, error);
    if (status == WF_OK && atomic_load(&p->over) <= x->sequence) {
        status = work_until_over(c, x, error);
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
    if (status == WF_OK) {
        status = wf_threads_follow_moved(c, x, error);
        wf_threads_pace_end(c, x, p);
        atomic_fetch_add(&p->left, 1);
    }
    return status;
}

wf_status wf_threads_mismatch(threads_comm *c, const wf_exchange *x, int other,
                              const wf_fingerprint *theirs, wf_error *error)
{
    char text[WF_ERROR_TEXT];

    wf_fingerprint_differ(&c->base, x->sequence, &x->print, other, theirs, text, sizeof text);
    return wf_threads_break(c->group, WF_EMISMATCH, text, error);
}

wf_status wf_threads_copy(const wf_exchange *x, void *to, const void *from, size_t bytes,
                          wf_error *error)
{
    wf_copy copy = {.from = from, .to = to, .bytes = bytes, .rows = 1};

    if (!bytes || to == from)
        return WF_OK;
    if (x->device)
        return x->device->memory->copy(x->device, &copy, true, error);
    memcpy(to, from, bytes);
    return WF_OK;
}

/* Takes x's slot, as the first or with the others, which must have said the same. */
static wf_status take_slot(threads_comm *c, wf_exchange *x, wf_error *error)
{
    group *g = c->group;
    wf_fingerprint theirs = x->print;
    int other = c->base.rank;
    bool first;
    slot *p;

    pthread_mutex_lock(&g->lock);
    first = x->sequence == g->exchanges;
    p = wf_threads_slot(g, x->sequence);
    if (p && x->device && !p->queue) {
        p->queue = calloc((size_t)g->size, sizeof *p->queue);
        p = p->queue ? p : NULL;
    }
    if (p && first) {
        p->print = x->print;
        p->first = c->base.rank;
    } else if (p) {
        theirs = p->print;
        other = p->first;
    }
    pthread_mutex_unlock(&g->lock);
    x->slot = p;
    if (!p)
        return wf_error_set(error, WF_ENOMEM,
                            "no memory for one more exchange in flight over %s", g->name);
    return wf_fingerprint_same(&x->print, &theirs)
               ? WF_OK
               : wf_threads_mismatch(c, x, other, &theirs, error);
}

wf_status wf_threads_post(threads_comm *c, wf_exchange *x, wf_error *error)
{
    wf_status status;
    slot *p;

    x->comm = &c->base;
    x->sequence = c->sequence;
    x->reading = x->queued = false;
    status = wf_threads_check(c, x->print.op, x->sequence, error);
    if (status == WF_OK)
        status = take_slot(c, x, error);
    p = x->slot;
    if (status == WF_OK && x->device)
        status = wf_threads_mark(x, &p->queue[c->base.rank].posted_at, error);
    if (status != WF_OK)
        return status;
    wf_threads_pace_post(c, p);
    p->exchange[c->base.rank] = x;
    x->finish = wf_threads_finish_exchange;
    c->sequence++;
    if (x->background)
        wf_threads_leave_to_progress(c, x);
    atomic_store(&p->mark[c->base.rank], x->sequence + 1);
    if (atomic_fetch_add(&p->posted, 1) + 1 == p->target)
        start_work(c, p, x);
    return WF_OK;
}

static wf_status begin_direct(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    return wf_threads_post(wf_threads_of(comm), x, error);
}

static void *owner(const wf_exchange *x, int member)
{
    return wf_threads_peer(x, member)->owner;
}

const wf_direct_access wf_threads_direct = {.begin = begin_direct, .owner = owner};
