/*
 * kernels/cpu/team_internal.h - the thread pool that shares one rank's kernels. A kernel is
 * parallel over its outputs only, so neither the size of a team nor the order in which its
 * members take their tasks can reach a number.
 */
#ifndef WF_KERNELS_CPU_TEAM_INTERNAL_H
#define WF_KERNELS_CPU_TEAM_INTERNAL_H

#include "core/status.h"
#include <stdint.h>

enum { WF_TEAM_MAX = 1024 };

typedef struct wf_team wf_team;

/*
 * wf_team_open - a team of `threads` members: the caller and threads - 1 threads, which sleep
 * while there is nothing to do. NULL with a text in *error where threads is outside 1 ..
 * WF_TEAM_MAX or the machine has no more of them.
 */
wf_team *wf_team_open(int threads, wf_error *error);

/* wf_team_close - ends the threads. NULL is nothing; no wf_team_run may be in progress. */
void wf_team_close(wf_team *team);

/* wf_team_size - members, the caller included; 1 for NULL, which is the caller alone. */
int wf_team_size(const wf_team *team);

/*
 * wf_team_run - calls fn over tasks, ranges of 0 .. count - 1 and returns when all are done.
 * Tasks begin at multiples of `grain` (>= 1), and every member takes the next one as it becomes
 * free; `worker` (0 .. size - 1, the caller is 0) tells which scratch space is fn's. Members
 * compute with the caller's rounding and denormal modes. One thread at a time may run a team,
 * and fn may not.
 */
void wf_team_run(wf_team *team, int64_t count, int64_t grain,
                 void (*fn)(void *arg, int64_t begin, int64_t end, int worker), void *arg);

/*
 * wf_team_streams - the next job reads `data` once, from memory, and its second task begins at
 * `second`. When jobs come in the order of last time, as those of a token do, members that wait
 * behind this one prefetch the first bytes of what a member reads of the next one. Addresses
 * are compared and prefetched, never read: they may be gone.
 */
void wf_team_streams(wf_team *team, const void *data, const void *second);

#endif
