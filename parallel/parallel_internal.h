/*
 * parallel/parallel_internal.h - a rank's parallel run, and what data parallelism decides about
 * each parameter: a strategy is a row of choices, and the mechanism (shard/units_internal.h,
 * unshard_internal.h, gradient_reduce_internal.h) is shared. Not installed.
 *
 * Some axes of the mesh are data-parallel: they split the batch. To compute with, a parameter
 * has the layout that tensor parallelism gives it. It is stored, like its gradient and its
 * optimizer state, in that one too, or sharded: one dim is cut further by one of the
 * data-parallel axes. docs/architecture.md has a picture of its states.
 *
 * Where parameters are bf16, the stored one is the f32 master, which lies where the optimizer's
 * state does; what modules compute with is bf16 and always gathered, be it from this rank
 * alone. One that is frozen has no master: what is stored is what modules compute with.
 */
#ifndef WF_PARALLEL_PARALLEL_INTERNAL_H
#define WF_PARALLEL_PARALLEL_INTERNAL_H

#include "nn/module.h"
#include "parallel/run.h"

enum { WF_PAR_BUCKET_BYTES = 25 << 20 }; /* about as much goes in one collective */

/* The strategy of some modules' parameters over data-parallel ranks. */
typedef struct wf_par_policy {
    const wf_par_strategy *strategy;
    unsigned axes; /* those that shard, a bit each; the others hold copies */
    int prefetch;  /* units that are gathered ahead of the one that runs */
    wf_par_reshard reshard;
} wf_par_policy;

struct wf_par {
    wf_context *ctx;
    wf_mesh *mesh;
    wf_par_options options;
    wf_comm *world;
    wf_pace pace;                   /* set where options have a machine for it */
    struct wf_scratch *scratch;     /* the files of offloaded tensors, or NULL */
    int n_dp, dp_axis[WF_MAX_AXES]; /* the data-parallel axes, outermost first */
    int pp_axis;                    /* the axis of pipelines; -1: the mesh has none */
    int ep_axis;          /* the data-parallel axis that splits experts; -1: none does */
    int cp_axis;          /* the axis that splits tokens; -1: none does */
    wf_par_policy policy; /* the options': what wf_par_plan shards with */
    /* over which gradients are summed in every micro-step, or group; 0: once a step */
    unsigned reduced;
    int group; /* micro-steps whose gradients are summed together there, 1 or more */
    /* by axis, since wf_par_report_begin: moves of parameters, gradients and states, which the
       axes' own counters have too */
    wf_comm_counters moved[WF_MAX_AXES];
    bool reported_inexact; /* wf_par_report_inexact has written its line */
    int inexact_rank;      /* writes it: 0, or the first rank that knew a reason in a step */
    /* the hooks and records of plans in models */
    struct wf_par_plan_hook *plan_hooks;
    struct wf_par_parameter_state *states; /* one for each parameter of every planned model */
    struct wf_par_units *models;           /* the units of every planned model */
    struct wf_par_sharding_plan *plans;    /* the requests of plans, model by model */
};

/* The state of a parameter: what a sharding plan says of it, and the tensors that it has beside
   the stored one (wf_nn_parameter.tensor, in shard_layout and `stored`). */
typedef struct wf_par_parameter_state {
    struct wf_par_parameter_state *next; /* links the rank's list */
    const wf_par_policy *policy;         /* its unit's */
    /* to compute with: whole, or split by tensor parallelism */
    const wf_layout *compute_layout;
    /* as it is stored, between the uses of its unit */
    const wf_layout *shard_layout;
    /* its gradient's: when the step is reduced; after a micro-step that sums it over ranks */
    const wf_layout *gradient, *micro;
    const wf_layout *optimizer;
    /* its stored type: f32; where it is frozen that of its compute copy, or nf4 */
    wf_dtype stored;
    /* gathered: in its compute layout, absent between uses; NULL where that is the stored
       one */
    wf_tensor *gathered;
    /* the compute copy: bf16 in the shard layout, made of the master when it is first gathered
       after an update; NULL in between, and where parameters are f32 */
    wf_tensor *low_precision;
    int64_t owner;   /* the lowest module that has all its uses, see units.c */
    int64_t slot;    /* index of its gradients, see gradient_slots_internal.h */
    int owning_rank; /* the one that counts it, of the pipeline ranks that have it */
    bool styled;     /* a style has said how it is used */
    bool wide;       /* f32, whatever param_dtype says (wf_nn_parameter.counted) */
} wf_par_parameter_state;

static inline wf_par_parameter_state *wf_par_state_of(const wf_nn_parameter *p)
{
    return p->plan;
}

/* Returns true where a model has adapters: its frozen parameters stay in their own files, and
   are saved nowhere else. */
static inline bool wf_par_is_adapted(int64_t count, wf_nn_parameter *const *parameter)
{
    for (int64_t i = 0; i < count; i++)
        if (parameter[i]->adapter)
            return true;
    return false;
}

/* Returns the gathered type: that of the compute copy, or nf4, which ops take as that. */
static inline wf_dtype wf_par_gathered_dtype(const wf_par *par, const wf_par_parameter_state *h)
{
    return h->wide ? WF_F32 : h->stored == WF_NF4 ? WF_NF4 : par->options.param_dtype;
}

