/*
 * apps/wish.h - what somebody outside wishes of a run: SIGUSR1 to save, SIGTERM to save and stop.
 * Handlers only note it; ranks look at the end of a step, and agree.
 */
#ifndef WF_APPS_WISH_H
#define WF_APPS_WISH_H

enum { WF_WISH_SAVE = 1, WF_WISH_STOP = 2 };

/* From now on the two signals are wishes. */
void wf_wish_listen(void);

/* SIGTERM ends this process a little later. A launcher ends all processes so when one has failed;
   what that was can still be said. */
void wf_wish_linger(void);

/* The wishes so far, a bit each; those that were granted are forgotten. */
unsigned wf_wish_now(void);
void wf_wish_granted(unsigned wishes);

#endif
