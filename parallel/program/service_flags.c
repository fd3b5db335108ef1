/* parallel/program/service_flags.c - flags of wf_par_run: listed, read, checked, printed; see
   services_internal.h. */
#include "parallel/program/services_internal.h"
#include <string.h>

static void add_flag(wf_services *s, int *n, wf_flag flag)
{
    if (*n < WF_FLAGS)
        s->flags[(*n)++] = flag;
}

wf_status wf_services_note_given(void *given, wf_error *error)
{
    *(bool *)given = true;
    return error->code;
}

/* Lists a flag for each axis of the mesh. */
static void add_axes(wf_services *s, int *n)
{
    wf_par_options *o = &s->start.options;
    const char *const names[] = {"pp", "dp", "tp", "cp"};
    const int sizes[] = {o->pp, o->dp, o->tp, o->cp};

    for (int i = 0; o->axes ? s->start.axis[i].name != NULL : i < 4; i++) {
        s->axis[i] = o->axes ? s->start.axis[i].size : sizes[i] ? sizes[i] : 1;
        add_flag(s, n,
                 (wf_flag){o->axes ? s->start.axis[i].name : names[i], WF_FLAG_COUNT,
                           &s->axis[i], 1, WF_MAX_RANKS, wf_services_note_given,
                           &s->axis_given[i], "N ranks along this axis of the mesh"});
    }
}

static void add_flags(wf_services *s, int *n, const wf_flag *flags, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_flag(s, n, flags[i]);
}

static void list_saving(wf_services *s, int *n)
{
    const wf_flag mine[] = {
        {"save", WF_FLAG_TEXT, &s->save, 0, 0, NULL, NULL,
         "DIR checkpoints, from the newest of which the same command continues"},
        {"save-interval", WF_FLAG_COUNT, &s->save_interval, 0, 1e12, NULL, NULL,
         "N steps between checkpoints; 0: one after the last step"},
        {"keep", WF_FLAG_COUNT, &s->keep, 0, 1e6, NULL, NULL,
         "N checkpoints that stay, at least 2; 0: all"},
        {"async-save", WF_FLAG_TEXT, &s->async_text, 0, 0, NULL, NULL,
         "on|off copy what is saved, and write the copy beside the next steps"},
        {"save-best", WF_FLAG_SWITCH, &s->save_best, 0, 0, NULL, NULL,
         "save under DIR/best too when the validation loss is the lowest so far"},
        {"exit-duration-in-mins", WF_FLAG_REAL, &s->exit_minutes, 0, 1e9, NULL, NULL,
         "X minutes after which the run saves and ends with status 75; 0: never"},
        {"resume", WF_FLAG_TEXT, &s->resume, 0, 0, NULL, NULL,
         "PATH a checkpoint, or a folder of some, to continue from; auto: the one of --save; "
         "none"},
        {"reset-optimizer", WF_FLAG_SWITCH, &s->reset_optimizer, 0, 0, NULL, NULL,
         "with --resume PATH: its parameters and steps alone; the optimizer begins anew"},
    };

    add_flags(s, n, mine, sizeof mine / sizeof *mine);
}

static void list_elastic(wf_services *s, int *n)
{
    const wf_flag mine[] = {
        {"elastic", WF_FLAG_TEXT, &s->elastic_text, 0, 0, NULL, NULL,
         "on|off on: a run that loses ranks continues with those that are left"},
        {"redundancy", WF_FLAG_TEXT, &s->redundancy, 0, 0, NULL, NULL,
         "HOW buddy: what is sharded over data-parallel ranks is held by the next one too; "
         "none"},
        {"min-dp", WF_FLAG_COUNT, &s->min_dp, 1, WF_MAX_RANKS, NULL, NULL,
         "N the fewest data-parallel ranks that an elastic run continues with"},
        {"rejoin-after", WF_FLAG_COUNT, &s->rejoin_after, 0, 1e9, NULL, NULL,
         "N steps for which lost ranks are not replaced, where ranks are threads"},
        {"recovery-dir", WF_FLAG_TEXT, &s->recovery_dir, 0, 0, NULL, NULL,
         "DIR memory of the host (/dev/shm) where processes leave their state when others are "
         "lost"},
        {"nnodes", WF_FLAG_COUNT, &s->nnodes, 0, WF_MAX_RANKS, NULL, NULL,
         "N processes that the mesh is for, of which fewer may be started; 0: those that are"},
        {"fit-nodes", WF_FLAG_COUNT, &s->fit_nodes, 0, WF_MAX_RANKS, NULL, NULL,
         "N print how many of N processes an elastic run would be started with"},
    };

    add_flags(s, n, mine, sizeof mine / sizeof *mine);
}

