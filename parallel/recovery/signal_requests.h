/*
 * parallel/recovery/signal_requests.h - signals as requests to a run: SIGUSR1 asks it to save,
 * SIGTERM, SIGHUP (the terminal is gone) and SIGINT ask it to save and stop. A handler only
 * notes the request; ranks look at the end of a step, and agree.
 */
#ifndef WF_PARALLEL_RECOVERY_SIGNAL_REQUESTS_H
#define WF_PARALLEL_RECOVERY_SIGNAL_REQUESTS_H

#include "core/status.h"
#include <stdbool.h>

WF_BEGIN_DECLS

/* LEAVE comes from no signal, but from a recovery folder: to stop for a start with more
   processes, and to lose nothing by it. */
enum { WF_SIGNAL_SAVE = 1, WF_SIGNAL_STOP = 2, WF_SIGNAL_LEAVE = 4 };

/** wf_signal_requests_listen - makes these signals requests from now on; a second SIGINT ends
 * the process */
WF_API void wf_signal_requests_listen(void);

/** wf_signal_requests_write_errors - makes a reader that is gone an error of write(), and no
 * signal */
WF_API void wf_signal_requests_write_errors(void);

/** wf_signal_requests_linger - lets SIGTERM end this process a little later. A launcher ends
 * all processes with it when one has failed, and there is time to say which has */
WF_API void wf_signal_requests_linger(void);

/** wf_signal_requests_outlast - blocks, or no longer blocks, a library that exits from the
 * thread of a rank: OpenMPI does so as soon as it meets the connection of a lost host, which
 * the other ranks of this process report and survive */
WF_API void wf_signal_requests_outlast(bool outlasts);

/** wf_signal_requests_hold - lets SIGTERM end this process no more: it writes what is not to be
 * lost, and ends then */
WF_API void wf_signal_requests_hold(void);

/** wf_signal_requests_now - returns the requests so far, a bit each;
 * wf_signal_requests_honoured - forgets some */
WF_API unsigned wf_signal_requests_now(void);
WF_API void wf_signal_requests_honoured(unsigned requests);

WF_END_DECLS

#endif
