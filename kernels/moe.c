/*
 * kernels/moe.c - what experts make of the tokens that chose them (kernels/moe.h): SwiGLU
 * experts gate, up [e, f, d] and down [e, d, f], grouped by a table of indices.
 *
 *     experts       y[t] = sum over chosen e of w_e down_e h_e, h = silu(gate_e x) * up_e x
 *     experts_dx    dx and dw: with c = down_e^T dy, dw_e = c . h, dh = w_e c
 *     experts_grad  these, and dgate_e, dup_e, ddown_e, a chunk per sequence
 *
 * A rank that has all experts keeps gate_e x and up_e x of each choice for gradients, k rows of
 * a token whatever tokens choose; where experts are split, the number of a rank's rows is up to
 * the tokens, and gradients recompute them from x. The CPU's kernels are in kernels/cpu/moe.c
 * and kernels/cpu/moe_grad.c.
 */
#include "kernels/moe_internal.h"
#include "core/numerics/math.h"
#include "core/tape.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The rows of experts, experts_dx and experts_grad, with gate_e x and up_e x of each choice as
   two more outputs or operands, [.., k, f]. Their order is the kernel's own: no other op reads
   them. */
static const wf_op with_kept, dx_of_kept, grad_of_kept;

/* Returns the type that results are stored as now, which is that of `like` or another. */
static wf_dtype stored_as(const wf_tensor *like)
{
    const wf_dtype now = wf_context_storage(like->ctx, like->dtype);

    wf_context_storage(like->ctx, now);
    return now;
}

/* Returns true where a call of wf_op_experts keeps gate_e x and up_e x: a tape wants them, this
   rank has all experts, and they are stored as the products give them. */
static bool keeps(const wf_call *call)
{
    const wf_tensor *gate = call->in[WF_MOE_GATE];
    bool wanted = false;

    for (int i = 0; i < call->n_in; i++) {
        const wf_tensor *t = call->in[i];

        if (!t || (i <= WF_MOE_X && t->dtype != call->in[0]->dtype))
            return false;
        wanted |= t->requires_grad;
    }
    return wanted && wf_context_recording(gate->ctx) && gate->local[0] == gate->dim[0].size &&
           (gate->dtype == WF_BF16 ? wf_context_compute(gate->ctx) == WF_BF16
                                   : gate->dtype == wf_context_device(gate->ctx)->dtype) &&
           stored_as(gate) == gate->dtype;
}

wf_tensor *wf_experts(wf_tensor *gate, wf_tensor *up, wf_tensor *down, wf_tensor *x,
                      wf_tensor *weights, wf_tensor *index, const wf_experts_bound *bound)
{
    const wf_moe_attr attr = wf_moe_attr_of(0, bound);
    wf_call call = {.op = &wf_op_experts,
                    .n_in = 6,
                    .n_out = 1,
                    .in = {gate, up, down, x, weights, index},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    if (attr.buffer == 0 && keeps(&call)) {
        call.op = &with_kept;
        call.n_out = 1 + WF_MOE_KEPT;
    }
    wf_dispatch(&call);
    return call.out[0];
}

wf_moe_sizes wf_moe_sizes_of(const wf_call *call)
{
    return wf_moe_sizes_at(call, wf_context_exact(call->ctx));
}

wf_status wf_moe_check_choices(const wf_call *call, const wf_tensor *index,
                               const wf_moe_sizes *s, double (*at)(const void *data, int64_t e))
{
    double before = -1;

    if (s->k > WF_ROUTE_MOST)
        return wf_fail(call->ctx, WF_ESHAPE, "%s: %" PRId64 " experts of a token, at most %d",
                       call->op->name, s->k, WF_ROUTE_MOST);
    for (int64_t i = 0; i < s->tokens * s->k; i++) {
        const double e = at(index->data, i);

        before = i % s->k ? before : -1;
        if (e == (double)s->all)
            continue; /* no expert's */
        if (!(e > before && wf_moe_is_expert(e, s->all)))
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: choice %" PRId64 " of token %" PRId64 " is %g after %g, of "
                           "%" PRId64 " experts: give it whole numbers that ascend, as "
                           "wf_route makes them",
                           call->op->name, i % s->k, i / s->k, e, before, s->all);
        before = e;
    }
    return WF_OK;
}

