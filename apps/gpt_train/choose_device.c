/* apps/gpt_train/choose_device.c - what --device auto and --threads-per-rank stand for on this machine. */
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

/* What --device auto stands for. Where the CPU serves somebody who asked, that is told in a line. */
wf_status app_choose_device(app_options *o, wf_error *error)
{
    wf_error why = {WF_OK, ""};
    bool choose = strcmp(o->device, "auto") == 0;

    if (o->tf32 && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL, "--tf32 is for GPUs; use --device cuda with it");
    if (o->cuda_graph && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--cuda-graph on is for GPUs; use --device cuda with it");
    if (strcmp(o->device, "cpu") == 0 || (!choose && o->plan))
        return WF_OK;
    if (wf_cuda_count(choose, &why) > 0) {
        snprintf(o->device, sizeof o->device, "cuda");
        return WF_OK;
    }
    if (!choose)
        return wf_error_set(error, why.code, "--device cuda: %s; use --device cpu", why.text);
    if (o->given[APP_OPTION_device] && wf_launcher_detected().process <= 0)
        fprintf(stderr, "device auto: the CPU serves, since %s\n", why.text);
    snprintf(o->device, sizeof o->device, "cpu");
    return WF_OK;
}
