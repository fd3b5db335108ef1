/* parallel/program/process.c - a run of a job in one process; see the header. */
#include "parallel/checkpoint/folder_lock.h"
#include "parallel/main.h"
#include "parallel/program/process_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether a data-parallel rank that is lost takes a part of the state along, which may
   be its experts'; of axes of the job's own only the model knows. */
static bool is_alone(const wf_process *p)
{
    const wf_par_options *o = &p->job.mesh;
    const char *name = o->strategy ? o->strategy : WF_PAR_STRATEGY;
    const wf_par_strategy *strategy;
    wf_axis axes[WF_MAX_AXES];
    bool split = o->ep > 0 && o->ep * (o->etp > 1 ? o->etp : 1) > o->tp, copied = false;
    wf_error ignored = {WF_OK, ""};
    int n, i = 0;

    while ((strategy = wf_par_strategy_at(i++)) && strcmp(strategy->name, name) != 0)
        continue;
    if (o->axes || p->job.train.redundancy != WF_PAR_REDUNDANCY_NONE || !strategy)
        return false;
    split |=
        strategy->split_parameters || strategy->split_gradients || strategy->split_optimizer;
    n = wf_par_mesh_axes(o, axes, &ignored);
    for (i = 0; i < n; i++)
        copied |= strcmp(axes[i].name, "replicate") == 0 && axes[i].size > 1;
    return split && n > 0 && !copied;
}

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
    if (p->min_dp > dp)
        return wf_error_set(error, WF_EINVAL, "--min-dp %" PRId64 " is more than --dp %d",
                            p->min_dp, dp);
    if (dp == 1 || is_alone(p))
        return wf_error_set(
            error, WF_EINVAL,
            "--elastic on continues with what other data parallel ranks hold, and %s",
            dp == 1 ? "--dp is 1: use --dp 2 or more"
                    : "here each holds its own shard, or its own experts: use --redundancy "
                      "buddy, or --strategy no_shard or hybrid_shard, which keep copies, of "
                      "experts where --ep splits them over a part of these ranks");
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
