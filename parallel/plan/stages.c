/* parallel/plan/stages.c - see the header. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/stages_internal.h"
#include "parallel/report/layout.h"
#include "parallel/formats/json_number.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

wf_status wf_stage_plans_make(const wf_plan_request *o, wf_plan_ranks_of *plans,
                              wf_error *error)
{
    int64_t each = wf_plan_ranks(o) / o->pp;
    wf_plan_job made;

    *plans = (wf_plan_ranks_of){.count = 0};
    if (o->pp == 1)
        return WF_OK;
    return wf_plan_ranks_make(wf_plan_request_job(o, &made), o->rank % each, 0, !o->rank_given,
                              plans, error);
}

/* The kinds of memory with a column of their own; all others share one. */
static const wf_memory_kind columns[] = {WF_MEMORY_PARAMETER, WF_MEMORY_FROZEN,
                                         WF_MEMORY_GATHERED,  WF_MEMORY_GRADIENT,
                                         WF_MEMORY_OPTIMIZER, WF_MEMORY_ACTIVATION};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Returns the peak of a coordinate's rank in its steps and in what follows them. */
static size_t run_peak(const wf_plan_ranks_of *plans, int pp)
{
    const size_t steps = plans->run[pp].report.memory.peak;

    return plans->after[pp] > steps ? plans->after[pp] : steps;
}

static void print_plan(FILE *out, const wf_plan_request *o, const wf_plan_ranks_of *plans,
                       int pp)
{
    const wf_memory_report *m = &plans->run[pp].report.memory;
    char text[32], moment[WF_MEMORY_PHASE + WF_MEMORY_MODULE + 8], after[64] = "";
    size_t others = m->peak;
    const size_t whole = run_peak(plans, pp);

    fprintf(out, "  %-4d", pp);
    for (int c = 0; c < COLUMNS; c++) {
        fprintf(out, " %12s", wf_size_text(text, (double)m->at_peak[columns[c]]));
        others -= m->at_peak[columns[c]];
    }
    fprintf(out, " %12s", wf_size_text(text, (double)others));
    fprintf(out, " %12s  %s", wf_size_text(text, (double)m->peak),
            wf_moment_text(moment, sizeof moment, m));
    if (whole > m->peak)
        snprintf(after, sizeof after, ", %s in what follows the steps",
                 wf_size_text(text, (double)whole));
    fprintf(out, "%s%s\n", after,
            !o->device_memory                   ? ""
            : whole <= (size_t)o->device_memory ? ": fits"
                                                : ": does not fit");
}

void wf_stage_plans_print(FILE *out, const wf_plan_request *o, const wf_plan_ranks_of *plans)
{
    if (!plans->count)
        return;
    fprintf(out, "  what a rank of each stage takes at its peak\n  %-4s", "pp");
    for (int c = 0; c < COLUMNS; c++)
        fprintf(out, " %12s",
                columns[c] == WF_MEMORY_GATHERED    ? "gathered"
                : columns[c] == WF_MEMORY_FROZEN    ? "frozen"
                : columns[c] == WF_MEMORY_OPTIMIZER ? "optimizer"
                                                    : wf_memory_kind_name(columns[c]));
    fprintf(out, " %12s %12s  %s\n", "others", "peak", "in");
    for (int pp = 0; pp < plans->count; pp++)
        print_plan(out, o, plans, pp);
    fputc('\n', out);
}

json_t *wf_stage_plans_json(const wf_plan_ranks_of *plans)
{
    json_t *list = json_array();

    for (int pp = 0; list && pp < plans->count; pp++) {
        const wf_par_report *r = &plans->run[pp].report;
        char moment[WF_MEMORY_PHASE + WF_MEMORY_MODULE + 8];

        json_array_append_new(
            list, json_pack("{s:i, s:i, s:I, s:I, s:s, s:I, s:o?, s:o?}", "pp", pp, "rank",
                            r->rank, "peak", (json_int_t)r->memory.peak, "run_peak",
                            (json_int_t)run_peak(plans, pp), "moment",
                            wf_moment_text(moment, sizeof moment, &r->memory), "parameters",
                            (json_int_t)r->share, "flops", wf_json_number("flops", r->flops),
                            "model_flops", wf_json_number("model_flops", r->model_flops)));
    }
    return list;
}
