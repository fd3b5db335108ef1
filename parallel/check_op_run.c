/* parallel/check_op_run.c - one run of an op that is checked: operands, outputs, gradients. */
#include "core/numerics/bf16.h"
#include "core/numerics/bits.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include "mesh/array/mesh.h"
#include "parallel/check_op_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns a number uniform in [0, 1), exact in f32, that depends on tensor and index alone. */
static double uniform(int64_t tensor, int64_t index)
{
    return (double)(wf_mix64((uint64_t)(tensor + 1) << 40 ^ (uint64_t)index) >> 40) * 0x1p-24;
}

double wf_op_weight(int output, int64_t index)
{
    return 4 * uniform(WF_MAX_INPUTS + output, index) - 2;
}

static double operand_value(const wf_op_run *run, int i, int64_t index)
{
    const wf_op_check_operand *o = &run->check->in[i];
    bool any = o->low == 0 && o->high == 0;
    double low = any ? -2 : o->low, high = any ? 2 : o->high;
    double x = low + (high - low) * uniform(i + run->numbers * WF_CHECK_RESULTS, index);

    if (run->check->op->integers >> i & 1)
        return floor(x);
    if (run->bf16 >> i & 1)
        return wf_bf16_value(wf_bf16_of((float)x));
    return (float)x + (run->operand == i && run->element == index ? run->by : 0);
}

static void put(void *data, wf_dtype dtype, int64_t i, double x)
{
    if (dtype == WF_I32)
        ((int32_t *)data)[i] = (int32_t)x;
    else if (dtype == WF_F64)
        ((double *)data)[i] = x;
    else
        ((float *)data)[i] = (float)x;
}

