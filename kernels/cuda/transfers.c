/*
 * kernels/cuda/transfers.c - copies between the GPU's memory and the host's on a stream of
 * their own, beside what the GPU computes. They run in the order in which they begin.
 */
#include "kernels/cuda/device_internal.h"
#include <stdlib.h>

/* Copies with an event each; where more are under way, an early one is joined with a later. */
enum { COPIES = 16 };

struct wf_cuda_transfers {
    cudaStream_t stream;
    cudaEvent_t queued;       /* the work that was queued for the GPU when a copy began */
    cudaEvent_t done[COPIES]; /* the end of copy i, i + COPIES, .. */
    int64_t launches[COPIES]; /* wf_device_counts, when it had begun */
    int64_t begun;
};

static cudaError_t open_transfers(wf_cuda *cuda)
{
    struct wf_cuda_transfers *t = calloc(1, sizeof *t);
    cudaError_t code;

    cuda->transfers = t;
    if (!t)
        return cudaErrorMemoryAllocation;
    code = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&t->queued, cudaEventDisableTiming);
    for (int i = 0; i < COPIES && code == cudaSuccess; i++)
        code = cudaEventCreateWithFlags(&t->done[i], cudaEventDisableTiming);
    return code;
}

void wf_cuda_transfers_close(wf_cuda *cuda)
{
    struct wf_cuda_transfers *t = cuda->transfers;

    if (!t)
        return;
    if (t->stream)
        cudaStreamSynchronize(t->stream);
    for (int i = 0; i < COPIES; i++)
        if (t->done[i])
            cudaEventDestroy(t->done[i]);
    if (t->queued)
        cudaEventDestroy(t->queued);
    if (t->stream)
        cudaStreamDestroy(t->stream);
    free(t);
    cuda->transfers = NULL;
}

int64_t wf_cuda_copy_begin(wf_device *device, void *to, const void *from, size_t bytes)
{
    wf_cuda *cuda = device->self;
    cudaError_t code = cudaSuccess;
    struct wf_cuda_transfers *t;

    wf_cuda_enter(cuda);
    if (!cuda->transfers)
        code = open_transfers(cuda);
    t = cuda->transfers;
    if (code == cudaSuccess)
        code = cudaEventRecord(t->queued, cuda->stream);
    if (code == cudaSuccess)
        code = cudaStreamWaitEvent(t->stream, t->queued, 0);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, t->stream);
    wf_cuda_counts.launches++;
    if (t)
        t->launches[t->begun % COPIES] = wf_cuda_counts.launches;
    if (code == cudaSuccess)
        code = cudaEventRecord(t->done[t->begun % COPIES], t->stream);
    wf_cuda_note(cuda, code, "a copy between host and GPU");
    return t ? t->begun++ : 0;
}

void wf_cuda_copy_join(wf_device *device, int64_t copy)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    if (cuda->transfers)
        wf_cuda_note(cuda,
                     cudaStreamWaitEvent(cuda->stream, cuda->transfers->done[copy % COPIES], 0),
                     "what follows a copy between host and GPU");
}

void wf_cuda_copy_wait(wf_device *device, int64_t copy)
{
    wf_cuda *cuda = device->self;

    wf_cuda_enter(cuda);
    if (!cuda->transfers)
        return;
    if (cuda->transfers->launches[copy % COPIES] == wf_cuda_counts.launches)
        wf_cuda_counts.syncs++;
    else
        wf_cuda_counts.waits++;
    wf_cuda_note(cuda, cudaEventSynchronize(cuda->transfers->done[copy % COPIES]),
                 "a copy to the host");
}
