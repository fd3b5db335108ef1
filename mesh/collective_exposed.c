/*
 * mesh/collective_exposed.c - collectives where members read each other's buffers in place:
 * post, wait until all have, read what is mine from everybody, wait until everybody has read
 * mine.
 */
#include "mesh/collective_parts.h"
#include <stdio.h>

/* Buffer b shows its input and one thing more: all_reduce its output, all_to_all its cuts. */
static const void *shown(const wf_pending *p, int member, int64_t b, int which)
{
    return p->comm->transport->exposure->address(p->comm, p->x, member)[2 * b + which];
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

static size_t extent(const wf_pending *p, const int64_t *cuts, int64_t b)
{
    return (size_t)wf_part(p, cuts, b, p->comm->size) * p->what.element;
}

static wf_status begin(wf_pending *p, wf_error *error)
{
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        p->address[2 * b] = p->buffer[b].in;
        p->address[2 * b + 1] = p->buffer[b].out;
    }
    p->x->address = p->address;
    return p->comm->transport->exposure->expose(p->comm, p->x, error);
}

/* Done with the peers' buffers; where they read mine, wait until they are done too. */
static wf_status leave(wf_pending *p, bool was_read, wf_error *error)
{
    const wf_exposure *e = p->comm->transport->exposure;
    wf_status status = e->release(p->comm, p->x, error);

    return status == WF_OK && was_read ? e->settle(p->comm, p->x, error) : status;
}

/* My part of buffer b, over all members, into y. */
static void reduce_part(const wf_pending *p, int64_t b, float *y)
{
    int me = p->comm->rank;
    int64_t first = wf_part(p, p->cuts, b, me), end = wf_part(p, p->cuts, b, me + 1);

    if (first == end)
        return;
    for (int i = 0; i < p->comm->size; i++)
        p->source[i] = (const float *)shown(p, i, b, 0) + first;
    wf_reduce_members(p, p->source, y, end - first);
}

/* In place is safe: my part of my input is read by me alone, and I write the others' parts when
   all have reduced theirs. */
static wf_status end_all_reduce(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    const wf_exposure *e = c->transport->exposure;
    wf_status status = e->look(p->comm, p->x, error);
    void *to, *from;

    if (status != WF_OK)
        return status;
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        wf_locate(p, p->cuts, b, c->rank, p->buffer[b].out, &to);
        reduce_part(p, b, to);
    }
    status = e->meet(p->comm, p->x, error);
    if (status != WF_OK)
        return status;
    for (int k = 1; k < c->size; k++) {
        int peer = (c->rank + k) % c->size;

        for (int64_t b = 0; b < p->what.n_buffers; b++) {
            size_t bytes = wf_locate(p, p->cuts, b, peer, p->buffer[b].out, &to);

            wf_locate(p, p->cuts, b, peer, shown(p, peer, b, 1), &from);
            wf_copy_part(to, from, bytes);
        }
    }
    return leave(p, true, error);
}

/* Where out lies in the input that others are still reading, my part is reduced inside the
   input (only I read it there), to be moved when all have left. */
static bool reduced_inside(const wf_pending *p, int64_t b, void **inside, size_t *bytes)
{
    const wf_comm_buffer *buffer = &p->buffer[b];

    *bytes = wf_locate(p, p->cuts, b, p->comm->rank, buffer->in, inside);
    return overlap(buffer->in, extent(p, p->cuts, b), buffer->out, *bytes);
}

static wf_status end_reduce_scatter(wf_pending *p, wf_error *error)
{
    wf_status status = p->comm->transport->exposure->look(p->comm, p->x, error);
    void *inside;
    size_t bytes;

    if (status != WF_OK)
        return status;
    for (int64_t b = 0; b < p->what.n_buffers; b++)
        reduce_part(p, b, reduced_inside(p, b, &inside, &bytes) ? inside : p->buffer[b].out);
    status = leave(p, true, error);
    for (int64_t b = 0; status == WF_OK && b < p->what.n_buffers; b++)
        if (reduced_inside(p, b, &inside, &bytes))
            wf_copy_part(p->buffer[b].out, inside, bytes);
    return status;
}

/* An input that lies in out at another place than its own goes there first. */
static wf_status begin_all_gather(wf_pending *p, wf_error *error)
{
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        wf_comm_buffer *buffer = &p->buffer[b];
        void *place;
        size_t bytes = wf_locate(p, p->cuts, b, p->comm->rank, buffer->out, &place);

        if (overlap(buffer->in, bytes, buffer->out, extent(p, p->cuts, b))) {
            wf_copy_part(place, buffer->in, bytes);
            buffer->in = place;
        }
    }
    return begin(p, error);
}

