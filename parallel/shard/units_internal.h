/*
 * parallel/shard/units_internal.h - units: modules whose parameters are gathered and freed
 * together, and whose gradients are summed together. Not installed.
 *
 * The root of a model is a unit; which modules below it are, its sharding plan says (by path,
 * by type, or by number of parameters). A parameter belongs to the lowest unit that contains
 * all its uses.
 */
#ifndef WF_PARALLEL_SHARD_UNITS_INTERNAL_H
#define WF_PARALLEL_SHARD_UNITS_INTERNAL_H

#include "parallel/shard/gradient_reduce_internal.h"
#include "parallel/shard/sharding_plan_internal.h"

typedef struct wf_par_unit {
    struct wf_par_units *of;
    wf_nn_module *module;
    wf_par_policy policy;
    wf_nn_parameter **parameter; /* [count]; the first `split` are gathered, the others whole */
    int64_t count, split;
    bool moves;                       /* ranks have parts of it */
    bool reshard;                     /* after forward */
    bool keep_unsharded;              /* its parameters stay gathered until they change */
    bool unsharded;                   /* its parameters are gathered */
    wf_move *handle;                  /* the gather in flight, or NULL .. */
    const struct wf_par_order *asked; /* .. and the order of the pass that began it */
    int active;                       /* runs of its module that have begun and not ended */
    int pins;                         /* number of pipeline stages that keep it gathered */
} wf_par_unit;

/* Units in an order that was seen, from which the next ones are known in advance. */
typedef struct wf_par_sequence {
    wf_par_unit **unit;
    int64_t count, capacity, at;
} wf_par_sequence;

/* The units that a pass comes by: over the whole model, or over a stage of it. */
typedef struct wf_par_order {
    wf_par_sequence forward;  /* as their modules begin in forward */
    wf_par_sequence backward; /* as they end in forward; backward takes it backwards */
} wf_par_order;

/* The state of units in a pass over a stage: each of two that alternate has its own, which are
   swapped whole. */
typedef struct wf_par_units_pass {
    wf_par_order *order;         /* the order of the pass that runs */
    int depth;                   /* number of runs that have begun and not ended */
    bool recording;              /* the pass that runs is on a tape */
    bool in_backward;            /* modules that run now are recomputed */
    wf_par_gradients *gradients; /* takes those of a unit when they are complete, or NULL */
} wf_par_units_pass;

typedef struct wf_par_units {
    struct wf_par_units *next; /* links the units of the rank's models */
    wf_par *par;
    wf_nn_module *root;
    int64_t count;
    wf_par_unit *unit; /* the root first, parents before children */
    wf_nn_parameter **parameters;
    wf_tensor **list; /* room for the parameters of any unit, for moves */
    const wf_layout **to;
    wf_par_order model; /* the order of passes over the model */
    wf_par_units_pass pass;
} wf_par_units;

/* The units of a model that wf_par_plan has seen; NULL for another one. */
wf_par_units *wf_par_units_of(const wf_par *par, const wf_nn_module *model);

/* Form the units of a named model, whose parameters have the layouts of tensor parallelism, and
   shard their parameters. NULL on error. */
wf_par_units *wf_par_units_new(wf_par *par, wf_nn_module *root,
                               const wf_par_sharding_plan *plan);

/* Forget the parameters that are fake: those of other stages, which this rank never gathers. */
void wf_par_units_keep_real(wf_par_units *all);

/* Returns true where a unit acts at the begin and end of its module. */
bool wf_par_unit_acts(const wf_par_unit *unit);

/* Free what a sequence knows. */
void wf_par_order_free(wf_par_order *order);

/* Forget the units of a model, or of all (NULL). */
void wf_par_units_drop(wf_par *par, const wf_nn_module *root);

#endif
