/*
 * kernels/cuda/launch_internal.h - what every .cu file is written with. The files are compiled
 * by nvcc, and by a C++ compiler over tests/cuda/emulator, which runs blocks on the CPU: where
 * they differ is here and nowhere else.
 *
 * Numbers: contraction is off (--fmad=false), so an fma is one only where the source says fmaf.
 * A thread works on packs of 16 bytes: PACK elements. How the terms of a sum are spread over
 * threads is a function of its length and type alone, never of the grid, of alignment or of
 * what else a rank holds.
 */
#ifndef WF_KERNELS_CUDA_LAUNCH_INTERNAL_H
#define WF_KERNELS_CUDA_LAUNCH_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

#ifndef __cplusplus
#error "kernels/cuda/launch_internal.h is for .cu files"
#endif

enum { WF_WARP = 32, WF_BLOCK = 256, WF_WARPS = WF_BLOCK / WF_WARP, WF_ALL_LANES = -1 };

/*
 * wf_launch - kernel(args...) on grid x block threads with `shared_bytes` bytes of dynamic
 * shared memory, above 48 KiB as asked for by cudaFuncSetAttribute; wf_launch_clusters: the
 * same for a kernel with __cluster_dims__, those. An empty grid is no launch and no error.
 */
template <class... P, class... A>
static inline cudaError_t wf_launch_clusters(void (*kernel)(P...),
                                             [[maybe_unused]] unsigned cluster, dim3 grid,
                                             dim3 block, size_t shared_bytes,
                                             cudaStream_t stream, A &&...args)
{
    cudaLaunchConfig_t config = {};

    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return cudaSuccess;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
#ifdef WF_CUDA_EMULATED
    config.cluster = cluster;
#endif
    wf_cuda_counts.launches++;
    return cudaLaunchKernelEx(&config, kernel, static_cast<A &&>(args)...);
}

template <class... P, class... A>
static inline cudaError_t wf_launch(void (*kernel)(P...), dim3 grid, dim3 block,
                                    size_t shared_bytes, cudaStream_t stream, A &&...args)
{
    return wf_launch_clusters(kernel, 1, grid, block, shared_bytes, stream,
                              static_cast<A &&>(args)...);
}

/* WF_SHARED(float, sum, 32): an array of the block. WF_DYNAMIC_SHARED(float, row): the
   launch's. WF_GRID_CONSTANT: before a large parameter that is only read, and not copied. */
#ifdef WF_CUDA_EMULATED
#define WF_GRID_CONSTANT
#define WF_SHARED(type, name, count)                                                           \
    static emulator_shared<type, count> name##_of_block;                                       \
    type *const name = name##_of_block.value
#define WF_DYNAMIC_SHARED(type, name) type *const name = (type *)emulator_dynamic_shared()
#else
#define WF_GRID_CONSTANT             __grid_constant__
#define WF_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define WF_DYNAMIC_SHARED(type, name)                                                          \
    extern __shared__ __align__(16) unsigned char wf_dynamic_shared[];                         \
    type *const name = (type *)wf_dynamic_shared
#endif

/* ---- storage: floats, or bf16 in memory and floats in registers ---- */

struct wf_bf16 {
    uint16_t bits;
};

/* Returns two floats rounded to bf16, nearest even, denormals as zeros of their sign
   (core/numerics/bf16.h); the first in the lower half. */
