/* parallel/report/run_line.c - see the header. */
#include "parallel/report/run_line_internal.h"
#include "parallel/train/added_loss.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* 1234567 as "1.23M": three digits and a unit. */
static const char *with_unit(char out[32], double value, double base, const char *const *units,
                             int count)
{
    int unit = 0;

    while (value >= base && unit < count - 1) {
        value /= base;
        unit++;
    }
    snprintf(out, 32, "%.*f%s", unit && value < 100 ? 1 : 0, value, units[unit]);
    return out;
}

static const char *duration(char out[32], double seconds)
{
    double whole = ceil(seconds);
    long long s;

    if (!(whole >= 0 && whole < 1e9))
        return "?";
    s = (long long)whole;
    if (s >= 3600)
        snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
    return out;
}

/* Writes a number with `decimals` decimals, or "none" for one that is none: a mean over
   nothing. */
static const char *or_none(char out[32], double value, int decimals)
{
    if (isnan(value))
        return "none";
    snprintf(out, 32, "%.*f", decimals, value);
    return out;
}

static int digits_of(int64_t n)
{
    return snprintf(NULL, 0, "%" PRId64, n);
}

void wf_run_line(char line[WF_RUN_LINE], const wf_step_log *r, int64_t steps, double mean_ms,
                 double mfu)
{
    static const char *const counts[] = {"", "k", "M", "G"};
    static const char *const bytes[] = {" B", " KiB", " MiB", " GiB", " TiB"};
    char rate[32], memory[32], left[32], loss[32], scalar[32];
    char part[32] = "";
    double seconds = (double)(steps - r->step) * mean_ms / 1e3;
    int used;

    if (!isnan(mfu))
        snprintf(part, sizeof part, "  mfu %.1f %%", 100 * mfu);
    used = snprintf(
        line, WF_RUN_LINE,
        "step %*" PRId64 "/%" PRId64 "  loss %s  norm %.3f  lr %.2e  %.0f ms  %s tok/s  %.1f "
        "model GFLOP/s%s  mem %s  eta %s",
        digits_of(steps), r->step, steps, or_none(loss, (double)r->loss, 4),
        (double)r->grad_norm, r->lr, r->ms, with_unit(rate, r->tokens_per_s, 1e3, counts, 4),
        r->model_flops_per_s / 1e9, part,
        with_unit(memory, (double)r->memory_peak, 1024, bytes, 5), duration(left, seconds));

    if (r->has_val_loss)
        used += snprintf(line + used, (size_t)(WF_RUN_LINE - used), "  val %.4f",
                         (double)r->val_loss);
    for (int i = 0; i < r->loss_count && used < WF_RUN_LINE; i++)
        used += snprintf(line + used, (size_t)(WF_RUN_LINE - used), "  %s %s",
                         r->losses[i].name, or_none(scalar, (double)r->losses[i].mean, 4));
    for (int i = 0; i < r->scalar_count && used < WF_RUN_LINE; i++)
        if (r->scalars[i].shown)
            used += snprintf(line + used, (size_t)(WF_RUN_LINE - used), "  %s %s",
                             r->scalars[i].key, or_none(scalar, r->scalars[i].value, 4));
    if (r->has_digest && used < WF_RUN_LINE)
        snprintf(line + used, (size_t)(WF_RUN_LINE - used), "  digest %016" PRIx64, r->digest);
}
