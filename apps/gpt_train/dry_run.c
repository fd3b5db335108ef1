/*
 * apps/gpt_train/dry_run.c - gpt_train --plan.
 *
 * The plan is the run itself on the fake device and the fake transport: the same calls, no
 * memory, no arithmetic. Two steps are taken and the second is told, as in a run; an evaluation
 * that comes between them is taken too, since what it gathers may stay for the step.
 */
#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/saving.h"
#include "apps/gpt_train/setup.h"
#include "apps/step_report.h"
#include <inttypes.h>
#include <string.h>

enum { STEPS = 2, MOST_STRATEGIES = 16, MOST_SEQUENCES = 1 << 20 };

typedef struct job {
    const wf_options *o;
    int64_t steps; /* of which the last is told */
    bool memory;   /* alone: all that the first steps take, and an evaluation */
    wf_par_report report;
    char inexact[WF_INEXACT];
} job;

static void dry_run_steps(job *j, wf_par *par, wf_nn_module *model)
{
    const wf_par_train_options options = wf_setup_training(j->o);
    wf_context *ctx = wf_par_context(par);
    const wf_par_data none = {NULL, NULL};
    wf_par_trainer *trainer;
    wf_saving saving;
    float loss;

    wf_par_plan(par, model, wf_par_gpt_plan);
    wf_par_materialize(par, model);
    trainer = wf_par_trainer_open(par, model, &options);
    wf_saving_open(&saving, j->o, par, trainer, NULL);
    for (int step = 1; step <= j->steps && wf_context_status(ctx) == WF_OK; step++) {
        wf_par_step result;

        wf_par_report_begin(par, &j->report);
        if (wf_par_train_step(trainer, step, &none, &result) == WF_OK)
            wf_par_report_end(par, model, &j->report);
        if (step < j->steps && wf_setup_evaluates(j->o, step))
            wf_par_evaluate(trainer, 1, &none, NULL, &loss); /* every batch gathers alike */
    }
    if (j->memory) {
        if (j->o->eval_interval)
            wf_par_evaluate(trainer, 1, &none, NULL, &loss);
        wf_pool_report(wf_context_pool(ctx), &j->report.memory);
    }
    snprintf(j->inexact, sizeof j->inexact, "%s",
             wf_par_inexact(par) ? wf_par_inexact(par) : "");
    wf_saving_close(&saving);
    wf_par_trainer_close(trainer);
}

static wf_status plan_rank(wf_rank *rank, void *arg)
{
    job *j = arg;
    const wf_par_options options = wf_setup_rank(j->o, true);
    wf_par *par = wf_par_open(rank, &options, &rank->error);
    wf_nn_gpt *model;

    if (!par)
        return rank->error.code;
    model = wf_setup_model(j->o, wf_par_context(par));
    if (model) {
        dry_run_steps(j, par, &model->base);
        wf_nn_free(&model->base);
    }
    rank->error = *wf_context_error(wf_par_context(par));
    wf_par_close(par);
    return rank->error.code;
}

static wf_status make_steps(job *j, const wf_options *o, int rank, wf_error *error)
{
    j->o = o;
    *error = (wf_error){WF_OK, ""};
    return wf_launch(
        &(wf_launch_options){.ranks = (int)(o->tp * o->dp), .transport = "fake", .rank = rank},
        plan_rank, j, error);
}

static wf_status make(job *j, const wf_options *o, wf_error *error)
{
    *j = (job){.steps = o->steps == 1 ? 1 : STEPS};
    return make_steps(j, o, (int)o->rank, error);
}

wf_status wf_dry_run_memory(const wf_options *o, int rank, wf_memory_report *memory,
                            wf_error *error)
{
    job j = {.steps = 1, .memory = true};
    wf_status status = make_steps(&j, o, rank, error);

    *memory = j.report.memory;
    return status;
}

