/*
 * kernels/route_balance.c - what balances the experts of a router (kernels/moe.h), from the
 * choices of whole sequences:
 *
 *     route_load      for each sequence and expert, how many more of its tokens chose the
 *                     expert than the mean: the gradient of a bias that is stepped by its sign
 *     route_losses    the loss of balance of each sequence, and the z-loss
 *     route_balance   their dlogits
 *
 * The CPU's kernels are in kernels/cpu/route_balance.c.
 */
#include "core/distribution.h"
#include "kernels/route_balance_internal.h"
#include "core/numerics/math.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

wf_status wf_route_choices_check(const wf_call *call, double (*at)(const void *data, int64_t e))
{
    const wf_load_sizes s = wf_load_sizes_of(call);

    if (call->in[0]->ndim < 2 || s.k < 1 || s.k > s.experts)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " of %" PRId64 " experts in rows of %d dims: give it the "
                       "logits and indices of wf_route, [sequences, .., experts]",
                       call->op->name, s.k, s.experts, call->in[0]->ndim);
    for (int64_t i = 0; i < s.sequences * s.tokens * s.k; i++) {
        double e = at(call->in[1]->data, i);

        if (!wf_moe_is_expert(e, s.experts))
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: index %g of row %" PRId64 ", of %" PRId64
                           " experts: give it those of wf_route",
                           call->op->name, e, i / s.k, s.experts);
    }
    return WF_OK;
}

enum { WHOLE = 1 << 24 }; /* floats hold whole numbers up to it */

/* Checks that a step's counts are whole numbers that floats hold, in whatever order they are
   summed. */
static wf_status load_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *logits = call->in[0], *index = call->in[1];
    const int64_t batch = wf_context_batch_now(call->ctx);
    const int64_t sequences = batch ? batch : index->dim[0].size;
    const wf_load_sizes s = wf_load_sizes_of(call);
    double tokens = 1, most;

    (void)out;
    for (int d = 1; d < index->ndim - 1; d++)
        tokens *= (double)index->dim[d].size;
    most = (double)s.one * tokens > (double)s.mean ? (double)s.one * tokens : (double)s.mean;
    if (most * (double)sequences > WHOLE)
        return wf_fail(call->ctx, WF_EUNSUPPORTED,
                       "route: what balances %" PRId64 " experts counts the choices of "
                       "%" PRId64 " sequences of %.0f tokens, in steps of %" PRId64 " up to "
                       "%.0f, and floats hold whole numbers up to %d: take fewer sequences a "
                       "step, for a bias a number of experts that divides a sequence's "
                       "choices, or a loss of each sequence "
                       "(wf_route_options.sequence_weight)",
                       s.experts, sequences, tokens, s.one, most * (double)sequences, WHOLE);
    *ndim = 2;
    dims[0] = logits->dim[0];
    dims[1] = logits->dim[logits->ndim - 1];
    return WF_OK;
}

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

#include "kernels/row_exponentials_internal.h"

#define T            double
#define BALANCE_LOOP static
#include "kernels/route_balance_rows_internal.h"
#undef BALANCE_LOOP
#undef T

static wf_status load_reference(const wf_call *call, void *workspace)
{
    const wf_load_sizes s = wf_load_sizes_of(call);

    (void)workspace;
    if (wf_route_choices_check(call, as_double) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < s.sequences; b++)
        load_row(&s, (const double *)call->in[1]->data + b * s.tokens * s.k,
                 (double *)call->out[0]->data + b * s.experts);
    return WF_OK;
}

static size_t balance_workspace(const wf_call *call)
{
    return (size_t)call->in[0]->local[call->in[0]->ndim - 1] * 2 * sizeof(double);
}

