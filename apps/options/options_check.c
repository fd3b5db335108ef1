/* apps/options/options_check.c - rules that join several flags, and values that follow from
   others. */
#include "apps/options/options_table.h"
#include "core/dtype.h"
#include <stdlib.h>
#include <string.h>

app_multiples app_multiples_near(int64_t value, int64_t of)
{
    int64_t low = value / of * of;
    app_multiples m;

    if (low)
        snprintf(m.text, sizeof m.text, "%lld or %lld", (long long)low, (long long)(low + of));
    else
        snprintf(m.text, sizeof m.text, "%lld", (long long)of);
    return m;
}

void app_options_derive_compute(app_options *o)
{
    if (!o->given[APP_OPTION_compute])
        memcpy(o->compute, o->dtype, sizeof o->compute);
}

/* Mixed precision as it is usual: weights are stored, and products made, as activations are
   stored. */
static wf_status derive_dtypes(app_options *o, wf_error *error)
{
    if (!o->given[APP_OPTION_param_dtype])
        memcpy(o->param_dtype, o->dtype, sizeof o->param_dtype);
    app_options_derive_compute(o);
    if (strcmp(o->compute, wf_dtype_word(WF_F32)) != 0 && strcmp(o->compute, o->dtype) != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--compute %s multiplies activations as they are stored, and they "
                            "are stored as %s: use it with --dtype %s",
                            o->compute, o->dtype, o->compute);
    if (o->fp32_residual_connection && strcmp(o->dtype, "bf16") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--fp32-residual-connection is for activations that are stored as "
                            "bf16, and they are stored as %s: use it with --dtype bf16",
                            o->dtype);
    return WF_OK;
}

/* A flag without the one that it belongs to would do nothing. */
static wf_status check_plan(app_options *o, wf_error *error)
{
    if (o->plan && o->report_json)
        return wf_error_set(error, WF_EINVAL,
                            "--report-json is of a run; with --plan use --json FILE");
    if (o->plan && strcmp(o->transport, "auto") && strcmp(o->transport, "fake"))
        return wf_error_set(error, WF_EINVAL,
                            "--plan moves nothing, so it has no --transport %s; drop the flag",
                            o->transport);
    if (!o->plan && (o->json || o->find_batch || o->chakra))
        return wf_error_set(error, WF_EINVAL, "%s belongs to a plan; use it with --plan%s",
                            o->json         ? "--json"
                            : o->find_batch ? "--find-batch"
                                            : "--chakra",
                            o->json ? ", or --report-json for a run" : "");
    if (o->find_batch && !o->device_memory)
        return wf_error_set(
            error, WF_EINVAL,
            "--find-batch needs to know what is there: use it with --device-memory "
            "SIZE, for instance 80GiB");
    if (o->plan && (o->paced || o->show_layout))
        return wf_error_set(error, WF_EINVAL, "%s, and --plan runs none; %s",
                            o->paced ? "--paced FILE is the time of steps that run"
                                     : "--show-layout is of ranks that run",
                            o->paced ? "use --machine FILE for its times"
                                     : "use --steps 0 --transport fake, which takes no memory");
    if (o->calibrate && o->plan)
        return wf_error_set(error, WF_EINVAL,
                            "--calibrate runs steps, and --plan none: use one of the two");
    if (o->paced_scale != 1 && !o->paced)
        return wf_error_set(error, WF_EINVAL,
                            "--paced-scale belongs to --paced FILE; use it with that");
    if (o->machine && !o->plan && (!o->steps || o->paced))
        return wf_error_set(
            error, WF_EINVAL,
            "--machine is for a plan, and for the MFU of steps that run, and %s",
            o->paced ? "--paced has figures of its own" : "--steps is 0");
    if (o->report_json && !o->steps)
        return wf_error_set(
            error, WF_EINVAL,
            "--report-json is of a step, and --steps is 0: use --plan --json FILE "
            "to go without");
    if (o->comm_report && !o->steps && !o->plan)
        return wf_error_set(error, WF_EINVAL,
                            "--comm-report is of a step, and --steps is 0: use --plan to go "
                            "without");
    if (o->memory_timeline && (!o->steps || strcmp(o->search, "off") != 0))
        return wf_error_set(error, WF_EINVAL,
                            "--memory-timeline is of a step of one layout, and %s",
                            o->steps ? "--search looks at many" : "--steps is 0");
    if (o->given[APP_OPTION_rank] && !o->plan && !o->report_json && !o->comm_report &&
        !o->trace && !o->memory_timeline)
        return wf_error_set(error, WF_EINVAL,
                            "--rank belongs to --plan, --report-json, --comm-report, --trace "
                            "or --memory-timeline");
    return WF_OK;
}

