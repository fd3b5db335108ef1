/*
 * parallel/shard/gradient_sequences_internal.h - gradients per sequence: ranks do not sum them,
 * but send them to the rank that keeps a part of the sum. Not installed.
 *
 * A sum over ranks is an all-to-all, then a sum of what came. Where the sequences of a
 * micro-step are no node of the tree over those of the step (9 sequences on 3 ranks: its halves
 * are 4 and 5), only the first half is done: the gradients of the ranks are the rows of one
 * tensor, split by rows over them, which becomes one that is split as the gradient is kept.
 * Each row is a term of the sum over the step then (gradient_sum_internal.h). It costs the
 * bytes of a reduce-scatter.
 */
#ifndef WF_PARALLEL_SHARD_GRADIENT_SEQUENCES_INTERNAL_H
#define WF_PARALLEL_SHARD_GRADIENT_SEQUENCES_INTERNAL_H

#include "parallel/parallel_internal.h"

/* A gradient that is partial over data-parallel axes, as this rank's row of [ranks, ..]; the
   scope's, NULL after an error. */
wf_tensor *wf_par_per_sequence_put(wf_par *par, wf_tensor *grad);

/* Returns the target layout of gradients per sequence: rows whole over the ranks that each
   micro-step sums, the other dims split over these as the gradient is kept, or else dim 0. */
const wf_layout *wf_par_per_sequence_layout(wf_par *par, const wf_par_parameter_state *h,
                                            const wf_tensor *rows);

/* Returns the gradient of rank i of those, out of the rows that were received; it is partial
   over the other data-parallel axes. One that stays is a copy, so that the rows can be freed.
   It belongs to the scope; NULL after an error. */
wf_tensor *wf_par_per_sequence_take(wf_par *par, wf_tensor *rows, int64_t i, bool stays);

#endif
