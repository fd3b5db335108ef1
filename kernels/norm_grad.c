/*
 * kernels/norm_grad.c - the gradients of a norm's rows and of its vectors in one op, for a
 * device that reads x and dy once for both.
 *
 *     layernorm_grad, rmsnorm_grad  dx, and dgain and dbias per sequence
 *     add_*_grad                    the same, with the gradient of the sum itself added to dx
 *
 * They have the bits of *_dx and *_dw, whose reference loops they run one after the other.
 */
#include "kernels/shared_internal.h"

/* By whether there is a mean, and whether something is added. */
static const wf_op *const both[2][2] = {{&wf_op_rmsnorm_grad, &wf_op_add_rmsnorm_grad},
                                        {&wf_op_layernorm_grad, &wf_op_add_layernorm_grad}};
static const wf_op *const rows_alone[2][2] = {{&wf_op_rmsnorm_dx, &wf_op_add_rmsnorm_dx},
                                              {&wf_op_layernorm_dx, &wf_op_add_layernorm_dx}};
static const wf_op *const vectors_alone[] = {&wf_op_rmsnorm_dw, &wf_op_layernorm_dw};

bool wf_norm_gradients(wf_gradient *g, int first, wf_tensor *x, wf_tensor *gain,
                       wf_tensor *mean, wf_tensor *rstd, wf_tensor *dy, wf_tensor *ds)
{
    wf_call call = {.op = both[mean != NULL][ds != NULL], .in = {x, gain}, .n_in = 2};
    bool rows = false, vectors = false;

    for (int i = 0; i < g->n_in; i++) {
        rows |= i < first && g->want[i];
        vectors |= i >= first && (g->want[i] || g->owed[i]);
    }
    if (!rows || !vectors)
        return false;
    if (mean)
        call.in[call.n_in++] = mean;
    call.in[call.n_in++] = rstd;
    call.in[call.n_in++] = dy;
    if (ds)
        call.in[call.n_in++] = ds;
    call.n_out = 2 + (mean != NULL);
    wf_dispatch(&call);
    g->din[0] = call.out[0];
    for (int i = first; i < g->n_in; i++)
        g->din[i] = wf_vector_gradient(g, i, call.out[1 + i - first]);
    return true;
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const bool centred = call->n_out == 3;
    wf_call rows = wf_norm_grad_rows(call), vectors = wf_norm_grad_vectors(call);

    rows.op = rows_alone[centred][wf_norm_grad_adds(call)];
    vectors.op = vectors_alone[centred];
    rows.op->reference.run(&rows, workspace);
    return vectors.op->reference.run(&vectors, workspace);
}

const wf_op wf_op_layernorm_grad = {WF_OP_ROW(layernorm_grad), .keep_fp32 = 1 << 1 | 1 << 2,
                                    .follows = 1, .reference = {.run = reference}};
const wf_op wf_op_rmsnorm_grad = {WF_OP_ROW(rmsnorm_grad), .keep_fp32 = 1 << 1, .follows = 1,
                                  .reference = {.run = reference}};
const wf_op wf_op_add_layernorm_grad = {WF_OP_ROW(add_layernorm_grad),
                                        .keep_fp32 = 1 << 1 | 1 << 2, .follows = 1,
                                        .reference = {.run = reference}};
const wf_op wf_op_add_rmsnorm_grad = {WF_OP_ROW(add_rmsnorm_grad), .keep_fp32 = 1 << 1,
                                      .follows = 1, .reference = {.run = reference}};
