/* core/dispatch.c - the one path of every op. */
#include "core/context_internal.h"
#include "core/handles_internal.h"
#include "core/later_internal.h"
#include "core/run_kernel_internal.h"
#include "core/sharing_internal.h"
#include "core/signature.h"
#include "core/tape.h"
#include "core/dtype.h"
#include <stdio.h>
#include <string.h>

/* Checks the counts of an application's op before anything is read. */
static wf_status check_counts(const wf_call *call)
{
    if (call->n_in > WF_MAX_INPUTS || call->n_out > WF_MAX_OUTPUTS)
        return wf_fail(call->ctx, WF_EINVAL,
                       "%s: %d operands and %d outputs, at most %d and %d are possible",
                       call->op->name, call->n_in, call->n_out, WF_MAX_INPUTS, WF_MAX_OUTPUTS);
    if (call->attr_size > WF_MAX_ATTRIBUTES)
        return wf_fail(call->ctx, WF_EINVAL,
                       "%s: attributes of %zu bytes, at most %d are possible: leave a pointer "
                       "to what is larger",
                       call->op->name, call->attr_size, WF_MAX_ATTRIBUTES);
    return WF_OK;
}

/* Checks the handles of all operands and of tensors that outputs are written into. */
static wf_status check_handles(const wf_call *call)
{
    char what[96];

    for (int i = 0; i < call->n_in + call->n_out; i++) {
        bool in = i < call->n_in;

        snprintf(what, sizeof what, "%s: %s %d", call->op->name, in ? "operand" : "output",
                 in ? i : i - call->n_in);
        if (wf_handle_check(in ? call->in[i] : call->into[i - call->n_in], what) != WF_OK)
            return call->ctx->failure.error.code;
    }
    return WF_OK;
}

/* Find the context, given or that of an operand. WF_OK where the call can continue; NULL in is
   NULL out, and mostly the reason is in the context already. */
static wf_status ready(wf_call *call)
{
    int n = call->n_in < WF_MAX_INPUTS ? call->n_in : WF_MAX_INPUTS;
    wf_status status;

    for (int i = 0; i < n && !call->ctx; i++)
        if (call->in[i])
            call->ctx = call->in[i]->ctx;
    if (!call->ctx)
        return WF_EINVAL;
    if (call->ctx->failure.error.code != WF_OK)
        return call->ctx->failure.error.code;
    status = check_counts(call);
    if (status == WF_OK && call->ctx->handles)
        status = check_handles(call);
    for (int i = 0; i < n && status == WF_OK; i++) {
        if (!call->in[i])
            status =
                wf_fail(call->ctx, WF_EINVAL,
                        "%s: operand %d is NULL, though nothing failed before: was it ever "
                        "made?",
                        call->op->name, i);
        else if (call->in[i]->ctx != call->ctx)
            status = wf_fail(call->ctx, WF_EINVAL,
                             "%s: operand %d belongs to another context (rank %d): tensors are "
                             "used where they were made",
                             call->op->name, i, call->in[i]->ctx->failure.rank);
        else if (call->in[i]->layout && !call->ctx->distribution)
            status = wf_fail(call->ctx, WF_EINVAL,
                             "%s: operand %d was laid out over a mesh that is closed, and has "
                             "only a part of it here: tensors end before their mesh",
                             call->op->name, i);
        else if (wf_is_later(call->in[i]) && !(call->op->shapes & 1u << i))
            status = i == 0 && wf_takes_blocks(call) ? WF_OK : wf_later_come(call->in[i]);
        else if (wf_tensor_is_absent(call->in[i]) && !(call->op->shapes & 1u << i))
            status = wf_fail(call->ctx, WF_EINVAL,
                             "%s: the memory of operand %d was given back (wf_tensor_drop): a "
                             "gathered parameter is there only inside of its unit's modules",
                             call->op->name, i);
    }
    return status;
}

