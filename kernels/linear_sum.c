/*
 * kernels/linear_sum.c - a product with a weight and one with what adapts it, as one
 * contraction.
 *
 *     linear2_sum  y[r, n] = sum over k of x[r, k] W[n, k] + sum over m of u[r, m] B[n, m]
 *
 * Chunk l of the sum is one chain through chunk l of k, then chunk l of m, as in the gradient
 * of a group (linear.c): so ranks that split both dims have one partial sum, which is a node of
 * the tree. The CPU's kernel is in kernels/cpu/linear_sum.c.
 */
#include "kernels/linear_sum.h"
#include "core/later.h"
#include "core/tape.h"
#include "kernels/shared_internal.h"

wf_tensor *wf_linear_sum(wf_tensor *x, wf_tensor *weight, wf_tensor *u, wf_tensor *more)
{
    return wf_apply(&wf_op_linear2_sum, NULL, 0, 4, x, weight, u, more);
}

/* Computes the gradients of either pair (x, W), (u, B). */
static void backward(wf_gradient *g)
{
    for (int i = 0; i < g->n_in; i += 2) {
        if (g->want[i]) {
            const bool last = wf_results_later(g->ctx, g->later[i]);

            g->din[i] = wf_linear_dx(1, &g->dout[0], &g->in[i + 1]);
            wf_results_later(g->ctx, last);
        }
        if (g->want[i + 1])
            g->din[i + 1] = wf_matrix_gradient(g, i + 1, g->dout[0], g->in[i]);
    }
}

static void backward_joined(int passes, wf_gradient *const *g)
{
    wf_tensor *dy[WF_MOST_JOINED], *x[WF_MOST_JOINED];

    for (int i = 0; i < g[0]->n_in; i += 2) {
        if (!g[0]->want[i + 1])
            continue;
        for (int pass = 0; pass < passes; pass++) {
            dy[pass] = g[pass]->dout[0];
            x[pass] = g[pass]->in[i];
        }
        g[0]->din[i + 1] = wf_linear_dw_joined(passes, dy, x);
    }
}

static wf_status reference(const wf_call *call, void *workspace)
{
    double *y = call->out[0]->data;
    int last = call->out[0]->ndim - 1;
    int64_t rows = wf_extent(call->out[0], 0, last), n = call->out[0]->local[last];

    (void)workspace;
    for (int64_t i = 0; i < rows * n; i++)
        y[i] = 0;
    for (int pair = 0; pair < call->n_in; pair += 2) {
        const double *x = call->in[pair]->data, *w = call->in[pair + 1]->data;
        int64_t k = call->in[pair]->local[last];

        for (int64_t i = 0; i < rows * n; i++)
            for (int64_t j = 0; j < k; j++)
                y[i] += x[i / n * k + j] * w[i % n * k + j];
    }
    return WF_OK;
}

static double flops(const wf_call *call)
{
    int last = call->out[0]->ndim - 1;
    int64_t k = call->in[0]->local[last] + call->in[2]->local[last];

    return 2 * (double)wf_tensor_local_count(call->out[0]) * (double)k;
}

/* The gradient of an activation reads its weight, that of a weight its activation. */
enum {
    WEIGHTS = WF_SAVE_IN(1) | WF_SAVE_IN(3),
    SAVED = WF_SAVE_IN(0) | WF_SAVE_IN(2) | WEIGHTS
};

const wf_op wf_op_linear2_sum = {WF_OP_ROW(linear2_sum), .save_others = SAVED,
                                 .weights = WEIGHTS,     .reference = {.run = reference},
                                 .backward = backward,   .backward_joined = backward_joined,
                                 .flops = flops};
