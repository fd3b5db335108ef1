/* tests/nccl/emulator/enqueue.h - how work gets on a stream of the emulated CUDA below: that of
 * this folder (enqueue.c), or tests/cuda/emulator (../enqueue_cuda.c). */
#ifndef WF_TESTS_NCCL_EMULATOR_ENQUEUE_H
#define WF_TESTS_NCCL_EMULATOR_ENQUEUE_H

#include <cuda_runtime_api.h>

cudaError_t emulated_enqueue(cudaStream_t stream, void (*run)(void *), void *arg);

#endif
