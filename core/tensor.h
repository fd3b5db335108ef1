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

/** wf_partial_origin - names what left a tensor a partial sum or maximum, for errors. */
typedef struct wf_partial_origin {
    const char *op;     /* the op that left it, or whose gradient did; NULL: not known */
    const char *module; /* its path; NULL: none ran */
    /* the first point that it passed as it was; of a gradient, the last one that the op's
       operands had passed; NULL: none */
    const char *point;
    bool gradient;
    bool batch; /* a sum over the batch */
} wf_partial_origin;

/** wf_tensor - a tensor: fields may be read, and are never changed by users. */
struct wf_tensor {
    wf_context *ctx;
    int refs;
    wf_dtype dtype;
    /* the type to which a complete sum is rounded, of a partial sum; of nf4, the type of the
       numbers that it represents; else dtype */
    wf_dtype rounds_to;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];    /* global */
    int64_t start[WF_MAX_DIMS]; /* this rank holds [start, start + local) of each dim */
    int64_t local[WF_MAX_DIMS];
    const wf_layout *layout; /* NULL: whole on every rank */
    wf_storage *storage;     /* NULL on the fake device */
    void *data;
    size_t offset;                /* the beginning of data in it */
    struct wf_tensor *next_alias; /* a ring of the tensors that share the storage */
    bool requires_grad;
    /* made in a run that will be recomputed: not an operand of it, as it is or moved */
    bool computed;
    uint64_t tape; /* the tape and node of the op that made it; 0 for none */
    struct wf_node *node;
    int output;
    struct {
        uint64_t tape; /* 0: it has to be kept */
        struct wf_node *node;
        uint32_t version;   /* its data's at the time */
    } recomputed;           /* the call that recomputes it, wf_op.recompute */
    struct wf_tensor *grad; /* a leaf's gradient, after wf_backward */
    int readers; /* a leaf: its uses on tapes, those of results of borders included */
    bool prompt; /* a leaf: some of its gradients cannot wait for wf_backward_weights */
    /* the passes whose gradients grad sums, in wf_backward_weights_joined; else 0 */
    int joined;
    /* the tensor that a tape keeps instead of this one, to redistribute it in backward; mostly
       NULL */
    struct wf_tensor *origin;
    struct wf_tensor
        *scales; /* NULL, or those of nf4: f32, whole on every rank (wf_nf4_scales) */
    int pieces;  /* the rows of a sequence, in a view of sequences in pieces; else 0 */
    wf_partial_origin partial_from; /* notes what left it partial, where it is */
};

/** wf_dtype_size - returns the bytes of one element (1 of nf4, whose rows are made of bytes);
 * wf_dtype_name - "f32" and so on. */
WF_API size_t wf_dtype_size(wf_dtype dtype);
WF_API const char *wf_dtype_name(wf_dtype dtype);

/** wf_local_bytes - returns the bytes of a part of a tensor; of nf4 that of a matrix, with the
 * scales of the blocks that it touches. */
WF_API size_t wf_local_bytes(wf_dtype dtype, int ndim, const wf_dim *dims, const int64_t *start,
                             const int64_t *local);

/**
 * wf_tensor_new - makes a tensor of this rank's part, contents undefined.
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

/** wf_tensor_like - makes a tensor of t's type, shape and layout, contents undefined; t may be
 * fake. Owner: the innermost open scope. */
WF_API wf_tensor *wf_tensor_like(const wf_tensor *t, wf_memory_kind kind);

/** wf_tensor_fake - makes a tensor without data, as PyTorch's meta device does, for modules
 * before they are materialised. */
WF_API wf_tensor *wf_tensor_fake(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                                 const wf_layout *layout);

/**
 * wf_tensor_alias - makes another tensor over the same data, without its gradient history. A
 * change in place through one of them is seen by all, and a tape that saved one refuses to go
 * back (wf_backward).
 *
 * Owner:   the innermost open scope
 */
WF_API wf_tensor *wf_tensor_alias(wf_tensor *t);

/** wf_tensor_view - makes an alias with other dims and layout, of as many local elements, else
 * WF_ESHAPE. */
WF_API wf_tensor *wf_tensor_view(wf_tensor *t, int ndim, const wf_dim *dims,
                                 const wf_layout *layout);

/**
 * wf_tensor_rows - makes a view of this rank's rows [first, first + count) of dim 0, as its
 * part of a tensor in which every rank has as many
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
 * wf_tensor_pieces - returns the pieces in which this rank's part of each sequence can be
 * looked at: its chunks of a sum over tokens (wf_token_chunks); 1 where these are not of equal
 * length, or t is no batch of sequences, [batch, tokens, ..]
 */
