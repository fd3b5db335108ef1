/*
 * mesh/transport/nccl/nccl_watch.c - the watchdog: a thread of the process that looks, twenty
 * times a second, at what NCCL says of the ranks' communicators, at how long their launches
 * take, and at whether their world is alive at all. A GPU that waits for a peer that will never
 * come waits for ever, and so does a host that waits for that GPU: where something is wrong the
 * communicators are aborted, which ends both, and the rank's next call returns the reason.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <string.h>
#include <time.h>

enum { LOOK_NS = 50000000 };

/* Aborts all communicators of a rank as one group. To abort one gives back its memory, which
   waits for the GPU, and that may be waiting for a peer in another one. */
void wf_nccl_stop(nccl_rank *r, const wf_error *why)
{
    if (r->stopped)
        return;
    r->stopped = true;
    r->why = *why;
    ncclGroupStart();
    for (nccl_comm *c = r->comms; c; c = c->next) {
        if (c->nccl)
            ncclCommAbort(c->nccl);
        c->nccl = NULL;
    }
    ncclGroupEnd();
}

static wf_status look_at_comm(const nccl_comm *c, wf_error *error)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(c->nccl, &state);

    state = asked == ncclSuccess ? state : asked;
    if (state == ncclSuccess || state == ncclInProgress)
        return WF_OK;
    return wf_nccl_host.error_set(error, WF_ELOST,
                                  "NCCL over %s: %s; a peer is gone or a link is broken, and "
                                  "NCCL_DEBUG=WARN in the environment says more",
                                  c->base.name, ncclGetErrorString(state));
}

static wf_status look_at_slot(nccl_rank *r, launched *s, wf_error *error)
{
    cudaError_t code = cudaEventQuery(s->done);

    if (code == cudaSuccess) {
        s->busy = false;
        return WF_OK;
    }
    if (code != cudaErrorNotReady)
        return wf_nccl_cuda(code, s->op, error);
    if (wf_nccl_now() - s->since < r->world->patience)
        return WF_OK;
    return wf_nccl_host.error_set(error, WF_ETIMEOUT,
                                  "rank %d has been in %s over %s (call %llu) for %lld s, and "
                                  "its GPU waits for the others; "
                                  "WEFT_NCCL_TIMEOUT says how long it may take",
                                  r->index, s->op, s->group, (unsigned long long)s->call + 1,
                                  (long long)(r->world->patience / 1000000000));
}

/* Looks at a rank's communicators and launches, under its lock. */
static void look(nccl_rank *r)
{
    wf_error why = {WF_OK, ""};
    wf_status status = WF_OK;
    int64_t now = wf_nccl_now();

    if (!r->open || r->stopped)
        return;
    for (nccl_comm *c = r->comms; c && status == WF_OK; c = c->next) {
        if (c->inner)
            status = c->inner->transport->alive(c->inner, "computing", c->calls, &why);
        if (status == WF_OK && c->nccl)
            status = look_at_comm(c, &why);
    }
    for (int i = 0; i < SLOTS && status == WF_OK; i++)
        if (r->slot[i].busy && now > r->slot[i].since)
            status = look_at_slot(r, &r->slot[i], &why);
    if (status != WF_OK)
        wf_nccl_stop(r, &why);
}

static void *watch(void *opaque)
{
    nccl_world *w = opaque;

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->wake, &w->lock, &until);
        if (w->stop)
            break;
        pthread_mutex_unlock(&w->lock);
        for (int i = 0; i < w->local_size; i++) {
            pthread_mutex_lock(&w->rank[i].lock);
            look(&w->rank[i]);
            pthread_mutex_unlock(&w->rank[i].lock);
        }
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

wf_status wf_nccl_watch(nccl_world *w, wf_error *error)
{
    int failure = 0;

    pthread_mutex_lock(&w->lock);
    if (!w->watched)
        failure = pthread_create(&w->watchdog, NULL, watch, w);
    w->watched = w->watched || !failure;
    pthread_mutex_unlock(&w->lock);
    if (!failure)
        return WF_OK;
    return wf_nccl_host.error_set(error, WF_ENOMEM, "no thread for the watchdog of NCCL: %s",
                                  strerror(failure));
}

void wf_nccl_watch_stop(nccl_world *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->watched)
        pthread_join(w->watchdog, NULL);
}
