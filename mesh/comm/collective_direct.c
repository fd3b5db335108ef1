/*
 * mesh/comm/collective_direct.c - collectives where members reach each other's memory: the work
 * is cut in pieces that read every input once and write every output once, and whichever member
 * is awake does them (mesh/comm/transport_internal.h, wf_exchange).
 *
 *     all_reduce      the sum of a slice over all members, to all outputs
 *     reduce_scatter  the same, to the output of the member whose part it is
 *     all_gather      a slice of a member's input, to all outputs
 *     broadcast       a slice of the root's input, to all other outputs
 *     all_to_all      all blocks for one member
 *
 * In place is safe: only the piece's worker reads or writes its elements, and it has read
 * all inputs of a slice before it writes.
 */
#include "mesh/comm/collective_internal.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of a slice, which stays in the first-level cache between its uses; pieces of a large
   share, so that a late worker finds some; and the bytes written from which on stores past the
   caches pay: what the cores' own caches would not hold. */
enum { SLICE_BYTES = 16 << 10, PIECES = 16, STREAM_BYTES = 8 << 20 };

/* n elements of a share of buffer b: element `at` of the part and those after it, which lie
   side by side from element `offset` of what is cut. */
typedef struct slice {
    int64_t b, at, offset, n;
    wf_moves *batch;
} slice;

typedef wf_status slice_work(const wf_exchange *x, int share, const slice *s, wf_error *error);

static const wf_pending *member(const wf_exchange *x, int i)
{
    return x->comm->transport->direct->owner(x, i);
}

