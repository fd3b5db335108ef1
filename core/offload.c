/* core/offload.c - see the header. */
#include "core/offload.h"
#include "core/context_internal.h"

wf_pool *wf_context_host_pool(const wf_context *ctx)
{
    return ctx->host_pool;
}

bool wf_tensor_is_offloaded(const wf_tensor *t)
{
    return t && t->storage && t->storage->host;
}

static wf_pool *host_pool_of(wf_context *ctx)
{
    wf_allocator allocator = ctx->options.plan                   ? wf_fake_allocator()
                             : ctx->device->host_allocator.alloc ? ctx->device->host_allocator
                                                                 : wf_host_allocator();
    wf_error error = {WF_OK, ""};

    if (!ctx->host_pool)
        ctx->host_pool = wf_pool_open(&allocator, 0, &error);
    if (!ctx->host_pool)
        wf_fail(ctx, error.code, "%s", error.text);
    return ctx->host_pool;
}

/* Takes memory of a pool for a storage; NULL with an error in the context. */
static void *take(wf_context *ctx, wf_pool *pool, const wf_storage *s, const char *where)
{
    wf_error error = {WF_OK, ""};
    void *block = pool ? wf_pool_take(pool, s->bytes, s->kind, &error) : NULL;

    if (pool && !block)
        wf_fail(ctx, error.code, "%s: %s", where, error.text);
    return block;
}

/* Moves the data of a tensor that is on the device. */
static wf_status move_to_host(wf_tensor *t)
{
    wf_context *ctx = t->ctx;
    wf_storage *s = t->storage;
    wf_device *device = ctx->device;
    wf_error error = {WF_OK, ""};
    void *host = take(ctx, host_pool_of(ctx), s, "host memory for what is offloaded");

    if (!host)
        return ctx->failure.error.code;
    if (s->bytes && !ctx->options.plan &&
        device->memory->read(device, host, s->data, s->bytes, &error) != WF_OK) {
        wf_pool_give(ctx->host_pool, host, s->bytes, s->kind);
        return wf_fail(ctx, error.code, "%s", error.text);
    }
    wf_tensor_drop(t);
    s->host = host;
    return WF_OK;
}

wf_status wf_tensor_offload(wf_tensor *t)
{
    if (!t || !t->storage || !t->storage->data)
        return WF_OK;
    if (!t->ctx->device->memory)
        return wf_fail(t->ctx, WF_EUNSUPPORTED,
                       "tensors of device %s are in host memory already: nothing is offloaded "
                       "from it; leave it out",
                       t->ctx->device->name);
    t->storage->rests_on_host = true;
    return move_to_host(t);
}

wf_status wf_tensor_put_back(wf_tensor *t)
{
    if (!t || !t->storage || !t->storage->data || !t->storage->rests_on_host)
        return WF_OK;
    return move_to_host(t);
}

wf_status wf_tensor_fetch(wf_tensor *t)
{
    wf_context *ctx = t ? t->ctx : NULL;
    wf_storage *s = t ? t->storage : NULL;

    if (!wf_tensor_is_offloaded(t))
        return WF_OK;
    s->data = take(ctx, ctx->pool, s, "a tensor that comes from host memory");
    if (!s->data)
        return ctx->failure.error.code;
    if (s->bytes && !ctx->options.plan)
        ctx->device->memory->write(ctx->device, s->data, s->host, s->bytes);
    wf_storage_leave_host(ctx, s);
    wf_tensor_show(t);
    return WF_OK;
}

void wf_storage_leave_host(wf_context *ctx, wf_storage *s)
{
    if (s->host)
        wf_pool_give(ctx->host_pool, s->host, s->bytes, s->kind);
    s->host = NULL;
}
