/*
 * parallel/shard/expert_features.c - experts whose features ranks split: each computes a part
 * of what an expert makes of a token, and of its gradient.
 *
 * A sum over features is complete before the sum over experts, so what ranks add are rows of
 * choices, k of a token. Each rank takes those of some tokens, adds them up by experts, and
 * gives the sums to the others. A weight's gradient is the product of two rows of features, in
 * one order: they are brought together by tokens, too.
 */
#include "kernels/experts_part.h"
#include "nn/layers/moe.h"
#include "parallel/shard/sharding_plan_internal.h"

enum { GATE, UP, DOWN, X, WEIGHTS, INDEX, OPERANDS };

/* The attributes of the op that the tape has. */
typedef struct split {
    int64_t experts;
    float buffer;
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
                                 in[WEIGHTS], in[INDEX], s->buffer};
}

/* Returns true where products are of bf16 operands, whose results are rounded: where all of
   them are stored so. */
static bool rounds(wf_context *ctx, wf_tensor *const *in)
{
    bool all = wf_context_compute(ctx) == WF_BF16;

    for (int i = GATE; i <= X; i++)
        all &= in[i] && in[i]->dtype == WF_BF16;
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

static void backward(wf_gradient *g)
{
    enum { ROWS, C, H, OF_TOKENS };
    const split *s = g->attr;
    const wf_experts_operands in = operands_of(s, g->in);
    const bool all =
        g->in[GATE]->requires_grad || g->in[UP]->requires_grad || g->in[DOWN]->requires_grad;
    wf_tensor *dy = g->dout[0], *t[OF_TOKENS], *index = g->in[INDEX], *dw;
    wf_experts_gradients d;

    if (move(g->ctx, s, false, 1, &dy) != WF_OK)
        return;
    d = wf_experts_part_grad(&in, dy, all);
    t[ROWS] = d.rows;
    t[C] = d.c;
    t[H] = d.h;
    if (move(g->ctx, s, true, OF_TOKENS, t) != WF_OK ||
        move(g->ctx, s, true, 1, &index) != WF_OK)
        return;
    dw = wf_experts_dot(t[C], t[H]);
    if (!dw || move(g->ctx, s, false, 1, &dw) != WF_OK)
        return;
    g->din[GATE] = d.gate;
    g->din[UP] = d.up;
    g->din[DOWN] = d.down;
    g->din[X] = sum_rows(g->ctx, s, NULL, index, t[ROWS],
                         rounds(g->ctx, g->in) && dy->dtype == WF_BF16);
    g->din[WEIGHTS] = dw;
}

static const wf_op features_op = {.name = "experts_of_features",
                                  .signature = "",
                                  .save = WF_SAVE_IN(OPERANDS) - 1,
                                  .backward = backward};

/* Refuses adapters: what their first factors make is a sum over features, too. */
static wf_status check(wf_context *ctx, const wf_nn_moe *m)
{
    return !m->lora_gate_up_a
               ? WF_OK
               : wf_fail(ctx, WF_EUNSUPPORTED,
                         "%s has adapters of experts, and .etp splits the features of each "
                         "expert: use .etp 1, with which ranks split experts",
                         m->base.path);
}

void wf_par_compute_experts(const wf_par_plan_hook *p, wf_tensor **x)
{
    wf_context *ctx = p->par->ctx;
    wf_nn_moe *m = (wf_nn_moe *)p->module;
    const split s = {
        .experts = m->gate->tensor->dim[0].size,
        .buffer = m->buffer,
        .axis = p->axis,
        .shares = p->par->cp_axis < 0,
    };
    wf_call call = {.op = &features_op,
                    .ctx = ctx,
                    .n_in = OPERANDS,
                    .n_out = 1,
                    .attr = &s,
                    .attr_size = sizeof s};
    wf_experts_operands in;
    wf_tensor *own[3];

    if (check(ctx, m) != WF_OK)
        return;
    call.in[GATE] = wf_nn_use(m, m->gate);
    call.in[UP] = wf_nn_use(m, m->up);
    call.in[DOWN] = wf_nn_use(m, m->down);
    for (int i = 0; i < 3; i++)
        call.in[X + i] = x[i];
    wf_scope_open(ctx);
    in = operands_of(&s, call.in);
    own[0] = wf_experts_part(&in);
    own[1] = x[1];
    own[2] = x[2];
    if (move(ctx, &s, true, 3, own) == WF_OK)
        call.out[0] = sum_rows(ctx, &s, own[1], own[2], own[0], rounds(ctx, call.in));
    if (call.out[0] && wf_tape_record(&call) != WF_OK)
        call.out[0] = NULL;
    x[0] = wf_scope_return(ctx, call.out[0]);
    x[1] = NULL;
}
