/*
 * parallel/check_op_parts.c - is the op right where less is asked of it than all of its
 * gradients, for other numbers, and with operands that are stored as bf16?
 */
#include "kernels/devices.h"
#include "parallel/check_op_internal.h"
#include <stdio.h>

/* Adds to an error where it was. */
static wf_status where(wf_error *error, const char *text, int i)
{
    wf_error first = *error;

    *error = (wf_error){WF_OK, ""};
    return wf_error_set(error, first.code, "%.1500s %s %d", first.text, text, i);
}

/* Takes each output alone: backward has no dout of the others. */
static wf_status check_outputs(const wf_op_check *c, wf_op_check_report *report,
                               wf_error *error)
{
    wf_status status = WF_OK;

    for (int o = 0; o < c->n_out && c->n_out > 1 && status == WF_OK; o++) {
        wf_op_check one = *c;

        if (c->constant_outputs >> o & 1)
            continue;
        one.constant_outputs = ~(1u << o);
        status = wf_op_differentiate(&(wf_op_run){.check = &one, .some_outputs = true}, NULL,
                                     report, error);
        if (status != WF_OK)
            where(error, "This is where dout is NULL but for output", o);
    }
    return status;
}

static int floats(const wf_op_check *c)
{
    int n = 0;

    for (int i = 0; i < c->n_in; i++)
        n += !(c->op->integers >> i & 1) && !c->in[i].constant;
    return n;
}

/* Wants the gradient of each operand alone. */
static wf_status check_operands(const wf_op_check *c, const wf_op_results *reference,
                                wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = 0; i < c->n_in && floats(c) > 1 && status == WF_OK; i++) {
        wf_op_check one = *c;
        wf_op_results r;
        int at = WF_MAX_OUTPUTS + i;

        if (c->op->integers >> i & 1 || c->in[i].constant)
            continue;
        for (int k = 0; k < c->n_in; k++)
            one.in[k].constant = k != i;
        status = wf_op_run_on(wf_reference_device(error),
                              &(wf_op_run){.check = &one, .gradients = true}, &r, error);
        if (status != WF_OK)
            where(error, "This is where want is set for the one operand", i);
        else if (!reference->x[at] || r.n[at] != reference->n[at] ||
                 !(wf_op_distance(&r, reference, at) <= 1e-9))
            status = wf_error_set(error, WF_EINVAL,
                                  "%s: the gradient of operand %d is another one where no "
                                  "other operand takes one: its backward fills din[%d] alike "
                                  "whatever else is in want",
                                  c->op->name, i, i);
        wf_op_results_forget(&r);
    }
    return status;
}

/* Runs the reference loop and the CPU's kernel on the same numbers. */
static wf_status compare_devices(const wf_op_run *run, bool stored, double bound,
                                 const char *end, double *most, wf_error *error)
{
    wf_op_results reference, cpu = {.n = {0}};
    wf_op_run on_cpu = *run;
    wf_status status = wf_op_run_on(wf_reference_device(error), run, &reference, error);

    on_cpu.stored = stored;
    if (status == WF_OK)
        status = wf_op_run_on(wf_cpu_device(1, error), &on_cpu, &cpu, error);
    if (status == WF_OK)
        status = wf_op_near(run->check, &cpu, &reference, bound, end, most, error);
    wf_op_results_forget(&reference);
    wf_op_results_forget(&cpu);
    return status;
}

/* Stores those operands as bf16 that the op's kernel takes so. */
static wf_status check_stored(const wf_op_check *c, wf_error *error)
{
    static const double bound = 0x1p-6; /* outputs are rounded to 8 bits */
    static const char end[] = ", with operands that are stored as bf16, which the kernel takes "
                              "as they are (wf_kernel.mixed_ok, all_bf16)";
    const wf_kernel *k = wf_op_kernel(c->op, "cpu");
    unsigned all = (1u << c->n_in) - 1;
    unsigned mixed = k ? k->mixed_ok & all & ~c->op->integers : 0;
    unsigned together = k ? (k->all_bf16 | k->mixed_ok) & all & ~c->op->integers : 0;
    double most = 0;
    wf_status status = WF_OK;

    if (together)
        status = compare_devices(&(wf_op_run){.check = c, .bf16 = together}, true, bound, end,
                                 &most, error);
    for (int i = 0; i < c->n_in && status == WF_OK; i++)
        if (mixed >> i & 1)
            status = compare_devices(&(wf_op_run){.check = c, .bf16 = 1u << i}, true, bound,
                                     end, &most, error);
    return status;
}

wf_status wf_check_op_parts(const wf_op_check *c, const wf_op_results *reference,
                            wf_op_check_report *report, wf_error *error)
{
    const double bound = c->kernel_bound > 0 ? c->kernel_bound : 1e-5;
    wf_status status = floats(c) ? check_outputs(c, report, error) : WF_OK;

    if (status == WF_OK)
        status = check_operands(c, reference, error);
    if (status == WF_OK) /* a second call in this process, too */
        status = compare_devices(
            &(wf_op_run){.check = c, .gradients = true, .numbers = 1}, false, bound,
            ", for other numbers of the same shapes: does it keep any between its calls?",
            &report->kernel, error);
    if (status == WF_OK)
        status = check_stored(c, error);
    return status == WF_OK && c->op->backward_joined ? wf_check_op_joined(c, error) : status;
}
