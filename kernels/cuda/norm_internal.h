/*
 * kernels/cuda/norm_internal.h - layernorm and rmsnorm of rows, alone and after a residual
 * addition: the kernels of norm.cu and add_norm.cu.
 *
 * A block has a row, and holds it in registers where it fits (16384 elements of bf16, 8192 of
 * f32): pack p of a row belongs to thread p % threads, threads being a function of the row's
 * length. Sums over a row are chains in each thread and then wf_block_sum.
 */
#ifndef WF_KERNELS_CUDA_NORM_INTERNAL_H
#define WF_KERNELS_CUDA_NORM_INTERNAL_H

#include "kernels/cuda/dropout_internal.h"

enum { WF_ROW_PACKS = 4, WF_ROW_THREADS = 512 };

template <class T> static inline unsigned wf_row_threads(int64_t d)
{
    int64_t least = wf_ceil(d, wf_pack<T>::N * WF_ROW_PACKS);
    int64_t threads = wf_ceil(least > 0 ? least : 1, WF_WARP) * WF_WARP;

    return (unsigned)(threads < WF_ROW_THREADS ? threads : (int64_t)WF_ROW_THREADS);
}

/* Returns where pack k of this thread begins, in the part of a row that begins at c. */
template <class T> static __device__ __forceinline__ int64_t wf_row_at(int64_t c, int k)
{
    return c + ((int64_t)k * blockDim.x + threadIdx.x) * wf_pack<T>::N;
}

/* The input of a norm: x itself .. */
template <class T> struct wf_plain_rows {
    const T *x;
    bool wide;
    struct raw {
        wf_pack<T> x;
    };

    __device__ __forceinline__ raw read(int64_t at, int64_t left) const
    {
        return {wf_read(x + at, left, wide)};
    }
    __device__ __forceinline__ void finish(const raw &r, int64_t, int64_t, float *v) const
    {
        wf_unpack(r.x, v);
    }
    __device__ __forceinline__ void reload(int64_t at, int64_t left, float *v) const
    {
        wf_load(x + at, left, wide, v);
    }
};

/* .. or s = x + dropout(y), which is an output too, as it is stored. */
template <class T> struct wf_added_rows {
    const T *x, *y;
    T *s;
    wf_dropper dropper;
    bool wide;
    struct raw {
        wf_pack<T> x, y;
    };

    __device__ __forceinline__ raw read(int64_t at, int64_t left) const
    {
        return {wf_read(x + at, left, wide), wf_read(y + at, left, wide)};
    }
    __device__ __forceinline__ void finish(const raw &r, int64_t at, int64_t left,
                                           float *v) const
    {
        constexpr int PACK = wf_pack<T>::N;
        float branch[PACK];

        wf_unpack(r.x, v);
        wf_unpack(r.y, branch);
        if (dropper.attr.p > 0.0f)
            wf_drop<PACK>(dropper, at, left, branch);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            v[e] = e < left ? v[e] + branch[e] : 0.0f;
        wf_store(s + at, left, wide, v);
        wf_unpack(wf_packed(v, s), v);
    }
    __device__ __forceinline__ void reload(int64_t at, int64_t left, float *v) const
    {
        wf_load(s + at, left, wide, v);
    }
};

struct wf_norm {
    wf_vector gain, bias;
    float eps;
    void *y;
    float *mean, *rstd;
    int64_t rows, d;
    bool wide; /* true for rows and vectors alike */
};

/* 1 / sqrt(sum / d + eps) */
static __device__ __forceinline__ float wf_inverse_root(float sum, int64_t d, float eps)
{
    return 1.0f / sqrtf(sum / (float)d + eps);
}

/* The part of a row that begins at c, `v`, read by all threads; its sum is added to *sum. */
template <class T, class S>
static __device__ __forceinline__ void wf_norm_read(const S &source, const wf_norm &a,
                                                    int64_t row, int64_t c,
                                                    float (*v)[wf_pack<T>::N], float *sum)
{
    constexpr int PACK = wf_pack<T>::N;
    typename S::raw raw[WF_ROW_PACKS];

#pragma unroll
    for (int k = 0; k < WF_ROW_PACKS; k++)
        raw[k] = source.read(row + wf_row_at<T>(c, k), a.d - wf_row_at<T>(c, k));
#pragma unroll
    for (int k = 0; k < WF_ROW_PACKS; k++) {
        source.finish(raw[k], row + wf_row_at<T>(c, k), a.d - wf_row_at<T>(c, k), v[k]);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            *sum += v[k][e];
    }
}

/* y = (v - mean) rstd gain + bias for the pack at column i, 0 <= i < d; no mean and no bias
   where not CENTRED. */
