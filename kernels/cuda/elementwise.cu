/* kernels/cuda/elementwise.cu - the rows of kernels/expressions.def. */
#include "kernels/cuda/activation_internal.h"
#include "kernels/cuda/map_internal.h"

/* By the GPU's own instructions for e^x. */
#define WF_SILU(x)          wf_lanes1(wf_silu_of((x).v))
#define WF_SILU_GRAD(x, dy) wf_lanes1(wf_silu_backward((x).v, wf_lanes1(dy).v))
#define WF_GELU(x)          wf_lanes1(wf_gelu_of((x).v))
#define WF_GELU_GRAD(x, dy) wf_lanes1(wf_gelu_backward((x).v, (dy).v))
#include "kernels/elementwise.h"

namespace
{
#define EXPRESSION(name, inputs, numbers, outputs, flags)                                      \
    WF_X_MAP(name, inputs, numbers, outputs)                                                   \
    wf_status name##_run(const wf_call *call, void *)                                          \
    {                                                                                          \
        return wf_run_map<WF_COUNT(inputs), WF_COUNT(outputs)>(call, name##_map(call));        \
    }
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    EXPRESSION(name, inputs, numbers, (expression), 0)                                         \
    EXPRESSION(name##_grad, (WF_OPEN inputs, dy), numbers, gradients, 0)
#include "kernels/expressions.def"
} // namespace

/* All of a call's operands are stored alike; those of add_constant, which keeps f32, are
   f32. */
#define EXPRESSION(name, inputs, numbers, outputs, flags)                                      \
    const wf_kernel wf_cuda_##name = {name##_run, NULL, 0,                                     \
                                      (flags)&WF_OP_BORDER                                     \
                                          ? 0                                                  \
                                          : (WF_IN(WF_COUNT(inputs)) - 1) |                    \
                                                (WF_OUT(WF_COUNT(outputs)) - WF_OUT(0))};
#define ELEMENTWISE(name, inputs, numbers, expression, gradients)                              \
    EXPRESSION(name, inputs, numbers, (expression), 0)                                         \
    EXPRESSION(name##_grad, (WF_OPEN inputs, dy), numbers, gradients, 0)
#include "kernels/expressions.def"
