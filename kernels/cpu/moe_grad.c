/*
 * kernels/cpu/moe_grad.c - gradients of experts on the CPU. Forward's h is recomputed, and its
 * gate and up where they are not kept; with c = dy down_e in floats,
 *
 *     dw = sum of c h in 16 lanes    dh = w c    dgate, dup = swiglu_grad(gate, up, dh)
 *     dx = tree over experts of dgate gate_e + dup up_e, a chain through both for each chunk
 *     ddown_e, dgate_e, dup_e: a chain for each chunk of a sequence through its rows of (w dy)
 *     and h, of dgate or dup and x
 *
 * What a product takes is rounded to the operands' type first.
 */
#include "kernels/cpu/moe_internal.h"
#include <string.h>

/* n numbers of row r as floats, in room where they are stored as bf16. */
static const float *widened(const wf_moe_job *j, const void *rows, int64_t r, int64_t n,
                            float *room)
{
    const void *row = wf_moe_row(j, rows, r, n);

    if (!j->bf16)
        return row;
    j->cpu->simd->widen(row, room, n);
    return room;
}

static void stored(const wf_moe_job *j, const float *from, void *rows, int64_t r, int64_t n)
{
    void *row = wf_moe_row(j, rows, r, n);

    if (j->bf16)
        j->cpu->simd->narrow(from, row, n);
    else
        memcpy(row, from, (size_t)n * sizeof *from);
}

/* Computes of a row of an expert its weight's gradient, dgate, dup, and w dy. */
static void grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_moe_job *j = arg;
    const wf_simd *simd = j->cpu->simd;
    const int32_t *choice = j->choice + j->begin[j->expert];
    float *dweights = j->call->out[j->call->n_out - 1]->data;
    const float *weights = j->call->in[WF_MOE_WEIGHTS]->data;
    float *room = j->scratch + worker * j->scratch_size;
    int64_t f = j->s.f, d = j->s.d;

    for (int64_t r = begin; r < end; r++) {
        float w = weights[choice[r]], *c = j->c + r * f, *dgate = room + 2 * f,
              *dup = room + 3 * f;
        const float *gate = widened(j, j->gate, r, f, room), *up;

        dweights[choice[r]] = simd->dot(c, widened(j, j->h, r, f, room + f), f) + 0.0f;
        up = widened(j, j->up, r, f, room + f);
        simd->scale(c, w, c, f);
        simd->swiglu_grad(gate, up, c, dgate, dup, f);
        stored(j, dgate, j->dgate, r, f);
        stored(j, dup, j->dup, r, f);
        simd->scale(widened(j, j->dy, r, d, room), w, room, d);
        stored(j, room, j->wdy, r, d);
        if (j->factors) {
            simd->scale(widened(j, j->v_out, r, j->rank, room), w, room, j->rank);
            stored(j, room, j->wv_out, r, j->rank);
        }
    }
}

/* dW[m, n] of the expert at work = sum over its rows of a[r, m] b[r, n], in chunks of
   each sequence. */
static void weights_gradient(wf_moe_job *j, const void *a, int64_t m, const void *b, int64_t n,
                             wf_tensor *dw)
{
    const int32_t *token = j->token + j->begin[j->expert];
    int64_t rows = wf_moe_rows(j), chunks = wf_token_chunks_of(&j->s.cuts), r = 0;
    wf_gemm g = {.m = m,
                 .n = n,
                 .c = (float *)dw->data + j->expert * m * n,
                 .c_row = n,
                 .bf16 = j->bf16,
                 .parts = j->parts,
                 .n_parts = chunks,
                 .each = j->s.cuts.chunks};

    for (int64_t i = 0; i < chunks; i++) {
        const int64_t end =
            wf_token_chunk_at(&j->s.cuts, i) + wf_token_chunk_rows(&j->s.cuts, i);
        int64_t first = r;

        while (r < rows && token[r] < end)
            r++;
        j->parts[i] = (wf_gemm_part){.a = wf_moe_row(j, a, first, m),
                                     .a_row = 1,
                                     .a_k = m,
                                     .b = wf_moe_row(j, b, first, n),
                                     .b_k = n,
                                     .b_col = 1,
                                     .k = r - first,
                                     .chunk = true};
    }
    wf_moe_gemm(j, &g);
}

/* c = dy down of the expert at work. */
static void down_gradient(wf_moe_job *j)
{
    wf_moe_product p = {.m = wf_moe_rows(j),
                        .n = j->s.f,
                        .k = j->s.d,
                        .a = j->dy,
                        .b = wf_moe_matrix(j, WF_MOE_DOWN),
                        .b_k = j->s.f,
                        .b_col = 1,
                        .c = j->c,
                        .floats = true};

    if (j->factors) {
        wf_moe_multiply_low(j,
                            (wf_moe_product){.k = j->s.d,
                                             .a = j->dy,
                                             .b = wf_moe_factor(j, WF_MOE_DOWN_B),
                                             .b_k = j->rank,
                                             .b_col = 1},
                            j->v_out);
        p.low_a = j->v_out;
        p.low_b = wf_moe_factor(j, WF_MOE_DOWN_A);
        p.low_b_k = j->s.f;
        p.low_b_col = 1;
    }
    wf_moe_multiply(j, &p);
}

