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
    if (!t)
        return NULL;
    if (ctx->n_owned == ctx->owned_capacity &&
        !grow((void **)&ctx->owned, sizeof *ctx->owned, &ctx->owned_capacity)) {
        wf_tensor_release(t);
        wf_fail(ctx, WF_ENOMEM, "no memory for a scope of %lld tensors",
                (long long)ctx->n_owned);
        return NULL;
    }
    ctx->owned[ctx->n_owned++] = t;
    return t;
}

void wf_scope_open(wf_context *ctx)
{
    if (ctx->n_marks == ctx->marks_capacity) {
        int64_t capacity = ctx->marks_capacity;

        if (!grow((void **)&ctx->marks, sizeof *ctx->marks, &capacity)) {
            wf_fail(ctx, WF_ENOMEM, "no memory for %d nested scopes", ctx->n_marks);
            ctx->lost_marks++; /* the matching close has nothing to close */
            return;
        }
        ctx->marks_capacity = (int)capacity;
    }
    ctx->marks[ctx->n_marks++] = ctx->n_owned;
    if (ctx->handles)
        wf_handles_scope(ctx, __builtin_return_address(0));
}

void wf_scope_close(wf_context *ctx)
{
    int64_t mark;

    if (ctx->lost_marks) {
        ctx->lost_marks--;
        return;
    }
    if (ctx->n_marks == 1) { /* the outermost is the context's own */
        wf_fail(ctx, WF_EINVAL,
                "a scope is closed, but none is open: each wf_scope_close, "
                "wf_scope_return or wf_scope_keep needs a wf_scope_open before it");
        return;
    }
    mark = ctx->marks[--ctx->n_marks];
    if (ctx->handles)
        wf_handles_scope_closes(ctx);
    while (ctx->n_owned > mark)
        wf_tensor_release(ctx->owned[--ctx->n_owned]);
    if (ctx->handles)
        wf_handles_scope_closed(ctx);
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