wf_status wf_moe_check(const wf_call *call, double (*at)(const void *data, int64_t e))
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);

    return wf_moe_check_choices(call, call->in[WF_MOE_INDEX], &s, at);
}

/* Leaves' gradients are made with those of tokens, in the walk that needs the first of them: to
   make gate, up and h once more costs more. */
static void backward(wf_gradient *g)
{
    const bool kept = g->n_out > 1;
    bool all = g->in[WF_MOE_GATE]->requires_grad || g->in[WF_MOE_UP]->requires_grad ||
               g->in[WF_MOE_DOWN]->requires_grad;
    wf_call call = {.n_in = WF_MOE_DY + 1,
                    .n_out = all ? 5 : 2,
                    .attr = g->attr,
                    .attr_size = sizeof(wf_moe_attr)};

    if (kept)
        call.op = all ? &grad_of_kept : &dx_of_kept;
    else
        call.op = all ? &wf_op_experts_grad : &wf_op_experts_dx;
    for (int i = 0; i < WF_MOE_DY; i++)
        call.in[i] = g->in[i];
    call.in[WF_MOE_DY] = g->dout[0];
    for (int i = 0; i < WF_MOE_KEPT && kept; i++)
        call.in[call.n_in++] = g->out[1 + i];
    wf_dispatch(&call);
    for (int o = 0; o < call.n_out; o++)
        g->din[all ? o : WF_MOE_X + o] = call.out[o];
}

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

static size_t workspace(const wf_call *call)
{
    return (size_t)wf_moe_sizes_of(call).f * 3 * sizeof(double);
}

void wf_moe_one_forward(const wf_moe_one *at, const wf_moe_sizes *s)
{
    for (int64_t j = 0; j < s->f; j++) {
        at->g[j] = at->u[j] = 0;
        for (int64_t i = 0; i < s->d; i++) {
            at->g[j] += at->gate[j * s->d + i] * at->x[i];
            at->u[j] += at->up[j * s->d + i] * at->x[i];
        }
        at->h[j] = at->g[j] / (1 + wf_expd(-at->g[j])) * at->u[j];
    }
}

int64_t wf_moe_choose_expert(const wf_call *call, const wf_moe_sizes *s, int64_t choice,
                             double *room, wf_moe_one *at)
{
    int64_t e = (int64_t)as_double(call->in[WF_MOE_INDEX]->data, choice) - s->first;

    if (e < 0 || e >= s->experts)
        return -1;
    *at = (wf_moe_one){.gate = (const double *)call->in[WF_MOE_GATE]->data + e * s->f * s->d,
                       .up = (const double *)call->in[WF_MOE_UP]->data + e * s->f * s->d,
                       .down = (const double *)call->in[WF_MOE_DOWN]->data + e * s->d * s->f,
                       .x = (const double *)call->in[WF_MOE_X]->data + choice / s->k * s->d,
                       .g = room,
                       .u = room + s->f,
                       .h = room + 2 * s->f};
    wf_moe_one_forward(at, s);
    return e;
}

wf_status wf_moe_reference(const wf_call *call, double *room, wf_moe_choose *choose_one)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    double *y = call->out[0]->data;
    wf_moe_one at;

    if (wf_moe_check(call, as_double) != WF_OK)
        return WF_EINVAL;
    for (int64_t i = 0; i < s.tokens * s.d; i++)
        y[i] = 0;
    for (int64_t c = 0; c < s.tokens * s.k; c++) {
        double w = ((const double *)call->in[WF_MOE_WEIGHTS]->data)[c];

        if (choose_one(call, &s, c, room, &at) < 0)
            continue;
        for (int o = 1; o < call->n_out; o++)
            memcpy((double *)call->out[o]->data + c * s.f, o == 1 ? at.g : at.u,
                   (size_t)s.f * sizeof(double));
        for (int64_t i = 0; i < s.d; i++)
            for (int64_t j = 0; j < s.f; j++)
                y[c / s.k * s.d + i] += w * at.down[i * s.f + j] * at.h[j];
    }
    return WF_OK;
}

