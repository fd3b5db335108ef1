/*
 * my_op.c - an op of one's own: y = max(x, 0)^2, and dx = 2 max(x, 0) dy for its gradient.
 *
 * From the signature follow the shapes and the legal layouts; the op never asks on how many
 * ranks it runs. The reference loop says in double what the op means; training runs the kernel
 * that the op lists for the device: the CPU's is here, the one for GPUs in my_op.cu. Every
 * output element is one fixed expression of its own inputs, so no layout can change a bit of
 * it.
 */
#include "my_op.h"

/* Written so that a NaN stays one. */
static double positive(double x)
{
    return x < 0 ? 0 : x;
}

static float positive_f32(float x)
{
    return x < 0 ? 0 : x;
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = positive(x[i]) * positive(x[i]);
    return WF_OK;
}

static wf_status grad_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *dy = call->in[1]->data;
    double *dx = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        dx[i] = 2 * positive(x[i]) * dy[i];
    return WF_OK;
}

/* Kernels see this rank's part alone, contiguous; the compiler makes vectors of these loops. */
static wf_status cpu(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = positive_f32(x[i]) * positive_f32(x[i]);
    return WF_OK;
}

static wf_status grad_cpu(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data, *dy = call->in[1]->data;
    float *dx = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        dx[i] = 2 * positive_f32(x[i]) * dy[i];
    return WF_OK;
}

/* A gradient is made of ops, so it is laid out and checked like everything else. */
static void backward(wf_gradient *g)
{
    g->din[0] = my_relu2_grad(g->in[0], g->dout[0]);
}

static const wf_kernel cpu_kernel = {.run = cpu}, grad_cpu_kernel = {.run = grad_cpu};

/* A kernel for each device. A call on a device that is not in the list is an error that says
   so. */
#ifdef WITH_CUDA
extern const wf_kernel my_relu2_cuda, my_relu2_grad_cuda; /* my_op.cu */
#define KERNELS(cpu, cuda) WF_KERNELS({"cpu", &(cpu)}, {"cuda", &(cuda)})
#else
#define KERNELS(cpu, cuda) WF_KERNELS({"cpu", &(cpu)})
#endif

const wf_op my_relu2_op = {.name = "my_relu2",
                           .signature = "...->...",
                           .save = WF_SAVE_IN(0),
                           .reference = {.run = reference},
                           .backward = backward,
                           .kernels = KERNELS(cpu_kernel, my_relu2_cuda)};

const wf_op my_relu2_grad_op = {.name = "my_relu2_grad",
                                .signature = "...,...->...",
                                .reference = {.run = grad_reference},
                                .kernels = KERNELS(grad_cpu_kernel, my_relu2_grad_cuda)};

wf_tensor *my_relu2(wf_tensor *x)
{
    return wf_apply(&my_relu2_op, NULL, 0, 1, x);
}

wf_tensor *my_relu2_grad(wf_tensor *x, wf_tensor *dy)
{
    return wf_apply(&my_relu2_grad_op, NULL, 0, 2, x, dy);
}
