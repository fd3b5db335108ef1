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
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->there = &s->sum;
    if (!on_device(s))
        return;
    s->there = wf_context_take(ctx, ctx->pool, sizeof s->sum, WF_MEMORY_WORKSPACE, NULL);
    if (s->there && !ctx->options.plan)
        clear(s);
}

/* Returns the terms of a tensor with these rows, and of experts `inner` of each: a row each, or
   one of the 8 cuts of its dim 1. */
static int64_t terms(const wf_tensor *t, int64_t rows, int64_t inner)
{
    const bool experts = t->ndim > 2 && t->dim[0].chunks == WF_CHUNKS_EXPERTS;
    const int64_t all = t->ndim == 0 ? 1 : rows * (experts ? inner : 1);

    return t->ndim < 2 ? all : all * WF_MAX_CHUNKS;
}

static int64_t chunks_of(const wf_tensor *t)
{
    return terms(t, t->local[0], t->local[1]);
}

/* Returns how many of n tensors, from the first on, a limb has room for; at least one. */
static int64_t together(wf_squares *s, int64_t n, wf_tensor *const *tensor)
{
    int64_t k = 0, chunks = 0;

    while (k < n && (k == 0 || s->added + chunks + chunks_of(tensor[k]) <= most))
        chunks += chunks_of(tensor[k++]);
    s->added += chunks;
    return k;
}

void wf_squares_add(wf_squares *s, int64_t n, wf_tensor *const *tensor)
{
    for (int64_t i = 0; i < n; i++)
        if (wf_handle_check(tensor[i], "a sum of squares: the tensor") != WF_OK)
            return;
    if (!s->there || s->ctx->options.plan)
        return;
    for (int64_t i = 0; i < n && on_device(s); i++)
        if (chunks_of(tensor[i]) > most) {
            wf_fail(s->ctx, WF_EUNSUPPORTED,
                    "the norm of a tensor of %lld rows: on device %s it has at most %lld parts",
                    (long long)tensor[i]->local[0], s->ctx->device->name, (long long)most);
            return;
        }
    while (n > 0) {
        int64_t k;

        if (on_device(s) && s->added + chunks_of(tensor[0]) > most) {
            bring(s);
            clear(s);
        }
        k = on_device(s) ? together(s, n, tensor) : n;
        s->ctx->device->sum_squares(k, tensor, s->there);
        tensor += k;
        n -= k;
    }
}

bool wf_squares_fit(int64_t n, wf_tensor *const *tensor)
{
    int64_t chunks = 0;

    for (int64_t i = 0; i < n && chunks <= most; i++)
        chunks +=
            tensor[i] ? terms(tensor[i], tensor[i]->dim[0].size, tensor[i]->dim[1].size) : 0;
    return chunks <= most;
}

void wf_squares_drop(wf_squares *s)
{
    if (on_device(s) && s->there)
        wf_pool_give(s->ctx->pool, s->there, sizeof s->sum, WF_MEMORY_WORKSPACE);
    s->there = NULL;
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
