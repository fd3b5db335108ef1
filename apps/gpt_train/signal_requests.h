/*
 * apps/gpt_train/signal_requests.h - what somebody outside wishes of a run: SIGUSR1 to save, SIGTERM, SIGHUP
 * (the terminal is gone) and SIGINT to save and stop. Handlers only note it; ranks look at the end of a step, and agree.
 */
#ifndef WF_APPS_WISH_H
#define WF_APPS_WISH_H

enum { WF_WISH_SAVE = 1, WF_WISH_STOP = 2 };

/* From now on these signals are wishes; a second SIGINT ends the process. */
void wf_wish_listen(void);

/* A reader that is gone and a file that may not grow are errors of write(), not signals. */
void wf_wish_write_errors(void);

/* SIGTERM ends this process a little later. A launcher ends all processes so when one has failed;
   what that was can still be said. */
void wf_wish_linger(void);

/* The wishes so far, a bit each; those that were granted are forgotten. */
unsigned wf_wish_now(void);
void wf_wish_granted(unsigned wishes);

#endif
