/*
 * kernels/cuda/row_map_internal.h - y[r, i] = f(x[r, i].., v[i]): elements one by one, with a
 * vector (a bias, a row of positions) that every row meets. A thread keeps its pack of the
 * vector for several rows.
 */
#ifndef WF_KERNELS_CUDA_ROW_MAP_INTERNAL_H
#define WF_KERNELS_CUDA_ROW_MAP_INTERNAL_H

#include "kernels/cuda/operands_internal.h"

enum { WF_MAP_LANES = 32, WF_MAP_ROWS = 8, WF_MAP_DEEP = 4 };

struct wf_row_map {
    const void *x;
    wf_vector v;
    void *y;
    int64_t rows, width;
    bool wide;
};

/* f(x, v): READ says whether x is read at all. */
template <class T, bool READ, class F>
__global__ void __launch_bounds__(WF_MAP_LANES *WF_MAP_ROWS)
    wf_row_map_kernel(F f, wf_row_map a)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t i = ((int64_t)blockIdx.x * WF_MAP_LANES + threadIdx.x) * PACK;
    const int64_t n = a.width - i, step = (int64_t)gridDim.y * WF_MAP_ROWS;
    float v[PACK];

    if (n <= 0)
        return;
    wf_load_vector<PACK>(a.v, i, n, a.wide, v);
    for (int64_t r = (int64_t)blockIdx.y * WF_MAP_ROWS + threadIdx.y; r < a.rows; r += step) {
        float x[PACK] = {};

        if (READ)
            wf_load((const T *)a.x + r * a.width + i, n, a.wide, x);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            x[e] = f(x[e], v[e]);
        wf_store((T *)a.y + r * a.width + i, n, a.wide, x);
    }
}

template <class T, bool READ, class F>
static inline cudaError_t wf_map_rows(cudaStream_t stream, F f, wf_row_map a)
{
    int64_t x = wf_ceil(a.width, WF_MAP_LANES * wf_pack<T>::N);

    a.wide = wf_wide((const T *)a.x, a.width) && wf_wide((const T *)a.y, a.width) &&
             wf_wide_vector(a.v, a.width);
    return wf_launch(wf_row_map_kernel<T, READ, F>,
                     dim3((unsigned)x, wf_grid(a.rows, WF_MAP_ROWS * WF_MAP_DEEP)),
                     dim3(WF_MAP_LANES, WF_MAP_ROWS), 0, stream, f, a);
}

#endif
