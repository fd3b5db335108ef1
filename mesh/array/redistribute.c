/*
 * mesh/array/redistribute.c - borders: tensors moved from layout to layout as an op on the
 * tape, and their gradients, which move back.
 */
#include "mesh/array/by_blocks.h"
#include "mesh/array/move_internal.h"
#include <stdio.h>
#include <string.h>

/* The layouts that the gradient of a border goes back to. */
typedef struct border {
    const wf_layout *from[WF_MAX_OUTPUTS];
    int ndim[WF_MAX_OUTPUTS];
    unsigned axes; /* those that it moves, a bit each, or 0 for all */
    bool blocks;   /* it moves rows in blocks, beside products */
} border;

const wf_layout *wf_layout_as_on(wf_mesh *mesh, unsigned axes, const wf_layout *like,
                                 const wf_layout *layout, int after)
{
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (axes >> axis & 1)
            layout = wf_layout_whole(mesh, layout, axis);
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++) {
        int dim = axes >> axis & 1 ? wf_layout_split_dim(like, axis) : -1;

        layout = dim < 0 ? layout : wf_layout_split(mesh, layout, dim + after, axis);
    }
    return layout;
}

/* Returns the layout to which a gradient goes: the dual of that of x, on the border's axes.
   That of a vector may have a row per sequence in front of its dim. */
static const wf_layout *gradient_layout(const wf_tensor *grad, const border *b, int i)
{
    wf_mesh *mesh = wf_mesh_of(grad->ctx);

    if (!b->axes)
        return wf_layout_dual(mesh, b->from[i]);
    return wf_layout_as_on(mesh, b->axes, b->from[i], grad->layout, grad->ndim - b->ndim[i]);
}

static bool has_rows(const wf_tensor *grad, const border *b, int i)
{
    return grad->ndim == b->ndim[i] + 1;
}

static wf_tensor *sum_sequences(wf_tensor *rows)
{
    return wf_apply(wf_context_device(rows->ctx)->batch_sum, NULL, 0, 1, rows);
}

/* Sums rows over the ranks that share a sequence, and then over sequences: the order in which a
   plan sums the gradients of vectors (parallel/shard/gradient_reduce.c). */
static wf_status sum_rows(const border *b, int n, const int *at, wf_tensor **grad)
{
    wf_tensor *x[WF_MAX_OUTPUTS];
    const wf_layout *to[WF_MAX_OUTPUTS];
    int rows = 0, of[WF_MAX_OUTPUTS];

    for (int i = 0; i < n; i++) {
        if (!has_rows(grad[i], b, at[i]))
            continue;
        x[rows] = grad[i];
        to[rows] = wf_layout_dual(wf_mesh_of(grad[i]->ctx), grad[i]->layout);
        of[rows++] = i;
    }
    if (rows && wf_redistribute_many(rows, x, to, x) != WF_OK)
        return x[0] ? wf_context_status(x[0]->ctx) : WF_EINVAL;
    for (int i = 0; i < rows; i++) {
        grad[of[i]] = sum_sequences(x[i]);
        if (!grad[of[i]])
            return WF_EINVAL;
    }
    return WF_OK;
}

/* A redistribution that is asked for. */
typedef struct request {
    unsigned axes; /* as in border */
    bool shares;   /* results may be memory that members of a group share: they are only read */
    bool blocks;   /* as in border */
    int count;
    wf_tensor *const *x, *const *via; /* x is recorded; via is moved instead of it */
    const wf_layout *const *to;
} request;

static wf_status redistribute(const request *r, wf_tensor **y);

/* Gives a border's gradients to its operands. One on some axes hands rows on where a leaf or
   another border takes them. */
static void border_backward(wf_gradient *g)
{
    const border *b = g->attr;
    wf_tensor *x[WF_MAX_OUTPUTS], *y[WF_MAX_OUTPUTS];
    const wf_layout *to[WF_MAX_OUTPUTS];
    int n = 0, at[WF_MAX_OUTPUTS];

    for (int i = 0; i < g->n_in; i++)
        if (g->want[i] && g->dout[i]) {
            at[n] = i;
            x[n++] = g->dout[i];
        }
    if (!b->axes && sum_rows(b, n, at, x) != WF_OK)
        return;
    for (int i = 0; i < n; i++)
        to[i] = gradient_layout(x[i], b, at[i]);
    if (n && redistribute(&(request){0, b->axes != 0, b->blocks, n, x, x, to}, y) == WF_OK)
        for (int i = 0; i < n; i++)
            g->din[at[i]] =
                g->summed[at[i]] && has_rows(y[i], b, at[i]) ? sum_sequences(y[i]) : y[i];
}

