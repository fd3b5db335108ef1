/*
 * mesh/array/rows.c - which rows of a tensor the owners of their indices take, counted and
 * packed. Every member has the indices of all rows, so each knows what it is sent, and where it
 * belongs, before it comes.
 */
#include "mesh/array/rows_internal.h"
#include "mesh/comm/transport_internal.h"
#include <math.h>
#include <string.h>

/* Returns the rank at these coordinates along the owners' axes, and at this rank's along all
   others. */
static int rank_at(const wf_rows *r, int member, int part)
{
    const wf_mesh *mesh = wf_mesh_of(r->ctx);
    int rank =
        mesh->rank + (member - r->me) * wf_grid_stride(mesh->n_axes, mesh->size, r->of->axis);

    return r->parts == 1 ? rank
                         : rank + (part - r->part) *
                                      wf_grid_stride(mesh->n_axes, mesh->size, r->of->inner);
}

static wf_row_range range_of(const wf_rows *r, const wf_layout *layout, int i,
                             const wf_dim *dim, int rank)
{
    int64_t start = 0, local = dim->size;

    if (layout)
        wf_layout_part(wf_mesh_of(r->ctx), layout, i, dim, rank, &start, &local);
    return (wf_row_range){start, start + local};
}

wf_row_range wf_rows_tokens(const wf_rows *r, const wf_tensor *x, int q)
{
    wf_mesh *mesh = wf_mesh_of(r->ctx);
    const wf_layout *layout =
        r->parts == 1 ? NULL : wf_layout_split(mesh, NULL, 1, r->of->inner);

    return range_of(r, layout, 1, &x->dim[1], rank_at(r, r->me, q));
}

/* Checks what can be moved, of a number of sequences: WF_ELAYOUT, WF_EUNSUPPORTED. */
static wf_status check(wf_context *ctx, const wf_row_owners *o, const wf_tensor *x,
                       int64_t sequences)
{
    char text[256];

    if (wf_context_device(ctx)->memory)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "rows of tensors on device %s are not exchanged yet: gather them, or "
                       "use device cpu",
                       wf_context_device(ctx)->name);
    if (x->ndim == 3 && o->index->ndim == 3 && x->dim[0].size == sequences &&
        o->index->dim[1].size == x->dim[1].size && o->index->dtype == WF_F32 &&
        wf_layout_split_dim(o->index->layout, o->axis) < 0 &&
        o->index->local[1] == x->dim[1].size)
        return WF_OK;
    return wf_fail(ctx, WF_ELAYOUT,
                   "rows of %s go to owners of indices that are [batch, tokens, k] of the same "
                   "rows, whole over axis %s",
                   wf_tensor_describe(x, text, sizeof text),
                   wf_mesh_axis_name(wf_mesh_of(ctx), o->axis));
}

static wf_status take_lists(wf_rows *r)
{
    size_t members = (size_t)r->members,
           longest = members > (size_t)r->parts ? members + 1 : (size_t)r->parts + 1;
    char *at;

    r->bytes = 2 * members * sizeof(wf_row_range) + (2 * longest + members) * sizeof(int64_t);
    at = wf_blocks_take(wf_context_blocks(r->ctx), r->bytes);
    if (!at)
        return wf_fail(r->ctx, WF_ENOMEM, "no memory for lists of %d ranks' rows", r->members);
    r->owned = (wf_row_range *)at;
    r->taken = r->owned + members;
    r->cuts = (int64_t *)(r->taken + members);
    r->out = r->cuts + longest;
    r->at = r->out + longest;
    return WF_OK;
}

/* Returns those of them that move. */
static wf_row_range moving(const wf_rows *r, wf_row_range sequences)
{
    if (!r->wave)
        return sequences;
    if (sequences.begin < r->wave->first)
        sequences.begin = r->wave->first;
    if (sequences.end > r->wave->end)
        sequences.end = r->wave->end;
    if (sequences.end < sequences.begin)
        sequences.end = sequences.begin;
    return sequences;
}

