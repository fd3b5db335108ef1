/* apps/gpt_train/search.c - the search: candidates by their bounds, simulated until no bound is better, and planned. */
#include "apps/gpt_train/search.h"
#include "apps/gpt_train/plan_knobs.h"
#include "apps/gpt_train/setup.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 2 };

static void choose(char *place, const char *word)
{
    snprintf(place, APP_CHOICE_LENGTH, "%s", word);
}

app_options search_options(const search *s, const search_candidate *c)
{
    app_options o = *s->options; /* its texts stay the caller's */
    const char *dtype = wf_dtype_word((wf_dtype)c->dtype);

    o.threads_per_rank = s->threads;
    o.pp = c->pp;
    o.tp = c->tp;
    o.dp = (int64_t)c->shard * c->replicate;
    o.micro_batch_size = c->micro;
    o.sequence_parallel = c->sequence_parallel;
    choose(o.strategy, (o.dp > 1 ? search_strategy(c) : strategy_to_search(0))->name);
    o.dp_replicate = search_strategy(c)->groups ? c->replicate : 0;
    o.shard_group_size = search_strategy(c)->groups ? c->shard : 0;
    choose(o.recompute, search_recompute[c->recompute]);
    choose(o.dtype, dtype);
    app_options_derive_compute(&o);
    if (!o.given[APP_OPTION_param_dtype])
        choose(o.param_dtype, dtype);
    if (o.dp > 1)
        choose(o.accumulate, search_accumulate[c->accumulate]);
    if (c->pp > 1) {
        o.pp_schedule = (char *)(uintptr_t)search_schedule(c).name; /* only read */
        o.pp_virtual = c->per_rank;
    }
    o.steps = 2;
    o.warmup_steps = 0; /* longer than the run is refused */
    o.sample = 0;
    o.eval_interval = 0;
    o.rank = app_options_ranks(&o) - 1;
    return o;
}

bool search_plan_fullest(search *s, search_found *found)
{
    app_options o = search_options(s, &found->candidate);
    wf_error ignored = {WF_OK, ""};
    wf_plan run;

    o.steps = 1;
    o.rank = (found->rank + 1) * (s->ranks / o.pp) - 1;
    return dry_run_within(&o, false, (size_t)o.device_memory, &run, &ignored) == WF_OK;
}

bool search_plan(search *s, search_found *found)
{
    app_options o = search_options(s, &found->candidate);
    wf_error ignored = {WF_OK, ""};
    wf_plan_peak peak;

    o.steps = STEPS;
    s->planned++;
    found->planned = true;
    found->fits = dry_run_peaks(&o, (size_t)o.device_memory, &peak, &ignored) == WF_OK;
    found->peak = found->fits ? peak.bytes : 0;
    found->rank = peak.rank;
    return found->fits;
}

/* Whether it may fit, by an estimate. */
static bool may_fit(search *s, double bytes)
{
    bool may = search_may_fit(s, bytes);

    s->left_out[SEARCH_ESTIMATE] += !may;
    return may;
}

static bool least_may_fit(search *s, const search_candidate *c)
{
    return !s->options->device_memory || may_fit(s, search_least_memory(s, c));
}

static int by_bound(const void *a, const void *b)
{
    const search_candidate *x = a, *y = b;

    return x->bound < y->bound ? -1 : x->bound > y->bound;
}

static bool insert(search *s, const search_found *found)
{
    int64_t at = s->n_top;

    if (s->n_top == s->room_top) {
        int64_t wider = s->room_top ? 2 * s->room_top : 64;
        search_found *more = realloc(s->top, (size_t)wider * sizeof *more);

        if (!more)
            return false;
        s->top = more;
        s->room_top = wider;
    }
    while (at > 0 && s->top[at - 1].seconds > found->seconds)
        at--;
    memmove(s->top + at + 1, s->top + at, (size_t)(s->n_top++ - at) * sizeof *s->top);
    s->top[at] = *found;
    return true;
}

/* What an estimate lets pass is kept, in the order of time. */
static wf_status look_at(search *s, const search_candidate *c, wf_error *error)
{
    search_found found;

    if (!least_may_fit(s, c))
        return WF_OK;
    if (!search_simulate(s, c, 0, &found))
        s->left_out[SEARCH_SIZES]++;
    else if (may_fit(s, found.estimate) && !insert(s, &found))
        return wf_error_set(error, WF_ENOMEM, "no memory for layouts that may fit");
    return WF_OK;
}

