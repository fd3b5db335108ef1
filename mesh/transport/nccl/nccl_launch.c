/*
 * mesh/transport/nccl/nccl_launch.c - what an exchange is to NCCL, and how it gets on the
 * stream:
 *
 *     all_to_all   sends and receives in one group
 *     all_gather   ncclAllGather, or where parts differ a group of ncclBroadcast
 *     broadcast    ncclBroadcast
 *     reduce       ncclAllReduce: the library's own order of sums (--exact off)
 *
 * All of bytes, but for sums. What a rank has for itself is a copy.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <stdio.h>
#include <string.h>

size_t wf_nccl_send_bytes(const transfer *t, int member)
{
    const wf_exchange *x = t->x;
    int me = t->comm->base.rank;

    switch (t->x->kind) {
    case WF_EXCHANGE_ALL_TO_ALL:
        return x->send_bytes[member];
    case WF_EXCHANGE_ALL_GATHER:
        return x->recv_bytes[me];
    case WF_EXCHANGE_BROADCAST:
        return me == x->peer ? x->bytes : 0;
    case WF_EXCHANGE_SEND:
        return member == x->peer ? x->bytes : 0;
    default:
        return 0;
    }
}

size_t wf_nccl_recv_bytes(const transfer *t, int member)
{
    const wf_exchange *x = t->x;

    switch (t->x->kind) {
    case WF_EXCHANGE_ALL_TO_ALL:
    case WF_EXCHANGE_ALL_GATHER:
        return x->recv_bytes[member];
    case WF_EXCHANGE_BROADCAST:
    case WF_EXCHANGE_RECV:
        return member == x->peer ? x->bytes : 0;
    default:
        return 0;
    }
}

size_t wf_nccl_all_bytes(const transfer *t, size_t (*bytes)(const transfer *t, int member))
{
    size_t sum = 0;

    for (int i = 0; i < t->comm->base.size; i++)
        sum += bytes(t, i);
    return sum;
}

static ncclResult_t pieces(const transfer *t, cudaStream_t stream)
{
    const nccl_comm *c = t->comm;
    const char *send = t->moves.send;
    char *recv = t->moves.recv;
    ncclResult_t code = ncclSuccess;

    for (int i = 0; i < c->base.size; i++) {
        size_t out = wf_nccl_send_bytes(t, i), in = wf_nccl_recv_bytes(t, i);

        if (i != c->base.rank && out && code == ncclSuccess)
            code = ncclSend(send, out, ncclInt8, i, c->nccl, stream);
        if (i != c->base.rank && in && code == ncclSuccess)
            code = ncclRecv(recv, in, ncclInt8, i, c->nccl, stream);
        send += t->x->kind == WF_EXCHANGE_ALL_TO_ALL ? out : 0;
        recv += t->x->kind == WF_EXCHANGE_ALL_TO_ALL ? in : 0;
    }
    return code;
}

static ncclResult_t gather(const transfer *t, cudaStream_t stream)
{
    const nccl_comm *c = t->comm;
    size_t mine = wf_nccl_recv_bytes(t, c->base.rank);
    char *recv = t->moves.recv;
    ncclResult_t code = ncclSuccess;
    bool even = true;

    for (int i = 0; i < c->base.size; i++)
        even = even && wf_nccl_recv_bytes(t, i) == mine;
    if (even)
        return mine ? ncclAllGather(t->moves.send, recv, mine, ncclInt8, c->nccl, stream)
                    : ncclSuccess;
    for (int i = 0; i < c->base.size && code == ncclSuccess; i++) {
        size_t bytes = wf_nccl_recv_bytes(t, i);

        if (bytes)
            code = ncclBroadcast(i == c->base.rank ? t->moves.send : recv, recv, bytes,
                                 ncclInt8, i, c->nccl, stream);
        recv += bytes;
    }
    return code;
}

static ncclResult_t data(const transfer *t, cudaStream_t stream)
{
    const wf_exchange *x = t->x;
    size_t element = x->print.element;

    switch (t->x->kind) {
    case WF_EXCHANGE_ALL_GATHER:
        return gather(t, stream);
    case WF_EXCHANGE_BROADCAST:
        return x->bytes ? ncclBroadcast(t->moves.send, t->moves.recv, x->bytes, ncclInt8,
                                        x->peer, t->comm->nccl, stream)
                        : ncclSuccess;
    case WF_EXCHANGE_REDUCE:
        return x->bytes ? ncclAllReduce(t->moves.send, t->moves.recv, x->bytes / element,
                                        element == 2 ? ncclBfloat16 : ncclFloat32,
                                        strcmp(x->print.detail, "max") ? ncclSum : ncclMax,
                                        t->comm->nccl, stream)
                        : ncclSuccess;
    default:
        return t->part ? wf_nccl_window_all_to_all(t, stream) : pieces(t, stream);
    }
}

static size_t before(const transfer *t, size_t (*bytes)(const transfer *t, int member))
{
    size_t sum = 0;

    for (int i = 0; i < t->comm->base.rank; i++)
        sum += bytes(t, i);
    return sum;
}

/* Copies a rank's part for itself; of a gather, NCCL does it. */
static cudaError_t copy_own(const transfer *t, cudaStream_t stream)
{
    bool alone = t->comm->base.size == 1;
    size_t bytes = t->x->kind == WF_EXCHANGE_REDUCE && alone
                       ? t->x->bytes
                       : wf_nccl_recv_bytes(t, t->comm->base.rank);
    const char *from = t->part ? t->x->send : t->moves.send;
    char *to = t->part ? t->x->recv : t->moves.recv;

    if (t->x->kind == WF_EXCHANGE_ALL_TO_ALL) {
        from += before(t, wf_nccl_send_bytes);
        to += before(t, wf_nccl_recv_bytes);
    } else if (!alone) {
        return cudaSuccess;
    }
    if (!bytes || from == to || t->x->mine_stays)
        return cudaSuccess;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

typedef ncclResult_t enqueue_call(const transfer *t, cudaStream_t stream);

/* Calls `call` for each of a list, as a group; under the lock. */
static ncclResult_t each(const transfer *list, enqueue_call *call, bool group)
{
    cudaStream_t stream = list->comm->rank->stream;
    ncclResult_t code = group ? ncclGroupStart() : ncclSuccess, end;

    for (const transfer *t = list; t && code == ncclSuccess; t = t->next)
        code = call(t, stream);
    end = group ? ncclGroupEnd() : ncclSuccess;
    return code == ncclSuccess || code == ncclInProgress ? end : code;
}

/* Takes the next slot for a launch, and waits while the GPU is still busy with what had it
   before. */
static wf_status take_slot(const transfer *t, launched **slot, wf_error *error)
{
    nccl_rank *r = t->comm->rank;
    launched *s = *slot = &r->slot[r->next_slot];
    wf_status status = wf_nccl_sleep(t, s, error);

    if (status != WF_OK)
        return status;
    r->next_slot = (r->next_slot + 1) % SLOTS;
    pthread_mutex_lock(&r->lock);
    s->busy = false;
    s->since = wf_nccl_now();
    s->op = t->x->print.op;
    s->call = t->call;
    snprintf(s->group, sizeof s->group, "%s", t->comm->base.name);
    pthread_mutex_unlock(&r->lock);
    return WF_OK;
}

static wf_status mark(const transfer *t, launched *s, wf_error *error)
{
    nccl_rank *r = t->comm->rank;
    wf_status status;

    status = wf_nccl_cuda(cudaEventRecord(s->done, r->stream), "cudaEventRecord", error);
    pthread_mutex_lock(&r->lock);
    s->busy = status == WF_OK;
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* Enqueues a group of calls of the list's communicator, which takes them in its own time. */
static wf_status enqueue(transfer *list, enqueue_call *call, wf_error *error)
{
    nccl_comm *c = list->comm;
    wf_status status = wf_nccl_check(c, list->x->print.op, list->call, error);

    if (status != WF_OK || c->base.size == 1)
        return status;
    pthread_mutex_lock(&c->rank->lock);
    if (c->nccl)
        status = wf_nccl_good(c, each(list, call, true), list->x->print.op, error);
    pthread_mutex_unlock(&c->rank->lock);
    return status == WF_OK ? wf_nccl_settle(c, list->x->print.op, list->call, error) : status;
}

/* Launches the heads first where there is no control transport: data that disagrees would never
   arrive. */
static wf_status launch_heads(transfer *list, wf_error *error)
{
    nccl_comm *c = list->comm;
    launched *slot;
    wf_status status = take_slot(list, &slot, error);

    if (status == WF_OK)
        status = wf_nccl_good(c, each(list, wf_nccl_alone_bring, false), "heads", error);
    if (status == WF_OK)
        status = enqueue(list, wf_nccl_alone_heads, error);
    if (status == WF_OK)
        status = wf_nccl_good(c, each(list, wf_nccl_alone_fetch, false), "heads", error);
    if (status == WF_OK)
        status = mark(list, slot, error);
    for (transfer *t = list; t && status == WF_OK; t = t->next)
        t->said = slot;
    return status;
}

/* Makes the stream wait until the devices have computed the data to send. */
static wf_status await_compute(const transfer *list, wf_error *error)
{
    nccl_rank *r = list->comm->rank;
    wf_status status = WF_OK;

    for (const transfer *t = list; t && status == WF_OK; t = t->next) {
        if (!t->x->device)
            continue;
        status = wf_nccl_cuda(cudaEventRecord(r->ready, t->x->device->queue), "cudaEventRecord",
                              error);
        if (status == WF_OK)
            status = wf_nccl_cuda(cudaStreamWaitEvent(r->stream, r->ready, 0),
                                  "cudaStreamWaitEvent", error);
    }
    return status;
}

wf_status wf_nccl_launch(transfer *list, wf_error *error)
{
    nccl_comm *c = list->comm;
    launched *slot;
    wf_status status = await_compute(list, error);

    if (status == WF_OK && !c->inner && c->base.size > 1)
        status = launch_heads(list, error);
    if (status == WF_OK)
        status = take_slot(list, &slot, error);
    if (status == WF_OK)
        status = wf_nccl_window_enter(list, error);
    for (transfer *t = list; t && status == WF_OK; t = t->next)
        status = wf_nccl_cuda(copy_own(t, c->rank->stream), "cudaMemcpyAsync", error);
    if (status == WF_OK)
        status = enqueue(list, data, error);
    if (status == WF_OK)
        status = wf_nccl_window_leave(list, error);
    if (status == WF_OK)
        status = mark(list, slot, error);
    for (transfer *t = list; t && status == WF_OK; t = t->next)
        t->data = slot;
    return status;
}

/* The call that took the slot is over when its event is, or when the slot serves another; so it
   is when its communicator was aborted, whatever it has left in memory. */
wf_status wf_nccl_sleep(const transfer *t, const launched *s, wf_error *error)
{
    for (int naps = 0;; wf_nccl_nap(&naps)) {
        cudaError_t code = cudaEventQuery(s->done);
        wf_status status;

        if (code != cudaSuccess && code != cudaErrorNotReady)
            return wf_nccl_cuda(code, t->x->print.op, error);
        status = wf_nccl_check(t->comm, t->x->print.op, t->call, error);
        if (code == cudaSuccess || status != WF_OK)
            return status;
    }
}
