/* core/signals.h - which signals come to threads that work for others. Not installed. */
#ifndef WF_CORE_SIGNALS_H
#define WF_CORE_SIGNALS_H

#include <signal.h>

/* All that is meant for the process; what a thread has done wrong itself still comes to it, since a
   signal of that kind that is blocked ends the process without a word. */
static inline void wf_signals_of_process(sigset_t *set)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

    sigfillset(set);
    for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(set, own[i]);
}

#endif
