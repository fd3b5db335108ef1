/*
 * kernels/cuda/tensor_product_hopper.cu - tensor products by wgmma, for compute capability 9.0.
 *
 * A block makes 128 x 128 elements of a node after the other; two warpgroups multiply, 64 rows
 * each (hopper_pipeline_internal.h). tensor_product_persistent_hopper.cu is the same by turns.
 */
#include "kernels/cuda/hopper_launch_internal.h"

namespace
{

enum { BAND = 16 };

/* STORED: results are aligned as the accelerator stores them. A kernel for both cases would
   keep some of its sums in local memory, for which there is hardly any cache left. */
template <bool A, bool B, bool STORED, class T, int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    hopper_kernel(const WF_GRID_CONSTANT mapped<N> of)
{
    WF_DYNAMIC_SHARED(char, unaligned);
    block_position at = begin_block(unaligned, WORKERS);

    if (at.group == 0) {
        wf_give_registers<24>();
        if (at.t == 0)
            bring<A, B, BAND>(of, at.shared, at.block);
    } else {
        wf_take_registers<240>();
        work<A, B, STORED, BAND, T>(of, at.shared, aside_of(at), at.group - 1, at.block, at.t,
                                    no_turns());
    }
    end_block();
}

template <bool STORED, class T, int N>
cudaError_t launch(cudaStream_t stream, const mapped<N> &of, int processors)
{
    static void (*const kernel[])(const mapped<N>) = {
        hopper_kernel<false, false, STORED, T, N>, hopper_kernel<false, true, STORED, T, N>,
        hopper_kernel<true, false, STORED, T, N>, hopper_kernel<true, true, STORED, T, N>};

    return launch_clusters(kernel[2 * of.p.a_along + of.p.b_along], stream, of, processors);
}

template <class T, int N>
cudaError_t map_and_launch(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    mapped<N> of;

    if (!map_factors(&of, p))
        return cudaErrorNotSupported;
    if (map_result<T>(&of, p))
        return launch<true, T, N>(stream, of, processors);
    if (p->result.rotation.cosine)
        return cudaErrorNotSupported; /* rows of heads that rotate are aligned */
    /* rarely used variants have one size of kernels */
    if constexpr (N == WF_TENSOR_PIECES)
        return launch<false, T, N>(stream, of, processors);
    else
        return map_and_launch<T, WF_TENSOR_PIECES>(stream, p, processors);
}

template <class T>
cudaError_t launch_any(cudaStream_t stream, const wf_tensor_product *p, int processors)
{
    return p->chunks * p->members <= FEW_PIECES
               ? map_and_launch<T, FEW_PIECES>(stream, p, processors)
               : map_and_launch<T, WF_TENSOR_PIECES>(stream, p, processors);
}

} // namespace

cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t stream,
                                                 const wf_tensor_product *p, int processors)
{
    return p->result.type == WF_BF16 ? launch_any<wf_bf16>(stream, p, processors)
                                     : launch_any<float>(stream, p, processors);
}
