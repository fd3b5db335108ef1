/* core/sharing.c - memory that ranks of a process share. */
#include "core/context_internal.h"
#include "core/sharing_internal.h"
#include <stdlib.h>

wf_sharing *wf_sharing_open(int members, bool compute_once)
{
    wf_sharing *s = calloc(1, sizeof *s);
    wf_allocator host = wf_host_allocator();
    wf_error error = {WF_OK, ""};

    if (s)
        s->pool = wf_pool_open(&host, 0, &error);
    if (!s || !s->pool) {
        free(s);
        return NULL;
    }
    s->members = members;
    s->compute_once = compute_once;
    s->refs = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->computed, NULL);
    return s;
}

/* Drops a reference; under the lock, which is freed with the last one. */
static void leave(wf_sharing *s)
{
    bool last = --s->refs == 0;

    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    wf_pool_close(s->pool);
    pthread_cond_destroy(&s->computed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void wf_sharing_close(wf_sharing *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    while (s->open) { /* members that do not come any more */
        wf_shared *first = s->open;

        s->open = first->next;
        wf_shared_drop(first, first->to_come);
    }
    leave(s);
}

wf_shared *wf_shared_new(wf_sharing *s, size_t bytes, int parts, wf_error *error)
{
    wf_shared *shared = wf_pool_take(s->pool, sizeof *shared, WF_MEMORY_WORKSPACE, error);

    if (!shared)
        return NULL;
    *shared = (wf_shared){.in = s, .serial = ++s->serial, .refs = parts, .bytes = bytes};
    shared->data = wf_pool_take(s->pool, bytes, WF_MEMORY_ACTIVATION, error);
    if (!shared->data) {
        wf_pool_give(s->pool, shared, sizeof *shared, WF_MEMORY_WORKSPACE);
        return NULL;
    }
    s->refs++;
    return shared;
}

void wf_shared_drop(wf_shared *shared, int parts)
{
    wf_sharing *s = shared->in;

    shared->refs -= parts;
    if (shared->refs > 0)
        return;
    while (shared->results)
        wf_result_drop(shared->results);
    wf_pool_give(s->pool, shared->data, shared->bytes, WF_MEMORY_ACTIVATION);
    wf_pool_give(s->pool, shared, sizeof *shared, WF_MEMORY_WORKSPACE);
    s->refs--; /* not the last: the lock's holder has one */
}

void wf_shared_release(wf_shared *shared)
{
    wf_sharing *s = shared ? shared->in : NULL;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->refs++;
    wf_shared_drop(shared, 1);
    leave(s);
}

void *wf_shared_data(const wf_shared *shared)
{
    return shared->data;
}

wf_status wf_sharing_take(wf_sharing *s, uint64_t number, size_t bytes, wf_shared **shared,
                          wf_error *error)
{
    wf_status status = WF_OK;
    wf_shared **link, *found;

    pthread_mutex_lock(&s->lock);
    for (link = &s->open; *link && (*link)->number != number; link = &(*link)->next)
        ;
    found = *link;
    if (!found && (found = wf_shared_new(s, bytes, s->members, error))) {
        found->number = number;
        found->to_come = s->members;
        *link = found;
    } else if (!found) {
        status = error->code;
    }
    if (found && found->bytes != bytes)
        found = NULL;
    if (found && --found->to_come == 0)
        *link = found->next;
    pthread_mutex_unlock(&s->lock);
    *shared = found;
    return status;
}
