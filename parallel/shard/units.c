/* parallel/shard/units.c - the wrap policy: which modules are units, and who belongs to which. */
#include "parallel/shard/units_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/shard/sharding_plan.h"
#include <stdlib.h>
#include <string.h>

/* A module of the tree, in the order of wf_nn_visit: parents come before their children. */
typedef struct entry {
    wf_nn_module *module;
    int64_t parent;   /* -1 for the root */
    int64_t elements; /* of parameters that have their home here or, not yet wrapped, below */
    int64_t unit;     /* its number where it is one, else -1 */
} entry;

typedef struct tree {
    wf_par *par;
    entry *entries;
    int64_t count, visited; /* entries that a visit has come by */
} tree;

/* Whether `path` lies below `above`: "block.1" is not below "block.10", and all below "". */
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

/* A module's parameters come behind it, among those of its children. */
static void find_home(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    tree *t = arg;
    wf_par_holding *h = wf_par_holding_of(p);
    int64_t at = t->visited - 1;

    (void)name;
    while (t->entries[at].module != m)
        at = t->entries[at].parent;
    h->home = h->home < 0 ? at : lowest_common(t, h->home, at);
}

/* Whether a module can be a unit: it is entered, so that there is a moment to gather at. */
static bool can_be_unit(const tree *t, int64_t i)
{
    for (; i > 0; i = t->entries[i].parent)
        if (t->entries[i].module->member)
            return false;
    return true;
}

/* A type that is asked for has to be one that units can be of. */
static wf_status check_type(const tree *t)
{
    const char *type = t->par->options.wrap_type;
    char types[320] = "";

    if (!type)
        return WF_OK;
    if (t->par->options.wrap_min_params > 0)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "units are formed by type (wrap_type %s) or by number of parameters "
                       "(wrap_min_params %lld): give one of the two",
                       type, (long long)t->par->options.wrap_min_params);
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

/* Children are met before their parents, so that the smallest modules that are large enough are
   wrapped, and what is left counts for the next one above. Returns how many units there are. */
static int64_t wrap(tree *t)
{
    const wf_par_options *o = &t->par->options;
    const char *type = o->wrap_type ? o->wrap_type : "block";
    int64_t units = 0;

    for (int64_t i = t->count - 1; i > 0; i--) {
        entry *e = &t->entries[i];
        bool wanted = o->wrap_min_params > 0 ? e->elements >= o->wrap_min_params
                                             : strcmp(e->module->type->name, type) == 0;

        if (wanted && can_be_unit(t, i))
            e->unit = 0;
        else
            t->entries[e->parent].elements += e->elements;
    }
    t->entries[0].unit = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->entries[i].unit == 0)
            t->entries[i].unit = units++;
    return units;
}

static int64_t unit_of(const tree *t, const wf_nn_parameter *p)
{
    int64_t at = wf_par_holding_of(p)->home;

    while (t->entries[at].unit < 0)
        at = t->entries[at].parent;
    return t->entries[at].unit;
}

/* Give each unit its parameters, those that are split first. */
static void fill(wf_par_units *all, const tree *t, int64_t count, wf_nn_parameter **parameter)
{
    wf_nn_parameter **next = all->parameters;

    for (int64_t i = 0; i < t->count; i++)
        if (t->entries[i].unit >= 0)
            all->unit[t->entries[i].unit].module = t->entries[i].module;
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
            wf_par_unit *unit = &all->unit[unit_of(t, parameter[i])];

            if (wf_par_is_gathered(all->par, parameter[i]) == split) {
                unit->parameter[unit->count++] = parameter[i];
                unit->split += split;
            }
        }
}

static void choose_reshard(wf_par_units *all)
{
    const wf_par *par = all->par;

    for (int64_t u = 0; u < all->count; u++) {
        all->unit[u].reshard = par->options.reshard == WF_PAR_RESHARD_DEFAULT
                                   ? u > 0 && !par->strategy->keep_gathered
                                   : par->options.reshard == WF_PAR_RESHARD_ALWAYS;
        all->unit[u].stays = !par->strategy->split_parameters;
    }
}

/* The modules will be entered in the order of the tree, as far as one can know. */
static wf_status expect_order(wf_par_units *all)
{
    for (int64_t u = 0; u < all->count; u++)
        if (wf_par_sequence_see(all, &all->entered, &all->unit[u]) != WF_OK)
            return wf_context_status(all->par->ctx);
    return WF_OK;
}

static void units_free(wf_par_units *all)
{
    if (!all)
        return;
    for (int64_t u = 0; all->unit && u < all->count; u++)
        if (all->unit[u].coming)
            wf_par_move_abandon(all->par, all->unit[u].coming, all->list);
    free(all->unit);
    free(all->parameters);
    free(all->list);
    free(all->to);
    free(all->entered.unit);
    free(all->left.unit);
    free(all);
}

static wf_par_units *make(tree *t, wf_nn_module *root, int64_t count,
                          wf_nn_parameter **parameter)
{
    wf_par_units *all = calloc(1, sizeof *all);

    t->count = 0;
    wf_nn_visit(root, add_module, NULL, t);
    wf_nn_visit(root, visit_module, find_home, t);
    for (int64_t i = 0; i < count; i++)
        t->entries[wf_par_holding_of(parameter[i])->home].elements +=
            wf_tensor_count(parameter[i]->tensor);
    if (check_type(t) != WF_OK) {
        free(all);
        return NULL;
    }
    if (all) {
        *all = (wf_par_units){.par = t->par, .root = root, .count = wrap(t)};
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
    fill(all, t, count, parameter);
    choose_reshard(all);
    if (expect_order(all) == WF_OK)
        return all;
    units_free(all);
    return NULL;
}

wf_par_units *wf_par_units_new(wf_par *par, wf_nn_module *root)
{
    tree t = {.par = par};
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

int64_t wf_par_unit_count(const wf_par *par, const wf_nn_module *model)
{
    const wf_par_units *all = wf_par_units_of(par, model);

    return all ? all->count : 0;
}

static size_t local_bytes(const wf_mesh *mesh, const wf_tensor *t, wf_dtype dtype,
                          const wf_layout *layout)
{
    size_t bytes = wf_dtype_size(dtype);
    int64_t start, local;

    for (int i = 0; i < t->ndim; i++) {
        wf_layout_part(mesh, layout, i, &t->dim[i], wf_comm_rank(wf_mesh_world(mesh)), &start,
                       &local);
        bytes *= (size_t)local;
    }
    return bytes;
}

wf_par_unit_info wf_par_unit_at(const wf_par *par, const wf_nn_module *model, int64_t i)
{
    const wf_par_unit *u = &wf_par_units_of(par, model)->unit[i];
    wf_par_unit_info info = {.path = u->module->path,
                             .type = u->module->type->name,
                             .parameters = u->count,
                             .gathered = u->split,
                             .reshard = u->reshard};

    for (int64_t k = 0; k < u->count; k++) {
        const wf_tensor *t = u->parameter[k]->tensor;
        const wf_par_holding *h = wf_par_holding_of(u->parameter[k]);

        info.elements += wf_tensor_count(t);
        info.rest_bytes += local_bytes(par->mesh, t, t->dtype, h->rest);
        info.use_bytes += local_bytes(par->mesh, t, par->options.param_dtype, h->use);
    }
    return info;
}