wf_status wf_dry_run_axes(const wf_options *o, wf_place_axis axis[WF_DRY_RUN_AXES],
                          wf_error *error)
{
    static const char *const names[WF_DRY_RUN_AXES] = {"pp", "replicate", "shard", "tp"};
    job j;

    if (make(&j, o, error) != WF_OK)
        return error->code;
    for (int a = 0; a < WF_DRY_RUN_AXES; a++) {
        const wf_par_traffic *t = &j.report.traffic[a];

        axis[a] = (wf_place_axis){names[a], t->ranks, 0};
        for (int k = 0; k < WF_COLLECTIVE_KINDS; k++)
            axis[a].bytes += (double)t->ledger.of[k].bytes;
    }
    return WF_OK;
}

static bool fits(const wf_options *o, const wf_par_report *r)
{
    return !o->device_memory || r->memory.peak <= (size_t)o->device_memory;
}

/* The same micro-steps of m sequences each. False where the plan fails or does not fit; only a
   failure that is not of memory is one of the search. */
static bool batch_fits(wf_options *o, int64_t micros, int64_t m, wf_error *error)
{
    job j;
    wf_status status;

    o->micro_batch_size = m;
    o->global_batch_size = micros * m * o->dp;
    status = make(&j, o, error);
    if (status == WF_ENOMEM || status == WF_ESHAPE) /* larger than any memory, or than sizes */
        *error = (wf_error){WF_OK, ""};
    return status == WF_OK && fits(o, &j.report);
}

/* Doubling, then halving the gap; leaves the batch in *o, a micro-batch of 1 if none fits. */
static wf_status find_batch(wf_options *o, bool *found, wf_error *error)
{
    int64_t micros = o->global_batch_size / (o->dp * o->micro_batch_size);
    int64_t good = 0, bad = 1;

    while (bad <= MOST_SEQUENCES && batch_fits(o, micros, bad, error)) {
        good = bad;
        bad *= 2;
    }
    while (bad - good > 1 && good && error->code == WF_OK) {
        int64_t middle = good + (bad - good) / 2;

        if (batch_fits(o, micros, middle, error))
            good = middle;
        else
            bad = middle;
    }
    *found = good > 0;
    o->micro_batch_size = good ? good : 1;
    o->global_batch_size = micros * o->micro_batch_size * o->dp;
    return error->code;
}

/* The plans of all other strategies; where there is no data parallelism they are all alike. */
typedef struct choices {
    int n;
    const char *name[MOST_STRATEGIES];
    wf_par_report report[MOST_STRATEGIES];
} choices;

/* Whether a strategy can lay out these ranks: hybrid ones need a group size. */
static bool possible(wf_options *o, const char *name)
{
    wf_par_options layout;
    int replicate, shard;

    snprintf(o->strategy, sizeof o->strategy, "%s", name);
    layout = wf_setup_rank(o, true);
    if (wf_par_axes(&layout, &replicate, &shard, NULL) == WF_OK)
        return true;
    o->dp_replicate = o->shard_group_size = 0; /* the other way round */
    layout = wf_setup_rank(o, true);
    return wf_par_axes(&layout, &replicate, &shard, NULL) == WF_OK;
}

static wf_status plan_choices(const wf_options *o, choices *c, wf_error *error)
{
    const char *name;

    c->n = 0;
    for (int s = 0; o->dp > 1 && c->n < MOST_STRATEGIES && (name = wf_par_strategy_name(s));
         s++) {
        wf_options other = *o;
        job j;

        if (strcmp(name, o->strategy) == 0 || !possible(&other, name))
            continue;
        if (make(&j, &other, error) != WF_OK)
            return error->code;
        c->name[c->n] = name;
        c->report[c->n++] = j.report;
    }
    *error = (wf_error){WF_OK, ""};
    return WF_OK;
}

static double state_of(const wf_par_report *r)
{
    return wf_bytes_per_parameter(r, WF_MEMORY_PARAMETER) +
           wf_bytes_per_parameter(r, WF_MEMORY_GRADIENT) +
           wf_bytes_per_parameter(r, WF_MEMORY_OPTIMIZER);
}

