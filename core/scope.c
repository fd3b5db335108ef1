/* core/scope.c - scopes: a stack of tensors with marks; closing one releases what lies above.
 */
#include "core/context_internal.h"
#include "core/handles_internal.h"
#include <stdlib.h>

static bool grow(void **array, size_t element, int64_t *capacity)
{
    int64_t wider = *capacity ? 2 * *capacity : 64;
    void *larger = realloc(*array, (size_t)wider * element);

    if (!larger)
        return false;
    *array = larger;
    *capacity = wider;
    return true;
}

wf_tensor *wf_scope_adopt(wf_context *ctx, wf_tensor *t)
{
    wf_scopes *s = &ctx->now.scopes;

    if (!t)
        return NULL;
    if (s->n_owned == s->owned_capacity &&
        !grow((void **)&s->owned, sizeof *s->owned, &s->owned_capacity)) {
        wf_tensor_release(t);
        wf_fail(ctx, WF_ENOMEM, "no memory for a scope of %lld tensors", (long long)s->n_owned);
        return NULL;
    }
    s->owned[s->n_owned++] = t;
    return t;
}

void wf_scope_open(wf_context *ctx)
{
    wf_scopes *s = &ctx->now.scopes;

    if (s->n_marks == s->marks_capacity) {
        int64_t capacity = s->marks_capacity;

        if (!grow((void **)&s->marks, sizeof *s->marks, &capacity)) {
            wf_fail(ctx, WF_ENOMEM, "no memory for %d nested scopes", s->n_marks);
            s->lost_marks++; /* the matching close has nothing to close */
            return;
        }
        s->marks_capacity = (int)capacity;
    }
    s->marks[s->n_marks++] = s->n_owned;
    if (ctx->handles)
        wf_handles_scope(ctx, __builtin_return_address(0));
}

static void release_above(wf_scopes *s, int64_t mark)
{
    while (s->n_owned > mark)
        wf_tensor_release(s->owned[--s->n_owned]);
}

void wf_scope_close(wf_context *ctx)
{
    wf_scopes *s = &ctx->now.scopes;
    int64_t mark;

    if (s->lost_marks) {
        s->lost_marks--;
        return;
    }
    if (s->n_marks <= 1) { /* the outermost is the context's own */
        wf_fail(ctx, WF_EINVAL,
                "a scope is closed, but none is open: each wf_scope_close, "
                "wf_scope_return or wf_scope_keep needs a wf_scope_open before it");
        return;
    }
    mark = s->marks[--s->n_marks];
    if (ctx->handles)
        wf_handles_scope_closes(ctx);
    release_above(s, mark);
    if (ctx->handles)
        wf_handles_scope_closed(ctx);
}

void wf_scopes_empty(wf_scopes *s)
{
    release_above(s, 0);
}

void wf_scopes_free(wf_scopes *s)
{
    free(s->owned);
    free(s->marks);
}

void wf_scope_keep(wf_context *ctx, int count, wf_tensor **results)
{
    for (int i = 0; i < count; i++)
        results[i] = wf_tensor_retain(results[i]);
    wf_scope_close(ctx);
    for (int i = 0; i < count; i++)
        results[i] = wf_scope_adopt(ctx, results[i]);
}

wf_tensor *wf_scope_return(wf_context *ctx, wf_tensor *result)
{
    wf_scope_keep(ctx, 1, &result);
    return result;
}
