/* tests/nccl/emulator/enqueue.c - work for a stream that is a thread. */
#include "tests/nccl/emulator/enqueue.h"
#include <stdlib.h>

typedef struct job {
    emulated_attempt *attempt;
    void (*rest)(void *arg);
    void *arg;
} job;

static void run(void *opaque)
{
    job *j = opaque;

    while (!j->attempt(j->arg))
        j->rest(j->arg);
    free(j);
}

cudaError_t emulated_enqueue(cudaStream_t stream, emulated_attempt *attempt,
                             void (*rest)(void *arg), void *arg)
{
    job *j = malloc(sizeof *j);

    if (!j)
        return cudaErrorMemoryAllocation;
    *j = (job){attempt, rest, arg};
    return cudaLaunchHostFunc(stream, run, j);
}

bool emulated_streams_run(void)
{
    return true;
}
