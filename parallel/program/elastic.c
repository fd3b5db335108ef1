/* parallel/program/elastic.c - a program's launches, on meshes for the ranks that there are;
   see services_internal.h. */
#include "mesh/transport/launcher.h"
#include "parallel/plan/request.h"
#include "parallel/program/services_internal.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/signal_requests.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double GRACE = 0.7; /* s, in which ranks leave their state */

/* ---- the mesh ---- */

/* Returns the outermost axis of the program's own that splits the batch; -1: there is none.
   inner: ranks of the others. */
static int dp_axis(const wf_services *s, int64_t *inner)
{
    int found = -1;

    *inner = 1;
    for (int i = 0; s->start.options.axes && s->start.axis[i].name; i++)
        if (!wf_par_splits_batch(&s->start.options, s->start.axis[i].name))
            continue;
        else if (found < 0)
            found = i;
        else
            *inner *= s->start.axis[i].size;
    return found;
}

void wf_services_shaped(const wf_services_shape *p, wf_services_launch *l)
{
    wf_services *s = p->services;
    wf_par_options *mesh = &l->job.mesh;
    int64_t inner;
    int at = dp_axis(s, &inner);

    *l = (wf_services_launch){
        .services = s, .shape = *p, .start = s->start, .job = s->program->job};
    if (mesh->axes)
        mesh->axes = l->start.axis;
    if (at >= 0)
        l->start.axis[at].size = p->dp;
    else if (!mesh->axes)
        mesh->dp = p->dp;
    mesh->dp_replicate = p->dp_replicate;
    mesh->accumulate = p->accumulate;
    mesh->accumulate_group = p->accumulate_group;
    l->job.train.micro_batch = p->micro_batch;
    l->start.options = *mesh;
}

void wf_services_mesh_name(const void *shape, char *text, size_t size)
{
    wf_services_launch l;
    size_t n = 0;

    wf_services_shaped(shape, &l);
    if (!l.job.mesh.axes)
        snprintf(text, size, "--pp %d --dp %d --tp %d", l.job.mesh.pp, l.job.mesh.dp,
                 l.job.mesh.tp);
    for (int i = 0; l.job.mesh.axes && l.start.axis[i].name && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s--%s %d", i ? " " : "",
                              l.start.axis[i].name, l.start.axis[i].size);
}

static int64_t count_ranks(const void *shape)
{
    wf_services_launch l;

    wf_services_shaped(shape, &l);
    return wf_par_ranks(&l.job.mesh);
}

typedef struct shrinking {
    const wf_services_shape *asked;
    wf_services_shape *shape; /* the one that was tried last */
} shrinking;

/* Returns whether the numbers of the run stay what they are, and it fits where there is a
   limit. */
static bool serves(const wf_plan_request *r)
{
    size_t most = r->job.mesh.memory_limit;
    wf_plan run;

    return wf_plan_request_serves(r, &run) && (!most || run.report.memory.peak <= most);
}

/* Tries micro-batches of one sequence as well, with which any number of ranks has the numbers
   of one. */
static bool shape_serves(void *arg, const wf_elastic_shape *shape)
{
    const shrinking *s = arg;
    wf_services_shape *p = s->shape;
    wf_services_launch l;
    wf_plan_request r;

    *p = *s->asked;
    p->dp = (int)shape->dp;
    p->dp_replicate = (int)shape->dp_replicate;
    p->micro_batch = shape->micro_batch;
    wf_services_shaped(p, &l);
    wf_plan_request_of(&l.job, &r);
    if (!serves(&r) && !wf_plan_choose_single(&r, serves))
        return false;
    p->micro_batch = r.micro_batch_size;
    p->accumulate = (wf_par_accumulate)wf_plan_word_value(WF_SETTING_accumulate, r.accumulate);
    p->accumulate_group = wf_plan_group(r.accumulate);
    return true;
}

