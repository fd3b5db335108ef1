/*
 * kernels/cuda/tensor_product_internal.h - products in exact mode, by kernels of our own
 * (tensor_product.c): the sums of all chunks and the midpoint tree over them in one kernel, of
 * bf16 on tensor cores, of f32 by multiply-adds.
 */
#ifndef WF_KERNELS_CUDA_TENSOR_PRODUCT_INTERNAL_H
#define WF_KERNELS_CUDA_TENSOR_PRODUCT_INTERNAL_H

#include "kernels/cuda/levels_internal.h"
#include "kernels/cuda/matmul_internal.h"

WF_BEGIN_DECLS

enum {
    WF_TENSOR_PIECES = 64, /* most of one launch */
    WF_TENSOR_PARTS = 8,   /* nodes of the tree that one launch makes side by side */
    WF_TENSOR_CHUNKS = 8,  /* most chunks of each of them */
    WF_TENSOR_CODED = 3,   /* most members of which b is a matrix of nf4 */
    WF_TENSOR_TILE =
        128 /* rows of a block's part of the result, and its columns or half of them */
};

/* A member's part of a chunk: rows of a and of b begin at multiples of 16 bytes, and depth is a
   multiple of that. Where b is a matrix of nf4, b is NULL, and b_ld the column of the matrix,
   or the row of it, that is the first term. */
typedef struct wf_tensor_piece {
    const void *a, *b;
    int64_t a_ld, b_ld, depth;
} wf_tensor_piece;

/* 1 << levels nodes of the midpoint tree over `chunks` chunks: all those of one level, each of
   up to WF_TENSOR_CHUNKS chunks of `members` pieces. Node i goes to result.to + i * stride
   elements. */
typedef struct wf_tensor_product {
    wf_dtype type; /* the factors' */
    wf_tensor_piece piece[WF_TENSOR_PIECES];
    int chunks, members, levels;
    bool a_along, b_along; /* as of wf_cuda_factor */
    bool coded;            /* there are matrices of nf4: nf4[member], .bytes NULL for others */
    wf_nf4_matrix nf4[WF_TENSOR_CODED];
    const wf_cuda_levels *code_levels; /* theirs */
    int64_t m, n, stride;
    wf_cuda_result result;
} wf_tensor_product;

/* Returns true where results are stored by Hopper's accelerator: rows and nodes of whole units
   of 16 bytes, and no sum that is added to an old one with a bias. */
static inline bool wf_tensor_is_stored(const wf_tensor_product *p)
{
    const wf_cuda_result *r = &p->result;
    uint64_t size = r->type == WF_BF16 ? sizeof(uint16_t) : sizeof(float);
    uint64_t bits = (uint64_t)(uintptr_t)r->to | (uint64_t)(uintptr_t)r->gelu |
                    (uint64_t)(uintptr_t)r->residual | (uint64_t)(uintptr_t)r->gate |
                    (uint64_t)r->to_ld * size | (p->levels ? (uint64_t)p->stride * size : 0);

    return bits % 16 == 0 && !(r->add && (r->bias || r->residual)) &&
           (!r->gelu || r->type == WF_BF16);
}

/* tensor_product_mma.cu: of every GPU that Weft runs on; tensor_product_hopper.cu and
   tensor_product_persistent_hopper.cu: of compute capability 9.0 alone; nf4_product_hopper.cu:
   the same for products with matrices of nf4; float_product.cu: of f32. */
cudaError_t wf_cuda_launch_tensor_product(cudaStream_t stream, const wf_tensor_product *p);
cudaError_t wf_cuda_launch_tensor_product_hopper(cudaStream_t stream,
                                                 const wf_tensor_product *p, int processors);
cudaError_t wf_cuda_launch_tensor_product_persistent(cudaStream_t stream,
                                                     const wf_tensor_product *p,
                                                     int processors);
cudaError_t wf_cuda_launch_nf4_product_hopper(cudaStream_t stream, const wf_tensor_product *p);
cudaError_t wf_cuda_launch_float_product(cudaStream_t stream, const wf_tensor_product *p);

/* The kernels of bf16; $WEFT_TENSOR_CORES has their names. */
typedef enum wf_tensor_kernel {
    WF_TENSOR_MMA,
    WF_TENSOR_WGMMA,
    WF_TENSOR_PERSISTENT,
    WF_TENSOR_KERNELS
} wf_tensor_kernel;

/* tensor_choice.c: which of them serves; a failure where the environment asks for one that this
   GPU does not run. */
wf_status wf_cuda_choose_tensor_kernel(const wf_call *call, const wf_tensor_product *p,
                                       wf_tensor_kernel *kernel);

cudaError_t wf_cuda_launch_tensor_kernel(const wf_cuda *cuda, wf_tensor_kernel kernel,
                                         const wf_tensor_product *p);

wf_status wf_cuda_tensor_product_run(const wf_call *call, const wf_tensor_product *p);

/* Returns whether the kernel for a product of m rows widens nf4 in its load of tiles. */
bool wf_cuda_tensor_product_takes_nf4(const wf_call *call, wf_dtype type, int64_t m);

WF_END_DECLS

#endif
