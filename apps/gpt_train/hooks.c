/* apps/gpt_train/hooks.c - what gpt_train does beside the library's steps: pretrained weights,
   flags in checkpoints, the lines at the start, evaluation tasks and a sample; and what these
   take, in plans. See job.h. */
#include "apps/gpt_train/startup_banner.h"
#include "apps/gpt_train/job.h"
#include "apps/gpt_train/sample.h"
#include "apps/gpt_train/saving.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A rank's state between hooks. */
typedef struct own {
    app_saving texts;
    wf_saving planned; /* a plan's */
    bool is_planned;
} own;

static const app_options *options_of(const void *job)
{
    return ((const app_job *)job)->options;
}

static own *make_own(wf_par_running *r)
{
    r->own = calloc(1, sizeof(own));
    if (!r->own)
        wf_fail(wf_par_context(r->par), WF_ENOMEM, "no memory for the flags");
    return r->own;
}

/* Loads what --init-from and --lora-init name; wf_run_hooks.load. */
static wf_status load(wf_par_running *r, void *job)
{
    const app_options *o = options_of(job);
    wf_nn_gpt *model = (wf_nn_gpt *)r->model;

    if (o->init_from && wf_par_pretrained_load(r->par, model, o->init_from) != WF_OK)
        return wf_context_status(wf_par_context(r->par));
    return o->lora_init ? wf_par_lora_load(r->par, model, o->lora_init) : WF_OK;
}

/* Adds flags and the base of adapters to checkpoints; wf_run_hooks.saving. */
static wf_status add_texts(wf_par_running *r, wf_saving_options *options, void *job)
{
    own *mine = make_own(r);

    return mine ? app_saving_open(&mine->texts, options_of(job), r->par, (wf_nn_gpt *)r->model,
                                  options)
                : wf_context_status(wf_par_context(r->par));
}

/* Prints what is trained; wf_run_hooks.introduce. */
static wf_status introduce(wf_par_running *r, void *job)
{
    app_print_banner(stdout, options_of(job), r->model, r->pipeline,
                     ((const app_job *)job)->data);
    return WF_OK;
}

/* Takes --eval-requests, with the numbers of gpt_eval choices; NaN where no question has a
   label. wf_run_hooks.score */
static wf_status score(wf_par_running *r, wf_log_scalar *scalar, int *count, void *job)
{
    const app_eval_requests *asked = &((const app_job *)job)->eval_requests;
    wf_context *ctx = wf_par_context(r->par);
    wf_gen_score s = {0};
    double n;

    if (!asked->requests.count ||
        app_eval_requests_answer(asked, r->par, (wf_nn_gpt *)r->model,
                                 r->pipeline ? r->trainer : NULL, wf_context_rank(ctx) == 0,
                                 r->stop, r, &s) != WF_OK)
        return wf_context_status(ctx);
    n = s.labelled ? (double)s.labelled : NAN;
    scalar[0] = (wf_log_scalar){"acc", "validation_metrics/acc", (double)s.right / n, 9, true};
    scalar[1] = (wf_log_scalar){"acc_norm", "validation_metrics/acc_norm",
                                (double)s.right_by_bytes / n, 9, true};
    scalar[2] = (wf_log_scalar){"answer_bits_per_byte", NULL,
                                s.labelled ? s.bits_per_byte : NAN, 17, false};
    *count = 3;
    return WF_OK;
}

const wf_run_hooks app_run_hooks = {load, add_texts, introduce, score};

/* Opens what saves checkpoints, in a plan, since it takes memory; wf_par_job.begin. */
wf_status app_hook_begin(wf_par_running *r, void *job)
{
    const app_options *o = options_of(job);
    wf_context *ctx = wf_par_context(r->par);
    wf_saving_options options;
    own *mine;

    if (!wf_context_dry_run(ctx) || !(mine = make_own(r)))
        return wf_context_status(ctx);
    mine->is_planned = true;
    options = app_saving_options(o);
    options.steps = o->steps;
    options.save.async = r->job->async_save;
    return app_saving_open(&mine->texts, o, r->par, (wf_nn_gpt *)r->model, &options) == WF_OK
               ? wf_saving_open(&mine->planned, &options, r->par, r->model, r->trainer, NULL)
               : wf_context_status(ctx);
}

/* Prints the text of --sample; in a plan takes what evaluation tasks and a sample take.
   wf_par_job.after */
wf_status app_hook_after(wf_par_running *r, void *job)
{
    const app_job *j = job;
    wf_context *ctx = wf_par_context(r->par);
    wf_nn_gpt *model = (wf_nn_gpt *)r->model;
    wf_par_trainer *pipelined = r->pipeline ? r->trainer : NULL;
    const app_sampled from = {r->par, model, pipelined, &j->prompt};

    if (!wf_context_dry_run(ctx))
        return app_sample_text(j->options, &from, wf_context_rank(ctx) == 0 ? stdout : NULL,
                               &r->stopped);
    if (r->trainer && j->options->eval_ema)
        wf_par_trainer_average(r->trainer, true);
    if (r->trainer)
        app_eval_requests_plan(&j->eval_requests, r->par, model, pipelined);
    if (r->trainer && j->options->eval_ema)
        wf_par_trainer_average(r->trainer, false);
    if (j->options->sample)
        app_sample_plan(j->options, &from);
    return wf_context_status(ctx);
}

/* Frees what a rank keeps; wf_par_job.end. */
wf_status app_hook_end(wf_par_running *r, void *job)
{
    own *mine = r->own;

    (void)job;
    if (mine && mine->is_planned)
        wf_saving_close(&mine->planned);
    if (mine)
        app_saving_close(&mine->texts);
    free(mine);
    return WF_OK;
}