/* A search looks at many layouts, on a machine. */
static wf_status check_search(app_options *o, wf_error *error)
{
    bool searches = strcmp(o->search, "off") != 0;

    if (searches && (!o->plan || !o->machine))
        return wf_error_set(error, WF_EINVAL,
                            "--search simulates layouts on a machine: use it with --plan and "
                            "--machine FILE (docs/machines has some)");
    if (o->chakra && searches)
        return wf_error_set(error, WF_EINVAL,
                            "--chakra writes one layout, and --search looks for it: use the "
                            "flags of a line that it finds");
    if (o->ranks && !searches)
        return wf_error_set(error, WF_EINVAL, "--ranks belongs to --plan --search");
    if (o->find_batch && searches)
        return wf_error_set(error, WF_EINVAL,
                            "--find-batch is of one layout, and --search tries micro-batches "
                            "of many: use one of the two");
    if (o->given[APP_OPTION_rank] && searches)
        return wf_error_set(error, WF_EINVAL,
                            "--rank is of the plan of one layout, and --search looks at many: "
                            "use the flags of a line that it finds");
    return WF_OK;
}

/* Drops an output that a config file names: a replay writes nothing. */
static wf_status drop_writing(app_options *o, app_option_id id, const char *flag, char **path,
                              wf_error *error)
{
    if (o->given[id] && !o->from_config[id])
        return wf_error_set(error, WF_EINVAL,
                            "--replay repeats steps and writes nothing: drop %s", flag);
    free(*path);
    *path = NULL;
    return WF_OK;
}

static wf_status check_replay(app_options *o, wf_error *error)
{
    const struct {
        app_option_id id;
        const char *flag;
        char **path;
    } written[] = {{APP_OPTION_save, "--save", &o->save},
                   {APP_OPTION_log_jsonl, "--log-jsonl", &o->log_jsonl},
                   {APP_OPTION_tensorboard, "--tensorboard", &o->tensorboard},
                   {APP_OPTION_log_digests, "--log-digests", &o->log_digests}};

    if (o->replay_to && !o->replay)
        return wf_error_set(error, WF_EINVAL, "--replay-to belongs to --replay DIR");
    if ((o->replay || o->log_digests || o->flip_bit) && (o->plan || !o->steps))
        return wf_error_set(error, WF_EINVAL, "%s is of steps that run, and %s",
                            o->replay        ? "--replay"
                            : o->log_digests ? "--log-digests"
                                             : "--flip-bit",
                            o->plan ? "--plan runs none" : "--steps is 0");
    for (size_t i = 0; o->replay && i < sizeof written / sizeof *written; i++)
        if (drop_writing(o, written[i].id, written[i].flag, written[i].path, error) != WF_OK)
            return error->code;
    if (o->replay)
        o->save_best = false;
    return WF_OK;
}

static wf_status check_trace(app_options *o, wf_error *error)
{
    bool given = o->given[APP_OPTION_trace_steps];
    app_steps *traced = &o->trace_steps;

    if (given && !o->trace && !o->profile)
        return wf_error_set(error, WF_EINVAL,
                            "--trace-steps belongs to a timeline or a profile; use it with "
                            "--trace FILE or --profile N");
    if ((o->trace || o->profile) && (o->plan || !o->steps))
        return wf_error_set(
            error, WF_EINVAL, "--%s is of steps that run, and %s; drop one of the two",
            o->trace ? "trace" : "profile", o->plan ? "--plan runs none" : "--steps is 0");
    if (!given)
        *traced = (app_steps){o->steps < 2 ? o->steps : 2, o->steps < 3 ? o->steps : 3};
    if ((o->trace || o->profile) && traced->last > o->steps)
        return wf_error_set(error, WF_EINVAL,
                            "--trace-steps %lld-%lld goes beyond --steps %lld; use steps up to "
                            "that one, or more --steps",
                            (long long)traced->first, (long long)traced->last,
                            (long long)o->steps);
    return WF_OK;
}

