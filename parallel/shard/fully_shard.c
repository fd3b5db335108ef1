/*
 * parallel/shard/fully_shard.c - what is asked for a model: tensor parallelism over an axis
 * (torch's parallelize_module), sharding of some modules over another (fully_shard), or both by
 * the options of the run. Each call adds to the model's plan, which is then laid out anew.
 */
#include "parallel/shard/sharding_plan_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void plan_free(wf_par_sharding_plan *plan)
{
    for (wf_par_tensor_rules *t = plan->tensor, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    for (wf_par_shard_rule *s = plan->shard, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    free(plan);
}

wf_par_sharding_plan *wf_par_sharding_plan_of(wf_par *par, const wf_nn_module *model)
{
    wf_par_sharding_plan *plan = par->plans;
    wf_error error = {WF_OK, ""};

    while (plan && plan->root != model)
        plan = plan->next;
    if (plan)
        return plan;
    plan = calloc(1, sizeof *plan);
    if (!plan) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a sharding plan");
        return NULL;
    }
    *plan = (wf_par_sharding_plan){.next = par->plans, .root = model};
    plan->rest = (wf_par_policy){.strategy = wf_par_strategy_find("no_shard", &error),
                                 .axes = par->policy.axes};
    par->plans = plan;
    return plan;
}

void wf_par_sharding_plan_drop(wf_par *par, const wf_nn_module *model)
{
    for (wf_par_sharding_plan **at = &par->plans, *plan; (plan = *at);)
        if (!model || plan->root == model) {
            *at = plan->next;
            plan_free(plan);
        } else {
            at = &plan->next;
        }
}

wf_status wf_par_sharding_plan_tensor(wf_par *par, wf_par_sharding_plan *plan, int axis,
                                      const wf_par_rule *rules)
{
    wf_par_tensor_rules **end = &plan->tensor, *t = calloc(1, sizeof *t);

    if (!t)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for the rules of a sharding plan");
    *t = (wf_par_tensor_rules){.rules = rules, .axis = axis};
    while (*end)
        end = &(*end)->next;
    *end = t;
    return WF_OK;
}

wf_status wf_par_sharding_plan_shard(wf_par *par, wf_par_sharding_plan *plan,
                                     const wf_par_shard_rule *rule)
{
    wf_par_shard_rule **end = &plan->shard, *s = calloc(1, sizeof *s);

    if (!s)
        return wf_fail(par->ctx, WF_ENOMEM, "no memory for the rules of a sharding plan");
    *s = *rule;
    s->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = s;
    return WF_OK;
}

/* The names of the axes of a mesh, for an error. */
static char *print_axes(const wf_mesh *mesh, char *text, size_t size)
{
    *text = 0;
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        wf_par_add_name(text, size, wf_mesh_axis_name(mesh, axis));
    return text;
}

/* The number of an axis by its name; -1 and WF_EINVAL where the mesh has none of that name. */
static int find_axis(wf_par *par, const char *name)
{
    int axis = wf_mesh_axis(par->mesh, name);
    char names[WF_MAX_AXES * (WF_AXIS_NAME + 2)];

    if (axis < 0)
        wf_fail(par->ctx, WF_EINVAL, "the mesh has no axis %s: its axes are %s", name,
                print_axes(par->mesh, names, sizeof names));
    return axis;
}

wf_status wf_par_tensor(wf_par *par, wf_nn_module *model, const char *axis_name,
                        const wf_par_rule *rules)
{
    wf_par_sharding_plan *plan;
    int axis;

    if (!model || wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    axis = find_axis(par, axis_name);
    if (axis < 0)
        return wf_context_status(par->ctx);
    if (wf_par_is_dp(par, axis))
        return wf_fail(
            par->ctx, WF_EINVAL,
            "axis %s is data-parallel (wf_par_options.dp_axes): tensors are split over "
            "one that is not",
            axis_name);
    plan = wf_par_sharding_plan_of(par, model);
    if (!plan || wf_par_sharding_plan_tensor(par, plan, axis, rules) != WF_OK)
        return wf_context_status(par->ctx);
    return wf_par_sharding_plan_apply(par, model, plan);
}

/* Options as a policy; false with WF_EINVAL where they name what there is not. */
static bool find_policy(wf_par *par, const char *axis_name, const wf_par_shard_options *o,
                        wf_par_policy *policy)
{
    static const wf_par_shard_options none = {0};
    const char *strategy;
    wf_error error = {WF_OK, ""};
    int axis = find_axis(par, axis_name);

    if (!o)
        o = &none;
    strategy = o->strategy ? o->strategy : WF_PAR_STRATEGY;
    *policy = (wf_par_policy){.strategy = wf_par_strategy_find(strategy, &error),
                              .axes = wf_par_sharding_axes(par, axis),
                              .prefetch = o->prefetch,
                              .reshard = o->reshard};
    if (!policy->strategy)
        wf_fail(par->ctx, WF_EINVAL, "%s", error.text);
    else if (axis >= 0 && !wf_par_is_dp(par, axis))
        wf_fail(
            par->ctx, WF_EINVAL,
            "axis %s is not data-parallel: name it in wf_par_options.dp_axes, which are the "
            "axes that split the batch",
            axis_name);
    else if (o->prefetch < 0)
        wf_fail(par->ctx, WF_EINVAL, "prefetch %d cannot be negative", o->prefetch);
    return wf_context_status(par->ctx) == WF_OK;
}

wf_status wf_par_shard(wf_par *par, wf_nn_module *model, const char *pattern, const char *axis,
                       const wf_par_shard_options *options)
{
    wf_par_sharding_plan *plan;
    wf_par_shard_rule rule = {.next = NULL};

    if (!model || wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (strlen(pattern) >= sizeof rule.pattern)
        return wf_fail(par->ctx, WF_EINVAL, "the pattern %s is longer than any path", pattern);
    if (!find_policy(par, axis, options, &rule.policy))
        return wf_context_status(par->ctx);
    snprintf(rule.pattern, sizeof rule.pattern, "%s", pattern);
    plan = wf_par_sharding_plan_of(par, model);
    if (!plan || wf_par_sharding_plan_shard(par, plan, &rule) != WF_OK)
        return wf_context_status(par->ctx);
    return wf_par_sharding_plan_apply(par, model, plan);
}

/* Units by the options of the run, and the root. */
static wf_status shard_by_options(wf_par *par, wf_par_sharding_plan *plan)
{
    const wf_par_options *o = &par->options;
    wf_par_shard_rule units = {.policy = par->policy, .min_elements = o->wrap_min_params};

    if (o->wrap_type && o->wrap_min_params > 0)
        return wf_fail(par->ctx, WF_EINVAL,
                       "units are formed by type (wrap_type %s) or by number of parameters "
                       "(wrap_min_params %lld): give one of the two",
                       o->wrap_type, (long long)o->wrap_min_params);
    if (o->wrap_min_params == 0)
        units.type = o->wrap_type ? o->wrap_type : "block";
    plan->rest = par->policy;
    return wf_par_sharding_plan_shard(par, plan, &units);
}

wf_status wf_par_plan(wf_par *par, wf_nn_module *model, const wf_par_rule *rules)
{
    wf_par_sharding_plan *plan;
    int tp = -1;

    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (!model)
        return wf_fail(par->ctx, WF_EINVAL,
                       "wf_par_plan of a model that is NULL, though nothing failed before");
    if (rules && (tp = find_axis(par, "tp")) < 0)
        return wf_context_status(par->ctx);
    wf_par_sharding_plan_drop(par, model);
    plan = wf_par_sharding_plan_of(par, model);
    if (!plan || (rules && wf_par_sharding_plan_tensor(par, plan, tp, rules) != WF_OK) ||
        shard_by_options(par, plan) != WF_OK)
        return wf_context_status(par->ctx);
    return wf_par_sharding_plan_apply(par, model, plan);
}
