/*
 * mesh/transport/threads/progress.c - exchanges that progress while their ranks compute. A rank
 * that begins one gets a thread, which sleeps until all members have posted, then takes pieces
 * of the work like anybody else. It is started by the first such exchange of a rank and joined
 * with the world; it touches no context, only what was posted.
 *
 * A member that posts early wakes no other: the last one wakes its own thread, and as many
 * of the others' as there are cores.
 */
#include "core/thread.h"
#include "mesh/transport/threads/exchange_internal.h"

void wf_threads_progress_open(progress *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
}

void wf_threads_progress_close(progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    if (p->started)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->idle);
    pthread_mutex_destroy(&p->lock);
}

/* Take x out of the list; under the lock. */
static void unlink_exchange(progress *p, wf_exchange *x)
{
    wf_exchange **link = &p->first;

    while (*link != x)
        link = &(*link)->next;
    *link = x->next;
    x->queued = false;
}

/* Returns the oldest exchange that all have posted, now active; NULL: none. Under the lock. */
static wf_exchange *next_ready(progress *p)
{
    wf_exchange *x = p->first;

    while (x && !wf_threads_all_posted(x))
        x = x->next;
    if (x)
        unlink_exchange(p, x);
    p->active = x;
    return x;
}

static void *run(void *arg)
{
    progress *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        wf_exchange *x = next_ready(p);

        if (!x) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        wf_threads_work(wf_threads_of(x->comm), x, NULL); /* a failure meets the rank as well */
        pthread_mutex_lock(&p->lock);
        p->active = NULL;
        pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Starts the thread, which receives no signals. Without one the rank does the work itself, when
   it ends the exchange. */
static void start(progress *p)
{
    p->started = wf_thread_start(&p->thread, NULL, run, p) == 0;
}

static progress *progress_of(const group *g, int member)
{
    return &wf_threads_rank(g->world, g->members[member])->progress;
}

void wf_threads_leave_to_progress(threads_comm *c, wf_exchange *x)
{
    progress *p = progress_of(c->group, c->base.rank);
    wf_exchange **link = &p->first;

    pthread_mutex_lock(&p->lock);
    if (!p->started)
        start(p);
    while (*link)
        link = &(*link)->next;
    *link = x;
    x->next = NULL;
    x->queued = true;
    pthread_mutex_unlock(&p->lock);
}

void wf_threads_take_back(threads_comm *c, wf_exchange *x)
{
    progress *p = progress_of(c->group, c->base.rank);

    if (!x->background)
        return;
    pthread_mutex_lock(&p->lock);
    while (p->active == x)
        pthread_cond_wait(&p->idle, &p->lock);
    if (x->queued)
        unlink_exchange(p, x);
    pthread_mutex_unlock(&p->lock);
}

void wf_threads_progress_drop(progress *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->first)
        unlink_exchange(p, p->first);
    while (p->active)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void wf_threads_wake_for(group *g, int member, int most)
{
    for (int k = 0; k < g->size && most > 0; k++) {
        progress *p = progress_of(g, (member + k) % g->size);

        pthread_mutex_lock(&p->lock);
        if (p->first) {
            pthread_cond_signal(&p->wake);
            most--;
        }
        pthread_mutex_unlock(&p->lock);
    }
}

void wf_threads_limit(wf_comm *comm, uint64_t bytes_per_second)
{
    atomic_store(&wf_threads_of(comm)->group->world->link, bytes_per_second);
}
