/*
 * mesh/comm/collective.c - collectives over any transport: what is asked is copied, counted and
 * fingerprinted here, and carried out by one of two paths.
 *
 * An all_reduce of many buffers is cut as if they were one, in lines of 16 floats: the share of
 * member i is lines [i L / size, (i+1) L / size). Every element is reduced once, in rank order,
 * so neither the cut nor who does it can show in the bits. A broadcast is cut alike.
 */
#include "mesh/comm/collective_internal.h"
#include "mesh/comm/observer_internal.h"
#include <string.h>

enum { LINE = 16 };

static const char *const names[] = {
    [WF_ALL_REDUCE] = "all_reduce",
    [WF_REDUCE_SCATTER] = "reduce_scatter",
    [WF_ALL_GATHER] = "all_gather",
    [WF_ALL_TO_ALL] = "all_to_all",
    [WF_BROADCAST] = "broadcast",
    [WF_SEND] = "send",
    [WF_RECV] = "recv",
    [WF_BARRIER] = "barrier",
};

const char *wf_collective_name(wf_collective_kind kind)
{
    return (unsigned)kind < WF_COLLECTIVE_KINDS ? names[kind] : "unknown collective";
}

size_t wf_part_bytes(const wf_pending *p, const int64_t *cuts, int rank)
{
    int64_t sum = 0;

    for (int64_t b = 0; b < p->what.n_buffers; b++)
        sum += wf_part(p, cuts, b, rank + 1) - wf_part(p, cuts, b, rank);
    return (size_t)sum * p->what.element;
}

/* Returns where the share of a member begins in `total` elements. */
static int64_t share_begin(int64_t total, int size, int member)
{
    int64_t lines = (total + LINE - 1) / LINE, at = LINE * (lines * member / size);

    return at < total ? at : total;
}

int64_t wf_all_reduce_received(int64_t count, int size, int member)
{
    int64_t mine = share_begin(count, size, member + 1) - share_begin(count, size, member);

    return (size - 1) * mine + count - mine;
}

/* Cuts of one all_reduce or broadcast over all its buffers, as if they lay end to end. */
static void cut_evenly(wf_pending *p)
{
    int size = p->comm->size;
    int64_t total = 0, first = 0;

    for (int64_t b = 0; b < p->what.n_buffers; b++)
        total += p->buffer[b].count;
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        int64_t count = p->buffer[b].count;

        for (int i = 0; i <= size; i++) {
            int64_t at = share_begin(total, size, i) - first;

            p->cuts[b * (size + 1) + i] = at < 0 ? 0 : at > count ? count : at;
        }
        first += count;
    }
}

/* Carves a piece off the block at *used; with block NULL it is only counted. */
static void *carve(char *block, size_t *used, int64_t n, size_t size)
{
    void *piece = block ? block + *used : NULL;

    *used += ((size_t)n * size + 15) / 16 * 16;
    return piece;
}

/* Lays out a block for the pending collective and its arrays. With block NULL: returns its
   size. */
static size_t lay_out(wf_pending *p, char *block, const wf_comm *c, const wf_collective *w)
{
    bool messages = w->kind == WF_SEND || w->kind == WF_RECV;
    int64_t n = w->n_buffers, cuts = n * (c->size + 1);
    size_t used = 0;

    carve(block, &used, 1, sizeof *p);
    p->buffer = carve(block, &used, n, sizeof *p->buffer);
    p->x = carve(block, &used, messages ? n : 1, sizeof *p->x);
    p->cuts = carve(block, &used, cuts, sizeof *p->cuts);
    p->out_cuts = p->cuts;
    if (w->kind == WF_ALL_TO_ALL)
        p->out_cuts = carve(block, &used, cuts, sizeof *p->cuts);
    p->result = carve(block, &used, n, sizeof *p->result);
    p->pieces = carve(block, &used, c->size, sizeof *p->pieces);
    p->source = carve(block, &used, c->size, sizeof *p->source);
    p->target = carve(block, &used, c->size, sizeof *p->target);
    p->send_bytes = carve(block, &used, c->size, sizeof *p->send_bytes);
    p->recv_bytes = carve(block, &used, c->size, sizeof *p->recv_bytes);
    return used;
}

