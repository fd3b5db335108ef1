/* parallel/program/plan_flags.c - flags of a job's settings, and of what is planned with them;
   see services_internal.h. */
#include "parallel/program/services_internal.h"
#include "parallel/report/layout.h"
#include <string.h>

static void add_COUNT(wf_plan_flags *p, wf_setting s, int64_t *field, wf_flag *flag)
{
    (void)p;
    (void)s;
    flag->kind = WF_FLAG_COUNT;
    flag->value = field;
    flag->most = 1e12;
}

static void add_SWITCH(wf_plan_flags *p, wf_setting s, bool *field, wf_flag *flag)
{
    (void)p;
    (void)s;
    flag->kind = WF_FLAG_SWITCH;
    flag->value = field;
}

static void add_WORD(wf_plan_flags *p, wf_setting s, wf_setting_WORD *field, wf_flag *flag)
{
    snprintf(p->initial[s], WF_WORD, "%s", *field);
    p->word[s] = p->initial[s];
    flag->kind = WF_FLAG_TEXT;
    flag->value = &p->word[s];
}

static void add_TEXT(wf_plan_flags *p, wf_setting s, wf_setting_TEXT *field, wf_flag *flag)
{
    (void)p;
    (void)s;
    flag->kind = WF_FLAG_TEXT;
    flag->value = field;
}

/* Returns whether a setting is one of the job: a pipeline's, groups of the ranks of numbers. */
static bool has_use(const wf_plan_request *r, wf_setting s)
{
    if (s == WF_SETTING_pp_schedule || s == WF_SETTING_pp_virtual)
        return r->job.pipeline != NULL;
    return !r->job.mesh.axes ||
           (s != WF_SETTING_dp_replicate && s != WF_SETTING_shard_group_size);
}

/* Lists a flag of a setting, but for axes, and those that have flags already. */
static void add_setting(wf_plan_flags *p, wf_setting s, wf_flag *flags, int *n, int most)
{
    static const char *const helps[] = {
#define SETTING(kind, field, help) help,
#include "parallel/plan/settings.def"
#undef SETTING
    };
    wf_flag flag = {
        .taken = wf_services_note_given, .arg = &p->request.given[s], .help = helps[s]};

    if (!*helps[s] || s == WF_SETTING_strategy || s == WF_SETTING_async_save || *n >= most ||
        !has_use(&p->request, s))
        return;
    flag.name = wf_plan_flag_name(s, p->name[s]);
    switch (s) {
#define SETTING(kind, field, help)                                                             \
    case WF_SETTING_##field:                                                                   \
        add_##kind(p, s, &p->request.field, &flag);                                            \
        break;
#include "parallel/plan/settings.def"
#undef SETTING
    default:
        return;
    }
    flags[(*n)++] = flag;
}

void wf_services_list_plan(wf_services *s, wf_flag *flags, int *n, int most)
{
    wf_plan_flags *p = &s->planning;
    const wf_flag mine[] = {
        {"device-memory", WF_FLAG_TEXT, &p->memory, 0, 0, NULL, NULL,
         "SIZE of a device, as 80GiB: a plan says whether it fits, and what would"},
        {"machine", WF_FLAG_TEXT, &p->request.machine, 0, 0, NULL, NULL,
         "FILE of figures that time a plan's step (docs/planning.md)"},
        {"search", WF_FLAG_SWITCH, &p->search, 0, 0, NULL, NULL,
         "with --plan --machine: all layouts, the fastest that fit first"},
        {"ranks", WF_FLAG_COUNT, &p->request.ranks, 0, WF_MAX_RANKS, NULL, NULL,
         "N ranks of a search; 0: those of the mesh where it is given, else of a host"},
        {"find-batch", WF_FLAG_SWITCH, &p->request.find_batch, 0, 0, NULL, NULL,
         "plan with the largest micro-batch that fits"},
        {"json", WF_FLAG_TEXT, &p->request.json, 0, 0, NULL, NULL, "FILE of the plan as JSON"},
        {"chakra", WF_FLAG_TEXT, &p->request.chakra, 0, 0, NULL, NULL,
         "DIR of the plan's execution traces"},
    };

    wf_plan_request_of(&s->program->job, &p->request);
    p->request.micro_batch_size = s->program->job.train.micro_batch;
    for (int i = 0; i < WF_SETTINGS; i++)
        add_setting(p, (wf_setting)i, flags, n, most);
    for (size_t i = 0; i < sizeof mine / sizeof *mine && *n < most; i++)
        flags[(*n)++] = mine[i];
}

/* Takes a word, where it is one that the setting has. */
static wf_status take_word(wf_plan_flags *p, wf_setting s, wf_setting_WORD field,
                           wf_error *error)
{
    const char *text = p->word[s];
    char words[256];

    if (!text || !p->request.given[s])
        return WF_OK;
    if (!wf_plan_has_word(s, text))
        return wf_error_set(error, WF_EINVAL, "--%s %s: it takes %s", p->name[s], text,
                            wf_plan_words(s, words, sizeof words));
    snprintf(field, WF_WORD, "%s", text);
    return WF_OK;
}

