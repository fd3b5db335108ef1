/* nn/module.c - the tree of modules. */
#include "core/numerics/bits.h"
#include "core/numerics/digest.h"
#include "nn/checkpointing.h"
#include "nn/hooks_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_at(wf_nn_module *m, size_t offset)
{
    return (char *)m + offset;
}

void *wf_nn_new(wf_context *ctx, const wf_nn_type *type)
{
    wf_nn_module *m = calloc(1, type->size);

    if (!m) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a module %s", type->name);
        return NULL;
    }
    m->type = type;
    m->ctx = ctx;
    return m;
}

void wf_nn_visit(wf_nn_module *m, void (*module)(void *arg, wf_nn_module *m),
                 void (*parameter)(void *arg, wf_nn_module *m, const char *name,
                                   wf_nn_parameter *p),
                 void *arg)
{
    if (!m)
        return;
    if (module)
        module(arg, m);
    for (const wf_nn_field *f = m->type->fields; f && f->name; f++) {
        void *at = field_at(m, f->offset);

        if (f->kind == WF_NN_PARAMETER) {
            if (*(wf_nn_parameter **)at && parameter)
                parameter(arg, m, f->name, *(wf_nn_parameter **)at);
        } else if (f->kind == WF_NN_CHILD) {
            wf_nn_visit(*(wf_nn_module **)at, module, parameter, arg);
        } else {
            wf_nn_module **child = *(wf_nn_module ***)at;
            int64_t n = *(int64_t *)field_at(m, f->count_offset);

            for (int64_t i = 0; child && i < n; i++)
                wf_nn_visit(child[i], module, parameter, arg);
        }
    }
}

bool wf_nn_path_matches(const char *pattern, const char *path)
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

bool wf_nn_path_covers(const char *pattern, const char *path)
{
    char above[WF_NN_PATH];
    char *end;

    snprintf(above, sizeof above, "%s", path);
    while (!wf_nn_path_matches(pattern, above)) {
        end = strrchr(above, '.');
        if (!end)
            return false;
        *end = 0;
    }
    return true;
}

typedef struct freezing {
    const char *pattern;
    int64_t found;
} freezing;

static void freeze(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    freezing *f = arg;

    (void)m;
    (void)name;
    if (!wf_nn_path_covers(f->pattern, p->path))
        return;
    p->frozen = !wf_nn_is_counts(p);
    f->found++;
}

wf_status wf_nn_freeze(wf_nn_module *root, const char *pattern)
{
    freezing f = {pattern, 0};

    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    wf_nn_visit(root, NULL, freeze, &f);
    return f.found
               ? WF_OK
               : wf_fail(
                     root->ctx, WF_EINVAL,
                     "no parameter of the model is at %s or below it, so it freezes "
                     "nothing: paths are like block.0.attn.out.weight, and * matches one name",
                     pattern);
}

const char *wf_nn_where(const wf_nn_module *m)
{
    return m->path[0] ? m->path : m->type->name;
}

const char *wf_nn_enter(void *module)
{
    wf_nn_module *m = module;
    const char *outside;

    if (!m)
        return NULL; /* the reason is in the context */
    wf_scope_open(m->ctx);
    outside = wf_context_enter(m->ctx, wf_nn_where(m));
    wf_nn_hooks_enter(m);
    return outside;
}

void wf_nn_leave(void *module, const char *outside, int n, wf_tensor **results)
{
    wf_nn_module *m = module;

    if (!m)
        return;
    wf_nn_hooks_leave(m);
    wf_scope_keep(m->ctx, n, results);
    wf_context_enter(m->ctx, outside);
}

static wf_tensor *run(wf_nn_module *m, wf_tensor *x)
{
    return m->recompute && wf_context_recording(m->ctx) ? wf_nn_checkpoint(m, x)
                                                        : m->type->forward(m, x);
}

wf_tensor *wf_nn_call(void *module, wf_tensor *x)
{
    wf_nn_module *m = module;
    const char *outside;
    wf_tensor *y;

    if (!m || !x)
        return NULL;
    if (!m->type->forward) {
        wf_fail(
            m->ctx, WF_EINVAL,
            "module %s is of type %s, which has a call of its own: wf_nn_call cannot run it",
            m->path, m->type->name);
        return NULL;
    }
    outside = wf_nn_enter(m);
    x = wf_nn_hooks_pre_forward(m, x);
    y = x ? run(m, x) : NULL;
    y = wf_nn_hooks_post_forward(m, x, y);
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

typedef struct list {
    wf_nn_parameter **entry;
    int64_t count;
} list;

static void add_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    list *l = arg;

    (void)m;
    (void)name;
    for (int64_t i = 0; l->entry && p->refs > 1 && i < l->count; i++)
        if (l->entry[i] == p)
            return;
    if (l->entry)
        l->entry[l->count] = p;
    l->count++;
}

wf_nn_parameter **wf_nn_parameters(wf_nn_module *root, int64_t *count)
{
    list l = {NULL, 0};

    /* counts uses of parameters: at least as many */
    wf_nn_visit(root, NULL, add_parameter, &l);
    l.entry = calloc((size_t)l.count + 1, sizeof *l.entry);
    l.count = 0;
    if (l.entry)
        wf_nn_visit(root, NULL, add_parameter, &l);
    *count = l.count;
    return l.entry;
}

wf_tensor *wf_nn_use(void *module, wf_nn_parameter *p)
{
    wf_nn_module *m = module;
    wf_tensor *t = m && p ? wf_nn_parameter_use(m->ctx, p) : NULL;

    return t ? wf_nn_hooks_use(m, p, t) : NULL;
}

static void add_to_hash(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    uint64_t *hash = arg;

    *hash = wf_mix64(*hash ^ wf_digest_path(m->path));
    *hash = wf_mix64(*hash ^ wf_digest_path(name));
    *hash = wf_mix64(*hash ^ wf_digest_path(p->path)); /* another one's where it is tied */
    for (int i = 0; i < p->tensor->ndim; i++) {
        *hash = wf_mix64(*hash ^ (uint64_t)p->tensor->dim[i].size);
        *hash = wf_mix64(*hash ^ (uint64_t)p->tensor->dim[i].grain);
        *hash = wf_mix64(*hash ^ (uint64_t)p->tensor->dim[i].chunks);
    }
    *hash = wf_mix64(*hash ^ wf_nn_recipe_hash(p));
}

uint64_t wf_nn_model_hash(wf_nn_module *root)
{
    uint64_t hash = 0;

    wf_nn_visit(root, NULL, add_to_hash, &hash);
    return hash;
}
