/*
 * tests/cuda/emulator/graph.c - what a stream is given while it is captured, kept in order and
 * repeated by every launch, with the arguments that were copied then: a pointer or a number
 * that is no longer right is as wrong as on a device.
 *
 * Captures are of a thread, as cudaStreamCaptureModeThreadLocal has them: what a thread that
 * captures must not do is an error, and the capture is lost with it. A thread captures one
 * stream at a time, without events that would bring in others.
 */
#include "emulator.h"
#include <stdlib.h>

typedef struct work {
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
} work;

struct CUgraph_st {
    work *list;
    size_t n, room;
    bool lost; /* the capture, by what must not be done in one */
    int refs;  /* its owner and what was made of it hold one each */
    int execs; /* there may be one, since its memory has one address */
};

struct CUgraphExec_st {
    cudaGraph_t graph;
    bool frees; /* a launch frees the memory that the last one left */
    int refs;   /* its owner and launches that are not done hold one each */
};

static _Thread_local cudaGraph_t capturing;

void emulator_graph_lose(cudaGraph_t graph)
{
    graph->lost = true;
}

bool emulator_graph_forbids(void)
{
    if (capturing)
        emulator_graph_lose(capturing);
    return capturing != NULL;
}

cudaError_t emulator_graph_record(cudaGraph_t graph, void (*run)(void *arg), void *arg,
                                  void (*drop)(void *arg))
{
    if (graph->lost) {
        if (drop)
            drop(arg);
        return emulator_error(cudaErrorStreamCaptureInvalidated);
    }
    if (graph->n == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 256;
        graph->list = realloc(graph->list, graph->room * sizeof *graph->list);
        if (!graph->list)
            emulator_die("no memory for the work of a graph");
    }
    graph->list[graph->n++] = (work){run, drop, arg};
    return cudaSuccess;
}

static void release_graph(cudaGraph_t graph)
{
    if (--graph->refs > 0)
        return;
    for (size_t i = 0; i < graph->n; i++)
        if (graph->list[i].drop)
            graph->list[i].drop(graph->list[i].arg);
    emulator_lock();
    emulator_memory_forget(graph);
    emulator_unlock();
    free(graph->list);
    free(graph);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaGraph_t *slot = emulator_stream_graph(stream);

    if (mode != cudaStreamCaptureModeThreadLocal || !stream || stream == cudaStreamLegacy)
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    if (*slot || capturing)
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    *slot = calloc(1, sizeof **slot);
    if (!*slot)
        emulator_die("no memory for a graph");
    (*slot)->refs = 1;
    capturing = *slot;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaGraph_t *slot = emulator_stream_graph(stream), ended = *slot;

    *graph = NULL;
    if (!ended)
        return emulator_error(cudaErrorStreamCaptureUnmatched);
    if (ended != capturing)
        return emulator_error(cudaErrorStreamCaptureWrongThread);
    *slot = capturing = NULL;
    if (ended->lost) {
        release_graph(ended);
        return emulator_error(cudaErrorStreamCaptureInvalidated);
    }
    *graph = ended;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    if (nodes)
        emulator_die("nodes of a graph are counted, and not looked at");
    *n = graph->n;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    if (!graph || graph->execs || flags > cudaGraphInstantiateFlagAutoFreeOnLaunch)
        return emulator_error(cudaErrorInvalidValue);
    *exec = calloc(1, sizeof **exec);
    if (!*exec)
        emulator_die("no memory for a graph");
    **exec = (struct CUgraphExec_st){.graph = graph, .frees = flags != 0, .refs = 1};
    graph->execs++;
    graph->refs++;
    return cudaSuccess;
}

static void release_exec(void *arg)
{
    cudaGraphExec_t exec = arg;

    if (--exec->refs > 0)
        return;
    exec->graph->execs--;
    release_graph(exec->graph);
    free(exec);
}

static void run(void *arg)
{
    cudaGraphExec_t exec = arg;
    cudaGraph_t graph = exec->graph;

    if (exec->frees)
        emulator_memory_end_all(graph);
    else if (emulator_memory_any(graph))
        emulator_die("a graph is launched again, and holds memory that was not given back");
    for (size_t i = 0; i < graph->n; i++)
        graph->list[i].run(graph->list[i].arg);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (!exec || *emulator_stream_graph(stream))
        return emulator_error(cudaErrorInvalidValue);
    emulator_lock();
    exec->refs++;
    emulator_unlock();
    return emulator_enqueue(stream, run, exec, release_exec);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    emulator_lock();
    release_exec(exec);
    emulator_unlock();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    emulator_lock();
    release_graph(graph);
    emulator_unlock();
    return cudaSuccess;
}
