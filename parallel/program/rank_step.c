/* parallel/program/rank_step.c - a step of a rank: made, measured, evaluated, logged and
   saved. */
#include "parallel/main.h"
#include "parallel/program/rank_internal.h"
#include "parallel/recovery/signal_requests.h"
#include "parallel/report/layout.h"
#include "parallel/report/step_report.h"
#include "parallel/train/report.h"
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Adds up over ranks: the largest memory peak, model FLOPs, and requests. */
static wf_status sum_up(wf_run_rank_state *r, double flops, wf_step_log *record)
{
    typedef struct share {
        double peak, flops;
        uint64_t requests;
    } share;
    wf_memory_report memory;
    const share *all;
    share mine;

    wf_pool_report(wf_context_pool(r->ctx), &memory);
    mine = (share){(double)memory.peak, wf_context_model_flops(r->ctx) - flops,
                   wf_run_requests(r)};
    r->asked = 0;
    all = wf_mesh_gather(wf_par_mesh(r->r.par), &mine, sizeof mine);
    for (int i = 0; all && i < r->rank.size; i++) {
        if ((size_t)all[i].peak > record->memory_peak)
            record->memory_peak = (size_t)all[i].peak;
        record->model_flops_per_s += all[i].flops / record->ms * 1e3;
        r->asked |= (unsigned)all[i].requests;
    }
    r->requests = r->ahead ? 0 : r->asked; /* or for the end of the step that was launched */
    return wf_context_status(r->ctx);
}

/* Takes the digests that the log has. of: those of tensors, which the caller frees */
static wf_status take_digests(wf_run_rank_state *r, wf_step_log *record,
                              wf_par_tensor_digest **of)
{
    wf_run_digest digest = r->run->digest;

    record->has_digest = digest != WF_RUN_DIGEST_OFF;
    if (digest == WF_RUN_DIGEST_TENSORS)
        wf_par_trainer_digests(r->r.trainer, of, &record->tensors);
    else if (digest == WF_RUN_DIGEST_STEPS)
        wf_par_trainer_digest(r->r.trainer, &record->digest);
    record->of = *of;
    for (int64_t i = 0; i < record->tensors; i++)
        record->digest += record->of[i].digest;
    return wf_context_status(r->ctx);
}

static wf_status verify(wf_run_rank_state *r, int64_t step)
{
    int64_t every = r->run->verify_every;

    return every && step % every == 0 ? wf_par_trainer_verify(r->r.trainer)
                                      : wf_context_status(r->ctx);
}

/* Logs a step, on rank 0, unless a launch before has. */
static wf_status log_step(wf_run_rank_state *r, const wf_step_log *record)
{
    wf_elastic *e = r->run->elastic;
    wf_error error = {WF_OK, ""};

    if (!r->first || record->step <= e->logged)
        return wf_context_status(r->ctx);
    e->logged = record->step;
    wf_comm_at_files(r->rank.world, true); /* a console that holds the run up is no stall */
    wf_run_log_step(r->run->log, record, &error);
    wf_run_note(r, &error);
    wf_comm_at_files(r->rank.world, false);
    return wf_context_status(r->ctx);
}

static void clear_log(void *log)
{
    wf_run_log_clear(log);
}

/* Saves what is due after a step. */
static wf_status save_step(wf_run_rank_state *r, int64_t step)
{
    const wf_run *run = r->run;

    if (r->requests & WF_SIGNAL_LEAVE)
        r->requests |= WF_SIGNAL_STOP;
    wf_saving_step(&r->saving, step, r->requests, &r->stop);
    if (r->unevaluated) /* after the last step too: not all is done that was asked for */
        wf_saving_preempted(run->saved, true);
    if (r->unevaluated && r->first) {
        wf_run_log_clear(run->log);
        fprintf(run->out,
                "the evaluation after step %" PRId64
                " was stopped: a run that is resumed does not make it up\n",
                step);
        fflush(run->out);
    }
    wf_saving_report(&r->saving, clear_log, run->log);
    r->r.steps = step;
    if (r->first && wf_context_status(r->ctx) == WF_OK)
        wf_elastic_saved(run->elastic, step, r->saving.best_loss);
    return wf_context_status(r->ctx);
}

