/*
 * kernels/moe_adapted.c - experts with low-rank adapters (kernels/moe.h): each matrix of an
 * expert is W + s B A, which is nowhere made.
 *
 *     experts_adapted       gate = gate_e x + gate_b u, u = s gate_up_a x; up alike;
 *                           y = down_e h + down_b (s down_a h)
 *     experts_adapted_grad  dx, dw, and gradients of the five factors, a chunk per sequence
 *
 * The CPU's kernels are those of experts (kernels/cpu/moe.c, moe_grad.c), with more products.
 */
#include "kernels/experts_part.h"
#include "kernels/moe_internal.h"
#include <stddef.h>

wf_tensor *wf_experts_adapted(wf_tensor *gate, wf_tensor *up, wf_tensor *down, wf_tensor *x,
                              wf_tensor *weights, wf_tensor *index,
                              const wf_experts_adapters *a, const wf_experts_bound *bound)
{
    const wf_moe_attr attr = wf_moe_attr_of(a->scale, bound);

    return wf_apply(&wf_op_experts_adapted, &attr, sizeof attr, 11, gate, up, down, x, weights,
                    index, a->gate_up_a, a->gate_b, a->up_b, a->down_a, a->down_b);
}

wf_status wf_experts_are_frozen(wf_context *ctx, const wf_experts_operands *in)
{
    const wf_tensor *const base[] = {in->gate, in->up, in->down};

    for (int i = 0; i < WF_MOE_X; i++)
        if (base[i]->requires_grad)
            return wf_fail(ctx, WF_EUNSUPPORTED,
                           "experts_adapted: operand %d wants a gradient, and experts with "
                           "adapters are frozen: train either of them",
                           i);
    return WF_OK;
}

static void backward(wf_gradient *g)
{
    wf_call call = {.op = &wf_op_experts_adapted_grad,
                    .attr = g->attr,
                    .attr_size = sizeof(wf_moe_attr),
                    .n_in = WF_MOE_DY + 1 + WF_MOE_FACTORS,
                    .n_out = WF_MOE_FACTORS + 2};

    if (wf_experts_are_frozen(g->ctx, &(wf_experts_operands){.gate = g->in[WF_MOE_GATE],
                                                             .up = g->in[WF_MOE_UP],
                                                             .down = g->in[WF_MOE_DOWN]}) !=
        WF_OK)
        return;
    for (int i = 0; i < WF_MOE_DY; i++)
        call.in[i] = g->in[i];
    call.in[WF_MOE_DY] = g->dout[0];
    for (int i = 0; i < WF_MOE_FACTORS; i++)
        call.in[WF_MOE_DY + 1 + i] = g->in[WF_MOE_DY + i];
    wf_dispatch(&call);
    for (int i = 0; i < WF_MOE_FACTORS; i++)
        g->din[WF_MOE_DY + i] = call.out[i];
    g->din[WF_MOE_X] = call.out[WF_MOE_FACTORS];
    g->din[WF_MOE_WEIGHTS] = call.out[WF_MOE_FACTORS + 1];
}

void wf_experts_backward(wf_gradient *g, float scale, const wf_experts_bound *bound)
{
    const wf_moe_attr attr = wf_moe_attr_of(scale, bound);
    const void *const own = g->attr;
    const int outputs = g->n_out;

    g->attr = &attr;
    g->n_out = 1; /* nothing is kept */
    if (g->n_in > WF_MOE_DY)
        backward(g);
    else
        wf_op_experts.backward(g);
    g->attr = own;
    g->n_out = outputs;
}

/* ---- the reference, which makes an expert's matrices for each choice ---- */

/* Returns the factors' common rank. */
static int64_t rank_of(const wf_call *call)
{
    return wf_moe_factors(call)[WF_MOE_GATE_UP_A]->local[1];
}

static size_t workspace(const wf_call *call)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);

    return (size_t)(6 * s.f * s.d + 3 * s.f) * sizeof(double);
}

static double *factor(const wf_tensor *t, int64_t expert)
{
    return (double *)t->data + expert * t->local[1] * t->local[2];
}

/* w[m, n] = base + scale b[m, r] a[r, n]. */
static void adapt(const double *base, double scale, const double *b, const double *a, int64_t m,
                  int64_t n, int64_t rank, double *w)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            w[i * n + j] = base[i * n + j];
            for (int64_t r = 0; r < rank; r++)
                w[i * n + j] += scale * b[i * rank + r] * a[r * n + j];
        }
}

/* Adds to db and da what dw, the gradient of base + scale b a, is of them. */
static void add_factors(const double *dw, double scale, const double *b, const double *a,
                        int64_t m, int64_t n, int64_t rank, double *db, double *da)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t r = 0; r < rank; r++) {
                db[i * rank + r] += scale * dw[i * n + j] * a[r * n + j];
                da[r * n + j] += scale * dw[i * n + j] * b[i * rank + r];
            }
}

/* Makes the matrices of a choice's expert, and runs it; -1 where another rank has it, else its
   index here. */
