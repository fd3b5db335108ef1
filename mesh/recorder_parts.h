/* mesh/recorder_parts.h - the flight recorder as communication uses it. Not installed. */
#ifndef WF_MESH_RECORDER_PARTS_H
#define WF_MESH_RECORDER_PARTS_H

#include "mesh/comm.h"
#include "mesh/recorder.h"

/* The recorder of a rank, opened with its first group; NULL on a transport that moves nothing, or
   where there is no memory: a run does not fail for it. */
wf_recorder *wf_recorder_of(wf_comm *comm);

/* A group split off: its events go where the parent's go. */
void wf_recorder_join(wf_comm *parent, wf_comm *comm);

/* The handle closes; the one that opened the recorder gives it back. */
void wf_recorder_leave(wf_comm *comm);

/* What the rank is at, for the events to come. place: copied, NULL for none. */
void wf_recorder_place(wf_comm *comm, int64_t step, const char *place);

/* A collective begins; returns its sequence number, for its end. */
uint64_t wf_recorder_begin(wf_comm *comm, wf_collective_kind op, int64_t bytes);
void wf_recorder_end(wf_comm *comm, wf_collective_kind op, uint64_t sequence, bool failed);

/* This rank has failed: say so and write its file. */
void wf_recorder_fail(wf_comm *comm, const wf_error *cause);

#endif
