/* parallel/shard/units.c - the wrap policy: FSDP units, and their parameters. */
#include "parallel/shard/units_internal.h"
#include "parallel/shard/unshard_internal.h"
#include <stdlib.h>
#include <string.h>

/* A module of the tree, in the order of wf_nn_visit: parents come before their children. */
typedef struct entry {
    wf_nn_module *module;
    int64_t parent;   /* -1 for the root */
    int64_t elements; /* counts parameters whose owner is here or, not yet wrapped, below */
    int64_t unit;     /* its number where it is one, else -1 */
    const wf_par_policy *policy; /* a unit's */
} entry;

typedef struct tree {
    wf_par *par;
    const wf_par_sharding_plan *plan;
    entry *entries;
    int64_t count, visited; /* entries that a visit has come by */
} tree;

/* Returns true where `path` is below `above`: "block.1.mlp" is below "block.1" and below "". */
static bool below(const char *path, const char *above)
{
    size_t n = strlen(above);

    return n == 0 || (strncmp(path, above, n) == 0 && path[n] == '.');
}

static void add_module(void *arg, wf_nn_module *m)
{
    tree *t = arg;
    int64_t parent = t->count - 1;

    if (t->entries) {
        while (parent >= 0 && !below(m->path, t->entries[parent].module->path))
            parent = t->entries[parent].parent;
        t->entries[t->count] = (entry){.module = m, .parent = parent, .unit = -1};
    }
    t->count++;
}

static int64_t lowest_common(const tree *t, int64_t a, int64_t b)
{
    while (a != b)
        if (a > b)
            a = t->entries[a].parent;
        else
            b = t->entries[b].parent;
    return a;
}

static void visit_module(void *arg, wf_nn_module *m)
{
    tree *t = arg;

    (void)m;
    t->visited++;
}

/* Sets the owner of a parameter to the lowest entry above all modules that use it; a module's
   parameters are visited after it, among those of its children. */
static void find_owner(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    tree *t = arg;
    wf_par_parameter_state *h = wf_par_state_of(p);
    int64_t at = t->visited - 1;

    (void)name;
    while (t->entries[at].module != m)
        at = t->entries[at].parent;
    h->owner = h->owner < 0 ? at : lowest_common(t, h->owner, at);
}

/* Returns true where a module can be a unit: its forward is called, so it can be gathered. */
static bool can_be_unit(const tree *t, int64_t i)
{
    for (; i > 0; i = t->entries[i].parent)
        if (t->entries[i].module->member)
            return false;
    return true;
}

/* Checks that modules of a type can be units. */
static wf_status check_type(const tree *t, const char *type)
{
    char types[320] = "";

    for (int64_t i = 0; i < t->count; i++) {
        if (!can_be_unit(t, i))
            continue;
        if (strcmp(t->entries[i].module->type->name, type) == 0)
            return WF_OK;
        wf_par_add_name(types, sizeof types, t->entries[i].module->type->name);
    }
    return wf_fail(
        t->par->ctx, WF_EINVAL,
        "no module of the model is of type %s, which wrap_type names: those that can "
        "be units are of types %s; wrap_min_params forms units by number of parameters",
        type, types);
}

/* Checks that a pattern matches modules, all of which can be units. */
static wf_status check_path(const tree *t, const char *pattern)
{
    bool found = false;

    for (int64_t i = 0; i < t->count; i++) {
        if (!wf_nn_path_matches(pattern, t->entries[i].module->path))
            continue;
        found = true;
        if (!can_be_unit(t, i))
            return wf_fail(
                t->par->ctx, WF_EINVAL,
                "module %s belongs to a group that uses its parameters without calling "
                "it, so there is no moment to unshard it at: shard the group",
                t->entries[i].module->path);
    }
    return found ? WF_OK
                 : wf_fail(
                       t->par->ctx, WF_EINVAL,
                       "no module of the model is at %s: wf_nn_visit shows the paths there are",
                       pattern);
}

static wf_status check_rules(const tree *t)
{
    wf_status status = WF_OK;

    for (const wf_par_shard_rule *r = t->plan->shard; r && status == WF_OK; r = r->next)
        if (r->min_elements == 0 && !r->type)
            status = check_path(t, r->pattern);
        else if (r->type && t->par->options.wrap_type)
            status = check_type(t, r->type);
    return status;
}

