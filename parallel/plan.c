/* parallel/plan.c - applying a plan: layouts of parameters, and hooks at points. */
#include "parallel/plan.h"
#include "core/digest.h"
#include "kernels/ops.h"
#include "parallel/strategy.h"
#include <stdlib.h>
#include <string.h>

/* What a rule puts into a module. */
typedef struct place {
    wf_nn_hooks hooks;
    const wf_par *par;
    const wf_par_style *style;
    struct place *next;
} place;

static const wf_layout *border_layout(const wf_par *par, const wf_par_border *b,
                                      const wf_layout *from)
{
    wf_mesh *mesh = par->mesh;
    int tp = wf_mesh_axis(mesh, "tp");
    bool split = b->state == WF_PAR_SPLIT ||
                 (b->state == WF_PAR_RESIDUAL && par->options.sequence_parallel);
    const wf_layout *to;

    if (split && wf_layout_split_dim(from, tp) == b->dim)
        return from;
    to = wf_layout_whole(mesh, from, tp);
    return split ? wf_layout_split(mesh, to, b->dim, tp) : to;
}

static void pass(const place *p, const wf_par_border *b, int n, wf_tensor **x)
{
    const wf_layout *to[WF_MAX_OUTPUTS];
    wf_tensor *y[WF_MAX_OUTPUTS];

    for (int i = 0; i < n; i++)
        to[i] = border_layout(p->par, b, x[i]->layout);
    wf_border(wf_mesh_axis(p->par->mesh, "tp"), n, x, to, y);
    for (int i = 0; i < n; i++) {
        if (b->again)
            wf_keep_origin(y[i], x[i]);
        x[i] = y[i];
    }
}

static void at_point(void *self, wf_nn_module *module, const char *point, int n, wf_tensor **x)
{
    const place *p = self;

    (void)module;
    for (const wf_par_border *b = p->style->borders; b && b->point; b++) {
        if (strcmp(b->point, point) != 0)
            continue;
        if (b->state != WF_PAR_GROUPS)
            pass(p, b, n, x);
        else if (n > 1 && !wf_layout_groups_agree(x[0], x[1]))
            pass(p, b, n - 1, x + 1);
    }
}

