/*
 * parallel/no_shard.c - no_shard (DDP): every data-parallel rank has whole parameters;
 * gradients are summed over all of them once per step. Copy this file to add a strategy.
 */
#include "parallel/strategy.h"

static void axes(int dp, int *replicate, int *shard)
{
    *replicate = dp;
    *shard = 1;
}

static const wf_layout *as_it_is(wf_mesh *mesh, const wf_layout *layout)
{
    (void)mesh;
    return layout;
}

const wf_par_strategy wf_par_no_shard = {
    .name = "no_shard", .axes = axes, .parameter = as_it_is, .gradient = as_it_is};
