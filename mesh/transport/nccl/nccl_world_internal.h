/*
 * mesh/transport/nccl/nccl_world_internal.h - the transport between GPUs. Memory of devices
 * moves over NCCL; everything else over the transport below, which joins the same ranks on the
 * host: threads in one process, mpi between processes. It carries memory of the host, the
 * identity that NCCL's communicators are made from, word of failures, and for every exchange of
 * device memory what its members say about it, so that these disagree with an error and not
 * with a hang.
 *
 * Under torchrun nothing is below: one rank a process, which find each other by NCCL_COMM_ID.
 * There NCCL carries all of that as well (nccl_alone.c).
 *
 * A rank has one communication stream, on which all its launches over all its groups go in the
 * order of its calls. Groups that share GPUs therefore never run at once on one of them, and
 * GPUs whose ranks make their calls in one order, as all of Weft's do, cannot wait for each
 * other in a circle. Launches wait for what the device's own stream (wf_reduce_ops.queue) was
 * given before, and that stream for them where the exchange is waited for; the host waits for
 * neither.
 *
 * Communicators do not block (ncclConfig_t.blocking = 0): a rank that needs one polls, and
 * gives up with its world. A watchdog looks at all of them (nccl_watch.c).
 */
#ifndef WF_MESH_TRANSPORT_NCCL_NCCL_WORLD_INTERNAL_H
#define WF_MESH_TRANSPORT_NCCL_NCCL_WORLD_INTERNAL_H

#include "core/device.h"
#include "mesh/transport/plugin_internal.h"
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 64,      /* launches of a rank that its GPU is not through with */
    BLOCK_SLOTS = 32 /* slots of a block, one bit each: a slot has the heads of one exchange */
};

/* One of them, for the watchdog. */
typedef struct launched {
    cudaEvent_t done;
    bool busy;
    int64_t since; /* wf_nccl_now() */
    const char *op;
    uint64_t call;
    char group[32];
} launched;

typedef struct nccl_rank {
    struct nccl_world *world;
    int index;            /* in the world of ranks */
    pthread_mutex_t lock; /* guards what follows, between the rank and the watchdog */
    bool open;
    int ordinal;         /* number of its device */
    cudaStream_t stream; /* for communication */
    cudaEvent_t ready;   /* the data to send are computed */
    launched slot[SLOTS];
    int next_slot;
    struct nccl_comm *comms; /* those with a communicator, and that were detached too */
    bool stopped; /* its communicators are gone; `why` says why, where it is known here */
    wf_error why;
} nccl_rank;

typedef struct nccl_world {
    const wf_transport *below; /* NULL: nothing */
    void *below_world;
    int ranks, local_size;
    int64_t patience; /* nanoseconds that a launch, or a communicator in the making, may take */
    size_t window;    /* bytes of a group's window; 0: there are none */
    nccl_rank *rank;  /* [local_size] */
    pthread_t watchdog;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    bool watched, stop;
} nccl_world;

typedef struct nccl_comm {
    wf_comm base;
    nccl_rank *rank;
    wf_comm *inner; /* the same group below; NULL: nothing is below */
    /* under the rank's lock; NULL: not made yet, not needed (one member), or aborted */
    ncclComm_t nccl;
    bool made;                    /* it was asked for */
    void *window, *window_memory; /* ncclWindow_t, and what it shows; NULL: there is none */
    bool window_asked;
    struct nccl_comm *next;
    _Atomic uint64_t calls;          /* the rank's alone to count */
    struct transfer *posted, **last; /* messages that are not launched yet */
    /* without a control transport: the blocks that were needed */
    struct heads *heads;
    int members[];
} nccl_comm;

/* The head that a member sends to another without a control transport. */
typedef struct head {
    uint64_t element, shape;
    uint64_t block; /* bytes for this receiver */
    int64_t buffers, bytes;
    int64_t root;
    char op[40], detail[8];
} head;

/* A block of heads for BLOCK_SLOTS exchanges: those to all members, then those from all. */
typedef struct heads {
    struct heads *next;
    head *near, *far; /* [BLOCK_SLOTS][2 * size], pinned and on the device */
    uint32_t taken;
} heads;

/* One exchange of one rank. */
typedef struct transfer {
    struct transfer *next; /* in posted */
    nccl_comm *comm;
    wf_exchange *x;
    wf_exchange moves;   /* as NCCL sees it: x, or its copies in device memory */
    wf_exchange control; /* the control transport's exchange */
    size_t bytes;        /* size of the block that holds all this */
    uint64_t call;
    uint64_t *says, *hears; /* all_to_all: [size] bytes for, and of, each member */
    size_t *words;          /* [size] sizes of those */
    size_t part;            /* bytes of each part, through the group's window; 0: not there */
    launched *data;         /* its launch; NULL: not yet, or there is nothing to move */
    launched *said;         /* without a control transport: that of the heads */
    heads *heads;           /* the block with its heads, NULL: there are none, .. */
    int slot;               /* .. and their slot there */
    char *staged;           /* copies of the host's memory on the device: sent, then received */
} transfer;

