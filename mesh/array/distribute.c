/* mesh/array/distribute.c - between plain memory or rank-local tensors and tensors of the
   mesh. */
#include "core/host_data.h"
#include "mesh/array/array_internal.h"
#include <inttypes.h>
#include <string.h>

/* Copy the local part of a whole array, dim by dim. */
static void take_part(const wf_tensor *t, int dim, const char *whole, char *local,
                      size_t element)
{
    size_t whole_step = element, local_step = element;

    if (dim == t->ndim) {
        memcpy(local, whole, element);
        return;
    }
    for (int i = dim + 1; i < t->ndim; i++) {
        whole_step *= (size_t)t->dim[i].size;
        local_step *= (size_t)t->local[i];
    }
    whole += (size_t)t->start[dim] * whole_step;
    if (whole_step == local_step) {
        memcpy(local, whole, (size_t)t->local[dim] * whole_step);
        return;
    }
    for (int64_t i = 0; i < t->local[dim]; i++)
        take_part(t, dim + 1, whole + (size_t)i * whole_step, local + (size_t)i * local_step,
                  element);
}

wf_tensor *wf_distribute(wf_context *ctx, const void *whole, wf_dtype dtype, int ndim,
                         const wf_dim *dims, const wf_layout *layout)
{
    wf_host_data view;
    wf_tensor *t;
    char *local;

    if (wf_layout_is_partial(layout, -1)) {
        wf_fail(ctx, WF_ELAYOUT,
                "distribute: a whole array has no parts to be summed; choose a "
                "layout that is not partial");
        return NULL;
    }
    if (wf_layout_fits(ctx, layout, ndim) != WF_OK)
        return NULL;
    t = wf_tensor_new(ctx, dtype, ndim, dims, layout, wf_context_memory_kind_now(ctx));
    if (!t || wf_tensor_local_count(t) == 0 || wf_context_dry_run(ctx))
        return t;
    local = wf_data_write(t, false, &view);
    if (local)
        take_part(t, 0, whole, local, wf_dtype_size(dtype));
    wf_data_close(&view);
    return local ? t : NULL;
}

typedef struct local_view {
    const wf_layout *layout, *grad_layout;
} local_view;

static void from_local_backward(wf_gradient *g)
{
    const local_view *view = g->attr;
    const wf_tensor *local = g->in[0];
    wf_tensor *grad =
        wf_redistribute(g->dout[0], wf_layout_dual(wf_mesh_of(g->ctx), view->layout));

    g->din[0] = wf_tensor_view(grad, local->ndim, local->dim, NULL);
}

static const wf_op from_local_op = {.name = "from_local",
                                    .signature = "",
                                    .flags = WF_OP_PASS,
                                    .save_shape = WF_SAVE_IN(0),
                                    .backward = from_local_backward};

static wf_tensor *record(const wf_op *op, wf_tensor *x, wf_tensor *y, const local_view *view)
{
    wf_call call = {.op = op,
                    .ctx = x->ctx,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {x},
                    .out = {y},
                    .attr = view,
                    .attr_size = sizeof *view};

    if (y)
        wf_tape_record(&call);
    return y;
}

wf_tensor *wf_from_local(wf_tensor *local, int ndim, const wf_dim *dims,
                         const wf_layout *layout)
{
    local_view view = {.layout = layout};
    wf_tensor *t;

    if (!local)
        return NULL;
    if (ndim != local->ndim || local->layout) {
        wf_fail(local->ctx, WF_ESHAPE,
                "from_local: needs a tensor without layout of %d dims, not one of %d", ndim,
                local->ndim);
        return NULL;
    }
    if (wf_layout_fits(local->ctx, layout, ndim) != WF_OK)
        return NULL;
    for (int i = 0; i < ndim; i++) {
        int64_t start = 0, n = dims[i].size;

        if (layout)
            wf_layout_part(layout->mesh, layout, i, &dims[i], layout->mesh->rank, &start, &n);
        if (n != local->local[i]) {
            wf_fail(local->ctx, WF_ESHAPE,
                    "from_local: this rank's part of dim %d (%" PRId64
                    " in all) has size %" PRId64 ", but the tensor has %" PRId64,
                    i, dims[i].size, n, local->local[i]);
            return NULL;
        }
    }
    t = wf_tensor_view(local, ndim, dims, layout);
    return record(&from_local_op, local, t, &view);
}

static void to_local_backward(wf_gradient *g)
{
    const local_view *view = g->attr;
    const wf_tensor *x = g->in[0];
    wf_tensor *grad = g->dout[0];

    grad = wf_tensor_view(grad, x->ndim, x->dim, view->grad_layout);
    g->din[0] = wf_redistribute(grad, wf_layout_dual(wf_mesh_of(g->ctx), view->layout));
}

static const wf_op to_local_op = {.name = "to_local",
                                  .signature = "",
                                  .flags = WF_OP_PASS,
                                  .save_shape = WF_SAVE_IN(0),
                                  .backward = to_local_backward};

wf_tensor *wf_to_local(wf_tensor *x, const wf_layout *grad_layout)
{
    local_view view = {.grad_layout = grad_layout};
    wf_dim dims[WF_MAX_DIMS];
    wf_mesh *mesh;
    char a[192], b[192];

    if (!x)
        return NULL;
    mesh = wf_mesh_of(x->ctx);
    view.layout = x->layout;
    if (wf_layout_dual(mesh, grad_layout) != wf_layout_dual(mesh, x->layout)) {
        wf_fail(
            x->ctx, WF_ELAYOUT,
            "to_local: the gradient's layout %s may differ from the tensor's, %s, only in what "
            "is partial",
            wf_layout_print(grad_layout, a, sizeof a), wf_tensor_describe(x, b, sizeof b));
        return NULL;
    }
    for (int i = 0; i < x->ndim; i++)
        dims[i] = (wf_dim){x->local[i], 1, WF_CHUNKS_1};
    return record(&to_local_op, x, wf_tensor_view(x, x->ndim, dims, NULL), &view);
}