/* The root is always a unit; rules by type or size are for modules below it. */
static bool is_for(const wf_par_shard_rule *r, const entry *e)
{
    if (e->parent < 0 && (r->min_elements > 0 || r->type))
        return false;
    if (r->min_elements > 0)
        return e->elements >= r->min_elements;
    if (r->type)
        return strcmp(e->module->type->name, r->type) == 0;
    return wf_nn_path_matches(r->pattern, e->module->path);
}

/* Returns the last rule for a module; NULL where there is none. */
static const wf_par_policy *policy_of(const tree *t, const entry *e)
{
    const wf_par_policy *policy = NULL;

    for (const wf_par_shard_rule *r = t->plan->shard; r; r = r->next)
        if (is_for(r, e))
            policy = &r->policy;
    return policy;
}

/* Wraps modules, children before parents: the smallest ones that are large enough are wrapped,
   and what no unit has counts for the parent. Returns the number of units. */
static int64_t wrap(tree *t)
{
    int64_t units = 0;

    for (int64_t i = t->count - 1; i > 0; i--) {
        entry *e = &t->entries[i];

        e->policy = can_be_unit(t, i) ? policy_of(t, e) : NULL;
        if (e->policy)
            e->unit = 0;
        else
            t->entries[e->parent].elements += e->elements;
    }
    t->entries[0].unit = 0;
    t->entries[0].policy = policy_of(t, &t->entries[0]);
    if (!t->entries[0].policy)
        t->entries[0].policy = &t->plan->rest;
    for (int64_t i = 0; i < t->count; i++)
        if (t->entries[i].unit == 0)
            t->entries[i].unit = units++;
    return units;
}

/* Returns the lowest unit that has all uses of a parameter. */
static const entry *unit_entry_of(const tree *t, const wf_nn_parameter *p)
{
    int64_t at = wf_par_state_of(p)->owner;

    while (t->entries[at].unit < 0)
        at = t->entries[at].parent;
    return &t->entries[at];
}

static int64_t unit_of(const tree *t, const wf_nn_parameter *p)
{
    return unit_entry_of(t, p)->unit;
}

/* Chooses the axes over which gradients are summed in every micro-step, or group of them: one
   answer for all of a run, since the numbers of sequences follow from it. */
static wf_status choose_reduced(const tree *t)
{
    wf_par *par = t->par;
    unsigned axes = wf_par_policy_reduces(par, t->entries[0].policy);
    bool group = par->options.accumulate == WF_PAR_GROUP;
    bool each = par->options.accumulate == WF_PAR_REDUCED || group;

    for (int64_t i = 0; i < t->count; i++) {
        if (t->entries[i].unit < 0)
            continue;
        if (group || wf_par_policy_reduces(par, t->entries[i].policy) != axes)
            axes = wf_par_dp_axes(par);
        each = each || (par->options.accumulate == WF_PAR_AUTO &&
                        t->entries[i].policy->strategy->reduce_each);
    }
    return wf_par_set_reduced(par, axes, each);
}

/* Gives parameters the policy of their unit, and layouts. */
static void shard_parameters(const tree *t, int64_t count, wf_nn_parameter **parameter)
{
    for (int64_t i = 0; i < count; i++) {
        wf_par_parameter_state *h = wf_par_state_of(parameter[i]);

        h->policy = unit_entry_of(t, parameter[i])->policy;
        wf_par_lay_out(t->par, parameter[i], h);
    }
}

/* Gives each unit its parameters, sharded ones first. */
static void fill(wf_par_units *all, const tree *t, int64_t count, wf_nn_parameter **parameter)
{
    wf_nn_parameter **next = all->parameters;

    for (int64_t i = 0; i < t->count; i++)
        if (t->entries[i].unit >= 0) {
            all->unit[t->entries[i].unit].module = t->entries[i].module;
            all->unit[t->entries[i].unit].policy = *t->entries[i].policy;
        }
    for (int64_t i = 0; i < count; i++)
        all->unit[unit_of(t, parameter[i])].count++;
    for (int64_t u = 0; u < all->count; u++) {
        wf_par_unit *unit = &all->unit[u];

        unit->of = all;
        unit->parameter = next;
        next += unit->count;
        unit->count = 0;
    }
    for (int split = 1; split >= 0; split--)
        for (int64_t i = 0; i < count; i++) {
            const wf_par_parameter_state *h = wf_par_state_of(parameter[i]);
            wf_par_unit *unit = &all->unit[unit_of(t, parameter[i])];

            if (wf_par_is_gathered(all->par, parameter[i]) == split) {
                unit->parameter[unit->count++] = parameter[i];
                unit->split += split;
                unit->moves |= h->shard_layout != h->compute_layout;
            }
        }
}

