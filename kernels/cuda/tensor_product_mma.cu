/*
 * kernels/cuda/tensor_product_mma.cu - tensor products by mma.sync, which every GPU from
 * compute capability 8.0 on has.
 *
 * Kernels are instances of one, by how many rows a product has and by how its weights are
 * stored: as bf16, or as nf4, which is widened on its way to shared memory. An element is the
 * same expression in all.
 */
#include "kernels/cuda/tensor_kernel_internal.h"
#include "kernels/cuda/tensor_mma_internal.h"

namespace
{

template <class S, class T>
cudaError_t launch_coded(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->b_along ? launch<S, coded_bf16_weights<S, true>, true, T>(stream, p)
                      : launch<S, coded_bf16_weights<S, false>, true, T>(stream, p);
}

template <class T> cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p)
{
    typedef wf_mma_many_rows S;

    if (p->coded && !p->a_along)
        return cudaErrorNotSupported; /* activations are, where weights are the other factor */
    if (p->coded)
        return p->m <= wf_mma_few_rows::DOWN ? launch_coded<wf_mma_few_rows, T>(stream, p)
                                             : launch_coded<wf_mma_many_rows, T>(stream, p);
    if (p->a_along)
        return p->b_along ? launch<S, bf16_weights<S, true>, true, T>(stream, p)
                          : launch<S, bf16_weights<S, false>, true, T>(stream, p);
    return p->b_along ? launch<S, bf16_weights<S, true>, false, T>(stream, p)
                      : launch<S, bf16_weights<S, false>, false, T>(stream, p);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p)
                                     : launch_any<float>(stream, p);
}
