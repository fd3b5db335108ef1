/*
 * core/shape.h - the description of a tensor: the type of its elements and its dims, and the
 * names of the types that a description passes on without looking inside.
 */
#ifndef WF_CORE_SHAPE_H
#define WF_CORE_SHAPE_H

#include "core/numerics/tree.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

enum { WF_MAX_DIMS = 6 };

typedef struct wf_context wf_context;
typedef struct wf_layout wf_layout;
typedef struct wf_tensor wf_tensor;

typedef enum wf_dtype {
#define DTYPE(name, ...) WF_##name,
#include "core/dtype.def"
#undef DTYPE
    WF_DTYPES
} wf_dtype;

/* Returns true for a type of 8 bits a number, with signs or without
   (core/numerics/dynamic8.h). */
static inline bool wf_dtype_is_dynamic8(wf_dtype dtype)
{
    return dtype == WF_DYNAMIC8 || dtype == WF_DYNAMIC8U;
}

/* The chunks in which a sum over a dim is cut (core/numerics/tree.h). */
enum {
    WF_CHUNKS_1 = 1, /* one chain: the model's width, which nothing splits */
    /* 8 chunks, or fewer under wf_context_options.exact_tp: heads, ffn, vocabulary, tokens */
    WF_CHUNKS_8 = 8,
    WF_CHUNKS_EACH = -1,   /* one chunk per index: the batch */
    WF_CHUNKS_EXPERTS = -2 /* the same for the experts of a mixture, which are no batch */
};

/** wf_dim - one dim of a shape; grain and chunks belong to the shape, not to the layout. */
typedef struct wf_dim {
    int64_t size;
    int64_t grain; /* never cut inside a grain: head_dim where a dim is made of heads, else 1 */
    int chunks;    /* WF_CHUNKS_1, WF_CHUNKS_8, WF_CHUNKS_EACH or WF_CHUNKS_EXPERTS */
} wf_dim;

static inline wf_dim wf_dim_width(int64_t size)
{
    wf_dim dim = {size, 1, WF_CHUNKS_1};

    return dim;
}

static inline wf_dim wf_dim_chunked(int64_t size)
{
    wf_dim dim = {size, 1, WF_CHUNKS_8};

    return dim;
}

static inline wf_dim wf_dim_heads(int64_t heads, int64_t head_dim)
{
    wf_dim dim = {heads * head_dim, head_dim, WF_CHUNKS_8};

    return dim;
}

static inline wf_dim wf_dim_batch(int64_t size)
{
    wf_dim dim = {size, 1, WF_CHUNKS_EACH};

    return dim;
}

static inline wf_dim wf_dim_experts(int64_t size)
{
    wf_dim dim = {size, 1, WF_CHUNKS_EXPERTS};

    return dim;
}

static inline bool wf_dim_equal(wf_dim a, wf_dim b)
{
    return a.size == b.size && a.grain == b.grain && a.chunks == b.chunks;
}

WF_END_DECLS

#endif
