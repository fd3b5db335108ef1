/*
 * check_op.c - is the op of my_op.c right? Its gradient against finite differences of its
 * reference loop, its CPU kernel against that loop, and its bits on every layout of 2 x 2
 * ranks.
 */
#include "my_op.h"
#include <stdio.h>

static void apply(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = my_relu2(in[0]);
}

int main(void)
{
    const wf_op_check check = {
        .op = &my_relu2_op,
        .apply = apply,
        .n_in = 1,
        .n_out = 1,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(3), wf_dim_chunked(5), wf_dim_width(7)}}}};
    wf_op_check_report report;
    wf_error error = {WF_OK, ""};

    if (wf_check_op(&check, &report, &error) != WF_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("gradient, to finite differences  %.1e\n"
           "CPU kernels, to the reference    %.1e\n"
           "layouts with one rank's bits     %lld, and %lld refused\n",
           report.gradient, report.kernel, (long long)report.exact, (long long)report.refused);
    printf("%s%s", report.refusals, report.notes);
    return 0;
}
