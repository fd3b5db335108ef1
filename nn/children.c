/*
 * nn/children.c - modules of named children: a struct, its type and its table of fields are
 * made for each, in one block of memory, so that all that walks over fields finds them.
 */
#include "nn/chain.h"
#include "nn/children_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a field; stored as the type that it is read as. */
typedef struct slot {
    union {
        wf_nn_parameter *parameter;
        wf_nn_module *child;
        wf_nn_module **list;
    } value;
    int64_t count;
} slot;

typedef struct named {
    wf_nn_module base;
    wf_nn_type type;
    void *kept;
    const wf_nn_field *
        *step; /* the children that its chain runs in order; NULL: it has no chain */
    size_t n_step;
    wf_nn_field *fields; /* they lie in this block, as the slots do */
    slot slots[];
} named;

static size_t count_entries(const wf_nn_entry *entries)
{
    size_t n = 0;

    while (entries[n].name)
        n++;
    return n;
}

/* Drops the children given to a module that cannot be made. */
static void drop(const wf_nn_entry *entries)
{
    for (; entries->name; entries++) {
        wf_nn_module **list = entries->value;

        if (entries->kind == WF_NN_PARAMETER)
            wf_nn_parameter_free(entries->value);
        else if (entries->kind == WF_NN_CHILD)
            wf_nn_free(entries->value);
        for (int64_t i = 0; entries->kind == WF_NN_CHILDREN && list && i < entries->count; i++)
            wf_nn_free(list[i]);
        if (entries->kind == WF_NN_CHILDREN)
            free(list);
    }
}

static wf_status check(wf_context *ctx, const char *type, const wf_nn_entry *entries)
{
    if (!type || !*type)
        return wf_fail(ctx, WF_EINVAL,
                       "a module of a type without a name: give wf_nn_module_new one, which "
                       "errors and wf_nn_recompute use");
    for (size_t i = 0; entries[i].name; i++) {
        const char *name = entries[i].name;

        if (!name[0] || strchr(name, '.'))
            return wf_fail(ctx, WF_EINVAL,
                           "module %s has an entry called '%s': names are parts of paths, so "
                           "they are not empty and have no dot",
                           type, name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(entries[k].name, name) == 0)
                return wf_fail(ctx, WF_EINVAL,
                               "module %s has two entries called %s: give each a name of its "
                               "own, or put them into a list",
                               type, name);
        if (!entries[i].value && wf_context_status(ctx) == WF_OK)
            return wf_fail(ctx, WF_EINVAL,
                           "entry %s of module %s is NULL, though nothing failed before: was "
                           "it ever made?",
                           name, type);
    }
    return wf_context_status(ctx);
}

static void fill(named *m, const wf_nn_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        slot *s = &m->slots[i];

        s->count = entries[i].count;
        if (entries[i].kind == WF_NN_PARAMETER)
            s->value.parameter = entries[i].value;
        else if (entries[i].kind == WF_NN_CHILD)
            s->value.child = entries[i].value;
        else
            s->value.list = entries[i].value;
        m->fields[i] = (wf_nn_field){.name = entries[i].name,
                                     .kind = entries[i].kind,
                                     .offset = (size_t)((char *)&s->value - (char *)m),
                                     .count_offset = (size_t)((char *)&s->count - (char *)m)};
    }
}

static void free_kept(wf_nn_module *self)
{
    free(((named *)self)->kept);
    free(((named *)self)->step);
}

wf_nn_module *wf_nn_module_make(wf_context *ctx, const char *type, wf_nn_forward *forward,
                                const wf_nn_entry *entries)
{
    size_t n = count_entries(entries), slots = n * sizeof(slot);
    named *m = NULL;

    if (check(ctx, type, entries) == WF_OK) {
        m = calloc(1, sizeof *m + slots + (n + 1) * sizeof *m->fields);
        if (!m)
            wf_fail(ctx, WF_ENOMEM, "no memory for a module %s", type);
    }
    if (!m) {
        drop(entries);
        return NULL;
    }
    m->fields = (wf_nn_field *)(void *)((char *)m->slots + slots);
    m->type = (wf_nn_type){.name = type,
                           .size = sizeof *m,
                           .fields = m->fields,
                           .forward = forward,
                           .release = free_kept};
    m->base.type = &m->type;
    m->base.ctx = ctx;
    fill(m, entries, n);
    return &m->base;
}

