/* mesh/transport/launcher_internal.h - what a launcher says of its job and of each process, for
   mesh. Not installed. */
#ifndef WF_MESH_TRANSPORT_LAUNCHER_INTERNAL_H
#define WF_MESH_TRANSPORT_LAUNCHER_INTERNAL_H

#include "mesh/transport/launcher.h"

/* Writes a name of this job for this user, of at most 32 characters; false where none is
   known. */
bool wf_launcher_job(char *text, size_t room);

/* Finds the file of shared memory that OpenMPI makes for this process and its mpirun removes,
   unless that has been killed. False: it is not known. */
bool wf_launcher_segment(char *path, size_t room);

/* Names the variables that have this process's number, how many of its host there are, and its
   number among these. False: no launcher has started it. */
bool wf_launcher_variables(const char *name[3]);

/* Which of the launcher's processes a process of this user's is; -1: not known. */
int wf_launcher_process_of(int pid);

#endif
