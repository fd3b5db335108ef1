/*
 * nn/hooks.c - a module's list of hooks, and where it is called. Backward hooks are ops on the
 * tape that change nothing: their gradient is what the hook makes of it.
 */
#include "nn/hooks_internal.h"
#include "core/later.h"
#include "core/op.h"
#include "nn/uses_internal.h"
#include <stdlib.h>
#include <string.h>

wf_status wf_nn_hook_add(void *module, const wf_nn_hooks *hooks)
{
    wf_nn_module *m = module;
    const wf_nn_hooks **list;

    if (!m)
        return WF_EINVAL; /* the reason is in the context */
    list = realloc(m->hooks, ((size_t)m->n_hooks + 1) * sizeof *list);
    if (!list)
        return wf_fail(m->ctx, WF_ENOMEM, "no memory for the hooks of module %s", m->path);
    list[m->n_hooks++] = hooks;
    m->hooks = list;
    return WF_OK;
}

bool wf_nn_hook_remove(void *module, const wf_nn_hooks *hooks)
{
    wf_nn_module *m = module;
    int i = m ? m->n_hooks - 1 : -1;

    while (i >= 0 && m->hooks[i] != hooks)
        i--;
    if (i < 0)
        return false;
    m->n_hooks--;
    memmove(m->hooks + i, m->hooks + i + 1, (size_t)(m->n_hooks - i) * sizeof *m->hooks);
    return true;
}

bool wf_nn_is_recomputing(const void *module)
{
    const wf_nn_module *m = module;

    return m && wf_nn_uses_of(m->ctx)->recompute;
}

void wf_nn_hooks_enter(wf_nn_module *m)
{
    for (int i = 0; i < m->n_hooks; i++)
        if (m->hooks[i]->enter)
            m->hooks[i]->enter(m->hooks[i]->self, m);
}

void wf_nn_hooks_leave(wf_nn_module *m)
{
    for (int i = m->n_hooks - 1; i >= 0; i--)
        if (m->hooks[i]->leave)
            m->hooks[i]->leave(m->hooks[i]->self, m);
}

/* A run that a backward hook waits for. */
typedef struct awaited {
    wf_nn_module *module;
    wf_tensor *(*hook)(void *self, wf_nn_module *module, wf_tensor *gradient);
    void *self;
} awaited;

static void call_backward_hook(wf_gradient *g)
{
    const awaited *a = g->attr;
    wf_tensor *before = g->dout[0], *after = a->hook(a->self, a->module, before);
    char text[2][256];
    bool alike = after && after->ndim == before->ndim && after->layout == before->layout;

    for (int d = 0; alike && d < before->ndim; d++)
        alike = after->dim[d].size == before->dim[d].size;
    if (alike)
        g->din[0] = after;
    else if (after)
        wf_fail(g->ctx, WF_ESHAPE,
                "a backward hook of module %s changed a gradient, %s, to %s: return one of the "
                "same shape and layout",
                a->module->path, wf_tensor_describe(before, text[0], sizeof text[0]),
                wf_tensor_describe(after, text[1], sizeof text[1]));
    else
        wf_fail(g->ctx, WF_EINVAL,
                "a backward hook of module %s returned NULL: one that only looks returns the "
                "gradient that it was given",
                a->module->path);
}

static const wf_op hook_op = {.name = "backward_hook",
                              .signature = "...->...",
                              .flags = WF_OP_BORDER,
                              .backward = call_backward_hook};

/* t, whose gradient passes the hook, if it is to have one. */
static wf_tensor *await(wf_tensor *t, const awaited *a)
{
    wf_call call = {.op = &hook_op,
                    .ctx = a->module->ctx,
                    .n_in = 1,
                    .in = {t},
                    .n_out = 1,
                    .attr = a,
                    .attr_size = sizeof *a};

    if (!a->hook || !t || !t->requires_grad)
        return t;
    call.out[0] = wf_tensor_alias(t);
    return call.out[0] && wf_tape_record(&call) == WF_OK ? call.out[0] : NULL;
}

