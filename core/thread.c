/* core/thread.c - a thread inherits the signals that its parent has blocked: they are blocked
 * for the moment in which it is started. */
#include "core/thread.h"
#include <signal.h>

int wf_thread_start(pthread_t *thread, const pthread_attr_t *attributes,
                    void *(*run)(void *arg), void *arg)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    int code;

    sigfillset(&blocked);
    for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    code = pthread_create(thread, attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}
