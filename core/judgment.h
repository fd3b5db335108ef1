/*
 * core/judgment.h - the judgment of training steps by the device itself, so that no step waits
 * until the host has read its loss and norm: the host reads them while the next step runs.
 *
 * A judgment is captured before an update (core/graph.h). Where the step may not update, this
 * update and all that follow change nothing, until the host has found it and clears the
 * judgment: the state is then that before the step.
 *
 * Of several ranks each brings its part, all get all parts, and each judges alike, since it has
 * the same numbers. How parts get to other ranks is the caller's.
 */
#ifndef WF_CORE_JUDGMENT_H
#define WF_CORE_JUDGMENT_H

#include "core/graph.h"
#include "core/numerics/squares.h"

WF_BEGIN_DECLS

enum { WF_JUDGMENTS = 2 }; /* steps whose judgments the host may have unread */

typedef struct wf_judgment wf_judgment;

/**
 * wf_judgment_open - opens a judgment that holds nothing
 *
 * @param ranks  that bring a part
 * In a plan nothing is judged, and memory is counted.
 * Owner:   caller; wf_judgment_close (NULL is allowed), after the graphs that have captured it
 * Errors:  WF_EUNSUPPORTED (a device without graphs), WF_ENOMEM in the context; NULL then
 */
WF_API wf_judgment *wf_judgment_open(wf_context *ctx, int ranks);
WF_API void wf_judgment_close(wf_judgment *judgment);

/**
 * wf_judgment_bring - captures what a rank brings to the judgment of a step: its squares, and
 * the numbers of the run (wf_now)
 *
 * @param rank     whose part of wf_judgment_parts it becomes
 * @param squares  of the gradients that count on this rank; ended here
 * Errors:  the context's, returned
 */
WF_API wf_status wf_judgment_bring(wf_judgment *judgment, int rank, wf_squares *squares);

/** wf_judgment_parts - returns the parts of all ranks, [ranks], in memory of the device: this
 * rank's, when it was brought; others' are to be put there before the judgment. */
WF_API wf_judged_part *wf_judgment_parts(const wf_judgment *judgment);

/**
 * wf_judgment_capture - captures the judgment of a step, for the updates that are run after it
 *
 * @param total       the sum of the losses: a tensor of the device's floats
 * @param weight      times total: the loss
 * @param clip        bounds the norm; 0: never
 * @param loss_above  a step whose loss is above it changes nothing; 0: never
 * Errors:  the context's, returned
 */
WF_API wf_status wf_judgment_capture(wf_judgment *judgment, const wf_tensor *total,
                                     float weight, float clip, float loss_above);

/**
 * wf_judgment_run - runs a graph that has captured it (wf_graph_run), and queues the copy of
 * what it judges to slot 0 .. WF_JUDGMENTS - 1 of the host's
 *
 * Work that is queued later does not wait for the host.
 * Errors:  those of wf_graph_run
 */
WF_API wf_status wf_judgment_run(wf_judgment *judgment, wf_graph *graph, const void *now,
                                 size_t bytes, int slot);

/** wf_judgment_wait - waits for such a copy, and returns it; zeros in a plan. Errors: those of
 * the device, in the context */
WF_API wf_judged wf_judgment_wait(wf_judgment *judgment, int slot);

/** wf_judgment_clear - has updates change parameters again. */
WF_API void wf_judgment_clear(wf_judgment *judgment);

WF_END_DECLS

#endif
