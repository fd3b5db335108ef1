/* parallel/shard/sharding_plan.c - applying a plan: layouts of parameters, and hooks at
   points. */
#include "parallel/shard/sharding_plan_internal.h"
#include "parallel/shard/unshard_internal.h"
#include <stdlib.h>
#include <string.h>

static void at_enter(void *self, wf_nn_module *module)
{
    const wf_par_plan_hook *p = self;

    (void)module;
    if (p->unit)
        wf_par_unit_enter(p->unit);
}

static void at_leave(void *self, wf_nn_module *module)
{
    const wf_par_plan_hook *p = self;

    (void)module;
    if (p->unit)
        wf_par_unit_leave(p->unit);
}

/* Returns a plan's hook in a module, among those of others; NULL: it has none. */
static wf_par_plan_hook *hook_of(const wf_nn_module *m)
{
    for (int i = 0; i < m->n_hooks; i++)
        if (m->hooks[i]->at == wf_par_plan_hook_at)
            return m->hooks[i]->self;
    return NULL;
}

/* Returns the module's record, made where it has none; NULL on error. */
static wf_par_plan_hook *hook_in(wf_par *par, wf_nn_module *m)
{
    wf_par_plan_hook *p = hook_of(m);

    if (p)
        return p;
    p = calloc(1, sizeof *p);
    if (!p) {
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a plan");
        return NULL;
    }
    *p = (wf_par_plan_hook){.par = par, .module = m, .next = par->plan_hooks};
    p->hooks = (wf_nn_hooks){.at = wf_par_plan_hook_at,
                             .acts = wf_par_plan_hook_acts,
                             .enter = at_enter,
                             .leave = at_leave,
                             .self = p};
    par->plan_hooks = p;
    return wf_nn_hook_add(m, &p->hooks) == WF_OK ? p : NULL;
}

typedef struct planner {
    wf_par *par;
    const wf_par_sharding_plan *plan;
    const wf_par_style *style; /* the style of the module whose parameters are visited .. */
    int axis;                  /* .. and the axis that it splits over */
    const wf_par_split *split;
    bool found;
} planner;

/* Gives every parameter a state, with nothing of an earlier plan in it. */
static void plain_layout(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planner *pl = arg;
    wf_par_parameter_state *h = p->plan;

    (void)m;
    (void)name;
    if (!p->tensor || !wf_tensor_is_fake(p->tensor)) {
        wf_fail(pl->par->ctx, WF_EINVAL,
                "parameter %s is real already: a model is planned before it is materialised",
                p->path);
        return;
    }
    if (!h) {
        h = calloc(1, sizeof *h);
        if (!h) {
            wf_fail(pl->par->ctx, WF_ENOMEM, "no memory for the plan of %s", p->path);
            return;
        }
        h->next = pl->par->states;
        pl->par->states = h;
        p->plan = h;
    }
    *h = (wf_par_parameter_state){.next = h->next, .owner = -1};
}

/* Returns the dim of a parameter of experts that has features; -1: none has. */
static int features_dim(const planner *pl)
{
    const wf_par_split *s = pl->style->features;

    while (s && s->parameter && strcmp(s->parameter, pl->split->parameter) != 0)
        s++;
    return s && s->parameter ? s->dim : -1;
}

/* Returns the layout of a split over the style's axis, which may be of an expert's features; of
   experts also over those that split the batch and tokens elsewhere, in the order of the mesh,
   in which ranks add. */
static const wf_layout *split_layout(const planner *pl)
{
    const bool features = pl->style->experts && wf_par_splits_features(pl->par, pl->axis);
    const wf_layout *layout = NULL;

    for (int axis = 0; axis < wf_mesh_axes(pl->par->mesh); axis++) {
        const bool own = axis == pl->axis;
        const int dim = own && features ? features_dim(pl) : pl->split->dim;

        if (dim >= 0 && (own || (pl->style->experts &&
                                 (axis == pl->par->ep_axis || axis == pl->par->cp_axis))))
            layout = wf_layout_split(pl->par->mesh, layout, dim, axis);
    }
    return layout;
}

