/* parallel/plan/choose.c - see the header. */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/choose_internal.h"
#include "parallel/flag_names.h"
#include "parallel/report/layout.h"
#include "parallel/plan/request.h"
#include "parallel/simulate/machine.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_GROUP = 64, WAYS = 8 };

/* Returns true where every pipeline rank keeps within the limit, in two steps and in the work
   beside training. */
static bool fits(const wf_plan_request *o, size_t limit)
{
    wf_error error = {WF_OK, ""};
    wf_plan_peak peak;

    return wf_plan_request_peaks(o, limit, &peak, &error) == WF_OK &&
           (!o->job.eval_interval || o->job.after ||
            wf_plan_request_start_peaks(o, limit, &peak, &error) == WF_OK);
}

/* Returns the bytes that a rank may take: the option's, or the memory of a device of the
   machine whose time a plan or a run takes; 0: no limit. */
static size_t limit_of(const wf_plan_request *o)
{
    const char *file = o->planned ? o->machine : o->paced;
    wf_error unread = {WF_OK, ""}; /* reported by the code that needs the file */
    wf_sim_machine machine;

    if (o->device_memory || !file || wf_sim_machine_read(file, &machine, &unread) != WF_OK)
        return (size_t)o->device_memory;
    return (size_t)machine.memory;
}

/* Lists the modes of accumulation for a number of micro-steps, the one that moves least
   first. */
static int ways(int64_t micros, char way[WAYS][WF_WORD])
{
    int n = 0;

    snprintf(way[n++], WF_WORD, "local");
    for (int g = LARGEST_GROUP; g > 1; g /= 2)
        if (micros > g && micros % g == 0 && (micros / g & (micros / g - 1)) == 0)
            snprintf(way[n++], WF_WORD, "group:%d", g);
    snprintf(way[n++], WF_WORD, "reduced");
    return n;
}

/* Returns true where a plan is exact, and where there is none: the run then reports why. */
static bool is_exact(const wf_plan_request *o)
{
    wf_error error = {WF_OK, ""};
    wf_plan run;

    return wf_plan_request_step(o, &run, &error) != WF_OK || !*run.inexact;
}

static bool is_planned(const wf_plan_request *o)
{
    wf_plan run;

    return wf_plan_request_serves(o, &run);
}

bool wf_plan_choose_single(wf_plan_request *o, bool (*serves)(const wf_plan_request *o))
{
    static const char *const way[] = {"reduced", "group:1"};
    bool asked = strcmp(o->accumulate, "auto") != 0;
    wf_plan_request single = *o;

    single.micro_batch_size = 1;
    for (int i = 0; i < (asked ? 1 : 2); i++) {
        if (!asked)
            snprintf(single.accumulate, sizeof single.accumulate, "%s", way[i]);
        if (serves(&single)) {
            *o = single;
            return true;
        }
    }
    return false;
}

/* Chooses micro-batches of one sequence where ranks are idle, or would not have the numbers of
   one rank. Returns true after a change, with a line about it. */
static bool choose_exact(wf_plan_request *o, char line[WF_PLAN_CHOICE])
{
    int64_t idle = wf_plan_idle(o);
    int n;

    if (strcmp(o->search, "off") != 0 || o->find_batch || o->job.steps == 0 ||
        wf_plan_data_ranks(o) == 1)
        return false; /* it tries others, or takes another batch */
    if (!idle &&
        (o->job.mesh.exact_off || (wf_plan_data_ranks(o) & (wf_plan_data_ranks(o) - 1)) == 0 ||
         !o->whole_batches || is_exact(o)))
        return false;
    if (!wf_plan_choose_single(o, is_planned))
        return false;
    n = snprintf(line, WF_PLAN_CHOICE,
                 "batches: .micro_batch_size 1 .accumulate %s, with which %" PRId64
                 " data-parallel ranks",
                 o->accumulate, wf_plan_data_ranks(o));
    if (idle)
        snprintf(line + n, (size_t)(WF_PLAN_CHOICE - n),
                 " take %" PRId64 " sequences; in the last of %" PRId64 " micro-steps %" PRId64
                 " of them %s idle",
                 o->global_batch_size, wf_plan_micro_steps(o), idle, idle == 1 ? "is" : "are");
    else
        snprintf(line + n, (size_t)(WF_PLAN_CHOICE - n),
                 " have the numbers of one; .exact off does without");
    return true;
}

void wf_plan_choose_accumulate(wf_plan_request *o, char line[WF_PLAN_CHOICE])
{
    int64_t micros = wf_plan_micro_steps(o);
    char way[WAYS][WF_WORD], room[32];
    wf_plan_request other = *o;
    size_t limit = limit_of(o);
    int n;

    line[0] = 0;
    if (strcmp(o->search, "off") != 0) /* it tries all of them */
        return;
    if (!limit || wf_plan_data_ranks(o) == 1 || micros < 2 || o->job.steps == 0 ||
        wf_plan_idle(o) || strcmp(o->accumulate, "auto") != 0)
        return;
    n = ways(micros, way);
    for (int i = 0; i < n; i++) {
        memcpy(other.accumulate, way[i], sizeof other.accumulate);
        if (!fits(&other, limit))
            continue;
        memcpy(o->accumulate, way[i], sizeof o->accumulate);
        snprintf(line, WF_PLAN_CHOICE,
                 "gradients: .accumulate %s, which moves least of what fits in %s%s%s", way[i],
                 wf_size_text(room, (double)limit), i ? "; too large is " : "",
                 i ? way[i - 1] : "");
        return;
    }
}

void wf_plan_choose_sums(wf_plan_request *o, FILE *out)
{
    char line[WF_PLAN_CHOICE];

    if (choose_exact(o, line) && out)
        wf_flags_print(out, "%s\n", line);
    wf_plan_choose_accumulate(o, line);
    if (*line && out)
        wf_flags_print(out, "%s\n", line);
}
