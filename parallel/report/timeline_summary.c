/* parallel/report/timeline_summary.c - what transfers of a trace took, in lines; see
   timeline.h. */
#include "parallel/report/timeline.h"
#include "mesh/comm/collective.h"
#include "mesh/array/mesh.h"
#include <inttypes.h>
#include <string.h>

/* axes and the world; and results that one of several ranks computes */
enum { MOST_LINES = (WF_MAX_AXES + 1) * WF_COLLECTIVE_KINDS + 1 };

/* The time of one kind of transfers, over all its events, in nanoseconds. */
typedef struct line {
    const char *axis, *name;
    int64_t count, total, hidden, waited;
} line;

/* Returns the line of an event's axis and kind, a new one for the first of its kind. */
static line *line_of(line *lines, int *n, const wf_trace_event *e)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(lines[i].axis, e->location) == 0 && strcmp(lines[i].name, e->name) == 0)
            return &lines[i];
    lines[*n] = (line){.axis = e->location, .name = e->name};
    return &lines[(*n)++];
}

void wf_timeline_summary(FILE *out, const wf_trace *trace)
{
    line lines[MOST_LINES];
    int n = 0;

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);
        line *l;

        if (e->kind != WF_TRACE_TRANSFER && e->kind != WF_TRACE_WAIT)
            continue;
        l = line_of(lines, &n, e);
        if (e->kind == WF_TRACE_WAIT) {
            l->waited += e->end - e->start;
            continue;
        }
        l->count++;
        l->total += e->end - e->start;
        l->hidden += wf_trace_hidden(trace, i);
    }
    fprintf(out, "  %-10s %-16s %8s %12s %16s %12s\n", "axis", "collective", "times", "ms",
            "overlapped", "waited ms");
    for (int i = 0; i < n; i++) {
        char hidden[24] = "-"; /* a part of no time is no number */

        if (lines[i].total)
            snprintf(hidden, sizeof hidden, "%.0f %%",
                     100.0 * (double)lines[i].hidden / (double)lines[i].total);
        fprintf(out, "  %-10s %-16s %8" PRId64 " %12.3f %16s %12.3f\n", lines[i].axis,
                lines[i].name, lines[i].count, (double)lines[i].total / 1e6, hidden,
                (double)lines[i].waited / 1e6);
    }
}
