/*
 * parallel/shard/full_shard.c - full_shard (FSDP, Zhao et al. 2023; ZeRO-3): all is split at rest.
 * Parameters are gathered unit by unit, freed after forward and gathered again for backward;
 * gradients are reduce-scattered. Copy this file to add a strategy.
 */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_full_shard = {.name = "full_shard",
                                           .split_parameters = true,
                                           .split_gradients = true,
                                           .split_optimizer = true,
                                           .reduce_each = true};
