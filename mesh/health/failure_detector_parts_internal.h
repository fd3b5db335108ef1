/*
 * mesh/health/failure_detector_parts_internal.h - what the failure detector and its connections
 * share. Not installed.
 */
#ifndef WF_MESH_HEALTH_FAILURE_DETECTOR_PARTS_INTERNAL_H
#define WF_MESH_HEALTH_FAILURE_DETECTOR_PARTS_INTERNAL_H

#include "mesh/health/failure_detector_internal.h"
#include "mesh/health/private_names_internal.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    WF_DETECTOR_UNDECIDED = -2,
    WF_DETECTOR_PERIOD_MS = 200,
    WF_DETECTOR_WHERE = 320,
    WF_DETECTOR_HOST = 64
};

/* Messages between process 0 and another. DETECTOR_CAUSE proposes a failure cause,
   DETECTOR_FAILURE announces the decided one. */
typedef enum wf_detector_kind {
    DETECTOR_HELLO,
    DETECTOR_WELCOME,
    DETECTOR_STATUS,
    DETECTOR_CAUSE,
    DETECTOR_FAILURE,
    DETECTOR_REPORTED,
    DETECTOR_BYE
} wf_detector_kind;

typedef struct detector_head {
    uint32_t kind, bytes; /* kind: wf_detector_kind; bytes: those that follow */
} detector_head;

typedef struct detector_hello {
    uint64_t token;
    int32_t process, pid;
    int32_t rank, unused; /* rank: its first */
    char host[WF_DETECTOR_HOST];
} detector_hello;

/* The address at which process 0 waits for the others. */
typedef struct detector_address {
    uint64_t token; /* proves that a connection is of this job */
    int32_t port, unused;
    char name[WF_NAME_BYTES]; /* on one host, instead of the port; "": there is none */
    char host[WF_DETECTOR_HOST];
} detector_address;

/* A rank, as its process sees it. */
typedef struct detector_rank {
    int64_t quiet_ms; /* since it last began or ended something */
    int32_t rank, process;
    int32_t waits;
    int32_t finished;
    char where[WF_DETECTOR_WHERE];
} detector_rank;

typedef enum peer_state { PEER_HERE, PEER_LEFT, PEER_LOST } peer_state;

typedef struct detector_peer {
    int fd, process;
    peer_state state;
    detector_hello hello;
    int silent_ms; /* by this process's own clock, and only while it runs */
    size_t used;   /* bytes in `in` */
    char *in;      /* [wf_detector_room()] */
} detector_peer;

struct wf_detector {
    wf_detector_options o;
    int n_peers; /* process 0: all others; else process 0 alone */
    detector_peer *peer;
    int backup;             /* who reports where process 0 is lost, or another of its host: */
    bool with_backup;       /* this one is there */
    detector_rank *rank;    /* [ranks] as last heard of */
    detector_rank *mine;    /* [local_size] the same of those here */
    uint64_t *pulse;        /* [local_size] */
    _Atomic bool *finished; /* [local_size] */
    int n_finished;         /* ranks, at process 0 */
    int64_t finished_ms;    /* since one finished, in milliseconds */
    const detector_peer *lost; /* the first that is, or NULL; how, and since when */
    const char *how;
    bool ended; /* it has, and is not only silent */
    int64_t lost_at;
    _Atomic int64_t ticked; /* when the thread was last at work */
    /* when it continued after a pause so long that peers may have given it up */
    _Atomic int64_t woken;
    int wake;             /* an eventfd */
    bool proposed;        /* a failure here was sent to process 0 */
    int64_t doubted;      /* since when it is known, in milliseconds */
    wf_failure crash;     /* crash of a rank here, from the signal that ends the process: */
    _Atomic bool crashed; /* it is there */
    bool crash_heard;
    _Atomic bool notified;  /* the process that crashes has notified the user */
    _Atomic bool passed_on; /* a process has, and the others have been sent that */
    _Atomic int decided;    /* who reports, for a signal; UNDECIDED */
    _Atomic bool orphaned;  /* who reports, or says who does, is gone */
    _Atomic bool stop;      /* the thread has ended */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t heard;
    bool has_failure, reports, reported, closing;
    wf_failure failure;
};

static inline size_t wf_detector_room(const wf_detector *d)
{
    size_t status = (size_t)d->o.local_size * sizeof(detector_rank);

    return sizeof(detector_head) + (status > sizeof(wf_failure) ? status : sizeof(wf_failure));
}

static inline bool wf_detector_is_head(const wf_detector *d)
{
    return d->o.process == 0;
}

/* ---- failure.c, all by the failure detector's own thread ---- */

int64_t wf_detector_now(void); /* in milliseconds */
int wf_detector_period(const wf_detector *d);
bool wf_detector_has_failure(wf_detector *d);
void wf_detector_decide(wf_detector *d, const wf_failure *v);

/* Returns true where this process was stopped for long: its peers are not lost, but have left
   without it. */
bool wf_detector_given_up(const wf_detector *d);

/* Notes that a rank here has crashed, and sends that to process 0, too. */
void wf_detector_hear_crash(wf_detector *d);

/* Sends a failure among the ranks here to process 0. */
void wf_detector_look_here(wf_detector *d);

/* Looks at what the ranks here are at; `passed` milliseconds since the last look count as time
   in which they ran. */
void wf_detector_look_at_ranks(wf_detector *d, int passed);
void wf_detector_find_stall(wf_detector *d, int passed);

/* Notes that a peer is gone; once the rank that misses it is known, that becomes the failure
   cause. */
void wf_detector_lose(wf_detector *d, detector_peer *p, const char *how, bool ended);
void wf_detector_decide_loss(wf_detector *d);

/* ---- fd_holder.c ---- */

/* Adds a connection of the failure detector; beyond the number that wf_fd_holder_start was
   given none is added. */
void wf_fd_holder_add(int fd);

/* Takes back a connection that ends before the process does. */
void wf_fd_holder_drop(int fd);

/* Keeps a locked file open after the death of this process, as connections are. Also from a
   signal. */
void wf_fd_holder_keep(int lock);

/* ---- rendezvous.c ---- */

/* Returns the milliseconds that processes may take to meet: as long as the start may
   (mesh/health/process_registry_internal.h, which sees more). */
int wf_detector_meet_ms(const wf_detector *d);

/* Gathers all others at the listening socket `listener`, or an error names those that have not
   come. */
wf_status wf_detector_gather(wf_detector *d, int listener, const detector_address *address,
                             wf_error *error);

/* Sends at once, and gives the socket as much buffer as the system allows. */
void wf_detector_set_socket(int fd);

/* ---- meet.c ---- */

/* Process 0 waits for the others, which find it. */
wf_status wf_detector_meet(wf_detector *d, wf_error *error);

/* ---- heartbeat.c ---- */

/* Never waits; what finds no room is lost, as where the peer is: false. */
bool wf_detector_send(const detector_peer *p, wf_detector_kind kind, const void *data,
                      size_t bytes);

/* Take what has come from a peer: `take` gets each message. False: the connection is closed. */
bool wf_detector_receive(wf_detector *d, detector_peer *p,
                         void (*take)(wf_detector *d, detector_peer *p, const detector_head *h,
                                      const void *data));

/* ---- crash_notice.c ---- */

/* Reports a crash of this process to `d` from now on; NULL: to none, if it was `old` until
   now. */
void wf_detector_for_crashes(wf_detector *old, wf_detector *d);

#endif
