/* apps/gpt_train/choose_accumulate.c - see the header. */
#include "apps/gpt_train/choose_accumulate.h"
#include "apps/gpt_train/dry_run.h"
#include "apps/step_report.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_GROUP = 64, WAYS = 8 };

/* Whether every pipeline rank keeps within the limit, in a first step, with what comes beside training, and in a
   second one. */
static bool fits(const app_options *o)
{
    int64_t each = app_options_ranks(o) / o->pp;
    app_options one = *o;

    for (int64_t pp = 0; pp < o->pp; pp++)
        for (int start = 0; start < 2; start++) {
            wf_error error = {WF_OK, ""};
            dry_run run;

            one.rank = pp * each + o->rank % each;
            if (dry_run_within(&one, start, (size_t)o->device_memory, &run, &error) != WF_OK)
                return false;
        }
    return true;
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

void app_choose_accumulate(app_options *o, char told[APP_CHOICE_TOLD])
{
    int64_t micros = o->global_batch_size / (o->dp * o->micro_batch_size);
    char way[WAYS][APP_CHOICE_LENGTH], room[32];
    app_options other = *o;
    int n;

    told[0] = 0;
    if (!o->device_memory || o->dp == 1 || micros < 2 || o->steps == 0 ||
        strcmp(o->accumulate, "auto") != 0)
        return;
    n = ways(micros, way);
    for (int i = 0; i < n; i++) {
        memcpy(other.accumulate, way[i], sizeof other.accumulate);
        if (!fits(&other))
            continue;
        memcpy(o->accumulate, way[i], sizeof o->accumulate);
        snprintf(told, APP_CHOICE_TOLD,
                 "gradients: --accumulate %s, which moves least of what fits in %s%s%s", way[i],
                 app_size_text(room, (double)o->device_memory), i ? "; too large is " : "",
                 i ? way[i - 1] : "");
        return;
    }
}
