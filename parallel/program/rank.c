/* parallel/program/rank.c - a rank of a run: model, trainer, the steps, and what is freed at
   its end; see run.h. */
#include "parallel/program/rank_internal.h"
#include "core/numerics/bits.h"
#include "parallel/main.h"
#include "parallel/parallel_internal.h"
#include "parallel/recovery/signal_requests.h"
#include "parallel/report/layout.h"
#include <inttypes.h>

wf_status wf_run_note(const wf_run_rank_state *r, const wf_error *error)
{
    if (error->code != WF_OK)
        wf_fail(r->ctx, error->code, "%s", error->text);
    return wf_context_status(r->ctx);
}

/* Reports on rank 0 that ranks share devices. */
static void report_shared_devices(const wf_run_rank_state *r)
{
    const wf_device *device = wf_context_device(r->ctx);
    const wf_device_location *location = &device->location;

    if (r->first && location->devices && location->ranks > location->devices)
        wf_par_report_line(
            NULL, "device %s: %d ranks share %d device%s, which is slower than one each",
            device->name, location->ranks, location->devices,
            location->devices == 1 ? "" : "s");
}

/* Takes what saving needs; of a job without steps, what loading does. */
static wf_status open_saving(wf_run_rank_state *r)
{
    const wf_run *run = r->run;
    wf_saving_options options = run->saving;

    options.steps = r->job->steps;
    if (!r->job->steps)
        options.save.dir = NULL;
    if (run->hooks.saving && run->hooks.saving(&r->r, &options, r->job->arg) != WF_OK)
        return wf_context_status(r->ctx);
    return wf_saving_open(&r->saving, &options, r->r.par, r->r.model, r->r.trainer, run->saved);
}

/* Makes the model real, with values that are not a checkpoint's. */
static wf_status make_real(wf_run_rank_state *r)
{
    if (wf_par_job_materialize(r->run->pipeline, r->r.par, r->r.model) == WF_OK &&
        r->run->hooks.load)
        r->run->hooks.load(&r->r, r->job->arg);
    return wf_context_status(r->ctx);
}

static wf_status train(wf_run_rank_state *r, const wf_par_train_options *options)
{
    const wf_par_job *job = r->job;

    r->r.trainer = wf_par_trainer_open(r->r.par, r->r.model, options);
    if (r->run->moe_report && wf_context_status(r->ctx) == WF_OK)
        r->loads = wf_expert_load_open(r->r.par, r->r.model);
    if (wf_elastic_rank_serves(&r->elastic, r->r.trainer) != WF_OK ||
        wf_rank_trace_open(&r->trace) != WF_OK ||
        (job->begin && job->begin(&r->r, job->arg) != WF_OK) || open_saving(r) != WF_OK ||
        wf_saving_check(&r->saving) != WF_OK)
        return wf_context_status(r->ctx);
    return wf_run_steps(r);
}

/* Loads the parameters alone; of a local checkpoint all that a trainer holds, in whose layout
   it is. The stages of a pipeline are a trainer's too. */
static wf_status load(wf_run_rank_state *r, const wf_par_train_options *options)
{
    const wf_resume *resume = r->run->resume;
    bool local = false;

    for (int i = 0; i < resume->count; i++)
        local = local || wf_par_checkpoint_is_local(resume->checkpoint[i]);
    if (r->run->pipeline || local)
        r->r.trainer = wf_par_trainer_open(r->r.par, r->r.model, options);
    if ((r->job->begin && r->job->begin(&r->r, r->job->arg) != WF_OK) ||
        open_saving(r) != WF_OK)
        return wf_context_status(r->ctx);
    return wf_saving_resume(&r->saving, resume, &r->r.steps);
}

static void print_digest(const wf_run_rank_state *r)
{
    uint64_t digest = 0;

    if (wf_par_trainer_digest(r->r.trainer, &digest) == WF_OK && r->first) {
        wf_run_log_clear(r->run->log);
        fprintf(r->run->out, "digest %016" PRIx64 " after step %lld\n", digest,
                (long long)r->r.steps);
        fflush(r->run->out);
    }
}

/* Calls `after`, for which a run that is asked to stop does not wait: the same command
   continues with that. */
