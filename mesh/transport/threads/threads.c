/*
 * mesh/transport/threads/threads.c - the transport between ranks that are threads of one
 * process: the calls that move bytes, and worlds and groups. Below it: exchange.c (post, work
 * in place, leave), progress.c (the same while the ranks compute), message.c (send and receive)
 * and world.c (shared state, waiting, abort).
 */
#include "mesh/transport/registry_internal.h"
#include "mesh/transport/threads/exchange_internal.h"
#include "mesh/transport/threads/threads_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies to member `to` its block of each member's. */
static wf_status scatter_blocks(const wf_exchange *x, int to, int64_t piece, wf_error *error)
{
    const wf_exchange *mine = wf_threads_peer(x, to);
    const wf_comm *comm = x->comm;
    wf_status status = WF_OK;
    char *block = mine->recv;

    (void)piece;
    for (int i = 0; i < comm->size && status == WF_OK; i++) {
        const wf_exchange *other = wf_threads_peer(x, i);
        size_t skip = 0;

        if (other->send_bytes[to] != mine->recv_bytes[i])
            return wf_error_set(
                error, WF_EMISMATCH,
                "over %s, rank %d sends %zu bytes to rank %d in %s, which expects %zu",
                comm->name, wf_comm_world_rank(comm, i), other->send_bytes[to],
                wf_comm_world_rank(comm, to), x->print.op, mine->recv_bytes[i]);
        for (int k = 0; k < to; k++)
            skip += other->send_bytes[k];
        if (i != to || !mine->mine_stays)
            status = wf_threads_copy(x, block, (const char *)other->send + skip,
                                     mine->recv_bytes[i], error);
        block += mine->recv_bytes[i];
    }
    return status;
}

static wf_status gather_blocks(const wf_exchange *x, int to, int64_t piece, wf_error *error)
{
    const wf_exchange *mine = wf_threads_peer(x, to);
    wf_status status = WF_OK;
    char *block = mine->recv;

    (void)piece;
    for (int i = 0; i < x->comm->size && status == WF_OK; i++) {
        status =
            wf_threads_copy(x, block, wf_threads_peer(x, i)->send, mine->recv_bytes[i], error);
        block += mine->recv_bytes[i];
    }
    return status;
}

static wf_status copy_from_root(const wf_exchange *x, int to, int64_t piece, wf_error *error)
{
    (void)piece;
    return wf_threads_copy(x, wf_threads_peer(x, to)->recv, wf_threads_peer(x, x->peer)->send,
                           x->bytes, error);
}

static wf_status begin(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    static wf_status (*const work[])(const wf_exchange *, int, int64_t, wf_error *) = {
        [WF_EXCHANGE_ALL_TO_ALL] = scatter_blocks,
        [WF_EXCHANGE_ALL_GATHER] = gather_blocks,
        [WF_EXCHANGE_BROADCAST] = copy_from_root,
        [WF_EXCHANGE_BARRIER] = NULL,
    };

    if (x->kind == WF_EXCHANGE_SEND)
        return wf_threads_send(comm, x, error);
    if (x->kind == WF_EXCHANGE_RECV)
        return wf_threads_recv(comm, x, error);
    x->work = work[x->kind];
    return wf_threads_post(wf_threads_of(comm), x, error);
}

static wf_status finish_exchange(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    return x->finish(comm, x, error);
}

wf_status wf_threads_open(int ranks, const int *number, bool own_cores, void **out,
                          wf_error *error)
{
    *out = wf_threads_world_new(ranks, number, own_cores);
    if (!*out)
        return wf_error_set(error, WF_ENOMEM, "no memory for a world of %d ranks", ranks);
    return WF_OK;
}

void wf_threads_world_abort(void *w, int rank, const wf_error *why)
{
    wf_threads_abort(w, rank, why);
}

static wf_status open_world(const wf_world_options *options, void **out, wf_error *error)
{
    return wf_threads_open(options->ranks, NULL, options->own_cores, out, error);
}

