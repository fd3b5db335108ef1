/* core/handles.c - tensors that have ended: which scope was theirs, and who uses them all the
   same. */
#include "core/handles_internal.h"
#include "core/context_internal.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 1 << 16, PATH = 96 };

typedef struct wf_scope_seen {
    uint64_t number;
    const void *caller;
} scope;

typedef struct ended {
    wf_tensor *t;
    scope scope; /* number 0: it ended in none */
    char path[PATH];
} ended;

struct wf_handles {
    wf_scopes_seen scope; /* a stack, as that of the context's scopes */
    uint64_t scopes;
    scope closing;
    uint64_t ends; /* the number of tensors that have ended */
    ended kept[KEPT];
};

static void damaged(void *self, const char *what, size_t bytes)
{
    wf_fail(self, WF_EINVAL,
            "memory of a tensor, %zu bytes, %s: something writes through a pointer to data "
            "where it may not",
            bytes, what);
}

/* Reads from the environment whether the debug mode is on. */
static wf_status read_environment(bool *asked, wf_error *error)
{
    const char *text = getenv("WEFT_DEBUG");

    *asked = text && strcmp(text, "handles") == 0;
    if (!text || !*text || *asked)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "WEFT_DEBUG is %s: the one word that it may be is handles", text);
}

wf_status wf_handles_open(wf_context *ctx, wf_error *error)
{
    bool asked;
    wf_status status = read_environment(&asked, error);

#ifdef WEFT_DEBUG_HANDLES
    asked = true;
#endif
    if (status != WF_OK || !(asked || ctx->options.debug_handles))
        return status;
    ctx->handles = calloc(1, sizeof *ctx->handles);
    if (!ctx->handles || wf_pool_guard(ctx->pool, damaged, ctx) != WF_OK)
        return wf_error_set(error, WF_ENOMEM,
                            "no memory for what is kept of tensors that have ended");
    return WF_OK;
}

void wf_handles_close(wf_context *ctx)
{
    if (ctx->handles)
        free(ctx->handles->scope.open);
    free(ctx->handles);
    ctx->handles = NULL;
}

void wf_handles_scope(wf_context *ctx, const void *caller)
{
    wf_scopes_seen *s = &ctx->handles->scope;

    if (s->n == s->capacity) {
        int wider = s->capacity ? 2 * s->capacity : 64;
        scope *more = realloc(s->open, (size_t)wider * sizeof *more);

        if (!more) {
            wf_fail(ctx, WF_ENOMEM, "no memory for %d nested scopes", s->n);
            return;
        }
        s->open = more;
        s->capacity = wider;
    }
    s->open[s->n++] = (scope){++ctx->handles->scopes, caller};
}

void wf_handles_swap(wf_context *ctx, wf_scopes_seen *other)
{
    wf_scopes_seen own = *other;

    if (!ctx->handles)
        return;
    *other = ctx->handles->scope;
    ctx->handles->scope = own;
}

void wf_handles_swapped(wf_scopes_seen *other)
{
    free(other->open);
}

void wf_handles_scope_closes(wf_context *ctx)
{
    wf_handles *h = ctx->handles;

    h->closing = h->scope.n > 0 ? h->scope.open[--h->scope.n] : (scope){0, NULL};
}

void wf_handles_scope_closed(wf_context *ctx)
{
    ctx->handles->closing = (scope){0, NULL};
}

void wf_handle_end(wf_tensor *t)
{
    wf_context *ctx = t->ctx;
    wf_handles *h = ctx->handles;
    ended *e = &h->kept[h->ends++ % KEPT];

    if (e->t)
        wf_blocks_give(&ctx->blocks, e->t, sizeof *e->t);
    t->refs = WF_ENDED;
    t->storage = NULL;
    t->grad = t->origin = t->scales = NULL;
    *e = (ended){.t = t, .scope = h->closing};
    snprintf(e->path, sizeof e->path, "%s", ctx->failure.path ? ctx->failure.path : "");
}

/* "function f of a.so", or where in which file. */
static void name_function(const void *at, char *text, size_t size)
{
    Dl_info info;

    if (!at || !dladdr(at, &info) || !info.dli_fname)
        snprintf(text, size, "a function at %p", at);
    else if (info.dli_sname)
        snprintf(text, size, "%s of %s", info.dli_sname, info.dli_fname);
    else
        snprintf(text, size, "%s+0x%tx", info.dli_fname,
                 (const char *)at - (const char *)info.dli_fbase);
}

static wf_status refuse(const wf_tensor *t, const char *what)
{
    const wf_handles *h = t->ctx->handles;
    uint64_t kept = h->ends < KEPT ? h->ends : KEPT;
    char text[192], by[160];
    const ended *e = NULL;
    uint64_t ago = 0;

    for (uint64_t i = 1; i <= kept && !e; i++)
        if (h->kept[(h->ends - i) % KEPT].t == t) {
            e = &h->kept[(h->ends - i) % KEPT];
            ago = i;
        }
    wf_tensor_describe(t, text, sizeof text);
    if (!e || !e->scope.number)
        return wf_fail(
            t->ctx, WF_EINVAL,
            "%s is %s, which ended when it was released for the last time%s%s: hold it with "
            "wf_tensor_retain for as long as it is used",
            what, text, e && *e->path ? ", in " : "", e ? e->path : "");
    name_function(e->scope.caller, by, sizeof by);
    return wf_fail(t->ctx, WF_EINVAL,
                   "%s is %s, which ended when scope %" PRIu64
                   "%s%s closed, opened by %s (%" PRIu64
                   " tensors have ended since): return it from there with wf_scope_return or "
                   "wf_scope_keep, or hold it with wf_tensor_retain",
                   what, text, e->scope.number, *e->path ? " of " : "", e->path, by, ago - 1);
}

wf_status wf_handle_refuse(const wf_tensor *t, const char *what)
{
    return t->ctx->handles ? refuse(t, what) : WF_OK;
}

wf_status wf_handles_look(const wf_call *call)
{
    for (int o = 0; o < call->n_out; o++) {
        const wf_storage *s = call->out[o] ? call->out[o]->storage : NULL;

        if (s && s->data && !s->shared &&
            !wf_pool_is_intact(call->ctx->pool, s->data, s->bytes))
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: its kernel has written before the first or after the last "
                           "element of output %d: it "
                           "has as many as wf_tensor_local_count says, of this rank's part",
                           call->op->name, o);
    }
    return WF_OK;
}
