/* apps/gpt_train/train_steps.c - steps, and what is done behind each; see the header. */
#include "apps/gpt_train/train_steps.h"
#include "parallel/report/layout.h"
#include "parallel/recovery/elastic_files.h"
#include "apps/gpt_train/elastic_run.h"
#include "apps/gpt_train/evaluation.h"
#include "apps/gpt_train/first_lines.h"
#include "apps/gpt_train/setup.h"
#include "parallel/recovery/signal_requests.h"
#include "parallel/report/step_report.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* The largest of all ranks' memory peaks, the model FLOPs of all since they were counted last, and what any
   of them was asked for. */
static wf_status sum_up(app_loop *l, double flops, wf_step_log *record)
{
    typedef struct share {
        double peak, flops;
        uint64_t requests;
    } share;
    wf_context *ctx = wf_par_context(l->par);
    const share *all;
    share mine;
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    mine = (share){.peak = (double)report.peak,
                   .flops = wf_context_model_flops(ctx) - flops,
                   .requests = app_loop_requests(l)};
    l->requests = 0;
    all = wf_mesh_gather(wf_par_mesh(l->par), &mine, sizeof mine);
    for (int i = 0; all && i < l->rank->size; i++) {
        if ((size_t)all[i].peak > record->memory_peak)
            record->memory_peak = (size_t)all[i].peak;
        record->model_flops_per_s += all[i].flops / record->ms * 1e3;
        l->requests |= (unsigned)all[i].requests;
    }
    return wf_context_status(ctx);
}

static wf_status write_report(const app_options *o, const wf_par_report *report,
                              wf_error *error)
{
    char facts[512];

    app_model_facts(o, facts, sizeof facts);
    return wf_step_report_write(&(wf_step_report){.strategy = o->strategy,
                                                  .facts = facts,
                                                  .global = o->global_batch_size,
                                                  .micro = o->micro_batch_size,
                                                  .tokens = o->seq_len},
                                report, o->report_json, error);
}

/* The first step may make what later ones find, so the second one is told, as in a plan. */
static void tell_step(app_loop *l, int64_t step, wf_par_report *report)
{
    wf_error error = {WF_OK, ""};

    wf_par_report_end(l->par, &l->model->base, report);
    if (l->o->comm_report) {
        wf_par_print_traffic(stdout, report);
        fprintf(stdout, "  (of rank %d, in step %lld; the world's is the gradient norm)\n",
                l->rank->index, (long long)step);
        fflush(stdout);
    }
    if (l->o->report_json && write_report(l->o, report, &error) != WF_OK)
        fprintf(stderr, "gpt_train: warning: %s; training goes on\n", error.text);
}

static int64_t report_step(const app_loop *l)
{
    return l->resumed + (l->o->steps - l->resumed < 2 ? 1 : 2);
}

/* Take the digests that --digest asks for; those of tensors are in *of, which the caller frees. */
static wf_status take_digests(app_loop *l, wf_step_log *record, wf_par_tensor_digest **of)
{
    bool each = strcmp(l->o->digest, "tensors") == 0;

    record->has_digest = strcmp(l->o->digest, "off") != 0;
    if (each)
        wf_par_trainer_digests(l->trainer, of, &record->tensors);
    else if (record->has_digest)
        wf_par_trainer_digest(l->trainer, &record->digest);
    record->of = *of;
    for (int64_t i = 0; i < record->tensors; i++)
        record->digest += record->of[i].digest;
    return wf_context_status(wf_par_context(l->par));
}

static wf_status verify(app_loop *l, int64_t step)
{
    bool due = l->o->verify_every && step % l->o->verify_every == 0;

    return due ? wf_par_trainer_verify(l->trainer) : wf_context_status(wf_par_context(l->par));
}

/* What a step has come to is measured, evaluated, logged and saved: on all ranks, behind the step or, where ranks were
   lost in that, by those that go on. */
