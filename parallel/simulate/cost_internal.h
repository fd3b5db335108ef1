/* parallel/simulate/cost_internal.h - between the files that cost stages. Not installed. */
#ifndef WF_PARALLEL_SIMULATE_COST_INTERNAL_H
#define WF_PARALLEL_SIMULATE_COST_INTERNAL_H

#include "parallel/simulate/cost.h"

/* The costs of a step of the chain, for a micro-batch. */
typedef struct wf_sim_step {
    wf_sim_cost forward, inputs, weights;
    double parameters, tensors; /* on a tensor-parallel rank */
} wf_sim_step;

typedef struct wf_sim_costing {
    const wf_sim_machine *machine;
    const wf_sim_model *model;
    const wf_sim_layout *layout;
    double tokens, rate;
} wf_sim_costing;

/* Adds the cost of data parallelism to a stage of `blocks` blocks, and other parameters beside
   them, of which `gathered` are gathered with them: gathers and reductions of units in its
   actions (units.c). */
void wf_sim_units(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                  double others, double gathered, wf_sim_stage *stage);

/* Once a step: gathers of the whole stage, its reduction, its update (units.c). */
void wf_sim_step_end(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                     double others, wf_sim_stage *stage);

#endif
