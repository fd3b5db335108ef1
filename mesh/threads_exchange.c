/*
 * mesh/threads_exchange.c - an exchange between threads: posted as a pointer to the poster's
 * own wf_exchange, read in place by its peers, and left. This is also what the transport
 * exposes.
 */
#include "mesh/threads_exchange.h"
#include <stdio.h>
#include <string.h>

static need stage_need(const threads_comm *c, const wf_exchange *x, const place *p,
                       uint64_t sequence, enum stage stage)
{
    return (need){.group = c->group,
                  .word = &p->count[stage],
                  .target = (sequence / RING + 1) * (uint64_t)c->base.size,
                  .marks = p->mark,
                  .mark = stage_mark(sequence, stage),
                  .op = x->print.op,
                  .call = x->sequence};
}

static void arrive(threads_comm *c, place *p, uint64_t sequence, enum stage stage)
{
    atomic_store(&p->mark[c->base.rank], stage_mark(sequence, stage));
    if ((atomic_fetch_add(&p->count[stage], 1) + 1) % (uint64_t)c->base.size == 0)
        wf_threads_wake(c->group);
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

wf_status wf_threads_wait_stage(threads_comm *c, wf_exchange *x, enum stage stage,
                                wf_error *error)
{
    need n = stage_need(c, x, x->place, x->sequence, stage);
    wf_status status = wf_threads_wait(c, &n, error);

    return status == WF_OK ? WF_OK : wf_threads_give_up(c, x, status);
}

static void describe(const wf_fingerprint *p, char *text, size_t room)
{
    bool detail = p->detail[0] != '\0';
    int used = snprintf(text, room, "%s%s%s%s", p->op, detail ? "(" : "", p->detail,
                        detail ? ")" : "");

    if (p->bytes >= 0 && p->buffers > 0)
        used +=
            snprintf(text + used, room - (size_t)used, " of %lld bytes", (long long)p->bytes);
    if (p->root >= 0)
        used += snprintf(text + used, room - (size_t)used, " from %d", p->root);
    if (p->buffers > 0)
        snprintf(text + used, room - (size_t)used, " in %lld buffer%s of %zu-byte elements",
                 (long long)p->buffers, p->buffers > 1 ? "s" : "", p->element);
}

static bool same_print(const wf_fingerprint *a, const wf_fingerprint *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->detail, b->detail) == 0 &&
           a->element == b->element && a->buffers == b->buffers && a->bytes == b->bytes &&
           a->root == b->root && a->shape == b->shape;
}

wf_status wf_threads_mismatch(threads_comm *c, const wf_exchange *x, int other,
                              const wf_fingerprint *theirs, wf_error *error)
{
    char text[WF_ERROR_TEXT], mine_text[256], their_text[256];

    describe(&x->print, mine_text, sizeof mine_text);
    describe(theirs, their_text, sizeof their_text);
    snprintf(text, sizeof text,
             "over %s, call %llu of rank %d is %s, that of rank %d is %s%s; all members of a "
             "group make the same collectives with the same sizes, in the same order",
             c->group->name, (unsigned long long)x->sequence + 1, c->world_rank, mine_text,
             c->group->members[other], their_text,
             strcmp(mine_text, their_text) == 0 ? ", counted or cut differently" : "");
    return wf_threads_break(c->group, text, error);
}

/* Wait for the ring's next place; only the peers may be late with it. */
static wf_status take_place(threads_comm *c, wf_exchange *x, wf_error *error)
{
    place *p = &c->group->ring[c->sequence % RING];
    wf_status status;
    need n;

    x->sequence = c->sequence;
    x->place = p;
    x->reading = false;
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
    return wf_threads_wait(c, &n, error);
}

wf_status wf_threads_post(threads_comm *c, wf_exchange *x, wf_error *error)
{
    wf_status status = take_place(c, x, error);
    place *p = x->place;
    wf_fingerprint theirs;
    int first;

    if (status != WF_OK)
        return status;
    pthread_mutex_lock(&c->group->lock);
    if (p->printed != x->sequence + 1) {
        p->printed = x->sequence + 1;
        p->print = x->print;
        p->first = c->base.rank;
    }
    theirs = p->print;
    first = p->first;
    pthread_mutex_unlock(&c->group->lock);
    if (!same_print(&x->print, &theirs))
        return wf_threads_mismatch(c, x, first, &theirs, error);
    p->posted[c->base.rank] = x;
    c->sequence++;
    arrive(c, p, x->sequence, POSTED);
    return WF_OK;
}

wf_status wf_threads_look(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    wf_status status = wf_threads_wait_stage(wf_threads_of(comm), x, POSTED, error);

    if (status == WF_OK) {
        status = wf_threads_begin_reading(wf_threads_of(comm), x, error);
        if (status != WF_OK)
            wf_threads_give_up(wf_threads_of(comm), x, status);
    }
    return status;
}

static wf_status meet(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    arrive(wf_threads_of(comm), x->place, x->sequence, MET);
    return wf_threads_wait_stage(wf_threads_of(comm), x, MET, error);
}

wf_status wf_threads_release(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    threads_comm *c = wf_threads_of(comm);
    place *p = x->place;

    (void)error;
    wf_threads_end_reading(c, x);
    if (atomic_load(&p->mark[comm->rank]) < stage_mark(x->sequence, MET))
        atomic_fetch_add(&p->count[MET], 1); /* all skip it: nobody waits there */
    arrive(c, p, x->sequence, LEFT);
    return WF_OK;
}

wf_status wf_threads_settle(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    return wf_threads_wait_stage(wf_threads_of(comm), x, LEFT, error);
}

wf_status wf_threads_disagree(wf_comm *comm, wf_exchange *x, const char *text, wf_error *error)
{
    return wf_threads_give_up(wf_threads_of(comm), x,
                              wf_threads_break(wf_threads_of(comm)->group, text, error));
}

static const void *const *address(const wf_comm *comm, const wf_exchange *x, int member)
{
    (void)comm;
    return wf_threads_peer(x, member)->address;
}

static wf_status expose(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    return wf_threads_post(wf_threads_of(comm), x, error);
}

const wf_exposure wf_threads_exposure = {
    .expose = expose,
    .look = wf_threads_look,
    .address = address,
    .meet = meet,
    .release = wf_threads_release,
    .settle = wf_threads_settle,
    .disagree = wf_threads_disagree,
};
