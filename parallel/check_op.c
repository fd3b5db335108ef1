/*
 * parallel/check_op.c - is an op right? Here on one rank: gradients against differences,
 * kernels against reference loops. What layouts make of it is in parallel/check_op_layouts.c.
 */
#include "kernels/devices.h"
#include "parallel/check_op_internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static wf_context *context_over(wf_device *device, wf_error *error)
{
    const wf_context_options options = {.debug_handles = true};

    return device ? wf_context_open(device, &options, error) : NULL;
}

/* Copies the error of a context. */
static wf_status reason(wf_context *ctx, wf_error *error)
{
    return wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
}

static wf_status check_counts(const wf_op_check *c, wf_error *error)
{
    if (!c->op || !c->apply || c->n_in < 1 || c->n_in > WF_MAX_INPUTS || c->n_out < 1 ||
        c->n_out > WF_MAX_OUTPUTS)
        return wf_error_set(
            error, WF_EINVAL,
            "a check of an op needs the op, a function that applies it, 1 to %d "
            "operands and 1 to %d outputs",
            WF_MAX_INPUTS, WF_MAX_OUTPUTS);
    return WF_OK;
}

/* The weighed sum of all outputs. */
static double weighed(const wf_op_check *c, const wf_op_results *r)
{
    double sum = 0;

    for (int o = 0; o < c->n_out; o++)
        for (int64_t i = 0; !(c->constant_outputs >> o & 1) && i < r->n[o]; i++)
            sum += wf_op_weight(o, i) * r->x[o][i];
    return sum;
}

/* That sum with one element of an operand moved. */
static wf_status moved(const wf_op_run *from, int64_t element, double by, double *sum)
{
    wf_op_run run = *from;
    wf_op_results r;
    wf_status status;

    run.element = element;
    run.by = by;
    status = wf_op_run_once(&run, &r);
    *sum = status == WF_OK ? weighed(run.check, &r) : NAN;
    wf_op_results_forget(&r);
    return status;
}

/* Puts central differences of operand i where its gradient was. */
static wf_status difference(wf_context *ctx, const wf_op_check *c, int i, wf_op_results *r)
{
    const double step = 0x1p-17;
    wf_op_run run = {.check = c, .ctx = ctx, .operand = i};
    wf_status status = WF_OK;

    for (int64_t k = 0; k < r->n[WF_MAX_OUTPUTS + i] && status == WF_OK; k++) {
        double above, below;

        status = moved(&run, k, step, &above);
        if (status == WF_OK)
            status = moved(&run, k, -step, &below);
        if (status == WF_OK)
            r->x[WF_MAX_OUTPUTS + i][k] = (above - below) / (2 * step);
    }
    return status;
}

static int64_t elements(const wf_op_check_operand *o)
{
    int64_t n = 1;

    for (int d = 0; d < o->ndim; d++)
        n *= o->dim[d].size;
    return n;
}

static wf_status check_gradients(wf_context *ctx, const wf_op_check *c, const wf_op_results *r,
                                 wf_op_check_report *report, wf_error *error)
{
    const double bound = c->gradient_bound > 0 ? c->gradient_bound : 1e-6;
    wf_op_results differences = {.n = {0}};
    wf_op_run again = {.check = c, .ctx = ctx, .gradients = true};
    wf_status status = wf_op_run_once(&again, &differences);

    for (int i = 0; i < c->n_in && status == WF_OK; i++)
        if (r->x[WF_MAX_OUTPUTS + i]) {
            if (r->n[WF_MAX_OUTPUTS + i] != elements(&c->in[i])) {
                status =
                    wf_fail(ctx, WF_EINVAL,
                            "%s: the gradient of operand %d has %lld elements, the operand "
                            "%lld",
                            c->op->name, i, (long long)r->n[WF_MAX_OUTPUTS + i],
                            (long long)elements(&c->in[i]));
                break;
            }
            status = difference(ctx, c, i, &differences);
        }
    for (int i = 0; i < c->n_in && status == WF_OK; i++) {
        double off;

        if (!r->x[WF_MAX_OUTPUTS + i])
            continue;
        off = wf_op_distance(r, &differences, WF_MAX_OUTPUTS + i);
        report->gradient = fmax(report->gradient, off);
        if (!(off <= bound)) /* so that a NaN is one, too */
            status = wf_error_set(error, WF_EINVAL,
                                  "%s: the gradient of operand %d is %.1e away from finite "
                                  "differences, at most %.0e is allowed: does its backward say "
                                  "what the reference loop does?",
                                  c->op->name, i, off, bound);
    }
    wf_op_results_forget(&differences);
    return wf_context_status(ctx) == WF_OK ? status : reason(ctx, error);
}

