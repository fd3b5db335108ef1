/* parallel/program/process_shape.c - meshes of a process's job for the ranks that there are;
   see process_internal.h. */
#include "parallel/program/process_internal.h"
#include "parallel/recovery/elastic_files.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the outermost axis of the job's own that splits the batch; -1: there is none.
   inner: ranks of the others. */
static int dp_axis(const wf_par_options *o, int64_t *inner)
{
    int found = -1;

    *inner = 1;
    for (int i = 0; o->axes && o->axes[i].name; i++)
        if (!wf_par_splits_batch(o, o->axes[i].name))
            continue;
        else if (found < 0)
            found = i;
        else
            *inner *= o->axes[i].size;
    return found;
}

wf_process_shape wf_process_shape_of(wf_process *p)
{
    const wf_par_options *o = &p->job.mesh;
    int64_t inner;
    int at = dp_axis(o, &inner);

    return (wf_process_shape){.process = p,
                              .dp = at >= 0             ? o->axes[at].size
                                    : o->axes || !o->dp ? 1
                                                        : o->dp,
                              .dp_replicate = o->dp_replicate,
                              .micro_batch = p->job.train.micro_batch,
                              .accumulate = o->accumulate,
                              .accumulate_group = o->accumulate_group};
}

/* Splits experts over as many of the data-parallel ranks that are left as divide them, at most
   over those that were asked for. */
static void fit_experts(wf_par_options *o)
{
    const int inner = o->tp > 1 && o->etp <= 1 ? o->tp : 1;
    int part = o->ep / inner, replicate, shard = 0;

    if (part <= 1 || wf_par_axes(o, &replicate, &shard, NULL) != WF_OK)
        return;
    while (part > 1 && (shard > 1 ? shard : o->dp) % part)
        part--;
    o->ep = part * inner;
    if (part == 1 && o->dispatch == WF_PAR_DISPATCH_EXCHANGE)
        o->dispatch = WF_PAR_DISPATCH_AUTO;
}

/* Sets the mesh of a shape; axes: room for those of the job's own. */
static void give_mesh(const wf_process_shape *s, wf_par_options *o, wf_axis *axes)
{
    int64_t inner;
    int at = dp_axis(o, &inner), n = 0;
    const bool smaller = !o->axes && s->dp < o->dp;

    if (o->axes && o->axes != axes) {
        for (; o->axes[n].name; n++)
            axes[n] = o->axes[n];
        axes[n] = (wf_axis){NULL, 0};
        o->axes = axes;
    }
    if (at >= 0)
        axes[at].size = s->dp;
    else if (!o->axes)
        o->dp = s->dp;
    o->dp_replicate = s->dp_replicate;
    if (smaller)
        fit_experts(o);
    o->accumulate = s->accumulate;
    o->accumulate_group = s->accumulate_group;
}

/* Sets the same in a request. */
static void give_settings(const wf_process_shape *s, const wf_par_job *job, wf_plan_request *r)
{
    wf_plan_request shaped;

    wf_plan_request_of(job, &shaped);
    r->job.mesh = job->mesh;
    r->dp = shaped.dp;
    r->ep = shaped.ep;
    r->dp_replicate = s->dp_replicate;
    r->micro_batch_size = shaped.micro_batch_size;
    memcpy(r->accumulate, shaped.accumulate, sizeof r->accumulate);
    if (r->rank >= wf_plan_ranks(r))
        r->rank = wf_plan_ranks(r) - 1;
}

void wf_process_shaped(const wf_process_shape *s, wf_process_launch *l)
{
    wf_process *p = s->process;

    *l = (wf_process_launch){.process = p, .job = p->job, .request = p->request};
    give_mesh(s, &l->job.mesh, l->axes);
    l->job.train.micro_batch = s->micro_batch;
    give_settings(s, &l->job, &l->request);
}

void wf_process_mesh_name(const void *shape, char *text, size_t size)
{
    wf_process_launch *l = malloc(sizeof *l);
    const wf_par_options *o = l ? &l->job.mesh : NULL;
    size_t n = 0;

    *text = 0;
    if (l)
        wf_process_shaped(shape, l);
    if (o && !o->axes)
        snprintf(text, size,
                 o->cp > 1 ? "--pp %d --dp %d --tp %d --cp %d" : "--pp %d --dp %d --tp %d",
                 o->pp, o->dp, o->tp, o->cp);
    if (o && !o->axes && o->ep)
        snprintf(text + strlen(text), size - strlen(text), " --ep %d", o->ep);
    for (int i = 0; o && o->axes && o->axes[i].name && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s--%s %d", i ? " " : "", o->axes[i].name,
                              o->axes[i].size);
    free(l);
}

static int64_t count_ranks(const void *shape)
{
    const wf_process_shape *s = shape;
    wf_par_options o = s->process->job.mesh;
    wf_axis axes[WF_MAX_AXES + 1];

    give_mesh(s, &o, axes);
    return wf_par_ranks(&o);
}

typedef struct shrinking {
    const wf_process_shape *asked;
    wf_process_shape *shape; /* the one that was tried last */
} shrinking;

/* Returns whether the numbers of the run stay what they are, and it fits where there is a
   limit. */
