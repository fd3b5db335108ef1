/* core/tensor_facts.c - what follows from a tensor's description: types, counts, chunks, its
   text. */
#include "core/context_internal.h"
#include "core/dtype.h"
#include "core/numerics/dynamic8.h"
#include "core/nf4_tensor.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t wf_dtype_size(wf_dtype dtype)
{
    static const size_t size[] = {
#define DTYPE(name, type, ...) [WF_##name] = sizeof(type),
#include "core/dtype.def"
#undef DTYPE
    };

    return size[dtype];
}

const char *wf_dtype_name(wf_dtype dtype)
{
    static const char *const name[] = {
#define DTYPE(name, type, text, ...) [WF_##name] = text,
#include "core/dtype.def"
#undef DTYPE
    };

    return (unsigned)dtype < WF_DTYPES ? name[dtype] : "unknown type";
}

wf_dtype_kind wf_dtype_kind_of(wf_dtype dtype)
{
    static const wf_dtype_kind kinds[] = {
#define DTYPE(name, type, text, word, kind, file) [WF_##name] = WF_DTYPE_##kind,
#include "core/dtype.def"
#undef DTYPE
    };

    return (unsigned)dtype < WF_DTYPES ? kinds[dtype] : WF_DTYPE_OTHER;
}

const char *wf_dtype_word(wf_dtype dtype)
{
    static const char *const words[] = {
#define DTYPE(name, type, text, word, ...) [WF_##name] = word,
#include "core/dtype.def"
#undef DTYPE
    };

    return (unsigned)dtype < WF_DTYPES ? words[dtype] : "";
}

wf_dtype wf_dtype_find(const char *word)
{
    int i = 0;

    while (i < WF_DTYPES && (!*word || strcmp(wf_dtype_word((wf_dtype)i), word) != 0))
        i++;
    return (wf_dtype)i;
}

bool wf_tensor_is_fake(const wf_tensor *t)
{
    return !t->storage;
}

bool wf_tensor_is_partial(const wf_tensor *t)
{
    return t->layout && t->ctx->distribution && t->ctx->distribution->partial(t->layout);
}

wf_tensor *wf_completed(wf_tensor *t)
{
    const wf_distribution *d = t ? t->ctx->distribution : NULL;

    return t && wf_tensor_is_partial(t) ? d->move(t, d->complete(t->ctx->mesh, t->layout)) : t;
}

wf_tensor *wf_resplit(wf_tensor *t, int from, int to)
{
    const wf_distribution *d = t ? t->ctx->distribution : NULL;

    if (!d || wf_parts_of(t, from) == 1)
        return t;
    return d->move(t, d->resplit(t->ctx->mesh, t->layout, from, to));
}

int64_t wf_tensor_count(const wf_tensor *t)
{
    int64_t count = 1;

    for (int i = 0; i < t->ndim; i++)
        count *= t->dim[i].size;
    return count;
}

int64_t wf_tensor_local_count(const wf_tensor *t)
{
    int64_t count = 1;

    for (int i = 0; i < t->ndim; i++)
        count *= t->local[i];
    return count;
}

size_t wf_local_bytes(wf_dtype dtype, int ndim, const wf_dim *dims, const int64_t *start,
                      const int64_t *local)
{
    size_t bytes = wf_dtype_size(dtype);

    if (dtype == WF_NF4) {
        const wf_nf4_part part = wf_nf4_part_at(ndim, dims, start, local);

        return (size_t)part.rows * wf_nf4_row_bytes(&part);
    }
    if (wf_dtype_is_dynamic8(dtype)) {
        const int last = ndim - 1;
        const wf_dynamic8_row row =
            wf_dynamic8_row_of(dims[last].size, dims[last].grain, start[last], local[last]);

        bytes = wf_dynamic8_row_bytes(&row);
        for (int i = 0; i < last; i++)
            bytes *= (size_t)local[i];
        return bytes;
    }
    for (int i = 0; i < ndim; i++)
        bytes *= (size_t)local[i];
    return bytes;
}

size_t wf_tensor_bytes(const wf_tensor *t)
{
    return wf_local_bytes(t->dtype, t->ndim, t->dim, t->start, t->local);
}

char *wf_tensor_describe(const wf_tensor *t, char *text, size_t size)
{
    size_t n;

    if (!t) {
        snprintf(text, size, "(none)");
        return text;
    }
    n = (size_t)snprintf(text, size, "%s [", wf_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, i ? "," : "", t->dim[i].size);
    if (n < size)
        n += (size_t)snprintf(text + n, size - n, "]");
    if (t->layout && t->ctx->distribution && n + 1 < size) {
        text[n++] = ' ';
        t->ctx->distribution->print(t->layout, text + n, size - n);
    }
    return text;
}

int wf_chunk_cuts(const wf_tensor *t, int dim, int64_t at[WF_MAX_CHUNKS + 1])
{
    const wf_dim *d = &t->dim[dim];
    int64_t start = t->start[dim], local = t->local[dim];
    int chunks = d->chunks == WF_CHUNKS_8 ? wf_context_chunks(t->ctx) : 1;

    at[0] = 0;
    at[chunks] = local;
    for (int i = 1; i <= chunks && chunks > 1; i++) {
        int64_t offset = wf_cut(d->size, d->grain, chunks, i) - start;

        at[i] = offset < 0 ? 0 : offset > local ? local : offset;
    }
    return chunks;
}

void wf_tensor_comes_with(wf_tensor *t, const void *group)
{
    if (t && t->storage && t->storage->comes_with)
        t->storage->comes_with = group;
}

void wf_tensor_changed(wf_tensor *t, const char *what)
{
    if (t->storage) {
        t->storage->version++;
        t->storage->changed_by = what;
    }
}

uint32_t wf_tensor_version(const wf_tensor *t)
{
    return t->storage ? t->storage->version : 0;
}