bool wf_nn_has_named_children(const wf_nn_module *module)
{
    return module->type->release == free_kept;
}

/* Returns the field of a name and kind; NULL with the names that there are. */
static const wf_nn_field *find(wf_nn_module *self, const char *name, wf_nn_kind kind)
{
    char names[256] = "";
    size_t n = 0;

    for (const wf_nn_field *f = self->type->fields; f && f->name; f++) {
        if (f->kind != kind)
            continue;
        if (strcmp(f->name, name) == 0)
            return f;
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", f->name);
    }
    wf_fail(self->ctx, WF_EINVAL, "module %s (%s) has no %s called %s; it has %s", self->path,
            self->type->name,
            kind == WF_NN_PARAMETER ? "parameter"
            : kind == WF_NN_CHILD   ? "child"
                                    : "list of children",
            name, n ? names : "none");
    return NULL;
}

static bool has(const wf_nn_module *self, const char *name, wf_nn_kind kind)
{
    for (const wf_nn_field *f = self->type->fields; f && f->name; f++)
        if (f->kind == kind && strcmp(f->name, name) == 0)
            return true;
    return false;
}

wf_nn_module *wf_nn_child(wf_nn_module *self, const char *name)
{
    const wf_nn_field *f = self ? find(self, name, WF_NN_CHILD) : NULL;

    return f ? *(wf_nn_module **)(void *)((char *)self + f->offset) : NULL;
}

wf_nn_module **wf_nn_children(wf_nn_module *self, const char *name, int64_t *count)
{
    const wf_nn_field *f = self ? find(self, name, WF_NN_CHILDREN) : NULL;

    *count = f ? *(int64_t *)(void *)((char *)self + f->count_offset) : 0;
    return f ? *(wf_nn_module ***)(void *)((char *)self + f->offset) : NULL;
}

wf_nn_parameter *wf_nn_parameter_of(wf_nn_module *self, const char *name)
{
    const wf_nn_field *f = self ? find(self, name, WF_NN_PARAMETER) : NULL;

    return f ? *(wf_nn_parameter **)(void *)((char *)self + f->offset) : NULL;
}

wf_tensor *wf_nn_run(wf_nn_module *self, const char *name, wf_tensor *x)
{
    wf_nn_module **list;
    int64_t count;

    if (!self || !has(self, name, WF_NN_CHILDREN))
        return wf_nn_call(wf_nn_child(self, name), x);
    list = wf_nn_children(self, name, &count);
    for (int64_t i = 0; i < count; i++)
        x = wf_nn_call(list[i], x);
    return x;
}

wf_tensor *wf_nn_weight(wf_nn_module *self, const char *name)
{
    wf_nn_parameter *p = wf_nn_parameter_of(self, name);

    return p ? wf_nn_use(self, p) : NULL;
}

wf_status wf_nn_keep(wf_nn_module *self, const void *numbers, size_t size)
{
    named *m = (named *)self;
    void *copy;

    if (!self)
        return WF_EINVAL; /* the reason is in the context */
    if (self->type->release != free_kept)
        return wf_fail(self->ctx, WF_EINVAL,
                       "module %s (%s) has a struct of its own for its numbers: wf_nn_keep is "
                       "for those of wf_nn_module_new",
                       self->path, self->type->name);
    copy = malloc(size ? size : 1);
    if (!copy)
        return wf_fail(self->ctx, WF_ENOMEM, "no memory for the numbers of module %s",
                       self->type->name);
    memcpy(copy, numbers, size);
    free(m->kept);
    m->kept = copy;
    return WF_OK;
}

