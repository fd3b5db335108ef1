/* parallel/program/train.c - a rank of a job: model, trainer, steps, evaluations, logs, checkpoints; what lost ranks were doing. */
#include "core/numerics/bits.h"
#include "parallel/parallel_internal.h"
#include "parallel/program/services_internal.h"
#include "parallel/recovery/elastic_files.h"
#include "parallel/recovery/elastic_rank.h"
#include "parallel/recovery/signal_requests.h"
#include "parallel/report/layout.h"
#include "parallel/report/rank_trace.h"
#include "parallel/train/report.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

typedef struct rank_run {
    wf_services *s;
    const wf_services_launch *launch;
    const wf_par_job *job;
    wf_par_running r;
    wf_context *ctx;
    bool first; /* rank 0, which logs */
    wf_rank rank;
    wf_rank_trace trace;
    wf_saving saving;
    wf_elastic_rank elastic;
    int64_t resumed;   /* steps that were done before */
    unsigned requests; /* those of all ranks, at the end of a step */
    bool unevaluated;  /* the run is to stop, and the evaluation was not made, or not whole */
    bool stop;
} rank_run;

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Records an error of a call that leaves none in the context. */
static wf_status note(const rank_run *r, const wf_error *error)
{
    if (error->code != WF_OK)
        wf_fail(r->ctx, error->code, "%s", error->text);
    return wf_context_status(r->ctx);
}

/* Returns this rank's requests. */
static uint64_t requests_of(const rank_run *r)
{
    bool leaves = r->s->recovery_dir && wf_elastic_files_leave(r->s->recovery_dir);

    return wf_saving_requests(&r->saving) | (leaves ? WF_SIGNAL_LEAVE : 0);
}

/* Adds up over ranks: the largest memory peak, model FLOPs, and requests. */
static wf_status sum_up(rank_run *r, double flops, wf_step_log *record)
{
    typedef struct share {
        double peak, flops;
        uint64_t requests;
    } share;
    wf_memory_report memory;
    const share *all;
    share mine;

    wf_pool_report(wf_context_pool(r->ctx), &memory);
    mine = (share){(double)memory.peak, wf_context_model_flops(r->ctx) - flops, requests_of(r)};
    r->requests = 0;
    all = wf_mesh_gather(wf_par_mesh(r->r.par), &mine, sizeof mine);
    for (int i = 0; all && i < r->rank.size; i++) {
        if ((size_t)all[i].peak > record->memory_peak)
            record->memory_peak = (size_t)all[i].peak;
        record->model_flops_per_s += all[i].flops / record->ms * 1e3;
        r->requests |= (unsigned)all[i].requests;
    }
    return wf_context_status(r->ctx);
}

/* Returns whether any rank is asked to stop, on all ranks alike. */
static bool stop_asked(void *run)
{
    rank_run *r = run;
    const uint64_t mine = requests_of(r);
    const uint64_t *all = wf_mesh_gather(wf_par_mesh(r->r.par), &mine, sizeof mine);

    for (int i = 0; all && i < r->rank.size; i++)
        r->requests |= (unsigned)all[i];
    return r->requests & WF_SIGNAL_STOP;
}

static wf_status evaluate(rank_run *r, int64_t step, wf_step_log *record)
{
    int64_t batches = r->job->eval_batches ? r->job->eval_batches : 1;
    bool due = wf_par_job_evaluates(r->job, step) && r->job->eval_data.read;

    if (due && !(r->requests & WF_SIGNAL_STOP)) {
        wf_par_evaluate_until(r->r.trainer, batches, &r->job->eval_data, NULL,
                              r->s->save ? stop_asked : NULL, r, &record->val_loss);
        record->has_val_loss =
            wf_context_status(r->ctx) == WF_OK && !(r->requests & WF_SIGNAL_STOP);
    }
    r->unevaluated = due && (r->requests & WF_SIGNAL_STOP);
    if (record->has_val_loss)
        wf_saving_validated(&r->saving, record->val_loss);
    return wf_context_status(r->ctx);
}

static void clear_log(void *log)
{
    wf_run_log_clear(log);
}

/* Ends a step: saves what is due. */
static void save_step(rank_run *r, int64_t step)
{
    if (r->requests & WF_SIGNAL_LEAVE)
        r->requests |= WF_SIGNAL_STOP;
    wf_saving_step(&r->saving, step, r->requests, &r->stop);
    if (r->unevaluated) { /* after the last step too: not all is done that was asked for */
        wf_saving_preempted(&r->s->saved, true);
        if (r->first) {
            wf_run_log_clear(r->s->log);
            fprintf(r->s->out,
                    "the evaluation behind step %" PRId64
                    " was stopped: a run that is resumed does not make it up\n",
                    step);
        }
    }
    wf_saving_report(&r->saving, clear_log, r->s->log);
    r->r.steps = step;
    if (r->first && wf_context_status(r->ctx) == WF_OK)
        wf_elastic_saved(&r->s->elastic, step, r->saving.best_loss);
}

