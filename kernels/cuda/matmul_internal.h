/*
 * kernels/cuda/matmul_internal.h - one product of matrices by cuBLASLt, for exact off, and
 * products of chunks (product.c). Matrices are row-major here; matmul.c swaps the factors for
 * cuBLAS.
 */
#ifndef WF_KERNELS_CUDA_MATMUL_INTERNAL_H
#define WF_KERNELS_CUDA_MATMUL_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

WF_BEGIN_DECLS

/* The workspace of cuBLASLt where it chooses freely; NVIDIA's advice for Hopper. */
enum { WF_CUDA_BLAS_WORKSPACE = 32 << 20, WF_CUDA_ALIGNED = 16 };

/* A factor: element (row, i) of the sum's index i is data[row * ld + i] where the index runs
   along rows in memory (`along`), else data[i * ld + row]. */
typedef struct wf_cuda_factor {
    const void *data;
    int64_t ld;
    bool along;
    /* NULL, or the second factor is this matrix of nf4: data is NULL then, and ld the column of
       the part, or where `along` is not set the row, of index 0 */
    const wf_tensor *nf4;
} wf_cuda_factor;

/* c[m, n] (rows c_ld step) = sum over depth of a[m, .] b[n, .], or added to what c holds. */
typedef struct wf_cuda_gemm {
    wf_dtype type, c_type; /* WF_F32 or WF_BF16, of both factors and of c; sums are in float */
    wf_cuda_factor a, b;
    void *c;
    int64_t m, n, depth, c_ld;
    bool add;
    const void *bias; /* NULL, or [n] of c's type, added to every row by cuBLASLt */
    void *workspace;  /* WF_CUDA_BLAS_WORKSPACE bytes */
} wf_cuda_gemm;

wf_status wf_cuda_gemm_run(const wf_call *call, const wf_cuda_gemm *mm);

/* ---- product.c: c = the midpoint tree over chunks, each a chain of products ---- */

typedef struct wf_cuda_piece {
    wf_cuda_factor a, b;
    int64_t depth;
} wf_cuda_piece;

/* Rows of heads of 2 half columns that are rotated, column j of a head with column j + half:
   row r of a result by row (row + r) % tokens of the tables. */
typedef struct wf_cuda_rotation {
    const float *cosine, *sine; /* [tokens][half]; NULL: nothing is rotated */
    int32_t tokens, row, half;
} wf_cuda_rotation;

typedef struct wf_cuda_product {
    const wf_call *call;
    wf_dtype type, c_type;
    int64_t m, n;
    void *c; /* rows are n step */
    bool add;
    int64_t chunks, each; /* each: of a sequence (core/numerics/tree.h); 0 means 1 */
    int members;          /* products that a chunk is the chain of */
    /* NULL, or [n], added to the result when that is rounded; of a free choice of c's type */
    const wf_tensor *bias;
    void *gelu;       /* NULL, or where gelu of that goes: c keeps the result itself */
    const void *gate; /* NULL, or [m, n] of c's type: then gelu gets silu(gate) times c */
    const wf_tensor *residual; /* NULL, or [m, n], to which all of that is added, rounded */
    wf_cuda_rotation rotation; /* the rounded result is rotated; nothing else is joined then */
    wf_cuda_piece (*piece)(const wf_call *call, int64_t chunk, int member);
} wf_cuda_product;

size_t wf_cuda_product_workspace(const wf_cuda_product *p);
wf_status wf_cuda_product_run(const wf_cuda_product *p, void *workspace);

/* ---- product_kernels.cu ---- */

enum { WF_CUDA_CHUNKS = 8 }; /* most chunks that one pass adds */

/* The output of a product: rows to_ld step, added to the old content or not, with a bias as of
   wf_cuda_product. */
typedef struct wf_cuda_result {
    void *to;
    int64_t to_ld;
    wf_dtype type;
    bool add;
    bool fours; /* four neighbours from a multiple of four on may be stored at once */
    bool bias_bf16;
    const void *bias;
    void *gelu;       /* rows are to_ld step */
    const void *gate; /* the same */
    bool residual_bf16;
    const void *residual; /* rows are to_ld step, too */
    wf_cuda_rotation rotation;
} wf_cuda_result;

/* The midpoint tree over from[.][r, c]; NULL is +0. */
typedef struct wf_cuda_join {
    const float *from[WF_CUDA_CHUNKS];
    int n_from;
    int64_t from_ld, rows, columns;
    wf_cuda_result result;
} wf_cuda_join;
cudaError_t wf_cuda_launch_join(cudaStream_t stream, const wf_cuda_join *join);

/* A copy of rows that are from_ld step, to_ld step, zeros from (rows, columns) on; elements
   of `size` bytes. */
typedef struct wf_cuda_padding {
    const void *from;
    void *to;
    int64_t from_ld, to_ld, rows, columns, to_rows;
    size_t size;
} wf_cuda_padding;
cudaError_t wf_cuda_launch_pad(cudaStream_t stream, const wf_cuda_padding *pad);

/* ---- what wf_cuda.math holds; made when first asked for, NULL with a failure in the context
   ---- */

typedef struct wf_cuda_math {
    struct wf_cuda_algorithm *algorithm;
    int n_algorithms, room;
    struct wf_cuda_choice *choice; /* tensor_choice.c */
    int n_choices, choice_room;
    struct wf_cudnn *cudnn;
} wf_cuda_math;
wf_cuda_math *wf_cuda_math_of(const wf_call *call);

WF_END_DECLS

#endif
