/*
 * kernels/cuda/graph.c - work of the rank's stream as CUDA graphs: captured, instantiated,
 * launched.
 *
 * Memory that is taken under capture (memory.c: cudaMallocAsync) becomes nodes of the graph:
 * its addresses are fixed, the driver lets what does not live at the same time share them, and
 * what is not given back in the graph holds the results of a launch until the next one, or
 * until a launch of a later part of the same graph gives it back (core/graph.h).
 */
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/levels_internal.h"
#include <stdlib.h>

typedef struct captured {
    cudaGraph_t graph; /* its memory's addresses are its nodes' */
    cudaGraphExec_t exec;
    bool ran;
} captured;

static wf_status report(wf_cuda *cuda, cudaError_t code, const char *what, wf_error *error)
{
    wf_cuda_note(cuda, code, what);
    return wf_cuda_failure(cuda, error);
}

/* Frees the memory that CUDA's pool keeps of steps that ran op by op, which would be unused
   beside the graph's. */
static cudaError_t give_back_unused(wf_cuda *cuda)
{
    cudaMemPool_t pool;
    cudaError_t code = cudaStreamSynchronize(cuda->stream);

    wf_cuda_counts.syncs++;
    if (code == cudaSuccess)
        code = cudaDeviceGetDefaultMemPool(&pool, cuda->ordinal);
    return code == cudaSuccess ? cudaMemPoolTrimTo(pool, 0) : code;
}

/* Makes ready for the first part of a graph. */
static cudaError_t prepare(wf_cuda *cuda)
{
    cudaError_t code = cudaSuccess;

    wf_cuda_levels_of(cuda);
    if (!cuda->now)
        code = cudaMallocAsync((void **)&cuda->now, sizeof *cuda->now, cuda->stream);
    return code == cudaSuccess ? give_back_unused(cuda) : code;
}

/* Begins a capture of this thread: other ranks and the transport's threads are not affected. */
static wf_status begin(wf_device *device, bool again, wf_error *error)
{
    wf_cuda *cuda = device->self;
    cudaError_t code;

    wf_cuda_enter(cuda);
    code = again ? cudaSuccess : prepare(cuda);
    if (code == cudaSuccess)
        code = cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal);
    cuda->capturing = code == cudaSuccess;
    return report(cuda, code, "the beginning of a graph", error);
}

/* Frees a graph. Memory taken while a graph was captured that never ran does not exist, and its
   addresses may be in other use by now. So the device counts as failed, and frees nothing any
   more. */
static void free_graph(wf_device *device, void *graph)
{
    wf_cuda *cuda = device->self;
    captured *r = graph;

    wf_cuda_enter(cuda);
    if (!r->ran)
        wf_cuda_note(cuda, cudaErrorStreamCaptureInvalidated, "a graph that never ran");
    if (r->exec)
        cudaGraphExecDestroy(r->exec); /* when its last launch is done */
    if (r->graph)
        cudaGraphDestroy(r->graph);
    free(r);
}

/* Ends a capture. A launch frees the memory of the last one by itself: blocks that are still
   held are taken anew. */
static void *end(wf_device *device, wf_error *error)
{
    wf_cuda *cuda = device->self;
    captured *r = calloc(1, sizeof *r);
    cudaGraph_t graph = NULL;
    size_t nodes = 1;
    cudaError_t code;

    wf_cuda_enter(cuda);
    code = cudaStreamEndCapture(cuda->stream, &graph);
    cuda->capturing = false;
    if (code == cudaSuccess)
        code = cudaGraphGetNodes(graph, NULL, &nodes);
    if (code == cudaSuccess && nodes == 0) {
        cudaGraphDestroy(graph);
        free(r);
        return NULL;
    }
    if (!r) {
        wf_cuda_host_table->error_set(error, WF_ENOMEM, "no memory for a graph");
        return NULL;
    }
    r->graph = graph;
    if (code == cudaSuccess)
        code =
            cudaGraphInstantiate(&r->exec, r->graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    if (report(cuda, code, "the end of a graph", error) == WF_OK)
        return r;
    free_graph(device, r);
    return NULL;
}

static wf_status run(wf_device *device, void *graph, const void *now, size_t bytes,
                     wf_error *error)
{
    wf_cuda *cuda = device->self;
    captured *r = graph;

    r->ran = true;
    if (bytes)
        wf_cuda_memory.write(device, cuda->now, now, bytes);
    wf_cuda_counts.launches++;
    return report(cuda, cudaGraphLaunch(r->exec, cuda->stream), "a graph", error);
}

static void judge_part(wf_device *device, const wf_exact_sum *squares, wf_judged_part *part)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    wf_cuda_note(cuda, wf_cuda_launch_judge_part(cuda->stream, squares, cuda->now, part),
                 "a part of a judgment");
}

static void judge(wf_device *device, const wf_judge *what)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    wf_cuda_note(cuda, wf_cuda_launch_judge(cuda->stream, what, cuda->now), "a judgment");
}

void wf_cuda_graph_close(wf_cuda *cuda)
{
    if (cuda->now)
        cudaFreeAsync(cuda->now, cuda->stream);
    cuda->now = NULL;
}

const wf_graphs wf_cuda_graphs = {.begin = begin,
                                  .end = end,
                                  .run = run,
                                  .free = free_graph,
                                  .judge_part = judge_part,
                                  .judge = judge};