template <class T, bool CENTRED>
static __device__ __forceinline__ void wf_norm_write(const wf_norm &a, int64_t row, int64_t i,
                                                     const float *v, float mean, float rstd)
{
    constexpr int PACK = wf_pack<T>::N;
    float gain[PACK], bias[PACK] = {};

    wf_load_vector<PACK>(a.gain, i, a.d - i, a.wide, gain);
    if (CENTRED)
        wf_load_vector<PACK>(a.bias, i, a.d - i, a.wide, bias);
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        float h = (v[e] - mean) * rstd;

        gain[e] = CENTRED ? fmaf(h, gain[e], bias[e]) : h * gain[e];
    }
    wf_store((T *)a.y + row + i, a.d - i, a.wide, gain);
}

template <class T, bool CENTRED, class S>
__global__ void __launch_bounds__(WF_ROW_THREADS) wf_norm_kernel(S source, wf_norm a)
{
    constexpr int PACK = wf_pack<T>::N;
    WF_SHARED(float, room, WF_WARP);
    const int64_t piece = (int64_t)blockDim.x * WF_ROW_PACKS * PACK;
    const bool once = a.d <= piece;

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        float v[WF_ROW_PACKS][PACK], sum = 0.0f, square = 0.0f, mean = 0.0f, rstd;

        for (int64_t c = 0; c < a.d; c += piece)
            wf_norm_read<T>(source, a, r * a.d, c, v, &sum);
        if (CENTRED) {
            wf_block_sum<1>(&sum, room);
            mean = sum / (float)a.d;
        }
        for (int64_t c = 0; c < a.d; c += piece)
#pragma unroll
            for (int k = 0; k < WF_ROW_PACKS; k++) {
                int64_t i = wf_row_at<T>(c, k);

                if (!once)
                    source.reload(r * a.d + i, a.d - i, v[k]);
#pragma unroll
                for (int e = 0; e < PACK; e++) {
                    float t = i + e < a.d ? v[k][e] - mean : 0.0f;

                    square = fmaf(t, t, square);
                }
            }
        wf_block_sum<1>(&square, room);
        rstd = wf_inverse_root(square, a.d, a.eps);
        for (int64_t c = 0; c < a.d; c += piece)
#pragma unroll
            for (int k = 0; k < WF_ROW_PACKS; k++) {
                int64_t i = wf_row_at<T>(c, k);

                if (i >= a.d)
                    continue;
                if (!once)
                    source.reload(r * a.d + i, a.d - i, v[k]);
                wf_norm_write<T, CENTRED>(a, r * a.d, i, v[k], mean, rstd);
            }
        if (threadIdx.x == 0) {
            a.rstd[r] = rstd;
            if (CENTRED)
                a.mean[r] = mean;
        }
    }
}

struct wf_norm_gradient {
    const void *x, *dy, *ds; /* ds: NULL, or what is added to the result */
    void *dx;
    wf_vector gain;
    const float *mean, *rstd;
    int64_t rows, d;
    bool wide;
};

/* h and g = dy gain of pack k; zeros beyond the row */
template <class T, bool CENTRED>
static __device__ __forceinline__ void wf_norm_terms(const wf_norm_gradient &a, int64_t i,
                                                     float mean, float rstd,
                                                     const wf_pack<T> &x, const wf_pack<T> &dy,
                                                     float *h, float *g)
{
    constexpr int PACK = wf_pack<T>::N;
    float gain[PACK];

    wf_unpack(x, h);
    wf_unpack(dy, g);
    wf_load_vector<PACK>(a.gain, i, a.d - i, a.wide, gain);
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        h[e] = (CENTRED ? h[e] - mean : h[e]) * rstd;
        g[e] *= gain[e]; /* 0 beyond the row, which leaves the sums as they are */
    }
}

/* Stores dx = rstd (g - a - h b) of a pack at element `at` of all rows, with what is added to
   it; sum: a (0 where not CENTRED) and b. */
template <class T, bool CENTRED>
static __device__ __forceinline__ void wf_norm_store_dx(const wf_norm_gradient &a, int64_t at,
                                                        int64_t left, float rstd,
                                                        const float *sum, const float *h,
                                                        float *g, const wf_pack<T> &added)
{
    constexpr int PACK = wf_pack<T>::N;

#pragma unroll
    for (int e = 0; e < PACK; e++)
        g[e] = rstd * fmaf(-h[e], sum[1], CENTRED ? g[e] - sum[0] : g[e]);
    if (a.ds) { /* as two ops would: rounded, then added */
        float more[PACK];

        wf_unpack(wf_packed(g, (const T *)NULL), g);
        wf_unpack(added, more);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            g[e] = more[e] + g[e];
    }
    wf_store((T *)a.dx + at, left, a.wide, g);
}