static wf_status output_shape(const wf_call *call, const wf_signature *sig, int o, int *ndim,
                              wf_dim *dims)
{
    int row = call->n_in + o;

    if (call->op->shape)
        return call->op->shape(call, o, ndim, dims);
    *ndim = sig->ndim[row];
    for (int d = 0; d < *ndim; d++) {
        int letter = sig->letter[row][d];

        if (!sig->known[letter])
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: dim %d of output %d has a letter that no operand has: the op "
                           "needs a shape function (signature %s)",
                           call->op->name, d, o, call->signature);
        dims[d] = sig->dim[letter];
    }
    return WF_OK;
}

static bool any_fake(const wf_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (wf_tensor_is_fake(call->in[i]))
            return true;
    return false;
}

/* An output before it is allocated. */
typedef struct output {
    wf_dtype dtype, rounds_to;
    int ndim;
    wf_dim dims[WF_MAX_DIMS];
    const wf_layout *layout;
} output;

/* Describes output o; a sum over ranks is rounded once, when it is complete. */
static wf_status describe_output(const wf_call *call, const wf_signature *sig, int o,
                                 const wf_layout *layout, output *out)
{
    const wf_context *ctx = call->ctx;
    bool partial = layout && ctx->distribution->partial(layout);
    bool wide = call->op->keep_fp32 >> o & 1;

    if (ctx->options.fp32_residual && call->op->follows >> o & 1)
        wide |= call->in[0]->rounds_to == ctx->device->dtype;
    out->rounds_to = wide ? ctx->device->dtype : ctx->now.storage;
    out->dtype = partial ? ctx->device->dtype : out->rounds_to;
    out->layout = layout;
    return output_shape(call, sig, o, &out->ndim, out->dims);
}

/* Checks an output that goes into a tensor which is there already. */
static wf_status check_into(const wf_call *call, int o, const output *out, bool fake)
{
    const wf_tensor *t = call->into[o];
    bool alike = t->dtype == out->dtype && t->rounds_to == out->rounds_to &&
                 t->ndim == out->ndim && t->layout == out->layout;
    char text[256];

    for (int d = 0; alike && d < out->ndim; d++)
        alike = wf_dim_equal(t->dim[d], out->dims[d]);
    if (!alike || t->ctx != call->ctx || wf_tensor_is_fake(t) != fake)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: output %d cannot go into %s: it needs a tensor of the output's "
                       "type, shape and layout, fake only where operands are",
                       call->op->name, o, wf_tensor_describe(t, text, sizeof text));
    if (call->ctx->now.tape || (call->op->flags & WF_OP_VIEW))
        return wf_fail(call->ctx, WF_EINVAL, "%s: output %d cannot go into a given tensor %s",
                       call->op->name, o,
                       call->ctx->now.tape
                           ? "while a tape records: what it may have saved would "
                             "change; switch the tape off first"
                           : "since it is a view of its operand");
    return WF_OK;
}

/* Makes an output in memory that ranks share. */
static wf_tensor *shared_output(wf_context *ctx, const output *out, wf_share *share, int o)
{
    wf_tensor like = {
        .ctx = ctx, .dtype = out->dtype, .rounds_to = out->rounds_to, .ndim = out->ndim};
    wf_shared *shared;

    if (wf_tensor_shape(&like, out->ndim, out->dims, out->layout) != WF_OK)
        return NULL;
    shared = wf_share_output(ctx, share, o,
                             (size_t)wf_tensor_local_count(&like) * wf_dtype_size(out->dtype));
    return shared ? wf_tensor_shared(&like, out->layout, ctx->now.kind, shared, share->member)
                  : NULL;
}

/* Makes an output, in its own memory or in memory that ranks share, or without memory where it
   is computed later. */
static wf_tensor *new_output(const wf_call *call, const output *out, wf_share *share, int o)
{
    wf_context *ctx = call->ctx;
    wf_tensor *t;

    if (share->role != WF_SHARE_NONE)
        return shared_output(ctx, out, share, o);
    if (out->layout && ctx->distribution->partial(out->layout) && wf_makes_later(call))
        t = wf_tensor_absent(ctx, out->dtype, out->ndim, out->dims, out->layout);
    else
        t = wf_tensor_new(ctx, out->dtype, out->ndim, out->dims, out->layout, ctx->now.kind);
    if (t)
        t->rounds_to = out->rounds_to;
    return t;
}

