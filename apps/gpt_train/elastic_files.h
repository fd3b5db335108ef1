/*
 * apps/gpt_train/elastic_files.h - --elastic of ranks in several processes: what a process holds when others are lost goes to
 * --recovery-dir, memory of the host that outlives it (/dev/shm), and the processes of the next start find it there.
 *
 *     DIR/RESTARTS-PROCESS.safetensors   what the ranks of a process left (parallel/recovery/snapshot_file.c)
 *     DIR/leave                          asks a run that goes on to leave what it holds, for a start with more processes
 *
 * DIR lies where other users may write too, so it is not trusted blindly: it and its files have to be this user's, closed
 * to writing by others, and no links (core/files/output.h); and what is in it says which run and job it is of
 * (recovery_job.h).
 */
#ifndef WF_APPS_ELASTIC_FILES_H
#define WF_APPS_ELASTIC_FILES_H

#include "apps/gpt_train/elastic.h"

/* What there is on this host, as what the launch takes up, if only on others: elastic->from; sets elastic->run and
   elastic->job too. Errors: WF_EIO (a folder or file that is not trusted), WF_EINVAL (another run's or job's), WF_EDATA,
   WF_ENOMEM */
wf_status elastic_files_load(app_elastic *elastic, const app_options *options,
                             const wf_dataset *data, wf_error *error);

/* What this process's ranks have left, in place of what there was. Nothing where they have left nothing new. */
wf_status elastic_files_save(app_elastic *elastic, const char *dir, wf_error *error);

/* Until the other processes of this host have left what they hold as well, for a second at the most: whoever started them
   (mpirun) ends those that are slower as soon as one has ended. */
void elastic_files_wait(const char *dir);

/* Whether the run is asked to leave. */
bool elastic_files_leave(const char *dir);

/* How often the run was started before, as who starts it says; 0: nobody does. */
int elastic_files_restarts(void);

/* What there is will not be taken up. */
void elastic_files_forget(const char *dir);

/* The run has come to its end: nothing stays on this host. */
void elastic_files_remove(const char *dir);

#endif
