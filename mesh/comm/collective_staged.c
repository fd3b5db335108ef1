/*
 * mesh/comm/collective_staged.c - collectives over transports that only move bytes. The parts
 * for each member are packed side by side, so that any number of buffers travels as one block.
 * A single buffer that has them side by side already travels as it is.
 *
 *     reduce_scatter = all_to_all of the parts, then a local sum over them
 *     all_reduce     = reduce_scatter, then all_gather of the reduced parts; or the transport's
 *                      own all_reduce, where it has one and the group is not exact
 */
#include "mesh/comm/collective_internal.h"

static wf_status no_memory(const wf_pending *p, size_t bytes, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory for %zu bytes to pack %s over %s", bytes,
                        p->x->print.op, p->comm->name);
}

/* Returns whether there is one buffer, which has its parts side by side already. */
static bool single(const wf_pending *p)
{
    return p->what.n_buffers == 1 && p->buffer[0].rows <= 1 && p->buffer[0].out_rows <= 1;
}

/* Returns the bytes of the whole buffer. */
static size_t extent(const wf_pending *p, const int64_t *cuts)
{
    return (size_t)wf_part(p, cuts, 0, p->comm->size) * p->what.element;
}

static wf_status begin(wf_pending *p, wf_exchange_kind kind, wf_error *error)
{
    p->x->kind = kind;
    return p->comm->transport->begin(p->comm, p->x, error);
}

static wf_status wait(wf_pending *p, wf_error *error)
{
    return p->comm->transport->wait(p->comm, p->x, error);
}

/* Begins reductions and all_to_all: the parts of all inputs, member by member. */
static wf_status begin_all_to_all(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    bool reduces = p->what.kind != WF_ALL_TO_ALL;
    size_t send = 0, recv = 0;
    char *to;

    for (int i = 0; i < c->size; i++) {
        p->send_bytes[i] = wf_part_bytes(p, p->cuts, i);
        p->recv_bytes[i] = wf_part_bytes(p, p->out_cuts, reduces ? c->rank : i);
        send += p->send_bytes[i];
        recv += p->recv_bytes[i];
    }
    p->x->mine_stays = reduces;
    if (single(p) && (reduces || !wf_overlap(p->buffer[0].in, send, p->buffer[0].out, recv))) {
        p->x->send = p->buffer[0].in;
        p->x->recv = reduces ? wf_scratch_take(p, recv) : p->buffer[0].out;
        if (!p->x->recv && recv)
            return no_memory(p, recv, error);
        return begin(p, WF_EXCHANGE_ALL_TO_ALL, error);
    }
    to = wf_scratch_take(p, send + recv);
    if (!to)
        return no_memory(p, send + recv, error);
    p->x->send = to;
    p->x->recv = wf_pack_parts(p, to);
    return begin(p, WF_EXCHANGE_ALL_TO_ALL, error);
}

static wf_status end_all_to_all(wf_pending *p, wf_error *error)
{
    wf_status status = wait(p, error);

    if (status == WF_OK && p->x->recv != p->buffer[0].out)
        wf_unpack_parts(p, p->out_cuts, p->x->recv);
    return status;
}

/* Returns the input of this rank's own term. A sum may be written over it, but not overlap it
   otherwise; a maximum may be over the first member's alone (wf_reduce_members). */
static const void *own_part(const wf_pending *p, const void *sum)
{
    const char *part = p->x->send;
    char *came = p->x->recv;
    size_t bytes = p->recv_bytes[0];

    for (int i = 0; i < p->comm->rank; i++)
        part += p->send_bytes[i];
    came += (size_t)p->comm->rank * bytes;
    if (!wf_overlap(part, bytes, sum, bytes) ||
        (part == sum && (p->what.reduction == WF_REDUCE_SUM || p->comm->rank == 0)))
        return part;
    wf_copy_part(p, came, part, bytes);
    return came;
}

/* Reduces `bytes` of each member's part, those after the first `at`, to `to`, in elements of
   `out` bytes, on a device with others of the batch; `own` is this rank's part. Inputs are not
   needed any more. */
static wf_status reduce_part(wf_pending *p, wf_moves *batch, const void *own, size_t at,
                             size_t bytes, void *to, size_t out, wf_error *error)
{
    int64_t n = (int64_t)(bytes / p->what.element);

    for (int i = 0; i < p->comm->size; i++)
        p->source[i] = (const char *)p->x->recv + (size_t)i * p->recv_bytes[0] + at;
    p->source[p->comm->rank] = (const char *)own + at;
    p->target[0] = to;
    if (n && wf_on_device(p))
        return wf_moves_sum(batch, 1, out, n, error);
    wf_reduce_members(p, to, out, n);
    return WF_OK;
}

/* Reduces this rank's part of all buffers of an all_reduce, end to end: into its output if that
   is one buffer, else into what came from member 0. */
