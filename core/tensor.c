/* core/tensor.c - tensors, their storage and their parts. */
#include "core/context_internal.h"
#include "core/sharing_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_tensor *wf_tensor_blank(wf_context *ctx, wf_dtype dtype)
{
    wf_tensor *t;

    if ((unsigned)dtype >= WF_DTYPES) {
        wf_fail(ctx, WF_EINVAL, "there is no storage type %d: types are 0 to %d", (int)dtype,
                WF_DTYPES - 1);
        return NULL;
    }
    t = wf_blocks_take(&ctx->blocks, sizeof *t);
    if (!t) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a tensor's description");
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->ctx = ctx;
    t->refs = 1;
    t->dtype = t->rounds_to = dtype;
    return t;
}

static wf_status check_dim(wf_context *ctx, int i, const wf_dim *dim)
{
    if (dim->size < 0 || dim->grain < 1 || dim->size % dim->grain != 0)
        return wf_fail(ctx, WF_ESHAPE,
                       "dim %d has size %" PRId64 " and grain %" PRId64
                       ": the size must be a multiple of the grain, and neither negative",
                       i, dim->size, dim->grain);
    if (dim->chunks != WF_CHUNKS_1 && dim->chunks != WF_CHUNKS_8 &&
        dim->chunks != WF_CHUNKS_EACH && dim->chunks != WF_CHUNKS_EXPERTS)
        return wf_fail(ctx, WF_ESHAPE,
                       "dim %d has %d chunks, not %d, %d, %d or %d: make it with wf_dim_width, "
                       "wf_dim_chunked, wf_dim_heads, wf_dim_batch or wf_dim_experts",
                       i, dim->chunks, WF_CHUNKS_1, WF_CHUNKS_8, WF_CHUNKS_EACH,
                       WF_CHUNKS_EXPERTS);
    return WF_OK;
}

/* Returns true for a type whose rows, of all dims but the last, are codes with scales. */
static bool is_coded(const wf_tensor *t)
{
    return t->dtype == WF_NF4 || wf_dtype_is_dynamic8(t->dtype);
}

wf_status wf_tensor_shape(wf_tensor *t, int ndim, const wf_dim *dims, const wf_layout *layout)
{
    const wf_distribution *distribution = t->ctx->distribution;
    int64_t bytes = (int64_t)wf_dtype_size(t->dtype);

    if (ndim < 0 || ndim > WF_MAX_DIMS)
        return wf_fail(t->ctx, WF_ESHAPE, "a tensor has 0 to %d dims, not %d", WF_MAX_DIMS,
                       ndim);
    if (is_coded(t) && ndim < 2)
        return wf_fail(t->ctx, WF_ESHAPE, "a tensor of %d dims cannot be %s: matrices are",
                       ndim, wf_dtype_name(t->dtype));
    if (layout && !distribution)
        return wf_fail(t->ctx, WF_ELAYOUT,
                       "a layout is of a mesh, and the context has none that is open");
    t->ndim = ndim;
    t->layout = layout;
    for (int i = 0; i < ndim; i++) {
        if (check_dim(t->ctx, i, &dims[i]) != WF_OK)
            return WF_ESHAPE;
        if (dims[i].size && __builtin_mul_overflow(bytes, dims[i].size, &bytes))
            return wf_fail(t->ctx, WF_ESHAPE,
                           "dim %d of size %" PRId64 " makes the tensor larger than 2^63 bytes",
                           i, dims[i].size);
        t->dim[i] = dims[i];
        t->start[i] = 0;
        t->local[i] = dims[i].size;
        if (layout)
            distribution->part(layout, i, &dims[i], &t->start[i], &t->local[i]);
    }
    return WF_OK;
}

wf_storage *wf_storage_absent(wf_context *ctx, size_t bytes, wf_memory_kind kind)
{
    wf_storage *s = wf_blocks_take(&ctx->blocks, sizeof *s);

    if (s)
        *s = (wf_storage){.refs = 1, .bytes = bytes, .kind = kind};
    else
        wf_fail(ctx, WF_ENOMEM, "no memory for a tensor's description");
    return s;
}

static wf_storage *storage_new(wf_context *ctx, size_t bytes, wf_memory_kind kind)
{
    wf_storage *s = wf_storage_absent(ctx, bytes, kind);

    if (!s)
        return NULL;
    s->data = wf_context_take(ctx, ctx->pool, bytes, kind, NULL);
    if (!s->data) {
        wf_blocks_give(&ctx->blocks, s, sizeof *s);
        return NULL;
    }
    return s;
}

/* Gives a storage's memory back to where it is from. */
static void give_memory(wf_context *ctx, wf_storage *s)
{
    if (s->shared) {
        wf_pool_see_no_more(ctx->pool, s->bytes, s->kind);
        wf_shared_release(s->shared);
    } else {
        wf_storage_leave_file(ctx, s);
        wf_pool_give(ctx->pool, s->data, s->bytes, s->kind);
    }
    s->data = NULL;
    s->shared = NULL;
}

