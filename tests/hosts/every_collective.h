/* tests/hosts/every_collective.h - collectives of all kinds, for faults in those that training does not need. */
#ifndef WF_TESTS_HOSTS_EVERY_COLLECTIVE_H
#define WF_TESTS_HOSTS_EVERY_COLLECTIVE_H

#include "mesh/cluster/launch.h"

/* One of each kind, over the world of at most 64 ranks. Collective: over it */
void make_every_collective(wf_rank *me, wf_error *error);

#endif
