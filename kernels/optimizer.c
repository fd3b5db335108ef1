/*
 * kernels/optimizer.c - one step of an optimizer, in place, on whatever part a rank holds.
 *
 *     adamw   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *             p = p - lr (m bias1 / (sqrt(v bias2) + eps) + weight_decay p)
 *     sgd     m = beta1 m + g + weight_decay p,  p = p - lr m
 *     unit_norm         x = x / (|x| + eps), |x| the norm of a matrix
 *     update_elements   a function of the user's, of a run of elements at a time
 *
 * with g = grad_scale * gradient. Where beta1 is 0, sgd neither reads nor writes m. The CPU's
 * kernels are in kernels/cpu/optimizer.c.
 */
#include "kernels/op_table_internal.h"
#include "kernels/shared_internal.h"
#include <math.h>

wf_status wf_adamw(wf_tensor *param, wf_tensor *grad, wf_tensor *m, wf_tensor *v,
                   const wf_update *update)
{
    wf_call call = {.op = &wf_op_adamw,
                    .n_in = 4,
                    .in = {param, grad, m, v},
                    .attr = update,
                    .attr_size = sizeof *update};

    if (m && v && (m->dtype == WF_DYNAMIC8) != (v->dtype == WF_DYNAMIC8U))
        return wf_fail(m->ctx, WF_EDTYPE,
                       "adamw: m is %s and v %s: both are of floats, or of 8 "
                       "bits, dynamic8 and dynamic8u",
                       wf_dtype_name(m->dtype), wf_dtype_name(v->dtype));
    return wf_dispatch(&call);
}

wf_status wf_sgd(wf_tensor *param, wf_tensor *grad, wf_tensor *m, const wf_update *update)
{
    wf_call call = {.op = &wf_op_sgd,
                    .n_in = 3,
                    .in = {param, grad, m},
                    .attr = update,
                    .attr_size = sizeof *update};

    return wf_dispatch(&call);
}

wf_status wf_update_elements(wf_tensor *param, wf_tensor *grad, int states,
                             wf_tensor *const *state, wf_update_run *run,
                             const wf_update *update)
{
    const wf_update_attr attr = {.update = *update, .run = run, .states = states};
    wf_call call = {.op = &wf_op_update_elements,
                    .n_in = 2 + WF_UPDATE_STATES,
                    .in = {param, grad},
                    .attr = &attr,
                    .attr_size = sizeof attr};

    if (param && (states < 0 || states > WF_UPDATE_STATES))
        return wf_fail(param->ctx, WF_EINVAL,
                       "update_elements with %d states: a parameter has 0 to %d", states,
                       WF_UPDATE_STATES);
    for (int k = 0; k < WF_UPDATE_STATES; k++) /* the slots of other states are not looked at */
        call.in[2 + k] = k < states ? state[k] : grad;
    return wf_dispatch(&call);
}

wf_status wf_unit_norm(wf_tensor *x, double eps)
{
    wf_call call = {
        .op = &wf_op_unit_norm, .n_in = 1, .in = {x}, .attr = &eps, .attr_size = sizeof eps};

    return wf_dispatch(&call);
}

static wf_status unit_norm_reference(const wf_call *call, void *workspace)
{
    const double *eps = call->attr;
    double *x = call->in[0]->data, squares = 0;
    int64_t n = wf_tensor_local_count(call->in[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        x[i] /= sqrt(squares) + *eps;
    return WF_OK;
}

static wf_status adamw_reference(const wf_call *call, void *workspace)
{
    const wf_update *u = call->attr;
    const double *grad = call->in[1]->data;
    double *p = call->in[0]->data, *m = call->in[2]->data, *v = call->in[3]->data;
    double beta1 = u->beta1, beta2 = u->beta2;
    int64_t n = wf_tensor_local_count(call->in[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * u->grad_scale;

        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        p[i] -= u->lr *
                (m[i] * u->bias1 / (sqrt(v[i] * u->bias2) + u->eps) + u->weight_decay * p[i]);
    }
    return WF_OK;
}

static wf_status sgd_reference(const wf_call *call, void *workspace)
{
    const wf_update *u = call->attr;
    const double *grad = call->in[1]->data;
    double *p = call->in[0]->data, *m = call->in[2]->data;
    int64_t n = wf_tensor_local_count(call->in[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        double g = grad[i] * u->grad_scale + u->weight_decay * p[i];

        if (u->beta1 > 0)
            g = m[i] = u->beta1 * m[i] + g;
        p[i] -= u->lr * g;
    }
    return WF_OK;
}

/* Runs the function of floats, to which doubles are rounded for it. */
static wf_status elements_reference(const wf_call *call, void *workspace)
{
    const wf_update_attr *attr = call->attr;
    const double *grad = call->in[1]->data;
    double *p = call->in[0]->data;
    int64_t n = wf_tensor_local_count(call->in[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++) {
        float x = (float)p[i], g = (float)grad[i] * attr->update.grad_scale;
        float value[WF_UPDATE_STATES], *state[WF_UPDATE_STATES] = {NULL};

        for (int k = 0; k < attr->states; k++) {
            value[k] = (float)((double *)call->in[2 + k]->data)[i];
            state[k] = &value[k];
        }
        attr->run(&attr->update, 1, &x, &g, state);
        for (int k = 0; k < attr->states; k++)
            ((double *)call->in[2 + k]->data)[i] = (double)value[k];
        p[i] = (double)x;
    }
    return WF_OK;
}

const wf_op wf_op_adamw = {WF_OP_ROW(adamw), .writes = WF_IN(2) | WF_IN(3),
                           .reference = {.run = adamw_reference}};
const wf_op wf_op_sgd = {WF_OP_ROW(sgd), .writes = WF_IN(2),
                         .reference = {.run = sgd_reference}};
const wf_op wf_op_unit_norm = {WF_OP_ROW(unit_norm), .reference = {.run = unit_norm_reference}};
const wf_op wf_op_update_elements = {WF_OP_ROW(update_elements),
                                     .writes = WF_IN(2) | WF_IN(3) | WF_IN(4),
                                     .reference = {.run = elements_reference}};