static wf_status reference(const wf_call *call, void *room)
{
    return wf_moe_reference(call, room, wf_moe_choose_expert);
}

void wf_moe_one_gradient(const wf_moe_one *at, const wf_moe_sizes *s, double w,
                         const double *dy, double *dx, double *dw, double *const *dweight)
{
    for (int64_t j = 0; j < s->f; j++) {
        double sigmoid = 1 / (1 + wf_expd(-at->g[j])), c = 0, dg, du;

        for (int64_t i = 0; i < s->d; i++)
            c += at->down[i * s->f + j] * dy[i];
        *dw += c * at->h[j];
        dg = w * c * at->u[j] * sigmoid * (1 + at->g[j] * (1 - sigmoid));
        du = w * c * at->g[j] * sigmoid;
        for (int64_t i = 0; i < s->d; i++)
            dx[i] += dg * at->gate[j * s->d + i] + du * at->up[j * s->d + i];
        for (int64_t i = 0; i < s->d && dweight[0]; i++) {
            dweight[0][j * s->d + i] += dg * at->x[i];
            dweight[1][j * s->d + i] += du * at->x[i];
            dweight[2][i * s->f + j] += w * dy[i] * at->h[j];
        }
    }
}

static wf_status reference_grad(const wf_call *call, void *room)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    const int first = call->n_out - 2; /* the output that is dx */
    double *dx = call->out[first]->data, *dw = call->out[first + 1]->data;

    if (wf_moe_check(call, as_double) != WF_OK)
        return WF_EINVAL;
    for (int o = 0; o < call->n_out; o++)
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[o]); i++)
            ((double *)call->out[o]->data)[i] = 0;
    for (int64_t c = 0; c < s.tokens * s.k; c++) {
        double w = ((const double *)call->in[WF_MOE_WEIGHTS]->data)[c], *dweight[3] = {NULL};
        const double *dy = (const double *)call->in[WF_MOE_DY]->data + c / s.k * s.d;
        wf_moe_one at;

        if (wf_moe_choose_expert(call, &s, c, room, &at) < 0)
            continue;
        for (int o = 0; o < first; o++)
            dweight[o] = (double *)call->out[o]->data +
                         (at.gate - (const double *)call->in[WF_MOE_GATE]->data);
        wf_moe_one_gradient(&at, &s, w, dy, dx + c / s.k * s.d, dw + c, dweight);
    }
    return WF_OK;
}

/* Counts a product and a sum for each element of three matrices; experts take tokens alike, as
   far as a plan knows. */
static double products(const wf_call *call, double count)
{
    const wf_moe_sizes s = wf_moe_sizes_of(call);
    double share = s.all ? (double)s.experts / (double)s.all : 0;

    return 2 * count * (double)s.tokens * (double)s.k * share * (double)s.d * (double)s.f;
}

double wf_moe_forward_flops(const wf_call *call)
{
    return products(call, 3);
}

double wf_moe_dx_flops(const wf_call *call)
{
    return products(call, 5);
}

double wf_moe_grad_flops(const wf_call *call)
{
    return products(call, 8);
}

double wf_moe_kept_dx_flops(const wf_call *call)
{
    return products(call, 3);
}

double wf_moe_kept_grad_flops(const wf_call *call)
{
    return products(call, 6);
}

wf_status wf_moe_shape_check(const wf_call *call)
{
    const wf_dim experts = call->in[WF_MOE_GATE]->dim[0];
    const wf_moe_attr *attr = call->attr;

    if (attr && !(attr->buffer >= 0))
        return wf_fail(
            call->ctx, WF_EINVAL,
            "%s: room for %g times the rows of equal loads: give a number above 0, or "
            "0 for the rows of any choice",
            call->op->name, (double)attr->buffer);
    if (attr && attr->taken < 0)
        return wf_fail(call->ctx, WF_EINVAL,
                       "%s: experts that have %" PRId64 " tokens of a sequence at most: give 1 "
                       "or more, or 0 for all",
                       call->op->name, attr->taken);
    if (!wf_dim_equal(experts, wf_dim_experts(experts.size)))
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: dim 0 of operand 0 has %" PRId64 " experts, grain %" PRId64
                       " and chunks %d; make it wf_dim_experts",
                       call->op->name, experts.size, experts.grain, experts.chunks);
    return WF_OK;
}