static void print_setting(FILE *out, const wf_options *o, const wf_par_report *r)
{
    fprintf(out, "plan of rank %d of %" PRId64 ":", r->rank, o->tp * o->dp);
    for (int i = 0; i < r->n_traffic - 1; i++)
        fprintf(out, "%s %s %d", i ? " x" : "", r->traffic[i].axis, r->traffic[i].ranks);
    fprintf(out, "; strategy %s\n", o->strategy);
    fprintf(out,
            "  %s of %" PRId64 " blocks, %" PRId64 " parameters; %" PRId64
            " are this rank's share of tensor parallelism\n",
            o->arch, o->n_layer, r->parameters, r->share);
    fprintf(out,
            "  a step is %" PRId64 " sequences of %" PRId64 " tokens; a rank takes %" PRId64
            " at a time, %" PRId64 " times\n\n",
            o->global_batch_size, o->seq_len, o->micro_batch_size,
            o->global_batch_size / (o->dp * o->micro_batch_size));
}

static void print_memory(FILE *out, const wf_par_report *r)
{
    const wf_memory_report *m = &r->memory;
    char a[32], b[32], moment[WF_MEMORY_PHASE + WF_MEMORY_PLACE + 8];

    fprintf(out, "  %-24s %14s %14s\n", "memory", "at the peak", "at most");
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        fprintf(out, "  %-24s %14s %14s\n", wf_memory_kind_name((wf_memory_kind)k),
                wf_size_text(a, (double)m->at_peak[k]), wf_size_text(b, (double)m->most[k]));
    fprintf(out, "  %-24s %14s in %s\n", "peak", wf_size_text(a, (double)m->peak),
            wf_moment_text(moment, sizeof moment, m));
    fprintf(out, "  %-24s %14.2f = %.2f parameters + %.2f gradients + %.2f optimizer state\n\n",
            "bytes per parameter", state_of(r), wf_bytes_per_parameter(r, WF_MEMORY_PARAMETER),
            wf_bytes_per_parameter(r, WF_MEMORY_GRADIENT),
            wf_bytes_per_parameter(r, WF_MEMORY_OPTIMIZER));
}

static void print_units(FILE *out, const wf_par_report *r)
{
    int64_t shown = 0;
    char rest[32], use[32];

    fprintf(out, "  %-18s %6s %18s %14s %14s\n", "units", "count", "parameters each", "at rest",
            "gathered");
    for (int i = 0; i < r->n_groups; i++) {
        const wf_par_unit_group *g = &r->group[i];

        shown += g->count;
        wf_size_text(use, (double)g->at_use);
        fprintf(out, "  %-18s %6" PRId64 " %18" PRId64 " %14s %14s\n", g->type, g->count,
                g->parameters, wf_size_text(rest, (double)g->rest), g->gathered ? use : "-");
    }
    if (shown < r->units)
        fprintf(out, "  and %" PRId64 " others\n", r->units - shown);
    fputc('\n', out);
}

static wf_memory_kind largest_kind(const wf_memory_report *m)
{
    int largest = 0;

    for (int k = 1; k < WF_MEMORY_KINDS; k++)
        if (m->at_peak[k] > m->at_peak[largest])
            largest = k;
    return (wf_memory_kind)largest;
}

static void print_fit(FILE *out, const wf_options *o, const wf_par_report *r)
{
    char there[32], gap[32];
    double room = (double)o->device_memory - (double)r->memory.peak;

    if (!o->device_memory)
        return;
    wf_size_text(there, (double)o->device_memory);
    if (fits(o, r))
        fprintf(out, "fits in %s, and leaves %s\n", there, wf_size_text(gap, room));
    else
        fprintf(out, "does not fit in %s: %s too much; the most is %s\n", there,
                wf_size_text(gap, -room), wf_memory_kind_name(largest_kind(&r->memory)));
}

static void print_choices(FILE *out, const wf_options *o, const choices *c)
{
    char peak[32];

    for (int i = 0; i < c->n; i++)
        fprintf(out, "  --strategy %-20s %14s peak, %.2f bytes per parameter%s\n", c->name[i],
                wf_size_text(peak, (double)c->report[i].memory.peak), state_of(&c->report[i]),
                !o->device_memory        ? ""
                : fits(o, &c->report[i]) ? ": fits"
                                         : ": does not fit");
}

