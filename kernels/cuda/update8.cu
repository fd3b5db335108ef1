/*
 * kernels/cuda/update8.cu - updates whose states are stored in 8 bits
 * (core/numerics/dynamic8.h), with the CPU's bits: AdamW and Lion. A warp has a block of up to
 * 256 numbers, a lane eight of them; the tables of codes are in shared memory.
 */
#include "kernels/cuda/levels_internal.h"
#include "kernels/cuda/update_internal.h"

namespace
{
enum {
    LANE8 = WF_DYNAMIC8_BLOCK / WF_WARP,
    MANY8 = 40, /* parameters of a launch, at most */
    ROUNDS8 = 4 /* blocks of threads to a processor, which reads the tables for each */
};

struct parameter8 {
    float *p;
    const void *grad;
    uint8_t *state[2];
    int64_t rows;
    float rate, weight_decay;
    int blocks;                 /* in a row */
    int cut[WF_MAX_CHUNKS + 1]; /* starts of the chunks of a row, and the end of the last */
};

struct updates8 {
    parameter8 list[MANY8];
    wf_pieces<MANY8> pieces; /* WF_WARPS blocks each */
    wf_updates all;
    const wf_cuda_levels *levels;
};

static_assert(sizeof(updates8) <= WF_ARGUMENT_BYTES, "a launch takes no more");
static_assert(sizeof(wf_cuda_levels) % sizeof(uint4) == 0, "copied by 16 bytes");

/* A block of a row: its first number, counted over all rows, and how many it has. */
struct block8 {
    int64_t at, number;
    int n;
};

__device__ __forceinline__ block8 block8_of(const parameter8 &p, int64_t number)
{
    const int64_t row = number / p.blocks;
    int j = (int)(number % p.blocks), l = 0, column, left;

    for (;; l++) {
        const int in_chunk =
            (p.cut[l + 1] - p.cut[l] + WF_DYNAMIC8_BLOCK - 1) / WF_DYNAMIC8_BLOCK;

        if (j < in_chunk)
            break;
        j -= in_chunk;
    }
    column = p.cut[l] + j * WF_DYNAMIC8_BLOCK;
    left = p.cut[l + 1] - column;
    return {row * p.cut[WF_MAX_CHUNKS] + column, number,
            left < WF_DYNAMIC8_BLOCK ? left : (int)WF_DYNAMIC8_BLOCK};
}

/* Reads four codes from `at` on as a word, of which n are there. */
__device__ __forceinline__ uint32_t codes8_at(const uint8_t *at, int n, bool words)
{
    uint32_t word = 0;

    if (words && n >= 4)
        return *(const uint32_t *)at;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < n)
            word |= (uint32_t)at[k] << 8 * k;
    return word;
}

__device__ __forceinline__ void put_codes8(uint8_t *at, int n, bool words, uint32_t word)
{
    if (words && n >= 4) {
        *(uint32_t *)at = word;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < n)
            at[k] = (uint8_t)(word >> 8 * k);
}

/* Widens a lane's numbers of a stored block, n of them from number i on. */
__device__ __forceinline__ void widen8(const float *level, const uint8_t *block, int i, int n,
                                       bool words, float *x)
{
    const float scale = __uint_as_float(codes8_at(block, WF_DYNAMIC8_SCALE, words));

#pragma unroll
    for (int k = 0; k < LANE8; k += 4) {
        const uint32_t word = codes8_at(block + WF_DYNAMIC8_SCALE + i + k, n - k, words);

#pragma unroll
        for (int e = 0; e < 4; e++)
            x[k + e] = level[word >> 8 * e & 255] * scale + 0.0f;
    }
}

/* Stores a lane's numbers: the warp finds the scale of the block. */
__device__ __forceinline__ void pack8(const wf_dynamic8_map *map, uint8_t *block, int i, int n,
                                      bool words, const float *x)
{
    uint32_t most = 0, other;
    float scale, by;

#pragma unroll
    for (int k = 0; k < LANE8; k++) {
        other = wf_dynamic8_order(x[k]);
        most = k < n && other > most ? other : most;
    }
#pragma unroll
    for (int step = WF_WARP / 2; step > 0; step /= 2) {
        other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most ? other : most;
    }
    scale = wf_dynamic8_scale_of(most);
    by = scale != 0.0f ? 1.0f / scale : 0.0f;
    if (i == 0)
        put_codes8(block, WF_DYNAMIC8_SCALE, words, __float_as_uint(scale));
#pragma unroll
    for (int k = 0; k < LANE8; k += 4) {
        uint32_t word = 0;

#pragma unroll
        for (int e = 0; e < 4; e++)
            word |= (uint32_t)wf_dynamic8_code(map, x[k + e] * by) << 8 * e;
        put_codes8(block + WF_DYNAMIC8_SCALE + i + k, n - k, words, word);
    }
}

/* Reads or stores a lane's numbers as packs. */
template <class T>
__device__ __forceinline__ void read_each(const T *x, int n, bool wide, float *out)
{
#pragma unroll
    for (int k = 0; k < LANE8; k += wf_pack<T>::N)
        wf_load(x + k, n - k, wide, out + k);
}

