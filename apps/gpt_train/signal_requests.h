/*
 * apps/gpt_train/signal_requests.h - signals as requests to a run: SIGUSR1 asks it to save, SIGTERM,
 * SIGHUP (the terminal is gone) and SIGINT ask it to save and stop. A handler only notes the request; the
 * ranks look at the end of a step, and agree.
 */
#ifndef WF_APPS_SIGNAL_REQUESTS_H
#define WF_APPS_SIGNAL_REQUESTS_H

#include <stdbool.h>

/* LEAVE comes from no signal, but from --recovery-dir: to stop for a start with more processes, and to lose nothing by it. */
enum { APP_SIGNAL_SAVE = 1, APP_SIGNAL_STOP = 2, APP_SIGNAL_LEAVE = 4 };

/* From now on these signals are requests; a second SIGINT ends the process. */
void signal_requests_listen(void);

/* A reader that is gone is an error of write(), not a signal (and so is a file that may not grow: app_program_begin). */
void signal_requests_write_errors(void);

/* SIGTERM ends this process a little later. A launcher ends all processes with it when one has failed,
   and there is time to say what has. */
void signal_requests_linger(void);

/* From now on, or no longer, a library that ends the process from the thread of a rank waits with that: OpenMPI does so as soon as it
   meets the connection of a host that is lost, which is for others here to tell and to survive. */
void signal_requests_outlast(bool outlasts);

/* From now on SIGTERM ends this process no more: it writes down what is not to be lost, and ends then. */
void signal_requests_hold(void);

/* The requests so far, a bit each; those that were honoured are forgotten. */
unsigned signal_requests_now(void);
void signal_requests_honoured(unsigned requests);

#endif