static void choose_reshard(wf_par_units *all)
{
    for (int64_t u = 0; u < all->count; u++) {
        const wf_par_policy *policy = &all->unit[u].policy;

        all->unit[u].reshard =
            policy->reshard == WF_PAR_RESHARD_DEFAULT
                ? u > 0 && !policy->strategy->keep_gathered && all->unit[u].moves
                : policy->reshard == WF_PAR_RESHARD_ALWAYS;
        all->unit[u].keep_unsharded = !policy->strategy->split_parameters;
    }
}

/* Expects the modules to run in the order of the tree, until a first pass has shown it. */
static wf_status expect_order(wf_par_units *all)
{
    for (int64_t u = 0; u < all->count; u++)
        if (wf_par_sequence_see(all, &all->model.forward, &all->unit[u]) != WF_OK)
            return wf_context_status(all->par->ctx);
    return WF_OK;
}

void wf_par_order_free(wf_par_order *order)
{
    free(order->forward.unit);
    free(order->backward.unit);
    *order = (wf_par_order){.forward = {.unit = NULL}};
}

static void units_free(wf_par_units *all)
{
    if (!all)
        return;
    for (int64_t u = 0; all->unit && u < all->count; u++)
        if (all->unit[u].handle)
            wf_par_move_abandon(all->par, all->unit[u].handle, all->list);
    free(all->unit);
    free(all->parameters);
    free(all->list);
    free(all->to);
    wf_par_order_free(&all->model);
    free(all);
}

static wf_par_units *make(tree *t, wf_nn_module *root, int64_t count,
                          wf_nn_parameter **parameter)
{
    wf_par_units *all = calloc(1, sizeof *all);

    t->count = 0;
    wf_nn_visit(root, add_module, NULL, t);
    wf_nn_visit(root, visit_module, find_owner, t);
    for (int64_t i = 0; i < count; i++)
        t->entries[wf_par_state_of(parameter[i])->owner].elements +=
            wf_tensor_count(parameter[i]->tensor);
    if (check_rules(t) != WF_OK) {
        free(all);
        return NULL;
    }
    if (all) {
        *all = (wf_par_units){.par = t->par, .root = root, .count = wrap(t)};
        all->pass.order = &all->model;
        all->unit = calloc((size_t)all->count, sizeof *all->unit);
        all->parameters = calloc((size_t)count + 1, sizeof(wf_nn_parameter *));
        all->list = calloc((size_t)count + 1, sizeof(wf_tensor *));
        all->to = calloc((size_t)count + 1, sizeof(wf_layout *));
    }
    if (!all || !all->unit || !all->parameters || !all->list || !all->to) {
        wf_fail(t->par->ctx, WF_ENOMEM, "no memory for the units of a model");
        units_free(all);
        return NULL;
    }
    if (choose_reduced(t) == WF_OK) {
        shard_parameters(t, count, parameter);
        fill(all, t, count, parameter);
        choose_reshard(all);
        if (expect_order(all) == WF_OK)
            return all;
    }
    units_free(all);
    return NULL;
}

wf_par_units *wf_par_units_new(wf_par *par, wf_nn_module *root,
                               const wf_par_sharding_plan *plan)
{
    tree t = {.par = par, .plan = plan};
    wf_par_units *all = NULL;
    int64_t count = 0;
    wf_nn_parameter **parameter = wf_nn_parameters(root, &count);

    wf_nn_visit(root, add_module, NULL, &t); /* counts them */
    t.entries = calloc((size_t)t.count, sizeof *t.entries);
    if (parameter && t.entries)
        all = make(&t, root, count, parameter);
    else
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the units of a model");
    free(t.entries);
    free(parameter);
    if (all) {
        all->next = par->models;
        par->models = all;
    }
    return all;
}

void wf_par_units_drop(wf_par *par, const wf_nn_module *root)
{
    for (wf_par_units **at = &par->models, *all; (all = *at);)
        if (!root || all->root == root) {
            *at = all->next;
            units_free(all);
        } else {
            at = &all->next;
        }
}

wf_par_units *wf_par_units_of(const wf_par *par, const wf_nn_module *model)
{
    wf_par_units *all = par->models;

    while (all && all->root != model)
        all = all->next;
    return all;
}

bool wf_par_unit_acts(const wf_par_unit *u)
{
    return u->split > 0 || (wf_par_takes_units(u->of->par) && u->count > 0);
}
