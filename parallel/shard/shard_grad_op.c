/*
 * parallel/shard/shard_grad_op.c - shard_grad_op (ZeRO-2, as FSDP does it): all is split at rest, and
 * parameters are gathered once, from before forward until after backward.
 */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_shard_grad_op = {.name = "shard_grad_op",
                                              .split_parameters = true,
                                              .keep_gathered = true,
                                              .split_gradients = true,
                                              .split_optimizer = true,
                                              .reduce_each = true};