static void add_path(search *s, search_found *found)
{
    search_found path;

    if (search_simulate(s, &found->candidate, WF_SIM_PATH, &path))
        found->path = path.path;
}

/* Plan what is listed, in the order of time. False: one does not fit and is gone, so that what comes next may be another. */
static bool all_fit(search *s)
{
    for (int64_t i = 0; i < SEARCH_TOP && i < s->n_top; i++) {
        if (s->top[i].planned || search_plan(s, &s->top[i]))
            continue;
        s->left_out[SEARCH_PLAN]++;
        s->n_top--;
        memmove(s->top + i, s->top + i + 1, (size_t)(s->n_top - i) * sizeof *s->top);
        return false;
    }
    return true;
}

/* Candidates in the order of their bounds, until none can come before the last one of the list. */
static int64_t simulate_all(search *s, wf_error *error)
{
    int64_t i = 0;

    for (;;) {
        bool more = i < s->count,
             late = more && s->n_top >= SEARCH_TOP &&
                    (double)s->candidate[i].bound >= s->top[SEARCH_TOP - 1].seconds;

        if (more && !late) {
            if (look_at(s, &s->candidate[i++], error) != WF_OK)
                return i;
        } else if (all_fit(s)) {
            return i;
        }
    }
}

/* Data parallelism alone, by its best layout, is always compared. Its bound is its time but for a message. */
static void find_plain(search *s)
{
    for (int64_t i = 0; i < s->count && !s->plain.fits; i++) {
        const search_candidate *c = &s->candidate[i];

        if (c->pp == 1 && c->tp == 1 &&
            (!s->options->device_memory || search_may_fit(s, search_least_memory(s, c))) &&
            search_simulate(s, c, WF_SIM_PATH, &s->plain))
            search_plan(s, &s->plain);
    }
}

static double work(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void search_go(search *s, wf_error *error)
{
    double start = work();

    if (search_enumerate(s, error) != WF_OK)
        return;
    if (s->count)
        qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_bound);
    s->left_out[SEARCH_TIME] = s->count - simulate_all(s, error);
    for (; s->n_top > SEARCH_TOP; s->n_top--)
        s->left_out[SEARCH_SLOWER]++;
    for (int i = 0; i < s->n_top; i++)
        add_path(s, &s->top[i]);
    find_plain(s);
    s->seconds = work() - start;
}

static wf_sim_model model_of(const app_options *o)
{
    wf_nn_gpt_config asked = app_options_model(o), c = wf_nn_gpt_complete(&asked);

    return (wf_sim_model){.layers = c.layers,
                          .width = c.width,
                          .heads = c.heads,
                          .kv_heads = c.kv_heads,
                          .head_dim = c.head_dim ? c.head_dim : c.width / c.heads,
                          .ffn = c.ffn,
                          .vocabulary = c.vocabulary,
                          .seq = o->seq_len,
                          .gated = c.mlp != WF_NN_GELU,
                          .tied = c.tied};
}

void search_close(search *s)
{
    for (int i = 0; i < s->tables; i++)
        wf_pipe_table_free(s->table[i].table);
    free(s->candidate);
    free(s->top);
    free(s);
}

search *search_open(const app_options *options, wf_error *error)
{
    search *s = calloc(1, sizeof *s);

    if (!s) {
        wf_error_set(error, WF_ENOMEM, "no memory for a search");
        return NULL;
    }
    s->options = options;
    s->threads = options->threads_per_rank;
    s->model = model_of(options);
    s->inexact = strcmp(options->search, "inexact") == 0;
    if (wf_sim_machine_read(options->machine, &s->machine, error) == WF_OK)
        return s;
    search_close(s);
    return NULL;
}

static int64_t ranks_of(const search *s)
{
    const app_options *o = s->options;
    bool given = o->given[APP_OPTION_pp] || o->given[APP_OPTION_tp] || o->given[APP_OPTION_dp];

    return o->ranks ? o->ranks : given ? app_options_ranks(o) : s->machine.devices;
}

/* As many threads as a plan of a candidate by itself gives its ranks: their workspaces count, too. */
static wf_status choose_threads(search *s, wf_error *error)
{
    const wf_launcher launcher = {.kind = "threads", .processes = 1, .local = 1};
    app_options o = *s->options;

    if (o.given[APP_OPTION_threads_per_rank])
        return WF_OK;
    o.threads_per_rank = 0;
    o.pp = o.tp = 1;
    o.dp = s->ranks;
    if (app_choose_threads(&o, &launcher, error) == WF_OK)
        s->threads = o.threads_per_rank;
    return error->code;
}

