/*
 * tests/cuda/emulator/kernel_language.h - what CUDA adds to C++, as far as a header can add it.
 *
 * The threads of a block are fibers that run until they meet a barrier, so barriers and
 * shuffles are functions. A launch is cudaLaunchKernelEx; <<< >>> is not C++.
 */
#ifndef WF_TESTS_EMULATOR_KERNEL_LANGUAGE_H
#define WF_TESTS_EMULATOR_KERNEL_LANGUAGE_H

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...) /* cudaLaunchConfig_t says it here */
#ifndef __CUDACC__
#define __align__(n) alignas(n)
#endif

extern "C" {
/* The running thread's. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void emulator_sync_block(void);
void emulator_sync_warp(unsigned mask);
/* Lane `from` of the warp's value, of up to 8 bytes. */
uint64_t emulator_shuffle(unsigned mask, uint64_t value, unsigned from);
unsigned emulator_ballot(unsigned mask, bool vote);
unsigned emulator_lane(void);
void *emulator_dynamic_shared(void);
/* Shared variables are filled with NaN patterns before every block. */
void emulator_register_shared(void *at, size_t bytes);
cudaError_t emulator_launch(const cudaLaunchConfig_t *config, void (*body)(void *arg),
                            void *arg, void (*drop)(void *arg));
cudaError_t emulator_shared_limit(size_t bytes);
}

#define warpSize 32

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

template <class T, size_t N> struct emulator_shared {
    alignas(16) T value[N];

    emulator_shared()
    {
        emulator_register_shared(value, sizeof value);
    }
};

static inline void __syncthreads()
{
    emulator_sync_block();
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulator_sync_warp(mask);
}

static inline void __threadfence()
{
}

template <class T> static inline T emulator_shuffled(unsigned mask, T value, unsigned from)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof bits, "a shuffle moves up to 8 bytes");
    memcpy(&bits, &value, sizeof value);
    bits = emulator_shuffle(mask, bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    unsigned self = emulator_lane(), w = (unsigned)width;

    return emulator_shuffled(mask, value, self / w * w + (unsigned)lane % w);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    unsigned self = emulator_lane(), w = (unsigned)width, from = self ^ (unsigned)bits;

    return emulator_shuffled(mask, value, from / w == self / w ? from : self);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32)
{
    unsigned self = emulator_lane(), w = (unsigned)width, from = self + lanes;

    return emulator_shuffled(mask, value, from / w == self / w ? from : self);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32)
{
    unsigned self = emulator_lane(), w = (unsigned)width;

    return emulator_shuffled(mask, value, self % w >= lanes ? self - lanes : self);
}

static inline unsigned __ballot_sync(unsigned mask, int vote)
{
    return emulator_ballot(mask, vote != 0);
}

static inline int __any_sync(unsigned mask, int vote)
{
    return emulator_ballot(mask, vote != 0) != 0;
}

static inline int __all_sync(unsigned mask, int vote)
{
    return emulator_ballot(mask, vote == 0) == 0;
}

/* One thread runs at a time, so these need no more than what they say. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    T was = *at;

    static_assert(std::is_integral<T>::value, "sums of floats would depend on the order");
    *at = (T)(was + value);
    return was;
}

template <class T> static inline T atomicOr(T *at, T value)
{
    T was = *at;

    *at = was | value;
    return was;
}

template <class T> static inline T atomicMin(T *at, T value)
{
    T was = *at;

    *at = value < was ? value : was;
    return was;
}

template <class T> static inline T atomicMax(T *at, T value)
{
    T was = *at;

    *at = value > was ? value : was;
    return was;
}

template <class T> static inline T atomicCAS(T *at, T expected, T value)
{
    T was = *at;

    *at = was == expected ? value : was;
    return was;
}

template <class T> static inline T __ldg(const T *at)
{
    return *at;
}

static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* glibc has functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)

static inline float __fdividef(float x, float y)
{
    return x / y;
}

static inline float rsqrtf(float x)
{
    return 1.0f / std::sqrt(x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

/* As CUDA's: arguments are converted to the kernel's parameters now, and copied. */
template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(P...), A &&...argument)
{
    typedef std::tuple<void (*)(P...), std::remove_const_t<P>...> call;
    call *c = new call(kernel, std::forward<A>(argument)...);

    return emulator_launch(
        config,
        [](void *arg) {
            std::apply([](void (*k)(P...), const auto &...p) { k(p...); }, *(call *)arg);
        },
        c, [](void *arg) { delete (call *)arg; });
}

template <class K>
static inline cudaError_t cudaFuncSetAttribute(K *, enum cudaFuncAttribute, int bytes)
{
    return emulator_shared_limit((size_t)bytes);
}

#endif
