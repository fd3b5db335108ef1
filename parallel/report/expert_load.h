/*
 * parallel/report/expert_load.h - how many tokens chose each expert of a model's mixtures, step
 * by step: counted on the ranks where routers choose, each token once, and summed over ranks.
 */
#ifndef WF_PARALLEL_REPORT_EXPERT_LOAD_H
#define WF_PARALLEL_REPORT_EXPERT_LOAD_H

#include "nn/module.h"
#include "parallel/run.h"
#include <stdio.h>

WF_BEGIN_DECLS

/** wf_layer_load - the loads of a mixture: of a step, or of all since the count was opened. */
typedef struct wf_layer_load {
    const char *path; /* the mixture's module */
    int64_t experts;
    const uint64_t *tokens; /* [experts], taken by each */
    /* choices that experts did not take; NULL: they have no capacity
       (wf_nn_moe_options.capacity) */
    const uint64_t *dropped;
} wf_layer_load;

typedef struct wf_expert_load wf_expert_load;

/**
 * wf_expert_load_open - counts from now on what tokens of training steps choose, not those of
 * evaluations, and recomputation once
 *
 * @param model  planned; a rank counts for the stages that it has
 * Collective:   no
 * Owner:        caller; wf_expert_load_close, before the model is freed
 * Errors:       WF_EINVAL: the model has no mixture; WF_ENOMEM; NULL then
 */
WF_API wf_expert_load *wf_expert_load_open(wf_par *par, wf_nn_module *model);
WF_API void wf_expert_load_close(wf_expert_load *load);

/**
 * wf_expert_load_step - sums the counts since the last call over all ranks, and begins anew
 *
 * @param layers  filled with the layers, in the order of the model, their number is returned;
 *                valid until the next call. 0 on errors
 * Collective:    over the world
 * Errors:        in the context
 */
WF_API int wf_expert_load_step(wf_expert_load *load, const wf_layer_load **layers);

/** wf_expert_load_ratio - returns the largest load over the mean one; NaN without tokens. */
WF_API double wf_expert_load_ratio(const wf_layer_load *layer);

/** wf_expert_load_print - prints a table of all steps: a row for each layer with its largest
 * and smallest load, experts without tokens, and a picture of the loads. */
WF_API void wf_expert_load_print(FILE *out, const wf_expert_load *load);

WF_END_DECLS

#endif
