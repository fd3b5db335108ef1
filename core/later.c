/* core/later.c - see the header. */
#include "core/later.h"
#include "core/context_internal.h"
#include "core/later_internal.h"
#include "core/run_kernel_internal.h"
#include <string.h>

enum { ROWS_NDIM = 3 }; /* the dims of a tensor with rows: [b, t, n]; weights have fewer */

wf_tensor *wf_later_tensor(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                           const wf_layout *layout, wf_later *later)
{
    wf_tensor *t = wf_tensor_absent(ctx, dtype, ndim, dims, layout);

    if (!t) {
        later->end(later);
        return NULL;
    }
    t->storage->comes_with = NULL;
    t->storage->later = later;
    return t;
}

void wf_storage_leave_later(wf_storage *s)
{
    if (s->later)
        s->later->end(s->later);
    s->later = NULL;
}

bool wf_is_later(const wf_tensor *t)
{
    return t && t->storage && t->storage->later;
}

wf_status wf_later_come(wf_tensor *t)
{
    wf_later *later = wf_is_later(t) ? t->storage->later : NULL;
    wf_tensor *all;

    if (!later)
        return WF_OK;
    wf_scope_open(t->ctx);
    all = t->ctx->failure.error.code == WF_OK ? later->all(later) : NULL;
    if (all && wf_tensor_take(t, all) == WF_OK) {
        t->storage->later = NULL;
        later->end(later);
    }
    wf_scope_close(t->ctx);
    return t->ctx->failure.error.code;
}

/* ---- copies of rows ---- */

static size_t row_bytes(const wf_tensor *t)
{
    return (size_t)t->local[t->ndim - 1] * wf_dtype_size(t->dtype);
}

static char *row_at(const wf_tensor *t, int64_t row)
{
    return t->data ? (char *)t->data + (size_t)row * row_bytes(t) : NULL;
}

static void copy_rows(wf_context *ctx, const wf_copy *copy)
{
    if (ctx->options.plan || copy->bytes == 0)
        return;
    if (ctx->device->memory) {
        ctx->device->memory->copy(ctx->device, copy, false, NULL);
        return;
    }
    for (int64_t r = 0; r < copy->rows; r++)
        memcpy((char *)copy->to + (size_t)r * copy->to_step,
               (const char *)copy->from + (size_t)r * copy->from_step, copy->bytes);
}

/* Describes the copy between rows of t and rows that lie one after the other. */
static wf_copy copy_of(const wf_tensor *t, const wf_row_runs *runs)
{
    const size_t row = row_bytes(t), bytes = (size_t)runs->rows * row;

    return (wf_copy){.bytes = bytes,
                     .from_step = bytes,
                     .to_step = (size_t)runs->step * row,
                     .rows = runs->parts};
}

void wf_rows_put(wf_tensor *to, const wf_row_runs *runs, const wf_tensor *from)
{
    wf_copy copy = copy_of(to, runs);

    copy.from = from->data;
    copy.to = row_at(to, runs->first);
    copy_rows(to->ctx, &copy);
}

/* Copies rows of t to `to`, one after the other. */
static void take_rows(const wf_tensor *t, const wf_row_runs *runs, void *to)
{
    wf_copy copy = copy_of(t, runs);

    copy.from_step = copy.to_step;
    copy.to_step = copy.bytes;
    copy.from = row_at(t, runs->first);
    copy.to = to;
    copy_rows(t->ctx, &copy);
}

/* ---- calls of rows ---- */

/* A call of some rows: operands and results that have rows, as tensors of these alone. */
typedef struct rows_call {
    wf_call call;
    wf_tensor in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    char *room; /* rows that do not lie one after the other */
    size_t bytes, used;
} rows_call;

static bool has_rows(const wf_tensor *t)
{
    return t->ndim == ROWS_NDIM;
}

static size_t room_of(const wf_tensor *t, const wf_row_runs *runs)
{
    size_t bytes = (size_t)(runs->parts * runs->rows) * row_bytes(t);

    return runs->parts > 1 && has_rows(t) ? (bytes + 63) / 64 * 64 : 0;
}

/* Describes rows of t as a tensor [1, rows, n] in t's memory, or in room for them. */
static void describe_rows(rows_call *c, const wf_tensor *t, const wf_row_runs *runs,
                          wf_tensor *rows)
{
    const size_t room = room_of(t, runs);

    *rows = *t;
    rows->local[0] = rows->dim[0].size = 1;
    rows->local[1] = rows->dim[1].size = runs->parts * runs->rows;
    rows->data = room ? c->room + c->used : row_at(t, runs->first);
    c->used += room;
}

/* Prepares the call of some rows of another one: with `first` as operand 0 and `into` as result
   0, where these are not NULL. */
