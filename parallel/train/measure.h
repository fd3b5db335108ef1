/* parallel/train/measure.h - norms and digests of a whole model, which don't depend on its
   layout. */
#ifndef WF_PARALLEL_TRAIN_MEASURE_H
#define WF_PARALLEL_TRAIN_MEASURE_H

#include "nn/optim/optimizer.h"
#include "parallel/shard/sharding_plan.h"

WF_BEGIN_DECLS

/**
 * wf_par_norm - computes the square root of the sum of squares of all elements of some tensors:
 * of parameters, or of their gradients
 *
 * Chunk: one row of dim 0 times one of dim 1's 8 cuts, in double (kernels/squares.c); chunks
 * are added exactly (core/numerics/exact_sum.h), so neither order nor layout matters. Copies on
 * several ranks count once.
 *
 * @param parameter  the owner of each tensor
 * @param tensor     not partial; NULL entries are skipped
 * Collective:  over the world
 */
WF_API wf_status wf_par_norm(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                             wf_tensor *const *tensor, double *norm);

/**
 * wf_par_digest - computes the sum mod 2^64 of a mix of (path, kind, global index, bits) of all
 * parameters (kind 0) and of what is kept of them (kinds 1, 2, ..); ties and copies count once,
 * and a parameter that is fake adds 0
 *
 * @param optimizer  NULL: parameters alone
 * Collective:  over the world
 */
WF_API wf_status wf_par_digest(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                               const wf_nn_optimizer *optimizer, uint64_t *digest);

/** wf_par_tensor_digest - the digest of a parameter (kind 0) or of what is kept of it
 * (wf_nn_kept_words). */
enum { WF_PAR_KINDS = 1 + WF_NN_KEPT };
typedef struct wf_par_tensor_digest {
    const char *path; /* the parameter's own */
    int kind;
    uint64_t digest;
} wf_par_tensor_digest;

/**
 * wf_par_digests - computes the terms of wf_par_digest, tensor by tensor, in the order of
 * parameters
 *
 * @param list  [*n], the same on every rank
 * Collective:  over the world
 * Owner:       caller, free(*list), also after an error
 * Errors:      WF_ENOMEM, and those of communication, in the context
 */
WF_API wf_status wf_par_digests(wf_par *par, int64_t count, wf_nn_parameter *const *parameter,
                                const wf_nn_optimizer *optimizer, wf_par_tensor_digest **list,
                                int64_t *n);

WF_END_DECLS

#endif
