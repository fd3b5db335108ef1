/*
 * kernels/cuda/matmul.c - one product by cuBLASLt, and which algorithm makes it.
 *
 * cuBLAS sees matrices by columns: row-major c = a b^T is c^T = b a^T there, so its first
 * factor is our b. An algorithm is asked for once for each shape, and kept.
 */
#include "kernels/cuda/matmul_internal.h"
#include "kernels/cuda/cudnn_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 16 };

/* The problem that an algorithm was chosen for. */
typedef struct algorithm_key {
    int64_t m, n, depth, a_ld, b_ld, c_ld;
    uint32_t a_aligned, b_aligned, c_aligned; /* bytes */
    wf_dtype type, c_type;
    bool a_along, b_along, add, bias;
} algorithm_key;

typedef struct wf_cuda_algorithm {
    algorithm_key key;
    cublasLtMatmulAlgo_t algorithm;
} wf_cuda_algorithm;

/* A product as cuBLASLt takes it. */
typedef struct described {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, result;
} described;

static wf_status check(const wf_call *call, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return WF_OK;
    return wf_cuda_host_table->fail(call->ctx, WF_EDEVICE, "%s: %s: cuBLASLt status %d",
                                    call->op->name, what, (int)status);
}

wf_cuda_math *wf_cuda_math_of(const wf_call *call)
{
    wf_cuda *cuda = wf_cuda_of(call);

    if (!cuda->math)
        cuda->math = calloc(1, sizeof(wf_cuda_math));
    if (!cuda->math)
        wf_cuda_host_table->fail(call->ctx, WF_ENOMEM, "%s: no memory for a list of algorithms",
                                 call->op->name);
    return cuda->math;
}

void wf_cuda_math_close(wf_cuda *cuda)
{
    wf_cuda_math *math = cuda->math;

    if (cuda->blas)
        cublasLtDestroy(cuda->blas);
    if (math) {
        free(math->algorithm);
        free(math->choice);
        wf_cudnn_close(math->cudnn);
    }
    free(math);
    cuda->blas = NULL;
    cuda->math = NULL;
}

static cudaDataType_t data_type(wf_dtype type)
{
    return type == WF_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Columns of `rows` values by memory: the index of the sum along them, or across. */
static cublasStatus_t factor_layout(cublasLtMatrixLayoutOpaque_t *layout, cudaDataType_t type,
                                    const wf_cuda_factor *f, int64_t rows, int64_t depth)
{
    return cublasLtMatrixLayoutInit(layout, type, (uint64_t)(f->along ? depth : rows),
                                    (uint64_t)(f->along ? rows : depth), f->ld);
}

static cublasStatus_t set(described *d, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t size, cublasStatus_t before)
{
    return before == CUBLAS_STATUS_SUCCESS
               ? cublasLtMatmulDescSetAttribute(&d->product, attribute, value, size)
               : before;
}

/* c^T has a row of ours as a column, and cuBLAS adds a bias along columns. */
static cublasStatus_t describe_bias(described *d, const wf_cuda_gemm *mm)
{
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    int32_t type = (int32_t)data_type(mm->c_type);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (!mm->bias)
        return status;
    status = set(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, status);
    status = set(d, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, status);
    return set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &mm->bias, sizeof mm->bias, status);
}

static cublasStatus_t describe(described *d, const wf_cuda_gemm *mm, bool tf32)
{
    cublasComputeType_t compute =
        mm->type == WF_F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t first = mm->b.along ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = mm->a.along ? CUBLAS_OP_N : CUBLAS_OP_T;
    cudaDataType_t type = data_type(mm->type);
    cublasStatus_t status = cublasLtMatmulDescInit(&d->product, compute, CUDA_R_32F);

    status = set(d, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, status);
    status = set(d, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, status);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_bias(d, mm);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = factor_layout(&d->first, type, &mm->b, mm->n, mm->depth);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = factor_layout(&d->second, type, &mm->a, mm->m, mm->depth);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutInit(&d->result, data_type(mm->c_type), (uint64_t)mm->n,
                                          (uint64_t)mm->m, mm->c_ld);
    return status;
}

/* Returns the most of 16, 8, 4, 2 bytes that rows begin at multiples of. */
static uint32_t aligned(const void *data, int64_t ld, wf_dtype type)
{
    uint64_t bits = (uint64_t)(uintptr_t)data | (uint64_t)ld * (type == WF_BF16 ? 2 : 4);
    uint32_t bytes = WF_CUDA_ALIGNED;

    while (bits % bytes)
        bytes /= 2;
    return bytes;
}

