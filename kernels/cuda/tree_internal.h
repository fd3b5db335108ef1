/* kernels/cuda/tree_internal.h - the midpoint tree (core/numerics/tree.h) over N values of a
   thread. For .cu files. */
#ifndef WF_KERNELS_CUDA_TREE_INTERNAL_H
#define WF_KERNELS_CUDA_TREE_INTERNAL_H

#include "core/numerics/tree.h"

/* The most nodes that a tree over up to 2^39 chunks has open at once. */
enum { WF_OPEN_NODES = 40 };

/* Returns the depth at which i and j part in the tree over n chunks, `each` of a sequence, i <
   j. */
static __device__ inline int wf_tree_parts(int64_t n, int64_t each, int64_t i, int64_t j)
{
    int64_t first = 0;
    int depth = 0;

    for (;; depth++) {
        int64_t left = wf_tree_left(n, each);

        if (j < first + left) {
            n = left;
        } else if (i >= first + left) {
            first += left;
            n -= left;
        } else {
            return depth;
        }
    }
}

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