static bool serves(const wf_plan_request *r)
{
    size_t most = r->device_memory ? (size_t)r->device_memory : r->job.mesh.memory_limit;
    wf_plan run;

    return wf_plan_request_serves(r, &run) && (!most || run.report.memory.peak <= most);
}

/* Tries micro-batches of one sequence as well, with which any number of ranks has the numbers
   of one. */
static bool shape_serves(void *arg, const wf_elastic_shape *shape)
{
    const shrinking *s = arg;
    wf_process_shape *p = s->shape;
    wf_process_launch *l = malloc(sizeof *l);
    bool found;

    *p = *s->asked;
    p->dp = (int)shape->dp;
    p->dp_replicate = (int)shape->dp_replicate;
    p->micro_batch = shape->micro_batch;
    if (!l)
        return false;
    wf_process_shaped(p, l);
    found = serves(&l->request) || wf_plan_choose_single(&l->request, serves);
    if (found) {
        const char *accumulate = l->request.accumulate;

        p->micro_batch = l->request.micro_batch_size;
        p->accumulate =
            (wf_par_accumulate)wf_plan_word_value(WF_SETTING_accumulate, accumulate);
        p->accumulate_group = wf_plan_group(accumulate);
    }
    free(l);
    return found;
}

/* Writes the axes of a mesh that stay as they are. */
static void name_others(const wf_process_shape *s, char *text, size_t size)
{
    const wf_par_options *o = &s->process->job.mesh;
    int64_t inner;
    int at = dp_axis(o, &inner);
    size_t n = 0;

    if (!o->axes)
        snprintf(text, size, o->cp > 1 ? "--tp %d --pp %d --cp %d" : "--tp %d --pp %d", o->tp,
                 o->pp, o->cp);
    *text = o->axes ? 0 : *text;
    for (int i = 0; o->axes && o->axes[i].name && n < size; i++)
        if (i != at)
            n += (size_t)snprintf(text + n, size - n, "%s--%s %d", n ? " " : "",
                                  o->axes[i].name, o->axes[i].size);
}

static wf_status shrink(void *shape, int64_t ranks, wf_error *error)
{
    wf_process_shape *s = shape;
    const wf_process_shape asked = *s;
    const wf_process *p = s->process;
    int64_t inner;
    wf_elastic_shape e = {.dp = s->dp,
                          .others = count_ranks(s) / s->dp,
                          .dp_replicate = s->dp_replicate,
                          .shard_group_size = p->job.mesh.shard_group_size,
                          .micro_batch = s->micro_batch};
    char others[400];

    dp_axis(&p->job.mesh, &inner);
    e.global_batch = p->job.train.global_batch / inner;
    if (!e.micro_batch) /* one micro-step */
        e.micro_batch = e.global_batch / e.dp ? e.global_batch / e.dp : 1;
    name_others(s, others, sizeof others);
    if (wf_elastic_shrink(&e, ranks, p->min_dp, shape_serves, &(shrinking){&asked, s}, others,
                          error) != WF_OK)
        *s = asked;
    return error->code;
}

const wf_elastic_meshes wf_process_meshes = {.size = sizeof(wf_process_shape),
                                             .ranks = count_ranks,
                                             .shrink = shrink,
                                             .name = wf_process_mesh_name};

wf_status wf_process_fit(wf_process *p, int *processes, wf_error *error)
{
    wf_process_shape s = wf_process_shape_of(p);
    int64_t asked = p->nnodes ? p->nnodes : *processes;

    if (wf_elastic_processes(&wf_process_meshes, &s, asked, processes, error) != WF_OK)
        return error->code;
    give_mesh(&s, &p->job.mesh, p->axes);
    p->job.train.micro_batch = s.micro_batch;
    give_settings(&s, &p->job, &p->request);
    return WF_OK;
}

/* Warns, once, where a process has all ranks of a stage: neither buddies nor replicas of it are
   elsewhere. */
static void warn_of_stages(const wf_process *p, int processes)
{
    const wf_par_options *o = &p->job.mesh;
    int64_t ranks = wf_par_ranks(o), stage = o->pp ? ranks / o->pp : ranks;
    char text[400];

    if (p->launcher.process || processes < 2 || o->axes || o->pp < 2 ||
        stage > ranks / processes || p->order_given)
        return;
    snprintf(
        text, sizeof text,
        "all %" PRId64 " ranks of a stage are in one process, so that a host that is lost "
        "takes its part of the model along, and the run continues from a checkpoint: use a "
        "smaller --pp, or more hosts than stages",
        stage);
    wf_par_warn((void *)(uintptr_t)p->program, text);
}

wf_status wf_process_fit_started(wf_process *p, wf_error *error)
{
    int started = wf_launcher_detected().processes, processes = started;

    if (!p->run.recovery_dir)
        return WF_OK;
    if (wf_process_fit(p, &processes, error) == WF_OK && processes < started)
        wf_error_set(error, WF_EINVAL,
                     "%d processes are started, and this run can use %d of them: start that "
                     "many (--fit-nodes prints it)",
                     started, processes);
    else if (error->code == WF_OK && !wf_elastic_files_restarts())
        warn_of_stages(p, started);
    return error->code;
}
