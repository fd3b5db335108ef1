/*
 * mesh/transport/mpi/mpi_exchange.c - an exchange of one rank: begun with the members of this
 * process (an exchange between threads) and with those of others (a transfer), and waited for.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Returns why nothing over this group can continue, or WF_OK; under the lock. */
static wf_status check(const mpi_comm *c, const char *op, uint64_t call, wf_error *error)
{
    const mpi_world *w = c->world;
    const char *colon, *text;

    if (c->broken)
        return wf_mpi_host.error_set(error, WF_EMISMATCH, "%s", c->mismatch.text);
    if (!atomic_load(&w->aborted))
        return WF_OK;
    text = wf_mpi_host.error_after_rank(&w->cause, w->failed_rank, &colon);
    return wf_mpi_host.error_set(
        error, WF_ELOST, "rank %d failed%s%.1200s; rank %d was in %s over %s (call %llu)",
        w->failed_rank, colon, text, c->ranks[c->base.rank], op, c->base.name,
        (unsigned long long)call + 1);
}

wf_status wf_mpi_alive(wf_comm *comm, const char *op, uint64_t call, wf_error *error)
{
    mpi_comm *c = wf_mpi_of(comm);
    wf_status status;

    pthread_mutex_lock(&c->world->lock);
    status = check(c, op, call, error);
    pthread_mutex_unlock(&c->world->lock);
    return status;
}

/* Fails a transfer with a member that has returned from its work, and so will never come. */
static void check_finished(transfer *t)
{
    mpi_world *w = t->comm->world;
    wf_error cause = {WF_OK, ""};

    if (t->comm->broken || !w->n_finished) /* the mismatch came first of two reasons */
        return;
    for (int i = 0; i < t->n && !atomic_load(&w->aborted); i++) {
        int me = t->comm->ranks[t->comm->base.rank], other = t->comm->ranks[t->lane[i].member];

        if (t->lane[i].met || !w->finished[other])
            continue;
        wf_mpi_host.error_set(&cause, WF_ELOST,
                              "rank %d has finished, rank %d waits for it in %s over %s (call "
                              "%llu)",
                              other, me, t->x->print.op, t->comm->base.name,
                              (unsigned long long)t->sequence + 1);
        wf_mpi_abort(w, me, &cause);
    }
}

static void take_early(mpi_world *w)
{
    for (early **link = &w->early; *link;) {
        early *e = *link;

        if (!wf_mpi_deliver(w, (const head *)(const void *)e->head)) {
            link = &e->next;
            continue;
        }
        *link = e->next;
        e->next = w->unused_early;
        w->unused_early = e;
    }
}

/* Heads go out; any rank may move the exchange on. */
static void list(transfer *t)
{
    mpi_world *w = t->comm->world;
    transfer **link = &w->active;

    for (int i = 0; i < t->n; i++) {
        lane *l = &t->lane[i];
        size_t data = wf_mpi_inline_bytes(l->send_bytes);

        wf_mpi_write_head(t, l);
        if (data)
            memcpy(l->head->data, l->send, data);
        if (atomic_load(&w->lost))
            continue;
        wf_mpi_good(w, MPI_Isend(l->head, (int)(sizeof(head) + data), MPI_BYTE, l->process,
                                 TAG_HEAD, w->comm, &t->request[REQUESTS * i + REQUEST_HEAD]));
    }
    while (*link)
        link = &(*link)->next;
    *link = t;
    t->listed = true;
    take_early(w);
    if (t->x->background && t->n) {
        t->counted = true;
        wf_mpi_help(w);
    }
    wf_mpi_progress(w);
}

static void unlist(transfer *t)
{
    transfer **link = &t->comm->world->active;

    while (*link && *link != t)
        link = &(*link)->next;
    if (*link)
        *link = t->next;
    t->listed = false;
}

static wf_status begin_inside(transfer *t, wf_error *error)
{
    const wf_transport *threads = wf_mpi_host.threads;
    wf_comm *inner = t->comm->inner;

    t->inner.print = t->x->print;
    t->inner.background = t->x->background && inner->size > 1;
    if (wf_exchange_is_message(t->x->kind)) {
        t->inner.kind = t->x->kind;
        t->inner.send = t->x->send;
        t->inner.recv = t->x->recv;
        t->inner.bytes = t->x->bytes;
        t->inner.peer = t->comm->local[t->x->peer];
        return threads->begin(inner, &t->inner, error);
    }
    t->inner.work = wf_mpi_copy_inside;
    t->inner.owner = t;
    return threads->direct->begin(inner, &t->inner, error);
}

/* Returns whether a transfer has a part inside of this process; a message to another process
   has none. */
static bool has_inside(const transfer *t)
{
    return !wf_exchange_is_message(t->x->kind) || t->n == 0;
}

