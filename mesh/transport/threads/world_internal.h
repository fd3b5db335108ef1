/*
 * mesh/transport/threads/world_internal.h - the shared state of the threads transport: ranks
 * that are threads of one process, the groups they form, and how one waits for another.
 *
 * All progress is counted in 64-bit words that only grow, and waiting is for a word to reach a
 * target. A group has one event word: a thread that completes something bumps it and wakes the
 * group's sleepers. A wait is a few yielding polls, then sleep; no thread spins, for 32 ranks
 * share two cores.
 *
 * An exchange has a slot of the group (struct slot), which its first poster takes. A member
 * has POSTED there when others may touch its memory; when all have, each thread that is awake
 * takes pieces of the work until none is left, its own share first; the thread that does the
 * last piece, where none has failed or was left out, marks the exchange as over and wakes the
 * others. So a member sleeps once where there are more ranks than cores, and of ranks that wait
 * for the slowest, only as many are woken to help as there are cores. A slot is free for
 * another exchange when all have LEFT it. There are BLOCK_SLOTS of them, and as many more as
 * are needed where members have more exchanges in flight.
 *
 * Hosts meet so, and no host waits for a device whose memory is moved: a member then queues the
 * pieces of its own share for its own device, after what all members had queued when they
 * posted, and what it queues from the end of the exchange on comes after all pieces (queues.c).
 * The first host to come would otherwise give all shares to one device.
 */
#ifndef WF_MESH_TRANSPORT_THREADS_WORLD_INTERNAL_H
#define WF_MESH_TRANSPORT_THREADS_WORLD_INTERNAL_H

#include "core/device.h"
#include "mesh/comm/transport_internal.h"
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCK_SLOTS = 32, MESSAGES = 32 };

/* A point in the queue of a member's device; at NULL: none was ever marked. */
typedef struct queue_point {
    wf_point *at;
    const wf_device_memory *of;
} queue_point;

/* A member's device in the exchanges of a slot. */
typedef struct member_queue {
    queue_point posted_at;  /* its own queue, when the member posted, .. */
    queue_point moved_at;   /* .. and its side queue, after the last piece that it took .. */
    _Atomic uint64_t moved; /* .. in this exchange, + 1 */
} member_queue;

typedef struct slot {
    _Atomic uint64_t posted; /* members that have, in all its exchanges .. */
    _Atomic uint64_t left;   /* .. and that have left them */
    /* the target of both, in the one that it serves; set by the first poster */
    uint64_t target;
    _Atomic uint64_t *mark; /* [size] the exchange that each member posted last, + 1 */
    wf_exchange **exchange; /* [size]; a member's is gone when the exchange is over */
    member_queue *queue;    /* [size]; NULL: it has served no devices */
    _Atomic int64_t *taken; /* [size] pieces of the member's share that are taken */
    _Atomic int64_t done;   /* pieces of all shares that are done, and done well */
    _Atomic uint64_t over;  /* exchange that is over, + 1 */
    _Atomic int64_t began;  /* time of its first piece, for a timed exchange */
    int64_t ended;          /* when the last one was done; set before `over` */
    double latest, due;     /* paced: when the last member has posted, and when it is over */
    wf_fingerprint print; /* fingerprint of who posted first, and who; under the group's lock */
    int first;
    uint64_t sequence; /* the exchange that it serves, or served last, + 1 */
} slot;

/* Messages from one member to another. Message k takes ring[k % MESSAGES]; its mark is
   2 * (k / MESSAGES) when the slot is free, + 1 when sent, + 2 when received. */
typedef struct message {
    _Atomic uint64_t mark;
    const void *data;
    queue_point brought_at, taken_at; /* devices' queues, when they had brought and taken it */
    wf_fingerprint print;
    double sent_at, received_at,
        arrives; /* paced: when its ends were posted, and when it is there */
    void *copy;  /* paced, and moving in the background: what was sent */
} message;

typedef struct channel {
    struct channel *next;
    int from, to;
    uint64_t sent, received; /* each used by its own end alone */
    _Atomic uint64_t posted; /* paced: receives, up to the last one that was posted */
    double free_at;          /* paced: when the last message has passed the link */
    message ring[MESSAGES];
} channel;

typedef struct group {
    struct group *next;
    struct world *world;
    const struct group *parent; /* it says with `ordinal` which split of which group this is */
    uint64_t ordinal;
    char name[32];
    int size;
    int *members;
    pthread_mutex_t lock;
    _Atomic uint32_t event; /* the word that sleepers wait on */
    _Atomic int sleepers;
    _Atomic int readers; /* threads that may be touching a peer's memory */
    _Atomic bool broken; /* `mismatch` is set, and stays: a mismatch, or a device that failed */
    wf_error mismatch;
    channel *channels;  /* under lock, with what follows */
    uint64_t exchanges; /* those that some member has posted */
    double lane;        /* paced: when the last one that moves in the background is over */
    slot **slot;        /* [slots], slots, in blocks of BLOCK_SLOTS that stay where they are */
    int slots;
    struct wf_sharing *sharing; /* the sharing of its members; NULL where it is one rank */
} group;

