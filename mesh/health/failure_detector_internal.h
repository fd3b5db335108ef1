/*
 * mesh/health/failure_detector_internal.h - who of a world is still there. A thread of each process looks at the ranks of its
 * process, and at the other processes over TCP: process 0 knows all of them, the others know it.
 * A process that ends is noticed at once, for its connection closes; one that is stopped, or
 * whose host or network is gone, when it has been silent for WF_WATCH_SILENCE seconds.
 *
 * Whatever goes wrong with a world, process 0 decides what it was: the first cause that reaches it
 * is the verdict, and every process is told the same one. Where process 0 is lost, that is it, and
 * whoever is left on its deputy's host tells: the first to claim it (mesh/health/muster_internal.h).
 */
#ifndef WF_MESH_HEALTH_FAILURE_DETECTOR_INTERNAL_H
#define WF_MESH_HEALTH_FAILURE_DETECTOR_INTERNAL_H

#include "mesh/comm/transport_internal.h"

enum { WF_WATCH_SILENCE = 10, WF_WATCH_TEXT = 1024, WF_WATCH_NONE = -1 };

/* What became of a world that failed. */
typedef struct wf_verdict {
    int32_t culprit; /* rank of the world */
    int32_t
        teller;   /* the process that says so to the user; WF_WATCH_NONE: one of another host */
    int32_t code; /* wf_status */
    int32_t stuck; /* ranks do not come back: lost, or stuck in what they do */
    int32_t ended; /* a process has: its launcher ends the others within a second */
    char text[WF_WATCH_TEXT];
} wf_verdict;

typedef struct wf_world_watch wf_world_watch;

typedef struct wf_watch_options {
    const wf_transport *transport;
    void *world;
    wf_comm *const *comm; /* [here] the world's handles of the ranks here; not closed before */
    int ranks, here;
    const int *rank; /* [here] which ranks these are, ascending */
    int processes, process;
    double limit; /* seconds that a rank may neither come nor go on; 0: any time */
    bool alone;   /* all processes are on this host */
} wf_watch_options;

/* When this process dies, so many connections of the watch end at once and all others a moment later:
   for transports whose library does not survive the loss of a peer. Before one is opened, and before
   much memory is in use; until the second call, or the next first one. */
void wf_watch_keep(int connections);
void wf_watch_keep_no_more(void);

/* Collective over processes. Errors: WF_ELOST, where they cannot reach each other over TCP;
   WF_ENOMEM. */
wf_status wf_watch_open(const wf_watch_options *options, wf_world_watch **watch,
                        wf_error *error);

/* The world has failed here: look why. From any thread; NULL is allowed. */
void wf_watch_poke(wf_world_watch *watch);

/* The verdict, waiting for it at most so long; false: there is none. */
bool wf_watch_verdict(wf_world_watch *watch, int milliseconds, wf_verdict *verdict);

/* The teller has told the user; the others wait for that, since launchers end all processes when
   one has ended. False: nobody has, and somebody who waits has to. */
void wf_watch_told(wf_world_watch *watch);
bool wf_watch_await_told(wf_world_watch *watch, int milliseconds);

/* A rank here has ended: comm[i]'s. */
void wf_watch_finished(wf_world_watch *watch, int i);

/* All ranks here have ended, or are given up; waits until the other processes know. They may be
   lost even now: ask for the verdict afterwards. */
void wf_watch_leave(wf_world_watch *watch);
void wf_watch_close(wf_world_watch *watch);

/* The cause that the transport has here, and where its rank was. */
bool wf_watch_look(const wf_watch_options *o, wf_verdict *verdict);

/* From a signal that ends the process: the other processes hear of it. True where this one is to
   tell the user, once that is decided; when it has, they hear of that too. */
bool wf_watch_last_words(int rank, const char *text);
void wf_watch_said(void);

#endif
