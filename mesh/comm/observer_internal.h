/*
 * mesh/comm/observer_internal.h - what wants to see the collectives of a rank: the flight
 * recorder, and the failure detector that is to be woken when a rank fails
 * (mesh/health/observe.c). Communication knows this table and nothing of who fills it in; a
 * handle without an observer is not observed.
 */
#ifndef WF_MESH_COMM_OBSERVER_INTERNAL_H
#define WF_MESH_COMM_OBSERVER_INTERNAL_H

#include "mesh/comm/collective.h"

/* All functions are there, and are called by the rank's own thread but where said otherwise. */
typedef struct wf_comm_observer {
    /* A group was split off: an observer that wants to see it sets its `observer`; what it
       returns is what the split returns. The handle closes. */
    wf_status (*split)(const wf_comm *parent, wf_comm *comm, wf_error *error);
    void (*closes)(wf_comm *comm);
    /* "shard 1, tp 0": where the rank is in its mesh; copied. */
    void (*coordinates)(wf_comm *comm, const char *text);
    /* Records the rank's position for later collectives; module: copied, NULL for none. */
    void (*position)(wf_comm *comm, int64_t step, const char *module);
    /* The action that the rank is in from now on (wf_comm_action). */
    void (*action)(wf_comm *comm, const char *name, int64_t number, int64_t of);
    /* A collective begins: its sequence number, for its end. */
    uint64_t (*begin)(wf_comm *comm, const wf_collective *what, int64_t bytes);
    void (*end)(wf_comm *comm, const wf_collective *what, uint64_t sequence, bool failed);
    /* The rank waits for others in a collective, and no longer. */
    void (*wait)(wf_comm *comm, const wf_collective *what, uint64_t sequence);
    void (*wait_over)(wf_comm *comm);
    /* The rank reads or writes files from now on, or no longer. */
    void (*at_files)(wf_comm *comm, bool at_files);
    /* Appends to the text where the rank was, unless it is said there already. */
    void (*locate)(wf_comm *comm, wf_error *error);
    /* This rank has failed; from any thread. */
    void (*failed)(wf_comm *comm, const wf_error *cause);
} wf_comm_observer;

/* Call the table above; nothing where there is no observer. */
void wf_comm_coordinates(wf_comm *comm, const char *text);
uint64_t wf_comm_begins(wf_comm *comm, const wf_collective *what, int64_t bytes);
void wf_comm_ends(wf_comm *comm, const wf_collective *what, uint64_t sequence, bool failed);
void wf_comm_waits(wf_comm *comm, const wf_collective *what, uint64_t sequence);
void wf_comm_waits_no_more(wf_comm *comm);

#endif
