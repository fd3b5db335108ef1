/*
 * parallel/shard/zero1.c - zero1 (ZeRO-1, Rajbhandari et al. 2020): parameters and gradients are whole,
 * the optimizer's state is split: each rank updates its part, then the parts are gathered
 * (update.c).
 */
#include "parallel/parallel_internal.h"

const wf_par_strategy wf_par_zero1 = {.name = "zero1", .split_optimizer = true};
