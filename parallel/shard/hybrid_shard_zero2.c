/* parallel/shard/hybrid_shard_zero2.c - hybrid_shard_zero2: shard_grad_op inside of groups of ranks. */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_hybrid_shard_zero2 = {.name = "hybrid_shard_zero2",
                                                   .groups = true,
                                                   .split_parameters = true,
                                                   .keep_gathered = true,
                                                   .split_gradients = true,
                                                   .split_optimizer = true,
                                                   .reduce_each = true};
