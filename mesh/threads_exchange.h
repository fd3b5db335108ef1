/*
 * mesh/threads_exchange.h - the steps of an exchange between threads, for the files of the
 * threads transport. A step that fails has ended the exchange: no peer reads this rank's memory
 * any more.
 */
#ifndef WF_MESH_THREADS_EXCHANGE_H
#define WF_MESH_THREADS_EXCHANGE_H

#include "mesh/threads_world.h"

static inline threads_comm *wf_threads_of(wf_comm *comm)
{
    return (threads_comm *)comm;
}

/* What a member has posted; to be read after look() and before release(). */
static inline const wf_exchange *wf_threads_peer(const wf_exchange *x, int member)
{
    return ((const place *)x->place)->posted[member];
}

wf_status wf_threads_post(threads_comm *c, wf_exchange *x, wf_error *error);
wf_status wf_threads_wait_stage(threads_comm *c, wf_exchange *x, enum stage stage,
                                wf_error *error);

/* The calls of wf_exposure: see mesh/comm.h. */
wf_exchange_call wf_threads_look, wf_threads_release, wf_threads_settle;
wf_status wf_threads_disagree(wf_comm *comm, wf_exchange *x, const char *text, wf_error *error);
extern const wf_exposure wf_threads_exposure;

/* Between these two no peer frees or changes what it has posted: see wf_threads_give_up(). */
wf_status wf_threads_begin_reading(threads_comm *c, wf_exchange *x, wf_error *error);
void wf_threads_end_reading(threads_comm *c, wf_exchange *x);

/* A failed exchange: the group is broken or the world aborted, so that no reader begins any
   more; when the last one is through, the caller may free its buffers. */
wf_status wf_threads_give_up(threads_comm *c, wf_exchange *x, wf_status status);

/* Breaks the group: x is not what another member has posted at this place. */
wf_status wf_threads_mismatch(threads_comm *c, const wf_exchange *x, int other,
                              const wf_fingerprint *theirs, wf_error *error);

wf_exchange_call wf_threads_send, wf_threads_recv;

#endif
