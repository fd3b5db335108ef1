/*
 * mesh/transport/nccl/nccl_exchange.c - one exchange of one rank: what is said about it below,
 * its launch, and the wait for both. The launch does not wait for what the others say: where
 * they disagree it may never end, or leave anything in `recv`, until the communicators are
 * aborted.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <string.h>

static transfer *transfer_new(nccl_comm *c, wf_exchange *x, wf_error *error)
{
    size_t size = (size_t)c->base.size, words = x->kind == WF_EXCHANGE_ALL_TO_ALL ? size : 0;
    size_t bytes = sizeof(transfer) + words * (2 * sizeof(uint64_t) + sizeof(size_t));
    transfer *t = wf_nccl_host.blocks_take(&c->base.blocks, bytes);

    if (!t) {
        wf_nccl_host.error_set(error, WF_ENOMEM, "no memory for %s over %s", x->print.op,
                               c->base.name);
        return NULL;
    }
    *t = (transfer){.comm = c,
                    .x = x,
                    .moves = {.send = x->send, .recv = x->recv},
                    .bytes = bytes,
                    .call = c->calls++};
    t->says = (uint64_t *)(t + 1);
    t->hears = t->says + words;
    t->words = (size_t *)(t->hears + words);
    for (size_t i = 0; i < words; i++) {
        t->says[i] = x->send_bytes[i];
        t->hears[i] = 0;
        t->words[i] = sizeof *t->says;
    }
    return t;
}

static void transfer_free(transfer *t)
{
    t->x->slot = NULL;
    wf_nccl_host.blocks_give(&t->comm->base.blocks, t, t->bytes);
}

/* Sends the members on the host the fingerprint, and of an all_to_all the bytes that come from
   here. */
static wf_status say(transfer *t, wf_error *error)
{
    wf_comm *inner = t->comm->inner;
    wf_exchange_kind kind = t->x->kind;
    bool has_kind = kind == WF_EXCHANGE_ALL_TO_ALL || wf_exchange_is_message(kind);

    if (!inner)
        return wf_nccl_alone_begin(t, error);
    t->control = (wf_exchange){.kind = has_kind ? kind : WF_EXCHANGE_BARRIER,
                               .print = t->x->print,
                               .send = t->says,
                               .send_bytes = t->words,
                               .recv = t->hears,
                               .recv_bytes = t->words,
                               .peer = t->x->peer,
                               .background = t->x->background};
    return inner->transport->begin(inner, &t->control, error);
}

static wf_status hear(transfer *t, wf_error *error)
{
    const nccl_comm *c = t->comm;
    wf_status status;

    if (!c->inner) {
        status = t->said ? wf_nccl_sleep(t, t->said, error) : WF_OK;
        return status == WF_OK && t->said ? wf_nccl_alone_compare(t, error) : status;
    }
    status = c->inner->transport->wait(c->inner, &t->control, error);
    for (int i = 0; status == WF_OK && t->x->kind == WF_EXCHANGE_ALL_TO_ALL && i < c->base.size;
         i++)
        if (t->hears[i] != t->x->recv_bytes[i])
            status = wf_nccl_host.error_set(
                error, WF_EMISMATCH,
                "over %s, rank %d sends %zu bytes to rank %d in %s, which expects %zu",
                c->base.name, c->members[i], (size_t)t->hears[i], c->rank->index,
                t->x->print.op, t->x->recv_bytes[i]);
    return status;
}

static void drop(transfer *t)
{
    wf_nccl_alone_drop(t);
    transfer_free(t);
}

/* Gives up an exchange that has failed: its GPU does nothing for it any more when this returns.
   `said`: it is still to be waited for in the transport below. */
