/*
 * parallel/parallel_internal.h - what a data-parallel strategy decides: a strategy is a table of choices,
 * and the mechanism (units.h, gather.h, gradient.h) is shared. Not installed.
 *
 * The dp ranks are laid out over the axes replicate (outer) and shard. At use a parameter has the
 * layout that tensor parallelism gives it; at rest it, its gradient and its optimizer state have
 * that one too, or are split: one dim is cut further by the axis shard.
 *
 * Where parameters are bf16, the one at rest is the f32 master, which lies where the optimizer's
 * state does; what modules compute with is bf16 and always gathered, be it from this rank alone.
 */
#ifndef WF_PARALLEL_PARALLEL_INTERNAL_H
#define WF_PARALLEL_PARALLEL_INTERNAL_H

#include "nn/module.h"
#include "parallel/run.h"

enum { WF_PAR_BUCKET_BYTES = 25 << 20 }; /* about as much goes in one collective */

/* Copy parallel/shard/full_shard.c to add one. */
typedef struct wf_par_strategy {
    const char *name;
    bool groups;           /* shard is a group of the dp ranks, else all or none of them */
    bool split_parameters; /* at rest; they are gathered unit by unit */
    bool keep_gathered;    /* from forward until after backward, by default */
    bool split_gradients;
    bool split_optimizer;
    bool reduce_each; /* gradients are summed over shard in every micro-step, by default */
} wf_par_strategy;

extern const wf_par_strategy wf_par_no_shard, wf_par_zero1, wf_par_shard_grad_op,
    wf_par_full_shard, wf_par_hybrid_shard, wf_par_hybrid_shard_zero2, wf_par_mics;

struct wf_par {
    wf_context *ctx;
    wf_mesh *mesh;
    const wf_par_strategy *strategy;
    wf_par_options options;
    bool
        reduced; /* gradients are summed in every micro-step: over shard, and where the strategy
                     has no groups over all dp ranks */
    wf_par_gpu gpu;                  /* gpus 0: none */
    struct place *places;            /* what plans have put into models */
    struct wf_par_holding *holdings; /* and into parameters */
    struct wf_par_units *models;     /* the units of every planned model */
};

/* What a plan has to say about a parameter. */
typedef struct wf_par_holding {
    struct wf_par_holding *next; /* of the rank's list */
    const wf_layout *use, *rest, *gradient, *optimizer;
    const wf_layout *micro; /* of its gradient after a micro-step that sums it */
    wf_tensor *gathered; /* in `use`, absent between uses; NULL where that is the one at rest */
    wf_tensor *stored;   /* bf16, at rest: made of the master when it is first gathered after an
                            update; NULL in between, and where parameters are f32 */
    int64_t home;        /* the lowest module that has all its uses, see units.c */
    int64_t slot;        /* of its gradients, see gradient.c */
    bool styled;         /* a style has said how it is used */
} wf_par_holding;

static inline wf_par_holding *wf_par_holding_of(const wf_nn_parameter *p)
{
    return p->plan;
}

/* Whether gradients are taken unit by unit: to be summed over ranks, to be stored in less, or to be
   added to those of other micro-steps. */
static inline bool wf_par_takes_units(const wf_par *par)
{
    return par->reduced || par->options.reduce_dtype != WF_F32 || par->options.exact_off;
}

/* Add a name to a list of them, unless it is there; ".." ends one that is full. */
void wf_par_add_name(char *list, size_t size, const char *name);

/* The strategy of a name; WF_EINVAL with the names that there are. */
const wf_par_strategy *wf_par_strategy_find(const char *name, wf_error *error);

/* Whether what modules compute with is another tensor than the parameter at rest. */
bool wf_par_is_gathered(const wf_par *par, const wf_nn_parameter *p);

/* Fill in the layouts that follow from `use` and the strategy. */
void wf_par_lay_out(wf_par *par, const wf_tensor *t, wf_par_holding *h);

/* Of the ranks that hold the same part, the one that is first on every other axis counts it. */
bool wf_par_counts_here(const wf_mesh *mesh, const wf_tensor *t);

/* Free what wf_par_plan made. */
void wf_par_drop_plans(wf_par *par);

/* wf_move over data-parallel axes, with results that are counted as `kind`. */
wf_move *wf_par_move_begin(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                           const wf_layout *const *to);
wf_status wf_par_move_end(wf_par *par, wf_memory_kind kind, wf_move *move, wf_tensor **y);
wf_status wf_par_move_run(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                          const wf_layout *const *to, wf_tensor **y);

/* End what is in flight when a rank gives up: its peers may wait for this rank elsewhere, so the
 * world is told first, and nobody waits any more. */
void wf_par_move_abandon(wf_par *par, wf_move *move, wf_tensor **y);

#endif
