/* mesh/health/observe_internal.h - the rank's flight recorder sees its collectives, and the
 * failure detector hears at once when it fails. */
#ifndef WF_MESH_HEALTH_OBSERVE_INTERNAL_H
#define WF_MESH_HEALTH_OBSERVE_INTERNAL_H

#include "mesh/health/failure_detector_internal.h"

/* Observes this handle of the world and groups that are split off it; called before the first
   of them. Nothing on a transport that moves nothing, or where there is no memory for a
   recorder: a run does not fail for it. Errors: WF_ENOMEM. */
wf_status wf_health_observe(wf_comm *world, wf_error *error);

/* Makes a rank that fails over this handle, or over a group that is split off it, wake the
   failure detector; called before the first group. */
void wf_health_wake(wf_comm *world, wf_detector *detector);

/* Write the recordings of all ranks of this process (mesh/health/flight_recorder.h). */
void wf_recorder_write_all(void);

#endif
