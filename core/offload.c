/*
 * core/offload.c - see the header.
 *
 *     begin     the copy to the host begins; the memory on the device stays until the next one
 *               begins, or the tensor is fetched or released: one at a time leaves
 *     ahead     memory on the device, and the copy to it begins
 *     fetch     the device's work that follows comes after that copy
 *
 * All of it happens at points of the program, whatever copies take, so that a plan counts what
 * a run does.
 */
#include "core/offload.h"
#include "core/context_internal.h"
#include "core/graph.h"
#include "core/sharing_internal.h"
#include "core/together.h"
#include <string.h>

wf_pool *wf_context_host_pool(const wf_context *ctx)
{
    return ctx->host_pool;
}

bool wf_tensor_is_offloaded(const wf_tensor *t)
{
    return t && t->storage && t->storage->on_host;
}

/* Returns where offloaded tensors rest. */
static wf_allocator allocator_of(const wf_context *ctx)
{
    if (ctx->options.plan)
        return wf_fake_allocator();
    if (ctx->options.offload_allocator.alloc)
        return ctx->options.offload_allocator;
    return ctx->device->host_allocator.alloc ? ctx->device->host_allocator
                                             : wf_host_allocator();
}

static wf_pool *host_pool_of(wf_context *ctx)
{
    wf_error error = {WF_OK, ""};
    wf_allocator allocator;

    if (ctx->host_pool)
        return ctx->host_pool;
    allocator = allocator_of(ctx);
    ctx->host_pool = wf_pool_open(&allocator, 0, &error);
    if (!ctx->host_pool)
        wf_fail(ctx, error.code, "%s", error.text);
    return ctx->host_pool;
}

/* Takes memory of a pool, or of none, for a storage; NULL with an error in the context. */
static void *take(wf_context *ctx, wf_pool *pool, const wf_storage *s, const char *where)
{
    return pool ? wf_context_take(ctx, pool, s->bytes, s->kind, where) : NULL;
}

/* Begins a copy beside what the device computes. */
static void copy_begin(wf_context *ctx, wf_storage *s, void *to, const void *from)
{
    if (s->bytes && !ctx->options.plan)
        s->copy = ctx->device->memory->copy_begin(ctx->device, to, from, s->bytes);
}

/* Has the device's work that follows come after the copy of a storage. */
static void copy_join(wf_context *ctx, const wf_storage *s)
{
    if (s->bytes && !ctx->options.plan)
        ctx->device->memory->copy_join(ctx->device, s->copy);
}

/* Gives back the memory on the device that was copied last. */
static void settle(wf_context *ctx)
{
    wf_storage *s = ctx->leaving;

    if (!s)
        return;
    copy_join(ctx, s);
    wf_pool_give(ctx->pool, s->leaving, s->bytes, s->kind);
    s->leaving = NULL;
    ctx->leaving = NULL;
}

/* Adds a storage to those in host memory, the last one first; removes it. */
static void list(wf_context *ctx, wf_storage *s)
{
    s->older = ctx->offloaded;
    s->listed = true;
    ctx->offloaded = s;
}

static void unlist(wf_context *ctx, wf_storage *s)
{
    wf_storage **at = &ctx->offloaded;

    while (*at && *at != s)
        at = &(*at)->older;
    if (*at)
        *at = s->older;
    s->older = NULL;
    s->listed = false;
}

static wf_status refuse_host(const wf_tensor *t)
{
    return wf_fail(t->ctx, WF_EUNSUPPORTED,
                   "tensors of device %s are in host memory already: nothing is offloaded from "
                   "it but to files; name a folder for these (.offload_dir), or leave it out",
                   t->ctx->device->name);
}

/* Moves the data of a tensor that is on the device. */
static wf_status move_to_host(wf_tensor *t)
{
    wf_context *ctx = t->ctx;
    wf_storage *s = t->storage;

    if (wf_graph_is_captured(ctx))
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "a tensor is offloaded to host memory in work that is captured as a "
                       "graph, which has no such copies: leave out one of the two "
                       "(cuda_graph)");
    if (!s->host)
        s->host = take(ctx, host_pool_of(ctx), s, "host memory for what is offloaded");
    if (!s->host)
        return ctx->failure.error.code;
    settle(ctx);
    copy_begin(ctx, s, s->host, s->data);
    s->leaving = s->data;
    ctx->leaving = s;
    s->data = NULL;
    s->on_host = true;
    wf_tensor_show(t);
    return WF_OK;
}

