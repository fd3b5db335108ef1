/* core/together.c - see the header. */
#include "core/together.h"
#include "core/context_internal.h"
#include "core/together_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct attributes {
    _Alignas(8) unsigned char of[WF_MAX_ATTRIBUTES];
} attributes;

struct wf_together {
    int n;
    const wf_kernel *kernel;
    wf_call call[WF_TOGETHER];
    attributes attr[WF_TOGETHER]; /* the calls' */
};

void wf_together_begin(wf_context *ctx)
{
    ctx->together = true;
}

/* Returns the bytes that a call reads and writes at least, on this rank. */
static int64_t bytes_of_call(const wf_call *call)
{
    size_t bytes = 0;

    for (int i = 0; i < call->n_in; i++)
        bytes += call->in[i] ? wf_tensor_bytes(call->in[i]) : 0;
    for (int o = 0; o < call->n_out; o++)
        bytes += call->out[o] ? wf_tensor_bytes(call->out[o]) : 0;
    return (int64_t)bytes;
}

wf_status wf_trace_calls(const wf_call *call, int n, wf_trace_mark begun)
{
    wf_device *device = call->ctx->device;
    wf_error error = {WF_OK, ""};
    int64_t bytes = 0;
    double flops = 0;

    for (int i = 0; i < n; i++) {
        bytes += bytes_of_call(&call[i]);
        flops += call[i].op->flops ? call[i].op->flops(&call[i]) : 0;
    }

    if (wf_trace_waits(call->ctx->trace) && device->memory &&
        device->memory->wait(device, &error) != WF_OK)
        return wf_fail(call->ctx, error.code, "%s: %s", call->op->name, error.text);
    wf_trace_end(call->ctx->trace, begun,
                 &(wf_trace_event){.kind = WF_TRACE_OP,
                                   .name = call->op->name,
                                   .place = call->ctx->failure.path,
                                   .bytes = bytes,
                                   .flops = flops});
    return WF_OK;
}

/* Adds a call, and holds its tensors: they may be in a scope that closes before it runs. */
static void add(struct wf_together *w, const wf_call *call)
{
    wf_call *c = &w->call[w->n];

    *c = *call;
    if (call->attr) {
        memcpy(w->attr[w->n].of, call->attr, call->attr_size);
        c->attr = w->attr[w->n].of;
    }
    c->signature = NULL; /* dispatch's own */
    for (int i = 0; i < c->n_in; i++)
        wf_tensor_retain(c->in[i]);
    w->n++;
}

static void forget(struct wf_together *w)
{
    for (int k = 0; k < w->n; k++)
        for (int i = 0; i < w->call[k].n_in; i++)
            wf_tensor_release(w->call[k].in[i]);
    w->n = 0;
}

wf_status wf_together_run(wf_context *ctx)
{
    struct wf_together *w = ctx->waiting;
    wf_trace_mark begun;
    wf_status status;

    if (!w || !w->n)
        return ctx->failure.error.code;
    begun = wf_trace_begin(ctx->trace);
    status = w->kernel->run_many(w->call, w->n);
    if (status == WF_OK && begun.at)
        status = wf_trace_calls(w->call, w->n, begun);
    forget(w);
    return status;
}

bool wf_together_take(const wf_call *call, const wf_kernel *kernel, bool may_wait,
                      wf_status *status)
{
    wf_context *ctx = call->ctx;

    *status = WF_OK;
    if (!ctx->together)
        return false;
    may_wait = may_wait && kernel->run_many && !ctx->observe && !ctx->handles;
    if (may_wait && !ctx->waiting) {
        ctx->waiting = calloc(1, sizeof *ctx->waiting);
        may_wait = ctx->waiting != NULL; /* then one by one */
    }
    if (!ctx->waiting)
        return false;
    if (!may_wait || ctx->waiting->kernel != kernel || ctx->waiting->n == WF_TOGETHER)
        *status = wf_together_run(ctx);
    if (!may_wait || *status != WF_OK)
        return false;
    ctx->waiting->kernel = kernel;
    add(ctx->waiting, call);
    return true;
}

wf_status wf_together_end(wf_context *ctx)
{
    wf_status status = wf_together_run(ctx);

    wf_together_close(ctx);
    return status;
}

void wf_together_close(wf_context *ctx)
{
    if (ctx->waiting)
        forget(ctx->waiting);
    free(ctx->waiting);
    ctx->waiting = NULL;
    ctx->together = false;
}
