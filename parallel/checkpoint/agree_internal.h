/*
 * parallel/checkpoint/agree_internal.h - one small collective in which ranks agree: whether all succeeded,
 * and the sums of some numbers. What is exchanged does not grow with the number of ranks.
 * Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_AGREE_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_AGREE_INTERNAL_H

#include "parallel/parallel_internal.h"

/*
 * sum[0 .. n) become their sums over the ranks, mod 2^64. Where `mine` of any rank has a code, that
 * of the lowest such rank comes out on all. Collective: over the world; where that fails the
 * context has the error, and `mine` too. In a plan the sums stay as they are.
 */
wf_status wf_agree(wf_par *par, int64_t n, uint64_t *sum, wf_error *mine);

#endif