static wf_status check_wrap(app_options *o, wf_error *error)
{
    if (o->wrap_min_params && o->given[APP_OPTION_wrap_type])
        return wf_error_set(
            error, WF_EINVAL,
            "--wrap-type %s and --wrap-min-params %lld both choose units; use one of them",
            o->wrap_type, (long long)o->wrap_min_params);
    return WF_OK;
}

static wf_status check_skipping(app_options *o, wf_error *error)
{
    wf_par_skip skip;

    return o->skip_steps ? wf_par_skip_read(o->skip_steps, &skip, error) : WF_OK;
}

static wf_status check_evaluation(app_options *o, wf_error *error)
{
    if (o->eval_ema && !(o->ema > 0 && o->eval_interval))
        return wf_error_set(error, WF_EINVAL, "--eval-ema evaluates a moving average, and %s",
                            o->ema > 0 ? "--eval-interval is 0" : "--ema is 0");
    if (o->eval_requests && (!o->eval_interval || (o->val_fraction <= 0 && !o->val_data.count)))
        return wf_error_set(
            error, WF_EINVAL,
            "--eval-requests %s is looked at where the validation loss is; use "
            "--eval-interval N and --val-fraction above 0, or --val-data FILE...",
            o->eval_requests);
    if (o->val_fraction > 0 || o->val_data.count || !o->eval_interval)
        return WF_OK;
    if (o->given[APP_OPTION_eval_interval])
        return wf_error_set(
            error, WF_EINVAL,
            "--eval-interval %lld needs validation data, but --val-fraction is 0; use "
            "--val-fraction 0.1, --val-data FILE... or --eval-interval 0",
            (long long)o->eval_interval);
    o->eval_interval = 0;
    return WF_OK;
}

static wf_status check_sample(app_options *o, wf_error *error)
{
    if (o->sample && !*o->sample_prompt)
        return wf_error_set(
            error, WF_EINVAL,
            "--sample-prompt is empty, and a sample continues at least one byte; use "
            "--sample-prompt \"The \"");
    return WF_OK;
}

/* Returns true where a run reaches a step. */
static bool comes(const app_options *o, int64_t step)
{
    return !o->steps || step <= o->steps;
}

/* Refuses options that no part of the run would read: --tokenizer alone would look as if it
   made ids of --data. */
