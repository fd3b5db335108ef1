/* core/judgment.c - see the header. */
#include "core/judgment.h"
#include "core/context_internal.h"
#include <stdlib.h>

struct wf_judgment {
    wf_context *ctx;
    wf_judged *there, *here; /* on the device, and [WF_JUDGMENTS] of host memory */
    wf_judged_part *part;    /* [ranks] on the device */
    int ranks;
    int64_t copy[WF_JUDGMENTS];
    bool sent; /* a copy may be under way, before which the next judgment must not write */
    int last;  /* its slot */
};

/* A judgment that has not come from the device. */
enum { UNKNOWN = -1 };

static const size_t HERE = WF_JUDGMENTS * sizeof(wf_judged);

static bool plans(const wf_judgment *j)
{
    return j->ctx->options.plan;
}

static size_t part_bytes(const wf_judgment *j)
{
    return (size_t)j->ranks * sizeof *j->part;
}

wf_judgment *wf_judgment_open(wf_context *ctx, int ranks)
{
    const wf_allocator *host = &ctx->device->host_allocator;
    wf_judgment *j = calloc(1, sizeof *j);
    wf_error error = {WF_OK, ""};

    if (!j || !ctx->device->graphs) {
        free(j);
        wf_fail(ctx, j ? WF_EUNSUPPORTED : WF_ENOMEM,
                "device %s has no captured work, and so no judgment of it", ctx->device->name);
        return NULL;
    }
    j->ctx = ctx;
    j->ranks = ranks;
    j->there = wf_pool_take(ctx->pool, sizeof *j->there, WF_MEMORY_BUFFER, &error);
    j->part = wf_pool_take(ctx->pool, part_bytes(j), WF_MEMORY_BUFFER, &error);
    if (j->there && j->part && !plans(j))
        j->here = host->alloc(host->self, HERE);
    if (j->there && j->part && (plans(j) || j->here)) {
        wf_judgment_clear(j);
        return j;
    }
    wf_fail(ctx, WF_ENOMEM, "no memory for the judgment of steps");
    wf_judgment_close(j);
    return NULL;
}

void wf_judgment_close(wf_judgment *j)
{
    if (!j)
        return;
    if (j->sent)
        j->ctx->device->memory->copy_wait(j->ctx->device, j->copy[j->last]);
    if (j->here)
        j->ctx->device->host_allocator.release(j->ctx->device->host_allocator.self, j->here,
                                               HERE);
    wf_pool_give(j->ctx->pool, j->there, sizeof *j->there, WF_MEMORY_BUFFER);
    wf_pool_give(j->ctx->pool, j->part, part_bytes(j), WF_MEMORY_BUFFER);
    free(j);
}

wf_status wf_judgment_bring(wf_judgment *j, int rank, wf_squares *squares)
{
    wf_context *ctx = j->ctx;

    if (ctx->failure.error.code == WF_OK && squares->there && !plans(j))
        ctx->device->graphs->judge_part(ctx->device, squares->there, &j->part[rank]);
    wf_squares_drop(squares);
    return ctx->failure.error.code;
}

wf_judged_part *wf_judgment_parts(const wf_judgment *j)
{
    return j->part;
}

wf_status wf_judgment_capture(wf_judgment *j, const wf_tensor *total, float weight, float clip,
                              float loss_above)
{
    wf_context *ctx = j->ctx;

    if (ctx->failure.error.code == WF_OK && !plans(j))
        ctx->device->graphs->judge(ctx->device, &(wf_judge){.part = j->part,
                                                            .parts = j->ranks,
                                                            .total = total->data,
                                                            .weight = weight,
                                                            .clip = clip,
                                                            .loss_above = loss_above,
                                                            .judged = j->there});
    return ctx->failure.error.code;
}

wf_status wf_judgment_run(wf_judgment *j, wf_graph *graph, const void *now, size_t bytes,
                          int slot)
{
    wf_device *device = j->ctx->device;

    if (j->sent)
        device->memory->copy_join(device, j->copy[j->last]);
    if (wf_graph_run(graph, now, bytes) != WF_OK || plans(j))
        return wf_context_status(j->ctx);
    j->here[slot].held = UNKNOWN;
    j->copy[slot] =
        device->memory->copy_begin(device, &j->here[slot], j->there, sizeof *j->there);
    j->sent = true;
    j->last = slot;
    return WF_OK;
}

wf_judged wf_judgment_wait(wf_judgment *j, int slot)
{
    const wf_judged none = {.norm = 0};
    wf_device *device = j->ctx->device;
    wf_error error = {WF_OK, ""};

    if (plans(j) || j->ctx->failure.error.code != WF_OK)
        return none;
    device->memory->copy_wait(device, j->copy[slot]);
    if (j->here[slot].held != UNKNOWN)
        return j->here[slot];
    if (device->memory->wait(device, &error) != WF_OK) /* says what has failed */
        wf_fail(j->ctx, error.code, "%s", error.text);
    return none;
}

void wf_judgment_clear(wf_judgment *j)
{
    wf_device *device = j->ctx->device;

    if (!plans(j))
        device->memory->fill(device, j->there, 0, (int64_t)(sizeof *j->there / 4));
}
