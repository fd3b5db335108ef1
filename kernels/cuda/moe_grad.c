/* kernels/cuda/moe_grad.c - gradients of experts on the GPU, as kernels/cpu/moe_grad.c has them
   expert by expert. */
#include "kernels/cuda/moe_job_internal.h"

enum { DY = WF_MOE_DY };

/* c = dy down */
static void down_gradient(wf_cuda_moe_job *j)
{
    const wf_moe_matrix dy = of_tokens(j, DY);
    wf_moe_row_product p =
        product_of(j, dy, operand(j, WF_MOE_DOWN, true), j->s.d, j->s.f, j->c);

    p.c_type = WF_F32;
    if (j->factors) {
        multiply_low(
            j, product_of(j, dy, factor(j, WF_MOE_DOWN_B, true), j->s.d, j->rank, j->v_out));
        ends_with(j, &p, j->v_out, factor(j, WF_MOE_DOWN_A, true));
    }
    multiply(j, &p);
}

/* dgate, dup and w dy of all rows, and gradients of weights. */
static void row_gradients(wf_cuda_moe_job *j)
{
    const wf_call *call = j->call;
    const wf_moe_grad_rows g = {.rows = j->lists.begin + j->lists.experts,
                                .token = j->lists.token,
                                .choice = j->lists.choice,
                                .d = j->s.d,
                                .f = j->s.f,
                                .rank = j->rank,
                                .weights = call->in[WF_MOE_WEIGHTS]->data,
                                .c = j->c,
                                .h = j->h,
                                .dy = call->in[DY]->data,
                                .v = j->v_out,
                                .gate = j->gate,
                                .up = j->up,
                                .dgate = j->dgate,
                                .dup = j->dup,
                                .wdy = j->wdy,
                                .wv = j->wv_out,
                                .dweights = call->out[call->n_out - 1]->data};

    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_grad(j->stream, j->type, &g, &j->lists);
}

/* Rows of dx. */
static void x_gradient(wf_cuda_moe_job *j)
{
    const wf_moe_matrix dgate = of_rows(j->dgate, j->s.f), dup = of_rows(j->dup, j->s.f);
    wf_moe_row_product p =
        product_of(j, dgate, operand(j, WF_MOE_GATE, true), j->s.f, j->s.d, j->rows);

    over_features(j, &p);
    p.pair[1] = (wf_moe_pair){dup, operand(j, WF_MOE_UP, true)};
    p.pairs = 2;
    if (j->factors) {
        wf_moe_row_product low =
            product_of(j, dgate, factor(j, WF_MOE_GATE_B, true), j->s.f, j->rank, j->v_in);

        over_features(j, &low);
        low.pair[1] = (wf_moe_pair){dup, factor(j, WF_MOE_UP_B, true)};
        low.pairs = 2;
        multiply_low(j, low);
        ends_with(j, &p, j->v_in, factor(j, WF_MOE_GATE_UP_A, true));
    }
    multiply(j, &p);
}

/* The gradient of a matrix of every expert, [m, n]. */
static void weights_gradient(wf_cuda_moe_job *j, wf_moe_matrix a, wf_moe_matrix b,
                             const wf_tensor *dw)
{
    const wf_moe_weight_product p = {.lists = &j->lists,
                                     .type = j->type,
                                     .a = a,
                                     .b = b,
                                     .m = dw->local[1],
                                     .n = dw->local[2],
                                     .cuts = j->s.cuts,
                                     .c = dw->data};

    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_weights(j->stream, &p);
}

static void matrix_gradients(wf_cuda_moe_job *j)
{
    wf_tensor *const *out = j->call->out;
    const wf_moe_matrix x = of_tokens(j, WF_MOE_X), h = of_rows(j->h, j->s.f);
    const wf_moe_matrix dgate = of_rows(j->dgate, j->s.f), dup = of_rows(j->dup, j->s.f);
    const wf_moe_matrix wdy = of_rows(j->wdy, j->s.d), u = of_rows(j->u_in, j->rank);

    if (j->call->op->id == WF_ID_experts_grad) {
        weights_gradient(j, dgate, x, out[WF_MOE_GATE]);
        weights_gradient(j, dup, x, out[WF_MOE_UP]);
        weights_gradient(j, wdy, h, out[WF_MOE_DOWN]);
    }
    if (j->factors) {
        weights_gradient(j, of_rows(j->v_in, j->rank), x, out[WF_MOE_GATE_UP_A]);
        weights_gradient(j, dgate, u, out[WF_MOE_GATE_B]);
        weights_gradient(j, dup, u, out[WF_MOE_UP_B]);
        weights_gradient(j, of_rows(j->wv_out, j->rank), h, out[WF_MOE_DOWN_A]);
        weights_gradient(j, wdy, of_rows(j->u_out, j->rank), out[WF_MOE_DOWN_B]);
    }
}

static wf_status grad(const wf_call *call, void *workspace)
{
    size_t used;
    wf_cuda_moe_job j = wf_cuda_moe_job_of(call, workspace, &used);
    wf_status status = wf_cuda_moe_begin(&j);

    if (status != WF_OK)
        return status;
    wf_cuda_moe_h(&j);
    if (j.factors)
        wf_cuda_moe_down_low(&j);
    down_gradient(&j);
    row_gradients(&j);
    x_gradient(&j);
    wf_cuda_moe_combine(&j, NULL, call->out[call->n_out - 2]);
    matrix_gradients(&j);
    return wf_cuda_check(call->ctx, j.error, call->op->name);
}

const wf_kernel wf_cuda_experts_dx = {grad, wf_cuda_moe_workspace, .mixed_ok = WF_MOE_DX,
                                      .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cuda_experts_grad = {grad, wf_cuda_moe_workspace,
                                        .mixed_ok = WF_MOE_DX_OF_ALL,
                                        .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cuda_experts_adapted_grad = {grad, wf_cuda_moe_workspace,
                                                .mixed_ok = WF_MOE_DX_ADAPTED,
                                                .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_FACTORS};
