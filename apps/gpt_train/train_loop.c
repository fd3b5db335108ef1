/* apps/gpt_train/train_loop.c - one rank: build, plan, materialise, train, evaluate, sample. */
#include "apps/gpt_train/rank_parts.h"
#include "apps/gpt_train/rank_trace.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/step_report.h"
#include "apps/gpt_train/train_loop.h"
#include "apps/gpt_train/signal_requests.h"
#include "apps/program.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct loop {
    wf_rank *rank;
    const app_train_job *job;
    const app_options *o;
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer *trainer;
    app_saving saving;
    int64_t resumed;   /* steps that were done before */
    unsigned requests; /* those of all ranks, at the end of a step */
    rank_trace trace;
    rank_parts parts;
    bool told; /* true once it is said that the layout is not exact */
} loop;

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static wf_status read_part(void *self, app_data_part part, int64_t step, int64_t first,
                           int64_t count, void *const *field, wf_error *error)
{
    const app_train_job *job = self;

    wf_status status =
        app_data_set_read(job->data, part, step, first, count, field[0], field[1], error);

    if (status != WF_OK || !app_options_masks_documents(job->options))
        return status;
    return app_data_set_documents(job->data, part, step, first, count, field[2], field[3],
                                  error);
}

static wf_status read_train(void *self, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    return read_part(self, APP_DATA_TRAIN, step, first, count, field, error);
}

static wf_status read_validation(void *self, int64_t step, int64_t first, int64_t count,
                                 void *const *field, wf_error *error)
{
    return read_part(self, APP_DATA_VALIDATION, step, first, count, field, error);
}

static wf_status count_train(void *self, int64_t step, int64_t *count, wf_error *error)
{
    const app_train_job *job = self;

    return app_data_set_counted(job->data, APP_DATA_TRAIN, step, count, error);
}

static wf_status count_validation(void *self, int64_t batch, int64_t *count, wf_error *error)
{
    const app_train_job *job = self;

    return app_data_set_counted(job->data, APP_DATA_VALIDATION, batch, count, error);
}

static wf_par_data data_of(const app_train_job *job, app_data_part part)
{
    bool train = part == APP_DATA_TRAIN;

    return (wf_par_data){.read = train ? read_train : read_validation,
                         .self = (void *)(uintptr_t)job, /* only read */
                         .counted = !app_data_set_counts(job->data, part) ? NULL
                                    : train                               ? count_train
                                                                          : count_validation};
}

/* The largest of all ranks' memory peaks, the work of all since it was counted last, and what any
   of them was asked for. */
static wf_status sum_up(loop *l, double flops, app_step_log *record)
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
                   .flops = wf_context_flops(ctx) - flops,
                   .requests = app_saving_requests(&l->saving)};
    l->requests = 0;
    all = wf_mesh_gather(wf_par_mesh(l->par), &mine, sizeof mine);
    for (int i = 0; all && i < l->rank->size; i++) {
        if ((size_t)all[i].peak > record->memory_peak)
            record->memory_peak = (size_t)all[i].peak;
        record->gflops += all[i].flops / record->ms / 1e6;
        l->requests |= (unsigned)all[i].requests;
    }
    return wf_context_status(ctx);
}

static wf_status evaluate(loop *l, int64_t step, app_step_log *record)
{
    const wf_par_data validation = data_of(l->job, APP_DATA_VALIDATION);
    int64_t batches =
        l->o->eval_iters ? l->o->eval_iters : app_data_set_evaluations(l->job->data);

    if (!app_setup_evaluates(l->o, step))
        return WF_OK;
    record->has_val_loss = true;
    if (wf_par_evaluate(l->trainer, batches, &validation, NULL, &record->val_loss) == WF_OK)
        app_saving_validated(&l->saving, record->val_loss);
    if (l->job->exam.requests.count && wf_context_status(wf_par_context(l->par)) == WF_OK) {
        record->has_score = true;
        app_exam_take(&l->job->exam, l->par, l->model, l->job->pipeline ? l->trainer : NULL,
                      l->rank->index == 0, &record->score);
    }
    return wf_context_status(wf_par_context(l->par));
}

/* The first step may make what later ones find, so the second one is told, as in a plan. */
static wf_status tell_step(loop *l, int64_t step, wf_par_report *report)
{
    wf_error error = {WF_OK, ""};

    wf_par_report_end(l->par, &l->model->base, report);
    if (l->o->comm_report) {
        app_step_report_collectives(stdout, report);
        fprintf(stdout, "  (of rank %d, in step %lld; the world's is the gradient norm)\n",
                l->rank->index, (long long)step);
        fflush(stdout);
    }
    if (l->o->report_json && app_step_report_write(app_step_report_json(l->o, report),
                                                   l->o->report_json, &error) != WF_OK)
        return wf_fail(wf_par_context(l->par), error.code, "%s", error.text);
    return WF_OK;
}

