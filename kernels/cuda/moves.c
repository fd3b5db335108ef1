/*
 * kernels/cuda/moves.c - copies in the GPU's memory, and sums over ranks, many by few launches.
 *
 * Without `side_stream` all goes to the rank's stream, after what it computes and before what
 * follows, and a failure is noted. On the side stream one is returned as well: what the streams
 * of other ranks have to do with it is said by points (points.c).
 */
#include "kernels/cuda/device_internal.h"

/* Ends what queued a copy; failures of work on the rank's own stream are reported later. */
static wf_status end(wf_cuda *cuda, bool side_stream, cudaError_t code, const char *what,
                     wf_error *error)
{
    wf_cuda_note(cuda, code, what);
    return side_stream ? wf_cuda_failure(cuda, error) : WF_OK;
}

/* Copies a run; overlapping ones go by way of other memory. */
static cudaError_t copy_run(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    uintptr_t x = (uintptr_t)to, y = (uintptr_t)from;
    void *room = NULL;
    cudaError_t code;

    if (x + bytes <= y || y + bytes <= x)
        return wf_cuda_queue_copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    code = cudaMallocAsync(&room, bytes, stream);
    if (code == cudaSuccess)
        code = wf_cuda_queue_copy(room, from, bytes, cudaMemcpyDeviceToDevice, stream);
    if (code == cudaSuccess)
        code = wf_cuda_queue_copy(to, room, bytes, cudaMemcpyDeviceToDevice, stream);
    if (room)
        cudaFreeAsync(room, stream);
    return code;
}

static cudaError_t copy_rows(const wf_copy *c, cudaStream_t stream)
{
    cudaError_t code = cudaSuccess;

    if (c->rows == 1)
        return copy_run(c->to, c->from, c->bytes, stream);
    if (c->bytes == c->from_step && c->bytes == c->to_step)
        return copy_run(c->to, c->from, c->bytes * (size_t)c->rows, stream);
    if (c->from_step <= INT32_MAX && c->to_step <= INT32_MAX) { /* CUDA's largest pitch */
        wf_cuda_counts.launches++;
        return cudaMemcpy2DAsync(c->to, c->to_step, c->from, c->from_step, c->bytes,
                                 (size_t)c->rows, cudaMemcpyDeviceToDevice, stream);
    }
    for (int64_t r = 0; r < c->rows && code == cudaSuccess; r++)
        code = wf_cuda_queue_copy((char *)c->to + (size_t)r * c->to_step,
                                  (const char *)c->from + (size_t)r * c->from_step, c->bytes,
                                  cudaMemcpyDeviceToDevice, stream);
    return code;
}

wf_status wf_cuda_copy(wf_device *device, const wf_copy *c, bool side_stream, wf_error *error)
{
    wf_cuda *cuda = device->self;
    cudaStream_t stream = side_stream ? cuda->moves : cuda->stream;

    if (c->bytes == 0 || c->rows == 0)
        return WF_OK;
    wf_cuda_enter(cuda);
    return end(cuda, side_stream, copy_rows(c, stream), "a copy", error);
}

/* Copies larger than this go by the GPU's copy engines where they leave its multiprocessors to
   what the rank computes: on the side stream. */
enum { JOINED = 64 << 10 };

static bool joins(const wf_copy *c, bool side_stream)
{
    return !side_stream || c->bytes * (size_t)c->rows <= JOINED;
}

/* Queues those of n copies that are joined, WF_CUDA_COPIES by each launch, or the others. */
static cudaError_t copy_some(const wf_copy *c, int64_t n, bool side_stream, bool joined,
                             cudaStream_t stream)
{
    wf_copy list[WF_CUDA_COPIES];
    cudaError_t code = cudaSuccess;
    int64_t count = 0;

    for (int64_t k = 0; k < n && code == cudaSuccess; k++) {
        if (joins(&c[k], side_stream) != joined || !c[k].bytes || c[k].rows < 1)
            continue;
        if (!joined) {
            code = copy_rows(&c[k], stream);
            continue;
        }
        list[count++] = c[k];
        if (count == WF_CUDA_COPIES) {
            code = wf_cuda_launch_copies(stream, list, count);
            count = 0;
        }
    }
    if (count && code == cudaSuccess)
        code =
            count == 1 ? copy_rows(list, stream) : wf_cuda_launch_copies(stream, list, count);
    return code;
}

wf_status wf_cuda_copy_all(wf_device *device, const wf_copy *copies, int64_t n,
                           bool side_stream, wf_error *error)
{
    wf_cuda *cuda = device->self;
    cudaStream_t stream = side_stream ? cuda->moves : cuda->stream;
    cudaError_t code;

    wf_cuda_enter(cuda);
    code = copy_some(copies, n, side_stream, true, stream);
    if (code == cudaSuccess)
        code = copy_some(copies, n, side_stream, false, stream);
    return end(cuda, side_stream, code, "copies", error);
}

wf_status wf_cuda_reduce(wf_device *device, const wf_reduce *r, int64_t n, bool side_stream,
                         wf_error *error)
{
    wf_cuda *cuda = device->self;

    if (n && (r->n_src > WF_CUDA_SOURCES || r->n_dst > WF_CUDA_TARGETS))
        return wf_cuda_host_table->error_set(
            error, WF_EUNSUPPORTED,
            "a sum over %d ranks: on GPUs a group has at most %d; split the axis in two "
            "(.strategy hybrid_shard)",
            r->n_src, WF_CUDA_SOURCES);
    wf_cuda_enter(cuda);
    return end(cuda, side_stream,
               wf_cuda_launch_reduce(side_stream ? cuda->moves : cuda->stream, r, n),
               "a sum over ranks", error);
}
