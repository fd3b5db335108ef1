/*
 * parallel/gradient.h - from the tape's gradients of one micro-step to the gradients of a step.
 * Not installed.
 *
 * A parameter used k times has k slots. Per micro-step every slot's gradient is made whole over
 * tp where it is partial there (one fused collective), vectors are summed over their sequences,
 * and the result is pushed on the slot's binary counter: open nodes of the midpoint tree over
 * micro-steps. After the last one each slot holds one node, still partial over the
 * data-parallel axes; those are summed in buckets, and the slots of a parameter added in the
 * order of use.
 */
#ifndef WF_PARALLEL_GRADIENT_H
#define WF_PARALLEL_GRADIENT_H

#include "parallel/plan.h"
#include "parallel/strategy.h"

typedef struct wf_par_gradients wf_par_gradients;

wf_par_gradients *wf_par_gradients_open(wf_par *par, int64_t count,
                                        wf_nn_parameter *const *parameter);
void wf_par_gradients_close(wf_par_gradients *g);

/* Forget leaves and open nodes: before the first micro-step, and after a failure. */
void wf_par_gradients_reset(wf_par_gradients *g);

/* Take the leaves' gradients of micro-step `micro` of `micros`. Collective over tp. */
wf_status wf_par_gradients_push(wf_par_gradients *g, int64_t micro, int64_t micros);

/* Bring all to the strategy's layout; grad[i] (retained, NULL where unused) per parameter.
   Collective over the data-parallel axes. */
wf_status wf_par_gradients_finish(wf_par_gradients *g, wf_tensor **grad);

/* A counter of open nodes: push leaf number i of n, in order; one node is left after the last.
 */
typedef struct wf_par_counter {
    wf_tensor *node[WF_TREE_DEPTH]; /* retained */
    int depth;
} wf_par_counter;

wf_status wf_par_counter_push(wf_par_counter *c, wf_tensor *leaf, int64_t i, int64_t n);
void wf_par_counter_clear(wf_par_counter *c);

#endif