extern wf_plugin_host wf_nccl_host;
extern const wf_transport wf_transport_nccl;

static inline nccl_comm *wf_nccl_of(wf_comm *comm)
{
    return (nccl_comm *)comm;
}

int64_t wf_nccl_now(void);
void wf_nccl_nap(int *naps); /* longer and longer, up to half a millisecond */

/* Set an error that names the call of CUDA or NCCL that failed. */
wf_status wf_nccl_cuda(cudaError_t code, const char *what, wf_error *error);
wf_status wf_nccl_good(const nccl_comm *c, ncclResult_t code, const char *what,
                       wf_error *error);

/* ---- nccl_world.c ---- */

/* Returns why nothing over this group can continue, or WF_OK. */
wf_status wf_nccl_check(const nccl_comm *c, const char *op, uint64_t call, wf_error *error);

/* ---- nccl_group.c ---- */

/* Opens the rank's stream and events, on the device that its thread uses. */
wf_status wf_nccl_open_rank(nccl_rank *r, wf_error *error);
void wf_nccl_close_rank(nccl_rank *r);

/* Make the communicator of the world, and of a group that all members of `parent` split off
   it. */
wf_status wf_nccl_make(nccl_comm *c, wf_error *error);
wf_status wf_nccl_split(nccl_comm *parent, nccl_comm *c, int color, wf_error *error);

/* wf_transport's calls of these names. */
wf_status wf_nccl_group_attach(void *world, int rank, wf_comm **out, wf_error *error);
wf_status wf_nccl_group_split(wf_comm *comm, const char *name, const int *members, int n,
                              wf_comm **out, wf_error *error);
void wf_nccl_group_detach(wf_comm *comm);
void wf_nccl_group_finish(wf_comm *comm);

/* Wait until what the group's communicator was asked for is done. */
wf_status wf_nccl_settle(nccl_comm *c, const char *op, uint64_t call, wf_error *error);

/* ---- nccl_launch.c ---- */

/* Put a list of transfers of one group on the stream, as one launch. */
wf_status wf_nccl_launch(transfer *list, wf_error *error);

/* Waits until the GPU is through with a launch. */
wf_status wf_nccl_sleep(const transfer *t, const launched *s, wf_error *error);

/* Returns blocks of an exchange, as this rank sees them. */
size_t wf_nccl_send_bytes(const transfer *t, int member);
size_t wf_nccl_recv_bytes(const transfer *t, int member);
size_t wf_nccl_all_bytes(const transfer *t, size_t (*bytes)(const transfer *t, int member));

/* ---- nccl_window.c ---- */

/* Finds out whether groups have windows; WF_EINVAL, WF_EUNSUPPORTED. */
wf_status wf_nccl_window_open(nccl_world *w, wf_error *error);

/* Has a communicator move by copy engines where it can, if there are windows. */
void wf_nccl_window_config(const nccl_world *w, ncclConfig_t *config);

/* Brings what is sent into the group's window, where an exchange goes through it: t->moves are
   there then; and what has come out of it. On the rank's stream, before and after the call. */
wf_status wf_nccl_window_enter(transfer *t, wf_error *error);
wf_status wf_nccl_window_leave(const transfer *t, wf_error *error);
ncclResult_t wf_nccl_window_all_to_all(const transfer *t, cudaStream_t stream);

/* Ends a group's window, before its communicator; frees its memory, after it. */
void wf_nccl_window_close(nccl_comm *c);
void wf_nccl_window_free(nccl_comm *c);

/* ---- nccl_watch.c ---- */

wf_status wf_nccl_watch(nccl_world *w, wf_error *error);
void wf_nccl_watch_stop(nccl_world *w);

/* Ends the rank's communicators, and with them what its GPU does for them; under its lock. */
void wf_nccl_stop(nccl_rank *r, const wf_error *why);

/* ---- nccl_alone.c: where nothing is below ---- */

/* Write the heads, and bring the host's memory to the device. */
wf_status wf_nccl_alone_begin(transfer *t, wf_error *error);

/* Put on the stream: what goes before a group of NCCL's calls that sends the heads, the calls,
   and what goes after them. */
ncclResult_t wf_nccl_alone_bring(const transfer *t, cudaStream_t stream);
ncclResult_t wf_nccl_alone_heads(const transfer *t, cudaStream_t stream);
ncclResult_t wf_nccl_alone_fetch(const transfer *t, cudaStream_t stream);

/* Compare the heads that have come; bring what was received to the host's memory; let go. */
wf_status wf_nccl_alone_compare(transfer *t, wf_error *error);
wf_status wf_nccl_alone_end(transfer *t, wf_error *error);
void wf_nccl_alone_drop(transfer *t);

/* Opens room for the group's heads. */
wf_status wf_nccl_alone_open(nccl_comm *c, wf_error *error);
void wf_nccl_alone_close(nccl_comm *c);

/* ---- nccl_exchange.c ---- */

wf_exchange_call wf_nccl_begin, wf_nccl_wait;

#endif
