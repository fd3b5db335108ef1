/* parallel/program/process_open.c - what a process opens before its launches: checkpoints, what
   its host has kept, log and timeline; see process_internal.h. */
#include "parallel/main.h"
#include "parallel/models/gpt/numerics.h"
#include "parallel/program/process_internal.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/signal_requests.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether ranks compute: on the transport "fake" they move nothing, and their numbers
   are none. */
static bool computes(const wf_process *p)
{
    return p->job.steps && !(p->transport && strcmp(p->transport, "fake") == 0);
}

bool wf_process_continues(const wf_process *p)
{
    return wf_resume_looks(&p->resume) || p->run.recovery_dir;
}

/* Compares the shapes of a model's tensors with those of a checkpoint, on the fake device: what
   is built of a size that a file has can be larger than any machine. */
static wf_status compare_shapes(wf_rank *rank, void *process)
{
    const wf_process *p = process;
    wf_par_options options = p->job.mesh;
    wf_nn_module *model = NULL;
    wf_par *par;

    options.plan = true;
    options.memory_limit = 0;
    par = wf_par_open(rank, &options, &rank->error);
    if (par)
        model = wf_par_job_model(par, (void *)(uintptr_t)&p->job); /* only read */
    if (model)
        wf_par_checkpoint_fits(model, p->checkpoints.checkpoint[0], &rank->error);
    else if (par)
        rank->error = *wf_context_error(wf_par_context(par));
    if (model)
        wf_nn_free(model);
    wf_par_close(par);
    return rank->error.code;
}

wf_status wf_process_open_checkpoints(wf_process *p, wf_error *error)
{
    const wf_launch_options fake = {.ranks = (int)wf_par_ranks(&p->job.mesh),
                                    .transport = "fake"};

    if (wf_resume_open(&p->resume, &p->checkpoints, error) == WF_OK && p->checkpoints.count)
        wf_launch(&fake, compare_shapes, p, error);
    if (error->code != WF_OK)
        wf_resume_close(&p->checkpoints);
    p->saved.failed = error->code == WF_EIO || error->code == WF_EDATA;
    return error->code;
}

static void warn(void *program, const char *text)
{
    wf_par_report_line(program, "warning: %s; training continues", text);
}

/* Lists the axes of a launch's mesh. */
static wf_status list_axes(const wf_par_options *o, wf_run_axis *axes, int *n, wf_error *error)
{
    wf_axis named[WF_MAX_AXES];

    *n = wf_par_mesh_axes(o, named, error);
    for (int i = 0; i < *n; i++)
        axes[i] = (wf_run_axis){named[i].name, named[i].size};
    return error->code;
}

/* Opens the log with the settings of a launch. */
static wf_status open_log(wf_process *p, const wf_par_job *job, bool continues, wf_error *error)
{
    wf_run_axis axes[WF_MAX_AXES + 1] = {{NULL, 0}};
    wf_run_log_options options = {
        .steps = job->steps,
        .path = p->log_jsonl,
        .continues = continues,
        .peak = p->peak,
        .tensorboard = p->tensorboard,
        .axes = axes,
        .numerics = p->numerics,
        .transport = p->transport ? p->transport : wf_launcher_transport(&p->launcher),
        .warning = warn,
        .arg = (void *)(uintptr_t)p->program};
    char *settings;

    if (list_axes(&job->mesh, axes, &options.axis_count, error) != WF_OK)
        return error->code;
    options.settings = settings = p->settings ? p->settings(p->arg, job) : strdup("{}");
    wf_run_log_console(&options, p->run.out);
    if (!settings)
        wf_error_set(error, WF_ENOMEM, "no memory for the settings as JSON");
    else
        wf_run_log_open(&options, &p->log, error);
    free(settings);
    return error->code;
}

wf_status wf_process_open_log(wf_process *p, const wf_process_shape *shape, bool continues,
                              wf_error *error)
{
    wf_process_launch *l;

    if (p->launcher.process > 0) /* the first one writes */
        return error->code;
    l = malloc(sizeof *l);
    if (!l)
        return wf_error_set(error, WF_ENOMEM, "no memory for a launch");
    wf_process_shaped(shape, l);
    open_log(p, &l->job, continues, error);
    free(l);
    return error->code;
}

void wf_process_close_timeline(wf_process *p)
{
    wf_error error = {WF_OK, ""};

    if (wf_timeline_close(p->timeline, &error) != WF_OK)
        wf_par_report_line(p->program, "warning: %s; the run continues without its timeline",
                           error.text);
    p->timeline = NULL;
}

/* Returns whether anyone asks for the numerics identity: rows of a log, checkpoints, digests of
   ranks, other processes, a hook, or the program around, which may save at any time. To train
   for it takes longer than a short run does. */
static bool shows_numerics(const wf_process *p)
{
    return p->log_jsonl || p->run.saving.save.dir || p->resume.resume || p->run.log_digests ||
           p->launcher.processes > 1 || p->reads_numerics || p->is_embedded;
}

/* Finds the numerics identity. */
static wf_status find_numerics(wf_process *p, wf_error *error)
{
    uint64_t identity;

    if (computes(p) && shows_numerics(p) &&
        wf_par_numerics(&p->job.mesh, p->job.train.field, &identity, error) == WF_OK)
        snprintf(p->numerics, sizeof p->numerics, "%016" PRIx64, identity);
    return error->code;
}

/* Makes the folder of checkpoints, and opens those that there are. */
static wf_status open_saving(wf_process *p, wf_error *error)
{
    const char *dir = p->job.steps ? p->run.saving.save.dir : NULL;

    if (dir && !p->is_embedded)
        wf_signal_requests_listen();
    if (dir && wf_saving_prepare(p->program, dir, &p->launcher, &p->saved, error) != WF_OK) {
        p->saved.failed = error->code == WF_EIO;
        return error->code;
    }
    if (p->job.steps || p->job.after || p->resume.resume)
        wf_process_open_checkpoints(p, error);
    return error->code;
}

/* Reads the state that this host has kept. */
static wf_status load_left(wf_process *p, wf_error *error)
{
    char *identity;

    if (!p->run.recovery_dir)
        return WF_OK;
    identity = p->identity ? p->identity(p->arg, error) : strdup("{}");
    if (!identity)
        return error->code != WF_OK
                   ? error->code
                   : wf_error_set(error, WF_ENOMEM, "no memory for the settings as JSON");
    return wf_elastic_files_load(&p->elastic, identity, error);
}

wf_status wf_process_open(wf_process *p, wf_error *error)
{
    const wf_process_shape shape = wf_process_shape_of(p);

    if (wf_recordings_check(p->recorder_dir, error) != WF_OK ||
        open_saving(p, error) != WF_OK || find_numerics(p, error) != WF_OK ||
        (p->opened && p->opened(p->arg, p, error) != WF_OK))
        return error->code;
    if ((p->plan_check || p->memory_check) &&
        wf_plan_start_check(&p->request, &p->launcher, p->memory_check, error) != WF_OK)
        return error->code;
    if (load_left(p, error) != WF_OK)
        return error->code;
    if (wf_process_open_log(p, &shape, wf_process_continues(p), error) == WF_OK && p->trace &&
        p->launcher.process <= 0)
        wf_timeline_open(p->trace, (int)wf_par_ranks(&p->job.mesh), &p->timeline, error);
    return error->code;
}
