/* nn/module.c - the tree of modules. */
#include "nn/module.h"
#include "nn/checkpointing.h"
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

void wf_nn_parameter_free(wf_nn_parameter *p)
{
    if (!p || --p->refs > 0)
        return;
    for (int u = 0; u < p->uses; u++)
        wf_tensor_release(p->use[u]);
    wf_tensor_release(p->tensor);
    wf_nn_recipe_clear(p);
    free(p);
}

void wf_nn_free(wf_nn_module *m)
{
    if (!m)
        return;
    for (const wf_nn_field *f = m->type->fields; f && f->name; f++) {
        if (f->kind == WF_NN_PARAMETER) {
            wf_nn_parameter_free(*(wf_nn_parameter **)field_at(m, f->offset));
        } else if (f->kind == WF_NN_CHILD) {
            wf_nn_free(*(wf_nn_module **)field_at(m, f->offset));
        } else {
            wf_nn_module **child = *(wf_nn_module ***)field_at(m, f->offset);
            int64_t n = *(int64_t *)field_at(m, f->count_offset);

            for (int64_t i = 0; child && i < n; i++)
                wf_nn_free(child[i]);
            free(child);
        }
    }
    if (m->type->release)
        m->type->release(m);
    free(m);
}

wf_nn_parameter *wf_nn_parameter_new(wf_context *ctx, int ndim, const wf_dim *dims, bool decay)
{
    wf_nn_parameter *p = calloc(1, sizeof *p);

    if (!p) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a parameter");
        return NULL;
    }
    p->refs = 1;
    p->decay = decay;
    wf_scope_open(ctx);
    p->tensor = wf_tensor_retain(wf_tensor_fake(ctx, WF_F32, ndim, dims, NULL));
    wf_scope_close(ctx);
    wf_nn_init_fill(p, 0);
    return p;
}

