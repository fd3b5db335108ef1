/*
 * kernels/moe_internal.h - what the ops of kernels/moe.h and their kernels have in common: the
 * attributes of a router, and the sizes of a call of experts.
 */
#ifndef WF_KERNELS_MOE_INTERNAL_H
#define WF_KERNELS_MOE_INTERNAL_H

#include "kernels/moe.h"
#include "kernels/row_chunks_internal.h"

/* Operands of experts, experts_grad and experts_dx, which have dy after them; outputs of
   experts_grad. experts_dx has the last two of them. */
enum { WF_MOE_GATE, WF_MOE_UP, WF_MOE_DOWN, WF_MOE_X, WF_MOE_WEIGHTS, WF_MOE_INDEX, WF_MOE_DY };

/* Tensors that forward keeps for gradients: gate_e x and up_e x of each choice, outputs of
   experts after y, and operands after WF_MOE_DY. A call has both or none. */
enum { WF_MOE_KEPT = 2 };

/* Returns what a call keeps or has of forward, WF_MOE_KEPT tensors, or NULL. */
static inline wf_tensor *const *wf_moe_kept(const wf_call *call)
{
    if (call->op->id == WF_ID_experts)
        return call->n_out > 1 ? call->out + 1 : NULL;
    return (call->op->id == WF_ID_experts_dx || call->op->id == WF_ID_experts_grad) &&
                   call->n_in > WF_MOE_DY + 1
               ? call->in + WF_MOE_DY + 1
               : NULL;
}

/* Factors of adapters, which are operands after WF_MOE_INDEX, or after WF_MOE_DY, and the first
   outputs of experts_adapted_grad; dx and dw are its last ones, as of the others. */
enum {
    WF_MOE_GATE_UP_A,
    WF_MOE_GATE_B,
    WF_MOE_UP_B,
    WF_MOE_DOWN_A,
    WF_MOE_DOWN_B,
    WF_MOE_FACTORS
};

/* Name what has the type of products in the kernels of these ops (wf_kernel.all_bf16):
   operands, what is kept, and factors, of forward and of gradients; and outputs like x, which
   may have another type (wf_kernel.mixed_ok), where they are first, come after gradients of
   matrices, or after those of factors. */
enum {
    WF_MOE_FORWARD = WF_IN(WF_MOE_X + 1) - 1,
    WF_MOE_FORWARD_KEPT = WF_OUT(1) | WF_OUT(2),
    WF_MOE_FORWARD_FACTORS = (WF_IN(WF_MOE_FACTORS) - 1) << WF_MOE_DY,
    WF_MOE_GRAD = WF_MOE_FORWARD | WF_IN(WF_MOE_DY),
    WF_MOE_GRAD_KEPT = (WF_IN(WF_MOE_KEPT) - 1) << (WF_MOE_DY + 1),
    WF_MOE_GRAD_FACTORS = (WF_IN(WF_MOE_FACTORS) - 1) << (WF_MOE_DY + 1),
    WF_MOE_DX = WF_OUT(0),
    WF_MOE_DX_OF_ALL = WF_OUT(3),
    WF_MOE_DX_ADAPTED = WF_OUT(WF_MOE_FACTORS)
};

/* Attributes of these ops. */
typedef struct wf_moe_attr {
    float scale;   /* as in wf_experts_adapters */
    float buffer;  /* as in wf_experts_bound, and */
    int64_t taken; /* as there */
} wf_moe_attr;

/* Returns the attributes of an op; bound may be NULL. */
static inline wf_moe_attr wf_moe_attr_of(float scale, const wf_experts_bound *bound)
{
    return (wf_moe_attr){scale, bound ? bound->buffer : 0, bound ? bound->taken : 0};
}

/* Attributes of experts_sum. */
typedef struct wf_experts_sum_attr {
    int64_t experts;    /* their number, of which the tree is */
    int64_t unweighted; /* not 0: each row counts once, and the first operand is not read */
    int64_t rounds;     /* not 0: rows are rounded to bf16 first */
} wf_experts_sum_attr;

/* Returns true for the ops of a part of experts' features that have adapters, each up to a sum
   over all features or from it on (kernels/experts_part_adapted.c). */
static inline bool wf_moe_is_staged(const wf_op *op)
{
    return op->id >= WF_ID_experts_part_u && op->id <= WF_ID_experts_part_whole;
}

/* Returns the factors of a call's adapters, or NULL; of staged ops, of wf_moe_arranged. */
static inline wf_tensor *const *wf_moe_factors(const wf_call *call)
{
    return call->op->id == WF_ID_experts_adapted ? call->in + WF_MOE_DY
           : call->op->id == WF_ID_experts_adapted_grad || wf_moe_is_staged(call->op)
               ? call->in + WF_MOE_DY + 1
               : NULL;
}

