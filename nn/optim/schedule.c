/* nn/optim/schedule.c - learning-rate schedules. */
#include "nn/optim/optimizer.h"
#include "core/numerics/math.h"
#include <math.h>

static bool is_rate(double lr)
{
    return lr >= 0 && isfinite((float)lr) && (lr == 0) == ((float)lr == 0);
}

wf_status wf_nn_schedule_check(wf_context *ctx, const wf_nn_schedule *s)
{
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
    return wf_context_status(ctx);
}

float wf_nn_schedule_at(const wf_nn_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double at;

    if (step <= s->warmup)
        return (float)(s->lr * (double)step / (double)s->warmup);
    if (step >= s->steps)
        return (float)s->min_lr;
    at = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return (float)(s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + wf_cos(pi * at)));
}