static wf_status end_reduce(wf_pending *p, void **sum, wf_error *error)
{
    wf_status status = wait(p, error);
    const size_t bytes = p->recv_bytes[0];
    wf_moves batch;

    *sum = p->x->recv;
    if (single(p))
        wf_locate(p, p->cuts, 0, p->comm->rank, p->buffer[0].out, sum);
    if (status != WF_OK || bytes == 0)
        return status;
    wf_moves_begin(&batch, p, false);
    status = reduce_part(p, &batch, own_part(p, *sum), 0, bytes, *sum, p->what.element, error);
    return status == WF_OK ? wf_moves_end(&batch, error) : status;
}

/* Reduces each buffer into its output, which may be the input. */
static wf_status end_reduce_scatter(wf_pending *p, wf_error *error)
{
    wf_status status = wait(p, error);
    const void *own = NULL;
    size_t at = 0;
    wf_moves batch;

    wf_moves_begin(&batch, p, false);
    if (status == WF_OK && p->recv_bytes[0])
        own = own_part(p, single(p) ? p->buffer[0].out : p->x->recv);
    for (int64_t b = 0; status == WF_OK && own && b < p->what.n_buffers; b++) {
        void *part;
        size_t bytes = wf_locate(p, p->cuts, b, p->comm->rank, p->buffer[b].out, &part);

        status = reduce_part(p, &batch, own, at, bytes, p->buffer[b].out, wf_out_element(p, b),
                             error);
        at += bytes;
    }
    return status == WF_OK ? wf_moves_end(&batch, error) : status;
}

/* Returns all buffers end to end, as broadcasts and the transport's own sums have them. */
static size_t all_bytes(const wf_pending *p)
{
    size_t bytes = 0;

    for (int64_t b = 0; b < p->what.n_buffers; b++)
        bytes += (size_t)p->buffer[b].count * p->what.element;
    return bytes;
}

/* Copies all buffers between their own memory and `packed`, where they lie end to end. */
static void copy_all(const wf_pending *p, char *packed, bool pack)
{
    wf_moves batch;

    wf_moves_begin(&batch, p, false);
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        const wf_comm_buffer *buffer = &p->buffer[b];
        size_t bytes = (size_t)buffer->count * p->what.element;

        wf_moves_copy(&batch,
                      &(wf_copy){.from = pack ? buffer->in : packed,
                                 .to = pack ? packed : buffer->out,
                                 .bytes = bytes,
                                 .rows = 1},
                      NULL);
        packed += bytes;
    }
    wf_moves_end(&batch, NULL);
}

static bool transport_sums(const wf_pending *p)
{
    return p->comm->transport->reduces && p->comm->reduce.chain && wf_on_device(p);
}

static wf_status begin_all_reduce(wf_pending *p, wf_error *error)
{
    if (!transport_sums(p))
        return begin_all_to_all(p, error);
    p->x->bytes = all_bytes(p);
    p->x->send = p->buffer[0].in;
    p->x->recv = p->buffer[0].out;
    if (!single(p)) {
        char *packed = wf_scratch_take(p, p->x->bytes);

        if (!packed)
            return no_memory(p, p->x->bytes, error);
        copy_all(p, packed, true);
        p->x->send = p->x->recv = packed;
    }
    return begin(p, WF_EXCHANGE_REDUCE, error);
}

static wf_status end_all_reduce(wf_pending *p, wf_error *error)
{
    bool summed = transport_sums(p);
    void *sum = NULL;
    wf_status status = summed ? wait(p, error) : end_reduce(p, &sum, error);

    if (summed && status == WF_OK && !single(p))
        copy_all(p, p->scratch, false);
    if (summed || status != WF_OK)
        return status;
    for (int i = 0; i < p->comm->size; i++)
        p->recv_bytes[i] = wf_part_bytes(p, p->cuts, i);
    p->x->print.op = "all_reduce (gathering)";
    p->x->background = false;
    p->x->mine_stays = false;
    p->x->send = sum;
    /* packed: as many bytes as were sent from here */
    p->x->recv = single(p) ? p->buffer[0].out : p->scratch;
    status = begin(p, WF_EXCHANGE_ALL_GATHER, error);
    if (status == WF_OK)
        status = wait(p, error);
    if (status == WF_OK && !single(p))
        wf_unpack_parts(p, p->cuts, p->x->recv);
    return status;
}

/* Gathers one buffer; an input that lies in out at another offset than its own is moved there
   first. */
static wf_status gather_single(wf_pending *p, size_t bytes, wf_error *error)
{
    wf_comm_buffer *buffer = &p->buffer[0];

    p->x->send = buffer->in;
    p->x->recv = buffer->out;
    if (wf_overlap(buffer->in, bytes, buffer->out, extent(p, p->cuts))) {
        void *target;

        wf_locate(p, p->cuts, 0, p->comm->rank, buffer->out, &target);
        wf_copy_part(p, target, buffer->in, bytes);
        p->x->send = target;
    }
    return begin(p, WF_EXCHANGE_ALL_GATHER, error);
}

