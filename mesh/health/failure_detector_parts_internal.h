/* mesh/health/failure_detector_parts_internal.h - what the watch and its connections share. Not installed. */
#ifndef WF_MESH_HEALTH_FAILURE_DETECTOR_PARTS_INTERNAL_H
#define WF_MESH_HEALTH_FAILURE_DETECTOR_PARTS_INTERNAL_H

#include "mesh/health/failure_detector_internal.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    WF_WATCH_UNDECIDED = -2,
    WF_WATCH_PERIOD_MS = 200,
    WF_WATCH_WHERE = 224,
    WF_WATCH_HOST = 64
};

/* Messages between process 0 and another. A cause is a verdict that is proposed. */
typedef enum wf_watch_kind {
    WATCH_HELLO,
    WATCH_WELCOME,
    WATCH_STATUS,
    WATCH_CAUSE,
    WATCH_VERDICT,
    WATCH_TOLD,
    WATCH_BYE
} wf_watch_kind;

typedef struct watch_head {
    uint32_t kind, bytes; /* of what follows */
} watch_head;

typedef struct watch_hello {
    uint64_t token;
    int32_t process, pid;
    int32_t rank, unused; /* its first */
    char host[WF_WATCH_HOST];
} watch_hello;

/* Where process 0 waits for the others. */
typedef struct watch_place {
    uint64_t token; /* not everybody who connects is one of us */
    int32_t port, unused;
    char host[WF_WATCH_HOST];
} watch_place;

/* A rank, as its process sees it. */
typedef struct watch_rank {
    int64_t quiet_ms; /* since it last began or ended something */
    int32_t rank, process;
    int32_t waits;
    int32_t finished;
    char where[WF_WATCH_WHERE];
} watch_rank;

typedef enum peer_state { PEER_HERE, PEER_LEFT, PEER_LOST } peer_state;

typedef struct watch_peer {
    int fd, process;
    peer_state state;
    watch_hello hello;
    int silent_ms; /* by this process's own clock, and only while it runs */
    size_t used;   /* of `in` */
    char *in;      /* [wf_watch_room()] */
} watch_peer;

struct wf_world_watch {
    wf_watch_options o;
    int n_peers; /* process 0: all others; else process 0 alone */
    watch_peer *peer;
    int deputy;             /* who tells where process 0 is lost, or another of its host: */
    bool with_deputy;       /* this one is there */
    watch_rank *rank;       /* [ranks] as last heard of */
    watch_rank *mine;       /* [here] the same of those here */
    uint64_t *pulse;        /* [here] */
    int64_t *since;         /* [here] when it was that, in milliseconds */
    _Atomic bool *finished; /* [here] */
    const watch_peer *lost; /* the first that is, or NULL; how, and since when */
    const char *how;
    bool ended; /* it has, and is not only silent */
    int64_t lost_at;
    _Atomic int64_t ticked; /* when the thread was last at work */
    _Atomic int64_t woken;  /* when it went on after so long that peers may have given it up */
    int wake;               /* an eventfd */
    bool proposed;          /* what happened here, to process 0 */
    int64_t doubted;        /* since when it is known, in milliseconds */
    wf_verdict crash;       /* of a rank here, from the signal that ends the process: */
    _Atomic bool crashed;   /* it is there */
    bool crash_heard;
    _Atomic bool said;     /* the process that crashes has told the user */
    _Atomic bool said_on;  /* and the others have been sent that it has */
    _Atomic int decided;   /* who tells, for a signal; UNDECIDED */
    _Atomic bool all_told; /* `told`, likewise */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t heard;
    bool has_verdict, tells, told, orphaned, closing, stop;
    wf_verdict verdict;
};

static inline size_t wf_watch_room(const wf_world_watch *w)
{
    size_t status = (size_t)w->o.here * sizeof(watch_rank);

    return sizeof(watch_head) + (status > sizeof(wf_verdict) ? status : sizeof(wf_verdict));
}

static inline bool wf_watch_is_head(const wf_world_watch *w)
{
    return w->o.process == 0;
}

/* ---- watch_judge.c, all by the watch's own thread ---- */

int64_t wf_watch_now(void); /* in milliseconds */
int wf_watch_period(const wf_world_watch *w);
bool wf_watch_has_verdict(wf_world_watch *w);
void wf_watch_decide(wf_world_watch *w, const wf_verdict *v);

/* This process was stopped for long: not its peers are lost, but they have left without it. */
bool wf_watch_given_up(const wf_world_watch *w);

/* A rank here has crashed: that goes to process 0, too. */
void wf_watch_hear_crash(wf_world_watch *w);

/* What has gone wrong here goes to process 0. */
void wf_watch_look_here(wf_world_watch *w);

void wf_watch_look_at_ranks(wf_world_watch *w, int64_t now);
void wf_watch_find_stall(wf_world_watch *w);

/* A peer is gone; when it is known where it is missed, the verdict is that. */
void wf_watch_lose(wf_world_watch *w, watch_peer *p, const char *how, bool ended);
void wf_watch_decide_loss(wf_world_watch *w);

/* ---- watch_keeper.c ---- */

/* A connection of the watch. */
void wf_watch_kept(int fd);

/* ---- watch_gather.c ---- */

/* How long processes may take to meet: as long as the start may (mesh/health/muster_internal.h, which sees more). */
int wf_watch_meet_ms(const wf_world_watch *w);

/* All others come to the door, or an error names who has not. */
wf_status wf_watch_gather(wf_world_watch *w, int door, const watch_place *place,
                          wf_error *error);

void wf_watch_send_at_once(int fd);

/* ---- watch_net.c ---- */

/* Process 0 waits for the others, which find it. */
wf_status wf_watch_meet(wf_world_watch *w, wf_error *error);

/* Never waits; what finds no room is lost, as where the peer is: false. */
bool wf_watch_send(const watch_peer *p, wf_watch_kind kind, const void *data, size_t bytes);

/* Take what has come from a peer: `take` gets each message. False: the connection is closed. */
bool wf_watch_receive(wf_world_watch *w, watch_peer *p,
                      void (*take)(wf_world_watch *w, watch_peer *p, const watch_head *h,
                                   const void *data));

#endif