static size_t extent(const wf_pending *p, const int64_t *cuts, int64_t b)
{
    return (size_t)wf_part(p, cuts, b, p->comm->size) * p->what.element;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the elements of a slice, at least 1; a device takes its pieces whole. */
static int64_t slice_elements(const wf_pending *p)
{
    int64_t n = SLICE_BYTES / (int64_t)p->what.element;

    return wf_on_device(p) ? INT64_MAX / 4 : n ? n : 1;
}

/* Calls `work` for each slice of a piece. A share is the member's part of all buffers, end to
   end, and a piece some slices of it. */
static wf_status each_slice(const wf_exchange *x, int share, int64_t piece, slice_work *work,
                            wf_error *error)
{
    const wf_pending *p = x->owner;
    int64_t from = piece * p->piece, end = from + p->piece, passed = 0;
    wf_status status = WF_OK;
    wf_moves batch;

    wf_moves_begin(&batch, p, true);

    for (int64_t b = 0; b < p->what.n_buffers && passed < end; b++) {
        int64_t n = wf_part(p, p->cuts, b, share + 1) - wf_part(p, p->cuts, b, share);
        int64_t last = least(end - passed, n);
        slice s = {.b = b, .at = from > passed ? from - passed : 0, .batch = &batch};

        for (; s.at < last && status == WF_OK; s.at += s.n) {
            s.n = wf_run(p, p->cuts, p->buffer[b].rows, b, share, s.at, &s.offset);
            s.n = least(s.n, least(slice_elements(p), last - s.at));
            status = work(x, share, &s, error);
        }
        passed += n;
    }
    return status == WF_OK ? wf_moves_end(&batch, error) : status;
}

/* Returns members to whose output a result goes: where all see one, to the first. */
static int targets(const wf_pending *p, int64_t b)
{
    return p->buffer[b].one_out ? 1 : p->comm->size;
}

static wf_status begin(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    int64_t line = slice_elements(p), total = 0, copies = c->size;

    for (int i = 0; i < c->size; i++)
        total += (int64_t)(wf_part_bytes(p, p->cuts, i) / p->what.element);
    p->piece = (total / (PIECES * c->size) / line + 1) * line; /* on a device: a share */
    for (int i = 0; i < c->size; i++) {
        int64_t share = (int64_t)(wf_part_bytes(p, p->cuts, i) / p->what.element);

        p->pieces[i] = share / p->piece + (share % p->piece != 0);
    }
    if (p->what.kind == WF_REDUCE_SCATTER || (p->what.n_buffers && p->buffer[0].one_out))
        copies = 1;
    p->stream = c->reduce.stream && !wf_on_device(p) &&
                total * copies * (int64_t)p->what.element >= STREAM_BYTES;
    p->x->pieces = p->pieces;
    p->x->owner = p;
    return c->transport->direct->begin(p->comm, p->x, error);
}

static wf_status end(wf_pending *p, wf_error *error)
{
    return p->comm->transport->wait(p->comm, p->x, error);
}

static wf_status put(wf_moves *b, void *to, const void *from, int64_t n, wf_error *error)
{
    const wf_pending *p = b->p;
    size_t bytes = (size_t)n * p->what.element;

    if (to == from || bytes == 0)
        return WF_OK;
    if (wf_on_device(p))
        return wf_moves_copy(b, &(wf_copy){.from = from, .to = to, .bytes = bytes, .rows = 1},
                             error);
    if (p->stream)
        p->comm->reduce.stream(from, to, bytes);
    else
        memcpy(to, from, bytes);
    return WF_OK;
}

/* Element `at` of a buffer. */
static void *address_of(const wf_pending *p, void *buffer, int64_t at)
{
    return (char *)buffer + (size_t)at * p->what.element;
}

/* Reduces elements [at, at + n) of the inputs into n_targets buffers: from registers where
   there is a kernel for it, else by way of a slice in the cache. A sum that is rounded has one
   target. */
static wf_status reduce_slice(const wf_exchange *x, const slice *s, int n_targets,
                              wf_error *error)
{
    _Alignas(64) char sum[SLICE_BYTES];
    const wf_pending *p = x->owner;
    const wf_reduce_ops *ops = &p->comm->reduce;
    const size_t out = wf_out_element(p, s->b);
    wf_status status = WF_OK;

    for (int i = 0; i < p->comm->size; i++)
        p->source[i] = address_of(p, (void *)member(x, i)->buffer[s->b].in, s->offset);
    if (wf_on_device(p))
        return wf_moves_sum(s->batch, n_targets, out, s->n, error);
    if (out != p->what.element) {
        wf_reduce_members(p, p->target[0], out, s->n);
        return WF_OK;
    }
    if (p->what.reduction == WF_REDUCE_SUM && ops->sum_to_all &&
        p->what.element == sizeof(float)) {
        ops->sum_to_all((const float *const *)p->source, p->comm->size, !ops->chain,
                        (float *const *)p->target, n_targets, p->stream, s->n);
        return WF_OK;
    }
    wf_reduce_members(p, sum, out, s->n);
    for (int k = 0; k < n_targets && status == WF_OK; k++)
        status = put(s->batch, p->target[k], sum, s->n, error);
    return status;
}

static wf_status reduce_to_all(const wf_exchange *x, int share, const slice *s, wf_error *error)
{
    const wf_pending *p = x->owner;

    (void)share;
    for (int i = 0; i < targets(p, s->b); i++)
        p->target[i] = address_of(p, member(x, i)->buffer[s->b].out, s->offset);
    return reduce_slice(x, s, targets(p, s->b), error);
}

static wf_status all_reduce_piece(const wf_exchange *x, int share, int64_t piece,
                                  wf_error *error)
{
    return each_slice(x, share, piece, reduce_to_all, error);
}

static wf_status reduce_to_one(const wf_exchange *x, int share, const slice *s, wf_error *error)
{
    const wf_pending *p = x->owner;

    p->target[0] =
        (char *)member(x, share)->result[s->b] + (size_t)s->at * wf_out_element(p, s->b);
    return reduce_slice(x, s, 1, error);
}

static wf_status reduce_scatter_piece(const wf_exchange *x, int share, int64_t piece,
                                      wf_error *error)
{
    return each_slice(x, share, piece, reduce_to_one, error);
}

static wf_status begin_all_reduce(wf_pending *p, wf_error *error)
{
    p->x->work = all_reduce_piece;
    return begin(p, error);
}

/* Begins a reduce_scatter. Where out lies in the input that others are still reading, my part
   is reduced inside the input (only this rank reads it there), and moved when all is done. */
static wf_status begin_reduce_scatter(wf_pending *p, wf_error *error)
{
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        const wf_comm_buffer *buffer = &p->buffer[b];
        void *inside;
        size_t bytes = wf_locate(p, p->cuts, b, p->comm->rank, buffer->in, &inside);
        bool within = !buffer->rounds &&
                      wf_overlap(buffer->in, extent(p, p->cuts, b), buffer->out, bytes);

        p->result[b] = within ? inside : buffer->out;
    }
    p->x->work = reduce_scatter_piece;
    return begin(p, error);
}

