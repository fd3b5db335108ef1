/*
 * tests/cuda/emulator/cuda.h - as much of CUDA's driver as Weft's plugins use: tensor maps.
 *
 * Names and values are those of CUDA; what a map holds is the emulator's own.
 */
#ifndef WF_TESTS_EMULATOR_CUDA_H
#define WF_TESTS_EMULATOR_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_SUPPORTED = 801
} CUresult;

typedef enum CUtensorMapDataType {
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
} CUtensorMapDataType;
typedef enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 } CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B = 3 } CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
} CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill {
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0
} CUtensorMapFloatOOBfill;

enum { EMULATOR_MAP_DIMS = 3 };

typedef struct CUtensorMap {
    char *data;
    uint32_t dims, element; /* bytes of an element */
    uint32_t box[EMULATOR_MAP_DIMS];
    uint64_t size[EMULATOR_MAP_DIMS];   /* elements */
    uint64_t stride[EMULATOR_MAP_DIMS]; /* bytes */
} CUtensorMap;

#ifdef __cplusplus
}
#endif

#endif
