/* apps/gpt_train/train_loop.c - one rank: build, plan, materialise, train, evaluate, sample. */
#include "apps/gpt_train/first_lines.h"
#include "parallel/report/layout.h"
#include "apps/gpt_train/setup.h"
#include "apps/gpt_train/sample.h"
#include "apps/gpt_train/train_loop.h"
#include "apps/gpt_train/train_steps.h"
#include "parallel/recovery/signal_requests.h"
#include "apps/program.h"

static void tell_shared_devices(const app_loop *l)
{
    const wf_device *device = wf_context_device(wf_par_context(l->par));
    const wf_device_location *place = &device->place;

    if (place->devices && place->ranks > place->devices && l->rank->index == 0)
        fprintf(stderr,
                "device %s: %d ranks share %d device%s, which is slower than one each\n",
                device->name, place->ranks, place->devices, place->devices == 1 ? "" : "s");
}

/* Once, and not by those who go on. */
static void introduce(app_loop *l)
{
    if (l->elastic.restarted)
        return;
    tell_shared_devices(l);
    if (l->rank->warning && l->rank->index == 0)
        fprintf(stderr, "gpt_train: warning: %s\n", l->rank->warning);
    if (l->o->show_layout && l->rank->index == 0)
        wf_par_print_layout(stdout, l->par, &l->model->base, l->job->pipeline);
}

/* Without steps the parameters alone are loaded; of a local checkpoint all that a trainer holds, in
   whose layout it is. The stages of a pipeline are a trainer's too. */
static wf_status load_model(app_loop *l, const wf_par_train_options *options)
{
    const wf_resume *resume = l->job->resume;
    int64_t step;

    if (l->job->pipeline)
        l->trainer = wf_par_trainer_open(l->par, &l->model->base, options);
    for (int i = 0; i < resume->count && !l->trainer; i++)
        if (wf_par_checkpoint_is_local(resume->checkpoint[i]))
            l->trainer = wf_par_trainer_open(l->par, &l->model->base, options);
    app_saving_open_loading(&l->saving, l->o, l->par, l->model, l->trainer, l->job->saved);
    return wf_saving_resume(&l->saving.saving, l->job->resume, &step);
}

/* Whoever asks a run to stop does not wait for a sample: the same command goes on with that. */
static wf_status sample(app_loop *l)
{
    bool stopped = l->requests & WF_SIGNAL_STOP;

    if (l->rank->index == 0)
        wf_run_log_clear(l->job->log);
    if (!stopped)
        app_sample_text(l->o,
                        &(app_sampled){l->par, l->model, l->job->pipeline ? l->trainer : NULL,
                                       &l->job->prompt},
                        l->rank->index == 0 ? stdout : NULL, &stopped);
    if (stopped)
        wf_saving_preempted(l->job->saved, true);
    return wf_context_status(wf_par_context(l->par));
}

static void begin_without_steps(app_loop *l)
{
    wf_error error = {WF_OK, ""};

    app_first_lines(stdout, l->o, &l->model->base, l->job->pipeline, NULL);
    if (wf_run_log_begin(l->job->log, 0, &error) != WF_OK)
        wf_fail(wf_par_context(l->par), error.code, "%s", error.text);
}

static wf_status run(app_loop *l)
{
    wf_par_train_options options = app_setup_training(l->o);
    wf_context *ctx = wf_par_context(l->par);

    if (wf_elastic_rank_before(&l->elastic) != WF_OK)
        return wf_context_status(ctx);
    l->model = app_setup_model(l->o, ctx);
    if (!l->model || wf_par_plan(l->par, &l->model->base, wf_par_gpt_plan) != WF_OK)
        return wf_context_status(ctx);
    introduce(l);
    if (l->o->steps == 0 && l->rank->index == 0)
        begin_without_steps(l);
    if (l->o->steps == 0 && l->o->sample == 0)
        return WF_OK;
    options.pipeline = l->job->pipeline;
    if (wf_par_job_materialize(l->job->pipeline, l->par, &l->model->base) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->init_from && wf_par_pretrained_load(l->par, l->model, l->o->init_from) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->lora_init && wf_par_lora_load(l->par, l->model, l->o->lora_init) != WF_OK)
        return wf_context_status(ctx);
    if (l->o->steps) {
        l->trainer = wf_par_trainer_open(l->par, &l->model->base, &options);
        if (wf_elastic_rank_serves(&l->elastic, l->trainer) != WF_OK)
            return wf_context_status(ctx);
        if (wf_rank_trace_open(&l->trace) != WF_OK)
            return wf_context_status(ctx);
        app_loop_train(l);
    } else {
        load_model(l, &options);
    }
    if (l->o->sample && !l->elastic.leaves && wf_context_status(ctx) == WF_OK)
        sample(l);
    return wf_elastic_rank_end(&l->elastic);
}

wf_status app_train_rank(wf_rank *rank, void *arg)
{
    const app_train_job *job = arg;
    wf_par_options options = app_setup_rank(job->options, false);
    app_loop l = {.rank = rank, .job = job, .o = job->options};
    wf_status status;

    options.pace = job->options->paced ? &job->paced.pace : NULL;
    l.par = wf_par_open(rank, &options, &rank->error);
    if (!l.par)
        return rank->error.code;
    l.elastic = wf_elastic_rank_of(job->elastic, l.par, wf_resume_step(job->resume));
    l.trace = (wf_rank_trace){.rank = rank,
                              .par = l.par,
                              .traced = l.o->trace != NULL,
                              .first = l.o->trace_steps.first,
                              .last = l.o->trace_steps.last,
                              .timeline = job->timeline,
                              .out = rank->index == l.o->rank ? stdout : NULL};
    l.parts = (rank_parts){.rank = rank,
                           .par = l.par,
                           .options = l.o,
                           .numerics = job->numerics,
                           .replay = job->replay,
                           .flip = job->flip,
                           .log = {.file = {.file = -1}}};
    status = run(&l);
    if (status != WF_OK)
        wf_error_set(&rank->error, status, "%s", wf_context_error(wf_par_context(l.par))->text);
    wf_elastic_rank_leave(&l.elastic, status);
    app_saving_close(&l.saving);
    rank_parts_close(&l.parts);
    wf_rank_trace_close(&l.trace);
    wf_par_trainer_close(l.trainer);
    if (l.model)
        wf_nn_free(&l.model->base);
    wf_par_close(l.par);
    return status;
}