/* Measures, evaluates and logs a step: after it or, where ranks were lost in that, in the next launch. */
static wf_status end_step(rank_run *r, const wf_elastic_step *made, double flops)
{
    const wf_par_train_options *train = &r->job->train;
    wf_elastic *e = &r->s->elastic;
    wf_step_log record = {.step = made->step,
                          .ms = made->ms,
                          .loss = made->result.loss,
                          .lr = (double)made->result.lr,
                          .grad_norm = (float)made->result.grad_norm};
    wf_error error = {WF_OK, ""};

    record.tokens_per_s =
        (double)(train->global_batch * wf_par_job_tokens(r->job)) / record.ms * 1e3;
    if (sum_up(r, flops, &record) != WF_OK || evaluate(r, made->step, &record) != WF_OK ||
        !r->first || made->step <= e->logged)
        return wf_context_status(r->ctx);
    e->logged = made->step;
    wf_comm_at_files(r->rank.world, true); /* a console that holds the run up is no stall */
    if (wf_run_log_step(r->s->log, &record, &error) != WF_OK)
        note(r, &error);
    wf_comm_at_files(r->rank.world, false);
    return wf_context_status(r->ctx);
}

static wf_status train_step(rank_run *r, int64_t step)
{
    double begin = now_ms(), flops = wf_context_model_flops(r->ctx);
    wf_elastic_step made = {.step = step};
    wf_par_report report;
    wf_status status;

    wf_par_report_begin(r->r.par, &report);
    status = wf_rank_trace_step(&r->trace, r->r.trainer, step, &r->job->data, &made.result);
    made.ms = now_ms() - begin;
    if (r->elastic.into && wf_par_trainer_steps(r->r.trainer) == step)
        wf_elastic_made(&r->s->elastic, &made);
    if (status != WF_OK)
        return wf_context_status(r->ctx);
    wf_par_report_end(r->r.par, r->r.model, &report);
    if (r->s->comm_report && r->rank.index == r->s->rank &&
        step == (r->job->steps - r->resumed < 2 ? r->resumed + 1 : r->resumed + 2))
        wf_par_print_traffic(r->s->out, &report);
    made.ms = now_ms() - begin;
    if (end_step(r, &made, flops) == WF_OK)
        save_step(r, step);
    return wf_context_status(r->ctx);
}

static wf_status open_saving(rank_run *r)
{
    wf_services *s = r->s;
    const char *const texts[] = {"settings", s->settings};
    const wf_resume_options resume = {.save = s->save, .resume = s->resume};
    const wf_saving_options options = {.program = s->start.program,
                                       .out = s->out,
                                       .save = {.dir = s->save,
                                                .kind = WF_PAR_SAVE_SHARDED,
                                                .keep = (int)s->keep,
                                                .async = s->async_save,
                                                .option_count = 1,
                                                .option = texts},
                                       .best = s->save_best,
                                       .looks = wf_resume_looks(&resume),
                                       .interval = s->save_interval,
                                       .steps = r->job->steps,
                                       .seconds = s->exit_minutes * 60,
                                       .loaded = wf_services_report_settings,
                                       .arg = s};

    return wf_saving_open(&r->saving, &options, r->r.par, r->r.model, r->r.trainer,
                          &s->saved) == WF_OK
               ? wf_saving_check(&r->saving)
               : wf_context_status(r->ctx);
}

/* Restores the state that ranks of the launch before have left, with what of its last step they had not come to; or loads a
   checkpoint, or begins. */
static wf_status restore(rank_run *r, int64_t *step)
{
    float best_loss = r->saving.best_loss;
    wf_elastic_step made;

    *step = 0;
    if (wf_elastic_rank_restore(&r->elastic, step, &made, &best_loss) != WF_OK)
        return wf_context_status(r->ctx);
    if (!r->elastic.ready) {
        r->elastic.ready = wf_saving_resume(&r->saving, &r->s->resume_from, step) == WF_OK;
        r->r.steps = *step;
        return wf_context_status(r->ctx);
    }
    wf_saving_best(&r->saving, best_loss);
    r->r.steps = *step;
    if (made.step == *step && end_step(r, &made, wf_context_model_flops(r->ctx)) == WF_OK)
        save_step(r, *step);
    return wf_context_status(r->ctx);
}

