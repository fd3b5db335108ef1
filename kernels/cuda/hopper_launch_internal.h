/*
 * kernels/cuda/hopper_launch_internal.h - the host's side of Hopper's products: factors and
 * results as tensor maps, and a launch of as many clusters as run at once. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_HOPPER_LAUNCH_INTERNAL_H
#define WF_KERNELS_CUDA_HOPPER_LAUNCH_INTERNAL_H

#include "kernels/cuda/hopper_pipeline_internal.h"

namespace
{

/* Returns the units of a node of n chunks (wf_unit_of), the first in the lowest four bits: how
   many chunks, one or two, and four times how many nodes end with it. */
inline uint16_t units_of(int n)
{
    uint16_t units = 0;

    for (int l = 0, bit = 0; l < n; bit += 4) {
        wf_tree_unit unit = wf_unit_of(l, n);

        units |= (uint16_t)((unit.chunks | unit.ends << 2) << bit);
        l += unit.chunks;
    }
    return units;
}

/* Maps the results; false where the accelerator does not store them. */
template <class T, int N> bool map_result(mapped<N> *of, const wf_tensor_product *p)
{
    return wf_tensor_is_stored(p) && wf_map_result<T>(&of->to, p, p->result.to, WORKER_ROWS) &&
           (!p->result.gelu || wf_map_result<T>(&of->gelu, p, p->result.gelu, WORKER_ROWS));
}

/* Maps the factors; false where one is not aligned as the accelerator reads them. */
template <int N> bool map_factors(mapped<N> *of, const wf_tensor_product *p)
{
    of->p = *p;
    for (int n = 0; n <= WF_TENSOR_CHUNKS; n++)
        of->units[n] = units_of(n);
    for (int n = 0; n < 1 << p->levels; n++) {
        wf_tile_job job = {0, 0, 0, 0, n};

        wf_node_chunks(&job, p->chunks, p->levels);
        of->stages[n] = 0;
        for (int q = job.first * p->members; q < (job.first + job.count) * p->members; q++)
            of->stages[n] += wf_stages_of(p->piece[q].depth);
    }
    for (int i = 0; i < p->chunks * p->members; i++) {
        const wf_tensor_piece *x = &p->piece[i];

        if (x->depth > 0 &&
            !(wf_map_factor(&of->a[i], x->a, x->a_ld, p->m, x->depth, p->a_along, TILE) &&
              wf_map_factor(&of->b[i], x->b, x->b_ld, p->n, x->depth, p->b_along,
                            TILE / CLUSTER)))
            return false;
    }
    return true;
}

/* Launches as many clusters as run at once, or as there are jobs. */
template <int N>
cudaError_t launch_clusters(void (*kernel)(const mapped<N>), cudaStream_t stream,
                            const mapped<N> &of, int processors)
{
    int64_t clusters = wf_jobs_of(of.p.m, of.p.n, of.p.levels), most = processors / CLUSTER;
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);

    if (code != cudaSuccess)
        return code;
    return wf_launch_clusters(kernel, CLUSTER,
                              (unsigned)((clusters < most ? clusters : most) * CLUSTER),
                              THREADS, SHARED, stream, of);
}

} // namespace

#endif
