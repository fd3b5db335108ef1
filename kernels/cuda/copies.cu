/*
 * kernels/cuda/copies.cu - copies on a device, many by one launch, each of rows that may lie
 * apart. A copy moves in units of as many bytes, up to 16, as divide its addresses, its rows
 * and their steps.
 */
#include "kernels/cuda/launch_internal.h"

namespace
{

enum {
    COPIES = WF_CUDA_COPIES,
    UNITS = 4, /* units of a thread, on their way together */
    COPY_PIECE = WF_BLOCK * UNITS
};

/* A copy of `rows` x `units` units. */
struct units_copy {
    const char *from;
    char *to;
    int64_t from_step, to_step, rows, units;
    int unit; /* bytes */
};

struct copies {
    units_copy list[COPIES];
    wf_pieces<COPIES> pieces; /* COPY_PIECE units each */
};

static_assert(sizeof(copies) <= WF_ARGUMENT_BYTES, "a launch takes no more");

/* Copies units i, i + WF_BLOCK, .. of a piece. */
template <class T> __device__ __forceinline__ void copy_at(const units_copy &c, int64_t i)
{
    T unit[UNITS], *to[UNITS] = {};

#pragma unroll
    for (int k = 0; k < UNITS; k++, i += WF_BLOCK)
        if (i < c.units * c.rows) {
            const int64_t row = c.rows == 1 ? 0 : i / c.units, at = i - row * c.units;

            unit[k] = ((const T *)(c.from + row * c.from_step))[at];
            to[k] = (T *)(c.to + row * c.to_step) + at;
        }
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        if (to[k])
            *to[k] = unit[k];
}

__global__ void __launch_bounds__(WF_BLOCK) copy_kernel(const WF_GRID_CONSTANT copies a)
{
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const units_copy &c = a.list[k];
        const int64_t i = (int64_t)(piece - a.pieces.first[k]) * COPY_PIECE + threadIdx.x;

        if (c.unit == 16)
            copy_at<uint4>(c, i);
        else if (c.unit == 8)
            copy_at<uint2>(c, i);
        else if (c.unit == 4)
            copy_at<uint32_t>(c, i);
        else if (c.unit == 2)
            copy_at<uint16_t>(c, i);
        else
            copy_at<uint8_t>(c, i);
    }
}

units_copy in_units(const wf_copy *c)
{
    const bool dense = c->rows == 1 || (c->from_step == c->bytes && c->to_step == c->bytes);
    const size_t bytes = dense ? c->bytes * (size_t)c->rows : c->bytes;
    const uintptr_t steps = dense ? 0 : c->from_step | c->to_step;
    const uintptr_t bits = (uintptr_t)c->from | (uintptr_t)c->to | bytes | steps;
    units_copy u = {};

    u.unit = bits % 16 == 0 ? 16 : (int)(bits & -bits);
    u.from = (const char *)c->from;
    u.to = (char *)c->to;
    u.from_step = (int64_t)c->from_step;
    u.to_step = (int64_t)c->to_step;
    u.rows = dense ? 1 : c->rows;
    u.units = (int64_t)bytes / u.unit;
    return u;
}

} // namespace

cudaError_t wf_cuda_launch_copies(cudaStream_t stream, const wf_copy *all, int64_t n)
{
    cudaError_t code = cudaSuccess;

    for (int64_t k = 0; k < n && code == cudaSuccess;) {
        copies a = {};

        for (; k < n && a.pieces.n < COPIES; k++) {
            units_copy *c = &a.list[a.pieces.n];

            if (!all[k].bytes || all[k].rows < 1)
                continue;
            *c = in_units(&all[k]);
            a.pieces.add(wf_ceil(c->units * c->rows, COPY_PIECE));
        }
        if (a.pieces.n)
            code = wf_launch(copy_kernel, wf_grid(a.pieces.all(), 1), WF_BLOCK, 0, stream, a);
    }
    return code;
}
