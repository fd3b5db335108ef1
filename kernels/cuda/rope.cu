/* kernels/cuda/rope.cu - the rows of kernels/rope.c, by tables (rope_table.cu). */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/rope_table_internal.h"
#include "kernels/cuda/rotation_internal.h"

namespace
{
/* A tensor that is rotated. */
struct rotated {
    const void *x;
    void *y;
    int64_t heads; /* per token */
    bool wide;
};

struct rotation {
    rotated first, second;      /* queries and keys; or one, and none */
    const float *cosine, *sine; /* [tokens][half] */
    int64_t rows, tokens, dim,
        half;   /* tokens: rows of the tables; half: pairs that are rotated */
    float sign; /* -1 where it rotates back: sines have it */
    bool neighbours;
};

/* Rotates: a thread takes a pack of the first half of the rotated features with that of the
   second half, or copies a pack of the others. */
template <class T> __global__ void __launch_bounds__(WF_BLOCK) rotate_kernel(rotation a)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t turning = (a.half + PACK - 1) / PACK, rest = a.dim - 2 * a.half;
    const int64_t packs = turning + (rest + PACK - 1) / PACK;
    const int64_t before = a.rows * a.first.heads * packs; /* packs of the first tensor */
    const int64_t all = before + a.rows * a.second.heads * packs;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t n = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; n < all; n += step) {
        const bool second_one = n >= before;
        const int64_t k = second_one ? n - before : n;
        const int64_t heads = second_one ? a.second.heads : a.first.heads;
        const bool wide = second_one ? a.second.wide : a.first.wide;
        const T *x = (const T *)(second_one ? a.second.x : a.first.x);
        T *y = (T *)(second_one ? a.second.y : a.first.y);
        const int64_t head = k / packs, i = k % packs * PACK, left = a.half - i;
        const int64_t at = head * a.dim + i, t = head / heads % a.tokens * a.half + i;

        if (k % packs >= turning) {
            const int64_t j = (k % packs - turning) * PACK,
                          from = head * a.dim + 2 * a.half + j;
            float copied[PACK];

            wf_unpack(wf_read(x + from, rest - j, wide), copied);
            wf_store(y + from, rest - j, wide, copied);
            continue;
        }
        if (a.neighbours) { /* pack by pack of pairs, which lie one after the other */
            const int64_t pair = head * a.dim + 2 * i;
            const int64_t pairs = left < PACK ? left : PACK;

            for (int64_t e = 0; e < pairs; e++) {
                float one[2], c = a.cosine[t + e], s = a.sign * a.sine[t + e];

                for (int of = 0; of < 2; of++)
                    one[of] = wf_get(x[pair + 2 * e + of]);
                wf_rotate(&one[0], &one[1], c, s);
                for (int of = 0; of < 2; of++)
                    wf_put(y + pair + 2 * e + of, one[of]);
            }
            continue;
        }
        wf_pack<T> first = wf_read(x + at, left, wide);
        wf_pack<T> second = wf_read(x + at + a.half, left, wide);
        float p[PACK], q[PACK];

        wf_unpack(first, p);
        wf_unpack(second, q);
#pragma unroll
        for (int e = 0; e < PACK; e++) {
            float c = e < left ? a.cosine[t + e] : 0.0f,
                  s = e < left ? a.sign * a.sine[t + e] : 0.0f;

            wf_rotate(&p[e], &q[e], c, s);
        }
        wf_store(y + at, left, wide, p);
        wf_store(y + at + a.half, left, wide, q);
    }
}

/* Returns tensor i of a call; none where it has no such tensor. */
template <class T> rotated rotated_of(const wf_call *call, int i, int64_t half)
{
    rotated r = {};

    if (i >= wf_rope_count(call))
        return r;
    r.x = call->in[i]->data;
    r.y = call->out[i]->data;
    r.heads = call->in[i]->local[2];
    r.wide = wf_wide((const T *)r.x, half) && wf_wide((const T *)r.y, half) &&
             wf_wide((const T *)r.x, call->in[i]->local[3]);
    return r;
}

/* The tensors of a call have tokens and features in common, and so a table. */
size_t table_bytes(const wf_call *call)
{
    const wf_call part = wf_rope_part(call, 0);

    return wf_cuda_rope_table_bytes(&part);
}

wf_status rope(const wf_call *call, void *workspace)
{
    const wf_rope_attr *attr = (const wf_rope_attr *)call->attr;
    const wf_call part = wf_rope_part(call, 0);
    const wf_tensor *x = call->in[0];
    wf_rope_rows table = {};
    cudaError_t error = wf_cuda_rope_table(&part, workspace, &table);
    rotation a = {};

    a.cosine = table.cosine;
    a.sine = table.sine;
    a.rows = x->local[0] * x->local[1];
    a.tokens = table.tokens;
    a.dim = x->local[3];
    a.half = table.half;
    a.neighbours = attr->options.neighbours;
    a.sign = attr->inverse ? -1.0f : 1.0f;
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        int64_t packs;

        a.first = rotated_of<T>(call, 0, a.half);
        a.second = rotated_of<T>(call, 1, a.half);
        packs = a.rows * (a.first.heads + a.second.heads) *
                (wf_ceil(a.half, wf_pack<T>::N) + wf_ceil(a.dim - 2 * a.half, wf_pack<T>::N));
        return error != cudaSuccess ? error
                                    : wf_launch(rotate_kernel<T>, wf_grid(packs, WF_BLOCK),
                                                WF_BLOCK, 0, wf_cuda_of(call)->stream, a);
    });
}
} // namespace

enum { ONE = WF_IN(0) | WF_OUT(0), BOTH = ONE | WF_IN(1) | WF_OUT(1) };

const wf_kernel wf_cuda_rope = {rope, table_bytes, 0, ONE};
const wf_kernel wf_cuda_rope_at = {rope, table_bytes, 0, ONE};
const wf_kernel wf_cuda_rope_pair = {rope, table_bytes, 0, BOTH};
const wf_kernel wf_cuda_rope_pair_at = {rope, table_bytes, 0, BOTH};
