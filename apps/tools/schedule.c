/* apps/tools/schedule.c - pipeline schedules: generated, read, proved, lowered and drawn; see
   schedule --help. */
#include "apps/tools/schedule_flags.h"
#include "apps/tools/schedule_picture.h"
#include "apps/program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The schedule that a word names; without a name where it is a file. */
static wf_pipe_schedule find(const char *word)
{
    return wf_pipe_schedule_at(wf_pipe_schedule_find(word));
}

/* A name that is no schedule's, of something that exists. */
static bool is_file(const char *word)
{
    return !find(word).name && access(word, F_OK) == 0;
}

static wf_status check_flags(const app_schedule_request *q, wf_error *error)
{
    if (q->source && q->shaped && is_file(q->source))
        return wf_error_set(error, WF_EINVAL,
                            "%s is a file, which says its ranks, stages and micro-batches: "
                            "--pp, --virtual, --micro and --cap are for names",
                            q->source);
    return WF_OK;
}

static wf_status make(const app_schedule_request *q, wf_pipe_table **table, wf_error *error)
{
    wf_pipe_schedule schedule = find(q->source);
    int64_t v = q->virtual ? q->virtual : schedule.per_rank;

    *table = NULL;
    if (!is_file(q->source)) {
        wf_pipe_shape shape = {.ranks = q->pp,
                               .stages = v * q->pp > 1 << 20 ? 1 << 20 : (int)v * q->pp,
                               .micro = q->micro ? q->micro : 2 * q->pp,
                               .cap = q->cap};

        return wf_pipe_generate(q->source, &shape, table, error);
    }
    return wf_pipe_table_read(q->source, table, error);
}

/* Returns the costs of stages, in ticks of which a unit of a rank has 100 times its stages. */
static wf_pipe_costs costs_of(const app_schedule_request *q, const wf_pipe_table *table,
                              double *unit)
{
    wf_pipe_shape shape = wf_pipe_table_shape(table);
    int v = shape.stages > shape.ranks ? shape.stages / shape.ranks : 1;

    *unit = 100.0 * v;
    return (wf_pipe_costs){q->forward, q->inputs, q->weights, (int64_t)q->message * v,
                           q->blocks};
}

/* Lowers a table at the depth that was asked for; one that is lowered already is left alone,
   and flags that say how are refused. */
static wf_status lower(const app_schedule_request *q, wf_pipe_table **table,
                       wf_pipe_depths *depths, wf_error *error)
{
    wf_pipe_lowering how = q->how;
    wf_status status = WF_OK;
    wf_pipe_table *lowered;
    wf_pipe_costs cost;
    double unit;

    *depths = (wf_pipe_depths){0};
    if (wf_pipe_table_facts(*table).lowered)
        return app_schedule_lowering(q)
                   ? wf_error_set(error, WF_EINVAL, "%s is lowered already: leave --%s out",
                                  q->source, app_schedule_lowering(q))
                   : WF_OK;
    if (how.depth < 0) {
        cost = costs_of(q, *table, &unit);
        status = wf_pipe_find_depths(*table, &how, &cost, depths, error);
        how.depth = depths->fastest <= WF_PIPE_MOST_IN_FLIGHT ? depths->fastest : depths->least;
    }
    if (status == WF_OK)
        status = wf_pipe_lower(*table, &how, &lowered, error);
    if (status != WF_OK)
        return status;
    wf_pipe_table_free(*table);
    *table = lowered;
    return WF_OK;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static wf_status check(const app_schedule_request *q, wf_pipe_table **table, wf_error *error)
{
    wf_pipe_depths depths;
    wf_pipe_proof proof;
    char text[512];
    wf_status status = lower(q, table, &depths, error);
    double begin = seconds(), took;

    if (status == WF_OK)
        status = wf_pipe_prove(*table, &proof, error);
    took = seconds() - begin;
    if (status != WF_OK)
        return status;
    printf("%s\n", wf_pipe_proof_text(q->source, *table, &proof, text, sizeof text));
    printf("proved in %.3f s\n", took);
    if (depths.least)
        printf("messages in flight: at least %d without a deadlock, %d without loss of time\n",
               depths.least, depths.fastest);
    return WF_OK;
}

static wf_status show(const app_schedule_request *q, wf_pipe_table **table, wf_error *error)
{
    app_schedule_picture picture = {.name = q->source};
    wf_pipe_timing timing = {0};
    wf_status status = WF_OK;
    wf_pipe_depths depths;
    wf_pipe_costs cost;

    if (q->messages)
        status = lower(q, table, &depths, error);
    if (status == WF_OK)
        status = wf_pipe_prove(*table, NULL, error);
    if (status != WF_OK)
        return status;
    cost = costs_of(q, *table, &picture.unit);
    picture.table = *table;
    picture.timing = &timing;
    picture.costs = &cost;
    status = wf_pipe_simulate(*table, &cost, &timing, error);
    if (status == WF_OK) {
        app_schedule_picture_text(&picture, isatty(STDOUT_FILENO), stdout);
        fflush(stdout);
    }
    if (status == WF_OK && q->svg)
        status = app_schedule_picture_svg(&picture, q->svg, error);
    wf_pipe_timing_free(&timing);
    return status;
}

/* Tables are printed when they are proved: what is given back can run. */
static wf_status print(const app_schedule_request *q, wf_pipe_table **table, wf_error *error)
{
    wf_pipe_depths depths;
    wf_status status = WF_OK;

    if (strcmp(q->command, "lower") == 0) {
        if (wf_pipe_table_facts(*table).lowered)
            return wf_error_set(error, WF_EINVAL, "%s is lowered already", q->source);
        status = lower(q, table, &depths, error);
    }
    if (status == WF_OK)
        status = wf_pipe_prove(*table, NULL, error);
    if (status == WF_OK)
        wf_pipe_table_print(*table, stdout);
    return status;
}

static wf_status run(const app_schedule_request *q, wf_error *error)
{
    wf_pipe_schedule schedule;
    wf_pipe_table *table;
    wf_status status;

    if (strcmp(q->command, "list") == 0) {
        for (int i = 0; (schedule = wf_pipe_schedule_at(i)).name; i++)
            printf("%-12s %s\n", schedule.name, schedule.what);
        return WF_OK;
    }
    status = make(q, &table, error);
    if (status == WF_OK)
        status = strcmp(q->command, "check") == 0  ? check(q, &table, error)
                 : strcmp(q->command, "show") == 0 ? show(q, &table, error)
                                                   : print(q, &table, error);
    wf_pipe_table_free(table);
    return status;
}

int main(int argc, char **argv)
{
    app_schedule_request q = {.pp = 4,
                              .how = {.depth = -1, .ahead = 1, .prefetch = 1},
                              .forward = 100,
                              .inputs = 100,
                              .weights = 100};
    wf_error error = {WF_OK, ""};
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("schedule", argc, argv))
        return app_program_end("schedule", 0);
    status = app_schedule_parse(argc, argv, &q, &error);
    if (status == WF_OK)
        status = check_flags(&q, &error);
    if (status != WF_OK) {
        app_program_error("schedule", &error);
        return 2;
    }
    if (q.help) {
        fputs(app_schedule_help, stdout);
        return app_program_end("schedule", 0);
    }
    status = run(&q, &error);
    if (status == WF_OK)
        return app_program_end("schedule", 0);
    app_program_error("schedule", &error);
    return status == WF_EDATA || status == WF_EIO ? 3 : 1;
}
