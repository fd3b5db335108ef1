/*
 * mesh/health/process_registry_internal.h - the processes that a launcher started on one host,
 * while the failure detector does not see them: before a world is open, and when it has ended.
 * Each listens under a name of its own, made of job, world and its number on the host, where no
 * other user can (private_names_internal.h). A process that can be connected to has come, and
 * its state is read from the system (/proc), stopped or not. Each watches the next one, the
 * last the first, so whatever happens to some is seen by one that is left.
 *
 * The one that reports the end of the run to the user locks one more name, which
 * only one can, and says so to the others that are there: the name is released when it and its
 * fd holder have ended.
 */
#ifndef WF_MESH_HEALTH_PROCESS_REGISTRY_INTERNAL_H
#define WF_MESH_HEALTH_PROCESS_REGISTRY_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>

/* Seconds that the start and the end may take: at least, and where no limit is given. */
enum { WF_REGISTRY_LEAST_S = 20, WF_REGISTRY_END_LEAST_S = 5, WF_REGISTRY_MOST_S = 600 };

/* Before any world opens: who crashes may claim already. */
void wf_registry_prepare(void);
bool wf_registry_early(void);

/* Prepares for a world that is about to open here, whose name may be claimed anew. joins: it
   joins processes. limit: seconds that this may take, at least WF_REGISTRY_LEAST_S, and the end
   as well, at least WF_REGISTRY_END_LEAST_S; 0: WF_REGISTRY_MOST_S. exit_now: as in
   wf_launch_options. */
void wf_registry_open(bool joins, double limit, void (*exit_now)(wf_status status));

/* Returns what the last wf_registry_open has to warn of, or NULL. */
const char *wf_registry_warning(void);

/* Which process runs each rank of the world: a process is named with its first one. */
void wf_registry_name_ranks(int ranks, const int *process);

/* SIGTERM is noted while a world opens, and at the end, and does what it did. */
void wf_registry_listen(bool on);

/* Notes that all processes have met and the failure detector sees them, and says so to the
   process that watches this one. Should this one be lost now, that is not reported as a loss at
   the start. */
void wf_registry_met(void);

/* While a world opens, many times a second, for launchers leave little time: whether one of
   this host's processes has ended or been stopped before all met, or the time is over. */
bool wf_registry_look(wf_error *error);

/* The end, before that of MPI: waits for all of this host that could be reached when all had
   met (or now, where they never have), while a thread looks, which ends the process where one
   is lost or stopped, or does not come; it looks on until MPI has ended, too. The first of a
   host's processes names who has not come, and the others name the first, where that has not.
   What comes after MPI each watches itself. */
void wf_registry_leave(void);

/* True in one process of this host, once: it reports. Also from a signal. */
bool wf_registry_claim(void);

/* Returns true where this process has claimed it. */
bool wf_registry_claimed(void);

#endif
