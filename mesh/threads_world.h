/*
 * mesh/threads_world.h - the shared state of the threads transport: ranks that are threads of
 * one process, the groups they form, and how one waits for another.
 *
 * All progress is counted in 64-bit words that only grow, and whoever waits, waits for a word
 * to reach a target. A group has one event word: whoever completes a stage bumps it and wakes
 * the group's sleepers. A wait is a few yielding polls, then sleep; nobody spins, for 32 ranks
 * share two cores.
 *
 * An exchange takes the next place of the group's ring and goes through three stages there:
 * POSTED (my exchange may be read), MET (optional, in the middle), LEFT (I read no more). Place
 * p serves the exchanges p, p + RING, ..; it is free for the next when all have LEFT the last.
 */
#ifndef WF_MESH_THREADS_WORLD_H
#define WF_MESH_THREADS_WORLD_H

#include "mesh/comm.h"
#include <pthread.h>
#include <stdatomic.h>

enum { RING = 32 };

enum stage { POSTED, MET, LEFT, STAGES };

typedef struct place {
    _Atomic uint64_t count[STAGES]; /* arrivals at the stage, of all members and rounds */
    _Atomic uint64_t *mark;         /* [size] how far each member is: stage_mark() */
    wf_exchange **posted;           /* [size] */
    wf_fingerprint print;           /* of who posted first, and who; under the group's lock */
    int first;
    uint64_t printed; /* of which exchange, + 1 */
} place;

/* Messages from one member to another. Message k takes ring[k % RING]; its mark is
   2 * (k / RING) when the place is free, + 1 when sent, + 2 when received. */
typedef struct message {
    _Atomic uint64_t mark;
    const void *data;
    wf_fingerprint print;
} message;

typedef struct channel {
    struct channel *next;
    int from, to;
    uint64_t sent, received; /* each used by its own end alone */
    message ring[RING];
} channel;

typedef struct group {
    struct group *next;
    struct world *world;
    const struct group *parent; /* with `ordinal`: which split of which group this is */
    uint64_t ordinal;
    char name[32];
    int size;
    int *members;
    pthread_mutex_t lock;
    _Atomic uint32_t event; /* what sleepers sleep on */
    _Atomic int sleepers;
    _Atomic int readers; /* members that may be reading a peer's memory */
    _Atomic bool broken; /* by a mismatch: `mismatch` is set, and stays */
    wf_error mismatch;
    channel *channels; /* under lock */
    place ring[RING];
} group;

/* What a rank waits for, in words that others can read and judge. */
typedef struct need {
    const group *group;
    const _Atomic uint64_t *word; /* met when *word >= target */
    uint64_t target;
    const _Atomic uint64_t *marks; /* of the members, each to reach `mark`; NULL: see peer */
    uint64_t mark;
    int peer; /* the member that is waited for where marks is NULL */
    const char *op;
    uint64_t call; /* which one over this group, or channel, from 0 */
} need;

typedef struct rank_state {
    pthread_mutex_t lock; /* of what follows, but `finished` and `seen` */
    bool waiting;
    uint64_t serial; /* counts waits */
    need need;
    uint64_t seen; /* the deadlock detector's note, under the world's lock */
    _Atomic bool finished;
} rank_state;

typedef struct world {
    int ranks, polls;
    pthread_mutex_t lock;
    group *groups; /* newest first; freed with the world */
    _Atomic int waiting, finished;
    _Atomic bool aborted;
    int culprit; /* set before `aborted` */
    wf_error cause;
    rank_state rank[];
} world;

typedef struct threads_comm {
    wf_comm base;
    group *group;
    int world_rank;
    uint64_t sequence; /* exchanges posted */
    uint64_t splits;
} threads_comm;

static inline uint64_t stage_mark(uint64_t sequence, enum stage stage)
{
    return STAGES * sequence + (uint64_t)stage + 1;
}

world *wf_threads_world_new(int ranks);
void wf_threads_world_free(world *w);

/* The group of one split (parent, ordinal) with these members, which the first of them makes.
 */
wf_status wf_threads_group(world *w, const group *parent, uint64_t ordinal, const char *name,
                           const int *members, int n, int world_rank, group **out,
                           wf_error *error);

/* The channel between two members, made on first use; NULL: out of memory. */
channel *wf_threads_channel(group *g, int from, int to);

/* Something that others may wait for has happened. */
void wf_threads_wake(group *g);

/* WF_OK, or why nothing over this group can go on; op and call for the text. */
wf_status wf_threads_check(const threads_comm *c, const char *op, uint64_t call,
                           wf_error *error);

wf_status wf_threads_wait(const threads_comm *c, const need *n, wf_error *error);

/* All members fail with this text. */
wf_status wf_threads_break(group *g, const char *text, wf_error *error);

void wf_threads_abort(world *w, int rank, const wf_error *cause);
void wf_threads_finish(world *w, int rank);

/* After a break or an abort: return when no peer is reading any more. */
void wf_threads_quiesce(group *g);

#endif
