/*
 * parallel/recovery/elastic_files.h - elastic runs of ranks in several processes: when others
 * are lost, a process writes its state to the recovery folder, memory of the host that outlives
 * it (/dev/shm), and processes of the next start find it there.
 *
 *     DIR/RESTARTS-PROCESS.safetensors   state of the ranks of a process
 *                                        (parallel/recovery/snapshot_file.c)
 *     DIR/leave                          asks a run to leave its state, for a start with more
 *                                        processes
 *
 * DIR may lie where other users write too, so it is not trusted blindly: it and its files have
 * to be this user's, closed to writing by others, and no links (core/files/output.h); and files
 * say which run and job they are of: only the same job of the same run continues with them.
 */
#ifndef WF_PARALLEL_RECOVERY_ELASTIC_FILES_H
#define WF_PARALLEL_RECOVERY_ELASTIC_FILES_H

#include "parallel/recovery/elastic.h"

WF_BEGIN_DECLS

/** wf_elastic_run_name - sets elastic->run, the name that a launcher gives to the run of its
 * processes (WEFT_RUN_ID, else the job of Slurm); "": none */
WF_API void wf_elastic_run_name(wf_elastic *elastic);

/**
 * wf_elastic_files_load - reads the state that this host has, if only other hosts have any, for
 * this launch: elastic->from
 *
 * @param job  elastic->job from now on. Owner: elastic, also on errors
 * Errors: WF_EIO (a folder or file that is not trusted), WF_EINVAL (another run's or job's),
 * WF_EDATA, WF_ENOMEM
 */
WF_API wf_status wf_elastic_files_load(wf_elastic *elastic, char *job, wf_error *error);

/** wf_elastic_files_save - writes the state of this process's ranks, instead of an older one;
 * nothing where it is not newer */
WF_API wf_status wf_elastic_files_save(wf_elastic *elastic, wf_error *error);

/** wf_elastic_files_wait - waits until the other processes of this host have left their state
 * as well, for a second at the most: mpirun ends slower ones as soon as one has ended */
WF_API void wf_elastic_files_wait(const char *dir);

/** wf_elastic_files_leave - returns whether the run is asked to leave */
WF_API bool wf_elastic_files_leave(const char *dir);

/** wf_elastic_files_restarts - returns how often the run was started before
 * (WEFT_RESTART_COUNT); 0: unknown, or never */
WF_API int wf_elastic_files_restarts(void);

/** wf_elastic_files_forget - removes the state: it will not be restored */
WF_API void wf_elastic_files_forget(const char *dir);

/** wf_elastic_files_remove - removes all that is of the run on this host, which has ended */
WF_API void wf_elastic_files_remove(const char *dir);

WF_END_DECLS

#endif