/* Returns the rank of adapters, of which a staged op may lack some. */
static inline int64_t wf_moe_rank(wf_tensor *const *factors)
{
    return factors[WF_MOE_GATE_UP_A] ? factors[WF_MOE_GATE_UP_A]->local[1]
                                     : factors[WF_MOE_DOWN_B]->local[2];
}

/* Returns true for the ops of a part of experts' features. */
static inline bool wf_moe_is_part(const wf_op *op)
{
    return op->id == WF_ID_experts_part || op->id == WF_ID_experts_part_dx ||
           op->id == WF_ID_experts_part_grad || wf_moe_is_staged(op);
}

/* Rows of choices that a staged op takes from another one, after the operands of
   experts_adapted_grad. */
enum {
    WF_MOE_H = WF_MOE_DY + 1 + WF_MOE_FACTORS,
    WF_MOE_DGATE,
    WF_MOE_DUP,
    WF_MOE_U,
    WF_MOE_V,
    WF_MOE_POSITIONS
};

/* A call of a staged op, whose operands have the positions of experts_adapted_grad, and rows;
   NULL where it has none. */
typedef struct wf_moe_arranged {
    wf_call call;
    const wf_tensor *rows[WF_MOE_POSITIONS - WF_MOE_H];
} wf_moe_arranged;

/* The first factor stands in for gate where features are not at work. */
static inline wf_moe_arranged wf_moe_arrange(const wf_call *call)
{
    enum { A = WF_MOE_DY + 1, NONE = WF_MAX_INPUTS };
    static const int8_t positions[][NONE] = {
        {WF_MOE_GATE, WF_MOE_UP, WF_MOE_X, WF_MOE_INDEX, A + WF_MOE_GATE_UP_A,
         A + WF_MOE_GATE_B, A + WF_MOE_UP_B, A + WF_MOE_DOWN_A},
        {WF_MOE_GATE, WF_MOE_DOWN, WF_MOE_X, WF_MOE_INDEX, A + WF_MOE_DOWN_B, WF_MOE_H,
         WF_MOE_U},
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
        {WF_MOE_GATE, WF_MOE_UP, WF_MOE_X, WF_MOE_WEIGHTS, WF_MOE_INDEX, WF_MOE_DY,
         A + WF_MOE_GATE_UP_A, A + WF_MOE_DOWN_B, WF_MOE_H, WF_MOE_DGATE, WF_MOE_DUP, WF_MOE_V},
        {A + WF_MOE_GATE_UP_A, A + WF_MOE_DOWN_B, WF_MOE_X, WF_MOE_WEIGHTS, WF_MOE_INDEX,
         WF_MOE_DY, WF_MOE_U, WF_MOE_V}};
    const int8_t *position = positions[call->op->id - WF_ID_experts_part_u];
    wf_moe_arranged p = {.call = *call};

    for (int i = 0; i < WF_MAX_INPUTS; i++)
        p.call.in[i] = NULL;
    for (int i = 0; i < call->n_in; i++)
        if (position[i] < WF_MOE_H)
            p.call.in[position[i]] = call->in[i];
        else
            p.rows[position[i] - WF_MOE_H] = call->in[i];
    if (!p.call.in[WF_MOE_GATE])
        p.call.in[WF_MOE_GATE] = p.call.in[A + WF_MOE_GATE_UP_A];
    return p;
}

/* Name what has the type of products in the kernels of staged ops (wf_kernel.all_bf16). */
enum {
    WF_MOE_TYPES_U = 0xf7,       /* all but indices */
    WF_MOE_TYPES_Y = 0x16,       /* down, x, down_b */
    WF_MOE_TYPES_V = 0xfcf,      /* all but weights and indices */
    WF_MOE_TYPES_FACTORS = 0xe7, /* gate, up, x, dy, gate_up_a, down_b */
    WF_MOE_TYPES_WHOLE = 0x27    /* factors, x, dy */
};

/* Returns true on the rank that has the last of an expert's features, whose chain ends with
   what adapters add to a sum over all of them. */
static inline bool wf_moe_has_last(const wf_tensor *gate)
{
    return gate->local[1] > 0 && gate->start[1] + gate->local[1] == gate->dim[1].size;
}

/* Returns true for a whole number of one of n experts. */
WF_HOST_DEVICE static inline bool wf_moe_is_expert(double e, int64_t n)
{
    return e >= 0 && e < (double)n && e == (double)(int64_t)e;
}

