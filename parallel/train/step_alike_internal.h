/*
 * parallel/train/step_alike_internal.h - what ranks must have alike in every step, compared in
 * the message of the norm, or by the device that judges the step: the step, the update before
 * it, rate and clipping over the world, and what was read over the ranks that share a batch.
 *
 * Each rank adds a hash of its facts times a factor of its own; the factors of ranks that must
 * agree add up to 0, so that the sum over the world is 0 where they do, whatever the groups
 * are: 8 bytes, in any order. Where it is not, facts are gathered and the first rank that
 * differs is named. Not installed.
 */
#ifndef WF_PARALLEL_TRAIN_STEP_ALIKE_INTERNAL_H
#define WF_PARALLEL_TRAIN_STEP_ALIKE_INTERNAL_H

#include "parallel/train/train_internal.h"

/* Finds the factors of this rank. Errors: WF_ENOMEM in the context. */
wf_status wf_par_alike_open(wf_par_trainer *t);

/* Forgets the batch of the step before. */
void wf_par_alike_begin(wf_par_trainer *t);

/* Notes what was read for micro-step k of a step, or by an evaluation. */
void wf_par_alike_read(wf_par_trainer *t, int64_t step, int64_t k, uint64_t hash);

/* Returns this rank's summand. */
uint64_t wf_par_alike_summand(const wf_par_trainer *t);

/* The step continues where the sum over the world is 0. Collective over the world where it is
   not, with WF_EMISMATCH in the context of all ranks. */
wf_status wf_par_alike_check(wf_par_trainer *t, uint64_t sum);

/* Compares in a message of its own where a loop takes no norm. Collective over the world. */
wf_status wf_par_alike_agree(wf_par_trainer *t);

#endif
