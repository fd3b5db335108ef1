/* parallel/plan/advice_text.c - advice as lines, as a phrase of an error, and as JSON. */
#include "parallel/formats/json_number.h"
#include "parallel/report/layout.h"
#include "parallel/plan/advice_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <jansson.h>

enum { IN_A_PHRASE = 3 };

size_t wf_plan_advice_share(char *text, size_t size, const char *what, double before,
                            double after)
{
    if (before <= 0)
        return after > 0 ? (size_t)snprintf(text, size, "%s where there was none, ", what) : 0;
    return (size_t)snprintf(text, size, "%s %+.0f %%, ", what,
                            100 * (after - before) / before + 0.0);
}

/* The fastest first, where there are times. */
static int by_time(const void *a, const void *b)
{
    const wf_plan_advice_line *x = a, *y = b;

    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

void wf_plan_advice_sort(wf_plan_advice *advice)
{
    qsort(advice->line, (size_t)advice->n, sizeof *advice->line, by_time);
}

static void print_line(FILE *out, const wf_plan_advice_line *line)
{
    char peak[32];

    fprintf(out, "  %12s  %s: %s\n", wf_size_text(peak, line->peak), line->flags, line->cost);
}

void wf_plan_advice_print(FILE *out, const wf_plan_advice *a,
                          const wf_plan_advice_limits *limits)
{
    if (a->n)
        fprintf(out,
                "%s, the cheapest first (FLOPs and traffic of a rank beside this plan's):\n",
                a->together ? "no single flag is enough that keeps the numbers; these fit"
                            : "what would fit, with the peak");
    for (int i = 0; i < a->n; i++)
        print_line(out, &a->line[i]);
    if (!a->n && *a->smallest.flags) {
        fprintf(out, "nothing fits, of %d plans; all that saves memory together takes:\n",
                a->planned);
        print_line(out, &a->smallest);
    } else if (!a->n)
        fprintf(out, "nothing fits, of %d plans: no flag saves memory here\n", a->planned);
    if (a->stopped)
        fprintf(out, "the search ended after %.0f s and %d plans: there may be more\n",
                limits->seconds, a->planned);
    fputc('\n', out);
}

void wf_plan_advice_phrase(char *text, size_t size, const wf_plan_advice *a,
                           const wf_plan_advice_limits *limits)
{
    char room[32], peak[32];
    size_t used = 0;

    wf_size_text(room, limits->room);
    *text = 0;
    for (int i = 0; i < a->n && i < IN_A_PHRASE && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s takes %s (%s)",
                                 i ? ", " : "what fits, the cheapest first: ", a->line[i].flags,
                                 wf_size_text(peak, a->line[i].peak), a->line[i].cost);
    if (!a->n && *a->smallest.flags)
        used += (size_t)snprintf(
            text, size,
            "none of %d changes that were planned fits; the smallest is %s "
            "with %s",
            a->planned, a->smallest.flags, wf_size_text(peak, a->smallest.peak));
    if ((!a->n || a->stopped) && used < size)
        snprintf(text + used, size - used,
                 "%s.plan with .device_memory %.0f looks further, on more ranks too",
                 used ? "; " : "", limits->room > 0 ? limits->room : 0);
}

json_t *wf_plan_advice_json(const wf_plan_advice *a)
{
    json_t *list = json_array();

    for (int i = 0; list && i < a->n; i++) {
        const wf_plan_advice_line *line = &a->line[i];

        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:I, s:o?, s:o?, s:o?}", "flags",
                                        line->flags, "cost", line->cost, "ranks",
                                        (json_int_t)line->ranks, "peak", (json_int_t)line->peak,
                                        "flops", wf_json_number("flops", line->flops),
                                        "traffic", wf_json_number("traffic", line->traffic),
                                        "seconds", wf_json_number("seconds", line->seconds)));
    }
    return list;
}
