/* core/numerics/squares.c - see the header. */
#include "core/numerics/squares.h"
#include "core/context_internal.h"
#include <string.h>

/* The most additions without a limb passing 2^63. */
static const int64_t most = (int64_t)1 << 30;

static bool on_device(const wf_squares *s)
{
    return s->ctx->device->memory != NULL;
}

static void clear(const wf_squares *s)
{
    wf_device *device = s->ctx->device;

    device->memory->fill(device, s->there, 0, (int64_t)(sizeof s->sum / sizeof(uint32_t)));
}

static void bring(wf_squares *s)
{
    wf_device *device = s->ctx->device;
    wf_error error = {WF_OK, ""};
    wf_exact_sum part;

    if (device->memory->read(device, &part, s->there, sizeof part, &error) == WF_OK)
        wf_exact_merge(&s->sum, &part);
    else
        wf_fail(s->ctx, error.code, "%s", error.text);
    s->added = 0;
}

void wf_squares_begin(wf_squares *s, wf_context *ctx)
{
    wf_error error = {WF_OK, ""};

    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->there = &s->sum;
    if (!on_device(s))
        return;
    s->there = wf_pool_take(ctx->pool, sizeof s->sum, WF_MEMORY_WORKSPACE, &error);
    if (!s->there)
        wf_fail(ctx, error.code, "%s", error.text);
    else if (!ctx->options.plan)
        clear(s);
}

/* Adds a tensor's squares by chunks: a row of dim 0, or one of the 8 cuts of its dim 1. */
void wf_squares_add(wf_squares *s, const wf_tensor *t)
{
    int64_t chunks = t->ndim == 0   ? 1
                     : t->ndim == 1 ? t->local[0]
                                    : t->local[0] * WF_MAX_CHUNKS;

    if (wf_handle_check(t, "a sum of squares: the tensor") != WF_OK || !s->there ||
        s->ctx->options.plan)
        return;
    if (on_device(s) && chunks > most) {
        wf_fail(s->ctx, WF_EUNSUPPORTED,
                "the norm of a tensor of %lld rows: on device %s it has at most %lld parts",
                (long long)t->local[0], s->ctx->device->name, (long long)most);
        return;
    }
    if (on_device(s) && s->added + chunks > most) {
        bring(s);
        clear(s);
    }
    s->added += chunks;
    s->ctx->device->sum_squares(t, s->there);
}

wf_status wf_squares_end(wf_squares *s, wf_exact_sum *sum)
{
    wf_context *ctx = s->ctx;

    if (on_device(s) && s->there) {
        if (!ctx->options.plan)
            bring(s);
        wf_pool_give(ctx->pool, s->there, sizeof s->sum, WF_MEMORY_WORKSPACE);
    }
    *sum = s->sum;
    return wf_context_status(ctx);
}
