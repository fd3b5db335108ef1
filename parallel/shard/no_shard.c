/* parallel/shard/no_shard.c - no_shard (DDP): every rank has all, gradients are all-reduced. */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_no_shard = {.name = "no_shard"};