static wf_status check_unread(app_options *o, wf_error *error)
{
    const wf_nn_method_row *row = wf_nn_method_row_of(wf_nn_method_find(o->optimizer));
    unsigned uses = row ? row->uses : 0;
    bool text = o->sample || o->eval_requests || strcmp(o->documents, "mask") == 0;
    bool points = o->schedule.kind == WF_NN_POINTS;
    const wf_nn_gpt_config c = app_options_model(o);
    bool local = o->sliding_window && c.position == WF_NN_ROPE;
    bool falls = !points && o->schedule.kind != WF_NN_CONSTANT;
    const struct {
        app_option_id id;
        bool read;
        const char *flag, *why;
    } rows[] = {
        {APP_OPTION_lr, !points, "--lr",
         "is not read beside --lr-schedule FILE, which has rates"},
        {APP_OPTION_warmup_steps, !points, "--warmup-steps",
         "is not read beside --lr-schedule FILE, which has rates"},
        {APP_OPTION_min_lr, falls, "--min-lr",
         "is where schedules fall to, and --lr-schedule constant and a file do not"},
        {APP_OPTION_lr_decay_steps, o->schedule.kind == WF_NN_WSD, "--lr-decay-steps",
         "is of --lr-schedule wsd"},
        {APP_OPTION_tokenizer, text, "--tokenizer",
         "is of --sample N, --eval-requests FILE and --documents mask; ids of --data are made "
         "by gpt_data"},
        {APP_OPTION_sample_prompt, o->sample, "--sample-prompt", "belongs to --sample N"},
        {APP_OPTION_sample_temperature, o->sample, "--sample-temperature",
         "belongs to --sample N"},
        {APP_OPTION_keep, o->save || o->replay, "--keep", "belongs to --save DIR"},
        {APP_OPTION_checkpoint, o->save || o->replay, "--checkpoint", "belongs to --save DIR"},
        {APP_OPTION_eval_iters, o->eval_interval, "--eval-iters",
         "is of evaluations, and there are none (--eval-interval 0, or no validation data)"},
        {APP_OPTION_beta2, uses & WF_NN_USES_BETA2, "--beta2",
         "is of adamw, muon and lion, and --optimizer is another"},
        {APP_OPTION_eps, uses & WF_NN_USES_EPS, "--eps",
         "is of adamw and muon, and --optimizer is another"},
        {APP_OPTION_check_replicas, comes(o, o->check_replicas), "--check-replicas",
         "is more than --steps, so that nothing would be compared"},
        {APP_OPTION_verify_every, comes(o, o->verify_every), "--verify-every",
         "is more than --steps, so that nothing would be compared"},
        {APP_OPTION_window_rope_base, !(o->window_rope_base > 0) || local, "--window-rope-base",
         "is of RoPE in blocks that have a window (--sliding-window, --arch llama)"},
        {APP_OPTION_moe_weigh_input, c.experts, "--moe-weigh-input",
         "is of a mixture of experts (--n-expert N)"},
        {APP_OPTION_window_chunks, o->sliding_window, "--window-chunks",
         "is of blocks that have a window (--sliding-window N)"},
        {APP_OPTION_qk_l2_norm, c.position == WF_NN_ROPE, "--qk-l2-norm",
         "is of heads that RoPE rotates (--arch llama)"},
        {APP_OPTION_query_temperature,
         c.rope_skip && c.rope_skip <= c.layers && c.temperature_every > 0,
         "--query-temperature",
         "is of blocks without RoPE (--rope-skip N), with --query-temperature-every N"},
        {APP_OPTION_query_temperature_every, c.temperature > 0, "--query-temperature-every",
         "is of --query-temperature X"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (o->given[rows[i].id] && !o->from_config[rows[i].id] && !rows[i].read)
            return wf_error_set(error, WF_EINVAL,
                                "%s %s; drop the flag, or ask for what reads it", rows[i].flag,
                                rows[i].why);
    return WF_OK;
}

static wf_status check_transport(app_options *o, wf_error *error)
{
    if (o->plan || strcmp(o->transport, "fake"))
        return WF_OK;
    if (o->steps)
        return wf_error_set(
            error, WF_EINVAL,
            "--transport fake moves no data, so it cannot train --steps %lld; use --transport "
            "threads, or --steps 0 for reports",
            (long long)o->steps);
    if (o->sample)
        return wf_error_set(error, WF_EINVAL,
                            "--transport fake moves no data, so it cannot make --sample %lld; "
                            "drop one of the two",
                            (long long)o->sample);
    return WF_OK;
}

static wf_status check_saving(app_options *o, wf_error *error)
{
    const char *alone = o->save_interval ? "--save-interval"
                        : o->async_save  ? "--async-save"
                        : o->save_best   ? "--save-best"
                        : o->exit_duration_in_mins > 0
                            ? "--exit-duration-in-mins, which saves and stops,"
                            : NULL;

    if (alone && !o->save && !o->replay)
        return wf_error_set(error, WF_EINVAL, "%s belongs to --save DIR; use it with that",
                            alone);
    if (o->keep == 1)
        return wf_error_set(error, WF_EINVAL,
                            "--keep 1 would leave none while one is damaged; use --keep 2 or "
                            "more, or 0 to keep all");
    if (o->save_best && !o->eval_interval)
        return wf_error_set(error, WF_EINVAL,
                            "--save-best needs a validation loss; use --eval-interval N and "
                            "--val-fraction above 0");
    if (o->resume && !strcmp(o->resume, "auto") && !o->save)
        return wf_error_set(
            error, WF_EINVAL,
            "--resume auto looks into the directory of --save, which is missing; "
            "use --resume PATH");
    return WF_OK;
}

wf_status app_options_check(app_options *options, wf_error *error)
{
    static wf_status (*const rules[])(app_options *, wf_error *) = {
        check_replay,
        app_options_init_from,
        app_options_files,
        app_options_lora_init,
        app_options_resume,
        app_options_check_model,
        app_options_derive_from_data,
        check_trace,
        app_options_check_mesh,
        app_options_check_adapters,
        check_wrap,
        check_plan,
        check_search,
        app_options_check_batch,
        app_options_check_schedule,
        check_evaluation,
        check_skipping,
        check_sample,
        check_unread,
        check_transport,
        check_saving,
        app_options_check_data,
        derive_dtypes,
    };
    wf_status status = WF_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && status == WF_OK; i++)
        status = rules[i](options, error);
    return status;
}
