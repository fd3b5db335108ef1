/* mesh/transport/threads/group.c - groups of threads, the slots of their exchanges and their
   channels. */
#include "core/sharing.h"
#include "mesh/transport/threads/world_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes a group's lock one that spins for a moment before it sleeps: members take it at about
   the same time and hold it briefly. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t kind;

    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

/* Adds a block of free slots. */
static bool add_slots(group *g)
{
    size_t size = (size_t)g->size, n = (size_t)g->slots;
    slot **list = realloc(g->slot, (n + BLOCK_SLOTS) * sizeof(slot *));
    slot *block = calloc(BLOCK_SLOTS, sizeof *block);
    _Atomic uint64_t *marks = calloc(BLOCK_SLOTS * size, sizeof *marks);
    _Atomic int64_t *taken = calloc(BLOCK_SLOTS * size, sizeof *taken);
    wf_exchange **posted = calloc(BLOCK_SLOTS * size, sizeof(wf_exchange *));

    g->slot = list ? list : g->slot;
    if (!list || !block || !marks || !taken || !posted) {
        free(block);
        free((void *)marks);
        free((void *)taken);
        free(posted);
        return false;
    }
    for (size_t i = 0; i < BLOCK_SLOTS; i++) {
        block[i] = (slot){
            .mark = marks + i * size, .taken = taken + i * size, .exchange = posted + i * size};
        g->slot[n + i] = &block[i];
    }
    g->slots += BLOCK_SLOTS;
    return true;
}

static void free_queues(slot *p, int size)
{
    for (int i = 0; p->queue && i < size; i++) {
        wf_threads_free_point(&p->queue[i].posted_at);
        wf_threads_free_point(&p->queue[i].moved_at);
    }
    free(p->queue);
}

/* Frees the slots of a group; the first of a block has the memory of all. */
static void free_slots(group *g)
{
    for (int i = 0; i < g->slots; i++)
        free_queues(g->slot[i], g->size);
    for (int i = 0; i < g->slots; i += BLOCK_SLOTS) {
        free((void *)g->slot[i]->mark);
        free((void *)g->slot[i]->taken);
        free(g->slot[i]->exchange);
        free(g->slot[i]);
    }
    free(g->slot);
}

/* Finds the slot of an exchange, or a free one for the newest. Members come one after the
   other, so that the search mostly ends in the slot that its number gives. */
static slot *find_slot(const group *g, uint64_t sequence, bool newest)
{
    for (int k = 0; k < g->slots; k++) {
        slot *p = g->slot[(sequence + (uint64_t)k) % (uint64_t)g->slots];

        if (newest ? atomic_load(&p->left) == p->target : p->sequence == sequence + 1)
            return p;
    }
    return NULL;
}

slot *wf_threads_slot(group *g, uint64_t sequence)
{
    bool newest = sequence == g->exchanges;
    slot *p = find_slot(g, sequence, newest);

    if (!p && newest && add_slots(g))
        p = find_slot(g, sequence, newest);
    if (!p || !newest)
        return p;
    g->exchanges++;
    p->sequence = sequence + 1;
    p->target += (uint64_t)g->size;
    p->ended = 0;
    p->latest = p->due = 0;
    atomic_store(&p->done, 0);
    atomic_store(&p->began, 0);
    for (int i = 0; i < g->size; i++)
        atomic_store(&p->taken[i], 0);
    return p;
}

static group *group_new(const char *name, const int *members, int n, bool compute_once)
{
    group *g = calloc(1, sizeof *g);
    int *copy = malloc((size_t)n * sizeof *copy);

    if (g) {
        g->size = n;
        g->sharing = n > 1 ? wf_sharing_open(n, compute_once) : NULL;
    }
    if (!g || !copy || !add_slots(g) || (n > 1 && !g->sharing)) {
        if (g) {
            wf_sharing_close(g->sharing);
            free_slots(g);
        }
        free(g);
        free(copy);
        return NULL;
    }
    memcpy(copy, members, (size_t)n * sizeof *copy);
    g->members = copy;
    snprintf(g->name, sizeof g->name, "%s", name);
    init_lock(&g->lock);
    return g;
}

void wf_threads_group_free(group *g)
{
    wf_sharing_close(g->sharing);
    while (g->channels) {
        channel *next = g->channels->next;

        for (int i = 0; i < MESSAGES; i++) {
            free(g->channels->ring[i].copy);
            wf_threads_free_point(&g->channels->ring[i].brought_at);
            wf_threads_free_point(&g->channels->ring[i].taken_at);
        }
        free(g->channels);
        g->channels = next;
    }
    pthread_mutex_destroy(&g->lock);
    free(g->members);
    free_slots(g);
    free(g);
}

/* Returns whether the group has one of these members; both lists ascend. */
static bool shares_member(const group *g, const int *members, int n)
{
    for (int i = 0, k = 0; i < g->size && k < n;) {
        if (g->members[i] == members[k])
            return true;
        if (g->members[i] < members[k])
            i++;
        else
            k++;
    }
    return false;
}

wf_status wf_threads_group(world *w, const group *parent, uint64_t ordinal, const char *name,
                           const int *members, int n, int world_rank, group **out,
                           wf_error *error)
{
    wf_status status = WF_OK;
    group *g;

    pthread_mutex_lock(&w->lock);
    for (g = w->groups; g; g = g->next)
        if (g->parent == parent && g->ordinal == ordinal && shares_member(g, members, n))
            break;
    if (g && (g->size != n || memcmp(g->members, members, (size_t)n * sizeof *members) != 0)) {
        status =
            wf_error_set(error, WF_EMISMATCH,
                         "rank %d lists %d members for group %s, another member lists %d for "
                         "group %s, or other ones; all members of a group list the same",
                         world_rank, n, name, g->size, g->name);
    } else if (!g && !(g = group_new(name, members, n, !w->own_cores))) {
        status = wf_error_set(error, WF_ENOMEM, "no memory for group %s of %d ranks", name, n);
    } else if (!g->world) {
        g->world = w;
        g->parent = parent;
        g->ordinal = ordinal;
        g->next = w->groups;
        w->groups = g;
    }
    pthread_mutex_unlock(&w->lock);
    *out = g;
    return status;
}

channel *wf_threads_channel(group *g, int from, int to)
{
    channel *c;

    pthread_mutex_lock(&g->lock);
    for (c = g->channels; c && !(c->from == from && c->to == to); c = c->next)
        ;
    if (!c && (c = calloc(1, sizeof *c))) {
        c->from = from;
        c->to = to;
        c->next = g->channels;
        g->channels = c;
    }
    pthread_mutex_unlock(&g->lock);
    return c;
}
