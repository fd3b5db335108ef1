/*
 * tests/cuda/emulator/cublaslt.c - products of cuBLASLt on the CPU, as awkward as it is allowed
 * to be: the heuristic holds another order of sums best for every shape, first of all one that
 * splits them and needs a workspace; an algorithm takes no rows less aligned than it was asked
 * for; and operands that leave their allocation stop the program.
 */
#include "cublasLt.h"
#include "emulator.h"
#include "product.h"
#include <stdlib.h>
#include <string.h>

struct cublasLtContext {
    int unused;
};

typedef struct preference {
    uint64_t workspace;
    uint32_t schemes, aligned[4]; /* a, b, c, d */
} preference;

_Static_assert(sizeof(product_desc) <= sizeof(cublasLtMatmulDescOpaque_t), "room");
_Static_assert(sizeof(matrix) <= sizeof(cublasLtMatrixLayoutOpaque_t), "room");
_Static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "room");
_Static_assert(sizeof(algorithm_desc) <= sizeof(cublasLtMatmulAlgo_t), "room");

static matrix matrix_of(cublasLtMatrixLayout_t layout)
{
    matrix m;

    memcpy(&m, layout, sizeof m);
    return m;
}

static product_desc product_of(cublasLtMatmulDesc_t product)
{
    product_desc p;

    memcpy(&p, product, sizeof p);
    return p;
}

