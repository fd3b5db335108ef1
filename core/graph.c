/* core/graph.c - captured work; see the header. */
#include "core/graph.h"
#include "core/context_internal.h"
#include <stdlib.h>

struct wf_graph {
    wf_context *ctx;
    void *captured; /* the device's; NULL in a plan */
    size_t held;    /* bytes that a run needs beside the tensors that are still there */
    double flops, model_flops;
    bool counted; /* flops, once: by the calls that were captured */
};

static wf_status begin(wf_context *ctx)
{
    const wf_graphs *graphs = ctx->device->graphs;
    wf_error error = {WF_OK, ""};

    if (!graphs)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "device %s has no graphs of captured work: run it op by op",
                       ctx->device->name);
    if (ctx->graph)
        return wf_fail(ctx, WF_EINVAL,
                       "a graph is being captured: wf_graph_end comes before the next one");
    if (ctx->options.plan || graphs->begin(ctx->device, &error) == WF_OK)
        return WF_OK;
    return wf_fail(ctx, error.code, "%s", error.text);
}

wf_status wf_graph_begin(wf_context *ctx)
{
    wf_graph *graph;

    if (ctx->failure.error.code != WF_OK)
        return ctx->failure.error.code;
    graph = calloc(1, sizeof *graph);
    if (!graph)
        return wf_fail(ctx, WF_ENOMEM, "no memory for a graph");
    *graph = (wf_graph){.ctx = ctx, .flops = ctx->flops, .model_flops = ctx->model_flops};
    if (begin(ctx) != WF_OK) {
        free(graph);
        return ctx->failure.error.code;
    }
    wf_pool_mark(ctx->pool);
    ctx->graph = graph;
    return WF_OK;
}

wf_graph *wf_graph_end(wf_context *ctx)
{
    wf_graph *graph = ctx->graph;
    wf_error error = {WF_OK, ""};
    wf_memory_report report;

    if (!graph)
        return NULL; /* wf_graph_begin has said why */
    ctx->graph = NULL;
    if (!ctx->options.plan)
        graph->captured = ctx->device->graphs->end(ctx->device, &error);
    if (error.code != WF_OK && ctx->failure.error.code == WF_ENOMEM)
        wf_context_clear(ctx); /* what cannot be captured any more gets no memory */
    if (error.code != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    if (ctx->failure.error.code != WF_OK) {
        wf_graph_free(graph);
        return NULL;
    }
    wf_pool_report(ctx->pool, &report);
    graph->held = wf_pool_most(ctx->pool) - report.in_use;
    wf_pool_hold(ctx->pool, graph->held, WF_MEMORY_GRAPH);
    graph->flops = ctx->flops - graph->flops;
    graph->model_flops = ctx->model_flops - graph->model_flops;
    graph->counted = true;
    return graph;
}

bool wf_graph_is_captured(const wf_context *ctx)
{
    return ctx->graph != NULL;
}

wf_status wf_graph_run(wf_graph *graph, const void *now, size_t bytes)
{
    wf_context *ctx = graph->ctx;
    wf_error error = {WF_OK, ""};

    if (ctx->failure.error.code != WF_OK)
        return ctx->failure.error.code;
    if (!graph->counted) {
        ctx->flops += graph->flops;
        ctx->model_flops += graph->model_flops;
    }
    graph->counted = false;
    if (!ctx->options.plan &&
        ctx->device->graphs->run(ctx->device, graph->captured, now, bytes, &error) != WF_OK)
        return wf_fail(ctx, error.code, "%s", error.text);
    return WF_OK;
}

void wf_graph_free(wf_graph *graph)
{
    wf_device *device;

    if (!graph)
        return;
    device = graph->ctx->device;
    if (graph->captured)
        device->graphs->free(device, graph->captured);
    wf_pool_let_go(graph->ctx->pool, graph->held, WF_MEMORY_GRAPH);
    free(graph);
}
