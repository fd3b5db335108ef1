/*
 * mesh/comm/transport_internal.h - what a transport is: sources in mesh/transport that fill a
 * wf_transport. Transports move bytes and never add; mesh/comm/collective.c is their user.
 *
 * An exchange comes in two steps: begin() posts it and returns, wait() ends it. Exchanges begin
 * in the same order on all members; several may be open. An exchange
 * belongs to the transport from its start until wait() has returned, and after a failure too:
 * no peer touches the rank's memory once the failing call has returned.
 */
#ifndef WF_MESH_COMM_TRANSPORT_INTERNAL_H
#define WF_MESH_COMM_TRANSPORT_INTERNAL_H

#include "core/memory/blocks.h"
#include "core/pace.h"
#include "core/trace.h"
#include "mesh/comm/collective.h"

/* The properties of an exchange that all members must have alike; compared when it is
   posted. */
typedef struct wf_fingerprint {
    const char *op;     /* static string, "all_reduce" */
    const char *detail; /* "sum", "max" or "" */
    size_t element;
    int64_t buffers, bytes;
    int root;
    uint64_t shape; /* hash of counts and cuts; of a message its tag */
} wf_fingerprint;

bool wf_fingerprint_same(const wf_fingerprint *a, const wf_fingerprint *b);

/* Compares the two ends of a message, which differ in what they call. */
bool wf_fingerprint_meets(const wf_fingerprint *send, const wf_fingerprint *recv);

/* Writes the text of a mismatch: `call` (from 0) of this member, and of member `other`. */
void wf_fingerprint_differ(const wf_comm *comm, uint64_t call, const wf_fingerprint *mine,
                           int other, const wf_fingerprint *theirs, char *text, size_t room);

/* The kind of an exchange; each uses those of the fields below that name it. */
typedef enum wf_exchange_kind {
    WF_EXCHANGE_BARRIER, /* nothing */
    WF_EXCHANGE_ALL_TO_ALL,
    WF_EXCHANGE_ALL_GATHER,
    WF_EXCHANGE_BROADCAST,
    WF_EXCHANGE_SEND,
    WF_EXCHANGE_RECV,
    WF_EXCHANGE_REDUCE /* needs wf_transport.reduces */
} wf_exchange_kind;

static inline bool wf_exchange_is_message(wf_exchange_kind kind)
{
    return kind == WF_EXCHANGE_SEND || kind == WF_EXCHANGE_RECV;
}

typedef struct wf_exchange {
    wf_exchange_kind kind;
    wf_fingerprint print;
    const void *send;         /* all_to_all: blocks for members 0, 1, ..; all_gather: mine */
    const size_t *send_bytes; /* all_to_all: [size] */
    void *recv;               /* blocks of members 0, 1, .. */
    const size_t *recv_bytes; /* all_to_all, all_gather: [size] */
    size_t bytes;             /* broadcast, send, recv, reduce */
    int peer;                 /* broadcast: root; send, recv: the other end */
    /* bytes of what is reduced, gathered, .. of all members; of an all_to_all mine */
    int64_t whole;
    struct wf_device *device; /* NULL, or where send and recv point to: wf_collective.device */
    bool mine_stays;          /* all_to_all: my own block is not looked for in recv */

    /* direct: work that members share. When all have posted, any of them may do any piece of
       anybody's share, once; the exchange is over when all pieces are done. */
    wf_status (*work)(const struct wf_exchange *x, int share, int64_t piece, wf_error *error);
    const int64_t *pieces; /* [size] of each member's share, alike on all; NULL: one each */
    void *owner;           /* this member's state for work(); peers read theirs */
    bool background;       /* let it progress between its start and wait() */
    bool timed;            /* fill in what follows, where it is known; else they stay 0 */
    int64_t began, ended;  /* when the first of its data moved, and the last: wf_trace_now() */

    /* the transport's own notes */
    wf_status (*finish)(wf_comm *comm, struct wf_exchange *x, wf_error *error);
    wf_comm *comm;
    uint64_t sequence;
    void *slot;
    bool reading, queued;
    struct wf_exchange *next;
} wf_exchange;

typedef wf_status wf_exchange_call(wf_comm *comm, wf_exchange *x, wf_error *error);

/* For transports whose members can reach each other's memory in place. */
typedef struct wf_direct_access {
    wf_exchange_call *begin; /* an exchange of x->work */
    /* A member's x->owner, of the same exchange; for work() alone. */
    void *(*owner)(const wf_exchange *x, int member);
} wf_direct_access;

/* The options of opening a world. */
typedef struct wf_world_options {
    int ranks;
    bool own_cores; /* every rank runs on cores that no other rank uses */
    /* NULL, or what a library that joins processes calls when the process exits, before it ends
       its own business with the others. */
    void (*leave)(void);
} wf_world_options;

/* The processes that a world joins. */
typedef struct wf_processes {
    int n, mine;
    int host; /* the number of the first process on the same host as this one */
} wf_processes;

