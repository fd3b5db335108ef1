/*
 * parallel/agree_internal.h - agreement of all ranks: messages up a binary tree of ranks
 * combine their values, and the root broadcasts the result; what a rank sends, receives and
 * holds does not grow with the number of ranks.
 */
#ifndef WF_PARALLEL_AGREE_INTERNAL_H
#define WF_PARALLEL_AGREE_INTERNAL_H

#include "core/job.h"
#include "parallel/parallel_internal.h"

/* Puts what one part of the ranks has together with what another part has. */
typedef void wf_combine(void *into, const void *from, size_t bytes);

/*
 * `mine` becomes the combination of what all ranks have, the same on each of them. Collective:
 * over the world; where that fails the context has the error. In a plan it stays as it is.
 */
wf_status wf_agree_on(wf_par *par, size_t bytes, void *mine, wf_combine *combine);

/*
 * sum[0 .. n) become their sums over the ranks, mod 2^64. Where `mine` of any rank has a code,
 * that of the lowest such rank comes out on all. Collective: over the world; where that fails
 * the context has the error, and `mine` too. In a plan the sums stay as they are.
 */
wf_status wf_agree(wf_par *par, int64_t n, uint64_t *sum, wf_error *mine);

/* Adds the entries of what this rank was given to a job. */
typedef void wf_par_describe(wf_job *job, void *arg);

/*
 * Compares what ranks were given by a hash of it; where hashes differ each rank describes it,
 * and all have the error that names entries, values and ranks. Collective: over the world.
 * Errors: in the context, WF_EMISMATCH among them.
 */
wf_status wf_par_agree_job(wf_par *par, uint64_t hash, wf_par_describe *describe, void *arg);

/*
 * All ranks end with an error that they have found alike: it is that of `rank`, which the
 * launch reports, and the others wait until it has said so. Returns code.
 */
wf_status wf_par_fail_as(wf_par *par, int rank, wf_status code, const char *text);

/* "rank 3 (node1)", of this host. */
typedef struct wf_par_party {
    char text[96];
} wf_par_party;

wf_par_party wf_par_party_of(int rank);

#endif