static const wf_op border_op = {.name = "redistribute",
                                .signature = "",
                                .flags = WF_OP_BORDER | WF_OP_PASS | WF_OP_LATER,
                                .backward = border_backward};

/* Refuses the gradient of a maximum over ranks: only the rank that had it would get one, and it
   is not recorded. */
static wf_status check_maximum(const wf_tensor *x, const wf_layout *to)
{
    char text[256];

    if (!x->layout || !x->layout->max || !x->requires_grad || !wf_context_recording(x->ctx) ||
        (to && (x->layout->max & ~to->max) == 0))
        return WF_OK;
    return wf_fail(x->ctx, WF_EUNSUPPORTED,
                   "redistribute: a maximum over ranks has no gradient, but %s wants one: pass "
                   "it through wf_detach first",
                   wf_tensor_describe(x, text, sizeof text));
}

/* Returns the context of the operands; NULL where one is missing or an error stands. */
static wf_context *operands_ready(int count, wf_tensor *const *x)
{
    for (int i = 0; i < count; i++)
        if (!x[i] || wf_handle_check(x[i], "redistribute: a tensor") != WF_OK)
            return NULL;
    if (count < 1 || wf_context_status(x[0]->ctx) != WF_OK)
        return NULL;
    if (count > WF_MAX_OUTPUTS) {
        wf_fail(x[0]->ctx, WF_EINVAL, "redistribute: at most %d tensors at once, not %d",
                WF_MAX_OUTPUTS, count);
        return NULL;
    }
    return x[0]->ctx;
}

/* Returns true where these axes are the innermost of each dim, in the order of the mesh. */
static bool are_innermost(const wf_layout *layout, unsigned axes)
{
    for (int d = 0; d < WF_MAX_DIMS; d++) {
        int axis[WF_MAX_AXES], n = wf_layout_dim_axes(layout, d, axis), last = -1;

        for (int i = 0; i < n; i++) {
            if (axes >> axis[i] & 1 ? axis[i] < last : last >= 0)
                return false;
            last = axes >> axis[i] & 1 ? axis[i] : last;
        }
    }
    return true;
}

/* Returns true where two layouts are alike without these axes, and split by nothing inside of
   them. */
static bool differ_on(wf_mesh *mesh, unsigned axes, const wf_layout *from, const wf_layout *to)
{
    return wf_layout_as_on(mesh, axes, NULL, from, 0) ==
               wf_layout_as_on(mesh, axes, NULL, to, 0) &&
           are_innermost(from, axes) && are_innermost(to, axes);
}

/* Prints the names of axes, "ep and tp", for an error. */
static char *print_axes(const wf_mesh *mesh, unsigned axes, char *text, size_t size)
{
    size_t n = 0;

    text[0] = 0;
    for (int axis = 0; axis < wf_mesh_axes(mesh) && n < size; axis++)
        if (axes >> axis & 1)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " and " : "",
                                  wf_mesh_axis_name(mesh, axis));
    return text;
}

static wf_status check_axes(wf_context *ctx, const request *r)
{
    char a[192], b[192], axes[96];

    for (int i = 0; i < r->count; i++)
        if (wf_layout_fits(ctx, r->to[i], r->x[i]->ndim) != WF_OK)
            return wf_context_status(ctx);
        else if (r->axes && r->to[i] != r->x[i]->layout &&
                 !differ_on(wf_mesh_of(ctx), r->axes, r->x[i]->layout, r->to[i]))
            return wf_fail(ctx, WF_ELAYOUT,
                           "a border on axis %s alone: tensor %d is %s and is to be %s, which "
                           "moves it on other axes too; take wf_redistribute, or a border for "
                           "each axis, the innermost first",
                           print_axes(wf_mesh_of(ctx), r->axes, axes, sizeof axes), i,
                           wf_layout_print(r->x[i]->layout, a, sizeof a),
                           wf_layout_print(r->to[i], b, sizeof b));
    return WF_OK;
}

static wf_status nothing(int count, wf_tensor **y, wf_status status)
{
    memset(y, 0, (size_t)count * sizeof *y);
    return status;
}

