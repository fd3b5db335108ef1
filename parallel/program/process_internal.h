/* parallel/program/process_internal.h - a launch of a process, and its mesh. */
#ifndef WF_PARALLEL_PROGRAM_PROCESS_INTERNAL_H
#define WF_PARALLEL_PROGRAM_PROCESS_INTERNAL_H

#include "parallel/main_internal.h"
#include "parallel/program/process.h"

/* The sizes of a job that change when ranks are lost: its data-parallel axis, or the outermost
   of several, and the micro-batches. */
typedef struct wf_process_shape {
    wf_process *process;
    int dp, dp_replicate;
    int64_t micro_batch;
    wf_par_accumulate accumulate;
    int accumulate_group;
} wf_process_shape;

/* A launch of the ranks: of an elastic run there may be several. It stays where ranks of it are
   stuck. */
typedef struct wf_process_launch {
    wf_process *process;
    wf_par_start start;
    wf_par_job job;          /* the process's, on the mesh of this launch */
    wf_plan_request request; /* likewise */
    wf_axis axes[WF_MAX_AXES + 1];
    wf_par_pipeline *pipeline; /* NULL: there is none */
    wf_run run;
    char mesh[400]; /* "--dp 2 --tp 1" */
    wf_plan plan;   /* names the axes of `placed` */
    wf_placement_axis placed[WF_MAX_AXES];
} wf_process_launch;

/* ---- process_shape.c ---- */

/* Returns the shape of the job's mesh. */
wf_process_shape wf_process_shape_of(wf_process *process);

/* Sets a launch to the process's job on a shape. */
void wf_process_shaped(const wf_process_shape *shape, wf_process_launch *launch);

/* Writes "--dp 2 --tp 1". */
void wf_process_mesh_name(const void *shape, char *text, size_t size);

extern const wf_elastic_meshes wf_process_meshes;

/* ---- process_open.c ---- */

/* Opens what a process has beside its launches. Errors: those of wf_process_run */
wf_status wf_process_open(wf_process *p, wf_error *error);

/* Opens the checkpoints to continue from; and the log of a launch, after rows that it has where
   `continues`. */
wf_status wf_process_open_checkpoints(wf_process *p, wf_error *error);
wf_status wf_process_open_log(wf_process *p, const wf_process_shape *shape, bool continues,
                              wf_error *error);

/* Returns whether the run may continue one before it, and so its log. */
bool wf_process_continues(const wf_process *p);

/* Closes the timeline: a disk that is full is reported, and ends no run. */
void wf_process_close_timeline(wf_process *p);

/* ---- process_launch.c ---- */

/* Launches the ranks, of an elastic run until it has ended. error: of this process, or
   WF_OK. */
void wf_process_launches(wf_process *p, wf_launch_end *end, wf_error *error);

/* ---- recordings.c ---- */

/* Writes the folder of this run's flight recorders, the same for all of its processes on a
   host. directory: NULL: one of the temporary directory, weft-recorder-<user>-<job> */
void wf_recordings_directory(const char *directory, char *text, size_t size);

/* Checks that a failure could be recorded in a directory. Errors: WF_EIO, with what to
   change */
wf_status wf_recordings_check(const char *directory, wf_error *error);

/* Removes the temporary folders of runs that failed before, but for the newest few. Another
   user's are left alone, and what is no recording. */
void wf_recordings_forget(void);

#endif