static void list_reports(wf_services *s, int *n)
{
    const wf_flag mine[] = {
        {"trace", WF_FLAG_TEXT, &s->trace, 0, 0, NULL, NULL,
         "FILE a timeline of all ranks (Chrome trace)"},
        {"profile", WF_FLAG_COUNT, &s->profile, 0, 10000, NULL, NULL,
         "N print where the time of the same steps went: the N dearest ops by module, and each "
         "rank; 0: no"},
        {"trace-steps", WF_FLAG_TEXT, &s->trace_steps, 0, 0, NULL, NULL,
         "A-B with --trace or --profile: from which step to which"},
        {"memory-timeline", WF_FLAG_TEXT, &s->memory_timeline, 0, 0, NULL, NULL,
         "FILE a picture (SVG) of a rank's memory over the second step, and of what holds the "
         "peak; of a plan the same"},
        {"comm-report", WF_FLAG_SWITCH, &s->comm_report, 0, 0, NULL, NULL,
         "print which collectives a step calls, and what they move"},
        {"show-layout", WF_FLAG_SWITCH, &s->show_layout, 0, 0, NULL, NULL,
         "print every parameter's layout, and which rank holds what"},
        {"plan", WF_FLAG_SWITCH, &s->plan, 0, 0, NULL, NULL,
         "print what a rank would take and move; nothing is allocated or run"},
        {"rank", WF_FLAG_COUNT, &s->rank, 0, WF_MAX_RANKS, wf_services_note_given,
         &s->rank_given, "N the rank of --plan, --trace's summary and --comm-report"},
        {"stall-timeout", WF_FLAG_COUNT, &s->stall_timeout, 0, 1e6, NULL, NULL,
         "SECONDS after which a rank that does nothing has failed; 0: never"},
        {"config", WF_FLAG_TEXT, &s->config, 0, 0, NULL, NULL,
         "FILE flags as a JSON object, which the command line overrides"},
        {"help", WF_FLAG_SWITCH, &s->help, 0, 0, NULL, NULL, "print this"},
    };

    add_flags(s, n, mine, sizeof mine / sizeof *mine);
}

static void list_flags(wf_services *s)
{
    wf_par_job *job = &s->program->job;
    int n = 0;
    const wf_flag mine[] = {
        {"strategy", WF_FLAG_TEXT, &s->start.options.strategy, 0, 0, NULL, NULL,
         "NAME how data-parallel ranks hold parameters: full_shard, no_shard, .."},
        {"steps", WF_FLAG_COUNT, &job->steps, 0, 1e12, NULL, NULL, "N steps of the run"},
        {"eval-interval", WF_FLAG_COUNT, &job->eval_interval, 0, 1e12, NULL, NULL,
         "N steps between evaluations; 0: none"},
        {"log-jsonl", WF_FLAG_TEXT, &s->log_jsonl, 0, 0, NULL, NULL,
         "FILE a row of JSON a step"},
        {"tensorboard", WF_FLAG_TEXT, &s->tensorboard, 0, 0, NULL, NULL,
         "DIR a file of events for TensorBoard"},
    };

    for (const wf_flag *own = s->program->flags; own && own->name; own++)
        add_flag(s, &n, *own);
    add_axes(s, &n);
    add_flags(s, &n, mine, sizeof mine / sizeof *mine);
    wf_services_list_training(s, s->flags, &n, WF_FLAGS);
    list_saving(s, &n);
    list_elastic(s, &n);
    list_reports(s, &n);
    wf_services_list_plan(s, s->flags, &n, WF_FLAGS);
}

wf_status wf_services_switch(const char *flag, const char *text, bool *value, wf_error *error)
{
    *value = strcmp(text, "on") == 0;
    if (!*value && strcmp(text, "off") != 0)
        return wf_error_set(error, WF_EINVAL, "--%s %s: on or off", flag, text);
    return WF_OK;
}

