/*
 * mesh/transport/threads/threads_internal.h - a world of threads as part of a larger one, for
 * transports that join processes.
 */
#ifndef WF_MESH_TRANSPORT_THREADS_THREADS_INTERNAL_H
#define WF_MESH_TRANSPORT_THREADS_THREADS_INTERNAL_H

#include "mesh/comm/transport_internal.h"

/* Opens a world of these ranks (ascending; NULL: 0, 1, ..), of a larger world that continues in
   other processes. To be closed by wf_transport_threads. */
wf_status wf_threads_open(int ranks, const int *number, bool own_cores, void **world,
                          wf_error *error);

/* The world has failed by this rank; from any thread. */
void wf_threads_world_abort(void *world, int rank, const wf_error *cause);

#endif