wf_nn_parameter *wf_nn_tie(wf_nn_parameter *parameter)
{
    if (parameter)
        parameter->refs++;
    return parameter;
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

/* "block" and "3" below "model" make "model.block.3"; the root's own path is empty. */
static void join(wf_nn_module *parent, const char *name, char path[WF_NN_PATH])
{
    size_t n = strlen(parent->path), more = strlen(name);

    if (n + more + 2 > WF_NN_PATH) {
        wf_fail(parent->ctx, WF_EINVAL, "the path of %s below %s has over %d characters", name,
                parent->path, WF_NN_PATH);
        return;
    }
    memcpy(path, parent->path, n);
    if (n)
        path[n++] = '.';
    memcpy(path + n, name, more + 1);
}

static void name_children(void *arg, wf_nn_module *m)
{
    (void)arg;
    for (const wf_nn_field *f = m->type->fields; f && f->name; f++) {
        void *at = field_at(m, f->offset);

        if (f->kind == WF_NN_PARAMETER && *(wf_nn_parameter **)at) {
            wf_nn_parameter *p = *(wf_nn_parameter **)at;

            if (!p->named_by)
                p->named_by = m;
            if (p->named_by == m)
                join(m, f->name, p->path);
        } else if (f->kind == WF_NN_CHILD && *(wf_nn_module **)at) {
            join(m, f->name, (*(wf_nn_module **)at)->path);
        } else if (f->kind == WF_NN_CHILDREN || f->kind == WF_NN_MEMBERS) {
            wf_nn_module **child = *(wf_nn_module ***)at;
            int64_t n = *(int64_t *)field_at(m, f->count_offset);

            for (int64_t i = 0; child && i < n; i++) {
                char number[WF_NN_PATH];

                if (child[i]->name)
                    snprintf(number, sizeof number, "%s", child[i]->name);
                else
                    snprintf(number, sizeof number, "%s.%lld", f->name, (long long)i);
                join(m, number, child[i]->path);
                child[i]->member = f->kind == WF_NN_MEMBERS;
            }
        }
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp((*(wf_nn_parameter *const *)a)->path, (*(wf_nn_parameter *const *)b)->path);
}

/* Names that are given to children may meet each other, or a child's number. */
static void refuse_twins(wf_nn_module *root)
{
    int64_t count;
    wf_nn_parameter **p = wf_nn_parameters(root, &count);

    if (!p) {
        wf_fail(root->ctx, WF_ENOMEM, "no memory for the paths of %lld parameters",
                (long long)count);
        return;
    }
    qsort(p, (size_t)count, sizeof *p, by_path);
    for (int64_t i = 1; i < count; i++)
        if (strcmp(p[i]->path, p[i - 1]->path) == 0) {
            wf_fail(root->ctx, WF_EINVAL,
                    "two parameters of the tree are called %s, and a path stands for one: give "
                    "the modules that they are in different names",
                    p[i]->path);
            break;
        }
    free(p);
}

void wf_nn_name_tree(wf_nn_module *root)
{
    wf_nn_visit(root, name_children, NULL, NULL);
    if (root && wf_context_status(root->ctx) == WF_OK)
        refuse_twins(root);
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

typedef struct freezing {
    const char *pattern;
    int64_t found;
} freezing;

static void freeze(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    freezing *f = arg;
    char path[WF_NN_PATH];

    (void)m;
    (void)name;
    memcpy(path, p->path, sizeof path);
    for (char *end; !wf_nn_path_matches(f->pattern, path); *end = 0) {
        end = strrchr(path, '.');
        if (!end)
            return;
    }
    p->frozen = true;
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
               : wf_fail(root->ctx, WF_EINVAL,
                         "no parameter of the model is at %s or below it, so it freezes "
                         "nothing: paths are like block.0.attn.out.weight, and * stands for "
                         "one name",
                         pattern);
}

const char *wf_nn_enter(void *module)
{
    wf_nn_module *m = module;
    const char *outside;

    wf_scope_open(m->ctx);
    outside = wf_context_enter(m->ctx, m->path[0] ? m->path : m->type->name);
    if (m->hooks && m->hooks->enter)
        m->hooks->enter(m->hooks->self, m);
    return outside;
}

void wf_nn_leave(void *module, const char *outside, int n, wf_tensor **results)
{
    wf_nn_module *m = module;

    if (m->hooks && m->hooks->leave)
        m->hooks->leave(m->hooks->self, m);
    wf_scope_keep(m->ctx, n, results);
    wf_context_enter(m->ctx, outside);
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
    y = m->recompute && wf_context_recording(m->ctx) ? wf_nn_checkpoint(m, x)
                                                     : m->type->forward(m, x);
    wf_nn_leave(m, outside, 1, &y);
    return y;
}

void wf_nn_at_many(void *module, const char *point, int n, wf_tensor **x)
{
    wf_nn_module *m = module;

    for (int i = 0; i < n; i++)
        if (!x[i])
            return;
    if (m->hooks && m->hooks->at)
        m->hooks->at(m->hooks->self, m, point, n, x);
}

bool wf_nn_acts(const void *module, const char *point)
{
    const wf_nn_module *m = module;
    const wf_nn_hooks *h = m->hooks;

    return h && h->at && (!h->acts || h->acts(h->self, point));
}

wf_tensor *wf_nn_at(void *module, const char *point, wf_tensor *x)
{
    wf_nn_at_many(module, point, 1, &x);
    return x;
}

/* The slot of the use that comes next in forward: the one that an earlier run of the same ops
   took for it, or a new one. -1: there is none left. */
static int slot_of(wf_nn_parameter *p, int64_t number)
{
    for (int u = 0; u < p->uses; u++)
        if (p->number[u] == number)
            return u;
    if (p->uses == WF_NN_USES)
        return -1;
    p->number[p->uses] = number;
    p->use[p->uses] = NULL;
    return p->uses++;
}

wf_tensor *wf_nn_use(void *module, wf_nn_parameter *p)
{
    wf_nn_module *m = module;
    wf_tensor *t;
    wf_uses *uses;

    if (!p)
        return NULL;
    t = p->at_use ? p->at_use : p->tensor;
    if (wf_tensor_is_absent(t)) {
        wf_fail(m->ctx, WF_EINVAL,
                "parameter %s is used outside of the module that its unit belongs to, and is "
                "not gathered: enter that module (wf_nn_call, wf_nn_enter) around all uses",
                p->path);
        return NULL;
    }
    uses = wf_context_uses(m->ctx);
    if (!p->frozen && (uses->later || wf_context_recording(m->ctx))) {
        int slot = slot_of(p, uses->next++);

        if (slot < 0) {
            wf_fail(m->ctx, WF_EINVAL, "parameter %s is used more than %d times in one pass",
                    p->path, WF_NN_USES);
            return NULL;
        }
        t = wf_leaf(t);
        if (!t)
            return NULL;
        if (!uses->later) {
            wf_tensor_release(p->use[slot]);
            p->use[slot] = wf_tensor_retain(t);
        }
    }
    if (m->hooks && m->hooks->use)
        t = m->hooks->use(m->hooks->self, m, p, t);
    return t;
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

    wf_nn_visit(root, NULL, add_parameter, &l); /* counts places; at least as many */
    l.entry = calloc((size_t)l.count + 1, sizeof *l.entry);
    l.count = 0;
    if (l.entry)
        wf_nn_visit(root, NULL, add_parameter, &l);
    *count = l.count;
    return l.entry;
}
