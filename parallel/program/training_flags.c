/* parallel/program/training_flags.c - flags of rates, groups of parameters and averages; see
   services_internal.h. */
#include "parallel/program/services_internal.h"
#include <string.h>

static bool has_own(const wf_services *s, const char *name)
{
    for (const wf_flag *own = s->program->flags; own && own->name; own++)
        if (strcmp(own->name, name) == 0)
            return true;
    return false;
}

void wf_services_list_training(wf_services *s, wf_flag *flags, int *n, int most)
{
    wf_par_train_options *t = &s->program->job.train;
    const wf_flag mine[] = {
        {"lr", WF_FLAG_REAL, &t->schedule.lr, 0, 1000, NULL, NULL,
         "X learning rate after the warm-up"},
        {"min-lr", WF_FLAG_REAL, &t->schedule.min_lr, 0, 1000, NULL, NULL,
         "X learning rate to which a schedule falls"},
        {"warmup-steps", WF_FLAG_COUNT, &t->schedule.warmup, 0, 1e12, NULL, NULL,
         "N steps over which the rate rises to lr"},
        {"lr-schedule", WF_FLAG_TEXT, &s->lr_schedule, 0, 0, NULL, NULL,
         "constant|linear|cosine|wsd|inverse-sqrt|FILE the rate after the warm-up; FILE: lines "
         "STEP,RATE"},
        {"lr-decay-steps", WF_FLAG_COUNT, &t->schedule.decay, 0, 1e12, NULL, NULL,
         "N last steps of wsd, over which the rate falls; 0: a tenth of all"},
        {"skip-steps", WF_FLAG_TEXT, &s->skip_steps, 0, 0, NULL, NULL,
         "nonfinite,loss>X steps that change no parameter, and are reported"},
        {"param-groups", WF_FLAG_TEXT, &t->optimizer.groups, 0, 0, NULL, NULL,
         "PATTERN:lr=X,wd=Y;.. rates and weight decays of parameters by path"},
        {"ema", WF_FLAG_REAL, &s->ema, 0, 1, NULL, NULL,
         "X decay of a moving average of the weights that is kept; 0: none"},
        {"eval-ema", WF_FLAG_SWITCH, &t->evaluate_average, 0, 0, NULL, NULL,
         "with --ema: evaluations compute with that average"},
    };

    for (size_t i = 0; i < sizeof mine / sizeof *mine && *n < most; i++)
        if (!has_own(s, mine[i].name))
            flags[(*n)++] = mine[i];
}

wf_status wf_services_take_training(wf_services *s, wf_error *error)
{
    wf_par_train_options *t = &s->program->job.train;

    if (s->ema >= 1)
        return wf_error_set(error, WF_EINVAL, "--ema %g: it is below 1, and 0 for none",
                            s->ema);
    t->optimizer.ema = (float)s->ema;
    if (t->evaluate_average && !(s->ema > 0))
        return wf_error_set(error, WF_EINVAL,
                            "--eval-ema needs an average: give --ema X, 0.999 for instance");
    if (s->skip_steps && wf_par_skip_read(s->skip_steps, &t->skip, error) != WF_OK)
        return error->code;
    if (!s->lr_schedule)
        return WF_OK;
    if (wf_nn_schedule_read(s->lr_schedule, &t->schedule, error) != WF_OK)
        return error->code;
    s->schedule_is_read = t->schedule.kind == WF_NN_POINTS;
    return WF_OK;
}

void wf_services_close_training(wf_services *s)
{
    if (s->schedule_is_read)
        wf_nn_schedule_free(&s->program->job.train.schedule);
    s->schedule_is_read = false;
}