/* Sizes of a call on this rank. */
typedef struct wf_moe_sizes {
    int64_t tokens, k, d, f;
    int64_t experts, first, all; /* this rank's experts, the first one of them; all */
    wf_token_cuts cuts;          /* chunks of tokens, each a chain */
} wf_moe_sizes;

/* exact: that of the context. */
static inline wf_moe_sizes wf_moe_sizes_at(const wf_call *call, bool exact)
{
    const wf_tensor *gate = call->in[WF_MOE_GATE], *x = call->in[WF_MOE_X];
    const wf_tensor *index = call->in[WF_MOE_INDEX];
    wf_moe_sizes s = {.tokens = wf_extent(x, 0, x->ndim - 1),
                      .k = index->local[index->ndim - 1],
                      .d = x->local[x->ndim - 1],
                      .f = gate->local[1],
                      .experts = gate->local[0],
                      .first = gate->start[0],
                      .all = gate->dim[0].size,
                      .cuts = wf_token_cuts_of(x, x->ndim - 1, exact)};

    return s;
}

/* Returns those of a call in its context. */
wf_moe_sizes wf_moe_sizes_of(const wf_call *call);

/* Checks indices: WF_EINVAL, naming it, where one is no whole number of an expert, or does not
   ascend in its row. `at` gives index e of the operand. */
wf_status wf_moe_check(const wf_call *call, double (*at)(const void *data, int64_t e));

/* Checks the indices of tokens' choices, of s->all experts: as wf_moe_check. */
wf_status wf_moe_check_choices(const wf_call *call, const wf_tensor *index,
                               const wf_moe_sizes *s,
                               double (*at)(const void *data, int64_t e));

/* Return the operations of a call of experts, a product and a sum for each element of a matrix
   and row: forward, gradients, and gradients without the two products of forward, as of what
   keeps these or of a model. */
double wf_moe_forward_flops(const wf_call *call);
double wf_moe_dx_flops(const wf_call *call);
double wf_moe_grad_flops(const wf_call *call);
double wf_moe_kept_dx_flops(const wf_call *call);
double wf_moe_kept_grad_flops(const wf_call *call);

/* Checks the experts and the buffer of a call. Errors: WF_ESHAPE, WF_EINVAL. */
wf_status wf_moe_shape_check(const wf_call *call);

/* Sets the shape of an output of an op of experts, whose last two are those of x and weights,
   and those before them like operands from `like` on. Errors: WF_ESHAPE: dim 0 of the first
   operand is not wf_dim_experts. */
wf_status wf_moe_shape(const wf_call *call, int out, int like, int *ndim, wf_dim *dims);

/* An expert at work on one token, in double: gate x, up x and h, which its gradient needs. */
typedef struct wf_moe_one {
    const double *gate, *up, *down, *x; /* its matrices [f, d], [f, d] and [d, f] */
    double *g, *u, *h;                  /* [f] */
} wf_moe_one;

/* Computes g, u and h. */
void wf_moe_one_forward(const wf_moe_one *at, const wf_moe_sizes *s);

/* Sets up a choice of a token, with room for what it needs, and computes it; returns its expert
   among this rank's, or -1 where another rank has it. */
typedef int64_t wf_moe_choose(const wf_call *call, const wf_moe_sizes *s, int64_t choice,
                              double *room, wf_moe_one *at);

/* Sets up a choice of experts without adapters, and computes its g, u and h. */
wf_moe_choose wf_moe_choose_expert;

/* Computes the sums over experts of all tokens. Errors: those of wf_moe_check. */
wf_status wf_moe_reference(const wf_call *call, double *room, wf_moe_choose *choose);

/* Adds the gradients of one choice; those of gate, up and down may be NULL. */
void wf_moe_one_gradient(const wf_moe_one *at, const wf_moe_sizes *s, double w,
                         const double *dy, double *dx, double *dw, double *const *dweight);

/* Returns the bias that wf_route adds to scores; NULL: there is none, or counts instead. */
static inline const void *wf_route_bias(const wf_call *call)
{
    const wf_route_options *o = (const wf_route_options *)call->attr;

    return call->n_in > 1 && !(o->global_weight > 0) ? call->in[1]->data : NULL;
}

/* Fails for a NaN among the scores of row `row`: WF_EINVAL, naming its row and expert. */
wf_status wf_route_is_nan(const wf_call *call, int64_t row, int64_t expert);

/* Checks that route_grad has the options of wf_route, and indices of experts that there are;
   at: element e of them. Errors: WF_ESHAPE, WF_EINVAL. */
wf_status wf_route_grad_check(const wf_call *call, double (*at)(const void *data, int64_t e));

#endif
