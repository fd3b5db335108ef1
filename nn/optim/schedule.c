/* nn/optim/schedule.c - see the header. */
#include "nn/optim/schedule.h"
#include "core/numerics/math.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_rate(double lr)
{
    return lr >= 0 && isfinite((float)lr) && (lr == 0) == ((float)lr == 0);
}

/* ---- rows: the rate of a step after the warm-up, before the end ---- */

static double between(const wf_nn_schedule *s, int64_t step)
{
    return (double)(step - s->warmup) / (double)(s->steps - s->warmup);
}

static double cosine(const wf_nn_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;

    if (step >= s->steps)
        return s->min_lr;
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + wf_cosd(pi * between(s, step)));
}

static double constant(const wf_nn_schedule *s, int64_t step)
{
    (void)step;
    return s->lr;
}

static double linear(const wf_nn_schedule *s, int64_t step)
{
    if (step >= s->steps)
        return s->min_lr;
    return s->lr + (s->min_lr - s->lr) * between(s, step);
}

static int64_t decay_of(const wf_nn_schedule *s)
{
    return s->decay ? s->decay : s->steps / 10;
}

static double wsd(const wf_nn_schedule *s, int64_t step)
{
    int64_t decay = decay_of(s), left = s->steps - step;

    if (left <= 0)
        return s->min_lr;
    if (left >= decay)
        return s->lr;
    return s->min_lr + (s->lr - s->min_lr) * (double)left / (double)decay;
}

static double inverse_sqrt(const wf_nn_schedule *s, int64_t step)
{
    double warmup = s->warmup > 1 ? (double)s->warmup : 1;
    double lr = s->lr * sqrt(warmup / (double)(step > 0 ? step : 1));

    return lr > s->min_lr ? lr : s->min_lr;
}

static const struct {
    const char *name;
    double (*at)(const wf_nn_schedule *s, int64_t step);
} rows[WF_NN_SCHEDULES + 1] = {
#define SCHEDULE(kind, name, at) [kind] = {name, at},
#include "nn/optim/schedules.def"
    [WF_NN_POINTS] = {"points", NULL}};

/* ---- points ---- */

static double at_points(const wf_nn_schedule *s, int64_t step)
{
    const wf_nn_schedule_point *p = s->point;
    int64_t i = 0;

    while (i < s->points && p[i].step < step)
        i++;
    if (i == 0)
        return p[0].lr;
    if (i == s->points)
        return p[i - 1].lr;
    return p[i - 1].lr + (p[i].lr - p[i - 1].lr) * (double)(step - p[i - 1].step) /
                             (double)(p[i].step - p[i - 1].step);
}

static wf_status check_points(wf_context *ctx, const wf_nn_schedule *s)
{
    if (s->points < 1 || !s->point)
        return wf_fail(ctx, WF_EINVAL, "a schedule of points without points");
    for (int64_t i = 0; i < s->points; i++) {
        if (!is_rate(s->point[i].lr))
            return wf_fail(ctx, WF_EINVAL,
                           "a schedule with rate %g at step %" PRId64
                           ": rates are finite as floats and at least 0",
                           s->point[i].lr, s->point[i].step);
        if (i && s->point[i].step <= s->point[i - 1].step)
            return wf_fail(ctx, WF_EINVAL,
                           "a schedule with step %" PRId64 " after step %" PRId64
                           ": steps of its points ascend",
                           s->point[i].step, s->point[i - 1].step);
    }
    return wf_context_status(ctx);
}

/* ---- a schedule ---- */

wf_status wf_nn_schedule_check(wf_context *ctx, const wf_nn_schedule *s)
{
    if ((unsigned)s->kind > WF_NN_POINTS)
        return wf_fail(ctx, WF_EINVAL,
                       "a schedule of kind %d: it is none of wf_nn_schedule_kind, 0 to %d",
                       (int)s->kind, (int)WF_NN_POINTS);
    if (s->kind == WF_NN_POINTS)
        return check_points(ctx, s);
    if (!is_rate(s->lr) || !is_rate(s->min_lr))
        return wf_fail(ctx, WF_EINVAL,
                       "a schedule with learning rate %g and least rate %g: both are finite as "
                       "floats and at least 0",
                       s->lr, s->min_lr);
    if (s->warmup < 0 || s->steps < 0 || s->warmup > s->steps)
        return wf_fail(
            ctx, WF_EINVAL,
            "a schedule of %lld steps with %lld of warm-up: neither is negative, and "
            "warm-up is not longer than the whole",
            (long long)s->steps, (long long)s->warmup);
    if (s->decay < 0 || s->decay > s->steps - s->warmup || (s->decay && s->kind != WF_NN_WSD))
        return wf_fail(ctx, WF_EINVAL,
                       "a schedule %s of %lld steps with %lld of warm-up and %lld of decay: "
                       "decay is of wsd alone, and with the warm-up not longer than the whole",
                       rows[s->kind].name, (long long)s->steps, (long long)s->warmup,
                       (long long)s->decay);
    return wf_context_status(ctx);
}

float wf_nn_schedule_at(const wf_nn_schedule *s, int64_t step)
{
    if (s->kind == WF_NN_POINTS)
        return (float)at_points(s, step);
    if (step <= s->warmup)
        return (float)(s->lr * (double)step / (double)s->warmup);
    return (float)rows[s->kind].at(s, step);
}

const char *wf_nn_schedule_name(wf_nn_schedule_kind kind)
{
    return (unsigned)kind <= WF_NN_POINTS ? rows[kind].name : NULL;
}
