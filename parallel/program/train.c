/* parallel/program/train.c - a rank of a job: model, trainer, steps, evaluations, logs, checkpoints. */
#include "core/numerics/bits.h"
#include "parallel/parallel_internal.h"
#include "parallel/program/services_internal.h"
#include "parallel/report/layout.h"
#include "parallel/report/rank_trace.h"
#include "parallel/train/report.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

typedef struct rank_run {
    wf_services *s;
    const wf_par_job *job;
    wf_par_running r;
    wf_context *ctx;
    bool first; /* rank 0, which logs */
    wf_rank rank;
    wf_rank_trace trace;
    wf_par_saver *saver; /* NULL: nothing is saved */
    int64_t resumed;     /* steps that were done before */
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

/* Adds up over ranks: the largest memory peak, and model FLOPs. */
static wf_status sum_up(const rank_run *r, double flops, wf_step_log *record)
{
    typedef struct share {
        double peak, flops;
    } share;
    wf_memory_report memory;
    const share *all;
    share mine;

    wf_pool_report(wf_context_pool(r->ctx), &memory);
    mine = (share){(double)memory.peak, wf_context_model_flops(r->ctx) - flops};
    all = wf_mesh_gather(wf_par_mesh(r->r.par), &mine, sizeof mine);
    for (int i = 0; all && i < r->rank.size; i++) {
        if ((size_t)all[i].peak > record->memory_peak)
            record->memory_peak = (size_t)all[i].peak;
        record->model_flops_per_s += all[i].flops / record->ms * 1e3;
    }
    return wf_context_status(r->ctx);
}

static wf_status evaluate(const rank_run *r, int64_t step, wf_step_log *record)
{
    int64_t batches = r->job->eval_batches ? r->job->eval_batches : 1;

    if (!wf_par_job_evaluates(r->job, step) || !r->job->eval_data.read)
        return wf_context_status(r->ctx);
    record->has_val_loss = wf_par_evaluate(r->r.trainer, batches, &r->job->eval_data, NULL,
                                           &record->val_loss) == WF_OK;
    return wf_context_status(r->ctx);
}

static wf_status save(rank_run *r, int64_t step)
{
    wf_error error = {WF_OK, ""};
    char path[4096];
    bool due =
        step == r->job->steps || (r->s->save_interval && step % r->s->save_interval == 0);

    if (!r->saver || !due)
        return wf_context_status(r->ctx);
    if (wf_par_saver_save(r->saver, step, &error) == WF_OK && r->first) {
        wf_run_log_clear(r->s->log);
        fprintf(r->s->out, "saved %s\n", wf_par_saver_path(r->saver, step, path, sizeof path));
    }
    return note(r, &error);
}

static wf_status train_step(rank_run *r, int64_t step)
{
    const wf_par_train_options *train = &r->job->train;
    double begin = now_ms(), flops = wf_context_model_flops(r->ctx);
    wf_step_log record = {.step = step};
    wf_error error = {WF_OK, ""};
    wf_par_report report;
    wf_par_step result;

    wf_par_report_begin(r->r.par, &report);
    if (wf_rank_trace_step(&r->trace, r->r.trainer, step, &r->job->data, &result) != WF_OK)
        return wf_context_status(r->ctx);
    wf_par_report_end(r->r.par, r->r.model, &report);
    if (r->s->comm_report && r->rank.index == r->s->rank &&
        step == (r->job->steps - r->resumed < 2 ? r->resumed + 1 : r->resumed + 2))
        wf_par_print_traffic(r->s->out, &report);
    record.ms = now_ms() - begin;
    record.loss = result.loss;
    record.lr = (double)result.lr;
    record.grad_norm = (float)result.grad_norm;
    record.tokens_per_s =
        (double)(train->global_batch * wf_par_job_tokens(r->job)) / record.ms * 1e3;
    if (sum_up(r, flops, &record) != WF_OK || evaluate(r, step, &record) != WF_OK)
        return wf_context_status(r->ctx);
    if (r->first && wf_run_log_step(r->s->log, &record, &error) != WF_OK)
        note(r, &error);
    return save(r, step);
}

/* Opens what saves, and brings the trainer to the state of a checkpoint. */
static wf_status open_state(rank_run *r)
{
    const wf_services *s = r->s;
    const wf_par_save_options options = {.dir = s->save, .kind = WF_PAR_SAVE_SHARDED};
    wf_error error = {WF_OK, ""};

    if (s->save) {
        r->saver = wf_par_saver_open(r->r.trainer, &options);
        if (r->saver)
            wf_par_saver_check(r->saver, &error);
    }
    if (note(r, &error) == WF_OK && s->checkpoint &&
        wf_par_checkpoint_load(r->r.trainer, s->checkpoint, &error) == WF_OK)
        r->resumed = wf_par_checkpoint_step(s->checkpoint);
    return note(r, &error);
}

static wf_status begin_outputs(const rank_run *r)
{
    wf_error error = {WF_OK, ""};

    if (r->first && wf_run_log_begin(r->s->log, r->resumed, &error) == WF_OK && r->s->timeline)
        wf_timeline_begin(r->s->timeline, &error);
    return note(r, &error);
}

static void tell_end(const rank_run *r)
{
    uint64_t digest = 0;

    if (r->r.trainer && wf_par_trainer_digest(r->r.trainer, &digest) == WF_OK && r->first) {
        wf_run_log_clear(r->s->log);
        fprintf(r->s->out, "digest %016" PRIx64 " after step %lld\n", digest,
                (long long)(r->resumed > r->job->steps ? r->resumed : r->job->steps));
        fflush(r->s->out);
    }
}

static void train(rank_run *r)
{
    const wf_par_job *job = r->job;
    wf_par_train_options options = job->train;

    options.pipeline = r->s->pipeline;
    if (wf_par_job_materialize(r->s->pipeline, r->r.par, r->r.model) != WF_OK)
        return;
    r->r.trainer = wf_par_trainer_open(r->r.par, r->r.model, &options);
    if (wf_context_status(r->ctx) != WF_OK ||
        (job->begin && job->begin(&r->r, job->arg) != WF_OK) || open_state(r) != WF_OK ||
        wf_rank_trace_open(&r->trace) != WF_OK || begin_outputs(r) != WF_OK)
        return;
    for (int64_t step = r->resumed + 1; step <= job->steps; step++)
        if (train_step(r, step) != WF_OK)
            return;
    if (!job->after || job->after(&r->r, job->arg) == WF_OK)
        tell_end(r);
}

wf_status wf_services_train(wf_par *par, void *services)
{
    wf_services *s = services;
    rank_run r = {.s = s,
                  .job = &s->program->job,
                  .r = {.job = &s->program->job, .par = par},
                  .ctx = wf_par_context(par),
                  .rank = {.index = wf_context_rank(wf_par_context(par)),
                           .size = wf_mesh_ranks(wf_par_mesh(par)),
                           .world = par->world}};

    r.first = r.rank.index == 0;
    r.trace = (wf_rank_trace){.rank = &r.rank,
                              .par = par,
                              .traced = s->trace != NULL,
                              .first = s->trace_first,
                              .last = s->trace_last,
                              .timeline = r.first ? s->timeline : NULL,
                              .out = r.rank.index == s->rank ? s->out : NULL};
    r.r.model = wf_par_job_model(par, &s->program->job);
    if (r.r.model && s->show_layout && r.first)
        wf_par_print_layout(s->out, par, r.r.model, s->pipeline);
    if (r.r.model)
        train(&r);
    wf_rank_trace_close(&r.trace);
    if (r.job->end)
        r.job->end(&r.r, r.job->arg);
    wf_par_saver_close(r.saver);
    wf_par_trainer_close(r.r.trainer);
    if (r.r.model)
        wf_nn_free(r.r.model);
    return wf_context_status(r.ctx);
}