static wf_status end_step(app_loop *l, const wf_elastic_step *made, double flops)
{
    wf_context *ctx = wf_par_context(l->par);
    wf_step_log record = {.step = made->step,
                          .ms = made->ms,
                          .loss = made->result.loss,
                          .grad_norm = (float)made->result.grad_norm,
                          .lr = (double)made->result.lr};
    wf_elastic *e = l->job->elastic;
    wf_error error = {WF_OK, ""};
    wf_par_tensor_digest *digests = NULL;

    record.tokens_per_s = (double)(l->o->global_batch_size * l->o->seq_len) / record.ms * 1e3;
    if (sum_up(l, flops, &record) != WF_OK ||
        rank_parts_step(&l->parts, l->trainer, made->step) != WF_OK ||
        verify(l, made->step) != WF_OK || app_loop_evaluate(l, made->step, &record) != WF_OK)
        return wf_context_status(ctx);
    if (take_digests(l, &record, &digests) == WF_OK && l->rank->index == 0 &&
        made->step > e->logged) {
        e->logged = made->step;
        /* A console that nobody reads holds the run up, and is no stall. */
        wf_comm_at_files(l->rank->world, true);
        if (wf_run_log_step(l->job->log, &record, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
        wf_comm_at_files(l->rank->world, false);
    }
    free(digests);
    return wf_context_status(ctx);
}

static wf_status train_step(app_loop *l, int64_t step)
{
    const wf_par_data train = app_job_data(l->job, WF_DATASET_TRAIN);
    wf_context *ctx = wf_par_context(l->par);
    double start = now_ms(), flops = wf_context_model_flops(ctx);
    wf_elastic_step made = {.step = step};
    wf_par_report report;
    wf_status status;

    wf_par_report_begin(l->par, &report);
    status = wf_rank_trace_step(&l->trace, l->trainer, step, &train, &made.result);
    made.ms = now_ms() - start;
    if (l->elastic.into && wf_par_trainer_steps(l->trainer) == step)
        wf_elastic_made(l->job->elastic, &made);
    if (status != WF_OK)
        return wf_context_status(ctx);
    if (l->rank->index == l->o->rank && step == report_step(l))
        tell_step(l, step, &report);
    made.ms = now_ms() - start;
    return end_step(l, &made, flops);
}

static void clear_log(void *log)
{
    wf_run_log_clear(log);
}

/* Behind a step: checkpoints, and a line for each. */
static void save_step(app_loop *l, int64_t step, bool *stop)
{
    wf_saving *saving = &l->saving.saving;

    if (l->requests & WF_SIGNAL_LEAVE)
        l->requests |= WF_SIGNAL_STOP;
    wf_saving_step(saving, step, l->requests, stop);
    if (l->unevaluated) /* the last step too: not all is done that was asked for */
        wf_saving_preempted(l->job->saved, true);
    if (l->unevaluated && l->rank->index == 0) {
        wf_run_log_clear(l->job->log);
        printf("the evaluation behind step %" PRId64
               " was stopped: a run that is resumed does not make it up\n",
               step);
        fflush(stdout);
    }
    wf_saving_report(saving, clear_log, l->job->log);
    if (l->rank->index == 0 && wf_context_status(wf_par_context(l->par)) == WF_OK)
        wf_elastic_saved(l->job->elastic, step, saving->best_loss);
}

/* Loads a checkpoint, or begins. */
static wf_status load_checkpoint(app_loop *l, int64_t *step)
{
    wf_status status = wf_saving_resume(&l->saving.saving, l->job->resume, step);

    l->elastic.ready = status == WF_OK;
    return status;
}

/* Restores the state that ranks of the launch before have left, with what of its last step they had not come to; or loads a
   checkpoint. */
static wf_status go_on(app_loop *l, int64_t *step, bool *stop)
{
    wf_context *ctx = wf_par_context(l->par);
    float best_loss = l->saving.saving.best_loss;
    wf_elastic_step made;

    if (wf_elastic_rank_restore(&l->elastic, step, &made, &best_loss) != WF_OK)
        return wf_context_status(ctx);
    if (!l->elastic.ready)
        return load_checkpoint(l, step);
    wf_saving_best(&l->saving.saving, best_loss);
    if (made.step != *step)
        return WF_OK;
    if (end_step(l, &made, wf_context_model_flops(ctx)) == WF_OK)
        save_step(l, *step, stop);
    return wf_context_status(ctx);
}

/* Reports why a launch became necessary. */
static void begin_steps(app_loop *l, int64_t step)
{
    char mesh[96];

    if (l->rank->index == 0 && l->elastic.restarted)
        wf_run_log_clear(l->job->log);
    app_elastic_name(l->o, mesh, sizeof mesh);
    wf_elastic_rank_begin(&l->elastic, step, mesh);
}

/* Of a run that was started before, steps have their rows already. */
static void know_logged(app_loop *l)
{
    wf_elastic *e = l->job->elastic;

    if (l->rank->index == 0 && (l->elastic.restarted || wf_elastic_files_restarts()) &&
        wf_run_log_logged(l->job->log) > e->logged)
        e->logged = wf_run_log_logged(l->job->log);
}

/* Outputs that were prepared are begun, behind the step after which the run goes on: nothing can fail any more by what it was
   asked. */
static wf_status begin_outputs(app_loop *l, int64_t step)
{
    wf_context *ctx = wf_par_context(l->par);
    wf_elastic *e = l->job->elastic;
    wf_error error = {WF_OK, ""};

    rank_parts_begin(&l->parts, l->elastic.restarted || app_resume_continues(l->o));
    if (l->o->log_digests) /* every rank is through before the first one begins */
        wf_mesh_gather(wf_par_mesh(l->par), &(const char){1}, 1);
    if (wf_context_status(ctx) != WF_OK || l->rank->index != 0)
        return wf_context_status(ctx);
    if (wf_run_log_begin(l->job->log, step > e->logged ? step : e->logged, &error) == WF_OK &&
        l->job->timeline)
        wf_timeline_begin(l->job->timeline, &error);
    if (error.code != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    return wf_context_status(ctx);
}

wf_status app_loop_train(app_loop *l)
{
    wf_context *ctx = wf_par_context(l->par);
    int64_t step = 0, last = rank_parts_last(&l->parts), leave = l->job->elastic->leave_after;
    bool stop = false;

    if (app_saving_open(&l->saving, l->o, l->par, l->model, l->trainer, l->job->numerics,
                        l->job->saved) == WF_OK &&
        wf_saving_check(&l->saving.saving) == WF_OK && l->rank->index == 0 &&
        !l->elastic.restarted) {
        wf_comm_at_files(l->rank->world, true);
        app_first_lines(stdout, l->o, &l->model->base, l->job->pipeline, l->job->data);
        wf_comm_at_files(l->rank->world, false);
    }
    know_logged(l);
    rank_parts_open(&l->parts);
    if (go_on(l, &step, &stop) == WF_OK && begin_outputs(l, step) == WF_OK)
        begin_steps(l, step);
    l->resumed = step;
    l->elastic.leaves = stop && l->o->recovery_dir; /* asked in what was made up for */
    while (++step <= last && !stop && !l->elastic.leaves && wf_context_status(ctx) == WF_OK)
        if (train_step(l, step) == WF_OK) {
            save_step(l, step, &stop);
            l->elastic.leaves = stop ? l->o->recovery_dir != NULL : leave && step >= leave;
        }
    if (wf_context_status(ctx) == WF_ENONFINITE) /* every rank has found it */
        wf_saving_finish(&l->saving.saving);
    wf_run_log_clear(l->rank->index == 0 ? l->job->log : NULL);
    return l->elastic.leaves ? wf_context_status(ctx)
                             : rank_parts_tell(&l->parts, l->resumed + 1, last);
}