wf_status search_run(const app_options *options, FILE *out, wf_error *error)
{
    search *s = search_open(options, error);

    if (!s)
        return error->code;
    s->ranks = ranks_of(s);
    if (choose_threads(s, error) == WF_OK)
        search_go(s, error);
    if (error->code == WF_OK)
        search_print(s, out);
    if (error->code == WF_OK && options->json)
        search_write_json(s, options->json, error);
    search_close(s);
    return error->code;
}

/* The place of a word in a list; -1: it is not there. */
static int place_of(const char *word, const char *const *list)
{
    int i = 0;

    while (list[i] && strcmp(list[i], word) != 0)
        i++;
    return list[i] ? i : -1;
}

/* What the options say, as a candidate; its schedule and strategy may be none that a search tries. */
static search_candidate candidate_of(const app_options *o)
{
    wf_par_options layout = app_setup_rank(o, true);
    int replicate = 1, shard = 1;
    int strategy = strategy_place(o->strategy);
    const char *accumulate = strcmp(o->accumulate, "auto") != 0          ? o->accumulate
                             : strategy_to_search(strategy)->reduce_each ? "reduced"
                                                                         : "local";
    search_candidate c = {.pp = (int32_t)o->pp,
                          .tp = (int32_t)o->tp,
                          .micro = (int32_t)o->micro_batch_size,
                          .sequence_parallel = o->sequence_parallel};

    wf_par_axes(&layout, &replicate, &shard, NULL);
    c.replicate = (int32_t)replicate;
    c.shard = (int32_t)shard;
    if (shard == 1 && replicate > 1) { /* copies alone are one axis here */
        c.shard = (int32_t)replicate;
        c.replicate = 1;
    }
    c.micros = (int32_t)app_options_micro_steps(o);
    c.strategy = (int8_t)strategy;
    c.schedule = (int8_t)wf_pipe_schedule_find(o->pp_schedule);
    c.recompute = (int8_t)place_of(o->recompute, search_recompute);
    c.accumulate = (int8_t)(strncmp(accumulate, "group", 5) == 0
                                ? 1
                                : place_of(accumulate, search_accumulate));
    c.dtype = (int8_t)wf_dtype_find(o->dtype);
    c.per_rank = (int16_t)(o->pp_virtual ? o->pp_virtual : search_schedule(&c).per_rank);
    return c;
}

/* A pipeline's own table and cut, as the run has them. */
static wf_status time_pipeline(search *s, const search_candidate *c, search_found *found,
                               wf_error *error)
{
    int64_t first[SEARCH_STAGES + 1];
    wf_par_pipeline *pipeline;

    if (app_setup_pipeline(s->options, &pipeline, error) != WF_OK)
        return error->code;
    for (int i = 0; i <= wf_par_pipeline_stages(pipeline) && i <= SEARCH_STAGES; i++)
        first[i] = wf_par_pipeline_first(pipeline, i);
    if (!search_simulate_table(s, c, wf_par_pipeline_table(pipeline), first, WF_SIM_PATH,
                               found))
        wf_error_set(error, WF_EINVAL, "schedule %s stands still, or has more than %d stages",
                     s->options->pp_schedule, SEARCH_STAGES);
    wf_par_pipeline_free(pipeline);
    return error->code;
}

wf_status search_time(const app_options *options, search_found *found, char *machine,
                      wf_error *error)
{
    search *s = search_open(options, error);
    search_candidate c;

    if (!s)
        return error->code;
    c = candidate_of(options);
    s->ranks = app_options_ranks(options);
    snprintf(machine, WF_SIM_NAME, "%s", s->machine.name);
    if (s->machine.rate[c.dtype] <= 0)
        wf_error_set(error, WF_EINVAL, "%s has no device.%s: take --dtype bf16",
                     options->machine, options->dtype);
    else if (app_options_pipelined(options))
        time_pipeline(s, &c, found, error);
    else if (!search_simulate(s, &c, WF_SIM_PATH, found))
        wf_error_set(error, WF_ENOMEM, "no memory to simulate a step");
    search_close(s);
    return error->code;
}