WF_API int64_t wf_tensor_pieces(const wf_tensor *t);

/**
 * wf_tensor_in_pieces - makes a view of [batch, tokens, ..] with a row for each piece of each
 * sequence, [batch * pieces, tokens / pieces, ..]
 *
 * The gradient of a matrix from the 2^k pieces of a node of the tree over one sequence is that
 * node, with the bits that it has in a sum over the whole sequence; so is that of a vector
 * where a sequence has 8 chunks or more.
 *
 * Layout:  the axes that split tokens split the rows, after those of the batch
 * Owner:   the innermost open scope
 * Errors:  WF_ESHAPE (its chunks are not of equal length); result is then NULL
 */
WF_API wf_tensor *wf_tensor_in_pieces(wf_tensor *t);

/**
 * wf_tensor_absent - makes a tensor whose memory comes later (wf_tensor_take).
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

/** wf_tensor_drop - frees its memory, if it is there; NULL is allowed. */
WF_API void wf_tensor_drop(wf_tensor *t);

/**
 * wf_tensor_take - takes over the memory of `from`, which is absent then
 *
 * @param t  absent, with as many bytes
 * Errors:   WF_EINVAL
 */
WF_API wf_status wf_tensor_take(wf_tensor *t, wf_tensor *from);

/**
 * wf_tensor_comes_with - declares that the memory of an absent tensor comes and goes with that
 * of all others of `group`
 *
 * What is recomputed in backward (wf_op.recompute) may read parameters that are there where its
 * result is read: those of the same group as a parameter that the reader takes itself.
 */
WF_API void wf_tensor_comes_with(wf_tensor *t, const void *group);

/** wf_tensor_is_absent - returns true where the memory was dropped, or has not come yet. */
WF_API bool wf_tensor_is_absent(const wf_tensor *t);

/** wf_tensor_retain - keeps t beyond its scope; returns t. Pair with wf_tensor_release. */
WF_API wf_tensor *wf_tensor_retain(wf_tensor *t);
WF_API void wf_tensor_release(wf_tensor *t);

/** wf_tensor_is_partial - returns true where it is this rank's term of a sum, or of a maximum,
 * over ranks. */
WF_API bool wf_tensor_is_partial(const wf_tensor *t);

enum { WF_PARTIAL_TEXT = 384 }; /* bytes of the text of wf_partial_explain, with its end */

/** wf_partial_passes - notes that a tensor passes a point of a module (wf_nn_at): where it is
 * partial from then on, a border is missing there. */
WF_API void wf_partial_passes(wf_tensor *t, const char *module, const char *point);

/** wf_partial_explain - writes what left a tensor partial, and the border that is missing, for
 * an error; returns text. */
WF_API char *wf_partial_explain(const wf_tensor *t, char *text, size_t size);

/** wf_tensor_is_fake - returns true where there is no data to read. */
WF_API bool wf_tensor_is_fake(const wf_tensor *t);

/** wf_tensor_count - returns the elements of the global shape; wf_tensor_local_count - those of
 * this rank's part; wf_tensor_bytes - its bytes. */
WF_API int64_t wf_tensor_count(const wf_tensor *t);
WF_API int64_t wf_tensor_local_count(const wf_tensor *t);
WF_API size_t wf_tensor_bytes(const wf_tensor *t);

/** wf_tensor_describe - writes "f32 [4,256,384] [batch/dp]" for instance into text; returns
 * text. */
WF_API char *wf_tensor_describe(const wf_tensor *t, char *text, size_t size);

/**
 * wf_cast - converts a tensor to another storage type: from the device's type to bf16
 * (core/numerics/bf16.h says how it is rounded), or back; from nf4 to either
 *
 * Collective:  no
 * Owner:       the innermost open scope; counted as results of ops are
 * Errors:      WF_EDTYPE, WF_ENOMEM; result is then NULL
 * Gradient:    none: nothing is recorded
 */
WF_API wf_tensor *wf_cast(wf_tensor *t, wf_dtype dtype);

/** wf_handle_refuse - records the error of using a released tensor; WF_OK outside of the debug
 * mode. */
WF_API wf_status wf_handle_refuse(const wf_tensor *t, const char *what);

/**
 * wf_handle_check - checks that a tensor may be used
 *
 * @param t     a handle, or NULL, which is good
 * @param what  the user of the tensor, for the error: "scale: operand 0"
 * Errors:      WF_EINVAL in the context; only in the debug mode
 */
static inline wf_status wf_handle_check(const wf_tensor *t, const char *what)
{
    return !t || t->refs > 0 ? WF_OK : wf_handle_refuse(t, what);
}

WF_END_DECLS

#endif
