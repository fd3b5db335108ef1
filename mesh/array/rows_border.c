/*
 * mesh/array/rows_border.c - rows that move to the owners of their indices, or are combined at
 * their owning ranks, as an op on the tape, whose gradient is the opposite move; or as two ops,
 * of which the second waits, so that what is computed in between hides the move, forward and
 * backward.
 */
#include "core/beside.h"
#include "mesh/array/rows_internal.h"

/* Describes a move to its gradient, which moves back. */
typedef struct rows_border {
    const wf_layout *from, *owned;
    wf_dim dim;
    int axis, inner;
} rows_border;

static unsigned axes_of(const rows_border *b)
{
    return 1u << b->axis | (b->inner >= 0 ? 1u << b->inner : 0);
}

static rows_border border_of(const wf_row_owners *o, const wf_layout *from)
{
    return (rows_border){
        .from = from, .owned = o->layout, .dim = o->dim, .axis = o->axis, .inner = o->inner};
}

static wf_row_owners owners_of(const rows_border *b, wf_tensor *index)
{
    return (wf_row_owners){b->axis, b->inner, index, b->dim, b->owned};
}

/* Returns the layout to which the gradient of a result goes; owners take whole sequences. */
static const wf_layout *layout_back(const rows_border *b, const wf_tensor *grad)
{
    wf_mesh *mesh = wf_mesh_of(grad->ctx);
    const wf_layout *to = wf_layout_as_on(mesh, axes_of(b), b->from, grad->layout, 0);

    return b->inner < 0 || wf_layout_is_partial(grad->layout, b->axis)
               ? to
               : wf_layout_whole(mesh, to, b->inner);
}

/* Begins a move whose result has a handle until it is ended; returns the handle. */
static wf_tensor *take_off(const wf_row_owners *owners, wf_tensor *x, const wf_layout *from,
                           const wf_layout *to)
{
    const bool combines = wf_layout_is_partial(x->layout, owners->axis);
    wf_tensor *handle =
        wf_tensor_fake(x->ctx, combines ? x->rounds_to : x->dtype, x->ndim, x->dim, to);
    wf_mesh *mesh = wf_mesh_of(x->ctx);
    wf_rows_flight *f = handle ? wf_rows_begin(owners, NULL, x, to, true) : NULL;

    if (!f)
        return NULL;
    f->from = from;
    f->handle = wf_tensor_retain(handle);
    f->next = mesh->rows;
    mesh->rows = f;
    mesh->forget_rows = wf_rows_forget;
    return handle;
}

/* Takes the move with this handle off the mesh's list; NULL: it has none. */
static wf_rows_flight *take(wf_mesh *mesh, const wf_tensor *handle)
{
    wf_rows_flight **link = &mesh->rows, *f;

    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    f = *link;
    if (!f)
        return NULL;
    *link = f->next;
    wf_tensor_release(f->handle);
    return f;
}

static void whole_backward(wf_gradient *g)
{
    const rows_border *b = g->attr;
    const wf_row_owners owners = owners_of(b, g->in[1]);

    g->din[0] = wf_rows_move(&owners, NULL, g->dout[0], layout_back(b, g->dout[0]));
}

/* The walk back passes the end first: there the gradient's move begins. */
static void end_backward(wf_gradient *g)
{
    const rows_border *b = g->attr;
    const wf_row_owners owners = owners_of(b, g->in[1]);

    g->din[0] = take_off(&owners, g->dout[0], NULL, layout_back(b, g->dout[0]));
}

static void begin_backward(wf_gradient *g)
{
    wf_rows_flight *f = take(wf_mesh_of(g->ctx), g->dout[0]);

    g->din[0] = f ? wf_rows_end(f) : NULL;
}

/* Operands are x and the indices. */
static const wf_op whole_op = {.name = "exchange_rows",
                               .signature = "",
                               .flags = WF_OP_BORDER | WF_OP_PASS,
                               .save = WF_SAVE_IN(1),
                               .backward = whole_backward};
static const wf_op begin_op = {.name = "begin_exchange_rows",
                               .signature = "",
                               .flags = WF_OP_BORDER,
                               .backward = begin_backward};
static const wf_op end_op = {.name = "end_exchange_rows",
                             .signature = "",
                             .flags = WF_OP_BORDER,
                             .save = WF_SAVE_IN(1),
                             .backward = end_backward};

/* Records a move, or its begin or end, where x wants a gradient; returns y, NULL on errors. */
static wf_tensor *record(const wf_op *op, wf_tensor *x, wf_tensor *index, wf_tensor *y,
                         const rows_border *b)
{
    const wf_call call = {.op = op,
                          .ctx = x->ctx,
                          .n_in = 2,
                          .in = {x, index},
                          .n_out = 1,
                          .out = {y},
                          .attr = b,
                          .attr_size = sizeof *b};

    if (!y || (op != &whole_op && !x->requires_grad))
        return y;
    return wf_tape_record(&call) == WF_OK ? y : NULL;
}

static bool ready(const wf_row_owners *owners, wf_tensor *x, wf_tensor *via)
{
    return x && via && owners->index && wf_context_status(x->ctx) == WF_OK;
}

wf_tensor *wf_rows_move(const wf_row_owners *owners, const wf_row_wave *wave, wf_tensor *x,
                        const wf_layout *to)
{
    wf_rows_flight *f;

    if (wf_tensor_is_fake(x))
        return wf_tensor_fake(x->ctx, x->dtype, x->ndim, x->dim, to);
    f = wf_rows_begin(owners, wave, x, to, wf_beside_waits(x->ctx));
    return f ? wf_rows_end(f) : NULL;
}

wf_tensor *wf_border_rows(const wf_row_owners *owners, wf_tensor *x, wf_tensor *via,
                          const wf_layout *to)
{
    const rows_border b = border_of(owners, x ? x->layout : NULL);

    return ready(owners, x, via)
               ? record(&whole_op, x, owners->index, wf_rows_move(owners, NULL, via, to), &b)
               : NULL;
}

wf_tensor *wf_border_rows_begin(const wf_row_owners *owners, wf_tensor *x, wf_tensor *via,
                                const wf_layout *to)
{
    const rows_border b = border_of(owners, x ? x->layout : NULL);

    if (!ready(owners, x, via))
        return NULL;
    if (wf_tensor_is_fake(via))
        return wf_border_rows(owners, x, via, to);
    return record(&begin_op, x, owners->index, take_off(owners, via, x->layout, to), &b);
}

wf_tensor *wf_border_rows_end(wf_tensor *x)
{
    wf_rows_flight *f = x && wf_mesh_of(x->ctx) ? take(wf_mesh_of(x->ctx), x) : NULL;
    wf_tensor *index;
    rows_border b;

    if (!f)
        return x;
    b = border_of(&f->owners, f->from);
    index = wf_scope_adopt(x->ctx, wf_tensor_retain(f->owners.index));
    return record(&end_op, x, index, wf_rows_end(f), &b);
}
