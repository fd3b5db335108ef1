/* core/thread.h - threads of the library itself. */
#ifndef WF_CORE_THREAD_H
#define WF_CORE_THREAD_H

#include "core/export.h"
#include <pthread.h>

WF_BEGIN_DECLS

/**
 * wf_thread_start - starts a thread, like pthread_create, that gets no signals meant for the
 * process
 *
 * Signals of its own faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) still reach the thread,
 * since a blocked one would end the process without a message.
 *
 * Returns: 0, or the error of pthread_create
 */
WF_API int wf_thread_start(pthread_t *thread, const pthread_attr_t *attributes,
                           void *(*run)(void *arg), void *arg);

WF_END_DECLS

#endif
