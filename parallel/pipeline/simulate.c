/* parallel/pipeline/simulate.c - a table in time: makespan, bubbles, live activations. */
#include "parallel/pipeline/walk_internal.h"
#include <stdlib.h>

static wf_status open_timing(const wf_pipe_table *t, wf_pipe_timing *timing, wf_error *error)
{
    size_t ranks = (size_t)t->shape.ranks;
    bool enough;

    *timing = (wf_pipe_timing){.rank = calloc(ranks, sizeof *timing->rank),
                               .start = calloc(2 * ranks, sizeof *timing->start)};
    enough = timing->rank && timing->start;
    timing->end = enough ? timing->start + ranks : NULL;
    for (size_t r = 0; enough && r < ranks; r++) {
        size_t n = (size_t)t->row[r].n;

        timing->start[r] = malloc((2 * n + 1) * sizeof **timing->start);
        enough = timing->start[r] != NULL;
        timing->end[r] = enough ? timing->start[r] + n : NULL;
        timing->rows = (int)r + 1;
    }
    return enough ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory to simulate a schedule");
}

void wf_pipe_timing_free(wf_pipe_timing *timing)
{
    for (int r = 0; timing->start && r < timing->rows; r++)
        free(timing->start[r]);
    free(timing->start);
    free(timing->rank);
    *timing = (wf_pipe_timing){0};
}

int wf_pipe_peak(const wf_pipe_row *row)
{
    int live = 0, peak = 0;

    for (int64_t i = 0; i < row->n; i++) {
        const wf_pipe_action *a = &row->action[i];

        if (a->kind == WF_PIPE_F)
            live++;
        else if (a->kind == WF_PIPE_W || a->kind == WF_PIPE_B)
            live -= a->last - a->micro + 1;
        peak = live > peak ? live : peak;
    }
    return peak;
}

static void measure_rank(const wf_pipe_row *row, const int64_t *start, const int64_t *end,
                         wf_pipe_span *span)
{
    int64_t until = INT64_MIN;

    *span = (wf_pipe_span){.peak = wf_pipe_peak(row)};
    for (int64_t i = 0; i < row->n; i++) {
        if (wf_pipe_kind_table[row->action[i].kind].derived)
            continue;
        if (until == INT64_MIN)
            span->begin = start[i];
        /* Both actions of a block have its time. */
        if (start[i] >= until)
            span->busy += end[i] - start[i];
        span->end = until = end[i];
    }
}

static void measure(const wf_pipe_table *t, wf_pipe_timing *timing)
{
    for (int r = 0; r < t->shape.ranks; r++) {
        wf_pipe_span *rank = &timing->rank[r];
        int64_t span, idle;

        measure_rank(&t->row[r], timing->start[r], timing->end[r], rank);
        span = rank->end - rank->begin;
        idle = span - rank->busy;
        if (rank->end > timing->makespan)
            timing->makespan = rank->end;
        timing->idle -= rank->busy;
        if (!timing->span ||
            (double)idle * (double)timing->span > (double)timing->span_idle * (double)span) {
            timing->span_idle = idle;
            timing->span = span;
        }
    }
    timing->idle += timing->makespan * t->shape.ranks;
}

wf_status wf_pipe_simulate(const wf_pipe_table *table, const wf_pipe_costs *costs,
                           wf_pipe_timing *timing, wf_error *error)
{
    wf_status status = open_timing(table, timing, error);

    if (status == WF_OK)
        status = wf_pipe_walk_run(table, costs, timing, error);
    if (status == WF_OK)
        measure(table, timing);
    else
        wf_pipe_timing_free(timing);
    return status;
}
