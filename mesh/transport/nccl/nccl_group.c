/*
 * mesh/transport/nccl/nccl_group.c - a rank's stream and events, its groups, and their
 * communicators: one of the world, made when the first group is split off it, and those split
 * from that.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <stdlib.h>

/* Opens a rank on the device that its thread uses: that of its context. */
wf_status wf_nccl_open_rank(nccl_rank *r, wf_error *error)
{
    int least = 0, greatest = 0;
    wf_status status;

    if (r->open)
        return WF_OK;
    status = wf_nccl_cuda(cudaGetDevice(&r->ordinal), "cudaGetDevice", error);
    if (status == WF_OK)
        status = wf_nccl_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                              "cudaDeviceGetStreamPriorityRange", error);
    if (status == WF_OK)
        status = wf_nccl_cuda(
            cudaStreamCreateWithPriority(&r->stream, cudaStreamNonBlocking, greatest),
            "cudaStreamCreateWithPriority", error);
    if (status == WF_OK)
        status = wf_nccl_cuda(cudaEventCreateWithFlags(&r->ready, cudaEventDisableTiming),
                              "cudaEventCreateWithFlags", error);
    for (int i = 0; i < SLOTS && status == WF_OK; i++)
        status =
            wf_nccl_cuda(cudaEventCreateWithFlags(&r->slot[i].done, cudaEventDisableTiming),
                         "cudaEventCreateWithFlags", error);
    pthread_mutex_lock(&r->lock);
    r->open = status == WF_OK;
    pthread_mutex_unlock(&r->lock);
    return status == WF_OK ? wf_nccl_watch(r->world, error) : status;
}

/* Closes the communicators. To end one takes all of its members, and those here are in one
   thread now: all are asked first, then waited for. In a world that has failed they are not
   asked. */
static void close_comms(nccl_rank *r)
{
    for (nccl_comm *c = r->comms; c; c = c->next) {
        ncclResult_t state = ncclInProgress;

        for (int naps = 0; c->nccl && state == ncclInProgress && naps < 4000;) {
            ncclCommGetAsyncError(c->nccl, &state);
            if (state == ncclInProgress)
                wf_nccl_nap(&naps);
        }
        if (c->nccl && state == ncclSuccess)
            ncclCommDestroy(c->nccl);
        else if (c->nccl)
            ncclCommAbort(c->nccl);
        c->nccl = NULL;
    }
}

static void finalize_comms(nccl_rank *r)
{
    if (!r->stopped && r->stream)
        cudaStreamSynchronize(r->stream);
    for (nccl_comm *c = r->comms; c; c = c->next) {
        wf_nccl_window_close(c);
        if (c->nccl)
            ncclCommFinalize(c->nccl);
    }
}

void wf_nccl_close_rank(nccl_rank *r)
{
    nccl_world *w = r->world;
    int device = 0;

    cudaGetDevice(&device);
    for (int i = 0; r == w->rank && i < w->local_size;
         i++) { /* before the first one is ended */
        if (w->rank[i].open)
            cudaSetDevice(w->rank[i].ordinal);
        finalize_comms(&w->rank[i]);
    }
    if (r->open)
        cudaSetDevice(r->ordinal);
    close_comms(r);
    for (int i = 0; i < SLOTS; i++)
        if (r->slot[i].done)
            cudaEventDestroy(r->slot[i].done);
    if (r->ready)
        cudaEventDestroy(r->ready);
    if (r->stream)
        cudaStreamDestroy(r->stream);
    while (r->comms) {
        nccl_comm *next = r->comms->next;

        wf_nccl_alone_close(r->comms);
        wf_nccl_window_free(r->comms);
        free(r->comms);
        r->comms = next;
    }
    cudaSetDevice(device);
}

/* Returns the state of a communicator; an aborted one has none, and the watchdog has reported
   the cause. */
static ncclResult_t state_of(nccl_comm *c)
{
    ncclResult_t state = ncclInProgress, asked = ncclSuccess;

    pthread_mutex_lock(&c->rank->lock);
    if (c->nccl)
        asked = ncclCommGetAsyncError(c->nccl, &state);
    pthread_mutex_unlock(&c->rank->lock);
    return asked == ncclSuccess ? state : asked;
}

