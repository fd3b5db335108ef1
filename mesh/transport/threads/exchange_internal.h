/*
 * mesh/transport/threads/exchange_internal.h - the steps of an exchange between threads, for
 * the files of the threads transport. A step that fails has ended the exchange: no peer reads
 * this rank's memory any more.
 */
#ifndef WF_MESH_TRANSPORT_THREADS_EXCHANGE_INTERNAL_H
#define WF_MESH_TRANSPORT_THREADS_EXCHANGE_INTERNAL_H

#include "core/device.h"
#include "mesh/transport/threads/world_internal.h"

static inline threads_comm *wf_threads_of(wf_comm *comm)
{
    return (threads_comm *)comm;
}

/* Returns the exchange that a member has posted; for x->work, while it has a piece to do. */
static inline const wf_exchange *wf_threads_peer(const wf_exchange *x, int member)
{
    return ((const slot *)x->slot)->exchange[member];
}

/* Copy between members' memory, from any thread; of devices by their side queues. */
wf_status wf_threads_copy(const wf_exchange *x, void *to, const void *from, size_t bytes,
                          wf_error *error);

/* queues.c: order the queues of the devices whose memory is moved; of the host's memory they do
   nothing. An exchange that is timed has the host wait for each point. */

/* Marks what this rank has queued so far: the copies of its peers come after it. */
wf_status wf_threads_mark(const wf_exchange *x, queue_point *point, wf_error *error);
/* Has the pieces that this member takes come after what all have posted. */
wf_status wf_threads_follow_posted(const threads_comm *c, const wf_exchange *x,
                                   wf_error *error);
/* Marks the pieces that this member has queued, before it counts the last of them as done. */
wf_status wf_threads_mark_moved(const threads_comm *c, const wf_exchange *x, wf_error *error);
/* Has what this rank queues from now on come after all pieces of an exchange that is over.
   Where its device cannot, the host has waited for them. */
wf_status wf_threads_follow_moved(const threads_comm *c, const wf_exchange *x, wf_error *error);
/* Has what this rank queues from now on come after a point of another end's queue. */
wf_status wf_threads_follow(const wf_exchange *x, const queue_point *point, wf_error *error);

/* Start an exchange of x->work. It is ended by wf_threads_finish_exchange(). */
wf_status wf_threads_post(threads_comm *c, wf_exchange *x, wf_error *error);
wf_exchange_call wf_threads_finish_exchange;
extern const wf_direct_access wf_threads_direct;

bool wf_threads_all_posted(const wf_exchange *x);

/* Works on pieces, when all have posted, until none is left, or none of this member's device.
   One thread of a rank at a time. */
wf_status wf_threads_work(threads_comm *c, wf_exchange *x, wf_error *error);

/* Let the rank's thread in the background (progress.c) work on x when all have posted;
   take_back() returns when it does not any more, whether or not there is work left. */
void wf_threads_leave_to_progress(threads_comm *c, wf_exchange *x);
void wf_threads_take_back(threads_comm *c, wf_exchange *x);

/* Wakes, where all members have posted, at most `most` of their threads that may have work,
   this member's own first. */
void wf_threads_wake_for(group *g, int member, int most);

/* Between these two no peer frees or changes what it has posted: see wf_threads_give_up(). */
wf_status wf_threads_begin_reading(threads_comm *c, wf_exchange *x, wf_error *error);
void wf_threads_end_reading(threads_comm *c, wf_exchange *x);

/* Gives up a failed exchange: the group is broken or the world aborted, so that no reader
   begins any more; when the last one is through, the caller may free its buffers. */
wf_status wf_threads_give_up(threads_comm *c, wf_exchange *x, wf_status status);

/* Breaks the group: x is not what another member has posted in this slot. */
wf_status wf_threads_mismatch(threads_comm *c, const wf_exchange *x, int other,
                              const wf_fingerprint *theirs, wf_error *error);

wf_exchange_call wf_threads_send, wf_threads_recv;

/* Returns the channel of a message of this rank. */
channel *wf_threads_line(const threads_comm *c, const wf_exchange *x, bool sends);

/* Returns the rank's pace, where exchanges take time; else NULL, and what follows does nothing:
   paced.c. */
wf_pace *wf_threads_pace(const threads_comm *c);
void wf_threads_pace_post(threads_comm *c, slot *p);
void wf_threads_pace_end(threads_comm *c, const wf_exchange *x, slot *p);
wf_status wf_threads_pace_send(threads_comm *c, wf_exchange *x, message *m, wf_error *error);
void wf_threads_pace_recv(threads_comm *c, const wf_exchange *x);
void wf_threads_pace_arrive(threads_comm *c, const wf_exchange *x, bool sends);
bool wf_threads_pace_is_kept(const threads_comm *c);

#endif
