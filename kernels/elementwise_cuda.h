/*
 * kernels/elementwise_cuda.h - the GPU's kernels of ops by expression, for
 * kernels/elementwise.h in a file that nvcc compiles.
 */
#ifndef WF_KERNELS_ELEMENTWISE_CUDA_H
#define WF_KERNELS_ELEMENTWISE_CUDA_H

#if defined(__CUDACC__) || defined(__global__) /* for CUDA alone */
#include <cuda_runtime.h>

#define WF_X_AS(type, text) type(text)

/* name_map: an element, from floats to floats; its numbers are the call's. */
#define WF_X_MAP(name, inputs, numbers, outputs)                                               \
    struct name##_map {                                                                        \
        typedef wf_lanes1 wf_type;                                                             \
        float wf_numbers[4];                                                                   \
                                                                                               \
        explicit name##_map(const wf_call *call)                                               \
        {                                                                                      \
            wf_elementwise_numbers(call, WF_COUNT(numbers), wf_numbers);                       \
        }                                                                                      \
        __device__ void operator()(const float *wf_from, float *wf_to) const                   \
        {                                                                                      \
            wf_type wf_x[WF_MAX_INPUTS], wf_number[4], wf_y[WF_MAX_OUTPUTS];                   \
                                                                                               \
            for (int wf_i = 0; wf_i < WF_COUNT(inputs); wf_i++)                                \
                wf_x[wf_i] = wf_from[wf_i];                                                    \
            for (int wf_i = 0; wf_i < WF_COUNT(numbers); wf_i++)                               \
                wf_number[wf_i] = wf_numbers[wf_i];                                            \
            WF_X_BODY(inputs, numbers, outputs)                                                \
            for (int wf_i = 0; wf_i < WF_COUNT(outputs); wf_i++)                               \
                wf_to[wf_i] = wf_y[wf_i].v;                                                    \
        }                                                                                      \
    };

template <int IN, int OUT> struct wf_elementwise_arrays {
    const float *in[IN];
    float *out[OUT];
    int64_t n;
};

template <class F, int IN, int OUT>
static __global__ void wf_elementwise_kernel(F f, wf_elementwise_arrays<IN, OUT> a)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += step) {
        float x[IN], y[OUT];

        for (int k = 0; k < IN; k++)
            x[k] = a.in[k][i];
        f(x, y);
        for (int k = 0; k < OUT; k++)
            a.out[k][i] = y[k];
    }
}

/* The kernel on the device's stream, over this rank's part. */
template <int IN, int OUT, class F>
static inline wf_status wf_elementwise_launch(const wf_call *call, F f)
{
    const int64_t THREADS = 256, MOST_BLOCKS = 4096;
    wf_elementwise_arrays<IN, OUT> a;
    cudaLaunchConfig_t config = {};
    cudaError_t code;
    int64_t blocks;

    a.n = wf_tensor_local_count(call->out[0]);
    blocks = (a.n + THREADS - 1) / THREADS;
    if (a.n == 0)
        return WF_OK; /* this rank has no part */
    for (int k = 0; k < IN; k++)
        a.in[k] = (const float *)call->in[k]->data;
    for (int k = 0; k < OUT; k++)
        a.out[k] = (float *)call->out[k]->data;
    config.gridDim = dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS));
    config.blockDim = dim3((unsigned)THREADS);
    config.stream = (cudaStream_t)wf_context_device(call->ctx)->queue;
    code = cudaLaunchKernelEx(&config, wf_elementwise_kernel<F, IN, OUT>, f, a);
    return code == cudaSuccess ? WF_OK
                               : wf_fail(call->ctx, WF_EDEVICE, "%s: the GPU says %s",
                                         call->op->name, cudaGetErrorString(code));
}

#define WF_X_ONE(name, inputs, numbers, outputs)                                               \
    WF_X_MAP(name, inputs, numbers, outputs)                                                   \
    static wf_status name##_run(const wf_call *call, void *)                                   \
    {                                                                                          \
        return wf_elementwise_launch<WF_COUNT(inputs), WF_COUNT(outputs)>(call,                \
                                                                          name##_map(call));   \
    }                                                                                          \
    extern "C" {                                                                               \
    extern const wf_kernel name##_cuda;                                                        \
    const wf_kernel name##_cuda = {name##_run, nullptr, 0, 0, 0};                              \
    }

#define WF_ELEMENTWISE_WITH(name, inputs, numbers, expression, gradients)                      \
    WF_X_ONE(name##_grad, (WF_OPEN inputs, dy), numbers, gradients)                            \
    WF_X_ONE(name, inputs, numbers, (expression))
#define WF_ELEMENTWISE(name, inputs, expression, gradients)                                    \
    WF_ELEMENTWISE_WITH(name, inputs, WF_NO_NUMBERS, expression, gradients)

#endif /* CUDA */
#endif
