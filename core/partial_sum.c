/* core/partial_sum.c - sums of two nodes of one tree: gradients that meet, micro-steps,
   chunks. */
#include "core/context_internal.h"
#include "core/later.h"
#include "core/sharing_internal.h"
#include "core/tape.h"
#include <string.h>

/* Checks that two nodes of one tree may be added; the reason against it is in the context. */
static bool nodes_meet(const wf_tensor *a, const wf_tensor *b)
{
    char text_a[256], text_b[256], why[WF_PARTIAL_TEXT] = "";
    const wf_tensor *left;

    if (!a || !b || wf_handle_check(a, "a sum of two: the first") != WF_OK ||
        wf_handle_check(b, "a sum of two: the second") != WF_OK)
        return false;
    if (a->layout == b->layout && a->dtype == b->dtype && a->ndim == b->ndim &&
        memcmp(a->local, b->local, (size_t)a->ndim * sizeof *a->local) == 0)
        return true;
    left = wf_tensor_is_partial(a) ? a : b;
    if (wf_tensor_is_partial(left) && left->partial_from.op)
        wf_partial_explain(left, why, sizeof why);
    wf_fail(a->ctx, WF_ELAYOUT,
            "two sums that meet are not alike: %s and %s; bring both to one layout, type and "
            "shape first%s%s",
            wf_tensor_describe(a, text_a, sizeof text_a),
            wf_tensor_describe(b, text_b, sizeof text_b), *why ? ". " : "", why);
    return false;
}

/* Returns true where there are elements to add. */
static bool computes(const wf_tensor *t)
{
    return !wf_tensor_is_fake(t) && !t->ctx->options.plan;
}

/* Returns true where no other handle sees the tensor or its data. */
static bool is_mine(const wf_tensor *a)
{
    return a->refs == 1 && a->storage->refs == 1;
}

static const wf_op sum_op = {.name = "a sum of two", .id = -1};

/* Returns true where ranks may add once for all of them. A tensor that this rank would add to
   in place counts once: only shared memory replaces it. */
static bool adds_together(const wf_tensor *a, const wf_tensor *b)
{
    if (wf_tensor_is_fake(a) || wf_tensor_is_fake(b))
        return false;
    if (is_mine(a))
        return a->storage->shared && a->offset == 0;
    return a->storage->shared || b->storage->shared;
}

/* Adds where several ranks add the same: one of them does, and the sum is in other memory that
   they share. False: this rank adds by itself, or there is an error. */
static bool add_together(wf_tensor **older, wf_tensor *b)
{
    wf_tensor *a = *older, *sum = NULL, target = *a;
    wf_call call = {.op = &sum_op, .ctx = a->ctx, .n_in = 2, .in = {a, b}, .n_out = 1};
    wf_share share = wf_share_begin(&call);
    bool computes = share.role == WF_SHARE_COMPUTE;
    wf_shared *out;

    if (share.role == WF_SHARE_NONE)
        return false;
    out = wf_share_output(a->ctx, &share, 0,
                          (size_t)wf_tensor_local_count(a) * wf_dtype_size(a->dtype));
    if (out && is_mine(a)) {
        target.data = wf_shared_data(out);
        if (computes)
            a->ctx->device->add(a, b, &target);
        wf_share_end(&share, true); /* the result goes with the last tensor of the old memory */
        wf_tensor_renew(a, out);
        return true;
    }
    if (out)
        sum = wf_tensor_shared(a, a->layout, a->ctx->now.kind, out, share.member);
    if (sum && computes)
        a->ctx->device->add(a, b, sum);
    wf_share_end(&share, sum != NULL);
    if (sum) {
        *older = wf_tensor_retain(sum);
        wf_tensor_release(a);
    }
    return sum != NULL;
}

/* Returns the tensor for a + b: a itself if no other handle sees it. */
static wf_tensor *tensor_of_sum(wf_tensor *a, const wf_tensor *b)
{
    wf_tensor *sum;

    if (wf_tensor_is_fake(a) || wf_tensor_is_fake(b)) {
        sum = wf_tensor_fake(a->ctx, a->dtype, a->ndim, a->dim, a->layout);
        if (sum) {
            sum->rounds_to = a->rounds_to;
            sum->partial_from = a->partial_from;
        }
        return sum;
    }
    if (is_mine(a))
        return a;
    return wf_tensor_like(a, a->ctx->now.kind);
}

static wf_status add(wf_tensor **older, wf_tensor *newer)
{
    wf_tensor *a = *older, *sum;

    if (wf_later_come(a) != WF_OK || wf_later_come(newer) != WF_OK || !nodes_meet(a, newer))
        return a && newer ? a->ctx->failure.error.code : WF_EINVAL;
    if (adds_together(a, newer) &&
        (add_together(older, newer) || a->ctx->failure.error.code != WF_OK))
        return (*older)->ctx->failure.error.code;
    sum = tensor_of_sum(a, newer);
    if (!sum)
        return a->ctx->failure.error.code;
    if (sum == a && wf_tensor_own(a, true) != WF_OK)
        return a->ctx->failure.error.code;
    if (computes(sum))
        a->ctx->device->add(a, newer, sum);
    if (sum != a) {
        *older = wf_tensor_retain(sum);
        wf_tensor_release(a);
    }
    return WF_OK;
}

wf_status wf_partial_add(wf_tensor **older, wf_tensor *newer)
{
    wf_context *ctx = *older ? (*older)->ctx : NULL;
    wf_trace_mark begun = {0, 0};
    wf_status status;

    if (ctx)
        begun = wf_context_host_begin(ctx);
    status = add(older, newer);
    if (ctx)
        wf_context_host_end(ctx, begun, "sum of partials");
    return status;
}

wf_tensor *wf_partial_add_to(wf_tensor *a, wf_tensor *b)
{
    if (wf_later_come(a) != WF_OK || wf_later_come(b) != WF_OK || !nodes_meet(a, b))
        return NULL;
    if (wf_tensor_own(a, true) != WF_OK)
        return NULL;
    if (computes(a) && computes(b))
        a->ctx->device->add(a, b, a);
    wf_tensor_changed(a, "wf_partial_add_to");
    return a;
}