/* Gathers the bytes of all processes: the bytes of process p are all[begin[p]] .. all[begin[p +
   1]], `begin` has one more entry than there are processes, and *all is to be freed. */
typedef wf_status wf_gather_call(void *world, const void *mine, size_t bytes, char **all,
                                 size_t *begin, wf_error *error);

/* Which ranks run in this process, and which process runs each rank. */
typedef struct wf_local_ranks {
    int n;
    const int *rank;     /* [n], ascending */
    const int *process;  /* [ranks of the world] */
    int local_processes; /* processes of this host */
} wf_local_ranks;

typedef struct wf_transport {
    const char *name;
    bool moves;         /* false: pointers are never followed, and one rank runs alone */
    bool device_memory; /* moves memory of devices as well (wf_exchange.device) */
    /* messages under way go together, and end together (wf_comm_groups_messages) */
    bool groups_messages;

    wf_status (*open)(const wf_world_options *options, void **world, wf_error *error);
    void (*close)(void *world); /* when all handles are closed */
    /* Calls of all processes, before any rank is attached; NULL where all ranks are threads of
       one process. The processes that the world joins; all processes' bytes, NULL where
       processes cannot speak before their ranks run (each then runs one rank); and which ranks
       run where. */
    wf_status (*processes)(void *world, wf_processes *processes, wf_error *error);
    wf_gather_call *gather;
    wf_status (*map_ranks)(void *world, const wf_local_ranks *ranks, wf_error *error);
    /* NULL, or for ranks in several processes: carries process 0's data to all, before the
       ranks run; returns when all ranks of all processes have finished, or the world has
       failed. */
    wf_status (*share)(void *world, void *data, size_t bytes, wf_error *error);
    void (*settle)(void *world);
    /* Why the world has failed as far as is known here, and by which rank, or WF_OK. From any
       thread. */
    wf_status (*cause)(void *world, int *failed_rank, wf_error *error);
    /* The world has failed somewhere: all ranks here shall return. Lost: some other rank will
       not answer any more; then a cause without a text says just that, and a second call has
       the text. From any thread. */
    void (*fail)(void *world, int failed_rank, const wf_error *cause, bool lost);
    wf_status (*attach)(void *world, int rank, wf_comm **out, wf_error *error);
    wf_status (*split)(wf_comm *parent, const char *name, const int *members, int n,
                       wf_comm **out, wf_error *error);
    void (*detach)(wf_comm *comm);
    void (*finish)(wf_comm *comm); /* this rank will call no more */
    void (*abort)(wf_comm *comm, const wf_error *cause);

    wf_exchange_call *begin, *wait;
    /* It has an all-reduce of floats in device memory, in an order that is the library's: for
       groups that are not exact. A sum, or with x->print.detail "max" the greatest. */
    bool reduces;
    /* Returns why `call` of `op`, or anything else over this group, cannot continue, or WF_OK;
       never waits, and may be called from any thread. NULL: no transport is built on this
       one. */
    wf_status (*alive)(wf_comm *comm, const char *op, uint64_t call, wf_error *error);
    const wf_direct_access *direct; /* NULL where memory is not shared */
} wf_transport;

struct wf_comm_observer; /* mesh/comm/observer_internal.h */

/* The handle; a transport puts it first in a struct of its own. */
struct wf_comm {
    const wf_transport *transport;
    wf_reduce_ops reduce;
    int rank, size;
    const int *members; /* [size], ranks of the world; the transport's; NULL: 0, 1, 2, .. */
    char name[32];
    wf_comm_counters counters;
    wf_comm_counters *counts_too; /* the caller's own beside them, or NULL */
    wf_pending *in_flight;
    wf_blocks blocks;                        /* memory of collectives in flight */
    wf_trace *trace;                         /* trace of this rank, or NULL */
    wf_pace *pace;                           /* the rank's pace, or NULL */
    const wf_oplog *oplog;                   /* the rank's op log, or NULL */
    int64_t through;                         /* when the last one that was traced was over */
    const struct wf_comm_observer *observer; /* or NULL */
    void *observed;                          /* the observer's notes on this handle */
    struct wf_sharing *sharing; /* memory of the members, all threads of one process; or NULL */
    uint64_t shared;            /* memories that this member has taken of it */
};

/* Fill a new handle's common part. */
void wf_comm_init(wf_comm *comm, const wf_transport *transport, const char *name, int rank,
                  int size, const int *members);

/* Counts a collective that begins, and the bytes that this rank receives in it. */
void wf_comm_count(wf_comm *comm, wf_collective_kind kind, int64_t bytes, bool exposed);

/* Returns the text to print after "rank 3" or "rank 3 failed" of an error of that rank: its
   text begins with the rank where a context wrote it, and should not have it twice. *colon is
   ": " or "", and ", after " where the text names another rank, from which this one heard of
   it. */
const char *wf_error_after_rank(const wf_error *error, int rank, const char **colon);

/* Free what wf_comm_close finds in flight. */
void wf_pending_drop(wf_comm *comm);

#endif
