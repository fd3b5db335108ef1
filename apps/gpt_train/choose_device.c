/* apps/gpt_train/choose_device.c - what --device auto and --threads-per-rank stand for on this
   machine. */
#include "apps/device.h"
#include "apps/gpt_train/setup.h"
#include <sched.h>
#include <string.h>

/* The host's cores are shared out evenly among its ranks; a rank has at least one thread. A
   process that is bound to some of them shares out those. */
wf_status app_choose_threads(app_options *o, const wf_launcher *launcher, wf_error *error)
{
    int64_t ranks = app_options_ranks(o) / launcher->processes;
    int64_t local = launcher->local ? launcher->local : launcher->processes;
    wf_topology machine;
    cpu_set_t set;

    if (o->threads_per_rank)
        return WF_OK;
    if (wf_topology_read(NULL, &machine, error) != WF_OK)
        return error->code;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < machine.threads &&
        local > 1) {
        machine.cores = CPU_COUNT(&set);
        local = 1;
    }
    o->threads_per_rank = machine.cores > ranks * local ? machine.cores / (ranks * local) : 1;
    return WF_OK;
}

wf_status app_choose_device(app_options *o, wf_error *error)
{
    const char *device;

    if (o->tf32 && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL, "--tf32 is for GPUs; use --device cuda with it");
    if (o->cuda_graph && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--cuda-graph on is for GPUs; use --device cuda with it");
    device = app_device_choose(o->device, o->plan, o->given[APP_OPTION_device], error);
    if (!device)
        return error->code;
    snprintf(o->device, sizeof o->device, "%s", device);
    return WF_OK;
}