/* The condition that a rank waits for, in words that other ranks can read: it is unmet while
   word < target. The end of the wait may come later: after work that no rank has to be waited
   for. */
typedef struct need {
    const group *group;
    const _Atomic uint64_t *word;
    uint64_t target;
    const _Atomic uint64_t *end; /* the wait ends when *end >= end_target; NULL: as word */
    uint64_t end_target;
    const _Atomic uint64_t
        *marks; /* marks of the members, each to reach `mark`; NULL: see peer */
    uint64_t mark;
    int peer; /* the member that is waited for where marks is NULL */
    const char *op;
    uint64_t call; /* its number over this group, or channel, from 0 */
} need;

/* A rank's thread for exchanges that progress while the rank computes: progress.c. */
typedef struct progress {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    wf_exchange
        *first; /* the rank's exchanges in the background, in the order of their start */
    const wf_exchange *active;
    bool started, stop;
    pthread_t thread;
} progress;

typedef struct rank_state {
    pthread_mutex_t lock; /* guards what follows, but `finished`, `seen` and `progress` */
    bool waiting;
    uint64_t serial; /* counts waits */
    need need;
    uint64_t seen; /* the deadlock detector's note, under the world's lock */
    _Atomic bool finished;
    progress progress;
} rank_state;

typedef struct world {
    int ranks;
    int *number; /* [ranks] their numbers among those of all processes, ascending */
    bool own_cores;
    int cores;             /* those that this process may use */
    _Atomic uint64_t link; /* for tests: bytes per second of a rank's work; 0: no limit */
    pthread_mutex_t lock;
    group *groups; /* newest first; freed with the world */
    _Atomic int waiting, finished;
    _Atomic bool aborted;
    int failed_rank; /* set before `aborted` */
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

/* Makes a world of these ranks (ascending; NULL: 0, 1, ..), which may continue in other
   processes. */
world *wf_threads_world_new(int ranks, const int *number, bool own_cores);
void wf_threads_world_free(world *w);

/* Returns the state of a rank of this process. */
rank_state *wf_threads_rank(world *w, int world_rank);

/* Finds the group of one split (parent, ordinal) with these members; the first of them makes
   it.
*/
wf_status wf_threads_group(world *w, const group *parent, uint64_t ordinal, const char *name,
                           const int *members, int n, int world_rank, group **out,
                           wf_error *error);

void wf_threads_group_free(group *g);

/* Returns the slot of an exchange; for one that is not posted yet, a free one that is made
   ready for it. Under the group's lock; NULL: out of memory. */
slot *wf_threads_slot(group *g, uint64_t sequence);

/* Returns the channel between two members, made on first use; NULL: out of memory. */
channel *wf_threads_channel(group *g, int from, int to);

/* Something that others may wait for has happened: wake all sleepers, or some. */
void wf_threads_wake(group *g);
void wf_threads_wake_some(group *g, int most);

/* Returns WF_OK, or why nothing over this group can continue; op and call for the text. */
wf_status wf_threads_check(const threads_comm *c, const char *op, uint64_t call,
                           wf_error *error);

wf_status wf_threads_wait(const threads_comm *c, const need *n, wf_error *error);

/* queues.c: waits until devices have done what members have queued; frees the points. */
void wf_threads_wait_for_queues(group *g);
void wf_threads_free_point(queue_point *point);

/* Breaks a group: all members fail with this text. */
wf_status wf_threads_break(group *g, wf_status code, const char *text, wf_error *error);

void wf_threads_abort(world *w, int rank, const wf_error *cause);
void wf_threads_finish(world *w, int rank);

/* Waits, after a break or an abort, until no peer touches the others' memory any more, nor a
   peer's device. */
void wf_threads_quiesce(group *g);

void wf_threads_progress_open(progress *p);
void wf_threads_progress_close(progress *p); /* joins the thread */

/* Drops the rank's exchanges when the world is aborted: none is worked on any more. */
void wf_threads_progress_drop(progress *p);

/* Limits, for tests, the speed: each rank's share of work in this world takes as long as if its
   bytes went over a link of this speed, and sleeps meanwhile. To be set before the first
   exchange. */
void wf_threads_limit(wf_comm *comm, uint64_t bytes_per_second);

#endif
