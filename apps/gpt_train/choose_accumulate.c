/* apps/gpt_train/choose_accumulate.c - see the header. */
#include "apps/gpt_train/choose_accumulate.h"
#include "parallel/report/layout.h"
#include "apps/gpt_train/dry_run.h"
#include "apps/step_report.h"
#include "parallel/simulate/machine.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_GROUP = 64, WAYS = 8 };

/* Whether every pipeline rank keeps within the limit, in two steps, and with what comes beside training. */
static bool fits(const app_options *o, size_t limit)
{
    int64_t each = app_options_ranks(o) / o->pp;
    bool beside = o->eval_interval || o->sample;
    app_options one = *o;
    wf_error error = {WF_OK, ""};
    wf_plan_peak peak;
    wf_plan run;

    if (dry_run_peaks(o, limit, &peak, &error) != WF_OK)
        return false;
    for (int64_t pp = 0; pp < o->pp && beside; pp++) {
        one.rank = pp * each + o->rank % each;
        if (dry_run_within(&one, true, limit, &run, &error) != WF_OK)
            return false;
    }
    return true;
}

/* What a rank may take: as is said, or what a device of the machine has whose time a plan or a run takes. */
static size_t limit_of(const app_options *o)
{
    const char *file = o->plan ? o->machine : o->paced;
    wf_error unread = {WF_OK, ""}; /* who needs the file tells */
    wf_sim_machine machine;

    if (o->device_memory || !file || wf_sim_machine_read(file, &machine, &unread) != WF_OK)
        return (size_t)o->device_memory;
    return (size_t)machine.memory;
}

/* The ways of summing for so many micro-steps, the one that moves least first. */
static int ways(int64_t micros, char way[WAYS][APP_CHOICE_LENGTH])
{
    int n = 0;

    snprintf(way[n++], APP_CHOICE_LENGTH, "local");
    for (int g = LARGEST_GROUP; g > 1; g /= 2)
        if (micros > g && micros % g == 0 && (micros / g & (micros / g - 1)) == 0)
            snprintf(way[n++], APP_CHOICE_LENGTH, "group:%d", g);
    snprintf(way[n++], APP_CHOICE_LENGTH, "reduced");
    return n;
}

/* What cannot be planned is left to the run to tell. */
static bool is_exact(const app_options *o)
{
    wf_error error = {WF_OK, ""};
    wf_plan run;

    return dry_run_step(o, &run, &error) != WF_OK || !*run.inexact;
}

static bool is_planned(const app_options *o)
{
    wf_plan run;

    return dry_run_serves(o, &run);
}

bool app_choose_single(app_options *o, bool (*serves)(const app_options *o))
{
    static const char *const way[] = {"reduced", "group:1"};
    bool asked = strcmp(o->accumulate, "auto") != 0;
    app_options single = *o;

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

/* Where ranks are idle, or others would not have the numbers of one rank; whether it changed, and a line about it. */
static bool choose_exact(app_options *o, char told[APP_CHOICE_TOLD])
{
    int64_t idle = app_options_idle(o);
    int n;

    if (strcmp(o->search, "off") != 0 || o->find_batch || o->steps == 0 || o->dp == 1)
        return false; /* it tries others, or takes another batch */
    if (!idle && (!o->exact || (o->dp & (o->dp - 1)) == 0 || !o->whole_batches || is_exact(o)))
        return false;
    if (!app_choose_single(o, is_planned))
        return false;
    n = snprintf(told, APP_CHOICE_TOLD,
                 "batches: --micro-batch-size 1 --accumulate %s, with which %" PRId64
                 " data-parallel ranks",
                 o->accumulate, o->dp);
    if (idle)
        snprintf(told + n, (size_t)(APP_CHOICE_TOLD - n),
                 " take %" PRId64 " sequences; in the last of %" PRId64 " micro-steps %" PRId64
                 " of them %s idle",
                 o->global_batch_size, app_options_micro_steps(o), idle,
                 idle == 1 ? "is" : "are");
    else
        snprintf(told + n, (size_t)(APP_CHOICE_TOLD - n),
                 " have the numbers of one; --exact off does without");
    return true;
}

void app_choose_accumulate(app_options *o, char told[APP_CHOICE_TOLD])
{
    int64_t micros = app_options_micro_steps(o);
    char way[WAYS][APP_CHOICE_LENGTH], room[32];
    app_options other = *o;
    size_t limit = limit_of(o);
    int n;

    told[0] = 0;
    if (strcmp(o->search, "off") != 0) /* it tries all of them */
        return;
    if (!limit || o->dp == 1 || micros < 2 || o->steps == 0 || app_options_idle(o) ||
        strcmp(o->accumulate, "auto") != 0)
        return;
    n = ways(micros, way);
    for (int i = 0; i < n; i++) {
        memcpy(other.accumulate, way[i], sizeof other.accumulate);
        if (!fits(&other, limit))
            continue;
        memcpy(o->accumulate, way[i], sizeof o->accumulate);
        snprintf(told, APP_CHOICE_TOLD,
                 "gradients: --accumulate %s, which moves least of what fits in %s%s%s", way[i],
                 wf_size_text(room, (double)limit), i ? "; too large is " : "",
                 i ? way[i - 1] : "");
        return;
    }
}

void app_choose_sums(app_options *o, bool tell)
{
    char told[APP_CHOICE_TOLD];

    if (choose_exact(o, told) && tell)
        printf("%s\n", told);
    app_choose_accumulate(o, told);
    if (*told && tell)
        printf("%s\n", told);
}
