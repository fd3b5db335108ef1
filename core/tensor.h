/*
 * core/tensor.h - tensors: a global shape, and the part of it that this rank holds.
 *
 * On one rank the part is the whole. On a mesh the tensor carries a layout, which core passes
 * around without looking inside; start[] and local[] say which part is here. The local data is
 * contiguous, last dim fastest. A tensor on the fake device has shape and layout, but no data.
 */
#ifndef WF_CORE_TENSOR_H
#define WF_CORE_TENSOR_H

#include "core/memory/memory.h"
#include "core/shape.h"

WF_BEGIN_DECLS

typedef struct wf_storage wf_storage;

/** wf_tensor - read its fields freely, change them never. */
struct wf_tensor {
    wf_context *ctx;
    int refs;
    wf_dtype dtype;
    /* the type of a partial sum when it is complete; of nf4 that of the numbers which it stands
       for; else dtype */
    wf_dtype rounds_to;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];    /* global */
    int64_t start[WF_MAX_DIMS]; /* this rank holds [start, start + local) of each dim */
    int64_t local[WF_MAX_DIMS];
    const wf_layout *layout; /* NULL: whole on every rank */
    wf_storage *storage;     /* NULL on the fake device */
    void *data;
    size_t offset;                /* where data begins in the storage */
    struct wf_tensor *next_alias; /* a ring of those that share the storage */
    bool requires_grad;
    /* in a run that will be recomputed: not an operand of it, as it is or moved */
    bool computed;
    uint64_t tape; /* the tape and node that made it; 0 where none did */
    struct wf_node *node;
    int output;
    struct {
        uint64_t tape; /* 0: it has to be kept */
        struct wf_node *node;
        uint32_t version; /* what its data had then */
    } recomputed;         /* by whom it can be recomputed (wf_op.recompute), also as an alias */
    struct wf_tensor *grad; /* a leaf's gradient, after wf_backward */
    int readers; /* a leaf: its uses on tapes, those of what borders made of it too */
    bool prompt; /* a leaf: some of its gradients cannot wait for wf_backward_weights */
    /* the passes whose gradients grad sums, in wf_backward_weights_joined; else 0 */
    int joined;
    struct wf_tensor
        *origin; /* a tape keeps this one and redistributes it again; mostly NULL */
    struct wf_tensor
        *scales; /* NULL, or those of nf4: f32, whole on every rank (wf_nf4_scales) */
};

/** wf_dtype_size - bytes of one element (1 of nf4, whose rows are made of bytes);
 * wf_dtype_name - "f32" and so on. */
WF_API size_t wf_dtype_size(wf_dtype dtype);
WF_API const char *wf_dtype_name(wf_dtype dtype);

/** wf_local_bytes - what a part of a tensor takes; of nf4 that of a matrix, with the scales of
 * the blocks that it touches. */
WF_API size_t wf_local_bytes(wf_dtype dtype, int ndim, const wf_dim *dims, const int64_t *start,
                             const int64_t *local);

/**
 * wf_tensor_new - a tensor of this rank's part, contents undefined.
 *
 * @param dims    global shape
 * @param layout  NULL for whole
 * @param kind    what the memory is counted as
 * Collective:  no
 * Owner:       the innermost open scope
 * Errors:      WF_ESHAPE (sizes, grains or chunks that no dim has, over WF_MAX_DIMS, over 2^63
 *              bytes, nf4 that is no matrix), WF_ENOMEM; result is then NULL
 */
WF_API wf_tensor *wf_tensor_new(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                                const wf_layout *layout, wf_memory_kind kind);

/** wf_tensor_like - one of t's type, shape and layout, contents undefined; t may be fake. */
WF_API wf_tensor *wf_tensor_like(const wf_tensor *t, wf_memory_kind kind);

/** wf_tensor_fake - the same without data, for modules before they are materialised. */
WF_API wf_tensor *wf_tensor_fake(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                                 const wf_layout *layout);

/**
 * wf_tensor_alias - another tensor over the same data, with nothing of its gradient history.
 * What is changed in place through one of them is changed for all, and a tape that saved one
 * refuses to go back (wf_backward).
 *
 * Owner:   the innermost open scope
 */
WF_API wf_tensor *wf_tensor_alias(wf_tensor *t);

/** wf_tensor_view - an alias with other dims and layout, of as many local elements, else
 * WF_ESHAPE. */
WF_API wf_tensor *wf_tensor_view(wf_tensor *t, int ndim, const wf_dim *dims,
                                 const wf_layout *layout);

