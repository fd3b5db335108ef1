/* parallel/check/compare.c - error, cosine and ratio of two tensors; the fit of one that
   differs, by one factor or two. */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <string.h>

wf_check_sums wf_check_sum(const float *x, const float *g, int64_t n)
{
    wf_check_sums s = {0, 0, 0};

    for (int64_t i = 0; i < n; i++) {
        s.xx += (double)x[i] * (double)x[i];
        s.gg += (double)g[i] * (double)g[i];
        s.xg += (double)x[i] * (double)g[i];
    }
    return s;
}

double wf_check_distance(const float *x, const float *g, double s, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - s * (double)g[i];

        sum += d * d;
    }
    return sqrt(sum);
}

double wf_check_norm(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

void wf_check_compare(wf_check_tensor *t, double tolerance)
{
    const wf_check_sums s = wf_check_sum(t->theirs, t->reference, t->count);
    const double x = sqrt(s.xx), g = sqrt(s.gg);

    t->error = wf_check_distance(t->theirs, t->reference, 1, t->count) / (g + t->floor);
    t->cosine = x > 0 && g > 0 ? s.xg / x / g : x == g ? 1 : 0;
    t->ratio = g > 0 ? x / g : x > 0 ? INFINITY : 1;
    t->fit.kind = !isfinite(s.xx)         ? WF_CHECK_NOT_FINITE
                  : t->error <= tolerance ? WF_CHECK_EQUAL
                                          : WF_CHECK_UNKNOWN;
}

/* Returns the norm that an error is relative to: a gradient that is next to nothing beside the
   others has to fit by itself. */
static double scale_of(double g, double floor)
{
    return g < floor ? g : g + floor;
}

static bool fit_factor(wf_check_tensor *t, double tolerance)
{
    const wf_check_sums s = wf_check_sum(t->theirs, t->reference, t->count);
    const double g = sqrt(s.gg), f = s.gg > 0 ? s.xg / s.gg : 0;

    if (sqrt(s.xx) <= 1e-6 * g) {
        t->fit.kind = WF_CHECK_ZERO;
        snprintf(t->fit.text, sizeof t->fit.text, "zero");
        return true;
    }
    if (f == 0 || wf_check_distance(t->theirs, t->reference, f, t->count) >
                      tolerance * fabs(f) * scale_of(g, t->floor))
        return false;
    t->fit = (wf_check_fit){.kind = WF_CHECK_FACTOR, .factor = f};
    snprintf(t->fit.text, sizeof t->fit.text, "times %.5g", f);
    return true;
}

/* Solves x = a p + b q by the normal equations; *rest is the residual |x - a p - b q|. */
static bool solve_two(const float *x, const float *p, const float *q, int64_t n, double *a,
                      double *b, double *rest)
{
    double pp = 0, qq = 0, pq = 0, xp = 0, xq = 0, d, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        pp += (double)p[i] * (double)p[i];
        qq += (double)q[i] * (double)q[i];
        pq += (double)p[i] * (double)q[i];
        xp += (double)x[i] * (double)p[i];
        xq += (double)x[i] * (double)q[i];
    }
    d = pp * qq - pq * pq;
    if (!(d > 1e-9 * pp * qq))
        return false;
    *a = (xp * qq - xq * pq) / d;
    *b = (xq * pp - xp * pq) / d;
    for (int64_t i = 0; i < n; i++) {
        d = (double)x[i] - *a * (double)p[i] - *b * (double)q[i];
        sum += d * d;
    }
    *rest = sqrt(sum);
    return true;
}

/* Fits a multiple of the weight beside the gradient; it has to stand out of rounding. */
static bool fit_decay(wf_check_tensor *t, double tolerance)
{
    double a, b, rest;
    const double x = wf_check_norm(t->theirs, t->count);

    if (!solve_two(t->theirs, t->reference, t->weight, t->count, &a, &b, &rest) ||
        rest > tolerance * (x + t->floor) ||
        fabs(b) * wf_check_norm(t->weight, t->count) < 3 * tolerance * x || fabs(a) < 0.01)
        return false;
    t->fit = (wf_check_fit){.kind = WF_CHECK_DECAYED, .factor = a, .second = b};
    snprintf(t->fit.text, sizeof t->fit.text, "times %.4g, plus %.4g x weight", a, b);
    return true;
}

/* The two uses of a tied table, each with a factor. */
static bool fit_tied(wf_check_tensor *t, double tolerance)
{
    double a, b, rest;

    if (!t->head)
        return false;
    for (int64_t i = 0; i < t->count; i++) /* the embedding's part, for a while */
        t->reference[i] -= t->head[i];
    if (!solve_two(t->theirs, t->reference, t->head, t->count, &a, &b, &rest))
        rest = INFINITY;
    for (int64_t i = 0; i < t->count; i++)
        t->reference[i] += t->head[i];
    if (rest > tolerance * (wf_check_norm(t->theirs, t->count) + t->floor))
        return false;
    t->fit = (wf_check_fit){.kind = WF_CHECK_TIED, .factor = a, .second = b};
    snprintf(t->fit.text, sizeof t->fit.text, "embedding's part times %.4g, head's %.4g", a, b);
    return true;
}

static bool fit_transposed(wf_check_tensor *t, double tolerance)
{
    const int64_t n = t->rows;
    double sum = 0;

    if (t->ndim != 2 || n != t->columns)
        return false;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            const double d = (double)t->theirs[i * n + k] - (double)t->reference[k * n + i];

            sum += d * d;
        }
    if (sqrt(sum) > tolerance * (wf_check_norm(t->reference, t->count) + t->floor))
        return false;
    t->fit.kind = WF_CHECK_TRANSPOSED;
    snprintf(t->fit.text, sizeof t->fit.text, "transposed");
    return true;
}

static bool fit_other(wf_check_tensor *t, const wf_check_reference *all, double tolerance)
{
    for (int64_t i = 0; i < all->count; i++) {
        const wf_check_tensor *u = &all->tensor[i];

        if (u == t || u->rows != t->rows || u->columns != t->columns ||
            wf_check_distance(t->theirs, u->reference, 1, t->count) >
                tolerance * scale_of(wf_check_norm(u->reference, u->count), u->floor))
            continue;
        t->fit = (wf_check_fit){.kind = WF_CHECK_OTHER, .other = i};
        snprintf(t->fit.text, sizeof t->fit.text, "is that of %.120s", u->name);
        return true;
    }
    return false;
}

void wf_check_find_fit(wf_check_tensor *t, const wf_check_reference *all, double tolerance)
{
    if (t->fit.kind == WF_CHECK_NOT_FINITE) {
        snprintf(t->fit.text, sizeof t->fit.text, "not finite");
        return;
    }
    if (fit_factor(t, tolerance) || fit_tied(t, tolerance) ||
        wf_check_fit_lines(t, tolerance) || fit_transposed(t, tolerance) ||
        fit_other(t, all, tolerance) || wf_check_fit_order(t, tolerance) ||
        fit_decay(t, tolerance))
        return;
    t->fit.kind = t->cosine > 0.999 && t->error < 0.05 ? WF_CHECK_ROUNDED : WF_CHECK_UNKNOWN;
    if (t->fit.kind == WF_CHECK_ROUNDED)
        snprintf(t->fit.text, sizeof t->fit.text, "nearly right");
}
