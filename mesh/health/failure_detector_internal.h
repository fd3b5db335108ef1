/*
 * mesh/health/failure_detector_internal.h - who of a world is still there. A thread of each
 * process looks at the ranks of its process, and at the other processes over TCP: process 0
 * knows all of them, the others know it.
 * A process that ends is noticed at once, for its connection closes; one that is stopped, or
 * whose host or network is gone, when it has been silent for WF_DETECTOR_SILENCE seconds.
 *
 * Whatever goes wrong with a world, process 0 decides what it was: the first cause that reaches
 * it is the failure cause, and every process gets the same one. Where process 0 is lost, that
 * is it, and a process that is left on its backup coordinator's host reports: the first to
 * claim it (mesh/health/process_registry_internal.h).
 */
#ifndef WF_MESH_HEALTH_FAILURE_DETECTOR_INTERNAL_H
#define WF_MESH_HEALTH_FAILURE_DETECTOR_INTERNAL_H

#include "mesh/comm/transport_internal.h"

enum { WF_DETECTOR_SILENCE = 10, WF_DETECTOR_TEXT = 1024, WF_DETECTOR_NONE = -1 };

/* The cause and end of a world that failed. */
typedef struct wf_failure {
    int32_t failed_rank; /* rank of the world */
    /* the process that says so to the user; WF_DETECTOR_NONE: one of another host */
    int32_t reporter;
    int32_t code;  /* wf_status */
    int32_t stuck; /* ranks do not come back: lost, or stuck in what they do */
    int32_t ended; /* a process has: its launcher ends the others within a second */
    char text[WF_DETECTOR_TEXT];
} wf_failure;

typedef struct wf_detector wf_detector;

typedef struct wf_detector_options {
    const wf_transport *transport;
    void *world;
    wf_comm *const
        *comm; /* [local_size] the world's handles of the ranks here; not closed before */
    int ranks, local_size;
    const int *rank; /* [local_size] which ranks these are, ascending */
    int processes, process;
    double limit; /* seconds that a rank may neither come nor advance; 0: any time */
    bool alone;   /* all processes are on this host */
} wf_detector_options;

/* Makes `connections` connections of the failure detector end at once when this process dies,
   and all others a moment later: for transports whose library does not survive the loss of a
   peer. Before one is opened, and before much memory is in use; until the second call, or the
   next first one. */
void wf_fd_holder_start(int connections);
void wf_fd_holder_stop(void);

/* Collective over processes. Errors: WF_ELOST, where they cannot reach each other over TCP;
   WF_ENOMEM. */
wf_status wf_detector_open(const wf_detector_options *options, wf_detector **detector,
                           wf_error *error);

/* Wakes the detector to find why the world has failed here. From any thread; NULL is
   allowed. */
void wf_detector_wake(wf_detector *detector);

/* Gives the failure cause, for which it waits at most `milliseconds`; false: there is none. */
bool wf_detector_failure(wf_detector *detector, int milliseconds, wf_failure *failure);

/* Notes that the reporter has notified the user; the others wait for that, since launchers end
   all processes when one has ended. False: not yet, and a waiting process has to report. */
void wf_detector_reported(wf_detector *detector);
bool wf_detector_await_reported(wf_detector *detector, int milliseconds);

/* Notes that a rank here has ended: comm[i]'s. */
void wf_detector_finished(wf_detector *detector, int i);

/* Notes that all ranks here have ended, or are given up; waits until the other processes know.
   They may be lost even now: ask for the failure cause afterwards. */
void wf_detector_leave(wf_detector *detector);
void wf_detector_close(wf_detector *detector);

/* Gives the cause that the transport has here, and where its rank was. */
bool wf_detector_look(const wf_detector_options *o, wf_failure *failure);

/* Sends, from a signal that ends the process, its notice to the other processes. True where
   this one is to report to the user, once that is decided. */
bool wf_detector_crash_notice(int rank, const char *text);

/* Waits, in that signal, before the process ends, until the others know that the user has been
   notified, here (by the signal) or elsewhere. */
void wf_detector_crash_reported(bool here);

/* Returns true while such a signal is handled in this process, which then reports. NULL is
   allowed. */
bool wf_detector_crashed(const wf_detector *detector);

#endif
