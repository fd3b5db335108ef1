/* parallel/simulate/cost_internal.h - between the files that cost stages. Not installed. */
#ifndef WF_PARALLEL_SIMULATE_COST_INTERNAL_H
#define WF_PARALLEL_SIMULATE_COST_INTERNAL_H

#include "parallel/simulate/cost.h"

/* The costs of a step of the chain, for a micro-batch. */
typedef struct wf_sim_step {
    wf_sim_cost forward, inputs, weights;
    double parameters, tensors, /* on a tensor-parallel rank */
        experts;                /* parameters of these; of an expert-parallel rank */
    double exchange_forward, exchange_back; /* as of a stage */
} wf_sim_step;

typedef struct wf_sim_costing {
    const wf_sim_machine *machine;
    const wf_sim_model *model;
    const wf_sim_layout *layout;
    double tokens, rate;
} wf_sim_costing;

static inline int64_t wf_sim_ep(const wf_sim_layout *l)
{
    return l->ep > 1 ? l->ep : 1;
}

static inline int64_t wf_sim_cp(const wf_sim_layout *l)
{
    return l->cp > 1 ? l->cp : 1;
}

/* Returns the ranks that share a sequence, which is the stride of the axes that split the
   batch. */
static inline int64_t wf_sim_sharing(const wf_sim_layout *l)
{
    return l->tp * wf_sim_cp(l);
}

/* Return the strides of tp and cp. */
static inline int64_t wf_sim_tp_stride(const wf_sim_layout *l)
{
    return l->sequence_parallel ? 1 : wf_sim_cp(l);
}

static inline int64_t wf_sim_cp_stride(const wf_sim_layout *l)
{
    return l->sequence_parallel ? l->tp : 1;
}

/* Returns the ranks of a pipeline coordinate. */
static inline int64_t wf_sim_inner(const wf_sim_layout *l)
{
    return wf_sim_sharing(l) * wf_sim_ep(l) * l->shard * l->replicate;
}

static inline double wf_sim_head_width(const wf_sim_model *m)
{
    return (double)(m->heads * m->head_dim);
}

/* Returns the time of a product of these FLOPs over all ranks of tp. */
double wf_sim_product_time(const wf_sim_costing *c, double flops);

/* Return the cost of a sum over tensor-parallel ranks, which products leave as fp32, and of
   gathering it, rounded (tensor.c). */
double wf_sim_tensor_sum(const wf_sim_costing *c);
double wf_sim_tensor_gather(const wf_sim_costing *c);

/* Adds the moves of tensor parallelism: two in a block's forward pass, and two in its backward
   pass, of attention and of an MLP. With sequence parallelism the inputs of products are
   regathered for weights' gradients (tensor.c). */
void wf_sim_add_tensor_moves(const wf_sim_costing *c, wf_sim_step *s);

/* Returns those of attention in the forward pass (tensor.c). */
double wf_sim_attention_moves(const wf_sim_costing *c);

/* Return pairs of a query and a key, of a head of a sequence, on the slowest rank of cp, in the
   mean of blocks: forward; backward, as many of which each has five products (context.c). */
double wf_sim_forward_pairs(const wf_sim_model *m, const wf_sim_layout *l);
double wf_sim_backward_pairs(const wf_sim_model *m, const wf_sim_layout *l);

/* Returns the time of the moves of a block's attention over cp, forward and backward
   (context.c). */
double wf_sim_context_forward(const wf_sim_costing *c);
double wf_sim_context_backward(const wf_sim_costing *c);

/* Adds the sums of gradients over ranks of cp: of `blocks` blocks, and of `others` parameters
   in none, a use of them each (context.c). */
void wf_sim_context_sums(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                         double others, wf_sim_stage *stage);

/* Adds the router, the experts and the moves of tokens to them to a block (mixture.c). */
void wf_sim_add_mixture(const wf_sim_costing *c, wf_sim_step *block);

/* Adds the cost of data parallelism to a stage of `blocks` blocks, and other parameters beside
   them, of which `gathered` are gathered with them: gathers and reductions of units in its
   actions (units.c). */
void wf_sim_units(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                  double others, double gathered, wf_sim_stage *stage);

/* Once a step: gathers of the whole stage, its reduction, its update (units.c). */
void wf_sim_step_end(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                     double others, wf_sim_stage *stage);

#endif