const void *wf_nn_kept(const wf_nn_module *self)
{
    return self && self->type->release == free_kept ? ((const named *)self)->kept : NULL;
}

wf_status wf_nn_points(wf_nn_module *self, const char *points)
{
    if (!self)
        return WF_EINVAL; /* the reason is in the context */
    if (self->type->release != free_kept)
        return wf_fail(self->ctx, WF_EINVAL,
                       "module %s (%s) has a struct of its own: set its wf_nn_type.points; "
                       "wf_nn_points is for those of wf_nn_module_new",
                       self->path, self->type->name);
    ((named *)self)->type.points = points;
    return WF_OK;
}

/* Returns the i-th module of a field, which is a child or a list; NULL after the last one. */
static wf_nn_module *entry_of(const wf_nn_module *self, const wf_nn_field *f, int64_t i)
{
    const char *m = (const char *)self;

    if (f->kind == WF_NN_CHILD)
        return i == 0 ? *(wf_nn_module *const *)(const void *)(m + f->offset) : NULL;
    return i < *(const int64_t *)(const void *)(m + f->count_offset)
               ? (*(wf_nn_module * *const *)(const void *)(m + f->offset))[i]
               : NULL;
}

static bool is_step(const named *m, const wf_nn_field *f)
{
    for (size_t k = 0; k < m->n_step; k++)
        if (m->step[k] == f)
            return true;
    return false;
}

static int64_t children_steps(const wf_nn_module *self)
{
    const named *m = (const named *)self;
    int64_t steps = 0;

    for (size_t k = 0; k < m->n_step; k++)
        for (int64_t i = 0; entry_of(self, m->step[k], i); i++)
            steps++;
    return steps;
}

static wf_nn_module *children_module(const wf_nn_module *self, int64_t i, int k)
{
    const named *m = (const named *)self;
    wf_nn_module *child;

    for (size_t s = 0; s < m->n_step; s++)
        for (int64_t e = 0; (child = entry_of(self, m->step[s], e)); e++)
            if (i-- == 0)
                return k == 0 ? child : NULL;
    for (const wf_nn_field *f = m->fields; f->name; f++)
        if (f->kind != WF_NN_PARAMETER && !is_step(m, f))
            for (int64_t e = 0; (child = entry_of(self, f, e)); e++)
                if (k-- == 0)
                    return child;
    return NULL;
}

static int children_run(wf_nn_module *self, int64_t i, int n, wf_tensor **x)
{
    x[0] = wf_nn_call(children_module(self, i, 0), x[0]);
    return n;
}

static const wf_nn_chain children_chain = {children_steps, children_module, children_run};

wf_status wf_nn_chain_children(wf_nn_module *self, const char *const *names)
{
    named *m = (named *)self;
    size_t n = 0;

    if (!self)
        return WF_EINVAL; /* the reason is in the context */
    if (self->type->release != free_kept)
        return wf_fail(self->ctx, WF_EINVAL,
                       "module %s (%s) has a struct of its own: set its wf_nn_module.chain; "
                       "WF_NN_CHAIN is for those of wf_nn_module_new",
                       self->path, self->type->name);
    while (names[n])
        n++;
    free(m->step);
    m->n_step = 0;
    self->chain = NULL;
    m->step = calloc(n + 1, sizeof *m->step);
    if (!m->step)
        return wf_fail(self->ctx, WF_ENOMEM, "no memory for a chain of %zu children", n);
    for (size_t i = 0; i < n; i++) {
        bool list = has(self, names[i], WF_NN_CHILDREN);
        const wf_nn_field *f = find(self, names[i], list ? WF_NN_CHILDREN : WF_NN_CHILD);

        if (f && is_step(m, f))
            wf_fail(
                self->ctx, WF_EINVAL,
                "the chain of module %s names %s twice: a child is one step, at one position",
                self->type->name, names[i]);
        if (wf_context_status(self->ctx) != WF_OK)
            return wf_context_status(self->ctx);
        m->step[m->n_step++] = f;
    }
    self->chain = &children_chain;
    return WF_OK;
}
