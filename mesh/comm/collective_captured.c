/*
 * mesh/comm/collective_captured.c - collectives of memory whose work is being captured as a
 * graph (core/graph.h): they are kept, and every run of the graph makes them, with the same
 * buffers, between the parts of the device's work. So what is counted, compared, traced and
 * reported in a run is what it is without a graph.
 */
#include "mesh/comm/collective_internal.h"
#include <stdlib.h>
#include <string.h>

struct wf_captured {
    wf_comm *comm;
    wf_collective what;
    wf_comm_counters *counts_too; /* the group's, when it was captured */
    wf_pending *pending;          /* while a run is between its begin and its end */
    int refs; /* its begin's, its end's and that of the handle of the capture */
    wf_comm_buffer *buffer;
    int64_t *cuts;
};

static void drop(void *self)
{
    wf_captured *c = self;

    if (--c->refs > 0)
        return;
    free(c->buffer);
    free(c->cuts);
    free(c);
}

static wf_status begin(void *self, wf_error *error)
{
    wf_captured *c = self;

    wf_comm_counters *outside = c->comm->counts_too;
    wf_status status;

    wf_comm_count_too(c->comm, c->counts_too);
    status = wf_collective_begin(c->comm, &c->what, &c->pending, error);
    wf_comm_count_too(c->comm, outside);
    return status;
}

static wf_status end(void *self, wf_error *error)
{
    wf_captured *c = self;
    wf_pending *p = c->pending;

    c->pending = NULL;
    return wf_collective_end(p, error);
}

static void give_up(void *self)
{
    wf_captured *c = self;

    if (c->pending)
        end(c, NULL);
}

/* Copies the buffers, and the cuts that they have. */
static bool copy_buffers(wf_captured *c, const wf_collective *w)
{
    const size_t n = (size_t)w->n_buffers, row = (size_t)c->comm->size + 1;
    int64_t *to;

    c->buffer = calloc(n + 1, sizeof *c->buffer);
    to = c->cuts = calloc(2 * n * row + 1, sizeof *c->cuts);
    if (!c->buffer || !c->cuts)
        return false;
    for (size_t b = 0; b < n; b++) {
        const int64_t *from[] = {w->buffers[b].cuts, w->buffers[b].out_cuts};

        c->buffer[b] = w->buffers[b];
        for (int k = 0; k < 2; k++, to += row)
            if (from[k])
                memcpy(to, from[k], row * sizeof *to);
        c->buffer[b].cuts = from[0] ? to - 2 * row : NULL;
        c->buffer[b].out_cuts = from[1] ? to - row : NULL;
    }
    c->what.buffers = c->buffer;
    return true;
}

wf_status wf_captured_begin(wf_comm *comm, const wf_collective *what, wf_pending **pending,
                            wf_error *error)
{
    wf_captured *c = calloc(1, sizeof *c);
    wf_pending *p = wf_blocks_take(&comm->blocks, sizeof *p);
    wf_status status = WF_OK;

    if (c)
        *c = (wf_captured){
            .comm = comm, .what = *what, .counts_too = comm->counts_too, .refs = 1};
    if (!c || !p || !copy_buffers(c, what))
        status = wf_error_set(error, WF_ENOMEM, "no memory to capture a collective over %s",
                              comm->name);
    if (status == WF_OK) {
        c->refs++; /* taken over, also on failure */
        status = wf_graph_between(
            what->context,
            &(wf_host_work){.run = begin, .give_up = give_up, .drop = drop, .self = c}, error);
    }
    if (status == WF_OK) {
        *p = (wf_pending){.comm = comm, .what = *what, .captured = c, .bytes = sizeof *p};
        *pending = p;
        return WF_OK;
    }
    if (c)
        drop(c);
    wf_blocks_give(&comm->blocks, p, sizeof *p);
    return status;
}

wf_status wf_captured_end(wf_pending *p, wf_error *error)
{
    wf_context *ctx = p->what.context;
    wf_captured *c = p->captured;
    wf_status status = WF_OK;

    if (wf_graph_keeps(ctx)) {
        c->refs++;
        status =
            wf_graph_between(ctx, &(wf_host_work){.run = end, .drop = drop, .self = c}, error);
    } else { /* the capture has failed, or the caller is wrong */
        status = wf_error_set(error, WF_EINVAL,
                              "%s over %s was begun while a graph was captured, and is ended "
                              "after it: end it before wf_graph_end",
                              wf_collective_name(p->what.kind), p->comm->name);
    }
    drop(c);
    wf_blocks_give(&p->comm->blocks, p, p->bytes);
    return status;
}