wf_status wf_run_end_step(wf_run_rank_state *r, const wf_elastic_step *made, double flops)
{
    const wf_par_train_options *train = &r->job->train;
    wf_log_scalar scalar[WF_LOG_SCALARS];
    wf_par_tensor_digest *digests = NULL;
    int64_t before;
    wf_step_log record = {.step = made->step,
                          .ms = made->ms,
                          .loss = made->result.loss,
                          .lr = (double)made->result.lr,
                          .grad_norm = (float)made->result.grad_norm,
                          .skipped = made->result.skipped};

    record.losses = wf_par_step_losses(r->r.trainer, &record.loss_count);
    record.tokens_per_s =
        (double)(wf_par_step_batch(train, made->step, &before) * wf_par_job_tokens(r->job)) /
        record.ms * 1e3;
    if (sum_up(r, flops, &record) != WF_OK || wf_run_parts_step(r, made->step) != WF_OK ||
        verify(r, made->step) != WF_OK ||
        wf_run_evaluate(r, made->step, &record, scalar) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->loads)
        record.load_count = wf_expert_load_step(r->loads, &record.loads);
    if (take_digests(r, &record, &digests) == WF_OK)
        log_step(r, &record);
    free(digests);
    if (wf_context_status(r->ctx) != WF_OK || save_step(r, made->step) != WF_OK)
        return wf_context_status(r->ctx);
    return wf_run_between_steps(r, &record);
}

/* Draws the memory of the step that is reported. */
static void draw_memory(wf_run_rank_state *r)
{
    wf_error error = {WF_OK, ""};
    char title[WF_MEMORY_TITLE];

    wf_memory_timeline_end(r->memory);
    if (wf_context_status(r->ctx) == WF_OK &&
        wf_memory_timeline_write(r->memory, wf_memory_timeline_title(r->rank.index, title),
                                 r->run->memory_timeline, &error) != WF_OK)
        wf_par_report_line(r->run->program, "warning: %s; training continues", error.text);
    wf_memory_timeline_close(r->memory);
    r->memory = NULL;
}

/* Reports what a step took and moved. */
static void report_step(const wf_run_rank_state *r, int64_t step, wf_par_report *report)
{
    const wf_run *run = r->run;
    const wf_par_job *job = r->job;
    const char *strategy = job->mesh.strategy;
    const wf_step_report head = {.strategy = strategy ? strategy : WF_PAR_STRATEGY,
                                 .facts = job->facts,
                                 .global = job->train.global_batch,
                                 .micro = job->train.micro_batch,
                                 .tokens = wf_par_job_tokens(job)};
    wf_error error = {WF_OK, ""};

    if (r->rank.index != run->rank || step != wf_run_reported(r))
        return;
    wf_par_report_end(r->r.par, r->r.model, report);
    if (run->comm_report) {
        wf_par_print_traffic(run->out, report);
        fprintf(run->out, "  (of rank %d, in step %lld; the world's is the gradient norm)\n",
                r->rank.index, (long long)step);
        fflush(run->out);
    }
    if (run->report_json &&
        wf_step_report_write(&head, report, run->report_json, &error) != WF_OK)
        wf_par_report_line(run->program, "warning: %s; training continues", error.text);
}

/* Launches a step, and the one after it where it may come. One that fails there is launched
   again when this one has ended, and fails then; of several ranks it is a failure of all, which
   has no end of this step. */
static wf_status launch(wf_run_rank_state *r, int64_t step, double *flops)
{
    const wf_par_data *data = &r->job->data;
    const double before = wf_context_model_flops(r->ctx);

    *flops = r->ahead ? r->flops : 0;
    if (!r->ahead && wf_rank_trace_launch(&r->trace, r->r.trainer, step, data) != WF_OK)
        return wf_context_status(r->ctx);
    *flops += wf_context_model_flops(r->ctx) - before;
    r->ahead = wf_run_may_follow(r, step);
    if (!r->ahead)
        return WF_OK;
    r->flops = wf_context_model_flops(r->ctx);
    if (wf_rank_trace_launch(&r->trace, r->r.trainer, step + 1, data) != WF_OK) {
        r->ahead = false;
        if (r->rank.size > 1)
            return wf_context_status(r->ctx);
        wf_context_clear(r->ctx);
    }
    r->flops = wf_context_model_flops(r->ctx) - r->flops;
    return WF_OK;
}

wf_status wf_run_step(wf_run_rank_state *r, int64_t step)
{
    double begin = r->ahead ? r->ended : now_ms(), flops;
    wf_elastic_step made = {.step = step};
    wf_par_report report;
    wf_status status;

    wf_par_report_begin(r->r.par, &report);
    if (r->memory && step == wf_run_reported(r))
        wf_memory_timeline_begin(r->memory);
    status = launch(r, step, &flops);
    if (wf_rank_trace_finish(&r->trace, r->r.trainer, step, &made.result) != WF_OK)
        status = wf_context_status(r->ctx);
    made.ms = now_ms() - begin;
    if (r->memory && step == wf_run_reported(r))
        draw_memory(r);
    if (r->elastic.into && wf_par_trainer_steps(r->r.trainer) == step)
        wf_elastic_made(r->run->elastic, &made);
    if (status != WF_OK)
        return wf_context_status(r->ctx);
    report_step(r, step, &report);
    r->ended = now_ms();
    made.ms = r->ended - begin;
    if (wf_rank_trace_end_step(&r->trace, step) != WF_OK)
        return wf_context_status(r->ctx);
    return wf_run_end_step(r, &made, wf_context_model_flops(r->ctx) - flops);
}