/* "block.*.attn" against "block.3.attn". */
static bool matches(const char *pattern, const char *path)
{
    while (*pattern) {
        if (*pattern == '*') {
            if (!*path)
                return false;
            path += strcspn(path, ".");
            pattern++;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return !*path;
}

typedef struct planner {
    wf_par *par;
    const wf_par_rule *rules;
    const wf_par_style *style; /* of the module whose parameters are visited */
    const wf_par_split *split;
    bool found;
    place *places;
} planner;

static const char not_planned; /* its address marks parameters that no plan has seen */

static void plain_layout(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planner *pl = arg;

    (void)m;
    (void)name;
    if (!p->tensor || wf_tensor_is_fake(p->tensor))
        p->plan = (void *)&not_planned;
    else
        wf_fail(pl->par->ctx, WF_EINVAL,
                "parameter %s is real already: a model is planned before it is materialised",
                p->path);
}

static void split_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planner *pl = arg;
    wf_mesh *mesh = pl->par->mesh;
    const wf_layout *layout;

    if (strcmp(name, pl->split->parameter) != 0)
        return;
    pl->found = true;
    if (pl->split->dim >= p->tensor->ndim) {
        wf_fail(pl->par->ctx, WF_EINVAL,
                "style %s splits dim %d of parameter %s, which has only %d dims",
                pl->style->name, pl->split->dim, p->path, p->tensor->ndim);
        return;
    }
    layout = wf_layout_split(mesh, NULL, pl->split->dim, wf_mesh_axis(mesh, "tp"));
    layout = pl->par->strategy->parameter(mesh, layout);
    if (p->plan != &not_planned && p->plan != layout)
        wf_fail(pl->par->ctx, WF_EINVAL,
                "parameter %s is tied, but style %s of module %s splits it in another way than "
                "its first place does",
                p->path, pl->style->name, m->path);
    p->plan = (void *)layout;
}

static void plan_module(void *arg, wf_nn_module *m)
{
    planner *pl = arg;
    const wf_par_style *style = NULL;
    place *p;

    for (const wf_par_rule *r = pl->rules; r && r->pattern; r++)
        if (matches(r->pattern, m->path))
            style = r->style;
    if (wf_context_status(pl->par->ctx) != WF_OK)
        return;
    m->hooks = NULL; /* an earlier plan's */
    if (!style)
        return;
    pl->style = style;
    for (pl->split = style->splits; pl->split && pl->split->parameter; pl->split++) {
        pl->found = false;
        wf_nn_visit(m, NULL, split_parameter, pl);
        if (!pl->found && strcmp(pl->split->parameter, "bias") != 0)
            wf_fail(pl->par->ctx, WF_EINVAL,
                    "style %s splits parameter %s, but module %s (%s) "
                    "has none of that name",
                    style->name, pl->split->parameter, m->path, m->type->name);
    }
    p = calloc(1, sizeof *p);
    if (!p) {
        wf_fail(pl->par->ctx, WF_ENOMEM, "no memory for a plan");
        return;
    }
    *p = (place){.par = pl->par, .style = style, .next = pl->par->places};
    p->hooks = (wf_nn_hooks){.at = at_point, .self = p};
    pl->par->places = p;
    m->hooks = &p->hooks;
}

static void finish_layout(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planner *pl = arg;

    (void)m;
    (void)name;
    if (p->plan == &not_planned)
        p->plan = (void *)pl->par->strategy->parameter(pl->par->mesh, NULL);
}

wf_status wf_par_plan(wf_par *par, wf_nn_module *model, const wf_par_rule *rules)
{
    planner pl = {.par = par, .rules = rules};

    if (!model || wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    wf_nn_name_tree(model);
    wf_nn_visit(model, NULL, plain_layout, &pl);
    wf_nn_visit(model, plan_module, NULL, &pl);
    wf_nn_visit(model, NULL, finish_layout, &pl);
    return wf_context_status(par->ctx);
}

void wf_par_drop_places(wf_par *par)
{
    for (place *p = par->places, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    par->places = NULL;
}

const wf_layout *wf_par_layout(const wf_nn_parameter *parameter)
{
    return parameter->plan;
}

static wf_status run_recipe(wf_tensor *t, const wf_nn_init *init, uint64_t stream)
{
    if (init->kind == WF_NN_NORMAL)
        return wf_init_normal(t, init->a, init->b, stream);
    if (init->kind == WF_NN_UNIFORM)
        return wf_init_uniform(t, init->a, init->b, stream);
    return wf_init_fill(t, init->a);
}

wf_status wf_par_materialize(wf_par *par, wf_nn_module *model)
{
    wf_context *ctx = par->ctx;
    const char *phase = wf_context_phase(ctx, "initialisation");
    int64_t count = 0;
    wf_nn_parameter **p;

    if (!model || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_nn_name_tree(model); /* paths are the keys of the recipes */
    p = wf_nn_parameters(model, &count);
    if (!p)
        return wf_fail(ctx, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; i < count && wf_context_status(ctx) == WF_OK; i++) {
        wf_tensor *fake = p[i]->tensor, *real;

        if (!wf_tensor_is_fake(fake))
            continue;
        wf_scope_open(ctx);
        real = wf_tensor_new(ctx, fake->dtype, fake->ndim, fake->dim, wf_par_layout(p[i]),
                             WF_MEMORY_PARAMETER);
        if (real && run_recipe(real, &p[i]->init, wf_digest_path(p[i]->path)) == WF_OK) {
            p[i]->tensor = wf_tensor_retain(real);
            wf_tensor_release(fake);
        }
        wf_scope_close(ctx);
    }
    free(p);
    wf_context_phase(ctx, phase);
    return wf_context_status(ctx);
}
