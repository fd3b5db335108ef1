/*
 * parallel/shard/unshard_internal.h - units over time: gathered before their module runs,
 * released after it, and regathered in backward; the gathers of the next `prefetch` units are
 * started ahead. Not installed.
 */
#ifndef WF_PARALLEL_SHARD_UNSHARD_INTERNAL_H
#define WF_PARALLEL_SHARD_UNSHARD_INTERNAL_H

#include "parallel/shard/units_internal.h"

/* A unit's module begins; it ends. Both are collective over the sharded axis. */
void wf_par_unit_enter(wf_par_unit *unit);
void wf_par_unit_leave(wf_par_unit *unit);

/* The same for a stage of a pipeline, whose modules run without the root: a pass over it
   begins, forward or backward, of which the order is known; it ends. */
void wf_par_units_stage_begin(wf_par_units *all, wf_par_order *order, bool backward);
void wf_par_units_stage_end(wf_par_units *all);

/* Begin to gather a unit, which stays so until it was unpinned as often; wait until it is
   gathered. */
wf_status wf_par_unit_pin(wf_par_unit *unit);
wf_status wf_par_unit_wait(wf_par_unit *unit);
void wf_par_unit_unpin(wf_par_unit *unit);

/* Reshards all units, also what was prefetched and never used. After an error what is in flight
   stays so, since its peers may never come: it ends at the next use, or with the plan. */
void wf_par_units_reshard(wf_par_units *all);

/* Reshards all before parameters change, or after: also parameters kept unsharded, and
   low-precision copies. */
void wf_par_units_change(wf_par_units *all);

/* Returns true where the unit is the one that was expected next. */
bool wf_par_sequence_expects(const wf_par_sequence *s, const wf_par_unit *unit);

/* The same for every planned model of a rank: its stored parameters are about to be
   overwritten, by a checkpoint or by weights from elsewhere. */
void wf_par_models_change(wf_par *par);

/* A unit comes next; what was expected to come from here on is forgotten if it was another. */
wf_status wf_par_sequence_see(wf_par_units *all, wf_par_sequence *s, wf_par_unit *unit);

#endif
