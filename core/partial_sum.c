/* core/partial_sum.c - sums of two nodes of one tree: gradients that meet, micro-steps, chunks. */
#include "core/context_internal.h"
#include "core/tape.h"
#include <string.h>

/* Whether two nodes of one tree may be added; what stands against it is in the context. */
static bool nodes_meet(const wf_tensor *a, const wf_tensor *b)
{
    char text_a[256], text_b[256];

    if (!a || !b)
        return false;
    if (a->layout == b->layout && a->dtype == b->dtype && a->ndim == b->ndim &&
        memcmp(a->local, b->local, (size_t)a->ndim * sizeof *a->local) == 0)
        return true;
    wf_fail(a->ctx, WF_ELAYOUT, "two sums that meet are not alike: %s and %s",
            wf_tensor_describe(a, text_a, sizeof text_a),
            wf_tensor_describe(b, text_b, sizeof text_b));
    return false;
}

/* Whether there are elements to add. */
static bool computes(const wf_tensor *t)
{
    return !wf_tensor_is_fake(t) && !t->ctx->options.plan;
}

/* Where a + b goes: a itself if nobody else can see it. */
static wf_tensor *place_of_sum(wf_tensor *a, const wf_tensor *b)
{
    wf_tensor *sum;

    if (wf_tensor_is_fake(a) || wf_tensor_is_fake(b)) {
        sum = wf_tensor_fake(a->ctx, a->dtype, a->ndim, a->dim, a->layout);
        if (sum)
            sum->rounds_to = a->rounds_to;
        return sum;
    }
    if (a->refs == 1 && a->storage->refs == 1)
        return a;
    return wf_tensor_like(a, a->ctx->kind);
}

wf_status wf_partial_add(wf_tensor **older, wf_tensor *newer)
{
    wf_tensor *a = *older, *sum;

    if (!nodes_meet(a, newer))
        return a && newer ? WF_ELAYOUT : WF_EINVAL;
    sum = place_of_sum(a, newer);
    if (!sum)
        return a->ctx->error.code;
    if (computes(sum))
        a->ctx->device->add(a, newer, sum);
    if (sum != a) {
        *older = wf_tensor_retain(sum);
        wf_tensor_release(a);
    }
    return WF_OK;
}

wf_tensor *wf_partial_add_to(wf_tensor *a, wf_tensor *b)
{
    if (!nodes_meet(a, b))
        return NULL;
    if (computes(a) && computes(b))
        a->ctx->device->add(a, b, a);
    wf_tensor_changed(a, "wf_partial_add_to");
    return a;
}
