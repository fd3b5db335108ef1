/* tests/cuda/emulator/copy.c - copies and fills as work of a stream; both ends are looked at
   when they are given. */
#include "emulator.h"
#include <stdlib.h>
#include <string.h>

cudaError_t emulator_enqueue_copy(cudaStream_t stream, void (*run)(void *arg), const void *arg,
                                  size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);

    if (!copy)
        emulator_die("no memory for a piece of work");
    memcpy(copy, arg, bytes);
    return emulator_enqueue(stream, run, copy, free);
}

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} copy;

static void run_copy(void *arg)
{
    const copy *c = arg;

    memmove(c->to, c->from, c->bytes);
}

static void run_set(void *arg)
{
    const copy *c = arg;

    memset(c->to, c->value, c->bytes);
}

/* Both ends must be what `kind` says, and whole. */
static bool is_right(const copy *c, enum cudaMemcpyKind kind)
{
    int to = emulator_memory_holds(c->to, c->bytes);
    int from = emulator_memory_holds(c->from, c->bytes);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;

    if (to < 0 || from < 0)
        return false;
    return kind == cudaMemcpyDefault || (to == to_device && from == from_device);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    copy c = {to, from, bytes, 0};

    if (bytes == 0)
        return cudaSuccess;
    return is_right(&c, kind) ? emulator_enqueue_copy(stream, run_copy, &c, sizeof c)
                              : emulator_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;

    if (bytes > to_step || bytes > from_step)
        return emulator_error(cudaErrorInvalidValue);
    for (size_t r = 0; r < rows && error == cudaSuccess; r++)
        error = cudaMemcpyAsync((char *)to + r * to_step, (const char *)from + r * from_step,
                                bytes, kind, stream);
    return error;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    copy c = {at, NULL, bytes, value};

    if (bytes == 0)
        return cudaSuccess;
    return emulator_memory_holds(at, bytes) == 1
               ? emulator_enqueue_copy(stream, run_set, &c, sizeof c)
               : emulator_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    return cudaMemsetAsync(at, value, bytes, NULL);
}
