/* kernels/cuda/tree_internal.h - the midpoint tree (core/numerics/tree.h) over N values of a
   thread. For .cu files. */
#ifndef WF_KERNELS_CUDA_TREE_INTERNAL_H
#define WF_KERNELS_CUDA_TREE_INTERNAL_H

/* The most nodes that a tree over up to 2^39 chunks has open at once. */
enum { WF_OPEN_NODES = 40 };

template <int N> static __device__ __forceinline__ float wf_tree_of(const float *chunk)
{
    if constexpr (N == 0)
        return 0.0f;
    else if constexpr (N == 1)
        return chunk[0];
    else
        return wf_tree_of<N / 2>(chunk) + wf_tree_of<N - N / 2>(chunk + N / 2);
}

#endif
