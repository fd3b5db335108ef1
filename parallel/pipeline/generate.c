/* parallel/pipeline/generate.c - schedules by name: the house's and those of applications. */
#include "parallel/pipeline/table_internal.h"
#include <stdio.h>
#include <string.h>

enum { MOST_REGISTERED = 32 };

static const wf_pipe_schedule built_in[] = {
#define SCHEDULE(name, generate, per_rank, what) {name, generate, per_rank, what},
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE
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
    registered[i] = (wf_pipe_schedule){name, generate, 1, "registered by the application"};
    n_registered += i == n_registered;
    return WF_OK;
}

wf_pipe_schedule wf_pipe_schedule_at(int i)
{
    if (i >= 0 && i < n_registered)
        return registered[i];
    i -= n_registered;
    return i >= 0 && i < BUILT_IN ? built_in[i] : (wf_pipe_schedule){NULL, NULL, 1, NULL};
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
    wf_pipe_schedule schedule;
    wf_status status;
    int i = 0;

    *table = NULL;
    while ((schedule = wf_pipe_schedule_at(i)).name && strcmp(schedule.name, name) != 0)
        i++;
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
