/* tests/nccl/emulator/enqueue.h - how work gets on a stream of the emulated CUDA below: that of
 * this folder (enqueue.c), or tests/cuda/emulator (../enqueue_cuda.c). */
#ifndef WF_TESTS_NCCL_EMULATOR_ENQUEUE_H
#define WF_TESTS_NCCL_EMULATOR_ENQUEUE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Goes on with a piece of work; true where it is over, and arg is gone. */
typedef bool emulated_attempt(void *arg);

/* Queues it; rest(arg) waits until it may be worth another attempt. */
cudaError_t emulated_enqueue(cudaStream_t stream, emulated_attempt *attempt,
                             void (*rest)(void *arg), void *arg);

/* Returns whether streams run by themselves, and not only when somebody waits for them. */
bool emulated_streams_run(void);

#endif
