/* parallel/plan/print.c - see the header. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/print_internal.h"
#include "parallel/flag_names.h"
#include "parallel/report/layout.h"
#include "parallel/plan/chakra_internal.h"
#include "parallel/plan/choose_internal.h"
#include "parallel/plan/search_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 1 << 20, ADVICE_SECONDS = 15 };

bool wf_plan_fits(const wf_plan_request *o, size_t peak)
{
    return !o->device_memory || peak <= (size_t)o->device_memory;
}

wf_memory_kind wf_plan_largest_kind(const wf_memory_report *m)
{
    int largest = 0;

    for (int k = 1; k < WF_MEMORY_KINDS; k++)
        if (m->at_peak[k] > m->at_peak[largest])
            largest = k;
    return (wf_memory_kind)largest;
}

/* The same micro-steps of m sequences each: of the rank that is asked for, or, in a pipeline,
   of one of each stage. False where the plan fails or does not fit; only a failure that is not
   of memory is one of the search. */
static bool batch_fits(wf_plan_request *o, int64_t micros, int64_t m, wf_error *error)
{
    const size_t limit = (size_t)o->device_memory;
    wf_plan_peak peak;
    wf_plan run;
    wf_status status;

    o->micro_batch_size = m;
    o->global_batch_size = micros * m * wf_plan_data_ranks(o);
    status = o->pp > 1 && !o->rank_given ? wf_plan_request_peaks(o, limit, &peak, error)
                                         : wf_plan_request_within(o, false, limit, &run, error);
    if (status == WF_ENOMEM || status == WF_ESHAPE) /* larger than any memory, or than sizes */
        *error = (wf_error){WF_OK, ""};
    return status == WF_OK;
}

/* Doubling, then halving the gap; leaves the batch in *o, a micro-batch of 1 if none fits. */
static wf_status find_batch(wf_plan_request *o, bool *found, wf_error *error)
{
    int64_t micros = wf_plan_micro_steps(o);
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
    o->global_batch_size = micros * o->micro_batch_size * wf_plan_data_ranks(o);
    return error->code;
}

/* The batch that was found. It has the micro-steps of the flags, so the global batch
   follows. */
static void print_batch(FILE *out, const wf_plan_request *o, const wf_plan_request *asked,
                        bool found)
{
    int64_t micros = o->global_batch_size / (wf_plan_data_ranks(o) * o->micro_batch_size);

    if (!found) {
        fprintf(out, "no micro-batch fits, not even one of 1 sequence\n\n");
        return;
    }
    wf_flags_print(out,
                   "the largest micro-batch that fits: .micro_batch_size %" PRId64
                   " .global_batch_size %" PRId64 "\n"
                   "  the global batch is %" PRId64 " micro-step%s x %" PRId64
                   " data parallel rank%s x the micro-batch",
                   o->micro_batch_size, o->global_batch_size, micros, micros == 1 ? "" : "s",
                   wf_plan_data_ranks(o), wf_plan_data_ranks(o) == 1 ? "" : "s");
    if (asked->given[WF_SETTING_global_batch_size])
        wf_flags_print(out, ", where .global_batch_size %" PRId64 " was given",
                       asked->global_batch_size);
    fputs("\n\n", out);
}

/* Plans a strategy as a run with these flags would take it: with the sums that it chooses. */
static void plan_strategy_as_run(wf_plan_request *o, wf_plan_strategy *to)
{
    wf_plan after;

    to->refused = (wf_error){WF_OK, ""};
    wf_plan_set_strategy(o, to->name); /* one that cannot be set is refused by its plan */
    wf_plan_choose_sums(o, NULL);
    if (wf_plan_request_check(o, &to->refused) != WF_OK ||
        wf_plan_request_step(o, &to->run, &to->refused) != WF_OK)
        return;
    to->peak = to->run.report.memory.peak;
    if (o->job.after && wf_plan_request_start(o, (int)o->rank, &after, &to->refused) == WF_OK &&
        after.report.memory.peak > to->peak)
        to->peak = after.report.memory.peak;
}

/* Plans all other strategies. Of a refused one the plan has the reason; it is no error of the
   plan. */
