/*
 * kernels/cpu/thread_pool_internal.h - the thread pool that shares one rank's kernels. A kernel
 * is parallel over its outputs only, so neither the size of a thread pool nor the order in
 * which its members take their tasks can reach a number.
 */
#ifndef WF_KERNELS_CPU_THREAD_POOL_INTERNAL_H
#define WF_KERNELS_CPU_THREAD_POOL_INTERNAL_H

#include "core/status.h"
#include <stdint.h>

enum { WF_POOL_MAX = 1024 };

typedef struct wf_thread_pool wf_thread_pool;

/*
 * wf_thread_pool_open - a thread pool of `threads` members: the caller and threads - 1 threads,
 * which sleep while there is nothing to do. NULL with a text in *error where threads is outside
 * 1 .. WF_POOL_MAX or the machine has no more of them.
 */
wf_thread_pool *wf_thread_pool_open(int threads, wf_error *error);

/* wf_thread_pool_close - ends the threads. NULL is nothing; no wf_thread_pool_run may be in
   progress. */
void wf_thread_pool_close(wf_thread_pool *pool);

/* wf_thread_pool_size - members, the caller included; 1 for NULL, which is the caller alone. */
int wf_thread_pool_size(const wf_thread_pool *pool);

/*
 * wf_thread_pool_run - calls fn over tasks, ranges of 0 .. count - 1 and returns when all are
 * done. Tasks begin at multiples of `grain` (>= 1), and every member takes the next one as it
 * becomes free; `worker` (0 .. size - 1, the caller is 0) says which scratch space is fn's.
 * Members compute with the caller's rounding and denormal modes. One thread at a time may run a
 * thread pool, and fn may not.
 */
void wf_thread_pool_run(wf_thread_pool *pool, int64_t count, int64_t grain,
                        void (*fn)(void *arg, int64_t begin, int64_t end, int worker),
                        void *arg);

/*
 * wf_thread_pool_streams - the next job reads `data` once, from memory, and its second task
 * begins at `second`. When jobs come in the order of last time, as those of a token do, members
 * that wait after this one prefetch the first bytes of what a member reads of the next one.
 * Addresses are compared and prefetched, never read: they may be gone.
 */
void wf_thread_pool_streams(wf_thread_pool *pool, const void *data, const void *second);

#endif
