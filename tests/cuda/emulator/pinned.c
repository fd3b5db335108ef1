/* tests/cuda/emulator/pinned.c - pinned memory of the host: the host's own. */
#include "emulator.h"
#include <stdlib.h>

enum { ALIGN = 256 };

cudaError_t cudaMallocHost(void **at, size_t bytes)
{
    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    *at = aligned_alloc(ALIGN, bytes / ALIGN * ALIGN + ALIGN);
    return *at ? cudaSuccess : emulator_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMallocHost(at, bytes);
}

cudaError_t cudaFreeHost(void *at)
{
    if (emulator_graph_forbids())
        return emulator_error(cudaErrorStreamCaptureUnsupported);
    cudaDeviceSynchronize(); /* as the runtime does: copies may still read it */
    free(at);
    return cudaSuccess;
}
