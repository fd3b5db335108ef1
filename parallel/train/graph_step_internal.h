/*
 * parallel/train/graph_step_internal.h - the step of one rank as two graphs of its device (core/graph.h): from
 * sequences to gradients, and the update. What lies between them, reading loss and norm and judging
 * them, is the host's. Not installed.
 *
 * The first step of a trainer is run op by op, so that what kernels make but once is there; the
 * second one is recorded and run; all that follow are run. A recorded step calls no module, no op and
 * no tape. The graphs hold the gradients, the batches, and memory for all that lives in between,
 * for good; evaluation and samples take their own beside it.
 */
#ifndef WF_PARALLEL_TRAIN_GRAPH_STEP_INTERNAL_H
#define WF_PARALLEL_TRAIN_GRAPH_STEP_INTERNAL_H

#include "parallel/train/train_internal.h"

typedef struct wf_par_graph_step wf_par_graph_step;

wf_par_graph_step *wf_par_graph_step_open(wf_par_trainer *t);
void wf_par_graph_step_close(wf_par_trainer *t);

/* wf_par_step_gradients by the graph, once there is one. */
wf_status wf_par_graph_step_gradients(wf_par_trainer *t, int64_t step, const wf_par_data *data);

/* wf_par_update by the graph, where the gradients are those of the other one. Muon looks at norms
   on the host between its products: its updates are run op by op. */
wf_status wf_par_graph_step_update(wf_par_trainer *t, float lr, float scale);

#endif
