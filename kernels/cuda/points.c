/*
 * kernels/cuda/points.c - points in the streams of GPUs, as CUDA's events: the work of one GPU
 * comes after that of another without a host that waits. An event is recorded on the GPU on
 * which it was made, and may be waited for by the streams of any.
 */
#include "kernels/cuda/device_internal.h"
#include <stdlib.h>

struct wf_point {
    cudaEvent_t event;
    int ordinal; /* the GPU on which it was made */
};

static cudaStream_t stream_of(const wf_cuda *cuda, bool side_stream)
{
    return side_stream ? cuda->moves : cuda->stream;
}

static wf_status report(wf_cuda *cuda, cudaError_t code, const char *what, wf_error *error)
{
    wf_cuda_note(cuda, code, what);
    return wf_cuda_failure(cuda, error);
}

void wf_cuda_point_free(wf_point *point)
{
    if (!point)
        return;
    cudaEventDestroy(point->event);
    free(point);
}

static cudaError_t make(const wf_cuda *cuda, wf_point **point)
{
    wf_point *p = malloc(sizeof *p);
    cudaError_t code = cudaErrorMemoryAllocation;

    *point = NULL;
    if (p)
        code = cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming);
    if (code != cudaSuccess) {
        free(p);
        return code;
    }
    p->ordinal = cuda->ordinal;
    *point = p;
    return cudaSuccess;
}

wf_status wf_cuda_mark(wf_device *device, bool side_stream, wf_point **point, wf_error *error)
{
    wf_cuda *cuda = device->self;
    cudaError_t code = cudaSuccess;

    wf_cuda_enter(cuda);
    if (*point && (*point)->ordinal != cuda->ordinal) { /* the group has another device now */
        wf_cuda_point_free(*point);
        *point = NULL;
    }
    if (!*point)
        code = make(cuda, point);
    if (code == cudaSuccess)
        code = cudaEventRecord((*point)->event, stream_of(cuda, side_stream));
    return report(cuda, code, "a point in the GPU's work", error);
}

wf_status wf_cuda_follow(wf_device *device, bool side_stream, const wf_point *point,
                         wf_error *error)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    return report(cuda, cudaStreamWaitEvent(stream_of(cuda, side_stream), point->event, 0),
                  "work after that of another GPU", error);
}

wf_status wf_cuda_point_wait(const wf_point *point, wf_error *error)
{
    const cudaError_t code = cudaEventSynchronize(point->event);

    return code == cudaSuccess
               ? WF_OK
               : wf_cuda_host_table->error_set(
                     error, WF_EDEVICE, "work of GPU %d: the GPU says %s (%s)", point->ordinal,
                     cudaGetErrorString(code), cudaGetErrorName(code));
}
