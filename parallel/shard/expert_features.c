/*
 * parallel/shard/expert_features.c - experts whose features ranks split: each computes a part
 * of what an expert makes of a token, and of its gradient.
 *
 * A sum over features is complete before the sum over experts, so what ranks add are rows of
 * choices, k of a token. Each rank takes those of some tokens, adds them up by experts, and
 * gives the sums to the others. A weight's gradient is the product of two rows of features, in
 * one order: they are brought together by tokens, too.
 *
 * Adapters take two more such sums, of as many numbers as their rank: u = A h before down's B,
 * v = B^T dgate + B^T dup before the A of gate and up. All ranks have these, u from forward.
 */
#include "kernels/experts_part.h"
#include "nn/layers/moe.h"
#include "parallel/shard/sharding_plan_internal.h"

enum { GATE, UP, DOWN, X, WEIGHTS, INDEX, OPERANDS };

/* Factors of adapters, which are operands after these. */
enum { GATE_UP_A = OPERANDS, GATE_B, UP_B, DOWN_A, DOWN_B, ADAPTED };

/* The attributes of the op that the tape has. */
typedef struct split {
    int64_t experts;
    wf_experts_bound bound;
    float scale; /* the adapters' */
    int axis;
    bool shares; /* sums are left split by tokens, for a border to bring them home */
} split;

/* Returns a layout whose tokens are split over the axis, or which is whole there. */
static const wf_layout *layout_of(wf_mesh *mesh, const split *s, const wf_tensor *t,
                                  bool tokens)
{
    const wf_layout *whole = wf_layout_whole(mesh, t->layout, s->axis);

    return tokens ? wf_layout_split(mesh, whole, 1, s->axis) : whole;
}

/* Splits tensors by tokens, or makes them whole, all together. */
static wf_status move(wf_context *ctx, const split *s, bool tokens, int n, wf_tensor **x)
{
    const wf_layout *to[OPERANDS];

    for (int i = 0; i < n; i++) {
        if (!x[i])
            return wf_context_status(ctx);
        to[i] = layout_of(wf_mesh_of(ctx), s, x[i], tokens);
    }
    return wf_move_run(ctx, n, x, to, x);
}

static wf_experts_operands operands_of(const split *s, wf_tensor *const *in)
{
    return (wf_experts_operands){in[GATE],    in[UP],    in[DOWN], in[X],
                                 in[WEIGHTS], in[INDEX], s->bound};
}

static wf_experts_adapters adapters_of(const split *s, wf_tensor *const *in)
{
    return (wf_experts_adapters){in[GATE_UP_A], in[GATE_B], in[UP_B],
                                 in[DOWN_A],    in[DOWN_B], s->scale};
}

/* Returns true where products are of bf16 operands, whose results are rounded: where all of
   them are stored so, or in 4 bits for such. */
static bool rounds(wf_context *ctx, wf_tensor *const *in, int n)
{
    bool all = wf_context_compute(ctx) == WF_BF16;

    for (int i = GATE; i < n; i++)
        all &= i == WEIGHTS || i == INDEX ||
               (in[i] && (in[i]->dtype == WF_NF4 ? in[i]->rounds_to : in[i]->dtype) == WF_BF16);
    return all;
}

/* Returns the sums over experts of rows, of all tokens or of those that this rank takes;
   weights and indices are of those. */
static wf_tensor *sum_rows(wf_context *ctx, const split *s, wf_tensor *weights,
                           wf_tensor *index, wf_tensor *rows, bool rounds)
{
    wf_tensor *y = wf_experts_sum(weights, index, rows, s->experts, rounds);

    return s->shares || (y && move(ctx, s, false, 1, &y) == WF_OK) ? y : NULL;
}

/* Rows of a gradient, each where its choice is: of x, and the terms of that of weights. */
typedef struct gradient_rows {
    wf_tensor *x, *c, *h;
} gradient_rows;

/* Makes gradients of x and weights of rows, which ranks add. */
static void finish(wf_gradient *g, const gradient_rows *rows)
{
    enum { ROWS, C, H, OF_TOKENS };
    const split *s = g->attr;
    wf_tensor *t[OF_TOKENS] = {rows->x, rows->c, rows->h}, *index = g->in[INDEX], *dw;

    if (move(g->ctx, s, true, OF_TOKENS, t) != WF_OK ||
        move(g->ctx, s, true, 1, &index) != WF_OK)
        return;
    dw = wf_experts_dot(t[C], t[H]);
    if (!dw || move(g->ctx, s, false, 1, &dw) != WF_OK)
        return;
    g->din[X] = sum_rows(g->ctx, s, NULL, index, t[ROWS],
                         rounds(g->ctx, g->in, g->n_in) && g->dout[0]->dtype == WF_BF16);
    g->din[WEIGHTS] = dw;
}

