/* kernels/cuda/moe_grad.c - gradients of experts on the GPU, as kernels/cpu/moe_grad.c has them
   expert by expert. */
#include "kernels/cuda/moe_job_internal.h"

enum { DY = WF_MOE_DY };

void wf_cuda_moe_down_v(wf_cuda_moe_job *j)
{
    multiply_low(j, product_of(j, of_tokens(j, DY), factor(j, WF_MOE_DOWN_B, true), j->s.d,
                               j->rank, j->v_out));
}

/* c = dy down */
static void down_gradient(wf_cuda_moe_job *j)
{
    const wf_moe_matrix dy = of_tokens(j, DY);
    wf_moe_row_product p =
        product_of(j, dy, operand(j, WF_MOE_DOWN, true), j->s.d, j->s.f, j->c);

    p.c_type = WF_F32;
    if (j->factors) {
        wf_cuda_moe_down_v(j);
        ends_with(j, &p, j->v_out, factor(j, WF_MOE_DOWN_A, true));
    }
    multiply(j, &p);
}

void wf_cuda_moe_row_gradients(wf_cuda_moe_job *j, wf_tensor *const *terms)
{
    const wf_call *call = j->call;
    wf_moe_grad_rows g = {.rows = j->lists.begin + j->lists.experts,
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
                          .wv = j->wv_out};

    down_gradient(j);
    for (int i = 0; i < 2 && terms; i++) {
        wf_cuda_moe_clear(j, terms[i]);
        g.terms[i] = terms[i]->data;
    }
    if (!terms)
        g.dweights = call->out[call->n_out - 1]->data;
    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_grad(j->stream, j->type, &g, &j->lists);
}

wf_moe_row_product wf_cuda_moe_v(wf_cuda_moe_job *j, void *to)
{
    wf_moe_row_product p = product_of(j, of_rows(j->dgate, j->s.f),
                                      factor(j, WF_MOE_GATE_B, true), j->s.f, j->rank, to);

    over_features(j, &p);
    p.pair[1] = (wf_moe_pair){of_rows(j->dup, j->s.f), factor(j, WF_MOE_UP_B, true)};
    p.pairs = 2;
    return p;
}

void wf_cuda_moe_x_gradient(wf_cuda_moe_job *j, wf_tensor *of_choices)
{
    const wf_moe_matrix dgate = of_rows(j->dgate, j->s.f), dup = of_rows(j->dup, j->s.f);
    wf_moe_row_product p =
        product_of(j, dgate, operand(j, WF_MOE_GATE, true), j->s.f, j->s.d, j->rows);

    over_features(j, &p);
    p.pair[1] = (wf_moe_pair){dup, operand(j, WF_MOE_UP, true)};
    p.pairs = 2;
    if (j->last)
        ends_with(j, &p, j->v_in, factor(j, WF_MOE_GATE_UP_A, true));
    if (of_choices) {
        wf_cuda_moe_clear(j, of_choices);
        put_out(j, &p, of_choices->data);
    }
    multiply(j, &p);
}

void wf_cuda_moe_weights_gradient(wf_cuda_moe_job *j, wf_moe_matrix a, wf_moe_matrix b,
                                  const wf_tensor *dw)
{
    const wf_moe_weight_product p = {.lists = &j->lists,
                                     .a = a,
                                     .b = b,
                                     .m = dw->local[1],
                                     .n = dw->local[2],
                                     .c = dw->data,
                                     .aside = j->aside};

    if (j->error == cudaSuccess)
        j->error = j->products->weights(j->stream, &p, j->processors);
}

static void matrix_gradients(wf_cuda_moe_job *j)
{
    wf_tensor *const *out = j->call->out;
    const wf_moe_matrix x = of_tokens(j, WF_MOE_X), h = of_rows(j->h, j->s.f);
    const wf_moe_matrix dgate = of_rows(j->dgate, j->s.f), dup = of_rows(j->dup, j->s.f);
    const wf_moe_matrix wdy = of_rows(j->wdy, j->s.d), u = of_rows(j->u_in, j->rank);

    if (j->call->op->id == WF_ID_experts_grad || j->call->op->id == WF_ID_experts_part_grad) {
        wf_cuda_moe_weights_gradient(j, dgate, x, out[WF_MOE_GATE]);
        wf_cuda_moe_weights_gradient(j, dup, x, out[WF_MOE_UP]);
        wf_cuda_moe_weights_gradient(j, wdy, h, out[WF_MOE_DOWN]);
    }
    if (j->factors) {
        wf_cuda_moe_weights_gradient(j, of_rows(j->v_in, j->rank), x, out[WF_MOE_GATE_UP_A]);
        wf_cuda_moe_weights_gradient(j, dgate, u, out[WF_MOE_GATE_B]);
        wf_cuda_moe_weights_gradient(j, dup, u, out[WF_MOE_UP_B]);
        wf_cuda_moe_weights_gradient(j, of_rows(j->wv_out, j->rank), h, out[WF_MOE_DOWN_A]);
        wf_cuda_moe_weights_gradient(j, wdy, of_rows(j->u_out, j->rank), out[WF_MOE_DOWN_B]);
    }
}

wf_status wf_cuda_moe_gradient(const wf_call *call, void *workspace)
{
    size_t used;
    wf_cuda_moe_job j = wf_cuda_moe_job_of(call, workspace, &used);
    wf_tensor *const *terms = j.part ? call->out + call->n_out - 2 : NULL;
    wf_status status = wf_cuda_moe_begin(&j);

    if (status != WF_OK)
        return status;
    wf_cuda_moe_h(&j);
    wf_cuda_moe_row_gradients(&j, terms);
    if (j.factors) {
        wf_cuda_moe_down_low(&j);
        multiply_low(&j, wf_cuda_moe_v(&j, j.v_in));
    }
    wf_cuda_moe_x_gradient(&j, j.part ? call->out[call->n_out - 3] : NULL);
    if (!j.part)
        wf_cuda_moe_combine(&j, NULL, call->out[call->n_out - 2]);
    matrix_gradients(&j);
    return wf_cuda_check(call->ctx, j.error, call->op->name);
}

const wf_kernel wf_cuda_experts_dx = {wf_cuda_moe_gradient, wf_cuda_moe_workspace,
                                      .mixed_ok = WF_MOE_DX,
                                      .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cuda_experts_grad = {wf_cuda_moe_gradient, wf_cuda_moe_workspace,
                                        .mixed_ok = WF_MOE_DX_OF_ALL,
                                        .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cuda_experts_adapted_grad = {wf_cuda_moe_gradient, wf_cuda_moe_workspace,
                                                .mixed_ok = WF_MOE_DX_ADAPTED,
                                                .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_FACTORS};