wf_tensor *wf_tensor_fake(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                          const wf_layout *layout)
{
    wf_tensor *t = wf_tensor_blank(ctx, dtype);

    if (t && wf_tensor_shape(t, ndim, dims, layout) != WF_OK) {
        wf_tensor_release(t);
        return NULL;
    }
    return wf_scope_adopt(ctx, t);
}

/* Makes a tensor over a storage of its own, which `make` makes. */
static wf_tensor *over_storage(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                               const wf_layout *layout, wf_memory_kind kind,
                               wf_storage *(*make)(wf_context *, size_t, wf_memory_kind))
{
    wf_tensor *t = wf_tensor_blank(ctx, dtype);

    if (!t)
        return NULL;
    t->next_alias = t;
    if (wf_tensor_shape(t, ndim, dims, layout) == WF_OK)
        t->storage = make(ctx, wf_tensor_bytes(t), kind);
    if (!t->storage) {
        wf_tensor_release(t);
        return NULL;
    }
    t->data = t->storage->data;
    return wf_scope_adopt(ctx, t);
}

wf_tensor *wf_tensor_new(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                         const wf_layout *layout, wf_memory_kind kind)
{
    return over_storage(ctx, dtype, ndim, dims, layout, kind, storage_new);
}

wf_tensor *wf_tensor_like(const wf_tensor *t, wf_memory_kind kind)
{
    bool good = t && wf_handle_check(t, "wf_tensor_like: the tensor") == WF_OK;
    wf_tensor *y = NULL;

    if (good && (y = wf_tensor_new(t->ctx, t->dtype, t->ndim, t->dim, t->layout, kind))) {
        y->rounds_to = t->rounds_to;
        y->scales = wf_tensor_retain(t->scales);
        y->partial_from = t->partial_from;
    }
    return y;
}

wf_tensor *wf_tensor_absent(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                            const wf_layout *layout)
{
    wf_tensor *t =
        over_storage(ctx, dtype, ndim, dims, layout, ctx->now.kind, wf_storage_absent);

    if (t && t->storage)
        t->storage->comes_with = t->storage; /* alone */
    return t;
}

bool wf_tensor_is_absent(const wf_tensor *t)
{
    return t->storage && !t->storage->data;
}

void wf_tensor_show(wf_tensor *t)
{
    wf_tensor *at = t;

    do {
        at->data = t->storage->data ? (char *)t->storage->data + at->offset : NULL;
        at = at->next_alias;
    } while (at != t);
}

void wf_tensor_drop(wf_tensor *t)
{
    wf_storage *s = t ? t->storage : NULL;

    if (!s || !s->data)
        return;
    give_memory(t->ctx, s);
    wf_tensor_show(t);
}

wf_status wf_tensor_take(wf_tensor *t, wf_tensor *from)
{
    if (!wf_tensor_is_absent(t) || !from->storage || wf_tensor_is_absent(from) ||
        t->storage->bytes != from->storage->bytes || t->ctx != from->ctx)
        return wf_fail(t->ctx, WF_EINVAL,
                       "a tensor takes the memory of another one only where it has none of its "
                       "own and needs just as much");
    t->storage->data = from->storage->data;
    t->storage->kind = from->storage->kind;
    t->storage->shared = from->storage->shared;
    t->storage->member = from->storage->member;
    from->storage->data = NULL;
    from->storage->shared = NULL;
    wf_tensor_show(t);
    wf_tensor_show(from);
    return WF_OK;
}

/* Makes a tensor of other dims and layout over the data of `source`; callers check sizes. */
static wf_tensor *view_of(wf_tensor *source, int ndim, const wf_dim *dims,
                          const wf_layout *layout)
{
    wf_tensor *t = wf_tensor_blank(source->ctx, source->dtype);

    if (!t)
        return NULL;
    if (wf_tensor_shape(t, ndim, dims, layout) != WF_OK) {
        wf_tensor_release(t);
        return NULL;
    }
    t->rounds_to = source->rounds_to;
    t->partial_from = source->partial_from;
    t->scales = wf_tensor_retain(source->scales);
    t->storage = source->storage;
    if (t->storage) {
        t->storage->refs++;
        t->next_alias = source->next_alias;
        source->next_alias = t;
    }
    t->offset = source->offset;
    t->data = source->data;
    return t;
}

static bool same_part(const wf_tensor *a, const wf_tensor *b)
{
    bool same = a->ndim == b->ndim && a->layout == b->layout;

    for (int d = 0; same && d < a->ndim; d++)
        same = wf_dim_equal(a->dim[d], b->dim[d]);
    return same;
}

