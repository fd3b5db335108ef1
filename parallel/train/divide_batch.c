/* parallel/train/divide_batch.c - a global batch on ranks and in micro-steps. */
#include "parallel/train/train_internal.h"
#include <inttypes.h>

/* Returns true where the sequences of a micro-step, one a rank, are a node of the tree over
   those of a step, and the ranks along one of several axes nodes of that. */
static bool are_nodes(const wf_par_trainer *t)
{
    const wf_par *par = t->par;
    int64_t above = t->micros;

    for (int i = 0; i < par->n_dp; i++) {
        int size =
            par->reduced >> par->dp_axis[i] & 1 ? wf_mesh_size(par->mesh, par->dp_axis[i]) : 1;

        if (size > 1 && (above & (above - 1)))
            return false;
        above = size > 1 ? size : above;
    }
    return true;
}

/* Divides the batch: every rank and micro-step has equally many sequences, or one or none. */
wf_status wf_par_divide_batch(wf_par_trainer *t, int64_t batch)
{
    wf_par_train_options *o = &t->options;
    const wf_par *par = t->par;
    int64_t dp = wf_par_dp(par), micro = o->micro_batch ? o->micro_batch : 1, of_micro;
    bool single;

    if (!o->micro_batch && par->cp_axis >= 0)
        o->micro_batch = micro = 1;
    single = o->micro_batch == 1 && par->reduced && par->group == 1;
    t->ranks = par->reduced ? wf_par_ranks_along(par, par->reduced) : 1;
    t->sequences = batch / (dp / t->ranks);
    if (single && batch % (dp / t->ranks))
        return wf_fail(
            par->ctx, WF_EINVAL,
            "global batch %" PRId64 " is not a multiple of the %" PRId64
            " groups of data-parallel ranks: change one of the two, or sum gradients "
            "over all these ranks in each micro-step (groups of 1 micro-step)",
            batch, dp / t->ranks);
    if (!single && batch % (dp * micro))
        return wf_fail(par->ctx, WF_EINVAL,
                       "global batch %" PRId64 " is not a multiple of dp %" PRId64
                       " x micro-batch %" PRId64
                       ": change one of the three, or take micro-batches of 1 whose gradients "
                       "are reduced in each micro-step, which any batch can have",
                       batch, dp, micro);
    if (!o->micro_batch)
        o->micro_batch = batch / dp;
    t->batch = batch;
    t->per_sequence = 0;
    of_micro = t->ranks * o->micro_batch;
    t->micros = (t->sequences + of_micro - 1) / of_micro;
    if (single && (t->sequences % t->ranks || (wf_context_exact(par->ctx) && !are_nodes(t))))
        t->per_sequence = t->sequences;
    if (t->per_sequence && par->ep_axis >= 0)
        return wf_fail(par->ctx, WF_EINVAL,
                       "global batch %" PRId64
                       " in micro-steps of one sequence on each of %" PRId64
                       " data-parallel ranks, of which %d split experts: gradients of "
                       "experts are sums over these ranks' sequences, so dp is a power of two, "
                       "and the batch dp times 1, 2, 4, .. sequences; or take larger "
                       "micro-batches, or let experts lie on .tp alone",
                       o->global_batch, dp, wf_mesh_size(par->mesh, par->ep_axis));
    return WF_OK;
}