static __device__ __forceinline__ uint32_t wf_bf16_pair(float low, float high)
{
#ifdef WF_CUDA_EMULATED
    auto one = [](float x) {
        uint32_t bits = __float_as_uint(x);

        bits = (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits;
        return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    };

    return one(low) | one(high) << 16;
#else
    uint32_t pair;

    /* by one: what flushes is the multiplication */
    asm("{\n"
        " .reg .f32 first, second;\n"
        " mul.rn.ftz.f32 first, %1, 0f3F800000;\n"
        " mul.rn.ftz.f32 second, %2, 0f3F800000;\n"
        " cvt.rn.bf16x2.f32 %0, first, second;\n"
        "}"
        : "=r"(pair)
        : "f"(high), "f"(low));
    return pair;
#endif
}

static __device__ __forceinline__ float wf_get(float x)
{
    return x;
}

static __device__ __forceinline__ float wf_get(wf_bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

static __device__ __forceinline__ void wf_put(float *at, float x)
{
    *at = x;
}

static __device__ __forceinline__ void wf_put(wf_bf16 *at, float x)
{
    at->bits = (uint16_t)wf_bf16_pair(x, 0.0f);
}

/* 16 bytes as they are stored. */
template <class T> struct wf_pack {
    enum { N = 16 / sizeof(T) };
    uint4 raw;
};

static __device__ __forceinline__ void wf_unpack(const wf_pack<float> &p, float out[4])
{
    out[0] = __uint_as_float(p.raw.x);
    out[1] = __uint_as_float(p.raw.y);
    out[2] = __uint_as_float(p.raw.z);
    out[3] = __uint_as_float(p.raw.w);
}

static __device__ __forceinline__ void wf_unpack(const wf_pack<wf_bf16> &p, float out[8])
{
    const uint32_t word[4] = {p.raw.x, p.raw.y, p.raw.z, p.raw.w};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(word[i] << 16);
        out[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ wf_pack<float> wf_packed(const float in[4], const float *)
{
    return {make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
                       __float_as_uint(in[3]))};
}

static __device__ __forceinline__ wf_pack<wf_bf16> wf_packed(const float in[8], const wf_bf16 *)
{
    return {make_uint4(wf_bf16_pair(in[0], in[1]), wf_bf16_pair(in[2], in[3]),
                       wf_bf16_pair(in[4], in[5]), wf_bf16_pair(in[6], in[7]))};
}

static __device__ __forceinline__ uint32_t wf_word(const float *x, int64_t n, int i)
{
    return i < n ? __float_as_uint(x[i]) : 0;
}

static __device__ __forceinline__ uint32_t wf_word(const wf_bf16 *x, int64_t n, int i)
{
    uint32_t low = 2 * i < n ? x[2 * i].bits : 0u,
             high = 2 * i + 1 < n ? x[2 * i + 1].bits : 0u;

    return low | high << 16;
}

/*
 * Reads x[0 .. n) of a pack at x, n <= PACK, zeros after them: in one access where `wide` says
 * that every pack of the array is aligned and this one is whole. Read all operands before the
 * first is unpacked: so they are under way together.
 */
template <class T>
static __device__ __forceinline__ wf_pack<T> wf_read(const T *x, int64_t n, bool wide)
{
    wf_pack<T> p;

    if (wide && n >= wf_pack<T>::N)
        p.raw = *reinterpret_cast<const uint4 *>(x);
    else
        p.raw =
            make_uint4(wf_word(x, n, 0), wf_word(x, n, 1), wf_word(x, n, 2), wf_word(x, n, 3));
    return p;
}

template <class T>
static __device__ __forceinline__ void wf_load(const T *x, int64_t n, bool wide, float *out)
{
    wf_unpack(wf_read(x, n, wide), out);
}

template <class T>
static __device__ __forceinline__ void wf_store(T *y, int64_t n, bool wide, const float *in)
{
    constexpr int PACK = wf_pack<T>::N;

    if (wide && n >= PACK) {
        *reinterpret_cast<uint4 *>(y) = wf_packed(in, y).raw;
        return;
    }
#pragma unroll
    for (int i = 0; i < PACK; i++)
        if (i < n)
            wf_put(y + i, in[i]);
}

/* Stores a whole pack, aligned, in one access where the compiler makes four of wf_store's. */
template <class T> static __device__ __forceinline__ void wf_store_pack(T *y, const float *in)
{
#ifdef WF_CUDA_EMULATED
    *reinterpret_cast<uint4 *>(y) = wf_packed(in, y).raw;
#else
    __stwb(reinterpret_cast<uint4 *>(y), wf_packed(in, y).raw);
#endif
}

/* Returns true where all rows of `width` elements that begin at x can be read in packs. */
template <class T> static inline bool wf_wide(const T *x, int64_t width)
{
    return (uintptr_t)x % 16 == 0 && width % wf_pack<T>::N == 0;
}

/* A vector of a layer (a gain, a bias), which may be stored either way: it comes from the
   caches, so the type is asked for at every access. */
struct wf_vector {
    const void *data;
    bool bf16;
};

static inline wf_vector wf_vector_of(const wf_tensor *t)
{
    return {t->data, t->dtype == WF_BF16};
}

static __device__ __forceinline__ float wf_at(wf_vector v, int64_t i)
{
    return v.bf16 ? wf_get(((const wf_bf16 *)v.data)[i]) : ((const float *)v.data)[i];
}

/* N elements of a vector from i on, zeros where there are fewer than N left. */
template <int N>
static __device__ __forceinline__ void wf_load_vector(wf_vector v, int64_t i, int64_t left,
                                                      bool wide, float *out)
{
    if (v.bf16 && N == 8) {
        wf_load((const wf_bf16 *)v.data + i, left, wide, out);
    } else if (!v.bf16) {
#pragma unroll
        for (int k = 0; k < N; k += 4)
            wf_load((const float *)v.data + i + k, left - k, wide, out + k);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            out[k] = k < left ? wf_at(v, i + k) : 0.0f;
    }
}

static inline bool wf_wide_vector(wf_vector v, int64_t width)
{
    return (uintptr_t)v.data % 16 == 0 && width % 8 == 0;
}

/* ---- arithmetic ---- */

/* e^x within 1e-6 for |x| < 20; two instructions on a GPU. */
static __device__ __forceinline__ float wf_exp_of(float x)
{
    return __expf(x);
}

/* 1 / (1 + e^-z) */
static __device__ __forceinline__ float wf_sigmoid(float z)
{
    return __fdividef(1.0f, 1.0f + wf_exp_of(-z));
}

/* Returns the greater of two in any order: a NaN wins, zeros are +0. */
static __device__ __forceinline__ float wf_greater(float a, float b)
{
    return (a != a ? a : b != b ? b : a > b ? a : b) + 0.0f;
}

/* ---- reductions of fixed shape ---- */

/* The sum over a warp, lanes 16, 8, 4, 2, 1 apart: the same in every lane. */
template <class T> static __device__ __forceinline__ T wf_warp_sum(T x)
{
#pragma unroll
    for (int step = WF_WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

static __device__ __forceinline__ float wf_warp_greatest(float x)
{
#pragma unroll
    for (int step = WF_WARP / 2; step > 0; step /= 2)
        x = wf_greater(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/*
 * Computes N sums over the block at once, the same in every thread: warps as above, then warp 0
 * + warp 1 + .. in order. `room`: N * 32 floats of shared memory, free for other use when it
 * returns.
 */
template <int N> static __device__ __forceinline__ void wf_block_sum(float x[N], float *room)
{
    int warps = (int)(blockDim.x / WF_WARP), warp = (int)(threadIdx.x / WF_WARP);

#pragma unroll
    for (int k = 0; k < N; k++)
        x[k] = wf_warp_sum(x[k]);
    if (warps == 1)
        return;
    if (threadIdx.x % WF_WARP == 0) {
#pragma unroll
        for (int k = 0; k < N; k++)
            room[k * WF_WARP + warp] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
        x[k] = room[k * WF_WARP];
        for (int w = 1; w < warps; w++)
            x[k] += room[k * WF_WARP + w];
    }
    __syncthreads();
}

/* ---- launches for several tensors ---- */

enum { WF_ARGUMENT_BYTES = 4096 }; /* arguments of a launch, on every GPU */

/* The pieces of up to MOST tensors, one after another; a block takes piece by piece. */
template <int MOST> struct wf_pieces {
    int n;               /* tensors */
    int first[MOST + 1]; /* the number of the first piece of each, and of all */

    void add(int64_t pieces)
    {
        first[n + 1] = first[n] + (int)pieces;
        n++;
    }

    __host__ __device__ __forceinline__ int all() const
    {
        return first[n];
    }

    /* Returns the tensor that a piece is of, by bisection. */
    __device__ __forceinline__ int of(int piece) const
    {
        int low = 0, high = n;

        while (high - low > 1) {
            const int middle = (low + high) / 2;

            if (first[middle] <= piece)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
};

/* ---- grids ---- */

static inline int64_t wf_ceil(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* The most blocks of a launch whose blocks loop over equal pieces of work: several times as
   many as a GPU holds at once, so that no tail is long. The emulated one has few, so that loops
   are gone through. */
#ifdef WF_CUDA_EMULATED
enum { WF_MOST_BLOCKS = 5 };
#else
enum { WF_MOST_BLOCKS = 1 << 15 };
#endif

static inline unsigned wf_grid(int64_t pieces, int64_t per_block)
{
    int64_t blocks = wf_ceil(pieces, per_block);

    return (unsigned)(blocks < WF_MOST_BLOCKS ? blocks : (int64_t)WF_MOST_BLOCKS);
}

#endif