/* Returns the result of a forward hook, which replaces t. */
static wf_tensor *returned(wf_nn_module *m, wf_tensor *t)
{
    if (!t)
        wf_fail(m->ctx, WF_EINVAL,
                "a forward hook of module %s returned NULL: one that only looks returns the "
                "tensor that it was given",
                m->path);
    return t;
}

wf_tensor *wf_nn_hooks_pre_forward(wf_nn_module *m, wf_tensor *x)
{
    for (int i = 0; i < m->n_hooks && x; i++) {
        const wf_nn_hooks *h = m->hooks[i];

        if (h->pre_forward)
            x = returned(m, h->pre_forward(h->self, m, x));
        x = await(x, &(awaited){m, h->post_backward, h->self});
    }
    return x;
}

wf_tensor *wf_nn_hooks_post_forward(wf_nn_module *m, wf_tensor *x, wf_tensor *y)
{
    for (int i = m->n_hooks - 1; i >= 0 && y; i--) {
        const wf_nn_hooks *h = m->hooks[i];

        if (h->post_forward)
            y = returned(m, h->post_forward(h->self, m, x, y));
        y = await(y, &(awaited){m, h->pre_backward, h->self});
    }
    return y;
}

bool wf_nn_hooks_see_result(const wf_nn_module *m)
{
    bool any = false;

    for (int i = 0; i < m->n_hooks; i++)
        any |= m->hooks[i]->post_forward || m->hooks[i]->pre_backward;
    return any;
}

bool wf_nn_has_point(const wf_nn_module *m, const char *point)
{
    size_t n = strlen(point);

    for (const char *at = m->type->points; at && *at;
         at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == n && memcmp(at, point, n) == 0)
            return n > 0;
    return false;
}

/* Checks that a module lists a point: a plan's borders at points that are in no list are
   refused. */
static bool listed(const wf_nn_module *m, const char *point)
{
    const char *points = m->type->points;

    if (wf_nn_has_point(m, point))
        return true;
    wf_fail(m->ctx, WF_EINVAL,
            "module %s (%s) passes a point that it does not list: %s; its list is: %s; add it "
            "(wf_nn_points, or wf_nn_type.points of a type of one's own)",
            m->path, m->type->name, point, points && *points ? points : "empty");
    return false;
}

void wf_nn_at_many(void *module, const char *point, int n, wf_tensor **x)
{
    wf_nn_module *m = module;

    if (!m || !listed(m, point)) {
        for (int i = 0; i < n; i++)
            x[i] = NULL;
        return;
    }
    wf_context_point(m->ctx, point);
    for (int i = 0; i < n && m->n_hooks > 1; i++)
        wf_later_come(x[i]); /* a user's hooks may read it */
    for (int h = 0; h < m->n_hooks; h++) {
        for (int i = 0; i < n; i++)
            if (!x[i])
                return;
        if (!m->hooks[h]->at)
            continue;
        for (int i = 0; i < n && h > 0; i++)
            wf_later_come(x[i]); /* a plan's hook may have moved it just now */
        m->hooks[h]->at(m->hooks[h]->self, m, point, n, x);
    }
    for (int i = 0; i < n; i++)
        if (x[i])
            wf_partial_passes(x[i], wf_nn_where(m), point);
}

wf_tensor *wf_nn_at(void *module, const char *point, wf_tensor *x)
{
    wf_nn_at_many(module, point, 1, &x);
    return x;
}

bool wf_nn_acts(const void *module, const char *point)
{
    const wf_nn_module *m = module;
    bool acts = false;

    for (int i = 0; m && listed(m, point) && i < m->n_hooks && !acts; i++) {
        const wf_nn_hooks *h = m->hooks[i];

        acts = h->at && (!h->acts || h->acts(h->self, point));
    }
    return acts;
}

wf_tensor *wf_nn_hooks_use(wf_nn_module *m, wf_nn_parameter *p, wf_tensor *t)
{
    for (int i = 0; i < m->n_hooks && t; i++)
        if (m->hooks[i]->use)
            t = m->hooks[i]->use(m->hooks[i]->self, m, p, t);
    return t;
}
