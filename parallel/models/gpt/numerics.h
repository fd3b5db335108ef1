/*
 * parallel/models/gpt/numerics.h - the numerics identity: a digest by which two runs know that
 * they compute by the same rules.
 *
 * A run's bits depend, beside its model, data and flags, on the code: how sums are cut in
 * chunks and in which tree they are added, how many keys attention takes at once, the
 * polynomials of exp and tanh, where bf16 is rounded, on a GPU its libraries. A list of these
 * could be forgotten when one changes. So the identity is measured: it is the digest of small
 * training runs that use them all.
 */
#ifndef WF_PARALLEL_MODELS_GPT_NUMERICS_H
#define WF_PARALLEL_MODELS_GPT_NUMERICS_H

#include "parallel/run.h"
#include "parallel/train/batch.h"

WF_BEGIN_DECLS

/**
 * wf_par_numerics - computes the numerics identity of a run with these options, in some
 * milliseconds
 *
 * A GPT-2 and a Llama train for two steps on one rank of their own in this process; where
 * sequences of the run hold documents, so do theirs, and only then. Sequences of 2,048 tokens
 * and more are cut in chunks (wf_token_chunks), whose number is added to the digest. Layouts do
 * not change a bit, so they do not change the identity; an equal one promises, up to a hash,
 * equal bits of equal runs.
 *
 * @param options   of the run; read are device, tf32, dtype, param_dtype, reduce_dtype,
 *                  exact_off, exact_tp
 * @param field     of the run's batches, WF_PAR_FIELDS of them; NULL: no documents, short
 *                  sequences
 * @param identity  set on success
 * Collective:      no, and not from within a rank
 * Errors:          those of wf_par_open and of a training step
 */
WF_API wf_status wf_par_numerics(const wf_par_options *options, const wf_par_field *field,
                                 uint64_t *identity, wf_error *error);

WF_END_DECLS

#endif
