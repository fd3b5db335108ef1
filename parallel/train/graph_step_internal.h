/*
 * parallel/train/graph_step_internal.h - the step of one rank as two graphs of its device (core/graph.h):
 * from sequences to reduced gradients, and the update. They wrap the parts of a step
 * (wf_par_forward_backward and wf_par_reduce, wf_par_optimizer_step). What lies between them, reading
 * loss and norm and judging them, is the host's. Not installed.
 *
 * The first step of a trainer is run op by op, so that what kernels make but once is there; the
 * second one is captured and run; all that follow are run. A captured step calls no module, no op and
 * no tape. The graphs hold the gradients, the batches, and memory for all that lives in between,
 * for good; evaluation and samples take their own beside it.
 */
#ifndef WF_PARALLEL_TRAIN_GRAPH_STEP_INTERNAL_H
#define WF_PARALLEL_TRAIN_GRAPH_STEP_INTERNAL_H

#include "parallel/train/train_internal.h"

typedef struct wf_par_graph_step wf_par_graph_step;

wf_par_graph_step *wf_par_graph_step_open(wf_par_trainer *t);
void wf_par_graph_step_close(wf_par_trainer *t);

/* All micro-steps of a step, and once there is a graph, by it and with the sums of wf_par_reduce. */
wf_status wf_par_graph_forward_backward(wf_par_trainer *t, const wf_par_data *data);

/* wf_par_update by the graph, where the gradients are those of the other one. Muon looks at norms
   on the host between its products: its updates are run op by op. */
wf_status wf_par_graph_update(wf_par_trainer *t, float lr, float scale);

#endif
