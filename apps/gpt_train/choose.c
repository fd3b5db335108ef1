/* apps/gpt_train/choose.c - chooses a run's device, threads and sums where no flag does; see
   job.h. */
#include "apps/gpt_train/job.h"
#include "parallel/device.h"
#include <sched.h>
#include <string.h>

/* Shares the host's cores out evenly among its ranks; a rank has at least one thread. A process
   that is bound to some of them shares out those. */
static wf_status choose_threads(app_options *o, const wf_launcher *launcher, wf_error *error)
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

static wf_status choose_device(app_options *o, wf_error *error)
{
    const char *device;
    wf_error why = {WF_OK, ""};

    if (o->tf32 && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL, "--tf32 is for GPUs; use --device cuda with it");
    if (o->cuda_graph && strcmp(o->device, "cuda") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--cuda-graph on is for GPUs; use --device cuda with it");
    device = wf_par_device_choose(o->device, o->plan, &why, error);
    if (!device)
        return error->code;
    if (why.code != WF_OK && o->given[APP_OPTION_device] && wf_launcher_detected().process <= 0)
        fprintf(stderr, "device auto: the CPU serves, since %s\n", why.text);
    snprintf(o->device, sizeof o->device, "%s", device);
    return WF_OK;
}

/* Returns what of the data keeps steps from being captured; NULL: nothing. */
static const char *uncaptured_data(const app_job *job)
{
    return job->data && wf_dataset_counts(job->data, WF_DATASET_TRAIN)
               ? "data of which a part is trained on, so that each step has a weight of its own"
               : NULL;
}

/* Returns why the steps of a run on a GPU are not captured; NULL: they are. */
static const char *uncaptured(const app_job *job, bool embedded)
{
    const char *why = app_options_uncaptured(job->options);

    if (why)
        return why;
    if (app_options_ranks(job->options) > 1)
        return "several ranks, whose graphs no GPU has run yet: --cuda-graph on asks for them";
    if (embedded)
        return "batches of the caller";
    return uncaptured_data(job);
}

/* Sets --cuda-graph where the run chooses it: on wherever steps can be captured, which data
   decide, too, and refuses it where it is given and data decide otherwise. A search compares
   layouts, most of which cannot. */
static wf_status choose_graphs(app_job *job, bool embedded, FILE *out, wf_error *error)
{
    app_options *o = job->options;
    bool given = o->given[APP_OPTION_cuda_graph];
    const char *why;

    if (strcmp(o->device, "cuda") != 0 ||
        (given ? !o->cuda_graph : strcmp(o->search, "off") != 0))
        return WF_OK;
    if (app_job_open_data(job, error) != WF_OK)
        return error->code;
    why = given ? uncaptured_data(job) : NULL;
    if (why)
        return wf_error_set(
            error, WF_EINVAL,
            "--cuda-graph on: steps are not captured with %s; use --cuda-graph off", why);
    if (given)
        return WF_OK;
    why = uncaptured(job, embedded);
    o->cuda_graph = !why;
    if (why && out)
        fprintf(out, "steps run op by op, and not as CUDA graphs: %s\n", why);
    return WF_OK;
}

/* Sets --accumulate and --micro-batch-size; a line for each on `out`, where it is not NULL. */
static void choose_sums(app_job *job, FILE *out)
{
    app_options *o = job->options;
    wf_plan_request *r = app_job_request(job);

    wf_plan_choose_sums(r, out);
    o->micro_batch_size = r->micro_batch_size;
    snprintf(o->accumulate, sizeof o->accumulate, "%s", r->accumulate);
}

/* Sets --device, --cuda-graph, --threads-per-rank, --accumulate and --micro-batch-size where
   the run chooses them; prints lines about that where `say`. Errors: WF_EINVAL, those of
   wf_topology_read and app_job_open_data */
static wf_status choose(app_job *job, const wf_process *p, bool say, wf_error *error)
{
    app_options *o = job->options;

    if (choose_device(o, error) != WF_OK || choose_threads(o, &p->launcher, error) != WF_OK ||
        choose_graphs(job, p->is_embedded, say && !o->plan ? stdout : NULL, error) != WF_OK)
        return error->code;
    if (say)
        app_options_warn(o, stderr);
    if (!o->plan) /* a plan has its own choice for each strategy */
        choose_sums(job, say ? stdout : NULL);
    return WF_OK;
}

wf_status app_job_prepare(app_job *job, wf_process *p, wf_error *error)
{
    app_options *o = job->options;

    if ((!o->fit_nodes && !o->calibrate && app_job_open_texts(job, error) != WF_OK) ||
        app_job_process(job, p, error) != WF_OK ||
        (!o->plan && wf_process_check(p, error) != WF_OK))
        return error->code;
    if (app_job_moves_nothing(o)) {
        p->launcher = (wf_launcher){.kind = "threads", .processes = 1, .local = 1};
    } else {
        if (!o->fit_nodes && wf_process_fit_started(p, error) != WF_OK)
            return error->code;
        app_job_take_mesh(o, &p->job);
        if (wf_launcher_choose(p->started, p->transport, (int)app_options_ranks(o),
                               &p->launcher, error) != WF_OK)
            return error->code;
    }
    return choose(job, p, p->launcher.process <= 0 && !o->fit_nodes && !p->is_embedded, error);
}
