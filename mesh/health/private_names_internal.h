/*
 * mesh/health/private_names_internal.h - names by which the processes of a job find each other
 * on one host: sockets and locks in a folder that their user alone may enter, so that no other
 * user can take a name first, connect to one, or see what is sent. The folder is the launcher's
 * own for this job (PMIX_SERVER_TMPDIR: mpirun, srun --mpi=pmix), else the user's
 * (XDG_RUNTIME_DIR), else weft-UID in /dev/shm or /tmp; one that belongs to another user, that
 * others may enter, or that is a link is not used. The kernel's credentials of a peer are
 * checked as well.
 */
#ifndef WF_MESH_HEALTH_PRIVATE_NAMES_INTERNAL_H
#define WF_MESH_HEALTH_PRIVATE_NAMES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { WF_NAME_BYTES = 48 };

/* Opens the folder, once in a process. False: there is none, and `why` says why. */
bool wf_names_open(char *why, size_t room);

/* Makes names of one job on this host begin alike and those of others differ: "weft-HASH".
   False: no variable of the launcher distinguishes this job from others. */
bool wf_names_job(char *name, size_t room);

/* Returns a socket that listens under a name, or -1; EADDRINUSE: another process has it. What a
   killed process left under the name is replaced. */
int wf_names_listen(const char *name);

/* Connects to the process of this user that listens under a name, whose process id goes to
   *pid. Returns -1 where none does. Never waits. */
int wf_names_connect(const char *name, pid_t *pid);

/* Returns true where the other end of a connection is a process of this user. */
bool wf_names_is_peer(int fd, pid_t *pid);

/* Locks a name until the descriptor that is returned is closed; -1: another process has it
   (EAGAIN), or it can't be locked. Also from a signal. */
int wf_names_lock(const char *name);

/* Returns true where another process has locked a name. */
bool wf_names_is_locked(const char *name);

void wf_names_remove(const char *name);

#endif
