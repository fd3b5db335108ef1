/*
 * parallel/shard/materialize.h - materializes a planned model, and reverts it to fake: a fake
 * parameter is on the meta device, it has a shape and a recipe and no data.
 *
 * Unit by unit: any module is a unit, down to the whole model. A rank takes memory for its own
 * shards alone, beside the one whole parameter at a time of recipes that need it, such as
 * orthogonal: never more than the shards and one unit.
 */
#ifndef WF_PARALLEL_SHARD_MATERIALIZE_H
#define WF_PARALLEL_SHARD_MATERIALIZE_H

#include "nn/chain.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/**
 * wf_par_materialize - materializes a planned model, or a module of it: each rank its own
 * shards, from the recipes (nn/init_recipe.h). Real parameters stay as they are; a tied one,
 * frozen or not, is made once
 *
 * Element i of a parameter is a function of (seed, path, i), so a shard is the slice of the
 * whole, and a model made module by module has the bits of one made at once.
 *
 * @param module  a model, or a module of a planned one; without a plan it gets one without
 *                rules
 * Collective:  no, but for parameters stored as nf4 (wf_par_options.base_dtype): over the axes
 *              that split them
 * Errors:      WF_ENOMEM; those of a recipe (wf_nn_replay)
 */
WF_API wf_status wf_par_materialize(wf_par *par, wf_nn_module *module);

/**
 * wf_par_materialize_steps - materializes some steps of a model's chain, as a stage of a
 * pipeline needs them
 *
 * All else stays fake, and takes no memory; the sharding plan, paths and recipes are the whole
 * model's. A tied parameter becomes real where any of its modules does.
 *
 * @param first, last  the steps from `first` up to, and without, `last`; the number of steps
 *                     is the head and the loss, so that one more than it as `last` has them too
 * Collective:  as wf_par_materialize
 * Errors:      those of wf_par_materialize; WF_EINVAL: no chain, or no such steps
 */
WF_API wf_status wf_par_materialize_steps(wf_par *par, wf_nn_module *model, int64_t first,
                                          int64_t last);

/**
 * wf_par_dematerialize - makes a model, or a module of it, fake again: its memory is freed, its
 * values are gone, and its plan and recipes stay. It may be planned anew
 *
 * A parameter that is tied to a module outside is made fake there too.
 *
 * Collective:  no
 * Errors:      WF_EINVAL: one of its parameters is held elsewhere, by a trainer for instance;
 *              all are then as they were
 */
WF_API wf_status wf_par_dematerialize(wf_par *par, wf_nn_module *module);

WF_END_DECLS

#endif
