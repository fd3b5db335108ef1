/* parallel/check/lines.c - finds runs of rows or columns of a gradient with a scale of their
   own: a rank's share, a part of a fused tensor. */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_RUNS = 16 };

/* Lines of a matrix in one direction. */
typedef struct lines {
    const wf_check_tensor *t;
    bool columns;
    int64_t count, length, step, between; /* step: between lines; between: elements of one */
    double tolerance, floor;              /* a line's */
} lines;

typedef struct run {
    int64_t begin, end;
    double factor;
    bool known; /* not of lines that are next to nothing alone */
} run;

static lines lines_of(const wf_check_tensor *t, bool columns, double tolerance)
{
    const int64_t n = columns ? t->columns : t->rows, m = columns ? t->rows : t->columns;

    return (lines){.t = t,
                   .columns = columns,
                   .count = n,
                   .length = m,
                   .step = columns ? 1 : t->columns,
                   .between = columns ? t->columns : 1,
                   .tolerance = tolerance,
                   .floor = t->floor / sqrt((double)(n ? n : 1))};
}

static wf_check_sums sum_line(const lines *l, int64_t line)
{
    wf_check_sums s = {0, 0, 0};

    for (int64_t i = 0; i < l->length; i++) {
        const double x = (double)l->t->theirs[line * l->step + i * l->between];
        const double g = (double)l->t->reference[line * l->step + i * l->between];

        s.xx += x * x;
        s.gg += g * g;
        s.xg += x * g;
    }
    return s;
}

/* The factor of a line and how far it may be off; *known false: any factor will do. false: no
   factor does. */
static bool factor_of(const lines *l, int64_t line, double *factor, double *slack, bool *known)
{
    const wf_check_sums s = sum_line(l, line);
    const double g = sqrt(s.gg), x = sqrt(s.xx), near = 4 * l->tolerance * l->floor;
    double rest;

    *known = g > l->floor;
    if (!*known)
        return x <= 2 * l->floor;
    *factor = s.xg / s.gg;
    rest = s.xx - s.xg * *factor;
    rest = rest > 0 ? sqrt(rest) : 0;
    *slack =
        6 * l->tolerance * (1 + l->floor / g) * (fabs(*factor) > 0.1 ? fabs(*factor) : 0.1);
    return rest <= 4 * l->tolerance * x + near;
}

/* Runs of lines with one factor each; -1: not all lines have one, or there are too many. */
static int find_runs(const lines *l, run runs[MOST_RUNS])
{
    int n = 0;

    for (int64_t i = 0; i < l->count; i++) {
        double factor = 0, slack = 0;
        bool known;

        if (!factor_of(l, i, &factor, &slack, &known))
            return -1;
        if (n > 0 &&
            (!known || !runs[n - 1].known || fabs(factor - runs[n - 1].factor) <= slack)) {
            runs[n - 1].end = i + 1;
            if (known && !runs[n - 1].known)
                runs[n - 1].factor = factor;
            runs[n - 1].known = runs[n - 1].known || known;
            continue;
        }
        if (n == MOST_RUNS)
            return -1;
        runs[n++] = (run){i, i + 1, factor, known};
    }
    return n;
}

static void name_runs(wf_check_fit *fit, const lines *l, const run *runs, int n)
{
    size_t used = (size_t)snprintf(fit->text, sizeof fit->text, "%s",
                                   l->columns        ? "columns"
                                   : l->t->ndim == 1 ? "elements"
                                                     : "rows");

    for (int i = 0; i < n && used < sizeof fit->text - 40; i++) {
        double f = fabs(runs[i].factor) < 1e-6 ? 0 : runs[i].factor;

        if (i == 5) {
            snprintf(fit->text + used, sizeof fit->text - used, ", ..");
            break;
        }
        used += (size_t)snprintf(fit->text + used, sizeof fit->text - used,
                                 "%s %lld..%lld times %.4g", i ? "," : "",
                                 (long long)runs[i].begin, (long long)runs[i].end - 1, f);
    }
}

/* Single numbers have a factor always: of a vector runs have to be long. */
static bool believable(const lines *l, const run *runs, int n)
{
    if (n < 2)
        return false;
    for (int i = 0; i < n; i++) {
        const int64_t length = runs[i].end - runs[i].begin;

        if (l->length == 1 && (length < 4 || length * 16 < l->count))
            return false;
    }
    return l->length > 1 || l->count >= 8;
}

static bool fit_direction(wf_check_tensor *t, bool columns, double tolerance)
{
    const lines l = lines_of(t, columns, tolerance);
    run runs[MOST_RUNS];
    const int n = find_runs(&l, runs);
    int odd = 0;

    if (!believable(&l, runs, n))
        return false;
    for (int i = 0; i < n; i++) /* the run that is least like the right one */
        odd = fabs(runs[i].factor - 1) > fabs(runs[odd].factor - 1) ? i : odd;
    t->fit = (wf_check_fit){.kind = columns ? WF_CHECK_COLUMNS : WF_CHECK_ROWS,
                            .factor = runs[odd].factor,
                            .second = (double)(runs[odd].end - runs[odd].begin),
                            .parts = n};
    name_runs(&t->fit, &l, runs, n);
    return true;
}

bool wf_check_fit_lines(wf_check_tensor *t, double tolerance)
{
    return fit_direction(t, false, tolerance) ||
           (t->ndim == 2 && fit_direction(t, true, tolerance));
}
