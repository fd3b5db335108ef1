/* kernels/cuda/elementwise.cu - the rows of kernels/elementwise.c. */
#include "kernels/cuda/activation_internal.h"
#include "kernels/cuda/map_internal.h"

namespace
{
struct sum_of_two {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[0] + in[1];
    }
};

struct difference {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[0] - in[1];
    }
};

struct product {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[0] * in[1];
    }
};

struct scaled {
    float factor;

    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = factor * in[0];
    }
};

struct shifted {
    float value;

    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[0] + value;
    }
};

struct silu_of {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_silu_of(in[0]);
    }
};

struct silu_backward {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_silu_backward(in[0], in[1]);
    }
};

struct gelu_of {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_gelu_of(in[0]);
    }
};

struct gelu_backward {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_gelu_backward(in[0], in[1]);
    }
};

/* gate, up */
struct swiglu_of {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_silu_of(in[0]) * in[1];
    }
};

/* gate, up, dy */
struct swiglu_backward {
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = wf_silu_backward(in[0], in[2] * in[1]);
        out[1] = in[2] * wf_silu_of(in[0]);
    }
};

wf_status add(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, sum_of_two{});
}

wf_status sub(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, difference{});
}

wf_status mul(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, product{});
}

wf_status scale(const wf_call *call, void *)
{
    return wf_run_map<1, 1>(call, scaled{((const wf_scale_attr *)call->attr)->factor});
}

wf_status add_constant(const wf_call *call, void *)
{
    return wf_run_map<1, 1>(call, shifted{((const wf_add_constant_attr *)call->attr)->value});
}

wf_status silu(const wf_call *call, void *)
{
    return wf_run_map<1, 1>(call, silu_of{});
}

wf_status silu_grad(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, silu_backward{});
}

wf_status gelu(const wf_call *call, void *)
{
    return wf_run_map<1, 1>(call, gelu_of{});
}

wf_status gelu_grad(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, gelu_backward{});
}

wf_status swiglu(const wf_call *call, void *)
{
    return wf_run_map<2, 1>(call, swiglu_of{});
}

wf_status swiglu_grad(const wf_call *call, void *)
{
    return wf_run_map<3, 2>(call, swiglu_backward{});
}
} // namespace

const wf_kernel wf_cuda_add = {add, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_sub = {sub, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_mul = {mul, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_scale = {scale, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_add_constant = {add_constant, NULL, 0, 0};
const wf_kernel wf_cuda_silu = {silu, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_silu_grad = {silu_grad, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_gelu = {gelu, NULL, 0, WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cuda_gelu_grad = {gelu_grad, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_swiglu = {swiglu, NULL, 0, WF_IN(0) | WF_IN(1) | WF_OUT(0)};
const wf_kernel wf_cuda_swiglu_grad = {swiglu_grad, NULL, 0,
                                       WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0) | WF_OUT(1)};