static wf_status make_outputs(wf_call *call, const wf_signature *sig, bool fake,
                              wf_share *share)
{
    const wf_layout *layout[WF_MAX_OUTPUTS] = {NULL};
    wf_context *ctx = call->ctx;
    wf_status status;

    if (ctx->distribution) {
        status = ctx->distribution->rule(call, sig, layout);
        if (status != WF_OK)
            return status;
    }
    for (int o = 0; o < call->n_out; o++) {
        output out;

        status = describe_output(call, sig, o, layout[o], &out);
        if (status == WF_OK && call->into[o])
            status = check_into(call, o, &out, fake);
        if (status != WF_OK)
            return status;
        if (call->into[o]) {
            call->out[o] = call->into[o];
        } else if (call->op->flags & WF_OP_VIEW) {
            if (out.layout)
                status = ctx->distribution->view(call, sig, out.layout, out.dims);
            if (status != WF_OK)
                return status;
            call->out[o] = wf_tensor_view(call->in[0], out.ndim, out.dims, out.layout);
        } else {
            call->out[o] = fake ? wf_tensor_fake(ctx, out.dtype, out.ndim, out.dims, out.layout)
                                : new_output(call, &out, share, o);
            if (fake && call->out[o])
                call->out[o]->rounds_to = out.rounds_to;
        }
        if (!call->out[o])
            return ctx->failure.error.code;
        if (out.layout && wf_tensor_is_partial(call->out[o]))
            wf_partial_begins(call, sig, call->out[o]);
    }
    return WF_OK;
}

/* Returns true where a kernel gets an operand widened that is stored in less than the device
   computes in. */
static bool is_widened(const wf_call *call, wf_dtype dtype, bool in_place)
{
    return wf_dtype_is_narrow(dtype) ||
           (dtype == WF_NF4 && !in_place && call->ctx->device->widen_nf4);
}

/* Checks dtypes: a kernel must not read bytes of one type as another; operands stored as bf16
   or nf4 are widened for it. */
static wf_status check_dtypes(const wf_call *call)
{
    const wf_device *device = call->ctx->device;
    bool in_place = call->op->flags & WF_OP_IN_PLACE; /* nothing is widened then */
    const wf_kernel *kernel = in_place ? device->kernel(device, call->op) : NULL;
    unsigned bf16 = kernel ? wf_taken_as_bf16(call, kernel) : ~0u;

    for (int i = 0; i < call->n_in; i++) {
        wf_dtype dtype = call->in[i]->dtype;
        bool integer = call->op->integers >> i & 1;

        if (integer && dtype != WF_I32)
            return wf_fail(call->ctx, WF_EDTYPE, "%s: operand %d is %s, but must be %s",
                           call->op->name, i, wf_dtype_name(dtype), wf_dtype_name(WF_I32));
        if (!integer && is_widened(call, dtype, in_place) && (bf16 & WF_IN(i)))
            continue;
        if (kernel && wf_dtype_is_dynamic8(dtype) && (kernel->dynamic8_ok & WF_IN(i)))
            continue;
        if (!integer && dtype != device->dtype)
            return wf_fail(call->ctx, WF_EDTYPE,
                           "%s: operand %d is %s, but device %s computes in %s", call->op->name,
                           i, wf_dtype_name(dtype), device->name, wf_dtype_name(device->dtype));
    }
    return WF_OK;
}

/* Gives operands that the call writes to in place memory of this rank's own. */
static wf_status own_what_changes(const wf_call *call)
{
    const wf_op *op = call->op;
    unsigned writes = op->flags & WF_OP_IN_PLACE ? op->writes | WF_IN(0) : 0;
    wf_status status = WF_OK;

    for (int i = 0; i < call->n_in && status == WF_OK; i++)
        if (writes & WF_IN(i))
            status = wf_tensor_own(call->in[i], true);
    for (int o = 0; o < call->n_out && status == WF_OK; o++)
        if (call->into[o])
            status = wf_tensor_own(call->into[o], true);
    return status;
}

