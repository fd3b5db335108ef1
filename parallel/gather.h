/* parallel/gather.h - gathers bytes of every rank, of any number, on rank 0: results of ranks
   of several processes, for the one that prints them. */
#ifndef WF_PARALLEL_GATHER_H
#define WF_PARALLEL_GATHER_H

#include "parallel/run.h"

WF_BEGIN_DECLS

/* Takes the bytes of a rank; called on rank 0 in the order of ranks. Failures go to the context
   of par. */
typedef void wf_par_gather_take(void *arg, wf_par *par, int from, const char *data,
                                size_t bytes);

/**
 * wf_par_gather - sends bytes of every rank to rank 0, a slab of each at a time
 *
 * @param mine   [bytes], of this rank
 * @param take   called on rank 0 with the bytes of each rank
 * Collective over the world. Errors: those of communication, WF_ENOMEM, in the context
 */
WF_API wf_status wf_par_gather(wf_rank *rank, wf_par *par, const void *mine, size_t bytes,
                               wf_par_gather_take *take, void *arg);

/** wf_par_gather_needed - returns true where the world has several processes, so that there is
 * something to gather */
WF_API bool wf_par_gather_needed(const wf_rank *rank);

/** wf_par_gather_from - returns true where rank 0 is in another process than this rank, whose
 * bytes are then sent */
WF_API bool wf_par_gather_from(const wf_rank *rank);

WF_END_DECLS

#endif
