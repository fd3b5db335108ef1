/* kernels/cuda/product_internal.h - what product.c and product_plan.c share. */
#ifndef WF_KERNELS_CUDA_PRODUCT_INTERNAL_H
#define WF_KERNELS_CUDA_PRODUCT_INTERNAL_H

#include "kernels/cuda/tensor_product_internal.h"

/* Nothing of this shows in a result. */
typedef struct wf_cuda_plan {
    int64_t rows, ld;    /* a buffer's */
    int buffers;         /* for parts of a node, then one per level of the tree above that */
    size_t buffer, pack; /* bytes of a buffer, of copies of factors */
} wf_cuda_plan;

wf_cuda_plan wf_cuda_plan_of(const wf_cuda_product *p);

size_t wf_cuda_size_of(wf_dtype type);
bool wf_cuda_is_exact(const wf_cuda_product *p);

/* Returns whether it is one product by cuBLASLt, straight to the result. */
bool wf_cuda_is_direct(const wf_cuda_product *p);

/* Depths as exact products have them: whole rows of 16 bytes; so is the step of a copy. */
int64_t wf_cuda_whole_depth(const wf_cuda_product *p, int64_t depth);

/* Returns the bytes of the copy of a factor's rows; 0: it is taken as it lies. */
size_t wf_cuda_copy_bytes(const wf_cuda_product *p, const wf_cuda_factor *f, int64_t rows,
                          int64_t depth);

/* Returns true for a node of `count` chunks that is made at once; the chunks of its left half;
   how many nodes wait while their other half is made. */
bool wf_cuda_is_one_node(const wf_cuda_product *p, int64_t count);
int64_t wf_cuda_left_half(const wf_cuda_product *p, int64_t count);
int wf_cuda_waiting_nodes(const wf_cuda_product *p);

/* Returns n: 1 << n nodes side by side make a node of `count` chunks on tensor cores. */
int wf_cuda_part_levels(const wf_cuda_product *p, int64_t count);

#endif
