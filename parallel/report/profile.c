/* parallel/report/profile.c - see the header. */
#include "parallel/report/profile.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE = 96 };

/* All calls of an op in modules that are alike. */
typedef struct row {
    const char *name;
    char place[PLACE];
    int64_t calls, time, bytes;
    double flops;
} row;

typedef struct table {
    row *row;
    int64_t n, room;
} table;

/* Writes a path with * for names that are numbers. */
static void generalise(const char *path, char place[PLACE])
{
    size_t used = 0;

    for (const char *at = path ? path : ""; *at && used < PLACE - 2;) {
        size_t n = strcspn(at, "."), digits = strspn(at, "0123456789");

        if (used)
            place[used++] = '.';
        if (n && digits == n) {
            place[used++] = '*';
        } else {
            size_t most = n < PLACE - 1 - used ? n : PLACE - 1 - used;

            memcpy(place + used, at, most);
            used += most;
        }
        at += n + (at[n] == '.');
    }
    place[used] = 0;
}

static row *row_of(table *t, const wf_trace_event *e)
{
    char place[PLACE];
    row *grown;

    generalise(e->place, place);
    for (int64_t i = 0; i < t->n; i++)
        if (strcmp(t->row[i].name, e->name) == 0 && strcmp(t->row[i].place, place) == 0)
            return &t->row[i];
    if (t->n == t->room) {
        grown = realloc(t->row, (size_t)(2 * t->room + 64) * sizeof *grown);
        if (!grown)
            return NULL;
        t->row = grown;
        t->room = 2 * t->room + 64;
    }
    t->row[t->n] = (row){.name = e->name};
    memcpy(t->row[t->n].place, place, sizeof place);
    return &t->row[t->n++];
}

static void add(row *r, const row *from)
{
    r->calls += from->calls;
    r->time += from->time;
    r->bytes += from->bytes;
    r->flops += from->flops;
}

static int by_time(const void *a, const void *b)
{
    const row *x = a, *y = b;

    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return strcmp(x->name, y->name) ? strcmp(x->name, y->name) : strcmp(x->place, y->place);
}

wf_profile_sums wf_profile_sum(const wf_trace *trace, int64_t steps)
{
    wf_profile_sums sums = {.steps = steps};

    for (int64_t i = 0; i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind == WF_TRACE_OP) {
            sums.ops += e->end - e->start;
            sums.flops += e->flops;
        } else if (e->kind == WF_TRACE_WAIT) {
            sums.waits += e->end - e->start;
        }
    }
    return sums;
}

static double share_of(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static void print_row(FILE *out, const row *r, int64_t steps, double peak)
{
    double seconds = (double)r->time * 1e-9;

    fprintf(out, "  %-22s %-30s %8" PRId64 " %10.3f %6.1f %%", r->name, r->place, r->calls,
            (double)r->time / 1e6, share_of(r->time, steps));
    if (r->calls && r->flops > 0 && seconds > 0)
        fprintf(out, " %10.2f", r->flops / seconds / 1e9);
    else
        fprintf(out, " %10s", "-");
    if (r->calls && seconds > 0)
        fprintf(out, " %8.2f", (double)r->bytes / seconds / 1e9);
    if (peak > 0 && r->flops > 0 && seconds > 0)
        fprintf(out, " %6.1f %%", 100 * r->flops / seconds / peak);
    fputc('\n', out);
}

static void print_table(FILE *out, table *t, const wf_profile_sums *sums, double peak, int rows)
{
    row others = {.name = "other ops"};
    const row all = {"all ops", "", 0, sums->ops, 0, sums->flops};
    const row waits = {.name = "waits for others", .time = sums->waits};
    const row rest = {.name = "neither", .time = sums->steps - sums->ops - sums->waits};

    fprintf(out, "  %-22s %-30s %8s %10s %8s %10s %8s%s\n", "op", "module", "times", "ms",
            "of step", "GFLOP/s", "GB/s", peak > 0 ? "  of peak" : "");
    if (t->n)
        qsort(t->row, (size_t)t->n, sizeof *t->row, by_time);
    for (int64_t i = 0; i < t->n; i++)
        if (i < rows)
            print_row(out, &t->row[i], sums->steps, peak);
        else
            add(&others, &t->row[i]);
    if (others.calls)
        print_row(out, &others, sums->steps, peak);
    print_row(out, &all, sums->steps, peak);
    print_row(out, &waits, sums->steps, peak);
    print_row(out, &rest, sums->steps, peak);
}

wf_status wf_profile_print(FILE *out, const wf_trace *trace, int64_t steps, double peak,
                           int rows, wf_error *error)
{
    const wf_profile_sums sums = wf_profile_sum(trace, steps);
    table t = {NULL, 0, 0};
    bool good = true;

    for (int64_t i = 0; good && i < wf_trace_count(trace); i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);
        row *r = e->kind == WF_TRACE_OP ? row_of(&t, e) : NULL;

        good = r || e->kind != WF_TRACE_OP;
        if (r)
            add(r, &(row){.calls = 1,
                          .time = e->end - e->start,
                          .bytes = e->bytes,
                          .flops = e->flops});
    }
    if (good)
        print_table(out, &t, &sums, peak, rows);
    free(t.row);
    return good ? WF_OK
                : wf_error_set(error, WF_ENOMEM, "no memory for a table of %lld ops",
                               (long long)t.n);
}

void wf_profile_print_ranks(FILE *out, const wf_profile_sums *sums, int ranks)
{
    wf_profile_sums all = {0};
    int computes = 0, waits = 0;

    for (int r = 0; r < ranks; r++) {
        all.steps += sums[r].steps;
        all.ops += sums[r].ops;
        all.waits += sums[r].waits;
        all.flops += sums[r].flops;
        computes = sums[r].ops > sums[computes].ops ? r : computes;
        waits = sums[r].waits > sums[waits].waits ? r : waits;
    }
    fprintf(
        out,
        "  over %d ranks: ops %.1f %% of the steps' time, waits %.1f %%; most in ops: rank %d, "
        "%.3f ms; in waits: rank %d, %.3f ms\n",
        ranks, share_of(all.ops, all.steps), share_of(all.waits, all.steps), computes,
        (double)sums[computes].ops / 1e6, waits, (double)sums[waits].waits / 1e6);
}
