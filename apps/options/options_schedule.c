/* apps/options/options_schedule.c - the schedule of the learning rate, from its flags. */
#include "apps/options/options_table.h"

/* Makes the schedule of flags that are checked; points of a file are read. */
static wf_status make_schedule(app_options *o, wf_error *error)
{
    wf_nn_schedule *s = &o->schedule;

    wf_nn_schedule_free(s);
    *s = (wf_nn_schedule){
        .lr = o->lr, .min_lr = o->min_lr, .warmup = o->warmup_steps, .steps = o->steps};
    if (wf_nn_schedule_read(o->lr_schedule, s, error) != WF_OK)
        return error->code;
    if (s->kind != WF_NN_WSD)
        return WF_OK;
    if (!o->given[APP_OPTION_lr_decay_steps] || !o->lr_decay_steps)
        o->lr_decay_steps = o->steps / 10;
    if (o->lr_decay_steps > o->steps - o->warmup_steps)
        return wf_error_set(
            error, WF_EINVAL,
            "--lr-decay-steps %lld and --warmup-steps %lld are more than --steps "
            "%lld; use --lr-decay-steps %lld or more --steps",
            (long long)o->lr_decay_steps, (long long)o->warmup_steps, (long long)o->steps,
            (long long)(o->steps - o->warmup_steps));
    s->decay = o->lr_decay_steps;
    return WF_OK;
}

wf_status app_options_check_schedule(app_options *o, wf_error *error)
{
    if (!o->given[APP_OPTION_min_lr])
        o->min_lr = o->lr / 10;
    if (!o->given[APP_OPTION_warmup_steps])
        o->warmup_steps = o->steps / 10 < 100 ? o->steps / 10 : 100;
    if (o->min_lr > o->lr)
        return wf_error_set(
            error, WF_EINVAL,
            "--min-lr %g is above --lr %g, where the rate starts to fall; use a --min-lr of at "
            "most %g",
            o->min_lr, o->lr, o->lr);
    if (o->warmup_steps > o->steps)
        return wf_error_set(
            error, WF_EINVAL,
            "--warmup-steps %lld is more than --steps %lld; use --warmup-steps %lld or more "
            "--steps",
            (long long)o->warmup_steps, (long long)o->steps, (long long)(o->steps / 10));
    return make_schedule(o, error);
}
