/*
 * mesh/transport/launcher.h - the launcher that started this process, with others beside it, or
 * a user alone. Launchers announce themselves in the environment:
 *
 *     OpenMPI's mpirun   OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK
 *     PMI (MPICH, srun)  PMI_SIZE, PMI_RANK
 *     Slurm's srun       SLURM_STEP_NUM_TASKS, SLURM_PROCID, beside SLURM_STEP_ID; processes
 *                        of this host: SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID
 *     torchrun           WORLD_SIZE, RANK, beside LOCAL_RANK and MASTER_ADDR
 */
#ifndef WF_MESH_TRANSPORT_LAUNCHER_H
#define WF_MESH_TRANSPORT_LAUNCHER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

WF_BEGIN_DECLS

typedef struct wf_launcher {
    const char *kind; /* "threads", "mpi", "torchrun" */
    const char *name; /* "OpenMPI's mpirun"; "" where a user started the process */
    /* the environment variable with the number of processes; "" likewise */
    const char *variable;
    int processes, process;
    int local;         /* processes of this host; 0: not known */
    int local_process; /* this one's number among them; 0 where it is not known */
} wf_launcher;

/** wf_launcher_detected - detects the launcher by the environment. A launcher of one process is
 * kind "threads". */
WF_API wf_launcher wf_launcher_detected(void);

/** wf_launcher_reports_elsewhere - returns true where a failure that all processes meet alike
 * is reported by another one of them. False where the launcher's variables are left from
 * another job: this process is alone. */
WF_API bool wf_launcher_reports_elsewhere(void);

/**
 * wf_launcher_choose - chooses how the ranks of a world are started
 *
 * @param wanted     "threads", "mpi", or "auto", which is what was detected; NULL is "auto"
 * @param transport  "auto" or NULL, or a transport's name; one that moves data belongs to its
 *                   kind
 * @param ranks      of the world; has to be a multiple of the processes
 * Errors:           WF_EINVAL where two of them, or of them and the environment, contradict
 *                   each other
 */
WF_API wf_status wf_launcher_choose(const char *wanted, const char *transport, int ranks,
                                    wf_launcher *launcher, wf_error *error);

/** wf_launcher_transport - returns the default transport between the ranks: under torchrun NCCL
 * alone joins the processes. Owner: static string. */
WF_API const char *wf_launcher_transport(const wf_launcher *launcher);

WF_END_DECLS

#endif
