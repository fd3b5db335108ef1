/*
 * parallel/shard/sharding_plan_internal.h - what has been asked for one model: rules of tensor
 * parallelism over axes, and which modules are sharded how. Not installed.
 */
#ifndef WF_PARALLEL_SHARD_SHARDING_PLAN_INTERNAL_H
#define WF_PARALLEL_SHARD_SHARDING_PLAN_INTERNAL_H

#include "parallel/parallel_internal.h"
#include "parallel/shard/sharding_plan.h"

/* Modules that become units, by one of three: their path, their type, or how many parameters
   they have that are in no unit yet. */
typedef struct wf_par_shard_rule {
    struct wf_par_shard_rule *next; /* in the order in which they came */
    wf_par_policy policy;
    char pattern[WF_NN_PATH];
    const char *type;     /* NULL: not by type */
    int64_t min_elements; /* 0: not by size */
} wf_par_shard_rule;

typedef struct wf_par_tensor_rules {
    struct wf_par_tensor_rules *next;
    const wf_par_rule *rules;
    int axis;
} wf_par_tensor_rules;

typedef struct wf_par_sharding_plan {
    struct wf_par_sharding_plan *next; /* links the plans of the rank's models */
    const wf_nn_module *root;
    wf_par_tensor_rules *tensor;
    wf_par_shard_rule *shard;
    wf_par_policy rest; /* the root's, where no rule is for it */
} wf_par_sharding_plan;

/* The plan of a model, made where it has none; NULL on error. */
wf_par_sharding_plan *wf_par_sharding_plan_of(wf_par *par, const wf_nn_module *model);

/* Forget what was asked for a model, or for all (NULL). */
void wf_par_sharding_plan_drop(wf_par *par, const wf_nn_module *model);

/* Adds rules of splits over an axis; of units. WF_ENOMEM. */
wf_status wf_par_sharding_plan_tensor(wf_par *par, wf_par_sharding_plan *plan, int axis,
                                      const wf_par_rule *rules);
wf_status wf_par_sharding_plan_shard(wf_par *par, wf_par_sharding_plan *plan,
                                     const wf_par_shard_rule *rule);

/* Lay the model out anew by its plan, put borders at its points, and form its units. */
wf_status wf_par_sharding_plan_apply(wf_par *par, wf_nn_module *model,
                                     const wf_par_sharding_plan *plan);

/* A plan's hook in a module: the style that acts there, and the module's unit. */
typedef struct wf_par_plan_hook {
    wf_nn_hooks hooks;
    const wf_par *par;
    const wf_nn_module *module;
    const wf_par_style *style; /* NULL where no rule matches .. */
    int axis;                  /* over which the style splits */
    struct wf_par_unit *unit;  /* .. or where it is not one of those that act */
    struct wf_par_plan_hook *next;
} wf_par_plan_hook;

/* Passes tensors through the borders of the style at a point; returns true where there are some
   that may move them: along an axis of one rank every layout is whole and stays it
   (sharding_borders.c). Members of wf_nn_hooks. */
void wf_par_plan_hook_at(void *hook, wf_nn_module *module, const char *point, int n,
                         wf_tensor **x);
bool wf_par_plan_hook_acts(void *hook, const char *point);

/* Attends over tokens that cp splits, with keys and values gathered: x[0], q, becomes the
   result; k and v become NULL. sinks: NULL for none. Collective (attention_gather.c). */
struct wf_nn_attention;
void wf_par_attend(const wf_par_plan_hook *p, const struct wf_nn_attention *m, wf_tensor *sinks,
                   wf_tensor **x);

/* Computes experts whose features the style's axis splits: x[0], tokens, becomes the sum over
   this rank's experts; x[1], weights, becomes NULL. Collective (expert_features.c). */
void wf_par_compute_experts(const wf_par_plan_hook *p, wf_tensor **x);

/* Exchanges and computes tokens, n sequences at a time: x[0], this rank's tokens, becomes their
   sums over all experts, in layout `to`; x[1], weights, becomes NULL. x[2]: indices; x[3]: the
   tokens that are recorded. Collective (expert_waves.c). */
void wf_par_compute_waves(const wf_par_plan_hook *p, const wf_row_owners *owners, int64_t n,
                          const wf_layout *to, wf_tensor **x);

#endif
