/*
 * mesh/transport/threads/queues.c - exchanges of devices' memory, in the queues of the devices:
 * hosts say what comes after what, and wait for none of it.
 *
 *     a rank posts            marks a point of its own queue
 *     a member takes a piece  its side queue follows the points of all; then the piece; then it
 *                             marks a point of the side queue
 *     a rank leaves           its own queue follows the points of all who took pieces
 *
 * So a rank that continues changes nothing that others still read. Where an exchange fails,
 * hosts wait for all points instead: who fails may free its memory.
 */
#include "mesh/transport/threads/exchange_internal.h"

static wf_status mark(const wf_exchange *x, bool side_stream, queue_point *point,
                      wf_error *error)
{
    const wf_device_memory *memory = x->device->memory;
    wf_status status;

    point->of = memory;
    status = memory->mark(x->device, side_stream, &point->at, error);
    return status == WF_OK && x->timed ? memory->point_wait(point->at, error) : status;
}

wf_status wf_threads_mark(const wf_exchange *x, queue_point *point, wf_error *error)
{
    return x->device ? mark(x, false, point, error) : WF_OK;
}

wf_status wf_threads_follow_posted(const threads_comm *c, const wf_exchange *x, wf_error *error)
{
    const slot *p = x->slot;
    wf_status status = WF_OK;

    for (int i = 0; x->device && i < c->base.size && status == WF_OK; i++)
        if (wf_threads_peer(x, i)->device)
            status =
                x->device->memory->follow(x->device, true, p->queue[i].posted_at.at, error);
    return status;
}

wf_status wf_threads_mark_moved(const threads_comm *c, const wf_exchange *x, wf_error *error)
{
    slot *p = x->slot;
    wf_status status;

    if (!x->device)
        return WF_OK;
    status = mark(x, true, &p->queue[c->base.rank].moved_at, error);
    atomic_store(&p->queue[c->base.rank].moved, x->sequence + 1);
    return status;
}

wf_status wf_threads_follow(const wf_exchange *x, const queue_point *point, wf_error *error)
{
    return x->device && point->at
               ? x->device->memory->follow(x->device, false, point->at, error)
               : WF_OK;
}

static void wait_for(const queue_point *point)
{
    if (point->at)
        point->of->point_wait(point->at, NULL); /* a failure is the end of it as well */
}

wf_status wf_threads_follow_moved(const threads_comm *c, const wf_exchange *x, wf_error *error)
{
    const slot *p = x->slot;
    wf_status status = WF_OK;

    for (int i = 0; x->device && i < c->base.size; i++) {
        if (atomic_load(&p->queue[i].moved) != x->sequence + 1)
            continue;
        if (status == WF_OK)
            status = wf_threads_follow(x, &p->queue[i].moved_at, error);
        if (status != WF_OK)
            wait_for(&p->queue[i].moved_at);
    }
    return status;
}

void wf_threads_wait_for_queues(group *g)
{
    pthread_mutex_lock(&g->lock);
    for (int k = 0; k < g->slots; k++)
        for (int i = 0; g->slot[k]->queue && i < g->size; i++)
            wait_for(&g->slot[k]->queue[i].moved_at);
    for (const channel *line = g->channels; line; line = line->next)
        for (int i = 0; i < MESSAGES; i++)
            wait_for(&line->ring[i].taken_at);
    pthread_mutex_unlock(&g->lock);
}

void wf_threads_free_point(queue_point *point)
{
    if (point->at)
        point->of->point_free(point->at);
}
