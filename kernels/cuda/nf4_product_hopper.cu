/*
 * kernels/cuda/nf4_product_hopper.cu - products by wgmma whose weights are nf4, for compute
 * capability 9.0 and few rows. The tensor memory accelerator copies tiles as they are, so all
 * threads of a warpgroup load them here (tensor_kernel_internal.h), and multiply them.
 */
#include "kernels/cuda/hopper_shape_internal.h"
#include "kernels/cuda/tensor_kernel_internal.h"

namespace
{

template <class T> cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p)
{
    typedef wf_group_shape<1> S;

    if (!p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    return p->b_along ? launch<S, coded_bf16_weights<S, true>, true, T>(stream, p)
                      : launch<S, coded_bf16_weights<S, false>, true, T>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_nf4_product_hopper(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p)
                                     : launch_any<float>(stream, p);
}