/* Begins outputs, and reports why a launch became necessary. */
static wf_status begin_steps(rank_run *r, int64_t step)
{
    wf_services *s = r->s;
    wf_error error = {WF_OK, ""};
    char mesh[400];

    if (r->first &&
        wf_run_log_begin(s->log, step > s->elastic.logged ? step : s->elastic.logged, &error) ==
            WF_OK &&
        s->timeline)
        wf_timeline_begin(s->timeline, &error);
    if (note(r, &error) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->first)
        wf_run_log_clear(s->log);
    wf_services_mesh_name(&r->launch->shape, mesh, sizeof mesh);
    wf_elastic_rank_begin(&r->elastic, step, mesh);
    return wf_context_status(r->ctx);
}

static void print_digest(const rank_run *r)
{
    uint64_t digest = 0;

    if (wf_par_trainer_digest(r->r.trainer, &digest) == WF_OK && r->first) {
        wf_run_log_clear(r->s->log);
        fprintf(r->s->out, "digest %016" PRIx64 " after step %lld\n", digest,
                (long long)r->r.steps);
        fflush(r->s->out);
    }
}

static wf_status take_steps(rank_run *r)
{
    wf_elastic *e = &r->s->elastic;
    int64_t step = 0;

    if (r->first && (r->elastic.restarted || wf_elastic_files_restarts()) &&
        wf_run_log_logged(r->s->log) > e->logged)
        e->logged = wf_run_log_logged(r->s->log); /* rows of a start before */
    if (restore(r, &step) != WF_OK || begin_steps(r, step) != WF_OK)
        return wf_context_status(r->ctx);
    r->resumed = step;
    r->elastic.leaves = r->stop && r->s->recovery_dir;
    while (++step <= r->job->steps && !r->stop && !r->elastic.leaves)
        if (train_step(r, step) == WF_OK)
            r->elastic.leaves =
                r->stop ? r->s->recovery_dir != NULL : e->leave_after && step >= e->leave_after;
        else
            break;
    if (wf_context_status(r->ctx) == WF_ENONFINITE) /* every rank has found it */
        wf_saving_finish(&r->saving);
    return wf_context_status(r->ctx);
}

static wf_status train(rank_run *r)
{
    const wf_par_job *job = r->job;
    wf_par_train_options options = job->train;

    options.pipeline = r->launch->pipeline;
    if (wf_par_job_materialize(options.pipeline, r->r.par, r->r.model) != WF_OK)
        return wf_context_status(r->ctx);
    r->r.trainer = wf_par_trainer_open(r->r.par, r->r.model, &options);
    if (wf_elastic_rank_serves(&r->elastic, r->r.trainer) != WF_OK ||
        (job->begin && job->begin(&r->r, job->arg) != WF_OK) || open_saving(r) != WF_OK ||
        wf_rank_trace_open(&r->trace) != WF_OK || take_steps(r) != WF_OK)
        return wf_context_status(r->ctx);
    if (!r->stop && !r->elastic.leaves && (!job->after || job->after(&r->r, job->arg) == WF_OK))
        print_digest(r);
    return wf_elastic_rank_end(&r->elastic);
}

wf_status wf_services_train(wf_par *par, void *launch)
{
    const wf_services_launch *l = launch;
    wf_services *s = l->services;
    rank_run r = {.s = s,
                  .launch = l,
                  .job = &l->job,
                  .r = {.job = &l->job, .par = par},
                  .ctx = wf_par_context(par),
                  .rank = {.index = wf_context_rank(wf_par_context(par)),
                           .size = wf_mesh_ranks(wf_par_mesh(par)),
                           .world = par->world},
                  .elastic =
                      wf_elastic_rank_of(&s->elastic, par, wf_resume_step(&s->resume_from))};

    r.first = r.rank.index == 0;
    r.trace = (wf_rank_trace){.rank = &r.rank,
                              .par = par,
                              .traced = s->trace != NULL,
                              .first = s->trace_first,
                              .last = s->trace_last,
                              .timeline = r.first ? s->timeline : NULL,
                              .out = r.rank.index == s->rank ? s->out : NULL};
    if (wf_elastic_rank_before(&r.elastic) == WF_OK)
        r.r.model = wf_par_job_model(par, (void *)(uintptr_t)r.job); /* only read */
    if (r.r.model && s->show_layout && r.first && !r.elastic.restarted)
        wf_par_print_layout(s->out, par, r.r.model, l->pipeline);
    if (r.r.model)
        train(&r);
    wf_elastic_rank_leave(&r.elastic, wf_context_status(r.ctx));
    wf_rank_trace_close(&r.trace);
    if (r.job->end)
        r.job->end(&r.r, r.job->arg);
    wf_saving_close(&r.saving);
    wf_par_trainer_close(r.r.trainer);
    if (r.r.model)
        wf_nn_free(r.r.model);
    return wf_context_status(r.ctx);
}