static wf_pending *pending_new(wf_comm *c, const wf_collective *w)
{
    size_t row = (size_t)(c->size + 1) * sizeof(int64_t);
    wf_pending size, *p;

    size.bytes = lay_out(&size, NULL, c, w);
    p = wf_blocks_take(&c->blocks, size.bytes);
    if (!p)
        return NULL;
    memset(p, 0, size.bytes);
    lay_out(p, (char *)p, c, w);
    p->bytes = size.bytes;
    p->comm = c;
    p->what = *w;
    if (p->what.element == 0)
        p->what.element = sizeof(float);
    if (w->n_buffers)
        memcpy(p->buffer, w->buffers, (size_t)w->n_buffers * sizeof *p->buffer);
    p->what.buffers = p->buffer;
    for (int64_t b = 0; wf_collective_has_cuts(w) && b < w->n_buffers; b++) {
        memcpy(p->cuts + b * (c->size + 1), w->buffers[b].cuts, row);
        if (w->kind == WF_ALL_TO_ALL)
            memcpy(p->out_cuts + b * (c->size + 1), w->buffers[b].out_cuts, row);
    }
    if (w->kind == WF_ALL_REDUCE || w->kind == WF_BROADCAST)
        cut_evenly(p);
    return p;
}

static void pending_free(wf_pending *p)
{
    const wf_device *device = wf_on_device(p);

    if (!device)
        wf_blocks_give(&p->comm->blocks, p->scratch, p->scratch_bytes);
    else if (p->scratch)
        device->allocator.release(device->allocator.self, p->scratch, p->scratch_bytes);
    wf_blocks_give(&p->comm->blocks, p, p->bytes);
}

void *wf_scratch_take(wf_pending *p, size_t bytes)
{
    const wf_device *device = wf_on_device(p);

    p->scratch_bytes = bytes;
    p->scratch = device ? device->allocator.alloc(device->allocator.self, bytes)
                        : wf_blocks_take(&p->comm->blocks, bytes);
    return p->scratch;
}

static int64_t total_bytes(const wf_pending *p)
{
    int64_t sum = 0;

    for (int64_t b = 0; b < p->what.n_buffers; b++)
        sum += wf_collective_has_cuts(&p->what) ? wf_part(p, p->cuts, b, p->comm->size)
                                                : p->buffer[b].count;
    return sum * (int64_t)p->what.element;
}

/* Returns the bytes that this rank receives: for an all_reduce, those of a ring. */
static int64_t received_bytes(const wf_pending *p)
{
    int me = p->comm->rank, others = p->comm->size - 1;
    bool cut = p->what.kind == WF_ALL_REDUCE || wf_collective_has_cuts(&p->what);
    int64_t mine = cut ? (int64_t)wf_part_bytes(p, p->cuts, me) : 0, total = total_bytes(p);

    switch (p->what.kind) {
    case WF_ALL_REDUCE:
        return others * mine + total - mine;
    case WF_REDUCE_SCATTER:
        return others * mine;
    case WF_ALL_GATHER:
        return total - mine;
    case WF_ALL_TO_ALL:
        total = 0;
        for (int i = 0; i <= others; i++)
            total += i == me ? 0 : (int64_t)wf_part_bytes(p, p->out_cuts, i);
        return total;
    case WF_BROADCAST:
        return me == p->what.peer ? 0 : total;
    case WF_RECV:
        return total;
    default:
        return 0;
    }
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 1099511628211u;
    return hash ^ hash >> 29;
}

