/* apps/options/options_schedule.c - the schedule of the learning rate and that of batches, from
   their flags. */
#include "apps/options/options_table.h"
#include <string.h>

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

/* Checks batches that grow; *first: the first of them. */
static wf_status check_rampup(const app_options *o, long long *first, wf_error *error)
{
    bool elastic = o->elastic || o->recovery_dir;
    wf_par_rampup r = {0};

    *first = o->global_batch_size;
    if (!o->rampup_batch_size)
        return WF_OK;
    if (wf_par_rampup_read(o->rampup_batch_size, &r, error) != WF_OK)
        return error->code;
    if (elastic || o->epochs > 0 || app_options_pipelined(o) || strcmp(o->search, "off") != 0)
        return wf_error_set(error, WF_EINVAL, "--rampup-batch-size does not go with %s",
                            elastic                    ? "--elastic, which divides one batch"
                            : o->epochs > 0            ? "--epochs: give --steps"
                            : app_options_pipelined(o) ? "a pipeline, whose schedule has one "
                                                         "number of micro-steps"
                                                       : "--search");
    *first = r.start;
    return WF_OK;
}

wf_status app_options_check_batch(app_options *o, wf_error *error)
{
    long long global = o->global_batch_size, micro = o->micro_batch_size, dp = o->dp, first;

    if (check_rampup(o, &first, error) != WF_OK)
        return error->code;

    if (strcmp(o->search, "off") != 0) { /* only layouts that divide it are taken */
        o->micro_batch_size = micro ? micro : 1;
        return WF_OK;
    }
    if (o->find_batch) { /* the search chooses both, and has as many micro-steps */
        o->micro_batch_size = micro ? micro : (global + dp - 1) / dp;
        return WF_OK;
    }
    if (!micro && o->cp > 1) { /* a long sequence fills a rank */
        o->micro_batch_size = 1;
        return WF_OK;
    }
    o->whole_batches = !micro;
    if ((global % dp || first % dp) &&
        micro <= 1) { /* so it is trained, on any number of ranks */
        o->micro_batch_size = 1;
        return WF_OK;
    }
    if (!micro)
        o->micro_batch_size = first / dp;
    else if (global % (dp * micro))
        return wf_error_set(error, WF_EINVAL,
                            "--global-batch-size %lld is not a multiple of --dp %lld x "
                            "--micro-batch-size %lld = "
                            "%lld; use --global-batch-size %s, or --micro-batch-size 1, which "
                            "takes any",
                            global, dp, micro, dp * micro,
                            app_multiples_near(global, dp * micro).text);
    return WF_OK;
}
