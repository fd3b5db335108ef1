/* mesh/transport/threads/world.c - worlds of threads, and waiting in their groups: see the
   header. */
#include "mesh/transport/threads/world_internal.h"
#include "core/futex.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { YIELDS = 8, SPINS = 400, NAP_MS = 500, LISTED = 8 };

static int count_cores(void)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

world *wf_threads_world_new(int ranks, const int *number, bool own_cores)
{
    world *w = calloc(1, sizeof *w + (size_t)ranks * sizeof w->rank[0]);

    if (w)
        w->number = malloc((size_t)ranks * sizeof *w->number);
    if (!w || !w->number) {
        free(w);
        return NULL;
    }
    for (int i = 0; i < ranks; i++)
        w->number[i] = number ? number[i] : i;
    w->ranks = ranks;
    w->cores = count_cores();
    w->own_cores = own_cores;
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < ranks; i++) {
        pthread_mutex_init(&w->rank[i].lock, NULL);
        wf_threads_progress_open(&w->rank[i].progress);
    }
    return w;
}

rank_state *wf_threads_rank(world *w, int world_rank)
{
    int low = 0, high = w->ranks - 1;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (w->number[middle] < world_rank)
            low = middle + 1;
        else
            high = middle;
    }
    return &w->rank[low];
}

void wf_threads_world_free(world *w)
{
    for (int i = 0; i < w->ranks; i++)
        wf_threads_progress_close(&w->rank[i].progress);
    while (w->groups) {
        group *next = w->groups->next;

        wf_threads_group_free(w->groups);
        w->groups = next;
    }
    for (int i = 0; i < w->ranks; i++)
        pthread_mutex_destroy(&w->rank[i].lock);
    pthread_mutex_destroy(&w->lock);
    free(w->number);
    free(w);
}

/* Wakes some sleepers. A sleeper reads the event, then what it waits for, then adds itself to
   sleepers, then sleeps if the event is unchanged: between the two sides nothing is lost. */
void wf_threads_wake_some(group *g, int most)
{
    atomic_fetch_add(&g->event, 1);
    if (atomic_load(&g->sleepers))
        wf_futex_wake(&g->event, most);
}

void wf_threads_wake(group *g)
{
    wf_threads_wake_some(g, INT32_MAX);
}

static void wake_world(world *w)
{
    pthread_mutex_lock(&w->lock);
    for (group *g = w->groups; g; g = g->next)
        wf_threads_wake(g);
    pthread_mutex_unlock(&w->lock);
}

void wf_threads_abort(world *w, int rank, const wf_error *cause)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->aborted)) {
        w->failed_rank = rank;
        w->cause = *cause;
        atomic_store(&w->aborted, true);
    }
    pthread_mutex_unlock(&w->lock);
    wake_world(w);
}

void wf_threads_finish(world *w, int rank)
{
    atomic_store(&wf_threads_rank(w, rank)->finished, true);
    atomic_fetch_add(&w->finished, 1);
    wake_world(w);
}

wf_status wf_threads_break(group *g, wf_status code, const char *text, wf_error *error)
{
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->broken)) {
        wf_error_set(&g->mismatch, code, "%s", text);
        atomic_store(&g->broken, true);
    }
    pthread_mutex_unlock(&g->lock);
    wf_threads_wake(g);
    return wf_error_set(error, g->mismatch.code, "%s", g->mismatch.text);
}

void wf_threads_quiesce(group *g)
{
    /* They do a piece of work, or were just woken: this is short, and the end of the world. */
    while (atomic_load(&g->readers))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    wf_threads_wait_for_queues(g);
}

wf_status wf_threads_check(const threads_comm *c, const char *op, uint64_t call,
                           wf_error *error)
{
    const world *w = c->group->world;
    const char *colon, *text;

    if (atomic_load(&c->group->broken))
        return wf_error_set(error, c->group->mismatch.code, "%s", c->group->mismatch.text);
    if (!atomic_load(&w->aborted))
        return WF_OK;
    text = wf_error_after_rank(&w->cause, w->failed_rank, &colon);
    return wf_error_set(error, WF_ELOST,
                        "rank %d failed%s%.1200s; rank %d was in %s over %s (call %llu)",
                        w->failed_rank, colon, text, c->world_rank, op, c->group->name,
                        (unsigned long long)call + 1);
}

static bool absent(const need *n, int member)
{
    if (n->marks)
        return atomic_load(&n->marks[member]) < n->mark;
    return member == n->peer && atomic_load(n->word) < n->target;
}

/* Fails a wait for a member that has returned from its work, and so will never come. */
static wf_status check_finished(const threads_comm *c, const need *n, wf_error *error)
{
    const group *g = c->group;
    world *w = g->world;
    wf_error cause = {WF_OK, ""};

    if (atomic_load(&w->finished) == 0)
        return WF_OK;
    for (int i = 0; i < g->size; i++)
        if (atomic_load(&wf_threads_rank(w, g->members[i])->finished) && absent(n, i)) {
            wf_error_set(&cause, WF_ELOST,
                         "rank %d has finished, rank %d waits for it in %s over %s (call %llu)",
                         g->members[i], c->world_rank, n->op, g->name,
                         (unsigned long long)n->call + 1);
            wf_threads_abort(w, c->world_rank, &cause);
            return wf_error_set(error, cause.code, "%s", cause.text);
        }
    return WF_OK;
}

