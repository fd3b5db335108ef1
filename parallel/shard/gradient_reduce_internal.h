/*
 * parallel/shard/gradient_reduce_internal.h - from the tape's gradients of one micro-step to
 * the gradients of a step. Not installed.
 *
 * Read in this order; each file calls those before it:
 *
 *     gradient_sum          a sum over micro-steps whose terms come in any order: a tree, whose
 *                           bits are the same
 *     gradient_sequences    gradients per sequence, sent to the rank that keeps a part of the
 *                           sum
 *     gradient_slots        where all of a step's gradients are: a slot for each use of a
 *                           parameter
 *     gradient_collect      from the tape's leaves of one micro-step to the slots
 *     gradient_buckets      what is still partial over data-parallel ranks, summed a bucket at
 *                           a time
 *     gradient_reduce       a step from first to last: opened, reset, finished
 *
 * A parameter used k times has k slots. A use's gradient is made whole over tp where it is
 * partial there (one fused collective for all that are taken together), vectors are summed over
 * their sequences, and the result is added to the slot's sum over micro-steps.
 *
 * With a reduce_dtype of bf16 that result is rounded first, and all that follows is stored so;
 * the sums themselves are taken in f32.
 *
 *     local accumulation   all are taken after backward; nodes stay partial over the
 *                          data-parallel axes until the step ends
 *     reduced              each unit's are taken when backward is through with it: one
 *                          collective begins to sum them over ranks, and ends when the next
 *                          unit's are taken
 *     per sequence         the same where the sequences of a micro-step are no node of the tree
 *                          over the step's: each rank's gradient is moved, and the rank that
 *                          keeps a part adds them one by one, by number
 *     groups               the same, of the sum over a group of micro-steps, when its last one
 *                          has come: nodes below it stay partial, those above are split
 *
 * (Rounded gradients of local accumulation are taken unit by unit too, for their memory.)
 *
 * Under exact off there is no tree: a parameter has one slot, to which every use of every
 * micro-step is added one after the other, also under local accumulation unit by unit. So one
 * buffer of gradients is all.
 *
 * After the last micro-step each slot holds one node; what is still partial is summed in
 * buckets, and the slots of a parameter are added in the order of use.
 */
#ifndef WF_PARALLEL_SHARD_GRADIENT_REDUCE_INTERNAL_H
#define WF_PARALLEL_SHARD_GRADIENT_REDUCE_INTERNAL_H

#include "nn/module.h"
#include "parallel/parallel_internal.h"

typedef struct wf_par_gradients wf_par_gradients;

/* sequences: 0; or how many a step has, one a rank and micro-step: gradients are then kept per
   sequence (gradient_sequences.c), where `reduced` is without groups. */
wf_par_gradients *wf_par_gradients_open(wf_par *par, int64_t sequences, int64_t count,
                                        wf_nn_parameter *const *parameter);
void wf_par_gradients_close(wf_par_gradients *g);

/* Forget leaves and open nodes: before the first micro-step, and after a failure. */
void wf_par_gradients_reset(wf_par_gradients *g);

/* Gradients that come now are those of a pass, which is micro-step number `micro` of `micros`;
   sequences: as of wf_par_gradients_open, in this step. */
void wf_par_gradients_micro(wf_par_gradients *g, const wf_nn_pass *pass, int64_t micro,
                            int64_t micros, int64_t sequences);

/* Take the gradients that uses of these parameters have by now. Collective. */
wf_status wf_par_gradients_take(wf_par_gradients *g, int64_t n,
                                wf_nn_parameter *const *parameter);

/* Takes the remaining gradients and forgets the leaves of the micro-step, which is complete
   then. Collective. */
wf_status wf_par_gradients_micro_end(wf_par_gradients *g);

/* Returns how many of the micro-steps micro .. last, from the first on, may bring gradients
   that are summed already (wf_backward_weights_joined): 1, 2 or 4. */
int64_t wf_par_gradients_joined(const wf_par *par, int64_t micro, int64_t last, int64_t micros);

/* All micro-steps have ended, which is WF_EINVAL where it is not so: begin to sum over
   data-parallel ranks what they have not summed, a bucket at a time; end the bucket that is on
   its way, if there is one, and begin the next; end it all. Collective over these axes. */
wf_status wf_par_gradients_sum_begin(wf_par_gradients *g);
wf_status wf_par_gradients_sum_next(wf_par_gradients *g);
wf_status wf_par_gradients_sum_end(wf_par_gradients *g);

/* Redistributes all to their layouts, after both of the functions above where they were not
   called; then grad[i] (retained, NULL where unused) per parameter. Where there is one already,
   of uses in earlier stages of a pipeline, the sum continues from it. */
wf_status wf_par_gradients_finish(wf_par_gradients *g, wf_tensor **grad);

#endif