/* Step 1; `r` gets the results of the reference. */
static wf_status check_reference(const wf_op_check *c, wf_op_results *r,
                                 wf_op_check_report *report, wf_error *error)
{
    wf_context *ctx = context_over(wf_reference_device(error), error);
    wf_op_run run = {.check = c, .ctx = ctx, .gradients = true};
    wf_status status;

    if (!ctx)
        return error->code;
    status = wf_op_run_once(&run, r) == WF_OK ? check_gradients(ctx, c, r, report, error)
                                              : reason(ctx, error);
    wf_context_close(ctx);
    return status;
}

/* Step 2; `cpu` gets the results of the CPU's kernels. */
static wf_status check_kernels(const wf_op_check *c, const wf_op_results *reference,
                               wf_op_results *cpu, wf_op_check_report *report, wf_error *error)
{
    const double bound = c->kernel_bound > 0 ? c->kernel_bound : 1e-5;
    wf_context *ctx = context_over(wf_cpu_device(1, error), error);
    wf_op_run run = {.check = c, .ctx = ctx, .gradients = true};
    wf_status status;
    char name[48];

    if (!ctx)
        return error->code;
    status = wf_op_run_once(&run, cpu) == WF_OK ? WF_OK : reason(ctx, error);
    wf_context_close(ctx);
    for (int i = 0; i < WF_CHECK_RESULTS && status == WF_OK; i++) {
        double off;

        if (!reference->x[i])
            continue;
        if (!cpu->x[i] || cpu->n[i] != reference->n[i])
            return wf_error_set(error, WF_EINVAL,
                                "%s: %s has other sizes on the CPU than by the reference",
                                c->op->name, wf_op_result_name(i, name));
        off = wf_op_distance(cpu, reference, i);
        report->kernel = fmax(report->kernel, off);
        if (!(off <= bound))
            status = wf_error_set(error, WF_EINVAL,
                                  "%s: %s by the CPU's kernel is %.1e away from the reference "
                                  "loop, at most %.0e is allowed",
                                  c->op->name, wf_op_result_name(i, name), off, bound);
    }
    return status;
}

static void note(wf_op_check_report *report, const char *format, ...) WF_PRINTF(2, 3);

static void note(wf_op_check_report *report, const char *format, ...)
{
    size_t used = strlen(report->notes);
    va_list args;

    va_start(args, format);
    vsnprintf(report->notes + used, sizeof report->notes - used, format, args);
    va_end(args);
}

/* Notes legal but unusual properties: numbers that no gradient is asked of were not
   differentiated. */
static void note_constants(const wf_op_check *c, wf_op_check_report *report)
{
    int floats = 0, constant = 0;

    for (int i = 0; i < c->n_in; i++) {
        bool integer = c->op->integers >> i & 1;

        floats += !integer;
        constant += !integer && c->in[i].constant;
    }
    if (!c->op->backward && floats)
        note(report,
             "%s has no backward: gradients end at it, so nothing before it is trained\n",
             c->op->name);
    else if (constant)
        note(report,
             "%s: %d of %d operands of numbers are constant in this check, so their gradients "
             "are not "
             "looked at\n",
             c->op->name, constant, floats);
}

wf_status wf_check_op(const wf_op_check *check, wf_op_check_report *report, wf_error *error)
{
    wf_op_results reference = {.n = {0}}, cpu = {.n = {0}};
    wf_error own = {WF_OK, ""};
    wf_op_check_report found;
    wf_status status;

    report = report ? report : &found;
    error = error ? error : &own;
    memset(report, 0, sizeof *report);
    status = check_counts(check, error);
    if (status == WF_OK)
        note_constants(check, report);
    if (status == WF_OK)
        status = check_reference(check, &reference, report, error);
    if (status == WF_OK)
        status = check_kernels(check, &reference, &cpu, report, error);
    if (status == WF_OK)
        status = wf_check_op_layouts(check, &cpu, report, error);
    wf_op_results_forget(&reference);
    wf_op_results_forget(&cpu);
    return status;
}