/* Runs the kernel of a call whose outputs are made: now, or as rows come or are asked for. */
static wf_status run_kernel(const wf_call *call, wf_share_role role)
{
    if (call->n_in && wf_is_later(call->in[0]) && !(call->op->shapes & WF_IN(0)))
        return wf_run_by_blocks(call);
    if (call->n_out && wf_tensor_is_absent(call->out[0]))
        return wf_compute_later(call);
    return wf_run_kernel(call, role);
}

/* Allocates and computes the outputs, by this rank, or, where several ranks have the same call,
   by one of them. */
static wf_status make_and_compute(wf_call *call, const wf_signature *sig, bool fake)
{
    wf_status status = own_what_changes(call);
    wf_share share = {.role = WF_SHARE_NONE};

    if (status == WF_OK && !fake && !wf_is_later(call->in[0]) && !wf_makes_later(call)) {
        share = wf_share_begin(call);
        status = call->ctx->failure.error.code;
    }
    if (status == WF_OK)
        status = make_outputs(call, sig, fake, &share);
    if (status == WF_OK && !fake && !(call->op->flags & WF_OP_VIEW))
        status = run_kernel(call, share.role);
    if (status == WF_OK && call->ctx->handles)
        status = wf_handles_look(call);
    wf_share_end(&share, status == WF_OK);
    return status;
}

/* Notes changes in place, for tapes that have saved the tensors. */
static void note_changes(const wf_call *call)
{
    const wf_op *op = call->op;
    unsigned writes = op->flags & WF_OP_IN_PLACE ? op->writes | WF_IN(0) : 0;

    for (int i = 0; i < call->n_in; i++)
        if (writes & WF_IN(i))
            wf_tensor_changed(call->in[i], op->name);
    for (int o = 0; o < call->n_out; o++)
        if (call->into[o])
            wf_tensor_changed(call->into[o], op->name);
}

static wf_status run(wf_call *call)
{
    char text[WF_SIGNATURE_TEXT];
    wf_signature sig;
    wf_status status;

    wf_context_run(call->ctx);
    call->ctx->now.op = call->op->name;
    call->signature =
        call->op->write_signature ? call->op->write_signature(call, text) : call->op->signature;
    status = wf_signature_match(call, &sig);
    if (status == WF_OK && !(call->op->flags & WF_OP_VIEW))
        status = check_dtypes(call);
    if (status == WF_OK) {
        status = make_and_compute(call, &sig, any_fake(call));
        if (status == WF_OK)
            note_changes(call);
    }
    if (status == WF_OK && call->ctx->now.tape && call->ctx->now.micro_steps > 1)
        wf_tape_report_computed(call, &sig);
    if (status == WF_OK)
        status = wf_tape_record(call);
    call->signature = NULL;
    call->ctx->now.op = NULL;
    if (status != WF_OK) {
        wf_fail(call->ctx, status, "%s failed", call->op->name); /* kept only without a text */
        memset(call->out, 0, sizeof call->out);
    }
    return status;
}

wf_status wf_dispatch(wf_call *call)
{
    wf_trace_mark begun;
    wf_status status;

    memset(call->out, 0, sizeof call->out);
    status = ready(call);
    if (status != WF_OK)
        return status;
    begun = wf_trace_begin(call->ctx->trace);
    status = run(call);
    wf_trace_launched(call->ctx->trace, begun);
    return status;
}

wf_tensor *wf_apply(const wf_op *op, const void *attr, size_t attr_size, int n_in, ...)
{
    wf_call call = {.op = op, .n_in = n_in, .n_out = 1, .attr = attr, .attr_size = attr_size};
    va_list operands;

    va_start(operands, n_in);
    for (int i = 0; i < n_in && i < WF_MAX_INPUTS; i++)
        call.in[i] = va_arg(operands, wf_tensor *);
    va_end(operands);
    wf_dispatch(&call);
    return call.out[0];
}