static void split_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planner *pl = arg;
    wf_par_parameter_state *h = p->plan;
    const wf_layout *layout;

    if (strcmp(name, pl->split->parameter + (*pl->split->parameter == '?')) != 0)
        return;
    pl->found = true;
    if (pl->split->dim >= p->tensor->ndim) {
        wf_fail(pl->par->ctx, WF_EINVAL,
                "style %s splits dim %d of parameter %s, which has only %d dims",
                pl->style->name, pl->split->dim, p->path, p->tensor->ndim);
        return;
    }
    layout = split_layout(pl);
    if (h->styled && h->compute_layout != layout)
        wf_fail(pl->par->ctx, WF_EINVAL,
                "parameter %s is tied, but style %s of module %s splits it otherwise than the "
                "style of its first module does",
                p->path, pl->style->name, m->path);
    h->compute_layout = layout;
    h->styled = true;
}

/* Checks that a module has the points at which a style has borders: a misspelt one would never
   be reached. */
static wf_status check_points(const planner *pl, const wf_par_style *style,
                              const wf_nn_module *m)
{
    const char *points = m->type->points;

    for (const wf_par_border *b = style->borders; b && b->point; b++)
        if (*b->point != '?' && !wf_nn_has_point(m, b->point))
            return wf_fail(pl->par->ctx, WF_EINVAL,
                           "style %s has a border at point %s, but module %s (%s) has %s%s%s",
                           style->name, b->point, m->path, m->type->name,
                           points ? "no such point; its points are: " : "no points",
                           points ? points : "",
                           points ? "" : ": name those that it passes (wf_nn_points)");
    return WF_OK;
}

static void plan_module(void *arg, wf_nn_module *m)
{
    planner *pl = arg;
    const wf_par_style *style = NULL;
    wf_par_plan_hook *p;

    for (const wf_par_tensor_rules *t = pl->plan->tensor; t; t = t->next)
        for (const wf_par_rule *r = t->rules; r && r->pattern; r++)
            if (wf_nn_path_matches(r->pattern + (*r->pattern == '?'), m->path)) {
                style = r->style;
                pl->axis = t->axis;
            }
    if (wf_context_status(pl->par->ctx) != WF_OK)
        return;
    p = hook_of(m);
    if (p)
        wf_nn_hook_remove(m, &p->hooks); /* an earlier plan's */
    if (!style)
        return;
    pl->style = style;
    for (pl->split = style->splits; pl->split && pl->split->parameter; pl->split++) {
        pl->found = false;
        wf_nn_visit(m, NULL, split_parameter, pl);
        if (!pl->found && *pl->split->parameter != '?')
            wf_fail(pl->par->ctx, WF_EINVAL,
                    "style %s splits parameter %s, but module %s (%s) "
                    "has none of that name",
                    style->name, pl->split->parameter, m->path, m->type->name);
    }
    p = check_points(pl, style, m) == WF_OK ? hook_in(pl->par, m) : NULL;
    if (p) {
        p->style = style;
        p->axis = pl->axis;
    }
}

/* Form the model's units, and put those that act into their modules; the root as well, whose
   begin is that of a pass. */
static void plan_units(wf_par *par, wf_nn_module *model, const wf_par_sharding_plan *plan)
{
    wf_par_units *all;
    bool act = false;

    wf_par_units_drop(par, model);
    all = wf_par_units_new(par, model, plan);
    for (int64_t u = all ? all->count - 1 : -1; u >= 0; u--) {
        wf_par_plan_hook *p;

        act = act || wf_par_unit_acts(&all->unit[u]);
        if (!wf_par_unit_acts(&all->unit[u]) && !(act && u == 0))
            continue;
        p = hook_in(par, all->unit[u].module);
        if (!p)
            return;
        p->unit = &all->unit[u];
    }
}