static double element(const wf_tensor *t, int64_t i)
{
    if (t->dtype == WF_I32)
        return ((const int32_t *)t->data)[i];
    return t->dtype == WF_F64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* Returns where element e of this rank's part is in the whole tensor. */
static int64_t whole_index(const wf_tensor *t, int64_t e)
{
    int64_t index = 0, stride = 1;

    for (int d = t->ndim - 1; d >= 0; d--) {
        index += (t->start[d] + e % t->local[d]) * stride;
        e /= t->local[d];
        stride *= t->dim[d].size;
    }
    return index;
}

/* A tensor of x(arg, index). */
static wf_tensor *filled(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                         const wf_layout *layout, double (*x)(const void *arg, int64_t index),
                         const void *arg)
{
    wf_tensor *t = wf_tensor_new(ctx, dtype, ndim, dims, layout, WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        put(t->data, dtype, e, x(arg, whole_index(t, e)));
    return t;
}

typedef struct operand_arg {
    const wf_op_run *run;
    int i;
    double share; /* this rank's, of a sum over ranks */
} operand_arg;

static double operand_element(const void *arg, int64_t index)
{
    const operand_arg *a = arg;

    return a->share * operand_value(a->run, a->i, index);
}

/* Returns a rank's share of a partial operand: 2 and -1 of the first two ranks of an axis,
   whose sum has the value's bits, and 0 of others. A function that is not linear shows. */
static double share_of(const wf_mesh *mesh, const wf_layout *layout)
{
    static const double shares[] = {2, -1, 0};
    double share = 1;

    for (int axis = 0; layout && axis < wf_mesh_axes(mesh); axis++) {
        int at = wf_mesh_coordinate(mesh, axis);

        if (wf_layout_is_partial(layout, axis) && wf_mesh_size(mesh, axis) > 1)
            share *= shares[at < 2 ? at : 2];
    }
    return share;
}

static operand_arg arg_of(const wf_op_run *run, int i)
{
    return (operand_arg){run, i, share_of(wf_mesh_of(run->ctx), run->layout[i])};
}

/* Returns an operand, a parameter of a run of gradients; of one of several passes only the
   operand that is asked for is a parameter, and the others come from ops. */
static wf_tensor *make_operand(const wf_op_run *run, int i)
{
    const wf_op_check_operand *o = &run->check->in[i];
    operand_arg arg = arg_of(run, i);
    wf_dtype dtype =
        run->check->op->integers >> i & 1 ? WF_I32 : wf_context_device(run->ctx)->dtype;
    wf_tensor *t =
        filled(run->ctx, dtype, o->ndim, o->dim, run->layout[i], operand_element, &arg);

    if (run->stored && run->bf16 >> i & 1)
        return wf_cast(t, WF_BF16);
    if (!t || !run->gradients || o->constant || dtype == WF_I32)
        return t;
    return run->deferred && run->operand != i ? wf_source(t) : wf_leaf(t);
}

/* Checks that operands are as they were made. */
static wf_status check_unwritten(const wf_op_run *run, wf_tensor *const *in)
{
    const wf_op *op = run->check->op;

    for (int i = 0; i < run->check->n_in; i++) {
        const operand_arg arg = arg_of(run, i);

        if (in[i]->dtype == WF_BF16 || (op->writes & WF_IN(i)) ||
            (op->flags & WF_OP_IN_PLACE && i == 0))
            continue;
        for (int64_t e = 0; e < wf_tensor_local_count(in[i]); e++)
            if (element(in[i], e) != operand_element(&arg, whole_index(in[i], e)))
                return wf_fail(run->ctx, WF_EINVAL,
                               "%s has written to operand %d, in element %lld: kernels read "
                               "their operands, but for those of an op in place "
                               "(WF_OP_IN_PLACE, wf_op.writes)",
                               op->name, i, (long long)e);
    }
    return WF_OK;
}

/* A number that every output has a weight in. Only its gradient counts: it is the weights. */
static wf_status weigh_run(const wf_call *call, void *workspace)
{
    (void)workspace;
    put(call->out[0]->data, call->out[0]->dtype, 0, 0);
    return WF_OK;
}

static void weigh_backward(wf_gradient *g)
{
    g->din[0] = *(wf_tensor *const *)g->attr;
}

static const wf_kernel weigh_kernel = {.run = weigh_run};
static const wf_op weigh = {.name = "weigh",
                            .signature = "...->",
                            .reference = {.run = weigh_run},
                            .backward = weigh_backward,
                            .kernels = WF_KERNELS({"cpu", &weigh_kernel})};

static double weight_element(const void *arg, int64_t index)
{
    return wf_op_weight(*(const int *)arg, index);
}

static double one_element(const void *arg, int64_t index)
{
    (void)arg, (void)index;
    return 1;
}

static double zero_element(const void *arg, int64_t index)
{
    (void)arg, (void)index;
    return 0;
}

static wf_tensor *whole(wf_tensor *t)
{
    if (t && t->dtype == WF_BF16)
        t = wf_cast(t, wf_context_device(t->ctx)->dtype);
    return t && t->layout ? wf_whole(t) : t;
}

static wf_status keep(wf_op_results *r, int result, wf_tensor *t)
{
    if (!t)
        return WF_EINVAL; /* the reason is in the context */
    r->n[result] = wf_tensor_count(t);
    r->x[result] = malloc(((size_t)r->n[result] + 1) * sizeof(double));
    if (!r->x[result])
        return wf_fail(t->ctx, WF_ENOMEM, "no memory for the results of an op");
    for (int64_t i = 0; i < r->n[result]; i++)
        r->x[result][i] = element(t, i);
    return WF_OK;
}

/* Go back from the weighed outputs. */
static wf_status differentiate(const wf_op_run *run, wf_tensor *const *out)
{
    wf_dtype dtype = wf_context_device(run->ctx)->dtype;
    wf_tensor *sum = NULL;

    for (int o = 0; o < run->check->n_out; o++) {
        wf_tensor *weights, *term;

        if (run->check->constant_outputs >> o & 1 || !out[o] || !out[o]->requires_grad)
            continue;
        weights = filled(run->ctx, dtype, out[o]->ndim, out[o]->dim, NULL, weight_element, &o);
        term = wf_apply(&weigh, &weights, sizeof weights, 1, out[o]);
        sum = sum ? wf_add(sum, term) : term;
    }
    if (!sum && run->some_outputs)
        return WF_OK;
    if (!sum)
        return wf_fail(run->ctx, WF_EINVAL,
                       "%s: no output has a gradient (wf_op.backward), though an operand is to "
                       "take one: mark what is constant in the check",
                       run->check->op->name);
    return wf_backward(sum, filled(run->ctx, dtype, 0, NULL, NULL, one_element, NULL),
                       run->deferred);
}

static wf_status keep_gradients(const wf_op_run *run, wf_tensor *const *in, wf_op_results *r)
{
    for (int i = 0; i < run->check->n_in; i++) {
        const wf_op_check_operand *o = &run->check->in[i];
        wf_tensor *grad = in[i]->grad;
        wf_status status;

        if (!in[i]->requires_grad)
            continue;
        if (!grad && run->some_outputs)
            grad = filled(run->ctx, wf_context_device(run->ctx)->dtype, o->ndim, o->dim, NULL,
                          zero_element, NULL);
        if (!grad)
            return wf_fail(run->ctx, WF_EINVAL,
                           "%s: operand %d has no gradient: its backward fills din[%d] where "
                           "want[%d] is set",
                           run->check->op->name, i, i, i);
        if (grad->ndim == o->ndim + 1) /* a row per sequence */
            grad = wf_batch_sum(grad);
        status = keep(r, WF_MAX_OUTPUTS + i, whole(grad));
        if (status != WF_OK)
            return status;
    }
    return WF_OK;
}

static wf_status run_on(const wf_op_run *run, wf_op_results *r)
{
    wf_tensor *in[WF_MAX_INPUTS] = {NULL}, *out[WF_MAX_OUTPUTS] = {NULL};
    bool wanted = false;
    wf_status status;

    for (int i = 0; i < run->check->n_in; i++) {
        in[i] = make_operand(run, i);
        wanted |= in[i] && in[i]->requires_grad;
    }
    status = wf_context_status(run->ctx);
    if (status == WF_OK)
        status = wf_op_apply(run, in, out);
    for (int o = 0; o < run->check->n_out && status == WF_OK; o++) {
        if (!out[o])
            return wf_fail(run->ctx, WF_EINVAL, "%s: output %d is NULL", run->check->op->name,
                           o);
        out[o] = whole(out[o]);
        status = keep(r, o, out[o]);
        r->n_outputs += status == WF_OK;
    }
    if (status == WF_OK && wanted)
        status = differentiate(run, out);
    if (status == WF_OK && wanted)
        status = keep_gradients(run, in, r);
    return status == WF_OK ? check_unwritten(run, in) : status;
}

wf_tape *wf_op_pass(const wf_op_run *run, wf_tensor **leaf)
{
    wf_tensor *in[WF_MAX_INPUTS] = {NULL}, *out[WF_MAX_OUTPUTS] = {NULL};
    wf_tape *tape = wf_tape_open(run->ctx);

    for (int i = 0; i < run->check->n_in; i++)
        in[i] = make_operand(run, i);
    *leaf = in[run->operand];
    if (wf_context_status(run->ctx) == WF_OK && wf_op_apply(run, in, out) == WF_OK)
        differentiate(run, out);
    wf_tape_switch(run->ctx, NULL);
    return tape;
}

wf_status wf_op_run_once(const wf_op_run *run, wf_op_results *r)
{
    wf_tape *tape = NULL;

    *r = (wf_op_results){.n = {0}};
    if (run->stored)
        wf_context_storage(run->ctx, WF_BF16);
    wf_scope_open(run->ctx);
    if (run->gradients)
        tape = wf_tape_open(run->ctx);
    run_on(run, r);
    wf_tape_close(tape);
    wf_scope_close(run->ctx);
    return wf_context_status(run->ctx);
}

void wf_op_results_forget(wf_op_results *r)
{
    for (int i = 0; i < WF_CHECK_RESULTS; i++)
        free(r->x[i]);
    *r = (wf_op_results){.n = {0}};
}

const char *wf_op_result_name(int result, char text[48])
{
    snprintf(text, 48, result < WF_MAX_OUTPUTS ? "output %d" : "the gradient of operand %d",
             result < WF_MAX_OUTPUTS ? result : result - WF_MAX_OUTPUTS);
    return text;
}

/* The root mean square of a result. */
static double size_of(const wf_op_results *r, int result)
{
    double sum = 0;

    for (int64_t i = 0; i < r->n[result]; i++)
        sum += r->x[result][i] * r->x[result][i];
    return r->n[result] ? sqrt(sum / (double)r->n[result]) : 0;
}

double wf_op_distance(const wf_op_results *a, const wf_op_results *b, int result)
{
    bool output = result < WF_MAX_OUTPUTS;
    double size = size_of(b, result), sum = 0;

    for (int k = output ? 0 : WF_MAX_OUTPUTS; k < (output ? WF_MAX_OUTPUTS : WF_CHECK_RESULTS);
         k++)
        size = fmax(size, 0.1 * size_of(b, k));
    for (int64_t i = 0; i < b->n[result]; i++) {
        double d = a->x[result][i] - b->x[result][i];

        sum += d * d;
    }
    return b->n[result] ? sqrt(sum / (double)b->n[result]) / (size + 1e-300) : 0;
}