/* Keys are compared as bytes, so their padding is cleared, and none is assigned whole. */
static void fill_key(algorithm_key *k, const wf_cuda_gemm *mm)
{
    memset(k, 0, sizeof *k);
    k->depth = mm->depth;
    k->type = mm->type;
    k->c_type = mm->c_type;
    k->a_along = mm->a.along;
    k->b_along = mm->b.along;
    k->add = mm->add;
    k->bias = mm->bias != NULL;
    k->m = mm->m;
    k->n = mm->n;
    k->a_ld = mm->a.ld;
    k->b_ld = mm->b.ld;
    k->c_ld = mm->c_ld;
    k->a_aligned = aligned(mm->a.data, mm->a.ld, mm->type);
    k->b_aligned = aligned(mm->b.data, mm->b.ld, mm->type);
    k->c_aligned = aligned(mm->c, mm->c_ld, mm->c_type);
}

static cublasStatus_t prefer(cublasLtMatmulPreferenceOpaque_t *wish, const algorithm_key *key)
{
    uint64_t workspace = WF_CUDA_BLAS_WORKSPACE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t size;
    } set[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_aligned, 4},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_aligned, 4},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->c_aligned, 4},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->c_aligned, 4},
    };
    cublasStatus_t status = cublasLtMatmulPreferenceInit(wish);

    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof set / sizeof *set; i++)
        status = cublasLtMatmulPreferenceSetAttribute(wish, set[i].attribute, set[i].value,
                                                      set[i].size);
    return status;
}

static wf_status choose(const wf_call *call, const wf_cuda_gemm *mm, const algorithm_key *key,
                        cublasLtMatmulAlgo_t *algorithm)
{
    wf_cuda *cuda = wf_cuda_of(call);
    cublasLtMatmulHeuristicResult_t result[CANDIDATES];
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasStatus_t status;
    described d;
    int n = 0;

    status = describe(&d, mm, cuda->tf32);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = prefer(&wish, key);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmulAlgoGetHeuristic(cuda->blas, &d.product, &d.first, &d.second,
                                           &d.result, &d.result, &wish, CANDIDATES, result, &n);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < n; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS) {
            *algorithm = result[i].algo;
            return WF_OK;
        }
    return wf_cuda_host_table->fail(
        call->ctx, WF_EUNSUPPORTED,
        "%s: cuBLASLt (status %d, %d candidates) has no algorithm for %s products of depth "
        "%" PRId64,
        call->op->name, (int)status, n, mm->type == WF_BF16 ? "bf16" : "f32", mm->depth);
}

static wf_status add_algorithm(const wf_call *call, wf_cuda_math *math,
                               const wf_cuda_algorithm *a)
{
    if (math->n_algorithms == math->room) {
        int room = math->room ? 2 * math->room : 64;
        wf_cuda_algorithm *more = realloc(math->algorithm, (size_t)room * sizeof *more);

        if (!more)
            return wf_cuda_host_table->fail(
                call->ctx, WF_ENOMEM, "%s: no memory for %d algorithms", call->op->name, room);
        math->algorithm = more;
        math->room = room;
    }
    memcpy(&math->algorithm[math->n_algorithms++], a, sizeof *a);
    return WF_OK;
}

static wf_status find(const wf_call *call, const wf_cuda_gemm *mm,
                      cublasLtMatmulAlgo_t *algorithm)
{
    wf_cuda *cuda = wf_cuda_of(call);
    wf_cuda_math *math = wf_cuda_math_of(call);
    wf_status status = math ? WF_OK : WF_ENOMEM;
    wf_cuda_algorithm a;

    fill_key(&a.key, mm);
    for (int i = 0; math && i < math->n_algorithms; i++)
        if (memcmp(&math->algorithm[i].key, &a.key, sizeof a.key) == 0) {
            *algorithm = math->algorithm[i].algorithm;
            return WF_OK;
        }
    if (status == WF_OK && !cuda->blas)
        status = check(call, cublasLtCreate(&cuda->blas), "no handle");
    if (status == WF_OK)
        status = choose(call, mm, &a.key, &a.algorithm);
    if (status == WF_OK)
        status = add_algorithm(call, math, &a);
    if (status == WF_OK)
        *algorithm = a.algorithm;
    return status;
}

wf_status wf_cuda_gemm_run(const wf_call *call, const wf_cuda_gemm *mm)
{
    wf_cuda *cuda = wf_cuda_of(call);
    const float one = 1, before = mm->add ? 1 : 0;
    cublasLtMatmulAlgo_t algorithm;
    described d;
    wf_status status = find(call, mm, &algorithm);

    if (status == WF_OK)
        status = check(call, describe(&d, mm, cuda->tf32), "the shape of a product");
    if (status != WF_OK)
        return status;
    wf_cuda_counts.launches++;
    return check(call,
                 cublasLtMatmul(cuda->blas, &d.product, &one, mm->b.data, &d.first, mm->a.data,
                                &d.second, &before, mm->c, &d.result, mm->c, &d.result,
                                &algorithm, mm->workspace, WF_CUDA_BLAS_WORKSPACE,
                                cuda->stream),
                 "a product");
}