wf_status wf_moe_shape(const wf_call *call, int out, int like, int *ndim, wf_dim *dims)
{
    const int rows = call->n_out > 1 ? call->n_out - 2 : 0; /* the output like x */
    const wf_tensor *as = call->in[out < rows ? like + out : WF_MOE_X + out - rows];

    if (wf_moe_shape_check(call) != WF_OK)
        return wf_context_status(call->ctx);
    *ndim = as->ndim;
    memcpy(dims, as->dim, sizeof as->dim);
    return WF_OK;
}

/* Outputs have the shapes of operands; here the experts are held to be such, for every caller
   of these ops: their sum has a chunk for each. */
static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    return wf_moe_shape(call, out, WF_MOE_GATE, ndim, dims);
}

/* Gives what is kept the dims of the indices, and an expert's features. */
static wf_status shape_with_kept(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *index = call->in[WF_MOE_INDEX], *gate = call->in[WF_MOE_GATE];

    if (index->ndim >= WF_MAX_DIMS)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: what is kept of %d dims of tokens has one more, at most %d",
                       call->op->name, index->ndim, WF_MAX_DIMS);
    if (out == 0)
        return wf_moe_shape(call, 0, WF_MOE_X, ndim, dims);
    *ndim = index->ndim + 1;
    memcpy(dims, index->dim, sizeof index->dim);
    dims[index->ndim] = gate->dim[1];
    return WF_OK;
}

enum { EVERY = WF_SAVE_IN(6) - 1 };

#define FORWARD                                                                                \
    .backward = backward, .reference = {.run = reference, .workspace = workspace},             \
    .flops = wf_moe_forward_flops
#define GRADIENT .reference = {.run = reference_grad, .workspace = workspace}, .shape = shape
#define DX       .keep_fp32 = 1 << 1
#define GRAD     .keep_fp32 = 7 | 1 << 4

const wf_op wf_op_experts = {WF_OP_ROW(experts), .save = EVERY, .shape = shape, FORWARD};
const wf_op wf_op_experts_dx = {WF_OP_ROW(experts_dx), GRADIENT, DX, .flops = wf_moe_dx_flops,
                                .model_flops = wf_moe_kept_dx_flops};
const wf_op wf_op_experts_grad = {WF_OP_ROW(experts_grad), GRADIENT, GRAD,
                                  .flops = wf_moe_grad_flops,
                                  .model_flops = wf_moe_kept_grad_flops};

#define TOKENS  "ef!d!,ef!d!,ed!f!,b...d!,b...k!,b...k!"
#define KEPT_OF "b...k!f!,b...k!f!"

static const wf_op with_kept = {.name = "experts",
                                .id = WF_ID_experts,
                                .signature = TOKENS "->b...d!," KEPT_OF,
                                .flags = WF_OP_EXPERTS,
                                .save = EVERY | WF_SAVE_OUT(1) | WF_SAVE_OUT(2),
                                .shape = shape_with_kept,
                                FORWARD};
static const wf_op dx_of_kept = {.name = "experts_dx",
                                 .id = WF_ID_experts_dx,
                                 .signature = TOKENS ",b...d!," KEPT_OF "->b...d!,b...k!",
                                 .flags = WF_OP_EXPERTS,
                                 GRADIENT,
                                 DX,
                                 .flops = wf_moe_kept_dx_flops};
static const wf_op grad_of_kept = {.name = "experts_grad",
                                   .id = WF_ID_experts_grad,
                                   .signature = TOKENS ",b...d!," KEPT_OF
                                                       "->ef!d!,ef!d!,ed!f!,b...d!,b...k!",
                                   .flags = WF_OP_OWN_SUMS | WF_OP_EXPERTS,
                                   GRADIENT,
                                   GRAD,
                                   .flops = wf_moe_kept_grad_flops};