/* Returns true where gradients are taken unit by unit: to be summed over ranks, to be stored in
   fewer bits, or to be added to those of other micro-steps. */
static inline bool wf_par_takes_units(const wf_par *par)
{
    return par->reduced || par->options.reduce_dtype != WF_F32 || par->options.exact_off;
}

/* Add a name to a list of them, unless it is there; ".." ends one that is full. */
void wf_par_add_name(char *list, size_t size, const char *name);

/* The strategy of a name; WF_EINVAL with the names that there are. */
const wf_par_strategy *wf_par_strategy_find(const char *name, wf_error *error);

/* Returns whether what modules compute with is another tensor than the stored one. */
bool wf_par_is_gathered(const wf_par *par, const wf_nn_parameter *p);

/* The name of the strategy of all units; "per_module" where they differ. */
const char *wf_par_strategy_of(const wf_par *par);

/* Returns true for a data-parallel axis; all of these, a bit each. */
bool wf_par_is_dp(const wf_par *par, int axis);
unsigned wf_par_dp_axes(const wf_par *par);

/* Returns the other axes but that of a pipeline: those that sharding plans may split tensors
   over. */
unsigned wf_par_tensor_axes(const wf_par *par);

/* Finds the axes that split the batch: the named ones, or dp, or replicate and shard, and ep
   with these; and the ones that split experts and tokens. Errors: WF_EINVAL,
   WF_EUNSUPPORTED. */
wf_status wf_par_find_axes(wf_par *par, wf_error *error);

/* Returns whether an axis splits the features of experts, not experts: tp, with .etp. */
bool wf_par_splits_features(const wf_par *par, int axis);

/* Returns the innermost data-parallel axis, but of ep the one around it; -1: there is none. */
int wf_par_innermost(const wf_par *par);

/* Returns the axes that shard what is sharded over this one: it, and ep inside of it. */
unsigned wf_par_sharding_axes(const wf_par *par, int axis);

/* Marks the axes that cut finely: of the usual mesh those that shard; of another one any
   data-parallel axis. */
void wf_par_cut_finely(wf_par *par);

/* Sets the axes over which gradients are summed in every micro-step, or group of them: `axes`
   where `each` says so, and ep in any case. Errors: WF_EINVAL, in the context. */
wf_status wf_par_set_reduced(wf_par *par, unsigned axes, bool each);

/* The axes over which gradients of this policy are summed together in a micro-step, a bit
   each. */
unsigned wf_par_policy_reduces(const wf_par *par, const wf_par_policy *policy);

/* Ranks along all of these axes, a bit each. */
int64_t wf_par_ranks_along(const wf_par *par, unsigned axes);

/* Returns a layout with dim d cut by those of some data-parallel axes that do not split it yet,
   the innermost first. */
const wf_layout *wf_par_cut_further(const wf_par *par, const wf_layout *use, int d,
                                    unsigned axes);

/* `layout`, but whole over all of these axes. */
const wf_layout *wf_par_whole_over(const wf_par *par, const wf_layout *layout, unsigned axes);

/* Reports to the context where the parts of a tensor axis do not nest in the tree of sums. */
void wf_par_report_axis(wf_par *par, int axis);

/* Fill in the layouts that follow from `use` and the policy. */
void wf_par_lay_out(wf_par *par, const wf_nn_parameter *p, wf_par_parameter_state *h);

/* Writes to standard error, from one rank and once, why the layout is not exact; nothing in a
   plan, and while it is exact as far as is known. */
void wf_par_report_inexact(wf_par *par);

/* Writes a warning to standard error where the rank is 0, and not in a plan: for
   wf_context_on_warning. */
void wf_par_print_warning(void *par, const char *text);

/* Returns true where this rank counts a tensor: of the ranks that hold the same part of a
   parameter, of its gradient or of a moment, the one that is first on every other axis; on the
   axis of a pipeline, the one of its first stage. */
bool wf_par_counts_here(const wf_par *par, const wf_nn_parameter *parameter,
                        const wf_tensor *t);

/* Returns options with what is meant where they say nothing: one rank of an axis. */
wf_par_options wf_par_options_filled(const wf_par_options *options);

/* Returns whether a data-parallel rank has a part of the state that no other one has, which may
   be its experts'; false of axes of one's own, of which only the model knows. */
bool wf_par_holds_alone(const wf_par_options *options);

/* Leaves one rank of every axis, and nothing of what more ranks of them do. */
void wf_par_options_leave_axes(wf_par_options *options);

/* Free what wf_par_plan made. */
void wf_par_drop_plans(wf_par *par);

/* Count all that begins to move between the two as moves of parameters. */
void wf_par_moved_begin(wf_par *par);
void wf_par_moved_end(wf_par *par);

/* wf_move over data-parallel axes, with results that are counted as `kind`. */
wf_move *wf_par_move_begin(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                           const wf_layout *const *to);
wf_status wf_par_move_end(wf_par *par, wf_memory_kind kind, wf_move *move, wf_tensor **y);
wf_status wf_par_move_run(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                          const wf_layout *const *to, wf_tensor **y);

/* Fails the world, so that no peer waits for this rank elsewhere. */
void wf_par_abandon(wf_par *par);

/* Fails the world, and ends a move in flight. */
void wf_par_move_abandon(wf_par *par, wf_move *move, wf_tensor **y);

#endif