template <class G, class M>
__device__ __forceinline__ void update_block(const parameter8 &a, const wf_update &u,
                                             const wf_cuda_levels *levels, block8 b)
{
    const int i = (int)(threadIdx.x % WF_WARP) * LANE8, n = b.n - i;
    const int64_t at = b.at + i, byte = b.at + WF_DYNAMIC8_SCALE * b.number;
    const G *grad = (const G *)a.grad + at;
    const bool wide =
        ((uintptr_t)(a.p + b.at) | (uintptr_t)((const G *)a.grad + b.at)) % 16 == 0;
    float p[LANE8], g[LANE8], s[2][LANE8] = {};

    read_each(a.p + at, n, wide, p);
    read_each(grad, n, wide, g);
#pragma unroll
    for (int k = 0; k < M::STATES; k++)
        widen8(levels->dynamic8[M::levels(k)], a.state[k] + byte, i, n,
               (uintptr_t)(a.state[k] + byte) % 4 == 0, s[k]);
#pragma unroll
    for (int k = 0; k < LANE8; k++)
        M::step(u, g[k], &p[k], &s[0][k], &s[1][k]);
#pragma unroll
    for (int k = 0; k < M::STATES; k++)
        pack8(&levels->map[M::levels(k)], a.state[k] + byte, i, n,
              (uintptr_t)(a.state[k] + byte) % 4 == 0, s[k]);
#pragma unroll
    for (int k = 0; k < LANE8; k += wf_pack<float>::N)
        if (n > k)
            wf_store(a.p + at + k, n - k, wide, p + k);
}

template <class G, class M>
__global__ void __launch_bounds__(WF_BLOCK) update8_kernel(const WF_GRID_CONSTANT updates8 a)
{
    WF_SHARED(wf_cuda_levels, levels, 1);

    if (a.all.held && *a.all.held)
        return;
    for (int k = (int)threadIdx.x; k < (int)(sizeof *levels / sizeof(uint4)); k += WF_BLOCK)
        ((uint4 *)levels)[k] = ((const uint4 *)a.levels)[k];
    __syncthreads();
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const parameter8 &p = a.list[k];
        const int64_t number =
            (int64_t)(piece - a.pieces.first[k]) * WF_WARPS + threadIdx.x / WF_WARP;

        if (number < p.rows * p.blocks)
            update_block<G, M>(p, wf_update_now(a.all, p.rate, p.weight_decay), levels,
                               block8_of(p, number));
    }
}

template <class M> parameter8 parameter8_of(const wf_updates &all, const wf_call *call)
{
    const wf_tensor *t = call->in[0];
    const int last = t->ndim - 1;
    const wf_dynamic8_row row = wf_cuda_host_table->dynamic8_row_of(
        t->dim[last].size, t->dim[last].grain, t->start[last], t->local[last]);
    parameter8 a = {};

    a.p = (float *)t->data;
    a.grad = call->in[1]->data;
    for (int k = 0; k < M::STATES; k++)
        a.state[k] = (uint8_t *)call->in[2 + k]->data;
    a.rows = wf_rows(t);
    a.rate = wf_update_rate(all, call);
    a.weight_decay = wf_update_of(call)->weight_decay;
    for (int l = 0; l <= WF_MAX_CHUNKS; l++)
        a.cut[l] = (int)row.cut[l];
    for (int l = 0; l < WF_MAX_CHUNKS; l++)
        a.blocks += (int)wf_ceil(a.cut[l + 1] - a.cut[l], WF_DYNAMIC8_BLOCK);
    return a;
}

wf_status check_row8(const wf_call *call)
{
    const int64_t columns = wf_width(call->in[0]);

    return columns <= INT32_MAX
               ? WF_OK
               : wf_cuda_host_table->fail(call->ctx, WF_EUNSUPPORTED,
                                          "%s: rows of %lld numbers whose moments have 8 bits: "
                                          "the GPU's kernel takes up to %d",
                                          call->op->name, (long long)columns, INT32_MAX);
}
template <class M> int run_some8(const wf_call *const *calls, int n, wf_status *status)
{
    wf_cuda *cuda = wf_cuda_of(calls[0]);
    updates8 a = {};
    int k = 0;

    a.all = wf_updates_of(calls[0]);
    a.levels = wf_cuda_levels_of(cuda);
    if (!a.levels) {
        *status = wf_cuda_check(calls[0]->ctx, cudaErrorMemoryAllocation, calls[0]->op->name);
        return n;
    }
    for (; k < n && k < MANY8; k++) {
        bool bf16;

        *status = wf_check_types(calls[k], &bf16);
        if (*status == WF_OK)
            *status = check_row8(calls[k]);
        if (*status != WF_OK)
            return k;
        a.list[k] = parameter8_of<M>(a.all, calls[k]);
        a.pieces.add(wf_ceil(a.list[k].rows * a.list[k].blocks, WF_WARPS));
    }
    *status = wf_run(calls[0], [&](auto zero) {
        const unsigned most = (unsigned)cuda->processors * ROUNDS8;
        const unsigned grid = wf_grid(a.pieces.all(), 1);

        return wf_launch(update8_kernel<decltype(zero), M>, grid < most ? grid : most, WF_BLOCK,
                         0, cuda->stream, a);
    });
    return k;
}
} // namespace

int wf_cuda_adamw8(const wf_call *const *calls, int n, wf_status *status)
{
    return run_some8<wf_adamw_method>(calls, n, status);
}

int wf_cuda_lion8(const wf_call *const *calls, int n, wf_status *status)
{
    return run_some8<wf_lion_method>(calls, n, status);
}
