/* apps/gpt_train/plan.c - see the header. */
#include "apps/gpt_train/plan.h"
#include "parallel/report/layout.h"
#include "apps/gpt_train/chakra.h"
#include "apps/gpt_train/choose_accumulate.h"
#include "apps/gpt_train/search.h"
#include "apps/step_report.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 1 << 20, ADVICE_SECONDS = 15 };

bool plan_fits(const app_options *o, const wf_plan *run)
{
    return !o->device_memory || run->report.memory.peak <= (size_t)o->device_memory;
}

wf_memory_kind plan_largest_kind(const wf_memory_report *m)
{
    int largest = 0;

    for (int k = 1; k < WF_MEMORY_KINDS; k++)
        if (m->at_peak[k] > m->at_peak[largest])
            largest = k;
    return (wf_memory_kind)largest;
}

/* The same micro-steps of m sequences each. False where the plan fails or does not fit; only a
   failure that is not of memory is one of the search. */
static bool batch_fits(app_options *o, int64_t micros, int64_t m, wf_error *error)
{
    wf_plan run;
    wf_status status;

    o->micro_batch_size = m;
    o->global_batch_size = micros * m * o->dp;
    status = dry_run_step(o, &run, error);
    if (status == WF_ENOMEM || status == WF_ESHAPE) /* larger than any memory, or than sizes */
        *error = (wf_error){WF_OK, ""};
    return status == WF_OK && plan_fits(o, &run);
}

/* Doubling, then halving the gap; leaves the batch in *o, a micro-batch of 1 if none fits. */
static wf_status find_batch(app_options *o, bool *found, wf_error *error)
{
    int64_t micros = app_options_micro_steps(o);
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

/* The batch that was found. It has the micro-steps of the flags, so the global batch follows. */
static void print_batch(FILE *out, const app_options *o, const app_options *asked, bool found)
{
    int64_t micros = o->global_batch_size / (o->dp * o->micro_batch_size);

    if (!found) {
        fprintf(out, "no micro-batch fits, not even one of 1 sequence\n\n");
        return;
    }
    fprintf(out,
            "the largest micro-batch that fits: --micro-batch-size %" PRId64
            " --global-batch-size %" PRId64 "\n"
            "  the global batch is %" PRId64 " micro-step%s x %" PRId64
            " data parallel rank%s x the micro-batch",
            o->micro_batch_size, o->global_batch_size, micros, micros == 1 ? "" : "s", o->dp,
            o->dp == 1 ? "" : "s");
    if (asked->given[APP_OPTION_global_batch_size])
        fprintf(out, ", where --global-batch-size %" PRId64 " was given",
                asked->global_batch_size);
    fputs("\n\n", out);
}

/* Plans a strategy as a run with these flags would take it: with the sums that it chooses. */
static void plan_strategy_as_run(app_options *o, plan_strategy *to)
{
    to->refused = (wf_error){WF_OK, ""};
    plan_set_strategy(o, to->name); /* one that cannot be set is refused by its plan */
    app_choose_sums(o, false);
    dry_run_step(o, &to->run, &to->refused);
}

/* Plans all other strategies. Of a refused one the plan has the reason; it is no error of the plan. */
static void plan_strategies(plan_report *p, const app_options *asked)
{
    const app_options *o = p->options;
    const char *name;

    p->n_strategies = 0;
    for (int s = 0; o->dp > 1 && p->n_strategies < PLAN_STRATEGIES; s++) {
        app_options other = *asked;

        name = wf_par_strategy_name(s);
        if (!name)
            break;
        if (strcmp(name, o->strategy) == 0)
            continue;
        if (o->find_batch) {
            other.micro_batch_size = o->micro_batch_size;
            other.global_batch_size = o->global_batch_size;
        }
        other.rank = o->rank;
        p->strategy[p->n_strategies].name = name;
        plan_strategy_as_run(&other, &p->strategy[p->n_strategies++]);
    }
}

/* Of the rank that is asked for; of a pipeline else of the one that takes most. */
static wf_status plan_rank(plan_report *p, app_options *o, wf_error *error)
{
    if (app_stage_plans_make(o, &p->stages, error) != WF_OK)
        return error->code;
    if (!p->stages.count || o->given[APP_OPTION_rank])
        return dry_run_step(o, &p->run, error);
    p->run = p->stages.run[p->stages.fullest];
    o->rank = p->run.report.rank;
    return WF_OK;
}

static wf_status make(plan_report *p, app_options *o, const app_options *asked, wf_error *error)
{
    if (plan_rank(p, o, error) != WF_OK)
        return error->code;
    plan_strategies(p, asked);
    if (!plan_fits(o, &p->run)) {
        p->limits = (plan_advice_limits){.room = (double)o->device_memory,
                                         .more_ranks = true,
                                         .seconds = ADVICE_SECONDS,
                                         .progress = true};
        plan_advice_find(o, &p->run, &p->limits, &p->advice);
    }
    return WF_OK;
}

static wf_status write_traces(const app_options *o, bool rank_given, FILE *out, wf_error *error)
{
    wf_sim_machine machine;
    app_options traced = *o;

    traced.given[APP_OPTION_rank] = rank_given; /* a plan chooses one */
    if (!o->chakra || (o->machine && wf_sim_machine_read(o->machine, &machine, error) != WF_OK))
        return error->code;
    return chakra_write(&traced, o->machine ? &machine : NULL, out, error);
}

wf_status plan_run(const app_options *options, FILE *out, wf_error *error)
{
    app_options o = *options; /* its texts stay the caller's */
    bool found = false;
    plan_report *p;

    if (strcmp(o.search, "off") != 0)
        return search_run(&o, out, error);
    app_choose_sums(&o, true);
    if (o.find_batch && find_batch(&o, &found, error) != WF_OK)
        return error->code;
    p = calloc(1, sizeof *p);
    if (!p)
        return wf_error_set(error, WF_ENOMEM, "no memory for a plan");
    p->options = &o;
    if (o.machine)
        search_time(&o, &p->time, p->machine, error);
    if (error->code == WF_OK && make(p, &o, options, error) == WF_OK) {
        if (o.find_batch)
            print_batch(out, &o, options, found);
        if (plan_report_write(p, out, error) == WF_OK)
            write_traces(&o, options->given[APP_OPTION_rank], out, error);
    }
    app_stage_plans_close(&p->stages);
    free(p);
    return error->code;
}

void plan_explain(const app_options *o, wf_error *error)
{
    const plan_advice_limits limits = {.room = (double)o->device_memory,
                                       .seconds = PLAN_EXPLAIN_SECONDS};
    wf_error ignored, told = *error;
    char needed[32], phrase[WF_ERROR_TEXT / 2];
    plan_advice advice;
    wf_plan run;

    if (!o->device_memory || dry_run_step(o, &run, &ignored) != WF_OK || plan_fits(o, &run))
        return;
    plan_advice_find(o, &run, &limits, &advice);
    plan_advice_phrase(phrase, sizeof phrase, &advice, &limits);
    *error = (wf_error){WF_OK, ""};
    wf_error_set(error, told.code, "%.600s; a rank needs %s, most for %s; %s", told.text,
                 wf_size_text(needed, (double)run.report.memory.peak),
                 wf_memory_kind_name(plan_largest_kind(&run.report.memory)), phrase);
}