static wf_status begin_all_gather(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    size_t recv = 0, send = wf_part_bytes(p, p->cuts, c->rank);
    wf_moves batch;
    char *to;

    for (int i = 0; i < c->size; i++) {
        p->recv_bytes[i] = wf_part_bytes(p, p->cuts, i);
        recv += p->recv_bytes[i];
    }
    if (single(p))
        return gather_single(p, send, error);
    to = wf_scratch_take(p, send + recv);
    if (!to)
        return no_memory(p, send + recv, error);
    p->x->send = to;
    wf_moves_begin(&batch, p, false);
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        void *part;
        size_t bytes = wf_locate(p, p->cuts, b, c->rank, p->buffer[b].out, &part);

        wf_moves_copy(&batch,
                      &(wf_copy){.from = p->buffer[b].in, .to = to, .bytes = bytes, .rows = 1},
                      NULL);
        to += bytes;
    }
    wf_moves_end(&batch, NULL);
    p->x->recv = to;
    return begin(p, WF_EXCHANGE_ALL_GATHER, error);
}

static wf_status end_all_gather(wf_pending *p, wf_error *error)
{
    wf_status status = wait(p, error);

    if (status == WF_OK && !single(p))
        wf_unpack_parts(p, p->cuts, p->x->recv);
    return status;
}

static wf_status begin_broadcast(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    size_t bytes = all_bytes(p);
    char *to;

    p->x->bytes = bytes;
    if (single(p)) {
        p->x->send = p->buffer[0].in;
        p->x->recv = c->rank == p->what.peer ? (void *)(uintptr_t)p->x->send : p->buffer[0].out;
        return begin(p, WF_EXCHANGE_BROADCAST, error);
    }
    to = wf_scratch_take(p, bytes);
    if (!to)
        return no_memory(p, bytes, error);
    p->x->send = p->x->recv = to;
    if (c->rank == p->what.peer)
        copy_all(p, to, true);
    return begin(p, WF_EXCHANGE_BROADCAST, error);
}

static wf_status end_broadcast(wf_pending *p, wf_error *error)
{
    wf_status status = wait(p, error);

    if (status == WF_OK && !single(p) && p->comm->rank != p->what.peer)
        copy_all(p, p->scratch, false);
    return status;
}

wf_status wf_barrier_begin(wf_pending *p, wf_error *error)
{
    return begin(p, WF_EXCHANGE_BARRIER, error);
}

wf_status wf_barrier_end(wf_pending *p, wf_error *error)
{
    return wait(p, error);
}

/* Ends the first n messages; the first failure is the one that is returned. */
static wf_status end_messages(wf_pending *p, int64_t n, wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t b = 0; b < n; b++) {
        bool first = status == WF_OK;
        wf_status one = p->comm->transport->wait(p->comm, &p->x[b], first ? error : NULL);

        status = first ? one : status;
    }
    return status;
}

wf_status wf_messages_begin(wf_pending *p, wf_error *error)
{
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        const wf_comm_buffer *buffer = &p->buffer[b];
        wf_exchange *x = &p->x[b];
        wf_status status;

        x->kind = p->what.kind == WF_SEND ? WF_EXCHANGE_SEND : WF_EXCHANGE_RECV;
        x->bytes = (size_t)buffer->count * p->what.element;
        x->send = buffer->in;
        x->recv = buffer->out;
        x->peer = p->what.peer;
        x->device = p->what.device;
        x->print = (wf_fingerprint){.op = wf_collective_name(p->what.kind),
                                    .detail = "",
                                    .element = p->what.element,
                                    .buffers = 1,
                                    .bytes = (int64_t)x->bytes,
                                    .root = -1,
                                    .shape = p->what.tag};
        status = p->comm->transport->begin(p->comm, x, error);
        if (status != WF_OK) {
            end_messages(p, b, NULL); /* fails at once: what failed here has failed the group */
            return status;
        }
    }
    return WF_OK;
}

wf_status wf_messages_end(wf_pending *p, wf_error *error)
{
    return end_messages(p, p->what.n_buffers, error);
}

const wf_collective_path wf_staged_paths[WF_COLLECTIVE_KINDS] = {
    [WF_ALL_REDUCE] = {begin_all_reduce, end_all_reduce},
    [WF_REDUCE_SCATTER] = {begin_all_to_all, end_reduce_scatter},
    [WF_ALL_GATHER] = {begin_all_gather, end_all_gather},
    [WF_ALL_TO_ALL] = {begin_all_to_all, end_all_to_all},
    [WF_BROADCAST] = {begin_broadcast, end_broadcast},
    [WF_SEND] = {wf_messages_begin, wf_messages_end},
    [WF_RECV] = {wf_messages_begin, wf_messages_end},
    [WF_BARRIER] = {wf_barrier_begin, wf_barrier_end},
};
