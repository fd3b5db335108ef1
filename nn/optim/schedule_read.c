/* nn/optim/schedule_read.c - a schedule by its word, or from a file of points. */
#include "nn/optim/schedule.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a line; returns 1 for a point, 0 for a line without one, -1 for another text. */
static int read_point(char *line, wf_nn_schedule_point *point)
{
    long long step;
    int used = 0;

    line[strcspn(line, "#\r\n")] = 0;
    if (line[strspn(line, " \t")] == 0)
        return 0;
    if (sscanf(line, " %lld , %lf %n", &step, &point->lr, &used) != 2 || line[used])
        return -1;
    point->step = step;
    return 1;
}

static wf_status append(wf_nn_schedule *s, const wf_nn_schedule_point *point, wf_error *error)
{
    wf_nn_schedule_point *grown =
        realloc((void *)(uintptr_t)s->point, ((size_t)s->points + 1) * sizeof *grown);

    if (!grown)
        return wf_error_set(error, WF_ENOMEM, "no memory for the points of a schedule");
    grown[s->points++] = *point;
    s->point = grown;
    return WF_OK;
}

static wf_status read_points(FILE *file, const char *path, wf_nn_schedule *s, wf_error *error)
{
    char line[256];

    for (int64_t number = 1; error->code == WF_OK && fgets(line, sizeof line, file); number++) {
        wf_nn_schedule_point point = {0, 0};
        int found = read_point(line, &point);

        if (found < 0 || (found && s->points && point.step <= s->point[s->points - 1].step))
            return wf_error_set(error, WF_EDATA,
                                "%s, line %" PRId64 ": '%.60s' is no STEP,RATE with a step "
                                "after the last one's, as 1000,3e-4",
                                path, number, line);
        if (found)
            append(s, &point, error);
    }
    if (error->code == WF_OK && !s->points)
        return wf_error_set(error, WF_EDATA, "%s has no points STEP,RATE", path);
    return error->code;
}

wf_status wf_nn_schedule_read(const char *word, wf_nn_schedule *s, wf_error *error)
{
    FILE *file;

    *error = (wf_error){WF_OK, ""};
    for (int kind = 0; kind < WF_NN_SCHEDULES; kind++)
        if (strcmp(word, wf_nn_schedule_name((wf_nn_schedule_kind)kind)) == 0) {
            s->kind = (wf_nn_schedule_kind)kind;
            return WF_OK;
        }
    s->kind = WF_NN_POINTS;
    s->point = NULL;
    s->points = 0;
    file = fopen(word, "re");
    if (!file)
        return wf_error_set(error, WF_EIO,
                            "a schedule %s: it is none of cosine, constant, linear, wsd and "
                            "inverse-sqrt, and no file of STEP,RATE that can be read: %s",
                            word, strerror(errno));
    if (read_points(file, word, s, error) != WF_OK)
        wf_nn_schedule_free(s);
    fclose(file);
    return error->code;
}

void wf_nn_schedule_free(wf_nn_schedule *s)
{
    free((void *)(uintptr_t)s->point);
    s->point = NULL;
    s->points = 0;
}
