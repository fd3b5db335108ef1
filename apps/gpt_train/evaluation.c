/* apps/gpt_train/evaluation.c - see the header. */
#include "apps/gpt_train/evaluation.h"
#include "parallel/recovery/elastic_files.h"
#include "apps/gpt_train/setup.h"
#include "parallel/recovery/signal_requests.h"
#include <math.h>

uint64_t app_loop_requests(const app_loop *l)
{
    bool leaves = l->o->recovery_dir && wf_elastic_files_leave(l->o->recovery_dir);

    return wf_saving_requests(&l->saving.saving) | (leaves ? WF_SIGNAL_LEAVE : 0);
}

/* Returns whether any rank is asked to stop, on all ranks alike, and takes up what any is asked for. */
static bool stop_asked(void *arg)
{
    app_loop *l = arg;
    const uint64_t mine = app_loop_requests(l);
    const uint64_t *all = wf_mesh_gather(wf_par_mesh(l->par), &mine, sizeof mine);

    for (int i = 0; all && i < l->rank->size; i++)
        l->requests |= (unsigned)all[i];
    return l->requests & WF_SIGNAL_STOP;
}

/* Returns whether requests can come: else evaluations need no agreement of the ranks. */
static bool may_be_asked(const app_options *o)
{
    return o->save || o->exit_duration_in_mins > 0;
}

/* Logs what --eval-requests came to, as gpt_eval choices reports it; NaN where no question has a label. */
static void log_score(app_loop *l, const wf_gen_score *s, wf_step_log *record)
{
    const double n = s->labelled ? (double)s->labelled : NAN;

    l->scalars[0] =
        (wf_log_scalar){"acc", "validation_metrics/acc", (double)s->right / n, 9, true};
    l->scalars[1] = (wf_log_scalar){"acc_norm", "validation_metrics/acc_norm",
                                    (double)s->right_by_bytes / n, 9, true};
    l->scalars[2] = (wf_log_scalar){"answer_bits_per_byte", NULL,
                                    s->labelled ? s->bits_per_byte : NAN, 17, false};
    record->scalars = l->scalars;
    record->scalar_count = APP_LOOP_SCALARS;
}

wf_status app_loop_evaluate(app_loop *l, int64_t step, wf_step_log *record)
{
    const wf_par_data validation = app_job_data(l->job, WF_DATASET_VALIDATION);
    int64_t batches = app_job_evaluations(l->o, l->job->data);
    wf_context *ctx = wf_par_context(l->par);
    wf_gen_score score = {0};
    bool (*stop)(void *) = may_be_asked(l->o) ? stop_asked : NULL;

    if (!app_setup_evaluates(l->o, step) || (l->requests & WF_SIGNAL_STOP)) {
        l->unevaluated = app_setup_evaluates(l->o, step);
        return wf_context_status(ctx);
    }
    wf_par_evaluate_until(l->trainer, batches, &validation, NULL, stop, l, &record->val_loss);
    record->has_val_loss = wf_context_status(ctx) == WF_OK && !(l->requests & WF_SIGNAL_STOP);
    if (record->has_val_loss)
        wf_saving_validated(&l->saving.saving, record->val_loss);
    if (record->has_val_loss && l->job->exam.requests.count) {
        app_exam_take(&l->job->exam, l->par, l->model, l->job->pipeline ? l->trainer : NULL,
                      l->rank->index == 0, stop, l, &score);
        if (wf_context_status(ctx) == WF_OK && !(l->requests & WF_SIGNAL_STOP))
            log_score(l, &score, record);
    }
    l->unevaluated = l->requests & WF_SIGNAL_STOP;
    return wf_context_status(ctx);
}