/* A pattern that is looked for, and what there is: the paths of modules, numbers as "*". */
typedef struct search {
    const char *pattern;
    bool found;
    char paths[640];
} search;

static void look(void *arg, wf_nn_module *m)
{
    search *s = arg;

    s->found = s->found || wf_nn_path_matches(s->pattern, m->path);
}

static void add_path(void *arg, wf_nn_module *m)
{
    search *s = arg;
    char path[WF_NN_PATH];
    size_t n = 0;

    for (const char *at = m->path; *at;) {
        size_t length = strcspn(at, ".");

        if (strspn(at, "0123456789") == length) {
            path[n++] = '*';
        } else {
            memcpy(path + n, at, length);
            n += length;
        }
        at += length;
        if (*at)
            path[n++] = *at++;
    }
    path[n] = 0;
    if (n)
        wf_par_add_name(s->paths, sizeof s->paths, path);
}

/* Every rule is for something, or says that it may be for nothing. */
static wf_status check_rules(wf_par *par, wf_nn_module *model, const wf_par_rule *rules)
{
    for (const wf_par_rule *r = rules; r && r->pattern; r++) {
        search s = {.pattern = r->pattern};

        if (*r->pattern == '?')
            continue;
        wf_nn_visit(model, look, NULL, &s);
        if (s.found)
            continue;
        wf_nn_visit(model, add_path, NULL, &s);
        return wf_fail(
            par->ctx, WF_EINVAL,
            "the plan's rule %s (style %s) is for no module of the model, which has %s; "
            "?%s is a rule that may be for none",
            r->pattern, r->style->name, s.paths, r->pattern);
    }
    return WF_OK;
}

wf_status wf_par_sharding_plan_apply(wf_par *par, wf_nn_module *model,
                                     const wf_par_sharding_plan *plan)
{
    planner pl = {.par = par, .plan = plan};

    if (wf_nn_name_tree(model) != WF_OK)
        return wf_context_status(par->ctx);
    for (const wf_par_tensor_rules *t = plan->tensor; t; t = t->next) {
        if (check_rules(par, model, t->rules) != WF_OK)
            return wf_context_status(par->ctx);
        wf_par_report_axis(par, t->axis);
    }
    wf_nn_visit(model, NULL, plain_layout, &pl);
    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    wf_nn_visit(model, plan_module, NULL, &pl);
    if (wf_context_status(par->ctx) == WF_OK)
        plan_units(par, model, plan);
    return wf_context_status(par->ctx);
}

wf_status wf_par_reshard_unit(wf_par *par, wf_nn_module *model, const char *pattern,
                              bool reshard)
{
    wf_par_units *all = wf_par_units_of(par, model);
    bool found = false;

    for (int64_t u = 0; all && u < all->count; u++)
        if (wf_nn_path_matches(pattern, all->unit[u].module->path)) {
            all->unit[u].reshard = reshard;
            found = true;
        }
    return found ? WF_OK
                 : wf_fail(par->ctx, WF_EINVAL,
                           "no unit of the model is at %s: wf_par_unit_at lists its units",
                           *pattern ? pattern : "the root");
}

wf_status wf_par_reshard_all(wf_par *par, wf_nn_module *model)
{
    wf_par_units_change(wf_par_units_of(par, model));
    return wf_context_status(par->ctx);
}

void wf_par_drop_plans(wf_par *par)
{
    wf_par_units_drop(par, NULL);
    for (wf_par_plan_hook *p = par->plan_hooks, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    for (wf_par_parameter_state *h = par->states, *next; h; h = next) {
        next = h->next;
        wf_tensor_release(h->gathered);
        wf_tensor_release(h->low_precision);
        free(h);
    }
    wf_par_sharding_plan_drop(par, NULL);
    par->plan_hooks = NULL;
    par->states = NULL;
}

const wf_layout *wf_par_layout(const wf_nn_parameter *parameter)
{
    return parameter->plan ? wf_par_state_of(parameter)->shard_layout : NULL;
}