wf_status wf_rows_open(wf_rows *r, const wf_row_owners *owners, const wf_row_wave *wave,
                       const wf_tensor *x, bool joint)
{
    wf_context *ctx = x->ctx;
    wf_mesh *mesh = wf_mesh_of(ctx);
    const wf_tensor *index = owners->index;
    const wf_layout *split = wf_layout_split(mesh, index->layout, 0, owners->axis);

    *r = (wf_rows){.ctx = ctx, .of = owners, .wave = wave, .parts = 1};
    if (check(ctx, owners, x, (joint && wave ? wave->batch : index->dim[0]).size) != WF_OK)
        return wf_context_status(ctx);
    r->members = wf_mesh_size(mesh, owners->axis);
    r->me = wf_mesh_coordinate(mesh, owners->axis);
    if (wf_mesh_size(mesh, owners->inner) > 1) {
        r->parts = wf_mesh_size(mesh, owners->inner);
        r->part = wf_mesh_coordinate(mesh, owners->inner);
    }
    r->index = wf_context_dry_run(ctx) ? NULL : index->data;
    r->k = index->local[2];
    r->tokens = x->dim[1].size;
    r->here = (wf_row_range){x->start[1], x->start[1] + x->local[1]};
    r->d = x->dim[2].size;
    if (take_lists(r) != WF_OK)
        return wf_context_status(ctx);
    for (int m = 0; m < r->members; m++) {
        int first = rank_at(r, m, joint ? 0 : r->part);
        int last = rank_at(r, m, joint ? r->parts - 1 : r->part);

        r->owned[m] = range_of(r, split, 0, &index->dim[0], first);
        r->owned[m].begin -= index->start[0];
        r->owned[m].end -= index->start[0];
        if (m == r->me)
            r->first = r->owned[m].begin;
        r->owned[m] = moving(r, r->owned[m]);
        r->taken[m].begin = range_of(r, owners->layout, 0, &owners->dim, first).begin;
        r->taken[m].end = range_of(r, owners->layout, 0, &owners->dim, last).end;
    }
    return wf_context_status(ctx);
}

void wf_rows_close(wf_rows *r)
{
    if (r->bytes)
        wf_blocks_give(wf_context_blocks(r->ctx), r->owned, r->bytes);
    r->bytes = 0;
}

double wf_rows_share(int64_t owned, int64_t all, int64_t k)
{
    double none = 1;

    for (int64_t i = 0; i < k && i < all; i++)
        none *= all - owned > i ? (double)(all - owned - i) / (double)(all - i) : 0;
    return 1 - none;
}

int64_t wf_rows_count(const wf_rows *r, wf_row_block block, wf_row_range taken)
{
    int64_t n = 0, length = block.tokens.end - block.tokens.begin;

    if (!r->index)
        return llround((double)((block.sequences.end - block.sequences.begin) * length) *
                       wf_rows_share(taken.end - taken.begin, r->of->dim.size, r->k));
    for (int64_t s = block.sequences.begin; s < block.sequences.end; s++)
        for (int64_t t = block.tokens.begin; t < block.tokens.end; t++)
            n += wf_row_is_taken(r, s * r->tokens + t, taken);
    return n;
}

char *wf_rows_pack(const wf_rows *r, wf_row_block block, wf_row_range taken, const char *from,
                   int64_t first, size_t row, char *to)
{
    const int64_t length = r->here.end - r->here.begin;

    for (int64_t s = block.sequences.begin; s < block.sequences.end && r->index; s++)
        for (int64_t t = block.tokens.begin; t < block.tokens.end; t++)
            if (wf_row_is_taken(r, s * r->tokens + t, taken)) {
                memcpy(to, from + (size_t)((s - first) * length + t - r->here.begin) * row,
                       row);
                to += row;
            }
    return to;
}

wf_tensor *wf_rows_room(const wf_rows *r, wf_dtype dtype, int64_t rows)
{
    const wf_dim dims[] = {wf_dim_width(rows > 0 ? rows : 1), wf_dim_width(r->d)};

    return wf_tensor_new(r->ctx, dtype, 2, dims, NULL, wf_context_memory_kind_now(r->ctx));
}

/* Returns a collective of one buffer, which is about to begin over a group. */
static wf_collective collective_of(const wf_rows *r, wf_comm *comm, wf_collective_kind kind,
                                   wf_dtype dtype, const wf_comm_buffer *buffer)
{
    wf_comm_position(comm, wf_context_step(r->ctx), wf_context_path(r->ctx));
    return (wf_collective){.kind = kind,
                           .reduction = WF_REDUCE_SUM,
                           .element = wf_dtype_size(dtype),
                           .n_buffers = 1,
                           .buffers = buffer,
                           .at_once = true};
}

wf_status wf_rows_run(const wf_rows *r, int axis, wf_collective_kind kind, wf_dtype dtype,
                      const wf_comm_buffer *buffer)
{
    wf_comm *comm = wf_mesh_of(r->ctx)->comm[axis];
    const wf_collective what = collective_of(r, comm, kind, dtype, buffer);
    wf_error error = {WF_OK, ""};

    if (wf_collective_run(comm, &what, &error) != WF_OK)
        return wf_fail(r->ctx, error.code, "%s", error.text);
    return WF_OK;
}

wf_status wf_rows_post(wf_rows_flight *f, wf_dtype dtype, void *out, bool background)
{
    wf_context *ctx = f->rows.ctx;
    wf_comm *comm = wf_mesh_of(ctx)->comm[f->owners.axis];
    const wf_comm_buffer buffer = {
        .in = f->sent->data, .out = out, .cuts = f->rows.cuts, .out_cuts = f->rows.out};
    wf_collective what = collective_of(&f->rows, comm, WF_ALL_TO_ALL, dtype, &buffer);
    wf_error error = {WF_OK, ""};

    what.at_once = !background;
    if (wf_collective_begin(comm, &what, &f->pending, &error) != WF_OK)
        return wf_fail(ctx, error.code, "%s", error.text);
    return WF_OK;
}
