/* tests/nccl/enqueue_cuda.c - work for a stream of tests/cuda/emulator, with device memory open
   to it. */
#include "tests/cuda/emulator/emulator.h"
#include "tests/nccl/emulator/enqueue.h"

cudaError_t emulated_enqueue(cudaStream_t stream, emulated_attempt *attempt,
                             void (*rest)(void *arg), void *arg)
{
    (void)rest;
    return emulator_enqueue_attempts(stream, attempt, arg);
}

bool emulated_streams_run(void)
{
    return false;
}