static size_t bytes_of_mine(const wf_pending *p, int64_t b)
{
    void *mine;

    return wf_locate(p, p->cuts, b, p->comm->rank, p->buffer[b].in, &mine);
}

static wf_status end_reduce_scatter(wf_pending *p, wf_error *error)
{
    wf_status status = end(p, error);

    for (int64_t b = 0; status == WF_OK && b < p->what.n_buffers; b++)
        if (p->result[b] != p->buffer[b].out)
            wf_copy_part(p, p->buffer[b].out, p->result[b], bytes_of_mine(p, b));
    return status;
}

static wf_status gather_to_all(const wf_exchange *x, int share, const slice *s, wf_error *error)
{
    const wf_pending *p = x->owner;
    wf_status status = WF_OK;
    const void *from = address_of(p, (void *)member(x, share)->buffer[s->b].in, s->at);

    for (int k = 0; k < targets(p, s->b) && status == WF_OK; k++) {
        const wf_pending *to = member(x, (share + k) % p->comm->size);

        status =
            put(s->batch, address_of(p, to->buffer[s->b].out, s->offset), from, s->n, error);
    }
    return status;
}

static wf_status all_gather_piece(const wf_exchange *x, int share, int64_t piece,
                                  wf_error *error)
{
    return each_slice(x, share, piece, gather_to_all, error);
}

/* Begins with an input that lies in out at another offset than its own: it is moved there
   first. */
static wf_status begin_all_gather(wf_pending *p, wf_error *error)
{
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        wf_comm_buffer *buffer = &p->buffer[b];
        void *target;
        size_t bytes = wf_locate(p, p->cuts, b, p->comm->rank, buffer->out, &target);

        if (wf_overlap(buffer->in, bytes, buffer->out, extent(p, p->cuts, b))) {
            wf_copy_part(p, target, buffer->in, bytes);
            buffer->in = target;
        }
    }
    p->x->work = all_gather_piece;
    return begin(p, error);
}

static wf_status copy_to_others(const wf_exchange *x, int share, const slice *s,
                                wf_error *error)
{
    const wf_pending *p = x->owner;
    wf_status status = WF_OK;
    const void *from =
        address_of(p, (void *)member(x, p->what.peer)->buffer[s->b].in, s->offset);

    (void)share;
    for (int i = 0; i < p->comm->size && status == WF_OK; i++)
        if (i != p->what.peer)
            status = put(s->batch, address_of(p, member(x, i)->buffer[s->b].out, s->offset),
                         from, s->n, error);
    return status;
}

static wf_status broadcast_piece(const wf_exchange *x, int share, int64_t piece,
                                 wf_error *error)
{
    return each_slice(x, share, piece, copy_to_others, error);
}

static wf_status begin_broadcast(wf_pending *p, wf_error *error)
{
    p->x->work = broadcast_piece;
    return begin(p, error);
}

/* Copies the block of buffer b from one member to another, `from` of rank i, in runs that lie
   side by side on both ends. */