/* dx = rstd (g - a - h b), a = sum g / d (0 where not CENTRED), b = sum g h / d */
template <class T, bool CENTRED>
__global__ void __launch_bounds__(WF_ROW_THREADS) wf_norm_backward_kernel(wf_norm_gradient a)
{
    constexpr int PACK = wf_pack<T>::N;
    WF_SHARED(float, room, 2 * WF_WARP);
    const int64_t piece = (int64_t)blockDim.x * WF_ROW_PACKS * PACK;
    const bool once = a.d <= piece;

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const T *x = (const T *)a.x + r * a.d, *dy = (const T *)a.dy + r * a.d;
        const T *ds = (const T *)a.ds + (a.ds ? r * a.d : 0);
        const float mean = CENTRED ? a.mean[r] : 0.0f, rstd = a.rstd[r];
        float h[WF_ROW_PACKS][PACK], g[WF_ROW_PACKS][PACK], sum[2] = {0.0f, 0.0f};

        for (int64_t c = 0; c < a.d; c += piece) {
            wf_pack<T> raw[WF_ROW_PACKS], gradient[WF_ROW_PACKS];

#pragma unroll
            for (int k = 0; k < WF_ROW_PACKS; k++) {
                raw[k] = wf_read(x + wf_row_at<T>(c, k), a.d - wf_row_at<T>(c, k), a.wide);
                gradient[k] =
                    wf_read(dy + wf_row_at<T>(c, k), a.d - wf_row_at<T>(c, k), a.wide);
            }
#pragma unroll
            for (int k = 0; k < WF_ROW_PACKS; k++) {
                wf_norm_terms<T, CENTRED>(a, wf_row_at<T>(c, k), mean, rstd, raw[k],
                                          gradient[k], h[k], g[k]);
#pragma unroll
                for (int e = 0; e < PACK; e++) {
                    sum[0] += g[k][e];
                    sum[1] = fmaf(g[k][e], h[k][e], sum[1]);
                }
            }
        }
        wf_block_sum<2>(sum, room);
        sum[0] = CENTRED ? sum[0] / (float)a.d : 0.0f;
        sum[1] = sum[1] / (float)a.d;
        for (int64_t c = 0; c < a.d; c += piece)
#pragma unroll
            for (int k = 0; k < WF_ROW_PACKS; k++) {
                int64_t i = wf_row_at<T>(c, k), left = a.d - i;

                if (left <= 0)
                    continue;
                if (!once)
                    wf_norm_terms<T, CENTRED>(a, i, mean, rstd, wf_read(x + i, left, a.wide),
                                              wf_read(dy + i, left, a.wide), h[k], g[k]);
                wf_pack<T> added = {};

                if (a.ds)
                    added = wf_read(ds + i, left, a.wide);
                wf_norm_store_dx<T, CENTRED>(a, r * a.d + i, left, rstd, sum, h[k], g[k],
                                             added);
            }
    }
}

/* Returns the gradient of rows that a call of *_dx or *_grad asks for: x, gain, (mean), rstd,
   dy, (what is added to dx). */
static inline wf_norm_gradient wf_norm_gradient_of(const wf_call *call, bool centred, bool adds)
{
    const int dy = 3 + centred;
    wf_norm_gradient a = {};

    a.x = call->in[0]->data;
    a.gain = wf_vector_of(call->in[1]);
    a.mean = centred ? (const float *)call->in[2]->data : NULL;
    a.rstd = (const float *)call->in[dy - 1]->data;
    a.dy = call->in[dy]->data;
    a.ds = adds ? call->in[dy + 1]->data : NULL;
    a.dx = call->out[0]->data;
    a.rows = wf_rows(call->in[0]);
    a.d = wf_width(call->in[0]);
    return a;
}

/* Returns true where all rows and vectors can be read in packs. */
template <class T> static inline bool wf_norm_is_wide(const wf_norm_gradient &a)
{
    return wf_wide((const T *)a.x, a.d) && wf_wide((const T *)a.dy, a.d) &&
           wf_wide((const T *)a.ds, a.d) && wf_wide((const T *)a.dx, a.d) &&
           wf_wide_vector(a.gain, a.d);
}

template <class T>
static inline cudaError_t wf_norm_backward(const wf_call *call, wf_norm_gradient a)
{
    unsigned threads = wf_row_threads<T>(a.d), grid = wf_grid(a.rows, 1);
    cudaStream_t stream = wf_cuda_of(call)->stream;

    a.wide = wf_norm_is_wide<T>(a);
    return a.mean ? wf_launch(wf_norm_backward_kernel<T, true>, grid, threads, 0, stream, a)
                  : wf_launch(wf_norm_backward_kernel<T, false>, grid, threads, 0, stream, a);
}

template <class T, class S>
static inline cudaError_t wf_norm_rows(cudaStream_t stream, S source, const wf_norm &a)
{
    unsigned threads = wf_row_threads<T>(a.d);

    return a.mean ? wf_launch(wf_norm_kernel<T, true, S>, wf_grid(a.rows, 1), threads, 0,
                              stream, source, a)
                  : wf_launch(wf_norm_kernel<T, false, S>, wf_grid(a.rows, 1), threads, 0,
                              stream, source, a);
}

#endif