/* Rows of dx of the expert at work. */
static void x_gradient(wf_moe_job *j)
{
    const int64_t d = j->s.d;
    wf_moe_product p = {.m = wf_moe_rows(j),
                        .n = d,
                        .k = j->s.f,
                        .a = j->dgate,
                        .b = wf_moe_matrix(j, WF_MOE_GATE),
                        .b_k = d,
                        .b_col = 1,
                        .a2 = j->dup,
                        .b2 = wf_moe_matrix(j, WF_MOE_UP),
                        .features = true,
                        .c = wf_moe_row(j, j->rows, j->begin[j->expert], d)};

    if (j->factors) {
        wf_moe_multiply_low(j,
                            (wf_moe_product){.k = j->s.f,
                                             .a = j->dgate,
                                             .b = wf_moe_factor(j, WF_MOE_GATE_B),
                                             .b_k = j->rank,
                                             .b_col = 1,
                                             .a2 = j->dup,
                                             .b2 = wf_moe_factor(j, WF_MOE_UP_B),
                                             .features = true},
                            j->v_in);
        p.low_a = j->v_in;
        p.low_b = wf_moe_factor(j, WF_MOE_GATE_UP_A);
        p.low_b_k = d;
        p.low_b_col = 1;
    }
    wf_moe_multiply(j, &p);
}

/* Gradients of the expert at work, its rows of dx among them. */
static void backward(wf_moe_job *j)
{
    const wf_call *call = j->call;
    int64_t n = wf_moe_rows(j), d = j->s.d, f = j->s.f, r = j->rank;
    wf_tensor *const *out = call->out;

    if (!j->kept[0] || call->op->id == WF_ID_experts_grad)
        wf_moe_take(j, call->in[WF_MOE_X], j->x);
    wf_moe_take(j, call->in[WF_MOE_DY], j->dy);
    if (!j->kept[0])
        wf_moe_gate_up(j);
    wf_moe_act(j);
    if (j->factors)
        wf_moe_down_low(j);
    down_gradient(j);
    wf_thread_pool_run(j->cpu->pool, n, wf_task_rows(f), grad_task, j);
    x_gradient(j);
    if (call->op->id == WF_ID_experts_grad) {
        weights_gradient(j, j->dgate, f, j->x, d, out[WF_MOE_GATE]);
        weights_gradient(j, j->dup, f, j->x, d, out[WF_MOE_UP]);
        weights_gradient(j, j->wdy, d, j->h, f, out[WF_MOE_DOWN]);
    }
    if (j->factors) {
        weights_gradient(j, j->v_in, r, j->x, d, out[WF_MOE_GATE_UP_A]);
        weights_gradient(j, j->dgate, f, j->u_in, r, out[WF_MOE_GATE_B]);
        weights_gradient(j, j->dup, f, j->u_in, r, out[WF_MOE_UP_B]);
        weights_gradient(j, j->wv_out, r, j->h, f, out[WF_MOE_DOWN_A]);
        weights_gradient(j, j->wdy, d, j->u_out, r, out[WF_MOE_DOWN_B]);
    }
}

/* Fills the gradient of an expert without rows with +0. */
static void no_gradient(const wf_moe_job *j)
{
    for (int o = 0; o < j->call->n_out - 2; o++) {
        const wf_tensor *dw = j->call->out[o];
        size_t count = (size_t)(dw->local[1] * dw->local[2]);

        memset((float *)dw->data + (size_t)j->expert * count, 0, count * sizeof(float));
    }
}

static wf_status grad(const wf_call *call, void *workspace)
{
    size_t used;
    wf_moe_job j = wf_moe_job_of(call, workspace, &used);
    wf_tensor *dx = call->out[call->n_out - 2], *dweights = call->out[call->n_out - 1];

    if (wf_moe_list(&j) != WF_OK)
        return WF_EINVAL;
    memset(dweights->data, 0, wf_tensor_bytes(dweights));
    for (int64_t e = 0; e < j.s.experts; e++) {
        wf_moe_begin(&j, e);
        if (wf_moe_rows(&j) > 0)
            backward(&j);
        else
            no_gradient(&j);
    }
    wf_moe_combine(&j, NULL, dx);
    return wf_context_status(call->ctx);
}

enum {
    OPERANDS = (WF_IN(WF_MOE_X + 1) - 1) | WF_IN(WF_MOE_DY),
    KEPT = (WF_IN(WF_MOE_KEPT) - 1) << (WF_MOE_DY + 1),
    DX = WF_OUT(0), /* without gradients of weights */
    DX_OF_ALL = WF_OUT(3),
    DX_ADAPTED = WF_OUT(WF_MOE_FACTORS),
    FACTORS = (WF_IN(WF_MOE_FACTORS) - 1) << (WF_MOE_DY + 1)
};

const wf_kernel wf_cpu_experts_dx = {
    .run = grad, .workspace = wf_moe_workspace, .mixed_ok = DX, .all_bf16 = OPERANDS | KEPT};
const wf_kernel wf_cpu_experts_grad = {.run = grad,
                                       .workspace = wf_moe_workspace,
                                       .mixed_ok = DX_OF_ALL,
                                       .all_bf16 = OPERANDS | KEPT};
const wf_kernel wf_cpu_experts_adapted_grad = {.run = grad,
                                               .workspace = wf_moe_workspace,
                                               .mixed_ok = DX_ADAPTED,
                                               .all_bf16 = OPERANDS | FACTORS};