wf_tensor *wf_tensor_view(wf_tensor *source, int ndim, const wf_dim *dims,
                          const wf_layout *layout)
{
    bool good = source && wf_handle_check(source, "wf_tensor_view: the tensor") == WF_OK;
    wf_tensor *t = good ? view_of(source, ndim, dims, layout) : NULL;

    if (!t)
        return NULL;
    if (wf_tensor_local_count(t) != wf_tensor_local_count(source)) {
        wf_fail(source->ctx, WF_ESHAPE,
                "a view of %" PRId64 " elements over %" PRId64
                ": it must have as many as the tensor that it shows",
                wf_tensor_local_count(t), wf_tensor_local_count(source));
        wf_tensor_release(t);
        return NULL;
    }
    if (is_coded(t) && !same_part(t, source)) {
        wf_fail(source->ctx, WF_EDTYPE,
                "a view of %s has the dims and the layout of the tensor that it shows, since "
                "its blocks are those of the matrix: cast it first (wf_cast)",
                wf_dtype_name(t->dtype));
        wf_tensor_release(t);
        return NULL;
    }
    return wf_scope_adopt(source->ctx, t);
}

int64_t wf_parts_of(const wf_tensor *t, int dim)
{
    return t->layout ? t->ctx->distribution->parts(t->layout, dim) : 1;
}

wf_tensor *wf_tensor_rows(wf_tensor *source, int64_t first, int64_t count)
{
    wf_dim dims[WF_MAX_DIMS];
    int64_t parts, row = (int64_t)wf_dtype_size(source ? source->dtype : WF_F32);
    char text[256];
    wf_tensor *t;

    if (!source || wf_handle_check(source, "wf_tensor_rows: the tensor") != WF_OK)
        return NULL;
    if (source->ndim > 0 && source->dim[0].chunks == WF_CHUNKS_8) {
        wf_fail(
            source->ctx, WF_ESHAPE,
            "rows of %s: its dim 0 is summed in 8 chunks of the whole, which a part of the "
            "rows has not; take rows of a batch (wf_dim_batch) or of a width (wf_dim_width)",
            wf_tensor_describe(source, text, sizeof text));
        return NULL;
    }
    if (is_coded(source)) {
        wf_fail(source->ctx, WF_EDTYPE,
                "rows of %s are no matrix of their own, whose blocks they would be: cast it "
                "first (wf_cast)",
                wf_dtype_name(source->dtype));
        return NULL;
    }
    if (source->ndim < 1 || first < 0 || count < 0 || count > source->local[0] - first) {
        wf_fail(source->ctx, WF_ESHAPE,
                "%" PRId64 " rows from %" PRId64 " on of %s: this rank has %" PRId64, count,
                first, wf_tensor_describe(source, text, sizeof text),
                source->ndim < 1 ? 0 : source->local[0]);
        return NULL;
    }
    parts = wf_parts_of(source, 0);
    memcpy(dims, source->dim, sizeof dims);
    dims[0].size = count * parts;
    t = view_of(source, source->ndim, dims, source->layout);
    if (!t)
        return NULL;
    for (int i = 1; i < t->ndim; i++)
        row *= t->local[i];
    t->start[0] = source->start[0] + first;
    t->pieces = source->pieces;
    t->offset += (size_t)(first * row);
    if (t->data)
        t->data = (char *)t->data + first * row;
    return wf_scope_adopt(source->ctx, t);
}

wf_tensor *wf_tensor_alias(wf_tensor *source)
{
    wf_tensor *t =
        source ? wf_tensor_view(source, source->ndim, source->dim, source->layout) : NULL;

    if (t)
        t->recomputed = source->recomputed;
    return t;
}

wf_tensor *wf_tensor_retain(wf_tensor *t)
{
    if (wf_handle_check(t, "wf_tensor_retain: the tensor") != WF_OK)
        return NULL;
    if (t)
        t->refs++;
    return t;
}

static void storage_release(wf_context *ctx, wf_storage *s)
{
    if (s && --s->refs == 0) {
        wf_storage_leave_later(s);
        wf_storage_leave_host(ctx, s);
        give_memory(ctx, s);
        wf_blocks_give(&ctx->blocks, s, sizeof *s);
    }
}

static void leave_ring(wf_tensor *t)
{
    wf_tensor *before = t;

    while (before->next_alias != t)
        before = before->next_alias;
    before->next_alias = t->next_alias;
}

void wf_tensor_release(wf_tensor *t)
{
    if (!t || --t->refs > 0)
        return;
    if (t->refs < 0) { /* once too often */
        wf_handle_check(t, "wf_tensor_release: the tensor");
        return;
    }
    if (t->storage)
        leave_ring(t);
    storage_release(t->ctx, t->storage);
    wf_tensor_release(t->grad);
    wf_tensor_release(t->origin);
    wf_tensor_release(t->scales);
    if (t->ctx->handles)
        wf_handle_end(t);
    else
        wf_blocks_give(&t->ctx->blocks, t, sizeof *t);
}