static algorithm_desc algorithm_of(const cublasLtMatmulAlgo_t *algorithm)
{
    algorithm_desc a;

    memcpy(&a, algorithm, sizeof a);
    return a;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t product, cublasComputeType_t compute,
                                      cudaDataType_t scale)
{
    product_desc p = {.compute = compute,
                      .op = {CUBLAS_OP_N, CUBLAS_OP_N},
                      .epilogue = CUBLASLT_EPILOGUE_DEFAULT};

    memset(product, 0, sizeof *product);
    memcpy(product, &p, sizeof p);
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    product_desc p = product_of(product);
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *to;
        size_t size;
    } of[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &p.op[0], sizeof p.op[0]},
              {CUBLASLT_MATMUL_DESC_TRANSB, &p.op[1], sizeof p.op[1]},
              {CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, sizeof p.epilogue},
              {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &p.bias_type, sizeof p.bias_type},
              {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias}};
    size_t i = 0;

    while (i < sizeof of / sizeof *of && of[i].attribute != attribute)
        i++;
    if (i == sizeof of / sizeof *of || size != of[i].size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(of[i].to, value, size);
    memcpy(product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type,
                                        uint64_t rows, uint64_t columns, int64_t ld)
{
    matrix m = {type, rows, columns, ld};

    memset(layout, 0, sizeof *layout);
    memcpy(layout, &m, sizeof m);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t wish)
{
    preference p = {0, ~0u, {256, 256, 256, 256}};

    memset(wish, 0, sizeof *wish);
    memcpy(wish, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t size)
{
    preference p;

    memcpy(&p, wish, sizeof p);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof p.workspace)
        memcpy(&p.workspace, value, size);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && size == 4)
        memcpy(&p.schemes, value, size);
    else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && size == 4)
        memcpy(&p.aligned[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(wish, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

/* Returns true where the operands make a product d[m, n] of one depth. */
static bool fits(const product_desc *p, const matrix *a, const matrix *b, const matrix *d)
{
    uint64_t m = p->op[0] == CUBLAS_OP_T ? a->columns : a->rows;
    uint64_t depth = p->op[0] == CUBLAS_OP_T ? a->rows : a->columns;
    uint64_t other = p->op[1] == CUBLAS_OP_T ? b->columns : b->rows;
    uint64_t n = p->op[1] == CUBLAS_OP_T ? b->rows : b->columns;
    const matrix *all[] = {a, b, d};

    for (int i = 0; i < 3; i++)
        if (all[i]->ld < (int64_t)all[i]->rows || all[i]->rows < 1 || all[i]->columns < 1)
            return false;
    return a->type == b->type && depth == other && d->rows == m && d->columns == n;
}

static bool is_aligned(uint64_t where, const matrix *m, uint32_t bytes)
{
    return (where | (uint64_t)m->ld * size_of(m->type)) % bytes == 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t wish, int room, cublasLtMatmulHeuristicResult_t result[],
    int *count)
{
    product_desc p = product_of(product);
    matrix ma = matrix_of(a), mb = matrix_of(b), md = matrix_of(d);
    preference w;
    int n = 0;

    (void)handle, (void)c;
    memcpy(&w, wish, sizeof w);
    if (!fits(&p, &ma, &mb, &md))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int32_t splits = 2; splits >= 1 && n < room; splits--) {
        algorithm_desc best = {1 << ((md.rows * 7 + md.columns) % 4), splits, {0}};
        bool allowed = splits == 1 || (w.schemes && w.workspace >= SPLIT_WORKSPACE);

        memcpy(best.aligned, w.aligned, sizeof best.aligned);
        if (!allowed)
            continue;
        memset(&result[n], 0, sizeof result[n]);
        memcpy(&result[n].algo, &best, sizeof best);
        result[n++].workspaceSize = splits > 1 ? SPLIT_WORKSPACE : 0;
    }
    *count = n;
    return n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    product_desc p = product_of(product);
    matrix ma = matrix_of(a), mb = matrix_of(b), md = matrix_of(d);
    algorithm_desc x = algorithm_of(algorithm);

    (void)handle, (void)c;
    memset(result, 0, sizeof *result);
    result->algo = *algorithm;
    result->workspaceSize = x.splits > 1 ? SPLIT_WORKSPACE : 0;
    if (!fits(&p, &ma, &mb, &md) || !is_aligned(0, &ma, x.aligned[0]) ||
        !is_aligned(0, &mb, x.aligned[1]) || !is_aligned(0, &md, x.aligned[3]))
        result->state = CUBLAS_STATUS_NOT_SUPPORTED;
    return result->state;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
    void *value, size_t size, size_t *written)
{
    algorithm_desc x = algorithm_of(algorithm);

    if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || size != sizeof x.splits)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &x.splits, size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

/* From the first element to the last, in one allocation. */
static void inside(const char *name, const void *data, const matrix *m)
{
    size_t elements = (m->columns - 1) * (size_t)m->ld + m->rows;

    if (emulator_memory_holds(data, elements * size_of(m->type)) != 1)
        emulator_die("cublasLtMatmul: %s [%zu, %zu, ld %zu] at %p leaves its allocation", name,
                     (size_t)m->rows, (size_t)m->columns, (size_t)m->ld, data);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t a,
                              const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    work w = {product_of(product),
              matrix_of(a),
              matrix_of(b),
              matrix_of(d),
              algorithm_of(algorithm),
              A,
              B,
              D,
              workspace,
              *(const float *)alpha,
              *(const float *)beta};
    cublasLtMatmulHeuristicResult_t result;

    if (w.product.epilogue == CUBLASLT_EPILOGUE_BIAS && w.product.bias_type != w.d.type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (C != D || cublasLtMatmulAlgoCheck(handle, product, a, b, c, d, algorithm, &result))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned((uint64_t)(uintptr_t)A, &w.a, w.algorithm.aligned[0]) ||
        !is_aligned((uint64_t)(uintptr_t)B, &w.b, w.algorithm.aligned[1]) ||
        !is_aligned((uint64_t)(uintptr_t)D, &w.d, w.algorithm.aligned[3]) ||
        workspace_bytes < result.workspaceSize)
        return CUBLAS_STATUS_INVALID_VALUE;
    inside("A", A, &w.a);
    inside("B", B, &w.b);
    inside("D", D, &w.d);
    if (w.product.epilogue == CUBLASLT_EPILOGUE_BIAS)
        inside("the bias", w.product.bias,
               &(matrix){w.product.bias_type, w.d.rows, 1, (int64_t)w.d.rows});
    return emulator_enqueue_copy(stream, emulator_product_run, &w, sizeof w) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
