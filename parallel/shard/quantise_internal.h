/* parallel/shard/quantise_internal.h - numbers of a parameter that rests in 4 bits, stored. Not
   installed. */
#ifndef WF_PARALLEL_SHARD_QUANTISE_INTERNAL_H
#define WF_PARALLEL_SHARD_QUANTISE_INTERNAL_H

#include "parallel/parallel_internal.h"

/*
 * Quantizes this rank's part of a matrix to nf4. A block has the scale of all its numbers,
 * whichever ranks hold them, and scales are stored less the mean of all: ranks exchange the
 * largest magnitudes of blocks. values: of the part here, NULL in a plan. Collective over the
 * axes that split the tensor. Errors in the context: WF_EDATA (a number is not finite),
 * WF_ENOMEM, those of a collective.
 *
 * values: of the part here, NULL in a plan. Collective over the axes that split the tensor.
 * Errors in the context: WF_EDATA (a number is none), WF_ENOMEM, those of a collective.
 */
wf_status wf_par_quantise(wf_par *par, wf_tensor *nf4, const float *values);

/* Stores a parameter that is stored as nf4 as modules compute with it from now on, with the
   same numbers; any other stays as it is. Units have to be sharded (wf_par_models_change).
   Errors in the context: WF_ENOMEM. */
wf_status wf_par_unquantise(wf_par *par, wf_nn_parameter *p);

#endif
