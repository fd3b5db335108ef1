/* core/graph.c - captured work; see the header. */
#include "core/graph.h"
#include "core/context_internal.h"
#include <stdlib.h>

/* A stretch of the device's work, and what the host does after it. */
typedef struct part {
    void *captured; /* the device's; NULL: nothing, or in a plan */
    wf_host_work then;
} part;

struct wf_graph {
    wf_context *ctx;
    part *part; /* [parts] */
    size_t parts, room;
    size_t held; /* bytes that a run needs beside the tensors that are still there */
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
    if (ctx->options.plan || graphs->begin(ctx->device, false, &error) == WF_OK)
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

/* Ends what is being captured as one more part. */
static wf_status add_part(wf_graph *g, const wf_host_work *then, wf_error *error)
{
    wf_device *device = g->ctx->device;
    part one = {.captured = device->graphs->end(device, error), .then = *then}, *list = g->part;

    if (error->code != WF_OK)
        return error->code;
    if (g->parts == g->room)
        list = realloc(list, (2 * g->room + 1) * sizeof *list);
    if (!list) {
        if (one.captured)
            device->graphs->free(device, one.captured);
        return wf_error_set(error, WF_ENOMEM, "no memory for a graph of %zu parts", g->parts);
    }
    g->room += g->parts == g->room ? g->room + 1 : 0;
    g->part = list;
    g->part[g->parts++] = one;
    return WF_OK;
}

bool wf_graph_keeps(const wf_context *ctx)
{
    return ctx->graph && !ctx->options.plan;
}

wf_status wf_graph_between(wf_context *ctx, const wf_host_work *work, wf_error *error)
{
    wf_error why = {WF_OK, ""};
    wf_status status = add_part(ctx->graph, work, &why);

    if (status != WF_OK)
        work->drop(work->self);
    else
        status = ctx->device->graphs->begin(ctx->device, true, &why);
    return status == WF_OK ? WF_OK : wf_error_set(error, status, "%s", why.text);
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
        add_part(graph, &(wf_host_work){.self = NULL}, &error);
    if (error.code != WF_OK && ctx->failure.error.code == WF_ENOMEM)
        wf_context_clear(ctx); /* no memory for a graph that cannot be captured any more */
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

/* Frees the parts; memory of those that never ran does not exist, and the device, which knows
   them, frees none of it from now on. */
static void drop_parts(wf_graph *graph)
{
    wf_device *device = graph->ctx->device;

    for (size_t i = 0; i < graph->parts; i++) {
        if (graph->part[i].captured)
            device->graphs->free(device, graph->part[i].captured);
        if (graph->part[i].then.drop)
            graph->part[i].then.drop(graph->part[i].then.self);
    }
    free(graph->part);
    graph->part = NULL;
    graph->parts = graph->room = 0;
}

/* Runs the parts in order. Numbers are written before the first one that has work. */
static wf_status run_parts(wf_graph *graph, const void *now, size_t bytes, wf_error *error)
{
    wf_device *device = graph->ctx->device;
    wf_status status = WF_OK;
    size_t i;

    for (i = 0; i < graph->parts && status == WF_OK; i++) {
        const part *p = &graph->part[i];

        if (p->captured) {
            status = device->graphs->run(device, p->captured, now, bytes, error);
            bytes = 0;
        }
        if (status == WF_OK && p->then.run)
            status = p->then.run(p->then.self, error);
    }
    while (status != WF_OK && i-- > 0)
        if (graph->part[i].then.give_up)
            graph->part[i].then.give_up(graph->part[i].then.self);
    if (status != WF_OK)
        drop_parts(graph);
    return status;
}

wf_status wf_graph_run(wf_graph *graph, const void *now, size_t bytes)
{
    wf_context *ctx = graph->ctx;
    wf_error error = {WF_OK, ""};

    if (ctx->failure.error.code != WF_OK)
        return ctx->failure.error.code;
    if (!ctx->options.plan && !graph->parts)
        return wf_fail(ctx, WF_EINVAL,
                       "a graph is run again after a run that failed: capture the work anew");
    if (!graph->counted) {
        ctx->flops += graph->flops;
        ctx->model_flops += graph->model_flops;
    }
    graph->counted = false;
    if (!ctx->options.plan && run_parts(graph, now, bytes, &error) != WF_OK)
        return wf_fail(ctx, error.code, "%s", error.text);
    return WF_OK;
}

void wf_graph_free(wf_graph *graph)
{
    if (!graph)
        return;
    drop_parts(graph);
    wf_pool_let_go(graph->ctx->pool, graph->held, WF_MEMORY_GRAPH);
    free(graph);
}
