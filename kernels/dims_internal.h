/*
 * kernels/dims_internal.h - parameters of the ops of kernels/dims.c, reshape.c, broadcast.c and
 * matmul.c, and where their elements lie, for wrappers, reference loops and kernels.
 */
#ifndef WF_KERNELS_DIMS_INTERNAL_H
#define WF_KERNELS_DIMS_INTERNAL_H

#include "kernels/op_table_internal.h"

typedef struct wf_dim_attr {
    int8_t dim;
} wf_dim_attr;

typedef struct wf_permute_attr {
    int8_t order[WF_MAX_DIMS]; /* dim d of the output is dim order[d] of the operand */
} wf_permute_attr;

/* Dims of a result; their grains are below 2^31, which is checked. */
typedef struct wf_reshape_attr {
    int64_t size[WF_MAX_DIMS];
    int32_t grain[WF_MAX_DIMS];
    int8_t chunks[WF_MAX_DIMS], ndim;
} wf_reshape_attr;

typedef struct wf_slice_attr {
    int8_t dim;
    int64_t first, count;
} wf_slice_attr;

typedef struct wf_matmul_attr {
    bool transpose_a, transpose_b;
} wf_matmul_attr;

/* Returns true where x has such a dim; a tensor without it is WF_ESHAPE in its context. */
bool wf_has_dim(const wf_tensor *x, const char *op, int dim);

/* Returns whether a sum is over a batch, which is dim 0: it has a chunk for each index;
   elsewhere it is one chain. */
static inline bool wf_is_batch(const wf_tensor *t, int dim)
{
    return dim == 0 && t->dim[0].chunks == WF_CHUNKS_EACH;
}

/* Computes the distance in x of neighbours along each dim of the output, in elements. */
WF_HOST_DEVICE static inline void wf_permute_steps(const wf_permute_attr *a, const wf_tensor *x,
                                                   int64_t step[WF_MAX_DIMS])
{
    for (int d = 0; d < x->ndim; d++) {
        step[d] = 1;
        for (int i = a->order[d] + 1; i < x->ndim; i++)
            step[d] *= x->local[i];
    }
}

/* Computes the distance in x of neighbours along each dim of a result that x is repeated in; 0
   along those that x lacks or has once. */
WF_HOST_DEVICE static inline void wf_broadcast_steps(const wf_tensor *x, const wf_tensor *y,
                                                     int64_t step[WF_MAX_DIMS])
{
    int64_t n = 1;

    for (int d = y->ndim - 1; d >= 0; d--) {
        int own = d - (y->ndim - x->ndim);

        step[d] = own >= 0 && x->dim[own].size == y->dim[d].size ? n : 0;
        n *= own >= 0 ? x->local[own] : 1;
    }
}

/* A slice as parts of rows: `part` elements after the first `skip` of each `whole`. */
typedef struct wf_slice_rows {
    int64_t outer, whole, skip, part;
} wf_slice_rows;

static inline wf_slice_rows wf_slice_rows_of(const wf_call *call, const wf_tensor *whole,
                                             const wf_tensor *part)
{
    const wf_slice_attr *a = (const wf_slice_attr *)call->attr;
    int64_t inner = wf_extent(whole, a->dim + 1, whole->ndim);
    wf_slice_rows rows = {wf_extent(whole, 0, a->dim), whole->local[a->dim] * inner,
                          a->first * inner, part->local[a->dim] * inner};

    return rows;
}

/* Copies x to y in double: step is the distance in x between neighbours along each dim of y. */
static inline void wf_copy_by_steps(const wf_tensor *x, const wf_tensor *y, const int64_t *step)
{
    for (int64_t e = 0; e < wf_tensor_local_count(y); e++) {
        int64_t rest = e, from = 0;

        for (int d = y->ndim - 1; d >= 0; d--) {
            from += rest % y->local[d] * step[d];
            rest /= y->local[d];
        }
        ((double *)y->data)[e] = ((const double *)x->data)[from];
    }
}

#endif