wf_status wf_nccl_settle(nccl_comm *c, const char *op, uint64_t call, wf_error *error)
{
    int64_t until = wf_nccl_now() + c->rank->world->patience;

    for (int naps = 0;; wf_nccl_nap(&naps)) {
        ncclResult_t state = state_of(c);
        wf_status status = wf_nccl_good(c, state, op, error);

        if (status != WF_OK || state == ncclSuccess)
            return status;
        status = wf_nccl_check(c, op, call, error);
        if (status == WF_OK && wf_nccl_now() > until)
            status = wf_nccl_host.error_set(
                error, WF_ETIMEOUT,
                "rank %d waits in %s over %s (call %llu) for NCCL, for %lld s by now; "
                "WEFT_NCCL_TIMEOUT says how long it may take",
                c->rank->index, op, c->base.name, (unsigned long long)call + 1,
                (long long)(c->rank->world->patience / 1000000000));
        if (status != WF_OK)
            return status;
    }
}

/* Waits until all members are here, and none has failed: the calls after it wait for all of
   them inside NCCL. */
static wf_status meet(const nccl_comm *c, const char *op, wf_error *error)
{
    wf_exchange x = {.kind = WF_EXCHANGE_BARRIER,
                     .print = {.op = op, .detail = "", .bytes = -1, .root = -1}};
    wf_status status;

    if (!c->inner)
        return WF_OK;
    status = c->inner->transport->begin(c->inner, &x, error);
    return status == WF_OK ? c->inner->transport->wait(c->inner, &x, error) : status;
}

static wf_status share_id(const nccl_comm *c, ncclUniqueId *id, wf_error *error)
{
    wf_exchange x = {.kind = WF_EXCHANGE_BROADCAST,
                     .print = {.op = "broadcast", .detail = "id", .bytes = sizeof *id},
                     .send = id,
                     .recv = id,
                     .bytes = sizeof *id};
    wf_status status = WF_OK;

    if (c->base.rank == 0 || !c->inner)
        status = wf_nccl_good(c, ncclGetUniqueId(id), "ncclGetUniqueId", error);
    if (status != WF_OK || !c->inner)
        return status;
    status = c->inner->transport->begin(c->inner, &x, error);
    return status == WF_OK ? c->inner->transport->wait(c->inner, &x, error) : status;
}

/* Keeps a communicator, which the watchdog uses as well from here on. */
static void keep(nccl_comm *c, ncclComm_t nccl)
{
    pthread_mutex_lock(&c->rank->lock);
    c->nccl = nccl;
    c->made = true;
    pthread_mutex_unlock(&c->rank->lock);
}

wf_status wf_nccl_make(nccl_comm *c, wf_error *error)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t nccl = NULL;
    wf_status status = wf_nccl_open_rank(c->rank, error);

    if (status != WF_OK || c->made || c->base.size == 1)
        return status;
    config.blocking = 0;
    config.commName = c->base.name;
    wf_nccl_window_config(c->rank->world, &config);
    status = share_id(c, &id, error);
    if (status == WF_OK)
        status = wf_nccl_good(
            c, ncclCommInitRankConfig(&nccl, c->base.size, id, c->base.rank, &config),
            "ncclCommInitRankConfig", error);
    if (nccl)
        keep(c, nccl);
    if (status == WF_OK)
        status = wf_nccl_settle(c, "joining", 0, error);
    return status == WF_OK ? wf_nccl_alone_open(c, error) : status;
}

/* Checks a group: members that list their groups differently get one that is none of theirs. */
static wf_status check_group(const nccl_comm *c, wf_error *error)
{
    int size = 0, rank = 0;

    ncclCommCount(c->nccl, &size);
    ncclCommUserRank(c->nccl, &rank);
    if (size == c->base.size && rank == c->base.rank)
        return WF_OK;
    return wf_nccl_host.error_set(error, WF_EMISMATCH,
                                  "rank %d lists %d members for group %s, as number %d, and "
                                  "NCCL has %d, as number %d; all "
                                  "members of a group list the same",
                                  c->rank->index, c->base.size, c->base.name, c->base.rank,
                                  size, rank);
}

static wf_status split_nccl(nccl_comm *parent, nccl_comm *c, int color, ncclComm_t *nccl,
                            wf_error *error)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code = ncclSuccess;

    config.blocking = 0;
    config.commName = c->base.name;
    wf_nccl_window_config(c->rank->world, &config);
    pthread_mutex_lock(&parent->rank->lock);
    if (parent->nccl)
        code = ncclCommSplit(parent->nccl, c->base.size > 1 ? color : NCCL_SPLIT_NOCOLOR,
                             c->base.rank, nccl, &config);
    pthread_mutex_unlock(&parent->rank->lock);
    return wf_nccl_good(c, code, "ncclCommSplit", error);
}

