/* mesh/cluster/meet.c - processes of a launcher that meet though they launch no ranks. */
#include "mesh/cluster/launch.h"
#include "mesh/transport/launcher.h"
#include <stddef.h>

/* Runs nothing: the rank_main of a process that has no ranks to run. */
static wf_status nothing(wf_rank *rank, void *arg)
{
    (void)rank;
    (void)arg;
    return WF_OK;
}

bool wf_launch_meet(const wf_job *job, wf_error *error)
{
    const wf_launcher launcher = wf_launcher_detected();
    wf_launch_end end = {.reported = wf_launcher_reports_elsewhere()};
    wf_error all = {WF_OK, ""};
    wf_job *mine = launcher.processes > 1 ? wf_job_new() : NULL;

    if (!mine)
        return end.reported;
    if (error->code != WF_OK)
        wf_job_fail(mine, error);
    else
        wf_job_append(mine, job);
    wf_launch(&(wf_launch_options){.ranks = launcher.processes, .job = mine, .end = &end},
              nothing, NULL, &all);
    wf_job_free(mine);
    /* without a meeting the first process reports its own error */
    if (all.code == WF_OK || (all.code != WF_EMISMATCH && all.code != error->code))
        return wf_launcher_reports_elsewhere();
    *error = all;
    return end.reported;
}
