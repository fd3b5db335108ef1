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

static bool is_bound(double bound)
{
    return bound >= 0 && isfinite(bound);
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
    if (!c->op->name || !c->op->signature)
        return wf_error_set(error, WF_EINVAL,
                            "an op has a name and a signature (wf_op.name, .signature): %s has "
                            "none",
                            c->op->name ? c->op->name : "this one");
    if (!is_bound(c->gradient_bound) || !is_bound(c->kernel_bound))
        return wf_error_set(error, WF_EINVAL,
                            "%s: bounds of errors %g and %g: each is finite and at least 0",
                            c->op->name, c->gradient_bound, c->kernel_bound);
    for (int i = 0; i < c->n_in; i++)
        if (!(c->in[i].low <= c->in[i].high) || !isfinite(c->in[i].high - c->in[i].low))
            return wf_error_set(error, WF_EINVAL,
                                "%s: operand %d in [%g, %g): the range of its numbers has a "
                                "lower end first, and both are finite",
                                c->op->name, i, c->in[i].low, c->in[i].high);
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

/* Returns by how much an element is moved: by more where the operand's numbers are large. */
static double step_of(const wf_op_check_operand *o)
{
    return 0x1p-17 * fmax(1, fmax(fabs(o->low), fabs(o->high)) / 2);
}

/* Puts central differences of operand i where its gradient was. */
static wf_status difference(const wf_op_run *how, int i, wf_op_results *r)
{
    const double step = step_of(&how->check->in[i]);
    wf_op_run run = *how;
    wf_status status = WF_OK;

    run.gradients = false;
    run.operand = i;
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

const char *wf_op_doubt(double distance, const char *usual)
{
    return isfinite(distance) ? usual
                              : ": does a kernel read elements that it has not written, or "
                                "beside its operands? Both are NaN or huge in a check";
}

static wf_status check_gradients(const wf_op_run *run, const wf_op_results *r,
                                 wf_op_check_report *report, wf_error *error)
{
    const wf_op_check *c = run->check;
    const double bound = c->gradient_bound > 0 ? c->gradient_bound : 1e-6;
    wf_op_results differences = {.n = {0}};
    wf_status status = wf_op_run_once(run, &differences);

    for (int i = 0; i < c->n_in && status == WF_OK; i++)
        if (r->x[WF_MAX_OUTPUTS + i]) {
            if (r->n[WF_MAX_OUTPUTS + i] != elements(&c->in[i])) {
                status =
                    wf_fail(run->ctx, WF_EINVAL,
                            "%s: the gradient of operand %d has %lld elements, the operand "
                            "%lld",
                            c->op->name, i, (long long)r->n[WF_MAX_OUTPUTS + i],
                            (long long)elements(&c->in[i]));
                break;
            }
            status = difference(run, i, &differences);
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
                                  "differences, at most %.0e is allowed%s",
                                  c->op->name, i, off, bound,
                                  wf_op_doubt(off, ": does its backward say what the reference "
                                                   "loop does?"));
    }
    wf_op_results_forget(&differences);
    return wf_context_status(run->ctx) == WF_OK ? status : reason(run->ctx, error);
}

wf_status wf_op_differentiate(const wf_op_run *how, wf_op_results *results,
                              wf_op_check_report *report, wf_error *error)
{
    wf_context *ctx = context_over(wf_reference_device(error), error);
    wf_op_results own = {.n = {0}}, *r = results ? results : &own;
    wf_op_run run = *how;
    wf_status status;

    if (!ctx)
        return error->code;
    run.ctx = ctx;
    run.gradients = true;
    status = wf_op_run_once(&run, r) == WF_OK ? check_gradients(&run, r, report, error)
                                              : reason(ctx, error);
    wf_context_close(ctx);
    wf_op_results_forget(&own);
    return status;
}

wf_status wf_op_run_on(wf_device *device, const wf_op_run *how, wf_op_results *r,
                       wf_error *error)
{
    wf_context *ctx = context_over(device, error);
    wf_op_run run = *how;
    wf_status status;

    *r = (wf_op_results){.n = {0}};
    if (!ctx)
        return error->code;
    run.ctx = ctx;
    status = wf_op_run_once(&run, r) == WF_OK ? WF_OK : reason(ctx, error);
    wf_context_close(ctx);
    return status;
}

wf_status wf_op_near(const wf_op_check *c, const wf_op_results *r,
                     const wf_op_results *reference, double bound, const char *where,
                     double *most, wf_error *error)
{
    wf_status status = WF_OK;
    char name[48];

    for (int i = 0; i < WF_CHECK_RESULTS && status == WF_OK; i++) {
        double off;

        if (!reference->x[i])
            continue;
        if (!r->x[i] || r->n[i] != reference->n[i])
            return wf_error_set(error, WF_EINVAL,
                                "%s: %s has other sizes on the CPU than by the reference",
                                c->op->name, wf_op_result_name(i, name));
        off = wf_op_distance(r, reference, i);
        *most = fmax(*most, off);
        if (!(off <= bound))
            status = wf_error_set(error, WF_EINVAL,
                                  "%s: %s by the CPU's kernel is %.1e away from the reference "
                                  "loop, at most %.0e is allowed%s%s",
                                  c->op->name, wf_op_result_name(i, name), off, bound, where,
                                  wf_op_doubt(off, ""));
    }
    return status;
}

/* Step 2; `cpu` gets the results of the CPU's kernels. */
static wf_status check_kernels(const wf_op_check *c, const wf_op_results *reference,
                               wf_op_results *cpu, wf_op_check_report *report, wf_error *error)
{
    const double bound = c->kernel_bound > 0 ? c->kernel_bound : 1e-5;
    const wf_op_run run = {.check = c, .gradients = true};
    wf_status status = wf_op_run_on(wf_cpu_device(1, error), &run, cpu, error);

    return status == WF_OK ? wf_op_near(c, cpu, reference, bound, "", &report->kernel, error)
                           : status;
}

void wf_op_note(wf_op_check_report *report, const char *format, ...)
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
        wf_op_note(report,
                   "%s has no backward: gradients end at it, so nothing before it is trained\n",
                   c->op->name);
    else if (constant)
        wf_op_note(
            report,
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
        status = wf_op_differentiate(&(wf_op_run){.check = check}, &reference, report, error);
    if (status == WF_OK)
        status = check_kernels(check, &reference, &cpu, report, error);
    if (status == WF_OK)
        status = wf_check_op_parts(check, &reference, report, error);
    if (status == WF_OK)
        status = wf_check_op_layouts(check, &cpu, report, error);
    wf_op_results_forget(&reference);
    wf_op_results_forget(&cpu);
    return status;
}
