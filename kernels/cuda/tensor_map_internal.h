/*
 * kernels/cuda/tensor_map_internal.h - factors and results of a product as tensor maps, by
 * which Hopper's tensor memory accelerator copies boxes of them: 128 bytes wide, swizzled as
 * tensor_tile_internal.h says. For .cu files.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_MAP_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_MAP_INTERNAL_H

#include "kernels/cuda/tensor_tile_internal.h"
#include <cuda.h>

typedef CUresult wf_map_encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Returns the driver's cuTensorMapEncodeTiled; NULL where it has none. */
static inline wf_map_encode *wf_find_encode(void)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;

    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                         cudaEnableDefault, &result) != cudaSuccess)
        return NULL;
    return result == cudaDriverEntryPointSuccess ? (wf_map_encode *)found : NULL;
}

static inline CUresult wf_map(CUtensorMap *map, CUtensorMapDataType type, int dims,
                              const void *data, const cuuint64_t *size,
                              const cuuint64_t *stride, const cuuint32_t *box)
{
    static wf_map_encode *const function = wf_find_encode();
    static const cuuint32_t step[] = {1, 1, 1};

    return function
               ? function(map, type, (cuuint32_t)dims, (void *)data, size, stride, box, step,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* Maps a factor of a piece: what lies outside of its rows and terms is zero. */
static inline bool wf_map_factor(CUtensorMap *map, const void *data, int64_t ld, int64_t rows,
                                 int64_t depth, bool along, int box_rows)
{
    const cuuint64_t size[] = {(cuuint64_t)(along ? depth : rows),
                               (cuuint64_t)(along ? rows : depth)};
    const cuuint64_t stride = (cuuint64_t)ld * sizeof(wf_bf16);
    const cuuint32_t box[] = {64, (cuuint32_t)(along ? box_rows : (int)WF_TILE_DEPTH)};

    return wf_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, size, &stride, box) ==
           CUDA_SUCCESS;
}

/* A result that wf_tensor_is_stored, node by node: what lies outside of it is left out. */
template <class T>
static inline bool wf_map_result(CUtensorMap *map, const wf_tensor_product *p, const void *data,
                                 int box_rows)
{
    bool bf16 = sizeof(T) == 2;
    const cuuint64_t size[] = {(cuuint64_t)p->n, (cuuint64_t)p->m, (cuuint64_t)1 << p->levels};
    const cuuint64_t stride[] = {(cuuint64_t)p->result.to_ld * sizeof(T),
                                 (cuuint64_t)(p->levels ? p->stride : p->m * p->result.to_ld) *
                                     sizeof(T)};
    const cuuint32_t box[] = {WF_TILE_LINE / sizeof(T), (cuuint32_t)box_rows, 1};

    return wf_map(map,
                  bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3,
                  data, size, stride, box) == CUDA_SUCCESS;
}

#endif
