/* kernels/cuda/add_norm.cu - the rows of kernels/add_norm.c, each in one pass over memory. */
#include "kernels/cuda/norm_internal.h"

namespace
{
/* x, y, gain, (bias) -> z, s, (mean), rstd */
wf_status add_norm(const wf_call *call, void *)
{
    const wf_add_norm_attr *attr = (const wf_add_norm_attr *)call->attr;
    const void *x = call->in[0]->data, *y = call->in[1]->data;
    void *s = call->out[1]->data;
    bool centred = call->n_in == 4;
    wf_norm a = {};

    a.gain = wf_vector_of(call->in[2]);
    a.bias = centred ? wf_vector_of(call->in[3]) : a.gain;
    a.eps = attr->eps;
    a.y = call->out[0]->data;
    a.mean = centred ? (float *)call->out[2]->data : NULL;
    a.rstd = (float *)call->out[call->n_out - 1]->data;
    a.rows = wf_rows(call->in[0]);
    a.d = wf_width(call->in[0]);
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;

        a.wide = wf_wide((const T *)x, a.d) && wf_wide((const T *)y, a.d) &&
                 wf_wide((const T *)s, a.d) && wf_wide((const T *)a.y, a.d) &&
                 wf_wide_vector(a.gain, a.d) && wf_wide_vector(a.bias, a.d);
        wf_added_rows<T> source = {(const T *)x, (const T *)y, (T *)s,
                                   wf_dropper_of(call, &attr->dropout, call->in[1]), a.wide};

        return wf_norm_rows<T>(wf_cuda_of(call)->stream, source, a);
    });
}

/* s, gain, (mean), rstd, dz, ds -> the gradient of s */
wf_status add_norm_dx(const wf_call *call, void *)
{
    const wf_norm_gradient a = wf_norm_gradient_of(call, call->n_in == 6, true);

    return wf_run(call, [&](auto zero) { return wf_norm_backward<decltype(zero)>(call, a); });
}
} // namespace

const wf_kernel wf_cuda_add_layernorm = {add_norm, NULL, WF_IN(2) | WF_IN(3),
                                         WF_IN(0) | WF_IN(1) | WF_OUT(0) | WF_OUT(1)};
const wf_kernel wf_cuda_add_layernorm_dx = {add_norm_dx, NULL, WF_IN(1),
                                            WF_IN(0) | WF_IN(4) | WF_IN(5) | WF_OUT(0)};
const wf_kernel wf_cuda_add_rmsnorm = {add_norm, NULL, WF_IN(2),
                                       WF_IN(0) | WF_IN(1) | WF_OUT(0) | WF_OUT(1)};
const wf_kernel wf_cuda_add_rmsnorm_dx = {add_norm_dx, NULL, WF_IN(1),
                                          WF_IN(0) | WF_IN(3) | WF_IN(4) | WF_OUT(0)};
