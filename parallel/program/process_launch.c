/* parallel/program/process_launch.c - a process's launches of the ranks: one, or of an elastic
   run one after another; see process_internal.h. */
#include "mesh/health/flight_recorder.h"
#include "parallel/program/process_internal.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/signal_requests.h"
#include <stdlib.h>

static const double GRACE = 0.7; /* s, in which ranks leave their state */

/* Reports a failure, and where the recorders of the ranks are; not where another launch of this
   process may follow, which does. */
static void report_failure(wf_process *p, const wf_error *error)
{
    char directory[400], more[500] = "";
    wf_error failed = *error;

    wf_elastic_lost(&p->elastic, 0);
    if (p->is_embedded || (p->elastic.into && !p->run.recovery_dir))
        return;
    wf_recordings_directory(p->recorder_dir, directory, sizeof directory);
    if (wf_elastic_whole(&p->elastic))
        snprintf(more, sizeof more, "; the run had reached its end");
    else if (wf_recorder_written() > 0)
        snprintf(more, sizeof more, "; recorder_diff %s/rank-*.rec shows more", directory);
    if (failed.code == WF_ENOMEM)
        wf_plan_explain(&p->request, &failed);
    wf_par_flush();
    wf_par_report_line(p->program, "%s%s", failed.text, more);
}

static void report(const wf_error *error, void *launch)
{
    report_failure(((const wf_process_launch *)launch)->process, error);
}

/* Runs a rank of a launch. Collective. */
static wf_status run_rank(wf_par *par, void *launch)
{
    return wf_run_rank(par, &((const wf_process_launch *)launch)->run);
}

/* Fills in what ranks are given. */
static void describe_run(wf_process_launch *l)
{
    wf_process *p = l->process;
    wf_run *run = &l->run;
    int64_t ranks = wf_par_ranks(&l->job.mesh);

    *run = p->run;
    run->job = &l->job;
    run->pipeline = l->pipeline;
    run->mesh = l->mesh;
    run->rank = run->rank < ranks ? run->rank : (int)ranks - 1;
    run->traced = p->trace != NULL;
    run->numerics = p->numerics;
    run->continues = wf_process_continues(p);
    run->saving.program = p->program;
    run->saving.out = run->out;
    run->saving.looks = wf_resume_looks(&p->resume);
    run->saving.numerics = p->numerics;
    run->log = p->log;
    run->timeline = p->timeline;
    run->resume = &p->checkpoints;
    run->saved = &p->saved;
    run->elastic = &p->elastic;
}

/* Plans which axes move most, by which ranks of several processes are placed. What cannot be
   planned cannot be run, and says so then. */
static void plan_traffic(wf_process_launch *l)
{
    wf_launch_options *launch = &l->start.launch;
    wf_error ignored = {WF_OK, ""};
    wf_axis axes[WF_MAX_AXES];
    int n = wf_par_mesh_axes(&l->job.mesh, axes, &ignored);

    if (l->process->launcher.processes < 2 || !n ||
        wf_plan_request_step(&l->request, &l->plan, &ignored) != WF_OK ||
        l->plan.report.n_traffic < n)
        return;
    for (int i = 0; i < n; i++) {
        const wf_par_traffic *t = &l->plan.report.traffic[i];

        l->placed[i] =
            (wf_placement_axis){t->axis, t->ranks, wf_comm_counters_received(&t->counters)};
    }
    launch->n_axes = n;
    launch->axis = l->placed;
}

