/* parallel/pipeline/generate.c - schedules by name: the house's and those of applications. */
#include "parallel/pipeline/table_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_REGISTERED = 32 };

static const wf_pipe_schedule built_in[] = {
#define WHOLE true
#define SPLIT false
#define SCHEDULE(name, generate, per_rank, searched, needs, gradients, live, what)             \
    {name, generate, per_rank, searched, needs, gradients, live, what},
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE
#undef SPLIT
#undef WHOLE
};

enum { BUILT_IN = sizeof built_in / sizeof *built_in };

static wf_pipe_schedule registered[MOST_REGISTERED];
static int n_registered;

wf_status wf_pipe_register(const char *name, wf_pipe_generator *generate)
{
    int i = 0;

    if (!name || !*name || !generate)
        return WF_EINVAL;
    while (i < n_registered && strcmp(registered[i].name, name) != 0)
        i++;
    if (i == MOST_REGISTERED)
        return WF_EINVAL;
    registered[i] = (wf_pipe_schedule){.name = name,
                                       .generate = generate,
                                       .per_rank = 1,
                                       .searched = 1,
                                       .what = "registered by the application"};
    n_registered += i == n_registered;
    return WF_OK;
}

wf_pipe_schedule wf_pipe_schedule_at(int i)
{
    if (i >= 0 && i < n_registered)
        return registered[i];
    i -= n_registered;
    return i >= 0 && i < BUILT_IN ? built_in[i] : (wf_pipe_schedule){.per_rank = 1};
}

int wf_pipe_schedule_find(const char *name)
{
    for (int i = 0; wf_pipe_schedule_at(i).name; i++)
        if (strcmp(wf_pipe_schedule_at(i).name, name) == 0)
            return i;
    return -1;
}

double wf_pipe_least_live(const wf_pipe_schedule *schedule, const wf_pipe_shape *shape)
{
    const double own = shape->stages / (double)shape->ranks;
    const double few = (shape->micro + own - 1) / own, live = schedule->live * shape->ranks;

    if (isinf(schedule->live))
        return shape->micro;
    return fmax(1, fmin(live, few));
}

static wf_status no_schedule(const char *name, wf_error *error)
{
    char names[512] = "";
    size_t n = 0;
    wf_pipe_schedule s;

    for (int i = 0; (s = wf_pipe_schedule_at(i)).name; i++)
        if (n + strlen(s.name) + 2 < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, " %s", s.name);
    return wf_error_set(error, WF_EINVAL, "no schedule is called %s; there are:%s", name,
                        names);
}

wf_status wf_pipe_generate(const char *name, const wf_pipe_shape *shape, wf_pipe_table **table,
                           wf_error *error)
{
    wf_pipe_schedule schedule = wf_pipe_schedule_at(wf_pipe_schedule_find(name));
    wf_status status;

    *table = NULL;
    if (!schedule.name)
        return no_schedule(name, error);
    status = wf_pipe_table_new(shape, table, error);
    if (status != WF_OK)
        return status;
    if (shape->stages % shape->ranks)
        wf_pipe_table_refuse(*table,
                             "every rank has as many stages: %d stages on %d ranks do not "
                             "divide; take a multiple of %d stages",
                             shape->stages, shape->ranks, shape->ranks);
    else
        schedule.generate(shape, *table);
    status = (*table)->error.code;
    if (status != WF_OK) {
        wf_error_set(error, status, "%s", (*table)->error.text);
        wf_pipe_table_free(*table);
        *table = NULL;
    }
    return status;
}