static void give_up(transfer *t, bool said, const wf_error *why)
{
    nccl_comm *c = t->comm;
    nccl_rank *r = c->rank;

    pthread_mutex_lock(&r->lock);
    wf_nccl_stop(r, why);
    pthread_mutex_unlock(&r->lock);
    if (r->open)
        cudaStreamSynchronize(r->stream);
    if (said && c->inner)
        c->inner->transport->abort(c->inner, why);
    for (transfer **link = &c->posted; *link; link = &(*link)->next)
        if (*link == t) {
            *link = t->next;
            break;
        }
    for (c->last = &c->posted; *c->last; c->last = &(*c->last)->next)
        ;
    drop(t);
}

wf_status wf_nccl_begin(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    nccl_comm *c = wf_nccl_of(comm);
    wf_error why = {WF_OK, ""};
    wf_status status;
    bool said = false;
    transfer *t;

    if (!x->device && c->inner)
        return c->inner->transport->begin(c->inner, x, error);
    x->slot = NULL;
    x->comm = comm;
    status = wf_nccl_check(c, x->print.op, c->calls, error);
    if (status == WF_OK && wf_exchange_is_message(x->kind) && !c->made)
        status = wf_nccl_host.error_set(
            error, WF_EINVAL,
            "rank %d begins %s over %s before anything that all of its members take part in, "
            "and "
            "to join their GPUs takes them all; split the group, or exchange something, first",
            c->rank->index, x->print.op, comm->name);
    if (status == WF_OK)
        status = wf_nccl_make(c, error);
    t = status == WF_OK ? transfer_new(c, x, error) : NULL;
    if (!t)
        return status == WF_OK ? WF_ENOMEM : status;
    x->slot = t;
    status = say(t, &why);
    said = status == WF_OK;
    if (said && wf_exchange_is_message(x->kind)) {
        *c->last = t;
        c->last = &t->next;
    } else if (said) {
        status = wf_nccl_launch(t, &why);
    }
    if (status == WF_OK)
        return WF_OK;
    wf_nccl_host.error_set(error, status, "%s", why.text);
    if (said)
        give_up(t, true, &why);
    else
        drop(t); /* it is not reported yet */
    return status;
}

/* Launches the messages that were posted since the last launch as one group: those of a rank
   that sends and receives cannot wait for each other. */
static wf_status flush(nccl_comm *c, wf_error *error)
{
    transfer *list = c->posted;
    wf_status status;

    status = wf_nccl_launch(list, error);
    if (status != WF_OK)
        return status;
    c->posted = NULL;
    c->last = &c->posted;
    return WF_OK;
}

/* Makes the device's stream wait for the data, so that later work of the rank finds them. */
static wf_status follow(transfer *t, wf_error *error)
{
    cudaStream_t queue = t->x->device ? t->x->device->queue : NULL;
    wf_status status;

    if (!queue)
        return wf_nccl_sleep(t, t->data, error);
    status = wf_nccl_cuda(cudaStreamWaitEvent(queue, t->data->done, 0), "cudaStreamWaitEvent",
                          error);
    return status == WF_OK ? wf_nccl_check(t->comm, t->x->print.op, t->call, error) : status;
}

wf_status wf_nccl_wait(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    nccl_comm *c = wf_nccl_of(comm);
    transfer *t = x->slot;
    wf_error why = {WF_OK, ""};
    wf_status status = WF_OK;

    if (!x->device && c->inner)
        return c->inner->transport->wait(c->inner, x, error);
    if (!t)
        return wf_nccl_check(c, x->print.op, c->calls, error);
    if (!t->data)
        status = flush(c, &why);
    if (status == WF_OK)
        status = hear(t, &why);
    else if (c->inner) /* it has been said, and may be looked at until it is waited for */
        c->inner->transport->abort(c->inner, &why);
    if (status == WF_OK)
        status = follow(t, &why);
    if (status == WF_OK && !c->inner)
        status = wf_nccl_alone_end(t, &why);
    if (status != WF_OK) {
        wf_nccl_host.error_set(error, status, "%s", why.text);
        give_up(t, false, &why);
        return status;
    }
    drop(t);
    return WF_OK;
}
