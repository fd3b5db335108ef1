/* mesh/health/crash_internal.h - which rank a thread is, for the line that a crash leaves. Not
   installed. */
#ifndef WF_MESH_HEALTH_CRASH_INTERNAL_H
#define WF_MESH_HEALTH_CRASH_INTERNAL_H

#include "mesh/comm/transport_internal.h"

/* Notes that the calling thread is a rank, by its handle of the world; a second call ends
   that. */
void wf_crash_rank(wf_comm *world);
void wf_crash_no_rank(void);

#endif