static wf_status shrink(void *shape, int64_t ranks, wf_error *error)
{
    wf_services_shape *p = shape;
    const wf_services_shape asked = *p;
    const wf_services *s = p->services;
    int64_t inner, batch = s->program->job.train.global_batch;
    wf_elastic_shape e = {.dp = p->dp,
                          .others = count_ranks(p) / p->dp,
                          .dp_replicate = p->dp_replicate,
                          .shard_group_size = s->start.options.shard_group_size,
                          .micro_batch = p->micro_batch};
    char others[400];

    dp_axis(s, &inner);
    e.global_batch = batch / inner;
    if (!e.micro_batch) /* one micro-step */
        e.micro_batch = e.global_batch / e.dp ? e.global_batch / e.dp : 1;
    snprintf(others, sizeof others, "the other axes of ");
    wf_services_mesh_name(p, others + strlen(others), sizeof others - strlen(others));
    if (wf_elastic_shrink(&e, ranks, s->min_dp, shape_serves, &(shrinking){&asked, p}, others,
                          error) != WF_OK)
        *p = asked;
    return error->code;
}

const wf_elastic_meshes wf_services_meshes = {.size = sizeof(wf_services_shape),
                                              .ranks = count_ranks,
                                              .shrink = shrink,
                                              .name = wf_services_mesh_name};

wf_status wf_services_fit(wf_services *s, int *processes, wf_error *error)
{
    return wf_elastic_processes(&wf_services_meshes, &s->shape,
                                s->nnodes ? s->nnodes : *processes, processes, error);
}

/* ---- the flags ---- */

/* Returns whether a data-parallel rank that is lost takes a part of the state along; of axes of
   the program's own only the model knows. */
static bool is_alone(const wf_services *s)
{
    const wf_par_options *o = &s->start.options;
    const char *name = o->strategy ? o->strategy : WF_PAR_STRATEGY;
    const wf_par_strategy *strategy;
    int replicate = 1, shard = 1, i = 0;
    wf_error ignored = {WF_OK, ""};

    while ((strategy = wf_par_strategy_at(i++)) && strcmp(strategy->name, name) != 0)
        continue;
    return !o->axes && s->program->job.train.redundancy == WF_PAR_REDUNDANCY_NONE && strategy &&
           (strategy->split_parameters || strategy->split_gradients ||
            strategy->split_optimizer) &&
           wf_par_axes(o, &replicate, &shard, &ignored) == WF_OK && replicate == 1;
}

static wf_status take_choices(wf_services *s, wf_error *error)
{
    const char *redundancy = s->redundancy;

    if (wf_services_switch("elastic", s->elastic_text, &s->is_elastic, error) != WF_OK)
        return error->code;
    if (strcmp(redundancy, "buddy") == 0)
        s->program->job.train.redundancy = WF_PAR_REDUNDANCY_BUDDY;
    else if (strcmp(redundancy, "none") == 0)
        s->program->job.train.redundancy = WF_PAR_REDUNDANCY_NONE;
    else
        return wf_error_set(error, WF_EINVAL, "--redundancy %s: none or buddy", redundancy);
    return WF_OK;
}

/* Sets the shape of the mesh that was asked for. */
static void take_shape(wf_services *s)
{
    const wf_par_options *o = &s->start.options;
    int64_t inner;
    int at = dp_axis(s, &inner);

    s->shape = (wf_services_shape){.services = s,
                                   .dp = at >= 0 ? s->start.axis[at].size : o->dp,
                                   .dp_replicate = o->dp_replicate,
                                   .micro_batch = s->program->job.train.micro_batch,
                                   .accumulate = o->accumulate,
                                   .accumulate_group = o->accumulate_group};
    if (o->axes && at < 0)
        s->shape.dp = 1;
}

wf_status wf_services_check_elastic(wf_services *s, wf_error *error)
{
    if (take_choices(s, error) != WF_OK)
        return error->code;
    take_shape(s);
    if (!s->is_elastic &&
        (s->min_dp > 1 || s->rejoin_after || s->recovery_dir || s->nnodes || s->fit_nodes))
        return wf_error_set(error, WF_EINVAL, "--%s belongs to --elastic on; use it with that",
                            s->min_dp > 1     ? "min-dp"
                            : s->rejoin_after ? "rejoin-after"
                            : s->recovery_dir ? "recovery-dir"
                            : s->nnodes       ? "nnodes"
                                              : "fit-nodes");
    if (!s->is_elastic || s->plan)
        return WF_OK;
    if (!s->program->job.steps)
        return wf_error_set(error, WF_EINVAL,
                            "--elastic on is of a run that trains, and --steps is 0");
    if (s->min_dp > s->shape.dp)
        return wf_error_set(error, WF_EINVAL, "--min-dp %" PRId64 " is more than --dp %d",
                            s->min_dp, s->shape.dp);
    if (s->shape.dp == 1 || is_alone(s))
        return wf_error_set(
            error, WF_EINVAL,
            "--elastic on goes on with what other data parallel ranks hold, and %s",
            s->shape.dp == 1
                ? "--dp is 1: use --dp 2 or more"
                : "of this strategy each holds its own shard: use --redundancy buddy, or "
                  "--strategy no_shard or hybrid_shard, which keep copies");
    if (s->nnodes && !s->recovery_dir)
        return wf_error_set(error, WF_EINVAL, "--nnodes belongs to --recovery-dir");
    if (wf_launcher_detected().processes > 1 && !s->recovery_dir)
        return wf_error_set(error, WF_EINVAL,
                            "--elastic on of %d processes keeps what they hold in memory of "
                            "their hosts: give --recovery-dir DIR, as /dev/shm/weft-run1",
                            wf_launcher_detected().processes);
    return WF_OK;
}

