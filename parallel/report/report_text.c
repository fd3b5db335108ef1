/* parallel/report/report_text.c - a step's report as text; see layout.h. */
#include "parallel/report/layout.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

char *wf_size_text(char text[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;

    while (bytes >= 1024 && unit < 5) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%.*f %s", unit ? 2 : 0, bytes, units[unit]);
    return text;
}

char *wf_moment_text(char *text, size_t size, const wf_memory_report *memory)
{
    snprintf(text, size, "%s%s%s", memory->phase, *memory->module ? " of " : "",
             memory->module);
    return text;
}

double wf_par_bytes_per_parameter(const wf_par_report *r, wf_memory_kind kind)
{
    return r->share ? (double)r->memory.most[kind] / (double)r->share : 0;
}

void wf_par_print_traffic(FILE *out, const wf_par_report *r)
{
    fprintf(out, "  %-10s %6s %-16s %10s %18s %18s %18s\n", "axis", "ranks", "collective",
            "per step", "bytes received", "of parameters", "exposed");
    for (int i = 0; i < r->n_traffic; i++)
        for (int k = 0; k < WF_COLLECTIVE_KINDS; k++) {
            const wf_par_traffic *t = &r->traffic[i];

            if (t->ranks > 1 && t->counters.of[k].calls)
                fprintf(out,
                        "  %-10s %6d %-16s %10" PRId64 " %18" PRId64 " %18" PRId64 " %18" PRId64
                        "\n",
                        t->axis, t->ranks, wf_collective_name((wf_collective_kind)k),
                        t->counters.of[k].calls, t->counters.of[k].bytes,
                        t->parameters.of[k].bytes, t->counters.of[k].exposed);
        }
}

void wf_par_print_memory(FILE *out, const wf_memory_report *m)
{
    char a[32], b[32], moment[WF_MEMORY_PHASE + WF_MEMORY_MODULE + 8];

    fprintf(out, "  %-24s %14s %14s\n", "memory", "at the peak", "at most");
    for (int k = 0; k < WF_MEMORY_KINDS; k++)
        fprintf(out, "  %-24s %14s %14s\n", wf_memory_kind_name((wf_memory_kind)k),
                wf_size_text(a, (double)m->at_peak[k]), wf_size_text(b, (double)m->most[k]));
    fprintf(out, "  %-24s %14s in %s\n", "peak", wf_size_text(a, (double)m->peak),
            wf_moment_text(moment, sizeof moment, m));
}

bool wf_size_parse(const char *text, int64_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},         {"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                 {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},     {"MB", 1e6},
                 {"GB", 1e9},     {"TB", 1e12}};
    size_t digits = strspn(text, ".0123456789");
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; digits && end == text + digits && i < sizeof units / sizeof *units;
         i++) {
        if (strcmp(end, units[i].name) || value * units[i].bytes > 0x1p53)
            continue;
        *bytes = (int64_t)(value * units[i].bytes);
        return true;
    }
    return false;
}