/**
 * wf_tensor_rows - a view of this rank's rows [first, first + count) of dim 0, as its part of a
 * tensor in which every rank has as many
 *
 * Other ranks may take another count, as long as nothing moves over the axes that split dim 0.
 *
 * @param t  its dim 0 is a batch (wf_dim_batch) or a width (wf_dim_width): the 8 chunks of
 *           another dim are those of the whole
 * Owner:    the innermost open scope
 * Errors:   WF_ESHAPE (rows that this rank does not hold, or that cut a grain; a dim 0 with 8
 *           chunks); result is then NULL
 */
WF_API wf_tensor *wf_tensor_rows(wf_tensor *t, int64_t first, int64_t count);

/**
 * wf_tensor_absent - a tensor whose memory comes later (wf_tensor_take).
 *
 * Tensors that share their data (aliases, views, what a tape has saved) come and go together:
 * wf_tensor_drop gives the memory of all of them back, wf_tensor_take puts other memory under
 * all of them. In between they keep their shape, and an op on one is WF_EINVAL.
 *
 * Owner:   the innermost open scope
 * Errors:  WF_ESHAPE, WF_ENOMEM; result is then NULL
 */
WF_API wf_tensor *wf_tensor_absent(wf_context *ctx, wf_dtype dtype, int ndim,
                                   const wf_dim *dims, const wf_layout *layout);

/** wf_tensor_drop - give its memory back, if it is there; NULL is allowed. */
WF_API void wf_tensor_drop(wf_tensor *t);

/**
 * wf_tensor_take - take over the memory of `from`, which is absent then
 *
 * @param t  absent, with as many bytes
 * Errors:   WF_EINVAL
 */
WF_API wf_status wf_tensor_take(wf_tensor *t, wf_tensor *from);

/**
 * wf_tensor_comes_with - say of an absent tensor that its memory comes and goes with that of
 * all others of `group`
 *
 * What is recomputed in backward (wf_op.recompute) may read parameters that are there where its
 * result is read: those of the same group as a parameter that the reader takes itself.
 */
WF_API void wf_tensor_comes_with(wf_tensor *t, const void *group);

/** wf_tensor_is_absent - true where the memory was dropped, or has not come yet. */
WF_API bool wf_tensor_is_absent(const wf_tensor *t);

/** wf_tensor_retain - keep t beyond its scope; returns t. Pair with wf_tensor_release. */
WF_API wf_tensor *wf_tensor_retain(wf_tensor *t);
WF_API void wf_tensor_release(wf_tensor *t);

/** wf_tensor_is_partial - true where it is this rank's term of a sum, or of a maximum, over
 * ranks. */
WF_API bool wf_tensor_is_partial(const wf_tensor *t);

/** wf_tensor_is_fake - true where there is no data to read. */
WF_API bool wf_tensor_is_fake(const wf_tensor *t);

/** wf_tensor_count - elements of the global shape; wf_tensor_local_count - of this rank's part;
 * wf_tensor_bytes - what that takes. */
WF_API int64_t wf_tensor_count(const wf_tensor *t);
WF_API int64_t wf_tensor_local_count(const wf_tensor *t);
WF_API size_t wf_tensor_bytes(const wf_tensor *t);

/** wf_tensor_describe - for instance "f32 [4,256,384] [batch/dp]", into text; returns text. */
WF_API char *wf_tensor_describe(const wf_tensor *t, char *text, size_t size);

/**
 * wf_cast - the same tensor in another storage type: from what the device computes in to bf16
 * (core/numerics/bf16.h says how it is rounded), or back; from nf4 to either
 *
 * Collective:  no
 * Owner:       the innermost open scope; counted as results of ops are
 * Errors:      WF_EDTYPE, WF_ENOMEM; result is then NULL
 * Gradient:    none: nothing is recorded
 */
WF_API wf_tensor *wf_cast(wf_tensor *t, wf_dtype dtype);

/** wf_handle_refuse - the error of a tensor that has ended; WF_OK outside of the mode. */
WF_API wf_status wf_handle_refuse(const wf_tensor *t, const char *what);

/**
 * wf_handle_check - whether a tensor may be used
 *
 * @param t     a handle, or NULL, which is good
 * @param what  who asks, for the error: "scale: operand 0"
 * Errors:      WF_EINVAL in the context; only in the mode
 */
static inline wf_status wf_handle_check(const wf_tensor *t, const char *what)
{
    return !t || t->refs > 0 ? WF_OK : wf_handle_refuse(t, what);
}

WF_END_DECLS

#endif
