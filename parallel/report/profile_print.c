/* parallel/report/profile_print.c - a profile as a table; see profile.h. */
#include "parallel/report/profile_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The table that is printed. */
typedef struct table {
    FILE *out;
    const wf_profile *p;
    const wf_profile_peak *peak; /* NULL: no column */
} table;

static int by_time(const void *a, const void *b)
{
    const wf_profile_row *x = a, *y = b;

    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return strcmp(x->name, y->name) ? strcmp(x->name, y->name) : strcmp(x->module, y->module);
}

static double share_of(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* Prints the rates of a row, of ops alone. */
static void print_rates(const table *t, const wf_profile_row *r)
{
    double seconds = (double)r->time * 1e-9, best = 0;
    bool op = r->kind == WF_TRACE_OP && r->calls && seconds > 0;

    if (op && r->flops > 0)
        fprintf(t->out, " %10.2f", r->flops / seconds / 1e9);
    else
        fprintf(t->out, " %10s", "-");
    if (op)
        fprintf(t->out, " %8.2f", (double)r->bytes / seconds / 1e9);
    else
        fprintf(t->out, " %8s", "-");
    if (!t->peak)
        return;
    if (op && r->flops > 0 && t->peak->flops > 0)
        best = r->flops / t->peak->flops;
    else if (op && r->bytes > 0 && t->peak->bytes > 0)
        best = (double)r->bytes / t->peak->bytes;
    if (best > 0)
        fprintf(t->out, " %6.1f %%", 100 * best / seconds);
    else
        fprintf(t->out, " %8s", "-");
}

static void print_row(const table *t, const wf_profile_row *r)
{
    int ranks = t->p->ranks;

    fprintf(t->out, "  %-22s %-30s %8" PRId64 " %10.3f %6.1f %%", r->name, r->module,
            r->calls / ranks, (double)r->time / ranks / 1e6, share_of(r->time, t->p->steps));
    print_rates(t, r);
    if (ranks > 1 && r->most)
        fprintf(t->out, " %10.3f of %d", (double)r->most / 1e6, r->most_rank);
    fputc('\n', t->out);
}

static void print_sum(const table *t, const char *name, int64_t time)
{
    fprintf(t->out, "  %-22s %-30s %8s %10.3f %6.1f %%\n", name, "", "",
            (double)time / t->p->ranks / 1e6, share_of(time, t->p->steps));
}

/* Prints how many kernels were launched, what they moved through memory, and their time. */
static void print_ops(const table *t, const wf_profile_sums *sums)
{
    const int ranks = t->p->ranks;
    char moved[32];

    snprintf(moved, sizeof moved, "%.3f GB", (double)sums->bytes / ranks / 1e9);
    fprintf(t->out, "  %-22s %-30s %8" PRId64 " %10.3f %6.1f %%\n", "all ops", moved,
            sums->calls / ranks, (double)sums->ops / ranks / 1e6,
            share_of(sums->ops, t->p->steps));
}

/* Prints what a rank asked of its device in a step, where that has a queue. */
static void print_device(const table *t, const wf_profile_sums *sums)
{
    const double steps = sums->count ? (double)sums->count : 1;

    if (sums->launches)
        fprintf(t->out,
                "  device, in a step of a rank: %.1f launches, %.1f synchronizations, %.1f "
                "waits for a copy behind which more was queued\n",
                (double)sums->launches / steps, (double)sums->syncs / steps,
                (double)sums->late_waits / steps);
}

void wf_profile_print(FILE *out, wf_profile *p, const wf_profile_peak *peak, int rows)
{
    const wf_profile_sums sums = wf_profile_sum(p);
    const table t = {out, p, peak};
    wf_profile_row others = {.name = "others", .kind = WF_TRACE_PHASE};

    fprintf(out, "  %-22s %-30s %8s %10s %8s %10s %8s%s%s\n", "op", "module", "times", "ms",
            "of step", "GFLOP/s", "GB/s", peak ? "  of peak" : "",
            p->ranks > 1 ? "  most ms of rank" : "");
    if (p->n)
        qsort(p->row, (size_t)p->n, sizeof *p->row, by_time);
    memset(p->cache, 0, sizeof p->cache);
    for (int64_t i = 0; i < p->n; i++) {
        if (i < rows) {
            print_row(&t, &p->row[i]);
            continue;
        }
        others.calls += p->row[i].calls;
        others.time += p->row[i].time;
    }
    if (others.calls)
        print_row(&t, &others);
    print_ops(&t, &sums);
    print_sum(&t, "all waits", sums.waits);
    print_sum(&t, "host beside ops", sums.host + sums.launch);
    print_sum(&t, "neither", sums.steps - sums.ops - sums.waits - sums.host - sums.launch);
    print_device(&t, &sums);
}
