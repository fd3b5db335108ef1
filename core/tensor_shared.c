/* core/tensor_shared.c - tensors over memory that ranks share, and memory of their own for
   them; copies. */
#include "core/context_internal.h"
#include "core/sharing_internal.h"
#include <string.h>

/* Counted as if it were this rank's own. Takes the memory over. */
static wf_storage *storage_shared(wf_context *ctx, size_t bytes, wf_memory_kind kind,
                                  wf_shared *shared, int member)
{
    wf_storage *s = wf_storage_absent(ctx, bytes, kind);
    wf_error error = {WF_OK, ""};

    if (s && wf_pool_see(ctx->pool, bytes, kind, &error) != WF_OK) {
        wf_fail(ctx, error.code, "%s", error.text);
        wf_blocks_give(&ctx->blocks, s, sizeof *s);
        s = NULL;
    }
    if (!s) {
        wf_shared_release(shared);
        return NULL;
    }
    s->shared = shared;
    s->member = member;
    s->data = wf_shared_data(shared);
    return s;
}

wf_tensor *wf_tensor_shared(const wf_tensor *like, const wf_layout *layout, wf_memory_kind kind,
                            wf_shared *shared, int member)
{
    wf_context *ctx = like->ctx;
    wf_tensor *t = wf_tensor_blank(ctx, like->dtype);

    if (!t || wf_tensor_shape(t, like->ndim, like->dim, layout) != WF_OK) {
        wf_shared_release(shared);
        wf_tensor_release(t);
        return NULL;
    }
    t->rounds_to = like->rounds_to;
    t->partial_from = like->partial_from;
    t->next_alias = t;
    t->storage = storage_shared(ctx, wf_tensor_bytes(t), kind, shared, member);
    if (!t->storage) {
        wf_tensor_release(t);
        return NULL;
    }
    t->data = t->storage->data;
    return wf_scope_adopt(ctx, t);
}

bool wf_tensor_is_shared(const wf_tensor *t)
{
    return t->storage && t->storage->shared;
}

wf_status wf_tensor_own(wf_tensor *t, bool keep)
{
    wf_storage *s = t->storage;
    wf_shared *shared;
    void *seen, *data;

    if (!s || !s->shared)
        return WF_OK;
    shared = s->shared;
    seen = s->data;
    wf_pool_see_no_more(t->ctx->pool, s->bytes, s->kind);
    data = wf_context_take(t->ctx, t->ctx->pool, s->bytes, s->kind, NULL);
    if (!data) {
        wf_shared_release(shared);
        s->data = NULL;
        s->shared = NULL;
        wf_tensor_show(t);
        return t->ctx->failure.error.code;
    }
    if (keep && s->bytes)
        memcpy(data, seen, s->bytes);
    wf_shared_release(shared);
    s->data = data;
    s->shared = NULL;
    wf_tensor_show(t);
    return WF_OK;
}

void wf_tensor_renew(wf_tensor *t, wf_shared *shared)
{
    wf_shared_release(t->storage->shared);
    t->storage->shared = shared;
    t->storage->data = wf_shared_data(shared);
    wf_tensor_show(t);
}

wf_tensor *wf_tensor_copy(const wf_tensor *t)
{
    wf_tensor *y = wf_tensor_like(t, t->storage->kind);
    size_t bytes = wf_tensor_bytes(t);
    wf_device *device = t->ctx->device;

    if (!y || !bytes || t->ctx->options.plan)
        return y;
    if (device->memory)
        device->memory->copy(
            device, &(wf_copy){.from = t->data, .to = y->data, .bytes = bytes, .rows = 1},
            false, NULL); /* it keeps a failure, and reports it */
    else
        memcpy(y->data, t->data, bytes);
    return y;
}