static void number(transfer *t)
{
    mpi_comm *c = t->comm;
    int me = c->base.rank, peer = t->x->peer;

    switch (t->x->kind) {
    case WF_EXCHANGE_SEND:
        t->key = wf_mpi_hash(wf_mpi_hash(c->key, (uint64_t)me + 1), (uint64_t)peer + 1);
        t->sequence = c->sent[peer]++;
        break;
    case WF_EXCHANGE_RECV:
        t->key = wf_mpi_hash(wf_mpi_hash(c->key, (uint64_t)peer + 1), (uint64_t)me + 1);
        t->sequence = c->received[peer]++;
        break;
    default:
        t->key = c->key;
        t->sequence = c->sequence++;
    }
}

static void release(transfer *t)
{
    t->x->slot = NULL;
    wf_mpi_host.blocks_give(&t->comm->base.blocks, t, t->bytes);
}

/* Gives a failed exchange up: its memory is no longer used when this returns. The rank will
   fail, so its world does; until then peers of this process must not read here. */
static void give_up(transfer *t, wf_error *cause)
{
    mpi_world *w = t->comm->world;

    pthread_mutex_lock(&w->lock);
    if (t->listed)
        unlist(t);
    wf_mpi_abandon(t);
    pthread_mutex_unlock(&w->lock);
    wf_mpi_host.threads->abort(t->comm->inner, cause);
}

wf_status wf_mpi_begin(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    mpi_comm *c = wf_mpi_of(comm);
    mpi_world *w = c->world;
    wf_status status;
    transfer *t;

    x->comm = comm;
    x->slot = NULL;
    pthread_mutex_lock(&w->lock);
    status = check(c, x->print.op, c->sequence, error);
    pthread_mutex_unlock(&w->lock);
    t = status == WF_OK ? wf_mpi_transfer_new(c, x, error) : NULL;
    if (!t)
        return status == WF_OK ? WF_ENOMEM : status;
    number(t);
    x->slot = t;
    x->sequence = t->sequence;
    if (t->n) {
        pthread_mutex_lock(&w->lock);
        list(t);
        pthread_mutex_unlock(&w->lock);
    } else {
        atomic_store(&t->over, true);
    }
    status = has_inside(t) ? begin_inside(t, error) : WF_OK;
    if (status != WF_OK) {
        wf_error cause = {WF_OK, ""};

        wf_mpi_host.error_set(&cause, status, "%s could not begin over %s", x->print.op,
                              comm->name);
        give_up(t, error && error->code != WF_OK ? error : &cause);
        release(t);
    }
    return status;
}

static wf_status wait_outside(transfer *t, wf_error *error)
{
    enum { FIRST_NAP = 20000, LAST_NAP = 200000 };
    mpi_world *w = t->comm->world;
    long nap = FIRST_NAP;

    for (int polls = 0; !atomic_load(&t->over); polls++) {
        wf_status status = WF_OK;

        if (pthread_mutex_trylock(&w->lock) == 0) { /* else another rank moves all on */
            int before = t->unmet + t->left;

            wf_mpi_progress(w);
            if (t->unmet + t->left < before) { /* more is likely soon */
                polls = 0;
                nap = FIRST_NAP;
            }
            if (!atomic_load(&t->over)) {
                check_finished(t);
                status = check(t->comm, t->x->print.op, t->sequence, error);
            }
            pthread_mutex_unlock(&w->lock);
        }
        if (status != WF_OK)
            return status;
        if (polls < w->polls) {
            if (polls % w->patience == w->patience - 1)
                sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
            nap = nap < LAST_NAP ? 2 * nap : nap;
        }
    }
    return WF_OK;
}

wf_status wf_mpi_wait(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    mpi_comm *c = wf_mpi_of(comm);
    transfer *t = x->slot;
    wf_error cause = {WF_OK, ""};
    wf_status status;

    if (!t) { /* an abort has ended it */
        pthread_mutex_lock(&c->world->lock);
        status = check(c, x->print.op, x->sequence, error);
        pthread_mutex_unlock(&c->world->lock);
        return status;
    }
    status = wait_outside(t, &cause);
    if (status != WF_OK)
        give_up(t, &cause);
    if (has_inside(t)) {
        wf_status inside = wf_mpi_host.threads->wait(c->inner, &t->inner, &cause);

        status = status == WF_OK ? inside : status;
        if (status == inside && inside != WF_OK && t->listed)
            give_up(t, &cause);
    }
    if (t->listed) {
        pthread_mutex_lock(&c->world->lock);
        unlist(t);
        pthread_mutex_unlock(&c->world->lock);
    }
    if (status != WF_OK)
        wf_mpi_host.error_set(error, status, "%s", cause.text);
    release(t);
    return status;
}
