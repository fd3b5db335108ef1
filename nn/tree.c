/*
 * nn/tree.c - a module with all below it as a tree: checks its owners, names its paths, frees
 * it.
 *
 * A module in two fields would be called by one path and freed twice, and so would a parameter
 * that more fields have than wf_nn_tie has counted: a walk that enters each module once finds
 * both.
 */
#include "nn/module.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_at(wf_nn_module *m, size_t offset)
{
    return (char *)m + offset;
}

typedef struct walk {
    uint64_t number; /* number of this walk, set where it has been */
    bool clears;     /* a repeated field is emptied, and not an error */
    wf_status status;
} walk;

/* Returns the name of a field, with its number in a list where it is in one. */
static const char *field_text(const wf_nn_field *f, int64_t i, char text[WF_NN_PATH])
{
    if (i < 0)
        snprintf(text, WF_NN_PATH, "%s", f->name);
    else
        snprintf(text, WF_NN_PATH, "%s.%lld", f->name, (long long)i);
    return text;
}

static void refuse_module(walk *w, const wf_nn_module *parent, const wf_nn_module *m,
                          const char *field)
{
    const wf_nn_module *first = m->reached.from;

    w->status = wf_fail(
        parent->ctx, WF_EINVAL,
        "a module of type %s is in two fields: %s of a %s, and %s of a %s; a module belongs to "
        "one field: make a second one, and share parameters with wf_nn_tie",
        m->type->name, m->reached.field, first ? first->type->name : "tree", field,
        parent->type->name);
}

/* Enters a module by a field; false where the walk has reached it before. */
static bool reach(walk *w, wf_nn_module *parent, wf_nn_module *m, const wf_nn_field *f,
                  int64_t i)
{
    char field[WF_NN_PATH];

    field_text(f, i, field);
    if (m->reached.walk == w->number) {
        if (!w->clears)
            refuse_module(w, parent, m, field);
        return false;
    }
    m->reached.walk = w->number;
    m->reached.from = parent;
    m->reached.field = f->name;
    return true;
}

/* Counts a field that holds a parameter; false where more hold it than wf_nn_tie has
   counted. */
static bool reach_parameter(walk *w, wf_nn_module *parent, const char *field,
                            wf_nn_parameter *p)
{
    if (p->reached.walk != w->number) {
        p->reached.walk = w->number;
        p->reached.fields = 0;
        p->reached.field = field;
        p->reached.from = parent;
    }
    if (++p->reached.fields <= p->refs)
        return true;
    if (!w->clears)
        w->status =
            wf_fail(parent->ctx, WF_EINVAL,
                    "a parameter is in field %s of a %s and in field %s of a %s, and was "
                    "tied %d times: put wf_nn_tie(parameter) into the second",
                    p->reached.field, p->reached.from->type->name, field, parent->type->name,
                    p->refs - 1);
    return false;
}

static void visit(walk *w, wf_nn_module *m);

static void visit_child(walk *w, wf_nn_module *m, wf_nn_module **child, const wf_nn_field *f,
                        int64_t i)
{
    if (!*child || w->status != WF_OK)
        return;
    if (reach(w, m, *child, f, i))
        visit(w, *child);
    else if (w->clears)
        *child = NULL;
}

static void visit(walk *w, wf_nn_module *m)
{
    for (const wf_nn_field *f = m->type->fields; f && f->name && w->status == WF_OK; f++) {
        void *at = field_at(m, f->offset);

        if (f->kind == WF_NN_PARAMETER) {
            wf_nn_parameter **p = at;

            if (*p && !reach_parameter(w, m, f->name, *p) && w->clears)
                *p = NULL;
        } else if (f->kind == WF_NN_CHILD) {
            visit_child(w, m, at, f, -1);
        } else {
            wf_nn_module **child = *(wf_nn_module ***)at;
            int64_t n = *(int64_t *)field_at(m, f->count_offset);

            for (int64_t i = 0; child && i < n; i++)
                visit_child(w, m, &child[i], f, i);
        }
    }
}

/* Enters every module of a tree once. */
static wf_status walk_tree(wf_nn_module *root, bool clears)
{
    static _Atomic uint64_t walks;
    walk w = {.number = atomic_fetch_add(&walks, 1) + 1, .clears = clears, .status = WF_OK};

    root->reached.walk = w.number;
    root->reached.from = NULL;
    root->reached.field = "the root";
    visit(&w, root);
    return w.status;
}

static void free_tree(wf_nn_module *m)
{
    if (!m)
        return;
    for (const wf_nn_field *f = m->type->fields; f && f->name; f++) {
        if (f->kind == WF_NN_PARAMETER) {
            wf_nn_parameter_free(*(wf_nn_parameter **)field_at(m, f->offset));
        } else if (f->kind == WF_NN_CHILD) {
            free_tree(*(wf_nn_module **)field_at(m, f->offset));
        } else {
            wf_nn_module **child = *(wf_nn_module ***)field_at(m, f->offset);
            int64_t n = *(int64_t *)field_at(m, f->count_offset);

            for (int64_t i = 0; child && i < n; i++)
                free_tree(child[i]);
            free(child);
        }
    }
    if (m->type->release)
        m->type->release(m);
    free(m->hooks);
    free(m);
}

void wf_nn_free(wf_nn_module *m)
{
    if (!m)
        return;
    walk_tree(m, true);
    free_tree(m);
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

/* Refuses names of children that meet each other, or a child's number. */
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
                    "two parameters of the tree are called %s, and a path means one: give "
                    "the modules that they are in different names",
                    p[i]->path);
            break;
        }
    free(p);
}

wf_status wf_nn_name_tree(wf_nn_module *root)
{
    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    if (walk_tree(root, false) != WF_OK)
        return WF_EINVAL;
    wf_nn_visit(root, name_children, NULL, NULL);
    if (wf_context_status(root->ctx) == WF_OK)
        refuse_twins(root);
    return wf_context_status(root->ctx);
}