static void close_world(void *w)
{
    wf_threads_world_free(w);
}

static wf_status cause(void *opaque, int *failed_rank, wf_error *error)
{
    const world *w = opaque;
    const char *colon, *text;

    if (!atomic_load(&w->aborted))
        return WF_OK;
    *failed_rank = w->failed_rank;
    text = wf_error_after_rank(&w->cause, w->failed_rank, &colon);
    return wf_error_set(error, w->cause.code, "rank %d%s%.1400s", w->failed_rank, colon, text);
}

static wf_status join(world *w, const group *parent, uint64_t ordinal, const char *name,
                      const int *members, int n, int world_rank, wf_comm **out, wf_error *error)
{
    threads_comm *c = calloc(1, sizeof *c);
    wf_status status;
    int rank = 0;

    if (!c)
        return wf_error_set(error, WF_ENOMEM, "no memory for a handle of group %s", name);
    status =
        wf_threads_group(w, parent, ordinal, name, members, n, world_rank, &c->group, error);
    if (status != WF_OK) {
        free(c);
        return status;
    }
    while (members[rank] != world_rank)
        rank++;
    c->world_rank = world_rank;
    wf_comm_init(&c->base, &wf_transport_threads, name, rank, n, c->group->members);
    c->base.sharing = c->group->sharing;
    *out = &c->base;
    return WF_OK;
}

static wf_status attach(void *opaque, int rank, wf_comm **out, wf_error *error)
{
    world *w = opaque;

    return join(w, NULL, 0, "world", w->number, w->ranks, rank, out, error);
}

static wf_status split(wf_comm *parent, const char *name, const int *members, int n,
                       wf_comm **out, wf_error *error)
{
    threads_comm *c = wf_threads_of(parent);
    wf_status status = wf_threads_check(c, "split", c->sequence, error);
    int *ranks;

    if (status != WF_OK)
        return status;
    ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return wf_error_set(error, WF_ENOMEM, "no memory for group %s of %d ranks", name, n);
    for (int i = 0; i < n; i++)
        ranks[i] = c->group->members[members[i]];
    status =
        join(c->group->world, c->group, c->splits, name, ranks, n, c->world_rank, out, error);
    c->splits++;
    free(ranks);
    if (status == WF_OK)
        (*out)->transport = parent->transport;
    return status;
}

static wf_status alive(wf_comm *comm, const char *op, uint64_t call, wf_error *error)
{
    return wf_threads_check(wf_threads_of(comm), op, call, error);
}

static void detach(wf_comm *comm)
{
    free(comm);
}

static void finish(wf_comm *comm)
{
    wf_threads_finish(wf_threads_of(comm)->group->world, wf_threads_of(comm)->world_rank);
}

static void fail(void *w, int failed_rank, const wf_error *why, bool lost)
{
    (void)lost; /* a rank here that does not return touches no other's memory */
    if (*why->text)
        wf_threads_abort(w, failed_rank, why);
}

static void abort_world(wf_comm *comm, const wf_error *why)
{
    world *w = wf_threads_of(comm)->group->world;
    group *newest;

    wf_threads_abort(w, wf_threads_of(comm)->world_rank, why);
    wf_threads_progress_drop(&wf_threads_rank(w, wf_threads_of(comm)->world_rank)->progress);
    pthread_mutex_lock(&w->lock);
    newest = w->groups;
    pthread_mutex_unlock(&w->lock);
    for (group *g = newest; g; g = g->next)
        wf_threads_quiesce(g);
}

const wf_transport wf_transport_threads = {
    .name = "threads",
    .moves = true,
    .device_memory = true,
    .open = open_world,
    .close = close_world,
    .cause = cause,
    .fail = fail,
    .attach = attach,
    .split = split,
    .detach = detach,
    .finish = finish,
    .abort = abort_world,
    .begin = begin,
    .wait = finish_exchange,
    .alive = alive,
    .direct = &wf_threads_direct,
};