static wf_status put_block(wf_moves *batch, const wf_pending *from, int i, const wf_pending *to,
                           int share, int64_t b, wf_error *error)
{
    int64_t n = wf_part(from, from->cuts, b, share + 1) - wf_part(from, from->cuts, b, share);
    int64_t room = wf_part(to, to->out_cuts, b, i + 1) - wf_part(to, to->out_cuts, b, i);
    wf_status status = WF_OK;

    if (n != room)
        return wf_error_set(error, WF_EMISMATCH,
                            "over %s, rank %d sends %lld elements of buffer %lld to rank %d in "
                            "all_to_all, which expects %lld",
                            to->comm->name, wf_comm_world_rank(to->comm, i), (long long)n,
                            (long long)b, wf_comm_world_rank(to->comm, share), (long long)room);
    for (int64_t at = 0; at < n && status == WF_OK;) {
        int64_t source, offset;
        int64_t run = wf_run(from, from->cuts, from->buffer[b].rows, b, share, at, &source);

        run = least(run, wf_run(to, to->out_cuts, to->buffer[b].out_rows, b, i, at, &offset));
        status = put(batch, address_of(to, to->buffer[b].out, offset),
                     address_of(from, (void *)from->buffer[b].in, source), run, error);
        at += run;
    }
    return status;
}

/* Copies all blocks for one member, from all members. */
static wf_status all_to_all_piece(const wf_exchange *x, int share, int64_t piece,
                                  wf_error *error)
{
    const wf_pending *p = x->owner;
    wf_status status = WF_OK;
    wf_moves batch;

    (void)piece;
    wf_moves_begin(&batch, p, true);
    for (int k = 0; k < p->comm->size; k++) {
        int i = (share + k) % p->comm->size;

        for (int64_t b = 0; b < p->what.n_buffers && status == WF_OK; b++)
            status = put_block(&batch, member(x, i), i, member(x, share), share, b, error);
    }
    return status == WF_OK ? wf_moves_end(&batch, error) : status;
}

/* Inputs that overlap their outputs are shown as copies: others may write theirs any time. */
static wf_status begin_all_to_all(wf_pending *p, wf_error *error)
{
    size_t need = 0;
    char *to;

    for (int pass = 0; pass < 2; pass++) {
        to = p->scratch; /* in the memory of the buffers */
        for (int64_t b = 0; b < p->what.n_buffers; b++) {
            wf_comm_buffer *buffer = &p->buffer[b];
            size_t bytes = extent(p, p->cuts, b);

            if (!wf_overlap(buffer->in, bytes, buffer->out, extent(p, p->out_cuts, b)))
                continue;
            if (pass == 0) {
                need += bytes;
            } else {
                wf_copy_part(p, to, buffer->in, bytes);
                buffer->in = to;
                to += bytes;
            }
        }
        if (need == 0)
            break;
        if (pass == 0 && !wf_scratch_take(p, need))
            return wf_error_set(error, WF_ENOMEM,
                                "no memory for %zu bytes of an all_to_all in place", need);
    }
    p->x->work = all_to_all_piece;
    p->x->owner = p;
    return p->comm->transport->direct->begin(p->comm, p->x, error);
}

const wf_collective_path wf_direct_paths[WF_COLLECTIVE_KINDS] = {
    [WF_ALL_REDUCE] = {begin_all_reduce, end},
    [WF_REDUCE_SCATTER] = {begin_reduce_scatter, end_reduce_scatter},
    [WF_ALL_GATHER] = {begin_all_gather, end},
    [WF_ALL_TO_ALL] = {begin_all_to_all, end},
    [WF_BROADCAST] = {begin_broadcast, end},
    [WF_SEND] = {wf_messages_begin, wf_messages_end},
    [WF_RECV] = {wf_messages_begin, wf_messages_end},
    [WF_BARRIER] = {wf_barrier_begin, wf_barrier_end},
};
