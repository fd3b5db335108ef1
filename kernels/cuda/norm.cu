/* kernels/cuda/norm.cu - the rows of kernels/norm.c. */
#include "kernels/cuda/norm_internal.h"
#include "kernels/cuda/column_sum_internal.h"

namespace
{
/* x, gain, (bias) -> y, (mean), rstd */
wf_status norm(const wf_call *call, void *)
{
    const wf_tensor *x = call->in[0];
    bool centred = call->n_in == 3;
    wf_norm a = {};

    a.gain = wf_vector_of(call->in[1]);
    a.bias = centred ? wf_vector_of(call->in[2]) : a.gain;
    a.eps = *(const float *)call->attr;
    a.y = call->out[0]->data;
    a.mean = centred ? (float *)call->out[1]->data : NULL;
    a.rstd = (float *)call->out[call->n_out - 1]->data;
    a.rows = wf_rows(x);
    a.d = wf_width(x);
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.wide = wf_wide((const T *)x->data, a.d) && wf_wide((const T *)a.y, a.d) &&
                 wf_wide_vector(a.gain, a.d) && wf_wide_vector(a.bias, a.d);
        wf_plain_rows<T> source = {(const T *)x->data, a.wide};

        return wf_norm_rows<T>(wf_cuda_of(call)->stream, source, a);
    });
}

/* x, gain, (mean), rstd, dy -> dx */
wf_status norm_dx(const wf_call *call, void *)
{
    const wf_norm_gradient a = wf_norm_gradient_of(call, call->n_in == 5, false);

    return wf_run(call, [&](auto zero) { return wf_norm_backward<decltype(zero)>(call, a); });
}

/* Terms of dgain, and of dbias where there is a mean. */
template <class T, int OUT> struct norm_terms {
    const T *x, *dy;
    const float *mean, *rstd;
    int64_t d;
    bool wide;

    enum { AHEAD = 16 / wf_pack<T>::N };
    struct row {
        wf_pack<T> x, dy;
        float middle, scale;
    };

    __device__ row read(int64_t r, int64_t i, int64_t left) const
    {
        return {wf_read(x + r * d + i, left, wide), wf_read(dy + r * d + i, left, wide),
                OUT == 2 ? mean[r] : 0.0f, rstd[r]};
    }

    __device__ void terms(const row &of, int64_t, int64_t, int64_t,
                          float (*out)[wf_pack<T>::N]) const
    {
        constexpr int PACK = wf_pack<T>::N;
        float v[PACK];

        wf_unpack(of.x, v);
        wf_unpack(of.dy, out[OUT - 1]);
#pragma unroll
        for (int e = 0; e < PACK; e++)
            out[0][e] = out[OUT - 1][e] * ((v[e] - of.middle) * of.scale);
    }
};

/* x, (mean), rstd, dy -> dgain, (dbias) */
template <int OUT> wf_status norm_dw(const wf_call *call)
{
    const wf_tensor *x = call->in[0], *dy = call->in[OUT + 1];
    wf_sums<OUT> a = {};

    for (int k = 0; k < OUT; k++)
        a.out[k] = (float *)call->out[k]->data;
    a.chunks = wf_row_chunks_of(x, x->ndim - 1);
    a.sequences = x->local[0];
    a.n = wf_width(x);
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        norm_terms<T, OUT> f = {(const T *)x->data,
                                (const T *)dy->data,
                                (const float *)call->in[1]->data,
                                (const float *)call->in[OUT]->data,
                                a.n,
                                wf_wide((const T *)x->data, a.n) &&
                                    wf_wide((const T *)dy->data, a.n)};

        return wf_column_sum<T>(wf_cuda_of(call)->stream, f, a);
    });
}

wf_status layernorm_dw(const wf_call *call, void *)
{
    return norm_dw<2>(call);
}

wf_status rmsnorm_dw(const wf_call *call, void *)
{
    return norm_dw<1>(call);
}
} // namespace

const wf_kernel wf_cuda_layernorm = {norm, NULL, WF_IN(1) | WF_IN(2), WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_layernorm_dx = {norm_dx, NULL, WF_IN(1),
                                        WF_IN(0) | WF_IN(4) | WF_OUT(0)};
const wf_kernel wf_cuda_layernorm_dw = {layernorm_dw, NULL, 0, WF_IN(0) | WF_IN(3)};
const wf_kernel wf_cuda_rmsnorm = {norm, NULL, WF_IN(1), WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_rmsnorm_dx = {norm_dx, NULL, WF_IN(1), WF_IN(0) | WF_IN(3) | WF_OUT(0)};
const wf_kernel wf_cuda_rmsnorm_dw = {rmsnorm_dw, NULL, 0, WF_IN(0) | WF_IN(2)};