wf_status wf_nccl_split(nccl_comm *parent, nccl_comm *c, int color, wf_error *error)
{
    ncclComm_t nccl = NULL;
    wf_status status = wf_nccl_make(parent, error);

    if (status != WF_OK || parent->base.size == 1)
        return status;
    status = meet(parent, "split", error);
    if (status == WF_OK)
        status = split_nccl(parent, c, color, &nccl, error);
    if (status == WF_OK)
        status = wf_nccl_settle(parent, "split", parent->calls, error);
    if (nccl)
        keep(c, nccl);
    if (status != WF_OK || c->base.size == 1)
        return status;
    status = wf_nccl_settle(c, "joining", 0, error);
    if (status == WF_OK)
        status = check_group(c, error);
    return status == WF_OK ? wf_nccl_alone_open(c, error) : status;
}

/* `inner`: the same group below, or NULL. */
static nccl_comm *comm_new(nccl_rank *r, const char *name, const int *ranks, int n, int rank,
                           wf_comm *inner)
{
    nccl_comm *c = calloc(1, sizeof *c + (size_t)n * sizeof *ranks);

    if (!c)
        return NULL;
    c->rank = r;
    c->inner = inner;
    c->last = &c->posted;
    for (int i = 0; i < n; i++)
        c->members[i] = ranks ? ranks[i] : i;
    wf_nccl_host.comm_init(&c->base, &wf_transport_nccl, name, rank, n, c->members);
    pthread_mutex_lock(&r->lock);
    c->next = r->comms;
    r->comms = c;
    pthread_mutex_unlock(&r->lock);
    return c;
}

static wf_status no_memory(const char *name, int n, wf_error *error)
{
    return wf_nccl_host.error_set(error, WF_ENOMEM, "no memory for group %s of %d ranks", name,
                                  n);
}

wf_status wf_nccl_group_attach(void *opaque, int rank, wf_comm **out, wf_error *error)
{
    nccl_world *w = opaque;
    nccl_rank *r = w->rank;
    wf_comm *inner = NULL;
    nccl_comm *c;
    wf_status status = WF_OK;

    while (r->index != rank)
        r++;
    if (w->below)
        status = w->below->attach(w->below_world, rank, &inner, error);
    if (status != WF_OK)
        return status;
    c = comm_new(r, "world", NULL, w->ranks, rank, inner);
    if (!c) {
        if (inner)
            w->below->detach(inner);
        return no_memory("world", w->ranks, error);
    }
    *out = &c->base;
    return WF_OK;
}

/* Splits the group of the transport below first: its members' lists are compared there. */
wf_status wf_nccl_group_split(wf_comm *comm, const char *name, const int *members, int n,
                              wf_comm **out, wf_error *error)
{
    nccl_comm *parent = wf_nccl_of(comm), *c;
    int *ranks = calloc((size_t)n, sizeof *ranks), rank = 0;
    wf_comm *inner = NULL;
    wf_status status = ranks ? WF_OK : no_memory(name, n, error);

    if (status == WF_OK && parent->inner)
        status =
            parent->inner->transport->split(parent->inner, name, members, n, &inner, error);
    if (status != WF_OK) {
        free(ranks);
        return status;
    }
    for (int i = 0; i < n; i++) {
        ranks[i] = parent->members[members[i]];
        if (members[i] == comm->rank)
            rank = i;
    }
    c = comm_new(parent->rank, name, ranks, n, rank, inner);
    free(ranks);
    if (!c) {
        if (inner)
            inner->transport->detach(inner);
        return no_memory(name, n, error);
    }
    status = wf_nccl_split(parent, c, members[0], error);
    if (status == WF_OK)
        *out = &c->base;
    else
        comm->transport->detach(&c->base);
    return status;
}

/* Detaches a handle. Its communicator stays until the world is closed: to end one is the work
   of all its members, and at the end of a world one thread closes the handles of many. */
void wf_nccl_group_detach(wf_comm *comm)
{
    nccl_comm *c = wf_nccl_of(comm);
    wf_comm *inner;

    pthread_mutex_lock(&c->rank->lock);
    inner = c->inner;
    c->inner = NULL;
    pthread_mutex_unlock(&c->rank->lock);
    if (inner)
        inner->transport->detach(inner);
}

void wf_nccl_group_finish(wf_comm *comm)
{
    nccl_comm *c = wf_nccl_of(comm);

    if (c->inner)
        c->inner->transport->finish(c->inner);
}
