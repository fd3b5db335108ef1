/*
 * my_op.cu - the kernels of my_op.c's ops for NVIDIA GPUs.
 *
 * A kernel is launched on the device's stream and the host does not wait for it: later work of
 * the device runs after it. An element is the expression that the CPU computes, and
 * --fmad=false keeps the compiler from joining a * b + c, so the bits are the CPU's.
 */
#include <cuda_runtime.h>
#include <weft/weft.h>

/* Written so that a NaN stays one. */
static __device__ float positive(float x)
{
    return x < 0 ? 0 : x;
}

static __global__ void relu2(const float *x, float *y, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (int64_t i = first; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = positive(x[i]) * positive(x[i]);
}

static __global__ void relu2_grad(const float *x, const float *dy, float *dx, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (int64_t i = first; i < n; i += (int64_t)gridDim.x * blockDim.x)
        dx[i] = 2 * positive(x[i]) * dy[i];
}

/* kernel<<<blocks, THREADS, 0, stream>>>(args.., n), and what CUDA says of it. */
template <class... P, class... A>
static wf_status launch(const wf_call *call, void (*kernel)(P...), A... args)
{
    const int64_t THREADS = 256, MOST_BLOCKS = 4096;
    int64_t n = wf_tensor_local_count(call->out[0]), blocks = (n + THREADS - 1) / THREADS;
    cudaLaunchConfig_t config = {};
    cudaError_t code;

    if (n == 0)
        return WF_OK; /* this rank has no part */
    config.gridDim = dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS));
    config.blockDim = dim3((unsigned)THREADS);
    config.stream = (cudaStream_t)wf_context_device(call->ctx)->queue;
    code = cudaLaunchKernelEx(&config, kernel, args..., n);
    return code == cudaSuccess ? WF_OK
                               : wf_fail(call->ctx, WF_EDEVICE, "%s: the GPU says %s",
                                         call->op->name, cudaGetErrorString(code));
}

static wf_status run(const wf_call *call, void *)
{
    return launch(call, relu2, (const float *)call->in[0]->data, (float *)call->out[0]->data);
}

static wf_status run_grad(const wf_call *call, void *)
{
    return launch(call, relu2_grad, (const float *)call->in[0]->data,
                  (const float *)call->in[1]->data, (float *)call->out[0]->data);
}

extern "C" {
extern const wf_kernel my_relu2_cuda, my_relu2_grad_cuda;

const wf_kernel my_relu2_cuda = {run, nullptr, 0, 0};
const wf_kernel my_relu2_grad_cuda = {run_grad, nullptr, 0, 0};
}
