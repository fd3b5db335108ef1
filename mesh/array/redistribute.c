/*
 * mesh/array/redistribute.c - borders: tensors moved from layout to layout as an op on the
 * tape, and their gradients, which move back.
 */
#include "mesh/array/move_internal.h"
#include <stdlib.h>
#include <string.h>

/* The layouts that the gradient of a border goes back to. */
typedef struct border {
    const wf_layout *from[WF_MAX_OUTPUTS];
    int ndim[WF_MAX_OUTPUTS];
    int axis; /* the one that it moves, or -1 for all */
} border;

/* Returns the layout to which a gradient goes: the dual of that of x, on the border's axes.
   That of a vector may have a row per sequence in front of its dim. */
static const wf_layout *gradient_layout(const wf_tensor *grad, const border *b, int i)
{
    wf_mesh *mesh = wf_mesh_of(grad->ctx);
    const wf_layout *to;
    int dim;

    if (b->axis < 0)
        return wf_layout_dual(mesh, b->from[i]);
    to = wf_layout_whole(mesh, grad->layout, b->axis);
    dim = wf_layout_split_dim(b->from[i], b->axis);
    return dim < 0 ? to : wf_layout_split(mesh, to, dim + grad->ndim - b->ndim[i], b->axis);
}

static bool has_rows(const wf_tensor *grad, const border *b, int i)
{
    return grad->ndim == b->ndim[i] + 1;
}

static wf_tensor *sum_sequences(wf_tensor *rows)
{
    return wf_apply(wf_context_device(rows->ctx)->batch_sum, NULL, 0, 1, rows);
}

/* Rows are summed over the ranks that share a sequence, and then over sequences: the order in
   which a plan sums the gradients of vectors (parallel/shard/gradient_reduce.c). */
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

static wf_status redistribute(int axis, bool shares, int count, wf_tensor *const *x,
                              const wf_layout *const *to, wf_tensor **y);

/* A border on one axis hands rows on where a leaf or another border takes them. */
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
    if (b->axis < 0 && sum_rows(b, n, at, x) != WF_OK)
        return;
    for (int i = 0; i < n; i++)
        to[i] = gradient_layout(x[i], b, at[i]);
    if (n && redistribute(-1, b->axis >= 0, n, x, to, y) == WF_OK)
        for (int i = 0; i < n; i++)
            g->din[at[i]] =
                g->summed[at[i]] && has_rows(y[i], b, at[i]) ? sum_sequences(y[i]) : y[i];
}

static const wf_op border_op = {.name = "redistribute",
                                .signature = "",
                                .flags = WF_OP_BORDER | WF_OP_PASS,
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

/* The context of the operands; NULL where one is missing or an error stands. */
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

/* Without the axis both are alike, and with it they are that and the axis behind it. */
static bool differ_on(wf_mesh *mesh, int axis, const wf_layout *from, const wf_layout *to)
{
    const wf_layout *rest = wf_layout_whole(mesh, from, axis);
    const wf_layout *of[] = {from, to};

    for (int i = 0; i < 2; i++) {
        int dim = wf_layout_split_dim(of[i], axis);

        if (rest != wf_layout_whole(mesh, of[i], axis) ||
            (dim >= 0 && wf_layout_split(mesh, rest, dim, axis) != of[i]))
            return false;
    }
    return true;
}

static wf_status check_axis(wf_context *ctx, int axis, int count, wf_tensor *const *x,
                            const wf_layout *const *to)
{
    char a[192], b[192];

    if (!wf_mesh_has_axis(wf_mesh_of(ctx), axis))
        return wf_context_status(ctx);
    for (int i = 0; i < count; i++)
        if (wf_layout_fits(ctx, to[i], x[i]->ndim) != WF_OK)
            return wf_context_status(ctx);
        else if (to[i] != x[i]->layout &&
                 !differ_on(wf_mesh_of(ctx), axis, x[i]->layout, to[i]))
            return wf_fail(ctx, WF_ELAYOUT,
                           "a border on axis %s alone: tensor %d is %s and is to be %s, which "
                           "moves it on other axes too; take wf_redistribute, or a border for "
                           "each axis, the innermost first",
                           wf_mesh_axis_name(wf_mesh_of(ctx), axis), i,
                           wf_layout_print(x[i]->layout, a, sizeof a),
                           wf_layout_print(to[i], b, sizeof b));
    return WF_OK;
}

/* Redistributes and records. shares: the results may be memory that members of a group share,
   since they are only read. */
static wf_status redistribute(int axis, bool shares, int count, wf_tensor *const *x,
                              const wf_layout *const *to, wf_tensor **y)
{
    wf_call call = {.op = &border_op, .n_in = count, .n_out = count};
    wf_context *ctx = operands_ready(count, x);
    border b = {.axis = axis};

    if (!ctx) {
        wf_status status = count > 0 && x[0] ? wf_context_status(x[0]->ctx) : WF_EINVAL;

        memset(y, 0, (size_t)count * sizeof *y);
        return status;
    }
    memcpy(call.in, x, (size_t)count * sizeof *x);
    if (check_axis(ctx, axis, count, x, to) != WF_OK) {
        memset(y, 0, (size_t)count * sizeof *y);
        return wf_context_status(ctx);
    }
    if (wf_mesh_ranks(wf_mesh_of(ctx)) == 1 && (axis >= 0 || !wf_context_recording(ctx))) {
        memcpy(y, call.in, (size_t)count * sizeof *y);
        return WF_OK;
    }
    for (int i = 0; i < count; i++) {
        b.from[i] = x[i]->layout;
        b.ndim[i] = x[i]->ndim;
        check_maximum(x[i], to[i]);
    }
    if (wf_context_status(ctx) != WF_OK ||
        (shares ? wf_move_border : wf_move_run)(ctx, count, call.in, to, call.out) != WF_OK) {
        memset(y, 0, (size_t)count * sizeof *y);
        return wf_context_status(ctx);
    }
    for (int i = 0; i < count; i++)
        if (call.out[i] == call.in[i])
            call.out[i] = wf_tensor_alias(call.in[i]);
    call.ctx = ctx;
    call.attr = &b;
    call.attr_size = sizeof b;
    if (wf_context_status(ctx) == WF_OK)
        wf_tape_record(&call);
    memcpy(y, call.out, (size_t)count * sizeof *y);
    return wf_context_status(ctx);
}

wf_status wf_border(int axis, int count, wf_tensor *const *x, const wf_layout *const *to,
                    wf_tensor **y)
{
    return redistribute(axis, axis >= 0, count, x, to, y);
}

wf_tensor *wf_border_handle(int axis, wf_tensor *x, wf_tensor *y)
{
    border b = {.axis = axis};
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
    return redistribute(-1, false, count, x, to, y);
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