static void plan_strategies(wf_plan_report *p, const wf_plan_request *asked)
{
    const wf_plan_request *o = p->options;
    const char *name;

    p->n_strategies = 0;
    for (int s = 0;
         wf_plan_data_ranks(o) > 1 && !o->job.mesh.axes && p->n_strategies < WF_PLAN_STRATEGIES;
         s++) {
        wf_plan_request other = *asked;

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

/* Plans the rank that is asked for; without one, in a pipeline, the rank that takes most
   memory. */
static wf_status plan_rank(wf_plan_report *p, wf_plan_request *o, wf_error *error)
{
    if (wf_stage_plans_make(o, &p->stages, error) != WF_OK)
        return error->code;
    if (!p->stages.count || o->rank_given)
        return wf_plan_request_step(o, &p->run, error);
    p->run = p->stages.run[p->stages.fullest];
    o->rank = p->run.report.rank;
    return WF_OK;
}

size_t wf_plan_run_peak(const wf_plan_report *p)
{
    const size_t steps = p->run.report.memory.peak, whole = p->whole.report.memory.peak;

    return steps > whole ? steps : whole;
}

double wf_plan_room(const wf_plan_report *p)
{
    const double there = (double)p->options->device_memory;

    return there > 0 ? there - (double)wf_plan_run_peak(p) : 0;
}

void wf_plan_print_fit(FILE *out, const wf_plan_report *p)
{
    const wf_plan_request *o = p->options;
    char there[32], gap[32];
    const bool follows = wf_plan_run_peak(p) > p->run.report.memory.peak;
    const double room = wf_plan_room(p);

    if (o->job.after)
        fprintf(out, "  the run, with what follows its steps: %s at its peak\n\n",
                wf_size_text(gap, (double)wf_plan_run_peak(p)));
    if (!o->device_memory)
        return;
    wf_size_text(there, (double)o->device_memory);
    if (room >= 0)
        fprintf(out, "fits in %s, and leaves %s\n", there, wf_size_text(gap, room));
    else
        fprintf(out, "does not fit in %s: %s too much; the most is %s%s\n", there,
                wf_size_text(gap, -room),
                wf_memory_kind_name(
                    wf_plan_largest_kind(&(follows ? &p->whole : &p->run)->report.memory)),
                follows ? ", in what follows the steps" : "");
    if (room < 0)
        wf_plan_advice_print(out, &p->advice, &p->limits);
}

/* Plans what follows the steps, too: of the rank that is asked for, or, in a pipeline, of the
   one that then takes most. */
static wf_status plan_whole(wf_plan_report *p, const wf_plan_request *o, wf_error *error)
{
    const bool each = p->stages.count && !o->rank_given;

    for (int i = 0; o->job.after && i < (each ? p->stages.count : 1); i++) {
        const int rank = each ? p->stages.run[i].report.rank : (int)o->rank;
        wf_plan whole = {0};

        if (wf_plan_request_start(o, rank, &whole, error) != WF_OK)
            return error->code;
        if (each)
            p->stages.after[i] = whole.report.memory.peak;
        if (i == 0 || whole.report.memory.peak > p->whole.report.memory.peak)
            p->whole = whole;
    }
    return WF_OK;
}

static wf_status make(wf_plan_report *p, wf_plan_request *o, const wf_plan_request *asked,
                      wf_error *error)
{
    if (plan_rank(p, o, error) != WF_OK || plan_whole(p, o, error) != WF_OK)
        return error->code;
    plan_strategies(p, asked);
    if (!wf_plan_fits(o, wf_plan_run_peak(p))) {
        wf_plan base = p->run;

        if (p->whole.report.memory.peak > base.report.memory.peak)
            base.report.memory = p->whole.report.memory;
        p->limits = (wf_plan_advice_limits){.room = (double)o->device_memory,
                                            .more_ranks = true,
                                            .seconds = ADVICE_SECONDS,
                                            .progress = true};
        wf_plan_advice_find(o, &base, &p->limits, &p->advice);
    }
    return WF_OK;
}

static wf_status write_traces(const wf_plan_request *o, bool rank_given, FILE *out,
                              wf_error *error)
{
    wf_sim_machine machine;
    wf_plan_request traced = *o;

    traced.rank_given = rank_given; /* a plan chooses one */
    if (!o->chakra || (o->machine && wf_sim_machine_read(o->machine, &machine, error) != WF_OK))
        return error->code;
    return wf_chakra_write(&traced, o->machine ? &machine : NULL, out, error);
}

wf_status wf_plan_print(const wf_plan_request *options, FILE *out, wf_error *error)
{
    wf_plan_request o = *options; /* its texts stay the caller's */
    bool found = false;
    wf_plan_report *p;

    if (strcmp(o.search, "off") != 0)
        return wf_search_run(&o, out, error);
    if (wf_plan_request_check(&o, error) != WF_OK)
        return error->code;
    wf_plan_choose_sums(&o, out);
    if (o.find_batch && find_batch(&o, &found, error) != WF_OK)
        return error->code;
    p = calloc(1, sizeof *p);
    if (!p)
        return wf_error_set(error, WF_ENOMEM, "no memory for a plan");
    p->options = &o;
    if (o.machine)
        wf_search_time(&o, &p->time, p->machine, error);
    if (error->code == WF_OK && make(p, &o, options, error) == WF_OK) {
        if (o.find_batch)
            print_batch(out, &o, options, found);
        if (wf_plan_report_write(p, out, error) == WF_OK)
            write_traces(&o, options->rank_given, out, error);
        if (error->code == WF_OK && o.memory_timeline)
            wf_plan_request_draw(&o, error);
    }
    wf_plan_ranks_close(&p->stages);
    free(p);
    return error->code;
}

void wf_plan_explain(const wf_plan_request *o, wf_error *error)
{
    const wf_plan_advice_limits limits = {.room = (double)o->device_memory,
                                          .seconds = WF_PLAN_EXPLAIN_SECONDS};
    wf_error ignored, first = *error;
    char needed[32], phrase[WF_ERROR_TEXT / 2];
    wf_plan_advice advice;
    wf_plan run;

    if (!o->device_memory || wf_plan_request_within(o, false, 0, &run, &ignored) != WF_OK ||
        wf_plan_fits(o, run.report.memory.peak))
        return;
    wf_plan_advice_find(o, &run, &limits, &advice);
    wf_plan_advice_phrase(phrase, sizeof phrase, &advice, &limits);
    *error = (wf_error){WF_OK, ""};
    wf_error_set(error, first.code, "%.600s; a rank needs %s, most for %s; %s", first.text,
                 wf_size_text(needed, (double)run.report.memory.peak),
                 wf_memory_kind_name(wf_plan_largest_kind(&run.report.memory)), phrase);
}
