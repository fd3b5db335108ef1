/*
 * kernels/cuda/rope.cu - the row of kernels/rope.c. Cosines and sines of this rank's tokens are
 * made first, in double, and rounded; they serve every sequence and head.
 */
#include "kernels/attention_internal.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
struct rotation {
    const void *x;
    void *y;
    float *cosine, *sine; /* [tokens][half], sines negated where it rotates back */
    int64_t rows, tokens, heads, dim,
        half; /* tokens: rows of the tables; half: pairs that are rotated */
    bool wide, neighbours;
};

/* The divisors of each pair in texts up to the original length, and in longer ones. */
struct divisors {
    float of[2][WF_ROPE_PAIRS];
};

/* at: NULL, or the position of each row of the tables. */
__global__ void __launch_bounds__(WF_BLOCK)
    table_kernel(rotation a, const int32_t *at, int64_t first, wf_rope_attr how,
                 wf_rope_range range, divisors by)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    const bool lists = how.options.scaling.kind == WF_ROPE_LONG;
    const bool heats = how.options.scaling.kind == WF_ROPE_TEMPERATURE;

    for (int64_t k = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; k < a.tokens * a.half;
         k += step) {
        double angle =
                   pow(how.options.base, -2.0 * (double)(k % a.half) / (double)(2 * a.half)),
               s, c;

        const bool is_long = how.is_long || (at && at[k / a.half] < 0);

        const int64_t position = at ? wf_rope_position(at[k / a.half]) : first + k / a.half;
        const double factor = lists ? by.of[is_long][k % a.half]
                                    : pow(wf_rope_stretch(&how.options.scaling, position),
                                          wf_rope_slowed(k % a.half, 2 * a.half));

        const double warmth =
            range.attention *
            (1 + (heats ? how.options.scaling.factor *
                              log(wf_rope_warmth(&how.options.scaling, position))
                        : 0));

        angle = wf_rope_scaled(&how.options.scaling, range, factor, k % a.half, angle);
        sincos((double)position * angle, &s, &c);
        a.cosine[k] = (float)(c * warmth);
        a.sine[k] = (float)(s * (how.inverse ? -warmth : warmth));
    }
}

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
                float one[2], c = a.cosine[t + e], s = a.sine[t + e];

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
            float c = e < left ? a.cosine[t + e] : 0.0f, s = e < left ? a.sine[t + e] : 0.0f;
            float rotated = fmaf(-q[e], s, p[e] * c);

            q[e] = fmaf(p[e], s, q[e] * c);
            p[e] = rotated;
        }
        wf_store((T *)a.y + at, left, a.wide, p);
        wf_store((T *)a.y + at + a.half, left, a.wide, q);
    }
}

double natural_log(double x)
{
    return log(x);
}

/* Tokens of a sequence, or of all where each has a position of its own. */
int64_t table_rows(const wf_call *call)
{
    const wf_tensor *x = call->in[0];

    return call->n_in > 1 ? x->local[0] * x->local[1] : x->local[1];
}

size_t workspace_bytes(const wf_call *call)
{
    const wf_tensor *x = call->in[0];

    const wf_rope_attr *attr = (const wf_rope_attr *)call->attr;

    return (size_t)(table_rows(call) * (wf_rope_features(&attr->options, x->local[3]) / 2)) *
           2 * sizeof(float);
}

wf_status rope(const wf_call *call, void *workspace)
{
    const wf_rope_attr *attr = (const wf_rope_attr *)call->attr;
    const wf_tensor *x = call->in[0];
    const int32_t *at = call->n_in > 1 ? (const int32_t *)call->in[1]->data : NULL;
    divisors by = {};
    rotation a = {};

    a.x = x->data;
    a.y = call->out[0]->data;
    a.rows = x->local[0] * x->local[1];
    a.tokens = table_rows(call);
    a.heads = x->local[2];
    a.dim = x->local[3];
    a.half = wf_rope_features(&attr->options, a.dim) / 2;
    a.neighbours = attr->options.neighbours;
    for (int64_t i = 0; i < a.half && attr->options.scaling.kind == WF_ROPE_LONG; i++)
        for (int is_long = 0; is_long < 2; is_long++)
            by.of[is_long][i] = (float)wf_rope_factor(&attr->options, i, is_long);
    a.cosine = (float *)workspace;
    a.sine = a.cosine + a.tokens * a.half;
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        cudaStream_t stream = wf_cuda_of(call)->stream;
        int64_t packs =
            a.rows * a.heads *
            (wf_ceil(a.half, wf_pack<T>::N) + wf_ceil(a.dim - 2 * a.half, wf_pack<T>::N));
        cudaError_t error = wf_launch(
            table_kernel, wf_grid(a.tokens * a.half, WF_BLOCK), WF_BLOCK, 0, stream, a, at,
            x->start[1], *attr, wf_rope_range_of(&attr->options, 2 * a.half, natural_log), by);

        a.wide = wf_wide((const T *)a.x, a.half) && wf_wide((const T *)a.y, a.half) &&
                 wf_wide((const T *)a.x, a.dim);
        return error != cudaSuccess ? error
                                    : wf_launch(rotate_kernel<T>, wf_grid(packs, WF_BLOCK),
                                                WF_BLOCK, 0, stream, a);
    });
}
} // namespace

const wf_kernel wf_cuda_rope = {rope, workspace_bytes, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_rope_at = {rope, workspace_bytes, 0, WF_IN(0) | WF_OUT(0)};
