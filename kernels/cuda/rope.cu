/* kernels/cuda/rope.cu - the rows of kernels/rope.c, by tables (rope_table.cu). */
#include "kernels/cuda/rope_table_internal.h"

namespace
{
struct rotation {
    const void *x;
    void *y;
    const float *cosine, *sine; /* [tokens][half] */
    int64_t rows, tokens, heads, dim,
        half;   /* tokens: rows of the tables; half: pairs that are rotated */
    float sign; /* -1 where it rotates back: sines have it */
    bool wide, neighbours;
};

/* Rotates: a thread takes a pack of the first half of the rotated features with that of the
   second half, or copies a pack of the others. */
template <class T> __global__ void __launch_bounds__(WF_BLOCK) rotate_kernel(rotation a)
{
    constexpr int PACK = wf_pack<T>::N;
    const int64_t turning = (a.half + PACK - 1) / PACK, rest = a.dim - 2 * a.half;
    const int64_t packs = turning + (rest + PACK - 1) / PACK, all = a.rows * a.heads * packs;
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; k < all; k += step) {
        const int64_t head = k / packs, i = k % packs * PACK, left = a.half - i;
        const int64_t at = head * a.dim + i, t = head / a.heads % a.tokens * a.half + i;

        if (k % packs >= turning) {
            const int64_t j = (k % packs - turning) * PACK,
                          from = head * a.dim + 2 * a.half + j;
            float copied[PACK];

            wf_unpack(wf_read((const T *)a.x + from, rest - j, a.wide), copied);
            wf_store((T *)a.y + from, rest - j, a.wide, copied);
            continue;
        }
        if (a.neighbours) { /* pack by pack of pairs, which lie one after the other */
            const int64_t pair = head * a.dim + 2 * i;
            const int64_t n = left < PACK ? left : PACK;

            for (int64_t e = 0; e < n; e++) {
                float one[2], c = a.cosine[t + e], s = a.sign * a.sine[t + e];

                for (int k = 0; k < 2; k++)
                    one[k] = wf_get(((const T *)a.x)[pair + 2 * e + k]);
                wf_put((T *)a.y + pair + 2 * e, fmaf(-one[1], s, one[0] * c));
                wf_put((T *)a.y + pair + 2 * e + 1, fmaf(one[0], s, one[1] * c));
            }
            continue;
        }
        wf_pack<T> first = wf_read((const T *)a.x + at, left, a.wide);
        wf_pack<T> second = wf_read((const T *)a.x + at + a.half, left, a.wide);
        float p[PACK], q[PACK];

        wf_unpack(first, p);
        wf_unpack(second, q);
#pragma unroll
        for (int e = 0; e < PACK; e++) {
            float c = e < left ? a.cosine[t + e] : 0.0f,
                  s = e < left ? a.sign * a.sine[t + e] : 0.0f;
            float rotated = fmaf(-q[e], s, p[e] * c);

            q[e] = fmaf(p[e], s, q[e] * c);
            p[e] = rotated;
        }
        wf_store((T *)a.y + at, left, a.wide, p);
        wf_store((T *)a.y + at + a.half, left, a.wide, q);
    }
}

wf_status rope(const wf_call *call, void *workspace)
{
    const wf_rope_attr *attr = (const wf_rope_attr *)call->attr;
    const wf_tensor *x = call->in[0];
    wf_rope_rows table = {};
    cudaError_t error = wf_cuda_rope_table(call, workspace, &table);
    rotation a = {};

    a.x = x->data;
    a.y = call->out[0]->data;
    a.cosine = table.cosine;
    a.sine = table.sine;
    a.rows = x->local[0] * x->local[1];
    a.tokens = table.tokens;
    a.heads = x->local[2];
    a.dim = x->local[3];
    a.half = table.half;
    a.neighbours = attr->options.neighbours;
    a.sign = attr->inverse ? -1.0f : 1.0f;
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        int64_t packs =
            a.rows * a.heads *
            (wf_ceil(a.half, wf_pack<T>::N) + wf_ceil(a.dim - 2 * a.half, wf_pack<T>::N));

        a.wide = wf_wide((const T *)a.x, a.half) && wf_wide((const T *)a.y, a.half) &&
                 wf_wide((const T *)a.x, a.dim);
        return error != cudaSuccess ? error
                                    : wf_launch(rotate_kernel<T>, wf_grid(packs, WF_BLOCK),
                                                WF_BLOCK, 0, wf_cuda_of(call)->stream, a);
    });
}
} // namespace

const wf_kernel wf_cuda_rope = {rope, wf_cuda_rope_table_bytes, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_rope_at = {rope, wf_cuda_rope_table_bytes, 0, WF_IN(0) | WF_OUT(0)};
