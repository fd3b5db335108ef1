/* nn/optim/optimizer_state.c - what an optimizer keeps of parameters, by the row of a
   method. */
#include "core/host_data.h"
#include "core/offload.h"
#include "kernels/ops.h"
#include "nn/optim/optimizer_internal.h"
#include <string.h>

enum { LEAST_COLUMNS = 16 }; /* in shorter rows scales would take what codes save */

/* Returns the type that a state is stored as: of rows of matrices 8 bits may do. */
static wf_dtype dtype_of(const wf_nn_optimizer *o, const wf_tensor *t, int k)
{
    const bool narrow = k < WF_NN_STATES && wf_dtype_is_dynamic8(o->row->state[k]);

    return narrow && t->ndim >= 2 && t->dim[t->ndim - 1].size >= LEAST_COLUMNS
               ? o->row->state[k]
               : t->dtype;
}

/* Sets zeros, of any type of storage. */
static wf_status clear(wf_tensor *t)
{
    wf_host_data view;
    void *data;

    if (!wf_dtype_is_dynamic8(t->dtype))
        return wf_init_fill(t, 0);
    if (wf_context_dry_run(t->ctx))
        return WF_OK;
    data = wf_data_write(t, false, &view);
    if (data)
        memset(data, 0, wf_tensor_bytes(t));
    wf_data_close(&view);
    return wf_context_status(t->ctx);
}

/* Makes a tensor of zeros, fake as the parameter is. */
static wf_tensor *zeros(wf_tensor *t, wf_dtype dtype, int ndim, const wf_dim *dims,
                        const wf_layout *layout)
{
    wf_tensor *zero;

    wf_scope_open(t->ctx);
    if (wf_tensor_is_fake(t))
        zero = wf_tensor_fake(t->ctx, dtype, ndim, dims, layout);
    else
        zero = wf_tensor_new(t->ctx, dtype, ndim, dims, layout, WF_MEMORY_OPTIMIZER);
    if (zero && (wf_tensor_is_fake(zero) || clear(zero) == WF_OK))
        wf_tensor_retain(zero);
    else
        zero = NULL;
    wf_scope_close(t->ctx);
    return zero;
}

bool wf_nn_optimizer_is_alone(const wf_nn_optimizer *o, int64_t i)
{
    return !wf_nn_optimizer_is_matrix(o, i) && !o->row->together;
}

bool wf_nn_optimizer_is_matrix(const wf_nn_optimizer *o, int64_t i)
{
    const wf_nn_parameter *p = o->parameter[i];

    return o->row->matrix && p->matrix;
}

static bool keeps(const wf_nn_optimizer *o, int64_t i, int k)
{
    const wf_nn_method_row *row = o->row;
    bool matrix = wf_nn_optimizer_is_matrix(o, i);
    int states = matrix ? row->matrix->states : row->states;

    if (o->parameter[i]->frozen || o->parameter[i]->counted)
        return false;
    if (k == WF_NN_STATES)
        return o->options.ema > 0;
    return k < states &&
           (o->options.beta1 > 0 || !(matrix ? row->matrix->needs_beta1 : row->needs_beta1));
}

/* Returns the form of state k of parameter i. */
static wf_nn_state_shape shape_of(const wf_nn_optimizer *o, int64_t i, int k)
{
    const wf_tensor *t = o->parameter[i]->tensor;
    wf_nn_state_shape s = {WF_NN_STATE_LIKE, .ndim = t->ndim};

    if (o->row->shape && k < WF_NN_STATES)
        s = o->row->shape(k, t->ndim, t->dim);
    if (s.kind != WF_NN_STATE_OWN) {
        s.ndim = t->ndim;
        memcpy(s.dim, t->dim, sizeof s.dim);
    }
    return s;
}

/* Makes state k of parameter i, whose states of its own shape have `layout`. */
static bool make_state(wf_nn_optimizer *o, int64_t i, int k, const wf_layout *layout)
{
    const wf_nn_state_shape s = shape_of(o, i, k);
    wf_tensor *p = o->parameter[i]->tensor;

    if (s.kind == WF_NN_STATE_NONE ||
        (s.kind == WF_NN_STATE_MOMENTUM && !(o->options.beta1 > 0)))
        return true;
    if (o->row->together &&
        (p->ndim == 0 || (!o->mover.move && wf_tensor_local_count(p) != wf_tensor_count(p)))) {
        wf_fail(
            o->ctx, WF_EUNSUPPORTED,
            "optimizer %s sums over rows and columns of %s, which has no dim, or is in parts "
            "and no mover was given: take adamw, or give the mover",
            o->row->name, o->parameter[i]->path);
        return false;
    }
    if (s.kind == WF_NN_STATE_OWN && o->mover.split)
        layout = o->mover.split(o->mover.arg, layout, s.like, s.split);
    o->state[i][k] = zeros(p, dtype_of(o, p, k), s.ndim, s.dim, layout);
    return o->state[i][k] &&
           (!o->options.offload || wf_tensor_offload(o->state[i][k]) == WF_OK);
}

bool wf_nn_optimizer_make_states(wf_nn_optimizer *o, const wf_layout *const *layout)
{
    for (int64_t i = 0; i < o->count; i++)
        for (int k = 0; k < WF_NN_KEPT; k++)
            if (keeps(o, i, k) &&
                !make_state(o, i, k, layout ? layout[i] : o->parameter[i]->tensor->layout))
                return false;
    return true;
}

wf_tensor *wf_nn_optimizer_moment(const wf_nn_optimizer *o, int64_t i, int which)
{
    return o->state[i][which];
}

double wf_nn_optimizer_least_bytes(const wf_nn_optimizer_options *o)
{
    const wf_nn_method_row *row = wf_nn_method_row_of(o->method);
    double all = 0, matrix = 0;

    for (int k = 0;
         row && !row->shape && k < row->states && (o->beta1 > 0 || !row->needs_beta1); k++)
        all += row->state[k] == WF_F32 ? 4 : 1;
    if (row && row->matrix)
        matrix = o->beta1 > 0 || !row->matrix->needs_beta1 ? 4 * row->matrix->states : 0;
    return (row && row->matrix && matrix < all ? matrix : all) + (o->ema > 0 ? 4 : 0);
}
