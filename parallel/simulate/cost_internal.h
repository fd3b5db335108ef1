/* parallel/simulate/cost_internal.h - between the files that cost stages. Not installed. */
#ifndef WF_PARALLEL_SIMULATE_COST_INTERNAL_H
#define WF_PARALLEL_SIMULATE_COST_INTERNAL_H

#include "parallel/simulate/cost.h"

/* The costs of a step of the chain, for a micro-batch. */
typedef struct wf_sim_step {
    wf_sim_cost forward, inputs, weights;
    double parameters, tensors, /* on a tensor-parallel rank */
        experts;                /* parameters of these; of an expert-parallel rank */
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

/* Returns the ranks of a pipeline coordinate. */
static inline int64_t wf_sim_inner(const wf_sim_layout *l)
{
    return l->tp * wf_sim_ep(l) * l->shard * l->replicate;
}

/* Adds the router, the experts and the ways of tokens to them to a block (mixture.c). */
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