static wf_status open_rows(rows_call *c, const wf_call *call, const wf_row_runs *runs,
                           wf_tensor *first, wf_tensor *into)
{
    wf_context *ctx = call->ctx;
    const int i0 = first ? 1 : 0, o0 = into ? 1 : 0;

    for (int i = i0; i < call->n_in; i++)
        c->bytes += room_of(call->in[i], runs);
    for (int o = o0; o < call->n_out; o++)
        c->bytes += room_of(call->out[o], runs);
    if (c->bytes) {
        c->room =
            wf_context_take(ctx, ctx->pool, c->bytes, WF_MEMORY_WORKSPACE, call->op->name);
        if (!c->room)
            return ctx->failure.error.code;
    }
    c->call.in[0] = first ? first : c->call.in[0];
    c->call.out[0] = into ? into : c->call.out[0];
    for (int i = i0; i < call->n_in; i++) {
        if (!has_rows(call->in[i]))
            continue;
        describe_rows(c, call->in[i], runs, &c->in[i]);
        if (room_of(call->in[i], runs))
            take_rows(call->in[i], runs, c->in[i].data);
        c->call.in[i] = &c->in[i];
    }
    for (int o = o0; o < call->n_out; o++) {
        describe_rows(c, call->out[o], runs, &c->out[o]);
        c->call.out[o] = &c->out[o];
    }
    return WF_OK;
}

/* Runs a call for some of its rows, as in open_rows. */
static wf_status run_rows(const wf_call *call, const wf_row_runs *runs, wf_tensor *first,
                          wf_tensor *into)
{
    wf_context *ctx = call->ctx;
    rows_call c = {.call = *call};
    wf_status status = open_rows(&c, call, runs, first, into);

    if (status != WF_OK)
        return status;
    status = wf_run_kernel(&c.call, WF_SHARE_NONE);
    for (int o = into ? 1 : 0; o < call->n_out && status == WF_OK; o++)
        if (room_of(call->out[o], runs))
            wf_rows_put(call->out[o], runs, &c.out[o]);
    wf_pool_give(ctx->pool, c.room, c.bytes, WF_MEMORY_WORKSPACE);
    return status;
}

bool wf_takes_blocks(const wf_call *call)
{
    bool takes = call->op->flags & WF_OP_ROWS && call->in[0]->offset == 0 &&
                 wf_tensor_bytes(call->in[0]) == call->in[0]->storage->bytes &&
                 has_rows(call->in[0]);

    for (int i = 1; i < call->n_in && takes; i++)
        takes = call->in[i] && !wf_is_later(call->in[i]);
    return takes && !wf_is_product_later(call->in[0]);
}

wf_status wf_run_by_blocks(const wf_call *call)
{
    wf_later *later = call->in[0]->storage->later;
    wf_status status = WF_OK;

    for (int i = 0; i < later->blocks && status == WF_OK; i++) {
        const wf_row_runs runs = later->runs(later, i);
        wf_tensor *rows = later->bring(later, i);

        status = rows ? run_rows(call, &runs, rows, NULL) : call->ctx->failure.error.code;
    }
    return status == WF_OK ? wf_later_come(call->in[0]) : status;
}

/* ---- products that are computed later ---- */

typedef struct product {
    wf_later later;
    wf_call call; /* its operands are retained; out[0] is whose rows they are */
} product;

/* Computes all rows. */
static wf_tensor *compute_all(wf_later *later)
{
    wf_call call = ((product *)later)->call;
    const wf_tensor *t = call.out[0];

    call.out[0] = wf_tensor_new(t->ctx, t->dtype, t->ndim, t->dim, t->layout, t->storage->kind);
    if (!call.out[0])
        return NULL;
    call.out[0]->rounds_to = t->rounds_to;
    return wf_run_kernel(&call, WF_SHARE_NONE) == WF_OK ? call.out[0] : NULL;
}

static void end_product(wf_later *later)
{
    product *p = (product *)later;

    for (int i = 0; i < p->call.n_in; i++)
        wf_tensor_release(p->call.in[i]);
    wf_blocks_give(&p->call.ctx->blocks, p, sizeof *p);
}

bool wf_is_product_later(const wf_tensor *t)
{
    return wf_is_later(t) && t->storage->later->end == end_product;
}

bool wf_makes_later(const wf_call *call)
{
    const wf_context *ctx = call->ctx;
    bool makes = ctx->now.results_later && ctx->options.row_block && ctx->distribution &&
                 call->op->flags & WF_OP_ROWS && call->n_out == 1 && !call->into[0] &&
                 call->attr_size == 0 && has_rows(call->in[0]);

    for (int i = 0; i < call->n_in && makes; i++)
        makes = !wf_is_later(call->in[i]);
    return makes;
}

wf_status wf_compute_later(const wf_call *call)
{
    product *p = wf_blocks_take(&call->ctx->blocks, sizeof *p);
    wf_storage *s = call->out[0]->storage;

    if (!p)
        return wf_fail(call->ctx, WF_ENOMEM, "no memory for a product that is computed later");
    *p = (product){.later = {.all = compute_all, .end = end_product}, .call = *call};
    for (int i = 0; i < call->n_in; i++)
        wf_tensor_retain(call->in[i]);
    s->comes_with = NULL;
    s->later = &p->later;
    return WF_OK;
}

wf_status wf_product_rows(wf_tensor *t, const wf_row_runs *runs, wf_tensor *into)
{
    const product *p = (const product *)t->storage->later;

    return run_rows(&p->call, runs, NULL, into);
}

bool wf_results_later(wf_context *ctx, bool later)
{
    bool last = ctx->now.results_later;

    ctx->now.results_later = later;
    return last;
}
