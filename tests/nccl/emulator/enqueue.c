/* tests/nccl/emulator/enqueue.c - work for a stream that is a thread. */
#include "tests/nccl/emulator/enqueue.h"

cudaError_t emulated_enqueue(cudaStream_t stream, void (*run)(void *), void *arg)
{
    return cudaLaunchHostFunc(stream, run, arg);
}