/* Checks the flags of saving. */
static wf_status check_saving(wf_services *s, wf_error *error)
{
    if (wf_services_switch("async-save", s->async_text, &s->async_save, error) != WF_OK)
        return error->code;
    if (!s->save && (s->save_interval || s->async_save || s->save_best || s->exit_minutes > 0))
        return wf_error_set(error, WF_EINVAL, "--%s needs --save DIR",
                            s->save_interval ? "save-interval"
                            : s->async_save  ? "async-save"
                            : s->save_best   ? "save-best"
                                             : "exit-duration-in-mins");
    if (s->reset_optimizer &&
        (!s->resume || strcmp(s->resume, "auto") == 0 || strcmp(s->resume, "none") == 0))
        return wf_error_set(error, WF_EINVAL,
                            "--reset-optimizer needs --resume PATH: with the newest of --save "
                            "each start would begin anew");
    if (s->keep == 1)
        return wf_error_set(error, WF_EINVAL,
                            "--keep 1: at least 2 checkpoints stay, or all: 0");
    return WF_OK;
}

/* Takes the words of elastic runs; wf_process_check has the rules. */
static wf_status take_elastic(wf_services *s, wf_error *error)
{
    const char *redundancy = s->redundancy;

    if (wf_services_switch("elastic", s->elastic_text, &s->is_elastic, error) != WF_OK)
        return error->code;
    if (strcmp(redundancy, "buddy") == 0)
        s->program->job.train.redundancy = WF_PAR_REDUNDANCY_BUDDY;
    else if (strcmp(redundancy, "none") == 0)
        s->program->job.train.redundancy = WF_PAR_REDUNDANCY_NONE;
    else
        return wf_error_set(error, WF_EINVAL, "--redundancy %s: none or buddy", redundancy);
    if (!s->is_elastic && s->fit_nodes)
        return wf_error_set(error, WF_EINVAL,
                            "--fit-nodes belongs to --elastic on; use it with that");
    return WF_OK;
}

/* Puts sizes and steps that were given into the job. */
static wf_status take_values(wf_services *s, int64_t steps, wf_error *error)
{
    wf_par_job *job = &s->program->job;
    wf_par_options *o = &s->start.options;

    for (int i = 0; o->axes && s->start.axis[i].name; i++)
        s->start.axis[i].size = (int)s->axis[i];
    if (!o->axes) {
        o->pp = (int)s->axis[0];
        o->dp = (int)s->axis[1];
        o->tp = (int)s->axis[2];
        o->cp = (int)s->axis[3];
    }
    if (job->train.schedule.steps == steps)
        job->train.schedule.steps = job->steps;
    job->mesh = *o;
    if (wf_services_take_settings(s, error) != WF_OK ||
        wf_services_take_training(s, error) != WF_OK)
        return error->code;
    *o = job->mesh;
    if (wf_flags_steps("--trace-steps", s->trace_steps, &s->trace_first, &s->trace_last,
                       error) != WF_OK)
        return error->code;
    if (s->rank >= wf_par_ranks(o))
        return wf_error_set(error, WF_EINVAL, "--rank %lld: there are ranks 0 to %lld",
                            (long long)s->rank, (long long)wf_par_ranks(o) - 1);
    if (check_saving(s, error) != WF_OK)
        return error->code;
    return take_elastic(s, error);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* Finds --config, which is read before all other flags. */
static const char *config_of(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            return argv[i] + 9;
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
    }
    return NULL;
}

wf_status wf_services_read(wf_services *s, int argc, char **argv, wf_error *error)
{
    const char *config = config_of(argc, argv);
    int64_t steps = s->program->job.steps;
    int first;

    s->start.options = s->program->job.mesh;
    s->stall_timeout = WF_PAR_STALL_TIMEOUT;
    s->trace_steps = "2-3";
    s->keep = 3;
    wf_recipe_of(&s->program->job.train, &s->recipe);
    s->min_dp = 1;
    s->elastic_text = s->async_text = "off";
    s->redundancy =
        s->program->job.train.redundancy == WF_PAR_REDUNDANCY_BUDDY ? "buddy" : "none";
    if (wf_par_start_axes(&s->start, error) != WF_OK)
        return error->code;
    list_flags(s);
    s->help = asks_for_help(argc, argv);
    if (s->help) /* it shows the values of flags that are not given */
        return WF_OK;
    if ((config && wf_flags_config(s->start.program, config, s->flags, error) != WF_OK) ||
        wf_flags_read(s->start.program, argc, argv, s->flags, &first, error) != WF_OK)
        return error->code;
    if (first < argc)
        return wf_error_set(error, WF_EINVAL, "unexpected argument '%s'; see %s --help",
                            argv[first], s->start.program);
    return take_values(s, steps, error);
}

void wf_services_help(const wf_services *s)
{
    fprintf(s->out, "Usage: %s [FLAGS]\n", s->start.program);
    if (s->program->about)
        fprintf(s->out, "%s\n", s->program->about);
    fputc('\n', s->out);
    wf_flags_help(s->out, s->flags);
}