/* ---- launches ---- */

/* Reports a failure of the ranks, in one process of all, unless another launch of this process
   may follow. */
static void report(const wf_error *error, void *launch)
{
    wf_services *s = ((wf_services_launch *)launch)->services;

    wf_elastic_lost(&s->elastic, 0);
    if (!s->elastic.into || s->recovery_dir)
        wf_par_report_line(s->start.program, "%s%s", error->text,
                           wf_elastic_whole(&s->elastic) ? "; the run had come to its end"
                                                         : "");
}

/* Runs a rank of a launch. Collective. */
static wf_status run_rank(wf_par *par, void *launch)
{
    return wf_run_rank(par, &((const wf_services_launch *)launch)->run);
}

/* A wf_elastic_launch. */
static wf_status launch(const void *shape, void *services, wf_launch_end *end, wf_error *error)
{
    wf_services *s = services;
    wf_services_launch *l = malloc(sizeof *l);

    if (!l)
        return wf_error_set(error, WF_ENOMEM, "no memory for a launch");
    wf_services_shaped(shape, l);
    s->start.alike = NULL; /* the launch frees it */
    l->start.function = run_rank;
    l->start.arg = l;
    l->start.report = report;
    l->start.grace = s->recovery_dir ? GRACE : 0;
    if (error->code == WF_OK)
        wf_par_job_pipeline(&l->job, &l->pipeline, error);
    wf_services_describe(l);
    if (!s->save && wf_launcher_detected().processes > 1)
        wf_signal_requests_linger();
    wf_par_start_launch(&l->start, end, error);
    if (end->stuck) /* they use it */
        return error->code;
    wf_par_pipeline_free(l->pipeline);
    free(l);
    return error->code;
}

/* Makes anew what depends on the mesh; wf_elastic_run.prepare. */
static wf_status prepare(const void *shape, void *services, wf_error *error)
{
    wf_services *s = services;

    (void)shape;
    wf_saving_failed(&s->saved, false);
    if (s->elastic.incomplete) {
        wf_resume_close(&s->resume_from);
        if (wf_services_open_checkpoints(s, error) == WF_OK && !s->resume_from.count)
            wf_error_set(error, WF_EDATA, "there is no checkpoint to go on from");
        if (error->code != WF_OK)
            return error->code;
    }
    wf_timeline_close(s->timeline, error);
    s->timeline = NULL;
    if (error->code == WF_OK)
        wf_run_log_close(s->log, error);
    s->log = NULL;
    return error->code == WF_OK ? wf_services_open_log(s, true, error) : error->code;
}

void wf_services_run(wf_services *s, wf_launch_end *end, wf_error *error)
{
    const wf_elastic_run run = {.asked = &s->shape,
                                .meshes = &wf_services_meshes,
                                .steps = s->program->job.steps,
                                .rejoin_after = s->rejoin_after,
                                .elastic = &s->elastic,
                                .launch = launch,
                                .prepare = prepare,
                                .job = s};

    if (error->code != WF_OK) { /* other processes hear of it */
        wf_par_start_launch(&s->start, end, error);
    } else if (!s->is_elastic) {
        launch(&s->shape, s, end, error);
    } else if (s->recovery_dir) { /* one process too may be what is left of several */
        wf_signal_requests_outlast(true);
        wf_elastic_train_process(&run, end, error);
        wf_signal_requests_outlast(false);
    } else {
        wf_elastic_train(&run, end, error);
        end->reported = false; /* the launches have left that to the last one */
    }
}