static void sign(wf_pending *p)
{
    const wf_collective *w = &p->what;
    uint64_t shape = 14695981039346656037u;
    const bool cut = wf_collective_has_cuts(w);
    const int64_t words = cut ? w->n_buffers * (p->comm->size + 1) : w->n_buffers;

    for (int64_t i = 0; i < words; i++)
        shape = mix(shape, (uint64_t)(cut ? p->cuts[i] : p->buffer[i].count));
    for (int64_t b = 0; cut && b < w->n_buffers; b++)
        shape = mix(shape, (uint64_t)(2 * p->buffer[b].rows + p->buffer[b].rounds));
    for (int64_t b = 0; b < w->n_buffers; b++)
        shape = p->buffer[b].one_out ? mix(shape, (uint64_t)b) : shape;
    p->x->print = (wf_fingerprint){
        .op = names[w->kind],
        .detail = !wf_collective_reduces(w)       ? ""
                  : w->reduction == WF_REDUCE_SUM ? "sum"
                                                  : "max",
        .element = w->element,
        .buffers = w->n_buffers,
        /* An all_to_all's sizes differ by member; they are compared pair by pair. */
        .bytes = w->kind == WF_ALL_TO_ALL ? -1 : total_bytes(p),
        .root = w->kind == WF_BROADCAST ? w->peer : -1,
        .shape = w->kind == WF_ALL_TO_ALL ? 0 : shape,
    };
    p->x->whole = total_bytes(p);
    p->x->peer = w->peer;
    p->x->device = w->device;
    p->x->send_bytes = p->send_bytes;
    p->x->recv_bytes = p->recv_bytes;
}

static bool is_message(const wf_pending *p)
{
    return p->what.kind == WF_SEND || p->what.kind == WF_RECV;
}

/* Returns bytes that this rank puts in. */
static int64_t brought_bytes(const wf_pending *p)
{
    return p->what.kind == WF_ALL_GATHER ? (int64_t)wf_part_bytes(p, p->cuts, p->comm->rank)
                                         : total_bytes(p);
}

static void write_down(wf_pending *p)
{
    const wf_comm *c = p->comm;
    bool one = is_message(p) || p->what.kind == WF_BROADCAST;

    if (c->oplog && c->size > 1)
        p->written = c->oplog->begin(
            c->oplog->self,
            &(wf_oplog_move){.op = names[p->what.kind],
                             .group = c->name,
                             .size = c->size,
                             .whole = total_bytes(p),
                             .brings = brought_bytes(p),
                             .element = p->what.element,
                             .receives = received_bytes(p),
                             .peer = one ? wf_comm_world_rank(c, p->what.peer) : -1,
                             .tag = p->what.tag});
}

wf_status wf_collective_begin(wf_comm *comm, const wf_collective *what, wf_pending **pending,
                              wf_error *error)
{
    const wf_transport *t = comm->transport;
    wf_status status = wf_collective_check(comm, what, error);
    wf_trace_mark begun;
    wf_pending *p;

    *pending = NULL;
    if (status != WF_OK)
        return status;
    if (what->device && what->context && wf_graph_keeps(what->context))
        return wf_captured_begin(comm, what, pending, error);
    p = pending_new(comm, what);
    if (!p)
        return wf_error_set(error, WF_ENOMEM, "no memory to begin %s over %s",
                            names[what->kind], comm->name);
    wf_comm_count(comm, what->kind, received_bytes(p), what->at_once);
    write_down(p);
    if (t->moves) {
        p->sequence = wf_comm_begins(comm, &p->what, total_bytes(p));
        p->path = (t->direct ? wf_direct_paths : wf_staged_paths) + what->kind;
        if (!is_message(p))
            sign(p);
        p->x->background = !what->at_once && comm->size > 1;
        p->x->timed = comm->trace != NULL;
        begun = wf_trace_begin(comm->trace);
        p->posted = begun.at;
        wf_comm_waits(comm, &p->what, p->sequence);
        status = p->path->begin(p, error);
        wf_comm_waits_no_more(comm);
        wf_trace_end(comm->trace, begun,
                     &(wf_trace_event){.kind = WF_TRACE_HOST,
                                       .name = "begin collective",
                                       .location = comm->name});
    }
    if (status != WF_OK) {
        wf_comm_ends(comm, &p->what, p->sequence, true);
        pending_free(p);
        return status;
    }
    p->next = comm->in_flight;
    comm->in_flight = p;
    *pending = p;
    return WF_OK;
}

