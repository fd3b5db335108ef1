/* parallel/program/process.c - a run of a job in one process; see the header. */
#include "parallel/checkpoint/folder_lock.h"
#include "parallel/main.h"
#include "parallel/program/process_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Names a flag that only elastic runs have, where it is given; NULL: none is. */
static const char *needs_elastic(const wf_process *p)
{
    return p->min_dp > 1         ? "min-dp"
           : p->rejoin_after     ? "rejoin-after"
           : p->run.recovery_dir ? "recovery-dir"
           : p->nnodes           ? "nnodes"
                                 : NULL;
}

wf_status wf_process_check(const wf_process *p, wf_error *error)
{
    int dp = wf_process_shape_of((wf_process *)(uintptr_t)p).dp; /* only read */
    int processes = wf_launcher_detected().processes;

    if (!p->is_elastic)
        return needs_elastic(p) ? wf_error_set(error, WF_EINVAL,
                                               "--%s belongs to --elastic on; use it with that",
                                               needs_elastic(p))
                                : WF_OK;
    if (!p->job.steps)
        return wf_error_set(error, WF_EINVAL,
                            "--elastic on is of a run that trains, and --steps is 0");
    if (wf_par_job_check_elastic(&p->job, dp, p->min_dp, error) != WF_OK)
        return error->code;
    if (p->nnodes && !p->run.recovery_dir)
        return wf_error_set(error, WF_EINVAL, "--nnodes belongs to --recovery-dir");
    if (processes > 1 && !p->run.recovery_dir)
        return wf_error_set(error, WF_EINVAL,
                            "--elastic on of %d processes keeps what they hold in memory of "
                            "their hosts: give --recovery-dir DIR, as /dev/shm/weft-run1",
                            processes);
    return WF_OK;
}

/* Closes what the process has opened; keeps the error of the run. */
static void close_all(wf_process *p, wf_error *error)
{
    wf_error closing = {WF_OK, ""};

    wf_process_close_timeline(p);
    if (wf_run_log_close(p->log, &closing) != WF_OK && error->code == WF_OK)
        *error = closing;
    p->log = NULL;
    wf_par_snapshot_close(p->elastic.from); /* left by a start that failed */
    p->elastic.from = NULL;
    wf_resume_close(&p->checkpoints);
    free(p->elastic.job);
    p->elastic.job = NULL;
}

wf_status wf_process_run(wf_process *p, wf_launch_end *end, wf_error *error)
{
    p->elastic.recovery_dir = p->run.recovery_dir;
    *end = (wf_launch_end){.reported = false};
    if (error->code == WF_OK)
        wf_process_open(p, error);
    wf_process_launches(p, end, error);
    if (end->stuck) /* all of it is in use */
        return error->code;
    if (error->code == WF_ENOMEM && !end->reported)
        wf_plan_explain(&p->request, error);
    close_all(p, error);
    if (error->code != WF_OK && p->saved.made)
        wf_folder_withdraw(p->run.saving.save.dir);
    return error->code;
}

int wf_process_end(const wf_process *p, const wf_launch_end *end, const wf_error *error)
{
    return wf_par_main_end(p->program, end, error,
                           wf_saving_exit_status(error->code, &p->saved));
}