/* What a plan alone knows comes first, so that a diff with a run's report shows just that. */
static json_t *plan_json(const wf_options *o, const wf_par_report *r, const choices *c)
{
    json_t *list = json_array(), *report = wf_step_report_json(o, r), *json;

    for (int i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:b}", "name", c->name[i],
                                              "peak", (json_int_t)c->report[i].memory.peak,
                                              "bytes_per_parameter", state_of(&c->report[i]),
                                              "fits", fits(o, &c->report[i])));
    json = json_pack("{s:{s:I, s:b, s:o?}}", "plan", "device_memory",
                     (json_int_t)o->device_memory, "fits", fits(o, r), "strategies", list);
    if (!report || !json || json_object_update(json, report)) {
        json_decref(json);
        json = NULL;
    }
    json_decref(report);
    return json;
}

static wf_status tell(const wf_options *o, const job *j, const choices *c, FILE *out,
                      wf_error *error)
{
    const wf_par_report *r = &j->report;

    if (*j->inexact)
        fprintf(stderr, "%s\n", j->inexact);
    print_setting(out, o, r);
    print_units(out, r);
    print_memory(out, r);
    wf_step_report_collectives(out, r);
    fprintf(out, "\n  %.4g FLOPs of matrix products a step\n\n", r->flops);
    print_fit(out, o, r);
    print_choices(out, o, c);
    return o->json ? wf_step_report_write(plan_json(o, r, c), o->json, error) : WF_OK;
}

wf_status wf_dry_run(const wf_options *options, FILE *out, wf_error *error)
{
    wf_options o = *options; /* its texts stay the caller's */
    bool found = false;
    choices c;
    job j;

    if (o.json && wf_step_report_check(o.json, error) != WF_OK)
        return error->code;
    if (o.find_batch && find_batch(&o, &found, error) != WF_OK)
        return error->code;
    if (make(&j, &o, error) != WF_OK || plan_choices(&o, &c, error) != WF_OK)
        return error->code;
    if (found)
        fprintf(out,
                "the largest micro-batch that fits: --micro-batch-size %" PRId64
                " --global-batch-size %" PRId64 "\n\n",
                o.micro_batch_size, o.global_batch_size);
    else if (o.find_batch)
        fprintf(out, "no micro-batch fits, not even one of 1 sequence\n\n");
    return tell(&o, &j, &c, out, error);
}

/* The first strategy that fits, or else the one that comes closest. */
static int best_choice(const wf_options *o, const choices *c)
{
    int best = 0;

    for (int i = 1; i < c->n && !fits(o, &c->report[best]); i++)
        if (c->report[i].memory.peak < c->report[best].memory.peak)
            best = i;
    return best;
}

void wf_dry_run_advise(const wf_options *o, wf_error *error)
{
    wf_error ignored, told = *error;
    char peak[32], there[32], needed[32];
    const wf_memory_report *whole;
    choices c;
    int best;
    job j;

    if (!o->device_memory || make(&j, o, &ignored) != WF_OK ||
        plan_choices(o, &c, &ignored) != WF_OK || !c.n)
        return;
    whole = &j.report.memory;
    best = best_choice(o, &c);
    *error = (wf_error){WF_OK, ""};
    wf_size_text(needed, (double)whole->peak);
    wf_size_text(peak, (double)c.report[best].memory.peak);
    wf_size_text(there, (double)o->device_memory);
    if (fits(o, &c.report[best]))
        wf_error_set(error, told.code,
                     "%.1000s; --strategy %s needs %s a rank, most for %s; --strategy %s fits: "
                     "it takes %s of %s",
                     told.text, o->strategy, needed, wf_memory_kind_name(largest_kind(whole)),
                     c.name[best], peak, there);
    else
        wf_error_set(
            error, told.code,
            "%.1000s; --strategy %s needs %s a rank, most for %s; no other strategy "
            "fits with this micro-batch, the closest is --strategy %s with %s where %s "
            "are allowed: try --plan --find-batch",
            told.text, o->strategy, needed, wf_memory_kind_name(largest_kind(whole)),
            c.name[best], peak, there);
}