static wf_status take_words(wf_plan_flags *p, wf_error *error)
{
    wf_plan_request *r = &p->request;

#define TAKE_COUNT(field)
#define TAKE_SWITCH(field)
#define TAKE_TEXT(field)
#define TAKE_WORD(field)                                                                       \
    if (take_word(p, WF_SETTING_##field, r->field, error) != WF_OK)                            \
        return error->code;
#define SETTING(kind, field, help) TAKE_##kind(field)
#include "parallel/plan/settings.def"
#undef SETTING
    if (r->given[WF_SETTING_dtype] && !r->given[WF_SETTING_param_dtype])
        memcpy(r->param_dtype, r->dtype, sizeof r->param_dtype);
    if (r->given[WF_SETTING_dtype] && !r->given[WF_SETTING_compute])
        memcpy(r->compute, r->dtype, sizeof r->compute);
    return WF_OK;
}

/* Puts the settings that were given into the job; all else of it stays as the program has
   it. */
static void give_settings(wf_services *s)
{
    wf_plan_flags *p = &s->planning;
    wf_par_job *job = &s->program->job, made = *wf_plan_request_job(&p->request, &p->made);
    const wf_par_options before = job->mesh;
    const bool *given = p->request.given;

    made.mesh.axes = before.axes;
    made.mesh.strategy = before.strategy;
    if (!given[WF_SETTING_wrap_type])
        made.mesh.wrap_type = before.wrap_type;
    if (!given[WF_SETTING_dtype] && !given[WF_SETTING_compute])
        made.mesh.compute_fp32 = before.compute_fp32;
    *job = made;
}

wf_status wf_services_take_settings(wf_services *s, wf_error *error)
{
    wf_plan_flags *p = &s->planning;
    wf_plan_request sizes;
    int64_t bytes = 0;

    if (take_words(p, error) != WF_OK)
        return error->code;
    if (p->memory && !wf_size_parse(p->memory, &bytes))
        return wf_error_set(
            error, WF_EINVAL,
            "--device-memory %s is no size: a number and maybe a unit, as 80GiB", p->memory);
    if (!s->plan && (p->search || p->request.find_batch || p->request.machine ||
                     p->request.json || p->request.chakra || p->request.ranks))
        return wf_error_set(error, WF_EINVAL,
                            "--%s says how a plan is made: give --plan with it",
                            p->search               ? "search"
                            : p->request.find_batch ? "find-batch"
                            : p->request.machine    ? "machine"
                            : p->request.json       ? "json"
                            : p->request.chakra     ? "chakra"
                                                    : "ranks");
    if (p->search && !p->request.machine)
        return wf_error_set(error, WF_EINVAL,
                            "--search needs --machine FILE, which times steps");
    if (p->search && (p->request.find_batch || s->rank_given))
        return wf_error_set(error, WF_EINVAL,
                            "--%s is of one layout, and --search looks at many: use the flags "
                            "of a line that it finds",
                            p->request.find_batch ? "find-batch" : "rank");
    p->request.device_memory = bytes;
    wf_plan_request_of(&s->program->job, &sizes); /* as the axes' flags have made it */
    p->request.job = s->program->job;
    p->request.pp = sizes.pp;
    p->request.tp = sizes.tp;
    p->request.dp = sizes.dp;
    p->request.cp = sizes.cp;
    give_settings(s);
    if (!s->plan)
        s->program->job.mesh.memory_limit = (size_t)bytes;
    return WF_OK;
}

/* Returns whether the size of an axis was given. */
static bool is_given(const wf_services *s, const char *name)
{
    static const char *const names[] = {"pp", "dp", "tp", "cp"};
    bool own = s->program->job.mesh.axes != NULL;

    for (int i = 0; own ? s->start.axis[i].name != NULL : i < 4; i++)
        if (strcmp(own ? s->start.axis[i].name : names[i], name) == 0)
            return s->axis_given[i];
    return false;
}

void wf_services_request(const wf_services *s, wf_plan_request *r)
{
    const wf_plan_flags *p = &s->planning;
    wf_par_job job = s->program->job; /* as the program has prepared it */

    job.pipeline = p->request.job.pipeline; /* it is there for any pp */
    wf_plan_request_of(&job, r);
    r->pp_schedule = p->request.pp_schedule;
    r->pp_virtual = p->request.pp_virtual;
    memcpy(r->recompute, p->request.recompute, sizeof r->recompute);
    memcpy(r->given, p->request.given, sizeof r->given);
    r->given[WF_SETTING_pp] = is_given(s, "pp");
    r->given[WF_SETTING_dp] = is_given(s, "dp");
    r->given[WF_SETTING_tp] = is_given(s, "tp");
    r->given[WF_SETTING_cp] = is_given(s, "cp");
    if (p->search && !r->given[WF_SETTING_pp])
        r->pipeline_field = r->given[WF_SETTING_pp_schedule]  ? "pp_schedule"
                            : r->given[WF_SETTING_pp_virtual] ? "pp_virtual"
                                                              : NULL;
    r->elastic = s->is_elastic ? s->min_dp : 0;
    r->whole_batches = !p->request.given[WF_SETTING_micro_batch_size];
    r->rank_given = s->rank_given;
    if (s->rank_given)
        r->rank = s->rank;
    r->device_memory = p->request.device_memory;
    r->machine = p->request.machine;
    r->ranks = p->request.ranks;
    r->find_batch = p->request.find_batch;
    r->json = p->request.json;
    r->chakra = p->request.chakra;
    r->memory_timeline = s->memory_timeline;
    r->notes = s->out;
    snprintf(r->search, sizeof r->search, "%s", p->search ? "on" : "off");
}

wf_status wf_services_plan(const wf_services *s, wf_error *error)
{
    wf_plan_request r;

    wf_services_request(s, &r);
    return wf_plan_print(&r, s->out, error);
}
