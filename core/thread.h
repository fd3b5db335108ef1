/* core/thread.h - threads that work for others. */
#ifndef WF_CORE_THREAD_H
#define WF_CORE_THREAD_H

#include "core/export.h"
#include <pthread.h>

WF_BEGIN_DECLS

/**
 * wf_thread_start - pthread_create for a thread to which no signal comes that is meant for the
 * process
 *
 * What the thread has done wrong itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) still comes
 * to it, since a signal of that kind that is blocked ends the process without a word.
 *
 * Returns: 0, or the error of pthread_create
 */
WF_API int wf_thread_start(pthread_t *thread, const pthread_attr_t *attributes,
                           void *(*run)(void *arg), void *arg);

WF_END_DECLS

#endif
