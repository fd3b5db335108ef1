/*
 * mesh/transport/mpi/mpi_world_internal.h - the transport between processes: each runs
 * `local_size` ranks of the world as threads, one or many. What members of one process owe each
 * other goes through the threads transport (a group that lies in one process is a group of
 * threads and nothing else); what crosses processes goes over MPI, from rank to rank.
 *
 * Every exchange begins with a head from each member to each other: the fingerprint, and the
 * data itself where it is small. Larger data is offered right after it, in messages of at most
 * CHUNK bytes, no more than WINDOW of them under way each way, and asked for when all heads
 * have come and agree: MPI moves what is offered (beyond its eager limit) only then. So a
 * mismatch is an error before results are touched, and a large exchange takes no more trips
 * than MPI's own.
 *
 * One thread at a time is in MPI: a waiting rank moves the exchanges of all on, and a sleeping
 * helper does while ranks compute (mpi_helper.c).
 */
#ifndef WF_MESH_TRANSPORT_MPI_MPI_WORLD_INTERNAL_H
#define WF_MESH_TRANSPORT_MPI_MPI_WORLD_INTERNAL_H

#include "mesh/transport/plugin_internal.h"
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    HEAD_BYTES =
        4000, /* size of a head with its data: what MPI copies at once, within a host too */
    HEAD_SLOTS = 16, /* receives that are always posted for heads */
    WINDOW = 8,
    CHUNK = 64 << 20,
    TAG_HEAD = 0,
    TAG_DATA = 1
};

typedef enum head_kind { HEAD_EXCHANGE, HEAD_FINISHED } head_kind;

typedef struct head {
    int32_t kind;
    int32_t from, to; /* ranks of the world */
    int32_t tag;      /* tag of the data that follows */
    int32_t root, unused;
    uint64_t key, sequence; /* the group, and which exchange over it */
    uint64_t members;       /* hash of the group's list */
    uint64_t block;         /* bytes for this receiver */
    uint64_t element, shape;
    int64_t buffers, bytes;
    char op[32], detail[8];
    char data[]; /* those of a block that fits */
} head;

enum { INLINE_BYTES = HEAD_BYTES - (int)sizeof(head) };

/* A head that came before its exchange was begun here. */
typedef struct early {
    struct early *next;
    _Alignas(16) char head[HEAD_BYTES];
} early;

/* Word to all other processes: a rank here has finished. */
typedef struct notice {
    struct notice *next;
    MPI_Request *request; /* [processes] */
    _Alignas(16) char head[sizeof(struct head)];
} notice;

typedef struct mpi_world {
    MPI_Comm comm;
    int processes, process, ranks, local_size;
    int *process_of; /* [ranks] which runs each */
    int first;       /* rank of this process */
    int polls;       /* before a wait begins to sleep */
    int patience;    /* polls between two that yield the core */
    void *threads;   /* the world of the ranks here */

    pthread_mutex_t lock; /* guards MPI, and what follows */
    MPI_Request slot[HEAD_SLOTS];
    char *slot_head[HEAD_SLOTS];
    int next_slot;
    int next_tag, tags;
    struct transfer *active; /* in the order of their start */
    early *early, *unused_early;
    notice *notices;
    bool *finished; /* [ranks] */
    int n_finished;
    /* until then with what is abandoned, in milliseconds; 0: nothing is */
    int64_t patient_until;
    int failed_rank; /* set before `aborted` */
    wf_error cause;
    _Atomic bool aborted;
    _Atomic bool lost; /* a process is: MPI might wait for it, and is not called any more */

    pthread_t helper;
    pthread_cond_t wake;
    bool helping, stop;
    int background; /* exchanges under way that progress while ranks compute */
} mpi_world;

typedef struct mpi_comm {
    wf_comm base;
    mpi_world *world;
    wf_comm *inner; /* the members of this process */
    int *ranks;     /* [size] of the world */
    int *local;     /* [size] the inner member; -1: in another process */
    uint64_t key, members;
    uint64_t sequence, splits;
    uint64_t *sent, *received; /* [size] messages */
    bool broken;
    wf_error mismatch;
} mpi_comm;

/* The progress of the exchange with one member of another process. */
typedef struct lane {
    int member, process;
    head *head; /* mine to it */
    const char *send;
    char *recv;
    size_t send_bytes, sent, recv_bytes, received;
    int tag; /* tag of what it sends */
    bool met;
} lane;

