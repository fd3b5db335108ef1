/*
 * tests/kernels/test_ops_experts_part.c - experts of a part of their features, with adapters
 * and without: cases for op_harness.h.
 */
#include "kernels/experts_part.h"
#include "tests/kernels/moe_cases.h"

/* Rows of choices of a part of their features, their sum, and gradients, which have none. */
static wf_experts_operands part_of(wf_tensor *const *in)
{
    wf_experts_operands o = {.gate = in[0], .up = in[1], .down = in[2], .x = in[3]};

    wf_route(in[4], NULL, &(wf_route_options){.k = 3, .normalise = true}, &o.weights, &o.index);
    o.index = wf_route_capacity(o.index, &(wf_route_limit){.experts = MOE_EXPERTS, .most = 2});
    return o;
}

static void apply_part(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_operands o = part_of(in);
    const wf_experts_gradients d = wf_experts_part_grad(&o, in[5], false);

    out[0] = wf_experts_part(&o);
    out[1] = wf_experts_sum(o.weights, o.index, out[0], MOE_EXPERTS, false);
    out[2] = wf_experts_sum(NULL, o.index, d.rows, MOE_EXPERTS, false);
    out[3] = wf_experts_dot(d.c, d.h);
}

static void apply_matrices(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_operands o = part_of(in);
    const wf_experts_gradients d = wf_experts_part_grad(&o, in[5], true);

    out[0] = d.gate;
    out[1] = d.up;
    out[2] = d.down;
    out[3] = wf_experts_dot(d.c, d.h);
}

/* No operand wants a gradient, which none of these ops has. */
static void constants(op_case *c, int n_in)
{
    c->n_in = n_in;
    c->n_out = 4;
    c->in[n_in - 1] = c->in[3]; /* dy */
    for (int i = 0; i < c->n_in; i++)
        c->in[i] = op_unwanted(c->in[i]);
    for (int o = 0; o < c->n_out; o++)
        c->constant[o] = true;
}

static void part(op_case *c, const op_shape *s)
{
    moe_case(c, s, apply_part);
    constants(c, 6);
}

static void part_of_matrices(op_case *c, const op_shape *s)
{
    part(c, s);
    c->apply = apply_matrices;
}

/* Both halves of forward and of gradients, of experts with adapters: rows, and terms. */
static void apply_halves(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_operands o = part_of(in);
    const wf_experts_adapters a = moe_case_adapters(in);
    const wf_experts_hidden hidden = wf_experts_part_u(&o, &a);
    const wf_experts_terms t = wf_experts_part_v(&o, &a, in[10]);

    out[0] = wf_experts_part_y(&o, &a, &hidden);
    out[1] = hidden.u;
    out[2] = t.v;
    out[3] = wf_experts_dot(t.c, t.h);
}

static void apply_factors(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_operands o = part_of(in);
    const wf_experts_adapters a = moe_case_adapters(in);
    const wf_experts_hidden hidden = wf_experts_part_u(&o, &a);
    const wf_experts_terms t = wf_experts_part_v(&o, &a, in[10]);
    wf_experts_adapters d;

    wf_experts_part_factors(&o, &a, in[10], hidden.u, &t, &d);
    out[0] = d.gate_up_a;
    out[1] = d.up_b;
    out[2] = d.down_a;
    out[3] = d.down_b;
}

static void apply_rows(wf_tensor *const *in, wf_tensor **out)
{
    const wf_experts_operands o = part_of(in);
    const wf_experts_adapters a = moe_case_adapters(in);
    const wf_experts_terms t = wf_experts_part_v(&o, &a, in[10]);
    wf_tensor *const u = t.v; /* has its shape */
    wf_experts_adapters d;

    out[0] = wf_experts_part_factors(&o, &a, in[10], u, &t, &d);
    out[1] = d.gate_b;
    out[2] = t.dgate;
    out[3] = t.dup;
}

static void halves_of(op_case *c, const op_shape *s,
                      void (*apply)(wf_tensor *const *, wf_tensor **))
{
    moe_case(c, s, apply);
    moe_case_factors(c);
    constants(c, 11);
}

static void halves(op_case *c, const op_shape *s)
{
    halves_of(c, s, apply_halves);
}

static void halves_of_factors(op_case *c, const op_shape *s)
{
    halves_of(c, s, apply_factors);
}

static void halves_of_rows(op_case *c, const op_shape *s)
{
    halves_of(c, s, apply_rows);
}

static const op_entry cases[] = {{"part", part},
                                 {"part, matrices", part_of_matrices},
                                 {"halves", halves},
                                 {"halves, factors", halves_of_factors},
                                 {"halves, rows", halves_of_rows},
                                 {NULL, NULL}};

int main(void)
{
    return op_main(OP_SUITE_PART, cases, NULL);
}
