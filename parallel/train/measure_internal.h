/* parallel/train/measure_internal.h - what files that measure a trainer's tensors share. Not
   installed. */
#ifndef WF_PARALLEL_TRAIN_MEASURE_INTERNAL_H
#define WF_PARALLEL_TRAIN_MEASURE_INTERNAL_H

#include "core/numerics/squares.h"
#include "parallel/train/measure.h"

/* Adds the squares of what counts on this rank. Errors: in the context */
void wf_par_squares_add(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                        wf_tensor *const *tensor, wf_squares *squares);

/* wf_par_norm, in whose message a number goes along: *beside becomes its sum over the ranks,
   mod 2^64. */
wf_status wf_par_norm_beside(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                             wf_tensor *const *tensor, uint64_t *beside, double *norm);

/* A rank's word in a step's messages on why the layout is not exact: its number where it
   knows a reason, or more; and what all have learned of it, the least of these numbers. */
int64_t wf_par_inexact_here(const wf_par *par);
void wf_par_inexact_on(wf_par *par, int64_t rank);

/* The value of parameter i (kind 0), or a moment of it; NULL where it has none. */
wf_tensor *wf_par_kept(const wf_nn_parameter *parameter, const wf_nn_optimizer *optimizer,
                       int64_t i, int kind);

/* The digest of the part of a tensor that is here, taken where it lies; 0 of one that is
   fake. */
uint64_t wf_par_digest_held(const wf_tensor *t, const char *path, uint32_t kind);

#endif