enum { REQUEST_HEAD, REQUEST_SEND, REQUEST_RECV, REQUESTS };

/* One exchange of one rank. */
typedef struct transfer {
    struct transfer *next;
    mpi_comm *comm;
    wf_exchange *x;
    wf_exchange inner; /* among the members of this process */
    size_t bytes;      /* size of the block that holds all this */
    uint64_t key, sequence;
    int n;                /* lanes: members of other processes */
    lane *lane;           /* [n], the next member first */
    MPI_Request *request; /* [REQUESTS * n] */
    int *done;            /* [REQUESTS * n] */
    int unmet;            /* heads to come */
    int left;             /* requests to be completed: heads, and data each way */
    int send_at, recv_at; /* lanes from here on are not begun: sends up, receives down */
    bool listed, counted;
    _Atomic bool over;
} transfer;

extern const wf_transport wf_transport_mpi;
extern wf_plugin_host wf_mpi_host;

static inline mpi_comm *wf_mpi_of(wf_comm *comm)
{
    return (mpi_comm *)comm;
}

uint64_t wf_mpi_hash(uint64_t seed, uint64_t word);

/* ---- mpi_map.c ---- */

/* Are wf_transport's calls of these names; wf_mpi_map_ranks opens the world of threads of the
   ranks here. */
wf_status wf_mpi_processes(void *world, wf_processes *processes, wf_error *error);
wf_gather_call wf_mpi_gather;
wf_status wf_mpi_map_ranks(void *world, const wf_local_ranks *ranks, wf_error *error);

/* ---- mpi_group.c: wf_transport's calls of these names ---- */

wf_status wf_mpi_attach(void *world, int rank, wf_comm **out, wf_error *error);
wf_status wf_mpi_split(wf_comm *comm, const char *name, const int *members, int n,
                       wf_comm **out, wf_error *error);
void wf_mpi_detach(wf_comm *comm);
void wf_mpi_finish(wf_comm *comm);

/* ---- mpi_heads.c, under the lock ---- */

/* Post the receives for heads; take them back. */
wf_status wf_mpi_open_slots(mpi_world *w, wf_error *error);
void wf_mpi_close_slots(mpi_world *w);

/* Take what has come, and move all exchanges on. */
void wf_mpi_progress(mpi_world *w);

/* Aborts a world that has failed, here or elsewhere: all ranks here shall return. The first
   cause stays; the host's failure detector brings it to the other processes
   (mesh/health/failure_detector_internal.h). */
void wf_mpi_abort(mpi_world *w, int failed_rank, const wf_error *cause);

void wf_mpi_send_finished(mpi_world *w, int rank);

/* Checks a call of MPI: true where it is well; else it ends the world with the text of the
   code. */
bool wf_mpi_good(mpi_world *w, int code);

/* ---- mpi_transfer.c, under the lock ---- */

/* Delivers a head to an exchange that is under way here; false: it is for none of them. */
bool wf_mpi_deliver(mpi_world *w, const head *h);
void wf_mpi_advance(transfer *t);

/* Abandons an exchange that has failed: when this returns MPI touches its memory no more. */
void wf_mpi_abandon(transfer *t);

/* ---- mpi_prepare.c ---- */

/* Makes a transfer from the group's blocks; the end of the exchange gives it back to them.
   NULL: no memory. */
transfer *wf_mpi_transfer_new(mpi_comm *c, wf_exchange *x, wf_error *error);

/* Writes the head of a lane, when the transfer has its number; under the lock. */
void wf_mpi_write_head(const transfer *t, lane *l);

/* Does the work of an exchange between threads: the inner member `share` takes its part from
   all of this process. */
wf_status wf_mpi_copy_inside(const wf_exchange *inner, int share, int64_t piece,
                             wf_error *error);

static inline size_t wf_mpi_inline_bytes(size_t bytes)
{
    return bytes <= (size_t)INLINE_BYTES ? bytes : 0;
}

/* ---- mpi_exchange.c ---- */

wf_exchange_call wf_mpi_begin, wf_mpi_wait;
wf_status wf_mpi_alive(wf_comm *comm, const char *op, uint64_t call, wf_error *error);

/* ---- mpi_helper.c ---- */

wf_status wf_mpi_helper_start(mpi_world *w, wf_error *error);

/* Notes one more exchange in the background, and wakes its thread; under the lock. */
void wf_mpi_help(mpi_world *w);
void wf_mpi_helper_stop(mpi_world *w);

#endif