static wf_status end_all_gather(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    wf_status status = c->transport->exposure->look(p->comm, p->x, error);
    void *to;

    if (status != WF_OK)
        return status;
    for (int k = 0; k < c->size; k++) {
        int from = (c->rank + k) % c->size;

        for (int64_t b = 0; b < p->what.n_buffers; b++) {
            size_t bytes = wf_locate(p, p->cuts, b, from, p->buffer[b].out, &to);

            wf_copy_part(to, shown(p, from, b, 0), bytes);
        }
    }
    return leave(p, true, error);
}

/* Inputs that overlap their outputs are shown as copies: others may write theirs any time. */
static wf_status begin_all_to_all(wf_pending *p, wf_error *error)
{
    size_t need = 0;
    char *to;

    for (int pass = 0; pass < 2; pass++) {
        to = p->scratch;
        for (int64_t b = 0; b < p->what.n_buffers; b++) {
            wf_comm_buffer *buffer = &p->buffer[b];
            size_t bytes = extent(p, p->cuts, b);

            if (!overlap(buffer->in, bytes, buffer->out, extent(p, p->out_cuts, b)))
                continue;
            if (pass == 0) {
                need += bytes;
            } else {
                wf_copy_part(to, buffer->in, bytes);
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
    for (int64_t b = 0; b < p->what.n_buffers; b++) {
        p->address[2 * b] = p->buffer[b].in;
        p->address[2 * b + 1] = p->cuts + b * (p->comm->size + 1);
    }
    p->x->address = p->address;
    return p->comm->transport->exposure->expose(p->comm, p->x, error);
}

static wf_status wrong_block(wf_pending *p, int from, int64_t b, int64_t sent, int64_t expected,
                             wf_error *error)
{
    char text[320];

    snprintf(
        text, sizeof text,
        "over %s, rank %d sends %lld elements of buffer %lld to rank %d in all_to_all, which "
        "expects %lld",
        p->comm->name, wf_comm_world_rank(p->comm, from), (long long)sent, (long long)b,
        wf_comm_world_rank(p->comm, p->comm->rank), (long long)expected);
    return p->comm->transport->exposure->disagree(p->comm, p->x, text, error);
}

static wf_status end_all_to_all(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    size_t element = p->what.element;
    wf_status status = c->transport->exposure->look(p->comm, p->x, error);

    if (status != WF_OK)
        return status;
    for (int k = 0; k < c->size; k++) {
        int from = (c->rank + k) % c->size;

        for (int64_t b = 0; b < p->what.n_buffers; b++) {
            const int64_t *theirs = (const int64_t *)shown(p, from, b, 1) + c->rank;
            int64_t at = wf_part(p, p->out_cuts, b, from);
            int64_t n = wf_part(p, p->out_cuts, b, from + 1) - at;

            if (theirs[1] - theirs[0] != n)
                return wrong_block(p, from, b, theirs[1] - theirs[0], n, error);
            if (n)
                wf_copy_part((char *)p->buffer[b].out + (size_t)at * element,
                             (const char *)shown(p, from, b, 0) + (size_t)theirs[0] * element,
                             (size_t)n * element);
        }
    }
    return leave(p, true, error);
}

static wf_status end_broadcast(wf_pending *p, wf_error *error)
{
    const wf_comm *c = p->comm;
    int root = p->what.peer;
    wf_status status = c->transport->exposure->look(p->comm, p->x, error);

    if (status != WF_OK)
        return status;
    for (int64_t b = 0; c->rank != root && b < p->what.n_buffers; b++)
        wf_copy_part(p->buffer[b].out, shown(p, root, b, 0),
                     (size_t)p->buffer[b].count * p->what.element);
    return leave(p, c->rank == root, error);
}

const wf_collective_path wf_exposed_paths[WF_COLLECTIVE_KINDS] = {
    [WF_ALL_REDUCE] = {begin, end_all_reduce},
    [WF_REDUCE_SCATTER] = {begin, end_reduce_scatter},
    [WF_ALL_GATHER] = {begin_all_gather, end_all_gather},
    [WF_ALL_TO_ALL] = {begin_all_to_all, end_all_to_all},
    [WF_BROADCAST] = {begin, end_broadcast},
    [WF_SEND] = {wf_messages_begin, wf_messages_end},
    [WF_RECV] = {wf_messages_begin, wf_messages_end},
    [WF_BARRIER] = {wf_barrier_begin, wf_barrier_end},
};