static void backward(wf_gradient *g)
{
    const split *s = g->attr;
    const wf_experts_operands in = operands_of(s, g->in);
    const bool all =
        g->in[GATE]->requires_grad || g->in[UP]->requires_grad || g->in[DOWN]->requires_grad;
    wf_tensor *dy = g->dout[0];
    wf_experts_gradients d;

    if (move(g->ctx, s, false, 1, &dy) != WF_OK)
        return;
    d = wf_experts_part_grad(&in, dy, all);
    g->din[GATE] = d.gate;
    g->din[UP] = d.up;
    g->din[DOWN] = d.down;
    finish(g, &(gradient_rows){d.rows, d.c, d.h});
}

static void adapted_backward(wf_gradient *g)
{
    const split *s = g->attr;
    const wf_experts_operands in = operands_of(s, g->in);
    const wf_experts_adapters a = adapters_of(s, g->in);
    wf_tensor *dy = g->dout[0], *rows;
    wf_experts_adapters d;
    wf_experts_terms t;

    if (wf_experts_are_frozen(g->ctx, &in) != WF_OK || move(g->ctx, s, false, 1, &dy) != WF_OK)
        return;
    t = wf_experts_part_v(&in, &a, dy);
    if (move(g->ctx, s, false, 1, &t.v) != WF_OK)
        return;
    rows = wf_experts_part_factors(&in, &a, dy, g->out[1], &t, &d);
    g->din[GATE_UP_A] = d.gate_up_a;
    g->din[GATE_B] = d.gate_b;
    g->din[UP_B] = d.up_b;
    g->din[DOWN_A] = d.down_a;
    g->din[DOWN_B] = d.down_b;
    finish(g, &(gradient_rows){rows, t.c, t.h});
}

static const wf_op features_op = {.name = "experts_of_features",
                                  .signature = "",
                                  .save = WF_SAVE_IN(OPERANDS) - 1,
                                  .backward = backward};

/* The second output is u, complete. */
static const wf_op adapted_op = {.name = "experts_of_features",
                                 .signature = "",
                                 .save = (WF_SAVE_IN(ADAPTED) - 1) | WF_SAVE_OUT(1),
                                 .backward = adapted_backward};

/* Takes the operands of a mixture, to which x, weights and indices come. */
static void take(wf_call *call, wf_nn_moe *m, wf_tensor *const *x)
{
    wf_nn_parameter *const base[] = {m->gate, m->up, m->down};
    wf_nn_parameter *const factors[] = {m->lora_gate_up_a, m->lora_gate_b, m->lora_up_b,
                                        m->lora_down_a, m->lora_down_b};

    call->n_in = factors[0] ? ADAPTED : OPERANDS;
    call->n_out = factors[0] ? 2 : 1;
    call->op = factors[0] ? &adapted_op : &features_op;
    for (int i = 0; i < call->n_in; i++)
        call->in[i] = i >= X && i <= INDEX
                          ? x[i - X]
                          : wf_nn_use(m, i < X ? base[i] : factors[i - OPERANDS]);
}

/* Returns rows of choices, of this rank's features; u: filled in where there are adapters. */
static wf_tensor *make_rows(wf_context *ctx, const split *s, wf_call *call)
{
    const wf_experts_operands in = operands_of(s, call->in);
    wf_experts_adapters a;
    wf_experts_hidden hidden;

    if (call->n_in == OPERANDS)
        return wf_experts_part(&in);
    a = adapters_of(s, call->in);
    hidden = wf_experts_part_u(&in, &a);
    if (move(ctx, s, false, 1, &hidden.u) != WF_OK)
        return NULL;
    call->out[1] = hidden.u;
    return wf_experts_part_y(&in, &a, &hidden);
}

void wf_par_compute_experts(const wf_par_plan_hook *p, wf_tensor **x)
{
    wf_context *ctx = p->par->ctx;
    wf_nn_moe *m = (wf_nn_moe *)p->module;
    const split s = {
        .experts = m->gate->tensor->dim[0].size,
        .bound = wf_nn_moe_bound(m),
        .scale = m->lora_scale,
        .axis = p->axis,
        .shares = p->par->cp_axis < 0,
    };
    wf_call call = {.ctx = ctx, .attr = &s, .attr_size = sizeof s};
    wf_tensor *own[3];

    take(&call, m, x);
    wf_scope_open(ctx);
    own[0] = make_rows(ctx, &s, &call);
    own[1] = x[1];
    own[2] = x[2];
    if (move(ctx, &s, true, 3, own) == WF_OK)
        call.out[0] =
            sum_rows(ctx, &s, own[1], own[2], own[0], rounds(ctx, call.in, call.n_in));
    if (call.out[0] && wf_tape_record(&call) != WF_OK)
        call.out[0] = NULL;
    x[0] = wf_scope_return(ctx, call.out[0]);
    x[1] = NULL;
}