static int64_t report_step(const loop *l)
{
    return l->resumed + (l->o->steps - l->resumed < 2 ? 1 : 2);
}

/* Take the digests that --digest asks for; those of tensors are in *of, which the caller frees. */
static wf_status take_digests(loop *l, app_step_log *record, wf_par_tensor_digest **of)
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

static wf_status train_step(loop *l, int64_t step)
{
    const wf_par_data train = data_of(l->job, APP_DATA_TRAIN);
    wf_context *ctx = wf_par_context(l->par);
    double start = now_ms(), flops = wf_context_flops(ctx);
    app_step_log record = {.step = step};
    wf_error error = {WF_OK, ""};
    wf_par_step result;
    wf_par_report report;
    wf_par_tensor_digest *digests = NULL;

    wf_par_report_begin(l->par, &report);
    if (rank_trace_step(&l->trace, l->trainer, step, &train, &result) != WF_OK)
        return wf_context_status(ctx);
    if (l->rank->index == l->o->rank && step == report_step(l) &&
        tell_step(l, step, &report) != WF_OK)
        return wf_context_status(ctx);
    record.ms = now_ms() - start;
    record.loss = result.loss;
    record.grad_norm = (float)result.grad_norm;
    record.lr = (double)result.lr;
    record.tokens_per_s = (double)(l->o->global_batch_size * l->o->seq_len) / record.ms * 1e3;
    if (sum_up(l, flops, &record) != WF_OK ||
        rank_parts_step(&l->parts, l->trainer, step) != WF_OK ||
        evaluate(l, step, &record) != WF_OK)
        return wf_context_status(ctx);
    if (take_digests(l, &record, &digests) == WF_OK && l->rank->index == 0 &&
        app_run_log_step(l->job->log, &record, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    free(digests);
    return wf_context_status(ctx);
}

/* Said once: by the mesh, by what its trainer makes of the batch, or by a sum that has run. */
static void tell_inexact(loop *l)
{
    const char *inexact = wf_par_inexact(l->par);

    if (inexact && !l->told && l->rank->index == 0)
        fprintf(stderr, "%s\n", inexact);
    l->told = inexact != NULL;
}

static void tell_shared_devices(const loop *l)
{
    const wf_device *device = wf_context_device(wf_par_context(l->par));
    const wf_device_place *place = &device->place;

    if (place->devices && place->ranks > place->devices && l->rank->index == 0)
        fprintf(stderr,
                "device %s: %d ranks share %d device%s, which is slower than one each\n",
                device->name, place->ranks, place->devices, place->devices == 1 ? "" : "s");
}

/* A line for each checkpoint, when it has been published. */
static void tell_saved(loop *l, const wf_par_saver *saver, int64_t *told)
{
    int64_t step = saver ? wf_par_saver_saved(saver) : 0;
    char path[4096];

    if (step == *told)
        return;
    *told = step;
    if (l->rank->index != 0)
        return;
    app_run_log_clear(l->job->log);
    printf("saved %s\n", wf_par_saver_path(saver, step, path, sizeof path));
    fflush(stdout);
}

static void introduce(loop *l)
{
    tell_inexact(l);
    tell_shared_devices(l);
    if (l->rank->warning && l->rank->index == 0)
        fprintf(stderr, "gpt_train: warning: %s\n", l->rank->warning);
    if (l->o->init_from && l->rank->index == 0)
        app_program_tell_unknown("gpt_train", l->o->init_from);
    if (l->o->show_layout && l->rank->index == 0)
        app_report_layout(stdout, l->par, &l->model->base, l->job->pipeline);
}

static wf_status train(loop *l)
{
    wf_context *ctx = wf_par_context(l->par);
    int64_t step = 0, saved = 0, best = 0, last = rank_parts_last(&l->parts);
    bool stop = false;

    if (app_saving_open(&l->saving, l->o, l->par, l->model, l->trainer, l->job->numerics,
                        l->job->saved) == WF_OK &&
        l->rank->index == 0)
        app_first_lines(stdout, l->o, &l->model->base, l->job->pipeline, l->job->data);
    app_saving_resume(&l->saving, l->job->resume, &step);
    l->resumed = step;
    rank_parts_open(&l->parts);
    while (++step <= last && !stop && wf_context_status(ctx) == WF_OK)
        if (train_step(l, step) == WF_OK) {
            tell_inexact(l);
            app_saving_step(&l->saving, step, l->requests, &stop);
            tell_saved(l, l->saving.saver, &saved);
            tell_saved(l, l->saving.best, &best);
        }
    if (wf_context_status(ctx) == WF_ENONFINITE) /* every rank has found it */
        app_saving_finish(&l->saving);
    app_run_log_clear(l->rank->index == 0 ? l->job->log : NULL);
    return rank_parts_tell(&l->parts, l->resumed + 1, last);
}

/* Without steps the parameters alone are loaded; of a local checkpoint all that a trainer holds, in
   whose layout it is. The stages of a pipeline are a trainer's too. */
static wf_status load_model(loop *l, const wf_par_train_options *options)
{
    const app_resume *resume = l->job->resume;
    int64_t step;

    if (l->job->pipeline)
        l->trainer = wf_par_trainer_open(l->par, &l->model->base, options);
    for (int i = 0; i < resume->count && !l->trainer; i++)
        if (wf_par_checkpoint_is_local(resume->checkpoint[i]))
            l->trainer = wf_par_trainer_open(l->par, &l->model->base, options);
    l->saving = (app_saving){.options = l->o,
                             .par = l->par,
                             .trainer = l->trainer,
                             .model = &l->model->base,
                             .result = l->job->saved};
    return app_saving_resume(&l->saving, l->job->resume, &step);
}

/* Whoever asks a run to stop does not wait for a sample: the same command goes on with that. */
static wf_status sample(loop *l)
{
    bool stopped = l->requests & APP_SIGNAL_STOP;

    if (l->rank->index == 0)
        app_run_log_clear(l->job->log);
    if (!stopped)
        app_sample_text(l->o,
                        &(app_sampled){l->par, l->model, l->job->pipeline ? l->trainer : NULL,
                                       &l->job->prompt},
                        l->rank->index == 0 ? stdout : NULL, &stopped);
    if (stopped)
        l->job->saved->preempted = true;
    return wf_context_status(wf_par_context(l->par));
}

static wf_status run(loop *l)
{
    wf_par_train_options options = app_setup_training(l->o);
    wf_context *ctx = wf_par_context(l->par);

    l->model = app_setup_model(l->o, ctx);
    if (!l->model || wf_par_plan(l->par, &l->model->base, wf_par_gpt_plan) != WF_OK)
        return wf_context_status(ctx);
    introduce(l);
    if (l->o->steps == 0 && l->rank->index == 0)
        app_first_lines(stdout, l->o, &l->model->base, l->job->pipeline, NULL);
    if (l->o->steps == 0 && l->o->sample == 0)
        return WF_OK;
    options.pipeline = l->job->pipeline;
    if (app_setup_materialize(l->job->pipeline, l->par, &l->model->base) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->init_from && wf_par_pretrained_load(l->par, l->model, l->o->init_from) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->lora_init && wf_par_lora_load(l->par, l->model, l->o->lora_init) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->steps) {
        l->trainer = wf_par_trainer_open(l->par, &l->model->base, &options);
        tell_inexact(l);
        if (rank_trace_open(&l->trace) != WF_OK)
            return wf_context_status(ctx);
        train(l);
    } else {
        load_model(l, &options);
    }
    return l->o->sample && wf_context_status(ctx) == WF_OK ? sample(l) : wf_context_status(ctx);
}

wf_status app_train_rank(wf_rank *rank, void *arg)
{
    const app_train_job *job = arg;
    wf_par_options options = app_setup_rank(job->options, false);
    loop l = {.rank = rank, .job = job, .o = job->options};
    wf_status status;

    if (job->failed.code != WF_OK)
        return wf_error_set(&rank->error, job->failed.code, "%s", job->failed.text);
    options.pace = job->options->paced ? &job->paced.pace : NULL;
    l.par = wf_par_open(rank, &options, &rank->error);
    if (!l.par)
        return rank->error.code;
    l.trace =
        (rank_trace){.rank = rank, .par = l.par, .options = l.o, .timeline = job->timeline};
    l.parts = (rank_parts){.rank = rank,
                           .par = l.par,
                           .options = l.o,
                           .numerics = job->numerics,
                           .replay = job->replay,
                           .flip = job->flip,
                           .log = {.file = -1}};
    status = run(&l);
    if (status != WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(wf_par_context(l.par))->text);
    app_saving_close(&l.saving);
    rank_parts_close(&l.parts);
    rank_trace_close(&l.trace);
    wf_par_trainer_close(l.trainer);
    if (l.model)
        wf_nn_free(&l.model->base);
    wf_par_close(l.par);
    return status;
}
