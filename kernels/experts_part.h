/*
 * kernels/experts_part.h - experts of a part of their features: for ranks that split the
 * features of each expert, and sum what they make of a token before it is summed over experts.
 *
 *     rows = wf_experts_part(..)          a row for each choice, a sum over features
 *     y = wf_experts_sum(weights, index, rows)
 */
#ifndef WF_KERNELS_EXPERTS_PART_H
#define WF_KERNELS_EXPERTS_PART_H

#include "kernels/moe.h"

WF_BEGIN_DECLS

/** wf_experts_operands - those of wf_experts; features of gate, up and down may be split. */
typedef struct wf_experts_operands {
    wf_tensor *gate, *up, *down, *x, *weights, *index;
    wf_experts_bound bound; /* as in wf_experts */
} wf_experts_operands;

/**
 * wf_experts_part - returns what the chosen experts make of tokens, a row for each choice,
 * without weights
 *
 * Layout:      "emd!,emd!,ed!m,b...d!,b...k!,b...k!->b...k!d!": split features m leave a
 *              partial sum, as split experts do, of which one term is picked
 * Collective:  no
 * Owner:       scope
 * Errors:      as wf_experts; result is then NULL
 * Gradient:    by wf_experts_part_grad: nothing is recorded
 */
WF_API wf_tensor *wf_experts_part(const wf_experts_operands *in);

/** wf_experts_gradients - results of wf_experts_part_grad. */
typedef struct wf_experts_gradients {
    wf_tensor *gate, *up, *down; /* as these are; NULL where they are not asked for */
    /* a row of that of x for each choice: wf_experts_sum adds them */
    wf_tensor *rows;
    wf_tensor *c, *h; /* [.., k, m]: wf_experts_dot of both is that of weights */
} wf_experts_gradients;

/**
 * wf_experts_part_grad - fills in gradients of wf_experts, from that of the sum over experts
 *
 * @param dy        of all tokens, as x is
 * @param matrices  whether those of gate, up and down are wanted
 * Layout:      "emd!,emd!,ed!m,b...d!,b...k!,b...k!,b...d!->emd!,emd!,ed!m,b...k!d!,b...k!m,
 *              b...k!m"
 * Collective:  no
 * Owner:       scope
 * Errors:      as wf_experts; all are then NULL
 * Gradient:    none
 */
WF_API wf_experts_gradients wf_experts_part_grad(const wf_experts_operands *in, wf_tensor *dy,
                                                 bool matrices);

/**
 * wf_experts_sum - returns the sum of rows [.., k, d] over the experts of a token, as the tree
 * of wf_experts: each times its weight, and rounded before as wf_experts rounds it
 *
 * @param weights, index  [.., k], of wf_route; weights may be NULL, for 1
 * @param experts         the number of all experts
 * @param rounds          rows are rounded to bf16 first: where all operands of products are
 * Layout:      "b...k!,b...k!,b...k!d->b...d"; rows may be partial sums over ranks that split
 *              experts, each of which has those of its own
 * Collective:  no
 * Owner:       scope
 * Errors:      WF_EINVAL: indices as of wf_experts; result is then NULL
 * Gradient:    none: nothing is recorded
 */
WF_API wf_tensor *wf_experts_sum(wf_tensor *weights, wf_tensor *index, wf_tensor *rows,
                                 int64_t experts, bool rounds);

/**
 * wf_experts_dot - returns the gradient of weights, the sum of c h over all features of the
 * chosen expert, as wf_experts adds it
 *
 * @param c, h  [.., k, t], t features; partial alike where ranks split experts
 * Layout:      "b...k!t!,b...k!t!->b...k!"
 * Collective:  no
 * Owner:       scope
 * Gradient:    none: nothing is recorded
 */
WF_API wf_tensor *wf_experts_dot(wf_tensor *c, wf_tensor *h);

/** wf_experts_hidden - rows of choices between the two halves of experts with adapters. */
typedef struct wf_experts_hidden {
    wf_tensor *h; /* [.., k, m]: silu(gate x) * up x */
    wf_tensor *u; /* [.., k, r]: down_a h, a sum over features that is to be made complete */
} wf_experts_hidden;

/**
 * wf_experts_part_u, wf_experts_part_y - wf_experts_part of experts with adapters, up to the
 * sum over features that down's second factor takes and from it on: in->weights is not read
 *
 * @param u  complete over the ranks that split features
 * Layout:      rows of choices are partial sums where experts are split, of which one term is
 *              picked. "emd!,emd!,b...d!,b...k!,er!d!,emr!,emr!,er!m->b...k!m,b...k!r!", u
 *              partial where features are split; "emd,edm,b...d,b...k!,edr!,b...k!m,b...k!r!->
 *              b...k!d", whose term of u the rank of the last features adds
 * Collective:  no
 * Owner:       scope
 * Errors:      as wf_experts; results are then NULL
 * Gradient:    by the functions below: nothing is recorded
 */
WF_API wf_experts_hidden wf_experts_part_u(const wf_experts_operands *in,
                                           const wf_experts_adapters *adapters);
WF_API wf_tensor *wf_experts_part_y(const wf_experts_operands *in,
                                    const wf_experts_adapters *adapters,
                                    const wf_experts_hidden *hidden);

/** wf_experts_are_frozen - checks that gate, up and down want no gradient, as adapters of them
 * say: WF_EUNSUPPORTED, in the context. */
WF_API wf_status wf_experts_are_frozen(wf_context *ctx, const wf_experts_operands *in);

/** wf_experts_terms - rows of choices between the two halves of gradients. */
typedef struct wf_experts_terms {
    wf_tensor *c, *h;       /* as in wf_experts_gradients */
    wf_tensor *dgate, *dup; /* [.., k, m] */
    /* [.., k, r]: dgate gate_b + dup up_b, a sum over features that is to be made complete */
    wf_tensor *v;
} wf_experts_terms;

/**
 * wf_experts_part_v, wf_experts_part_factors - fill in gradients of experts with adapters, from
 * that of the sum over experts
 *
 * @param dy     of all tokens, as x is
 * @param u      of wf_experts_part_u, and
 * @param terms  with v, complete over the ranks that split features
 * @param d      filled in, each as its factor is; d->scale is not
 * Returns: rows of that of x, as in wf_experts_gradients
 * Layout:      as of wf_experts_part_grad, rows of choices partial where experts are split
 * Collective:  no
 * Owner:       scope
 * Errors:      as wf_experts; all are then NULL
 * Gradient:    none
 */
WF_API wf_experts_terms wf_experts_part_v(const wf_experts_operands *in,
                                          const wf_experts_adapters *adapters, wf_tensor *dy);
WF_API wf_tensor *wf_experts_part_factors(const wf_experts_operands *in,
                                          const wf_experts_adapters *adapters, wf_tensor *dy,
                                          wf_tensor *u, const wf_experts_terms *terms,
                                          wf_experts_adapters *d);

WF_END_DECLS

#endif
