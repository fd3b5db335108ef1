/*
 * core/graph.h - graph capture: a stretch of a rank's work on its device, captured once and
 * replayed without what the host does to launch it (CUDA graphs).
 *
 * What is captured keeps its tensors, their addresses, and the attributes of its ops. What
 * differs from run to run is in tensors that are written before one (a batch), or in a few
 * numbers that kernels find in memory of the device while they are captured (kernels/now.h).
 *
 * Memory that ops take while a graph is captured is the graph's own and stays where it is. A
 * tensor that was made then and is still held holds what the last run gave it; nothing else
 * does, and nothing may be given back then that was taken before.
 *
 * Work of the host that has to come between work of the device, as a collective over ranks has,
 * cuts a graph in parts: a run launches a part, has the host do its work, launches the next.
 */
#ifndef WF_CORE_GRAPH_H
#define WF_CORE_GRAPH_H

#include "core/context.h"

WF_BEGIN_DECLS

typedef struct wf_graph wf_graph;

/* Work of the host between two parts of a graph. */
typedef struct wf_host_work {
    wf_status (*run)(void *self, wf_error *error);
    void (*give_up)(void *self); /* a later part of a run has failed; NULL: nothing is open */
    void (*drop)(void *self);    /* the graph is freed */
    void *self;
} wf_host_work;

/**
 * wf_graph_begin - begins to capture the work of the context's device instead of doing it
 *
 * One-time work (loading libraries, choosing algorithms) must be done before: run the same work
 * once uncaptured. In a plan nothing is captured, and memory is counted as in a run.
 * Errors:  WF_EUNSUPPORTED (the device cannot), WF_EINVAL (one is being captured), WF_ENOMEM in
 *          the context
 */
WF_API wf_status wf_graph_begin(wf_context *ctx);

/**
 * wf_graph_end - ends the capture that wf_graph_begin began, with or without an error in
 * between
 *
 * From now on the memory that the graph needs beside its tensors is counted as WF_MEMORY_GRAPH.
 * Owner:   caller; wf_graph_free
 * Errors:  WF_EDEVICE: the work cannot be captured (a value was read on the host, or copied
 *          from it); NULL then, and where the context had an error before. Tensors made
 *          meanwhile have no memory, and the context can only be closed
 */
WF_API wf_graph *wf_graph_end(wf_context *ctx);

/** wf_graph_keeps - returns true during a capture that is no plan's: what a run of the graph is
 * to do is kept (wf_graph_between), and not done. */
WF_API bool wf_graph_keeps(const wf_context *ctx);

/**
 * wf_graph_between - has every run of the graph that is being captured do this work on the
 * host, after what was captured so far and before what follows; it is not done now
 *
 * @param ctx   wf_graph_keeps says true of it
 * @param work  copied; self is the graph's, also on failure
 * Errors:  those of wf_graph_end, WF_ENOMEM; not in the context
 */
WF_API wf_status wf_graph_between(wf_context *ctx, const wf_host_work *work, wf_error *error);

/** wf_graph_is_captured - returns true during a capture: no value can be read, since none is
 * computed. */
WF_API bool wf_graph_is_captured(const wf_context *ctx);

/**
 * wf_graph_run - replays the captured work, after all work of the rank that came before
 *
 * @param now  [bytes] copied: the numbers of this run; 0 bytes: those of the last one, or what
 *             a captured judgment has made of them (core/judgment.h)
 * Errors:  WF_EDEVICE in the context, and those of the host's work: what comes after it is not
 *          run then, and the graph can only be freed (WF_EINVAL)
 */
WF_API wf_status wf_graph_run(wf_graph *graph, const void *now, size_t bytes);

/** wf_graph_free - frees a graph; NULL is allowed. Before its context is closed. */
WF_API void wf_graph_free(wf_graph *graph);

WF_END_DECLS

#endif
