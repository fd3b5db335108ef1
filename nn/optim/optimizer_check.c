/* nn/optim/optimizer_check.c - rows of optimizers and their options, before there is state. */
#include "kernels/ops.h"
#include "nn/optim/method_internal.h"
#include <math.h>

static wf_status check_row(wf_context *ctx, wf_nn_method method)
{
    const wf_nn_method_row *row = wf_nn_method_row_of(method);
    const wf_nn_matrix_update *m = row ? row->matrix : NULL;

    if (!row)
        return wf_fail(
            ctx, WF_EINVAL,
            "an optimizer of method %d: it is none of wf_nn_method, 0 to %d, and none "
            "that wf_nn_method_of returned, which is %d for a row without a name, one "
            "with the name of another row, and more than %d rows",
            (int)method, (int)WF_NN_METHODS - 1, (int)WF_NN_NO_METHOD, (int)WF_NN_MOST_METHODS);
    if (row->states < 0 || row->states > WF_NN_STATES ||
        !!row->elements + !!row->update + !!row->together != 1 ||
        (row->shape && !row->together) ||
        (m && (m->states < 0 || m->states > WF_NN_STATES || !m->direction || !m->whole ||
               !m->apply)))
        return wf_fail(
            ctx, WF_EINVAL,
            "optimizer %s: a row has 0 to %d states, one of elements, update and together, "
            "shapes of states with together alone, and "
            "where it updates matrices as a whole all three functions of that",
            row->name, (int)WF_NN_STATES);
    for (int k = 0; k < row->states; k++)
        if (row->state[k] != WF_F32 && !wf_dtype_is_dynamic8(row->state[k]))
            return wf_fail(ctx, WF_EINVAL,
                           "optimizer %s stores state %d as %s: states are f32, dynamic8 or "
                           "dynamic8u",
                           row->name, k, wf_dtype_name(row->state[k]));
    return WF_OK;
}

static wf_status check_numbers(wf_context *ctx, const wf_nn_optimizer_options *o,
                               const wf_nn_method_row *row)
{
    bool good = (!(row->uses & WF_NN_USES_BETA1) || (o->beta1 >= 0 && o->beta1 < 1)) &&
                (!(row->uses & WF_NN_USES_BETA2) || (o->beta2 >= 0 && o->beta2 < 1)) &&
                (!(row->uses & WF_NN_USES_EPS) || (o->eps > 0 && isfinite(o->eps))) &&
                o->weight_decay >= 0 && isfinite(o->weight_decay);

    for (int k = 0; k < WF_UPDATE_OWN; k++)
        good = good && isfinite(o->own[k]);
    if (!good)
        return wf_fail(
            ctx, WF_EINVAL,
            "optimizer %s with beta1 %g, beta2 %g, eps %g, weight decay %g: betas are "
            "at least 0 and below 1, eps is positive, decay is not negative, both are finite",
            row->name, (double)o->beta1, (double)o->beta2, (double)o->eps,
            (double)o->weight_decay);
    if (!(o->ema >= 0 && o->ema < 1))
        return wf_fail(ctx, WF_EINVAL,
                       "a moving average of weights with decay %g: it is at least 0, which is "
                       "none, and below 1",
                       (double)o->ema);
    return WF_OK;
}

wf_status wf_nn_optimizer_check(wf_context *ctx, const wf_nn_optimizer_options *o)
{
    const wf_device *device = wf_context_device(ctx);
    const wf_nn_method_row *row;
    const wf_kernel *kernel;
    bool narrow = false;

    if (check_row(ctx, o->method) != WF_OK)
        return WF_EINVAL;
    row = wf_nn_method_row_of(o->method);
    if (check_numbers(ctx, o, row) != WF_OK)
        return WF_EINVAL;
    for (int k = 0; k < row->states; k++)
        narrow = narrow || row->state[k] != WF_F32;
    kernel = device->kernel(device, row->elements ? &wf_op_update_elements : &wf_op_adamw);
    if (narrow && !(kernel && kernel->dynamic8_ok))
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "device %s has no optimizer with states in 8 bits (%s): take one that "
                       "stores floats, "
                       "such as adamw, or device cpu",
                       device->name, row->name);
    return WF_OK;
}