static wf_status balance_reference(const wf_call *call, void *workspace)
{
    const wf_load_sizes s = wf_load_sizes_of(call);
    double *dscore = workspace;

    if (wf_route_choices_check(call, as_double) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < s.sequences; b++) {
        if (call->n_in > 2)
            counts_dscore(call->attr, &s, call->in[2]->data, dscore);
        else
            balance_dscore(call->attr, &s,
                           (const double *)call->in[1]->data + b * s.tokens * s.k, dscore);
        for (int64_t t = b * s.tokens; t < (b + 1) * s.tokens; t++)
            balance_row(call->attr, NULL, &s, (const double *)call->in[0]->data + t * s.experts,
                        dscore, dscore + s.experts,
                        (double *)call->out[0]->data + t * s.experts);
    }
    return WF_OK;
}

wf_balance wf_balance_of(const wf_route_options *o, const wf_tensor *logits)
{
    int64_t batch = wf_context_batch_now(logits->ctx);

    return (wf_balance){
        .weight = (double)(o->global_weight > 0 ? o->global_weight : o->sequence_weight),
        .z = (double)o->z_weight,
        .sequences = (double)(batch ? batch : logits->dim[0].size),
        .sigmoid = o->sigmoid};
}

void wf_route_losses(wf_tensor *logits, wf_tensor *index, wf_tensor *counts,
                     const wf_route_options *options, wf_tensor **loss, wf_tensor **z)
{
    wf_call call = {.op = &wf_op_route_losses,
                    .n_in = options->global_weight > 0 ? 3 : 2,
                    .in = {wf_resplit(logits, 1, -1), wf_resplit(index, 1, -1), counts},
                    .n_out = 2};
    wf_balance balance;

    if (logits) {
        balance = wf_balance_of(options, logits);
        call.attr = &balance;
        call.attr_size = sizeof balance;
    }
    wf_dispatch(&call);
    *loss = call.out[0];
    *z = call.out[1];
}

static const char *losses_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 2 ? "bs!t!,bs!k!,t!->b,b" : "bs!t!,bs!k!->b,b";
}

static const char *balance_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 2 ? "bs!t!,bs!k!,t!->bs!t!" : "bs!t!,bs!k!->bs!t!";
}

static wf_status check_weights(const wf_call *call)
{
    const wf_balance *o = call->attr;

    if (o && o->weight >= 0 && o->z >= 0 && o->sequences >= 1)
        return WF_OK;
    return wf_fail(call->ctx, WF_EINVAL,
                   "%s: weights of losses of balance are 0 or above, and of a step's sequences "
                   "there is at least 1",
                   call->op->name);
}

static wf_status losses_reference(const wf_call *call, void *workspace)
{
    const wf_load_sizes s = wf_load_sizes_of(call);

    if (wf_route_choices_check(call, as_double) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < s.sequences; b++)
        sequence_losses(call->attr, NULL, &s,
                        (const double *)call->in[0]->data + b * s.tokens * s.experts,
                        (const double *)call->in[1]->data + b * s.tokens * s.k,
                        call->n_in > 2 ? call->in[2]->data : NULL, workspace,
                        (double *)call->out[0]->data + b, (double *)call->out[1]->data + b);
    return WF_OK;
}

static wf_status losses_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    (void)out;
    *ndim = 1;
    dims[0] = call->in[0]->dim[0];
    return check_weights(call);
}

static wf_status balance_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *x = call->in[0];

    (void)out;
    if (check_weights(call) != WF_OK)
        return wf_context_status(call->ctx);
    *ndim = x->ndim;
    memcpy(dims, x->dim, (size_t)x->ndim * sizeof *dims);
    return WF_OK;
}

const wf_op wf_op_route_load = {WF_OP_ROW(route_load), .keep_fp32 = 1, .shape = load_shape,
                                .reference = {.run = load_reference}};
const wf_op wf_op_route_losses = {
    WF_OP_ROW(route_losses), .write_signature = losses_signature, .keep_fp32 = 3,
    .shape = losses_shape,
    .reference = {.run = losses_reference, .workspace = balance_workspace}};
const wf_op wf_op_route_balance = {
    WF_OP_ROW(route_balance), .write_signature = balance_signature, .keep_fp32 = 1,
    .shape = balance_shape,
    .reference = {.run = balance_reference, .workspace = balance_workspace}};