static int64_t choose(const wf_call *call, const wf_moe_sizes *s, int64_t choice, double *room,
                      wf_moe_one *at)
{
    const double scale = (double)((const wf_moe_attr *)call->attr)->scale;
    const int64_t size = s->f * s->d, rank = rank_of(call);
    wf_tensor *const *t = wf_moe_factors(call);
    int64_t e = (int64_t)((const double *)call->in[WF_MOE_INDEX]->data)[choice] - s->first;
    double *h = room + 3 * size;

    if (e < 0 || e >= s->experts)
        return -1;
    adapt(factor(call->in[WF_MOE_GATE], e), scale, factor(t[WF_MOE_GATE_B], e),
          factor(t[WF_MOE_GATE_UP_A], e), s->f, s->d, rank, room);
    adapt(factor(call->in[WF_MOE_UP], e), scale, factor(t[WF_MOE_UP_B], e),
          factor(t[WF_MOE_GATE_UP_A], e), s->f, s->d, rank, room + size);
    adapt(factor(call->in[WF_MOE_DOWN], e), scale, factor(t[WF_MOE_DOWN_B], e),
          factor(t[WF_MOE_DOWN_A], e), s->d, s->f, rank, room + 2 * size);
    *at = (wf_moe_one){.gate = room,
                       .up = room + size,
                       .down = room + 2 * size,
                       .x = (const double *)call->in[WF_MOE_X]->data + choice / s->k * s->d,
                       .g = h,
                       .u = h + s->f,
                       .h = h + 2 * s->f};
    wf_moe_one_forward(at, s);
    return e;
}

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

static wf_status reference(const wf_call *call, void *room)
{
    return wf_moe_reference(call, room, choose);
}

/* Adds the gradients of a choice's expert, which dw[3] are of whole matrices. */
static void add_expert(const wf_call *call, const wf_moe_sizes *s, int64_t e, double *const *dw)
{
    const double scale = (double)((const wf_moe_attr *)call->attr)->scale;
    const int64_t rank = rank_of(call);
    wf_tensor *const *t = wf_moe_factors(call);

    add_factors(dw[0], scale, factor(t[WF_MOE_GATE_B], e), factor(t[WF_MOE_GATE_UP_A], e), s->f,
                s->d, rank, factor(call->out[WF_MOE_GATE_B], e),
                factor(call->out[WF_MOE_GATE_UP_A], e));
    add_factors(dw[1], scale, factor(t[WF_MOE_UP_B], e), factor(t[WF_MOE_GATE_UP_A], e), s->f,
                s->d, rank, factor(call->out[WF_MOE_UP_B], e),
                factor(call->out[WF_MOE_GATE_UP_A], e));
    add_factors(dw[2], scale, factor(t[WF_MOE_DOWN_B], e), factor(t[WF_MOE_DOWN_A], e), s->d,
                s->f, rank, factor(call->out[WF_MOE_DOWN_B], e),
                factor(call->out[WF_MOE_DOWN_A], e));
}

static wf_status reference_grad(const wf_call *call, void *room)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    double *dx = call->out[WF_MOE_FACTORS]->data, *dw = call->out[WF_MOE_FACTORS + 1]->data;
    double *first = (double *)room + 3 * s.f * s.d + 3 * s.f;
    double *const dweight[] = {first, first + s.f * s.d, first + 2 * s.f * s.d};

    if (wf_moe_check(call, as_double) != WF_OK)
        return WF_EINVAL;
    for (int o = 0; o < call->n_out; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[o]); i++)
            ((double *)call->out[o]->data)[i] = 0;
    for (int64_t c = 0; c < s.tokens * s.k; c++) {
        const double *dy = (const double *)call->in[WF_MOE_DY]->data + c / s.k * s.d;
        wf_moe_one at;
        int64_t e = choose(call, &s, c, room, &at);

        if (e < 0)
            continue;
        for (int64_t i = 0; i < 3 * s.f * s.d; i++)
            first[i] = 0;
        wf_moe_one_gradient(&at, &s, as_double(call->in[WF_MOE_WEIGHTS]->data, c), dy,
                            dx + c / s.k * s.d, dw + c, dweight);
        add_expert(call, &s, e, dweight);
    }
    return WF_OK;
}

/* Counts a product and a sum for each element of matrices, and for those of factors: of width d
   and of features f, so often each. */
static double products(const wf_call *call, double matrices, double of_d, double of_f)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    const double share = s.all ? (double)s.experts / (double)s.all : 0;
    const double d = (double)s.d, f = (double)s.f;

    return 2 * (double)s.tokens * (double)s.k * share *
           (matrices * d * f + (double)rank_of(call) * (of_d * d + of_f * f));
}

static double forward_flops(const wf_call *call)
{
    return products(call, 3, 2, 3);
}

static double grad_flops(const wf_call *call)
{
    return products(call, 5, 5, 9);
}

/* Returns that without what recomputes gate and up. */
static double grad_model_flops(const wf_call *call)
{
    return grad_flops(call) * 3 / 5;
}

static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    return wf_moe_shape(call, out, WF_MOE_DY + 1, ndim, dims);
}

enum { EVERY = WF_SAVE_IN(WF_MOE_DY + WF_MOE_FACTORS) - 1 };

const wf_op wf_op_experts_adapted = {WF_OP_ROW(experts_adapted),
                                     .save = EVERY,
                                     .backward = backward,
                                     .reference = {.run = reference, .workspace = workspace},
                                     .shape = shape,
                                     .flops = forward_flops};
const wf_op wf_op_experts_adapted_grad = {
    WF_OP_ROW(experts_adapted_grad),
    .keep_fp32 = ((1 << WF_MOE_FACTORS) - 1) | 1 << (WF_MOE_FACTORS + 1),
    .reference = {.run = reference_grad, .workspace = workspace},
    .shape = shape,
    .flops = grad_flops,
    .model_flops = grad_model_flops};
