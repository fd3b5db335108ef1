/*
 * kernels/matmul.c - the product of two tensors of which neither has to be a weight: scores of
 * queries and keys, mixing along tokens. Leading dims are a batch of products.
 *
 *     y[.., m, n] = sum over k of a[.., m, k] b[.., k, n], either of the two transposed
 *
 * The sum goes by the chunks of k, as every contraction. The CPU's kernel is in
 * kernels/cpu/matmul.c. Products with a weight are kernels/linear.c: a weight has no batch.
 */
#include "kernels/dims_internal.h"

wf_tensor *wf_matmul(wf_tensor *a, wf_tensor *b, const wf_matmul_options *options)
{
    wf_matmul_attr attr = {options && options->transpose_a, options && options->transpose_b};

    return wf_apply(&wf_op_matmul, &attr, sizeof attr, 2, a, b);
}

static const char *write_signature(const wf_call *call, char *text)
{
    static const char *const signature[2][2] = {{"...mk,...kn->...mn", "...mk,...nk->...mn"},
                                                {"...km,...kn->...mn", "...km,...nk->...mn"}};
    const wf_matmul_attr *attr = call->attr;

    (void)text;
    return signature[attr->transpose_a][attr->transpose_b];
}

/* With A and B as they are multiplied: dA = dY B^T and dB = A^T dY, or the transpose of those
   where the operand was transposed. */
static void backward(wf_gradient *g)
{
    const wf_matmul_attr *attr = g->attr;
    bool ta = attr->transpose_a, tb = attr->transpose_b;
    wf_tensor *a = g->in[0], *b = g->in[1], *dy = g->dout[0];

    if (g->want[0])
        g->din[0] =
            ta ? wf_matmul(b, dy, &(wf_matmul_options){.transpose_a = tb, .transpose_b = true})
               : wf_matmul(dy, b, &(wf_matmul_options){.transpose_b = !tb});
    if (g->want[1])
        g->din[1] =
            tb ? wf_matmul(dy, a, &(wf_matmul_options){.transpose_a = true, .transpose_b = ta})
               : wf_matmul(a, dy, &(wf_matmul_options){.transpose_a = !ta});
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const wf_matmul_attr *attr = call->attr;
    const wf_tensor *y = call->out[0];
    int last = y->ndim - 1;
    int64_t m = y->local[last - 1], n = y->local[last];
    int64_t k = call->in[0]->local[attr->transpose_a ? last - 1 : last];

    (void)workspace;
    for (int64_t e = 0; e < wf_tensor_local_count(y); e++) {
        int64_t batch = e / (m * n), i = e / n % m, j = e % n;
        const double *a = (const double *)call->in[0]->data + batch * m * k;
        const double *b = (const double *)call->in[1]->data + batch * k * n;
        double sum = 0;

        for (int64_t p = 0; p < k; p++)
            sum += a[attr->transpose_a ? p * m + i : i * k + p] *
                   b[attr->transpose_b ? j * k + p : p * n + j];
        ((double *)y->data)[e] = sum;
    }
    return WF_OK;
}

static double flops(const wf_call *call)
{
    const wf_matmul_attr *attr = call->attr;
    const wf_tensor *a = call->in[0];

    return 2 * (double)wf_tensor_local_count(call->out[0]) *
           (double)a->local[a->ndim - (attr->transpose_a ? 2 : 1)];
}

const wf_op wf_op_matmul = {WF_OP_ROW(matmul),
                            .write_signature = write_signature,
                            .save_others = WF_SAVE_IN(0) | WF_SAVE_IN(1),
                            .reference = {.run = reference},
                            .backward = backward,
                            .flops = flops};
