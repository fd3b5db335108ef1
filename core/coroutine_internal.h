/* core/coroutine_internal.h - a function with a stack of its own, which stops where it says and
   continues there later, on the thread that calls. Not installed. */
#ifndef WF_CORE_COROUTINE_INTERNAL_H
#define WF_CORE_COROUTINE_INTERNAL_H

#include "core/status.h"

typedef struct wf_coroutine wf_coroutine;

/* Makes a stack; nothing runs on it. NULL where there is no memory. */
wf_coroutine *wf_coroutine_open(void);
void wf_coroutine_close(wf_coroutine *c); /* NULL is allowed; it runs nothing */

/* Runs a function on the stack, until it stops or returns. */
void wf_coroutine_start(wf_coroutine *c, void (*run)(void *arg), void *arg);

/* Returns to who started or continued it; from the function. */
void wf_coroutine_stop(wf_coroutine *c);

/* Continues it where it stopped, until it stops again or returns. */
void wf_coroutine_continue(wf_coroutine *c);

#endif
