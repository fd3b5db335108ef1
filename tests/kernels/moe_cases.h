/* tests/kernels/moe_cases.h - operands of experts, with adapters and without, for the programs
   that try their ops. */
#ifndef WF_TESTS_KERNELS_MOE_CASES_H
#define WF_TESTS_KERNELS_MOE_CASES_H

#include "kernels/moe.h"
#include "tests/kernels/op_harness.h"

enum { MOE_EXPERTS = 5 };

static inline op_operand moe_case_matrices(wf_dim a, wf_dim b)
{
    return (op_operand){.ndim = 3,
                        .dim = {wf_dim_experts(MOE_EXPERTS), a, b},
                        .wanted = true,
                        .low = -0.5,
                        .high = 0.5};
}

/* gate, up, down, x, and logits by which tokens choose. */
static inline void moe_case(op_case *c, const op_shape *s,
                            void (*apply)(wf_tensor *const *, wf_tensor **))
{
    wf_dim width = wf_dim_width(s->width), features = wf_dim_width(s->groups + 2);

    *c = op_case_of(5, 1, apply);
    c->in[0] = c->in[1] = moe_case_matrices(features, width);
    c->in[2] = moe_case_matrices(width, features);
    c->in[3] = op_activations(s, width);
    c->in[4] = op_activations(s, wf_dim_width(MOE_EXPERTS));
}

/* Adds the factors of adapters, operands 5 to 9. */
static inline void moe_case_factors(op_case *c)
{
    const wf_dim rank = wf_dim_width(3);

    c->n_in = 10;
    c->in[5] = moe_case_matrices(rank, c->in[0].dim[2]);
    c->in[6] = c->in[7] = moe_case_matrices(c->in[0].dim[1], rank);
    c->in[8] = moe_case_matrices(rank, c->in[0].dim[1]);
    c->in[9] = moe_case_matrices(c->in[0].dim[2], rank);
}

static inline wf_experts_adapters moe_case_adapters(wf_tensor *const *in)
{
    return (wf_experts_adapters){.gate_up_a = in[5],
                                 .gate_b = in[6],
                                 .up_b = in[7],
                                 .down_a = in[8],
                                 .down_b = in[9],
                                 .scale = 0.75F};
}

#endif