/*
 * True where every unfinished rank waits for something that has not come. On the second pass
 * also: in the same wait as on the first. Words only grow, so both passes true means that at
 * one instant between them all were waiting in vain: a deadlock, whatever the timing.
 */
static bool all_stuck(world *w, bool second)
{
    for (int i = 0; i < w->ranks; i++) {
        rank_state *r = &w->rank[i];
        uint64_t now = 0;

        if (!atomic_load(&r->finished)) {
            bool stuck;

            pthread_mutex_lock(&r->lock);
            stuck = r->waiting && atomic_load(r->need.word) < r->need.target;
            now = r->serial;
            pthread_mutex_unlock(&r->lock);
            if (!stuck)
                return false;
        }
        if (second && r->seen != now)
            return false;
        r->seen = now;
    }
    return true;
}

static void describe_deadlock(world *w, wf_error *cause)
{
    char text[WF_ERROR_TEXT];
    size_t used = 0;
    int listed = 0, waiting = 0;

    for (int i = 0; i < w->ranks; i++) {
        rank_state *r = &w->rank[i];
        need n;

        if (atomic_load(&r->finished))
            continue;
        if (++waiting > LISTED)
            continue;
        pthread_mutex_lock(&r->lock);
        n = r->need;
        pthread_mutex_unlock(&r->lock);
        for (int m = 0; m < n.group->size; m++)
            if (absent(&n, m)) {
                used +=
                    (size_t)snprintf(text + used, sizeof text - used,
                                     "%srank %d waits for rank %d in %s over %s (call %llu)",
                                     listed++ ? "; " : "", w->number[i], n.group->members[m],
                                     n.op, n.group->name, (unsigned long long)n.call + 1);
                break;
            }
    }
    if (waiting > LISTED)
        snprintf(text + used, sizeof text - used, "; and %d more", waiting - LISTED);
    wf_error_set(cause, WF_ETIMEOUT, "deadlock, every rank waits for another: %s", text);
}

static wf_status check_deadlock(const threads_comm *c, wf_error *error)
{
    world *w = c->group->world;
    wf_error cause = {WF_OK, ""};
    bool stuck;

    if (atomic_load(&w->waiting) + atomic_load(&w->finished) < w->ranks)
        return WF_OK;
    pthread_mutex_lock(&w->lock);
    stuck = !atomic_load(&w->aborted) && all_stuck(w, false) && all_stuck(w, true);
    if (stuck)
        describe_deadlock(w, &cause);
    pthread_mutex_unlock(&w->lock);
    if (!stuck)
        return WF_OK;
    wf_threads_abort(w, c->world_rank, &cause);
    return wf_error_set(error, cause.code, "%s", cause.text);
}

static void show_need(const threads_comm *c, const need *n)
{
    world *w = c->group->world;
    rank_state *r = wf_threads_rank(w, c->world_rank);

    pthread_mutex_lock(&r->lock);
    r->waiting = true;
    r->serial++;
    r->need = *n;
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_add(&w->waiting, 1);
}

static void hide_need(const threads_comm *c)
{
    world *w = c->group->world;
    rank_state *r = wf_threads_rank(w, c->world_rank);

    pthread_mutex_lock(&r->lock);
    r->waiting = false;
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_sub(&w->waiting, 1);
}

/* Returns whether to poll once more. A yield is worth a try where another rank may run on this
   core meanwhile; a rank that has its core for itself looks for some microseconds, which is
   cheaper than sleep and wake. */
static bool poll_more(const world *w, int polls)
{
    if (polls >= (w->own_cores ? SPINS : YIELDS))
        return false;
    if (w->own_cores)
        wf_cpu_relax();
    else
        sched_yield();
    return true;
}

static bool is_there(const need *n)
{
    return n->end ? atomic_load(n->end) >= n->end_target : atomic_load(n->word) >= n->target;
}

/* Checks that the world is alive. The rank that this one waits for may have ended the world a
   moment ago: then this rank's wait is over too, and an exchange ends well for all members, or
   for none. */
static wf_status check_world(const threads_comm *c, const need *n, wf_error *error)
{
    wf_error why = {WF_OK, ""};

    if ((wf_threads_check(c, n->op, n->call, &why) == WF_OK &&
         check_finished(c, n, &why) == WF_OK) ||
        is_there(n))
        return WF_OK;
    return wf_error_set(error, why.code, "%s", why.text);
}

wf_status wf_threads_wait(const threads_comm *c, const need *n, wf_error *error)
{
    group *g = c->group;
    wf_status status = WF_OK;
    bool shown = false;

    for (int polls = 0;; polls++) {
        uint32_t event = atomic_load(&g->event);
        bool late;

        if (is_there(n))
            break;
        status = check_world(c, n, error);
        if (status != WF_OK)
            break;
        if (poll_more(g->world, polls))
            continue;
        if (!shown)
            show_need(c, n);
        shown = true;
        atomic_fetch_add(&g->sleepers, 1);
        late = wf_futex_wait(&g->event, event, NAP_MS);
        atomic_fetch_sub(&g->sleepers, 1);
        if (late)
            status = check_deadlock(c, error);
        if (status != WF_OK)
            break;
    }
    if (shown)
        hide_need(c);
    return status;
}
