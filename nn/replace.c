/* nn/replace.c - replaces a module by another; see nn/children.h. */
#include "nn/children_internal.h"
#include <string.h>

/* Returns the field of the child that has this path below m, and whose field it is; NULL: there
   is none. */
static wf_nn_module **find_slot(wf_nn_module *m, const char *path, wf_nn_module **parent)
{
    for (const wf_nn_field *f = m->type->fields; f && f->name; f++) {
        void *at = (char *)m + f->offset;
        wf_nn_module **child = f->kind == WF_NN_CHILD ? at : NULL, **found;
        int64_t n = 1;

        if (f->kind == WF_NN_CHILDREN || f->kind == WF_NN_MEMBERS) {
            child = *(wf_nn_module ***)at;
            n = *(int64_t *)(void *)((char *)m + f->count_offset);
        }
        for (int64_t i = 0; child && i < n; i++) {
            if (!child[i])
                continue;
            *parent = m;
            if (strcmp(child[i]->path, path) == 0)
                return &child[i];
            found = find_slot(child[i], path, parent);
            if (found)
                return found;
        }
    }
    return NULL;
}

/* A tree that is looked through. */
typedef struct look {
    bool planned;        /* a parameter has an owner, or a module hooks */
    wf_nn_module *names; /* parameters that it has named are named anew */
} look;

static void look_at_module(void *arg, wf_nn_module *m)
{
    look *l = arg;

    l->planned = l->planned || m->n_hooks;
}

static void look_at_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    look *l = arg;

    (void)name;
    l->planned = l->planned || p->plan;
    if (l->names && p->named_by == m)
        p->named_by = NULL;
}

static bool is_planned(wf_nn_module *tree)
{
    look l = {.planned = false};

    wf_nn_visit(tree, look_at_module, look_at_parameter, &l);
    return l.planned;
}

/* Refuses what cannot be replaced. */
static wf_status check(wf_nn_module *root, const char *path, const wf_nn_module *parent,
                       wf_nn_module *const *slot, wf_nn_module *module)
{
    if (!module)
        return wf_context_status(root->ctx) != WF_OK
                   ? wf_context_status(root->ctx)
                   : wf_fail(
                         root->ctx, WF_EINVAL,
                         "replace %s by NULL: make the module that stands there from now on",
                         path);
    if (!slot)
        return wf_fail(
            root->ctx, WF_EINVAL,
            "replace: no module is at path '%s' below %s%s: paths are like block.3.mlp, "
            "and the root itself is no module's child",
            path, root->type->name, *root->path ? root->path : "");
    if (module->ctx != root->ctx || module == root || module == *slot)
        return wf_fail(root->ctx, WF_EINVAL,
                       "replace %s: the new module is of another context, or it is the root or "
                       "the one that stands there: make a new one in the model's context",
                       path);
    if (!wf_nn_has_named_children(parent) && module->type != (*slot)->type)
        return wf_fail(
            root->ctx, WF_EINVAL,
            "replace %s: a %s reads its fields as what they are, here a %s, and the new "
            "module is a %s: give one of the same type, or build a block of named "
            "children (wf_nn_module_new), which take any",
            path, parent->type->name, (*slot)->type->name, module->type->name);
    if (is_planned(root) || is_planned(module))
        return wf_fail(
            root->ctx, WF_EINVAL,
            "replace %s: the model has a sharding plan, or hooks: its parameters have "
            "owners, and units and borders know its modules. Replace before "
            "wf_par_plan, wf_par_tensor and wf_par_shard; weights are loaded after "
            "them",
            path);
    return WF_OK;
}

wf_status wf_nn_replace(wf_nn_module *root, const char *path, wf_nn_module *module)
{
    wf_nn_module **slot = NULL, *old, *parent = NULL;
    look l = {.names = root};

    if (!root) {
        wf_nn_free(module);
        return WF_EINVAL; /* the reason is in the context */
    }
    if (wf_nn_name_tree(root) == WF_OK)
        slot = find_slot(root, path, &parent);
    if (check(root, path, parent, slot, module) != WF_OK) {
        if (module != root && (!slot || module != *slot))
            wf_nn_free(module);
        return wf_context_status(root->ctx);
    }
    old = *slot;
    module->name = old->name;
    module->member = old->member;
    wf_nn_visit(old, NULL, look_at_parameter, &l);
    *slot = module;
    wf_nn_free(old);
    return wf_nn_name_tree(root);
}