/* Sets how the ranks of a launch are started. */
static void describe_start(wf_process_launch *l)
{
    wf_process *p = l->process;

    l->job.mesh.pace = p->pace;
    l->start = (wf_par_start){.program = p->program,
                              .options = l->job.mesh,
                              .launch = {.launcher = p->started,
                                         .transport = p->transport,
                                         .threads = p->bind_ranks ? l->job.mesh.threads : 0,
                                         .order = p->run.recovery_dir && !p->order_given
                                                      ? WF_ORDER_STARTED
                                                      : p->order,
                                         .stall_timeout = p->stall_timeout,
                                         .grace = p->run.recovery_dir ? GRACE : 0},
                              .is_embedded = p->is_embedded,
                              .quiet = *p->elastic.report || wf_elastic_files_restarts(),
                              .function = run_rank,
                              .arg = l,
                              .report = report};
    if (p->compare && p->launcher.processes > 1) {
        l->start.alike = wf_job_new();
        p->compare(p->arg, p, l->start.alike);
    }
    plan_traffic(l);
}

/* A wf_elastic_launch. */
static wf_status launch(const void *shape, void *process, wf_launch_end *end, wf_error *error)
{
    wf_process *p = process;
    wf_process_launch *l = malloc(sizeof *l);
    char directory[400];

    if (!l)
        return wf_error_set(error, WF_ENOMEM, "no memory for a launch");
    wf_process_shaped(shape, l);
    wf_process_mesh_name(shape, l->mesh, sizeof l->mesh);
    wf_recordings_directory(p->recorder_dir, directory, sizeof directory);
    if (!p->recorder_dir && wf_launcher_detected().local_process == 0)
        wf_recordings_forget();
    if (!p->run.saving.save.dir && p->launcher.processes > 1)
        wf_signal_requests_linger();
    if (error->code == WF_OK && wf_recorder_files(directory, !p->is_embedded, error) == WF_OK)
        wf_par_job_pipeline(&l->job, &l->pipeline, error);
    describe_start(l);
    describe_run(l);
    if (error->code != WF_OK && p->launcher.processes > 1) { /* the launch informs the others */
        if (!l->start.alike)
            l->start.alike = wf_job_new();
        wf_job_fail(l->start.alike, error);
        *error = (wf_error){WF_OK, ""};
    }
    wf_par_start_launch(&l->start, end, error);
    if (end->stuck) /* they use it */
        return error->code;
    wf_par_pipeline_free(l->pipeline);
    free(l);
    return error->code;
}

/* Makes anew what depends on the mesh; wf_elastic_run.prepare. */
static wf_status prepare(const void *shape, void *process, wf_error *error)
{
    wf_process *p = process;

    wf_saving_failed(&p->saved, false);
    if (p->elastic.incomplete) {
        wf_resume_close(&p->checkpoints);
        if (wf_process_open_checkpoints(p, error) == WF_OK && !p->checkpoints.count)
            wf_error_set(error, WF_EDATA, "there is no checkpoint to continue from");
        if (error->code != WF_OK)
            return error->code;
    }
    wf_process_close_timeline(p);
    wf_run_log_close(p->log, error);
    p->log = NULL;
    return error->code == WF_OK ? wf_process_open_log(p, shape, true, error) : error->code;
}

void wf_process_launches(wf_process *p, wf_launch_end *end, wf_error *error)
{
    const wf_process_shape shape = wf_process_shape_of(p);
    const wf_elastic_run run = {.asked = &shape,
                                .meshes = &wf_process_meshes,
                                .steps = p->job.steps,
                                .rejoin_after = p->rejoin_after,
                                .elastic = &p->elastic,
                                .launch = launch,
                                .prepare = prepare,
                                .job = p};

    if (error->code != WF_OK && !p->job.model) { /* there is nothing to launch */
        wf_par_start_launch(&(wf_par_start){.program = p->program}, end, error);
    } else if (error->code != WF_OK || !p->is_elastic) {
        launch(&shape, p, end, error);
    } else if (p->run.recovery_dir) { /* one process too may be what is left of several */
        wf_signal_requests_outlast(true);
        wf_elastic_train_process(&run, end, error);
        wf_signal_requests_outlast(false);
    } else {
        wf_elastic_train(&run, end, error);
        if (error->code != WF_OK)
            report_failure(p, error);
        end->reported = error->code != WF_OK;
    }
}