/* Returns the number of a message with a tag: one for both ends, and unique in the world. */
static uint64_t message_of(const wf_pending *p)
{
    int me = wf_comm_world_rank(p->comm, p->comm->rank);
    int other = is_message(p) ? wf_comm_world_rank(p->comm, p->what.peer) : me;
    bool sends = p->what.kind == WF_SEND;
    uint64_t word[] = {p->what.tag, (uint64_t)(sends ? me : other),
                       (uint64_t)(sends ? other : me)};
    uint64_t hash = 14695981039346656037u;

    for (int i = 0; i < 3; i++)
        hash = mix(hash, word[i]);
    return is_message(p) && p->what.tag ? hash : 0;
}

/* Traces a collective. Its transfer is as long as the transport says, or else the time from
   begin to end. Transfers of a group but its messages go one after the other: one that began
   while the last bytes of another were under way counts from when that was through. */
static void trace(const wf_pending *p, wf_trace_mark waits)
{
    wf_comm *c = p->comm;
    wf_trace_event e = {.kind = WF_TRACE_WAIT,
                        .name = names[p->what.kind],
                        .location = c->name,
                        .bytes = received_bytes(p),
                        .message = message_of(p),
                        .begun = p->posted};

    wf_trace_end(c->trace, waits, &e);
    e.kind = WF_TRACE_TRANSFER;
    e.message = 0;
    e.start = p->x->began ? p->x->began : p->posted;
    e.end = p->x->ended ? p->x->ended : wf_trace_now();
    if (!is_message(p) && e.start < c->through)
        e.start = c->through < e.end ? c->through : e.end;
    wf_trace_add(c->trace, &e);
    if (!is_message(p))
        c->through = e.end;
}

wf_status wf_collective_end(wf_pending *p, wf_error *error)
{
    wf_pending **link;
    wf_status status;
    wf_trace_mark waits;

    if (!p)
        return wf_error_set(error, WF_EINVAL,
                            "wf_collective_end without a collective in flight");
    if (p->captured)
        return wf_captured_end(p, error);
    waits = wf_trace_begin(p->posted ? p->comm->trace : NULL);
    wf_comm_waits(p->comm, &p->what, p->sequence);
    status = p->path ? p->path->end(p, error) : WF_OK;
    wf_comm_waits_no_more(p->comm);
    if (p->posted && p->comm->trace && p->comm->size > 1)
        trace(p, waits);
    wf_comm_ends(p->comm, &p->what, p->sequence, status != WF_OK);
    if (p->written && p->comm->oplog)
        p->comm->oplog->end(p->comm->oplog->self, p->written);
    for (link = &p->comm->in_flight; *link != p; link = &(*link)->next)
        ;
    *link = p->next;
    pending_free(p);
    return status;
}

void wf_pending_drop(wf_comm *comm)
{
    while (comm->in_flight) {
        wf_pending *next = comm->in_flight->next;

        pending_free(comm->in_flight);
        comm->in_flight = next;
    }
}

wf_status wf_collective_run(wf_comm *comm, const wf_collective *what, wf_error *error)
{
    wf_collective now = *what;
    wf_pending *p;
    wf_status status;

    now.at_once = true;
    status = wf_collective_begin(comm, &now, &p, error);
    return status == WF_OK ? wf_collective_end(p, error) : status;
}