/* Moves the data of a tensor whose device has no memory of its own to a file, where ops find
   them. */
static wf_status move_to_file(wf_tensor *t)
{
    wf_context *ctx = t->ctx;
    wf_storage *s;
    void *file;

    if (!ctx->options.offload_dir)
        return refuse_host(t);
    if (t->storage->host || wf_tensor_own(t, true) != WF_OK)
        return ctx->failure.error.code;
    s = t->storage;
    file = take(ctx, host_pool_of(ctx), s, ctx->options.offload_dir);
    if (!file)
        return ctx->failure.error.code;
    if (s->bytes && !ctx->options.plan)
        memcpy(file, s->data, s->bytes);
    wf_pool_give(ctx->pool, s->data, s->bytes, s->kind);
    s->data = s->host = file;
    wf_tensor_show(t);
    return WF_OK;
}

wf_status wf_tensor_offload(wf_tensor *t)
{
    wf_status status;

    if (!t || !t->storage || !t->storage->data)
        return WF_OK;
    if (!t->ctx->device->memory)
        return move_to_file(t);
    t->storage->rests_on_host = true;
    status = move_to_host(t);
    settle(t->ctx);
    return status;
}

wf_status wf_tensor_offload_stacked(wf_tensor *t)
{
    wf_status status;

    if (!t || !t->storage || !t->storage->data)
        return WF_OK;
    if (!t->ctx->device->memory)
        return refuse_host(t);
    status = move_to_host(t);
    if (status == WF_OK && wf_tensor_is_offloaded(t) && !t->storage->listed)
        list(t->ctx, t->storage);
    return status;
}

wf_status wf_tensor_put_back(wf_tensor *t)
{
    if (!t || !t->storage || !t->storage->rests_on_host)
        return WF_OK;
    wf_together_run(t->ctx); /* it may be what calls that wait are to change */
    return wf_tensor_offload(t);
}

/* Begins to bring a storage to the device. */
static wf_status arrive(wf_context *ctx, wf_storage *s)
{
    if (s == ctx->leaving)
        settle(ctx);
    if (s->arriving)
        return WF_OK;
    s->arriving = take(ctx, ctx->pool, s, "a tensor that comes from host memory");
    if (!s->arriving)
        return ctx->failure.error.code;
    copy_begin(ctx, s, s->arriving, s->host);
    return WF_OK;
}

wf_status wf_tensor_fetch(wf_tensor *t)
{
    wf_context *ctx = t ? t->ctx : NULL;
    wf_storage *s = t ? t->storage : NULL;

    if (!wf_tensor_is_offloaded(t))
        return WF_OK;
    if (arrive(ctx, s) != WF_OK)
        return ctx->failure.error.code;
    copy_join(ctx, s);
    s->data = s->arriving;
    s->arriving = NULL;
    s->on_host = false;
    unlist(ctx, s);
    wf_tensor_show(t);
    return WF_OK;
}

wf_status wf_offload_fetch_next(wf_context *ctx)
{
    return ctx->offloaded ? arrive(ctx, ctx->offloaded) : WF_OK;
}

void wf_storage_leave_host(wf_context *ctx, wf_storage *s)
{
    if (!s->host || !ctx->device->memory)
        return;
    if (s == ctx->leaving)
        settle(ctx);
    if (s->arriving) { /* it was not fetched */
        copy_join(ctx, s);
        wf_pool_give(ctx->pool, s->arriving, s->bytes, s->kind);
        s->arriving = NULL;
    }
    unlist(ctx, s);
    wf_storage_on_host(ctx, s); /* the pool writes to memory that it is given */
    wf_pool_give(ctx->host_pool, s->host, s->bytes, s->kind);
    s->host = NULL;
    s->on_host = false;
}

void wf_storage_leave_file(wf_context *ctx, wf_storage *s)
{
    if (!s->host || s->data != s->host)
        return;
    wf_pool_give(ctx->host_pool, s->host, s->bytes, s->kind);
    s->data = s->host = NULL;
}

void *wf_storage_on_host(wf_context *ctx, const wf_storage *s)
{
    if (s->bytes && !ctx->options.plan)
        ctx->device->memory->copy_wait(ctx->device, s->copy);
    return s->host;
}

void wf_offload_close(wf_context *ctx)
{
    wf_error error = {WF_OK, ""};

    settle(ctx);
    if (ctx->host_pool && ctx->device->memory && !ctx->options.plan)
        ctx->device->memory->wait(ctx->device, &error);
    wf_pool_close(ctx->host_pool);
}
