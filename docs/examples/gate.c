/*
 * gate.c - a gate over the two best experts of each token, and a mask of what it opened: a few
 * lines of ops, whose gradient and bits wf_check_op proves on every layout of 2 x 2 ranks.
 */
#include <stdio.h>
#include <weft/weft.h>

static void apply(void *self, wf_tensor *const *in, wf_tensor **out)
{
    wf_tensor *scores = in[0], *best, *index, *gate;

    (void)self;
    wf_topk(scores, 2, &best, &index);
    gate = wf_scatter(scores, index, wf_softmax(best, 2));
    out[0] = gate;
    out[1] = wf_mul(scores, wf_greater_than(gate, 0));
}

int main(void)
{
    const wf_op_check check = {
        .op = wf_op_find("topk"),
        .apply = apply,
        .n_in = 1,
        .n_out = 2,
        .in = {{.ndim = 3, .dim = {wf_dim_batch(4), wf_dim_chunked(6), wf_dim_width(5)}}}};
    wf_op_check_report report;
    wf_error error = {WF_OK, ""};

    if (wf_check_op(&check, &report, &error) != WF_OK || report.exact < 4 || report.inexact) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("gradient, to finite differences  %.1e\n"
           "layouts with one rank's bits     %lld, and %lld refused\n",
           report.gradient, (long long)report.exact, (long long)report.refused);
    return 0;
}
