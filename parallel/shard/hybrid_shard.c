/*
 * parallel/shard/hybrid_shard.c - hybrid_shard (HSDP) and mics (Zhang et al. 2022): full_shard inside of
 * groups of ranks, so that gathers stay there; gradients are summed across groups once per step.
 */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_hybrid_shard = {.name = "hybrid_shard",
                                             .groups = true,
                                             .split_parameters = true,
                                             .split_gradients = true,
                                             .split_optimizer = true,
                                             .reduce_each = true};

const wf_par_strategy wf_par_mics = {.name = "mics",
                                     .groups = true,
                                     .split_parameters = true,
                                     .split_gradients = true,
                                     .split_optimizer = true,
                                     .reduce_each = true};