/* Moves the operands of a request. */
static wf_status move(wf_context *ctx, const request *r, wf_tensor *const *via, wf_tensor **y)
{
    y[0] = r->blocks && r->count == 1 ? wf_move_by_blocks(via[0], r->to[0]) : NULL;
    if (y[0] || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    return (r->shares ? wf_move_border : wf_move_run)(ctx, r->count, via, r->to, y);
}

static wf_status redistribute(const request *r, wf_tensor **y)
{
    wf_call call = {.op = &border_op, .n_in = r->count, .n_out = r->count};
    wf_context *ctx = operands_ready(r->count, r->x);
    wf_tensor *via[WF_MAX_OUTPUTS];
    border b = {.axes = r->axes, .blocks = r->blocks};
    size_t bytes = (size_t)r->count * sizeof *y;

    if (!ctx)
        return nothing(r->count, y,
                       r->count > 0 && r->x[0] ? wf_context_status(r->x[0]->ctx) : WF_EINVAL);
    memcpy(call.in, r->x, bytes);
    memcpy(via, r->via, bytes);
    if (check_axes(ctx, r) != WF_OK)
        return nothing(r->count, y, wf_context_status(ctx));
    if (wf_mesh_ranks(wf_mesh_of(ctx)) == 1 && (r->axes || !wf_context_recording(ctx))) {
        memcpy(y, via, bytes);
        return WF_OK;
    }
    for (int i = 0; i < r->count; i++) {
        b.from[i] = call.in[i]->layout;
        b.ndim[i] = call.in[i]->ndim;
        check_maximum(call.in[i], r->to[i]);
    }
    if (wf_context_status(ctx) != WF_OK || move(ctx, r, via, call.out) != WF_OK)
        return nothing(r->count, y, wf_context_status(ctx));
    for (int i = 0; i < r->count; i++)
        if (call.out[i] == via[i])
            call.out[i] = wf_tensor_alias(via[i]);
    call.ctx = ctx;
    call.attr = &b;
    call.attr_size = sizeof b;
    if (wf_context_status(ctx) == WF_OK)
        wf_tape_record(&call);
    memcpy(y, call.out, bytes);
    return wf_context_status(ctx);
}

wf_status wf_border_over(unsigned axes, int count, wf_tensor *const *x, wf_tensor *const *via,
                         const wf_layout *const *to, wf_tensor **y)
{
    return redistribute(&(request){axes, axes != 0, false, count, x, via, to}, y);
}

wf_tensor *wf_border_by_blocks(unsigned axes, wf_tensor *x, const wf_layout *to)
{
    wf_tensor *y = NULL;

    redistribute(&(request){axes, axes != 0, true, 1, &x, &x, &to}, &y);
    return y;
}

/* Returns the bit of an axis, 0 for -1 and for what is none, which is reported. */
static unsigned bit_of(const wf_context *ctx, int axis)
{
    if (wf_mesh_of(ctx) && !wf_mesh_has_axis(wf_mesh_of(ctx), axis))
        return 0;
    return axis >= 0 ? 1u << axis : 0;
}

wf_status wf_border(int axis, int count, wf_tensor *const *x, const wf_layout *const *to,
                    wf_tensor **y)
{
    unsigned axes = count > 0 && x[0] ? bit_of(x[0]->ctx, axis) : 0;

    return redistribute(&(request){axes, axes != 0, false, count, x, x, to}, y);
}

wf_tensor *wf_border_handle(int axis, wf_tensor *x, wf_tensor *y)
{
    border b = {.axes = x ? bit_of(x->ctx, axis) : 0};
    wf_call call = {
        .op = &border_op, .n_in = 1, .in = {x}, .n_out = 1, .attr = &b, .attr_size = sizeof b};

    if (!x || !y || x == y || wf_context_status(x->ctx) != WF_OK)
        return x ? y : NULL;
    call.ctx = x->ctx;
    call.out[0] = wf_tensor_alias(y);
    if (!call.out[0])
        return NULL;
    b.from[0] = x->layout;
    b.ndim[0] = x->ndim;
    if (y->origin)
        wf_keep_origin(call.out[0], x);
    return wf_tape_record(&call) == WF_OK ? call.out[0] : NULL;
}

void wf_keep_origin(wf_tensor *y, wf_tensor *x)
{
    if (y && x && y != x && y->layout != x->layout && !y->origin)
        y->origin = wf_tensor_retain(x);
}

wf_status wf_redistribute_many(int count, wf_tensor *const *x, const wf_layout *const *to,
                               wf_tensor **y)
{
    return redistribute(&(request){0, false, false, count, x, x, to}, y);
}

wf_tensor *wf_redistribute(wf_tensor *x, const wf_layout *to)
{
    wf_tensor *y = NULL;

    wf_redistribute_many(1, &x, &to, &y);
    return y;
}

wf_tensor *wf_move_one(wf_tensor *x, const wf_layout *to)
{
    wf_tensor *y = NULL;

    wf_move_border(x->ctx, 1, &x, &to, &y);
    return y;
}

wf_tensor *wf_whole(wf_tensor *x)
{
    return wf_redistribute(x, NULL);
}
