/* core/cast.c - from the type that a device computes in to a storage type, and back; from nf4
   to either. */
#include "core/context_internal.h"
#include "core/later.h"
#include "core/dtype.h"

static bool castable(const wf_tensor *t, wf_dtype dtype)
{
    wf_dtype computed = t->ctx->device->dtype;

    if (t->dtype == WF_NF4)
        return t->ctx->device->widen_nf4 && (dtype == computed || dtype == WF_BF16);
    return (t->dtype == computed && wf_context_narrows(t->ctx, dtype)) ||
           (wf_context_narrows(t->ctx, t->dtype) && dtype == computed);
}

wf_tensor *wf_rounded(wf_tensor *t)
{
    if (!t || t->dtype == t->rounds_to || t->dtype == WF_NF4 || wf_tensor_is_partial(t))
        return t;
    return wf_cast(t, t->rounds_to);
}

wf_tensor *wf_cast(wf_tensor *t, wf_dtype dtype)
{
    wf_context *ctx = t ? t->ctx : NULL;
    int64_t n;
    wf_tensor *y;

    if (!t || ctx->failure.error.code != WF_OK ||
        wf_handle_check(t, "wf_cast: the tensor") != WF_OK)
        return NULL;
    if (wf_later_come(t) != WF_OK)
        return NULL;
    if (!castable(t, dtype) || wf_tensor_is_absent(t)) {
        wf_fail(ctx, WF_EDTYPE, "%s cannot be cast to %s: device %s casts %s to bf16 and back",
                wf_tensor_is_absent(t) ? "a tensor without memory" : wf_dtype_name(t->dtype),
                wf_dtype_name(dtype), ctx->device->name, wf_dtype_name(ctx->device->dtype));
        return NULL;
    }
    if (wf_tensor_is_fake(t))
        return wf_tensor_fake(ctx, dtype, t->ndim, t->dim, t->layout);
    y = wf_tensor_new(ctx, dtype, t->ndim, t->dim, t->layout, ctx->now.kind);
    n = wf_tensor_local_count(t);
    if (y && !ctx->options.plan && t->dtype == WF_NF4)
        ctx->device->widen_nf4(ctx->device, t, dtype, y->data);
    else if (y && !ctx->options.plan && dtype == WF_BF16)
        ctx->device->narrow(ctx->device, t->data, y->data, n);
    else if (y && !ctx->options.plan)
        ctx->device->widen(ctx->device, t->data, y->data, n);
    return y;
}