static wf_status end_steps(wf_run_rank_state *r)
{
    const wf_par_job *job = r->job;
    bool asked = r->requests & WF_SIGNAL_STOP;

    if (r->first)
        wf_run_log_clear(r->run->log);
    if (r->first && r->loads)
        wf_expert_load_print(r->run->out, r->loads);
    if (job->after && !asked && job->after(&r->r, job->arg) != WF_OK)
        return wf_context_status(r->ctx);
    if (job->after && (asked || r->r.stopped))
        wf_saving_preempted(r->run->saved, true);
    else if (r->run->last_digest && r->r.trainer && !r->stop)
        print_digest(r);
    return wf_context_status(r->ctx);
}

/* Introduces a job without steps, whose log has no rows but the first. */
static wf_status begin_without_steps(wf_run_rank_state *r)
{
    wf_error error = {WF_OK, ""};

    if (r->first && r->run->hooks.introduce)
        r->run->hooks.introduce(&r->r, r->job->arg);
    if (r->first)
        wf_run_log_begin(r->run->log, 0, &error);
    return wf_run_note(r, &error);
}

static wf_status run_job(wf_run_rank_state *r)
{
    const wf_run *run = r->run;
    wf_par_train_options options = r->job->train;
    wf_error error = {WF_OK, ""};

    options.pipeline = run->pipeline;
    if (run->memory_timeline && r->rank.index == run->rank &&
        !(r->memory = wf_memory_timeline_open(wf_context_pool(r->ctx), &error)))
        return wf_run_note(r, &error);
    if (wf_elastic_rank_before(&r->elastic) == WF_OK)
        r->r.model = wf_par_job_model(r->r.par, (void *)(uintptr_t)r->job); /* only read */
    if (!r->r.model)
        return wf_context_status(r->ctx);
    if (!r->elastic.restarted)
        report_shared_devices(r);
    if (run->show_layout && r->first && !r->elastic.restarted)
        wf_par_print_layout(run->out, r->r.par, r->r.model, run->pipeline);
    if (!r->job->steps && (begin_without_steps(r) != WF_OK || !r->job->after))
        return wf_context_status(r->ctx);
    if (make_real(r) != WF_OK || (r->job->steps ? train : load)(r, &options) != WF_OK ||
        (!r->elastic.leaves && end_steps(r) != WF_OK))
        return wf_context_status(r->ctx);
    return wf_elastic_rank_end(&r->elastic);
}

wf_status wf_run_rank(wf_par *par, const wf_run *run)
{
    wf_context *ctx = wf_par_context(par);
    bool asks = run->saving.save.dir || run->saving.seconds > 0;
    wf_run_rank_state r = {
        .r = {.job = run->job,
              .par = par,
              .pipeline = run->pipeline,
              .stop = asks ? wf_run_stop : NULL},
        .run = run,
        .job = run->job,
        .ctx = ctx,
        .rank = {.index = wf_context_rank(ctx),
                 .size = wf_mesh_ranks(wf_par_mesh(par)),
                 .world = par->world},
        .elastic = wf_elastic_rank_of(run->elastic, par, wf_resume_step(run->resume)),
        .parts = {.file = {.file = -1}}};
    wf_status status;

    r.first = r.rank.index == 0;
    r.trace = (wf_rank_trace){.rank = &r.rank,
                              .par = par,
                              .traced = run->traced,
                              .profile = run->profile,
                              .first = run->trace_first,
                              .last = run->trace_last,
                              .timeline = run->timeline,
                              .out = run->out,
                              .summary = r.rank.index == run->rank ? run->out : NULL};
    status = run_job(&r);
    wf_elastic_rank_leave(&r.elastic, status);
    wf_saving_close(&r.saving);
    wf_parts_log_close(&r.parts);
    wf_rank_trace_close(&r.trace);
    wf_memory_timeline_close(r.memory);
    if (r.job->end)
        r.job->end(&r.r, r.job->arg);
    wf_expert_load_close(r.loads);
    wf_par_trainer_close(r.r.trainer);
    if (r.r.model)
        wf_nn_free(r.r.model);
    if (run->between.left)
        run->between.left(run->between.arg);
    return status;
}
