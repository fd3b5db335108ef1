/* mesh/comm/collective_check.c - what is asked of a collective, checked before anything is
   posted. */
#include "mesh/comm/collective_internal.h"

static bool reducible(const wf_collective *w)
{
    return w->element == 0 || w->element == sizeof(float) ||
           (w->element == sizeof(uint16_t) && w->reduction == WF_REDUCE_SUM);
}

static bool has_peer(const wf_collective *w)
{
    return w->kind == WF_BROADCAST || w->kind == WF_SEND || w->kind == WF_RECV;
}

static wf_status check_cuts(const wf_comm *c, const char *op, const int64_t *cuts, int64_t rows,
                            wf_error *error)
{
    if (!cuts)
        return wf_error_set(error, WF_EINVAL, "%s over %s has a buffer without cuts", op,
                            c->name);
    for (int i = 0; i <= c->size; i++)
        if (i ? cuts[i] < cuts[i - 1] : cuts[0] != 0)
            return wf_error_set(
                error, WF_EINVAL,
                "%s over %s: cuts begin with 0 and never fall, but cut %d is %lld", op, c->name,
                i, (long long)cuts[i]);
    for (int i = 0; i <= c->size && rows > 1; i++)
        if (cuts[i] % rows != 0)
            return wf_error_set(error, WF_EINVAL,
                                "%s over %s: cut %d is %lld, no multiple of %lld rows", op,
                                c->name, i, (long long)cuts[i], (long long)rows);
    return WF_OK;
}

/* Checks that what is rounded is a scattered sum of floats. */
static wf_status check_rounding(const wf_comm *c, const wf_collective *w,
                                const wf_comm_buffer *b, wf_error *error)
{
    if (!b->rounds || (w->kind == WF_REDUCE_SCATTER && w->reduction == WF_REDUCE_SUM &&
                       (w->element == 0 || w->element == sizeof(float))))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s over %s: a buffer is to be rounded to bf16, which a reduce_scatter "
                        "does with sums of floats (element 4) alone",
                        wf_collective_name(w->kind), c->name);
}

/* Checks that a part that lies in rows, or is rounded, does not overlap what it comes from or
   goes to. */
static wf_status check_no_overlap(const wf_comm *c, const wf_collective *w,
                                  const wf_comm_buffer *b, wf_error *error)
{
    const int64_t *out_cuts = w->kind == WF_ALL_TO_ALL ? b->out_cuts : b->cuts;
    size_t element = w->element ? w->element : sizeof(float);
    int64_t part = b->cuts[c->rank + 1] - b->cuts[c->rank];
    size_t in = (size_t)(w->kind == WF_ALL_GATHER ? part : b->cuts[c->size]) * element;
    size_t out = (size_t)(w->kind == WF_REDUCE_SCATTER ? part : out_cuts[c->size]) *
                 (b->rounds ? sizeof(uint16_t) : element);
    uintptr_t x = (uintptr_t)b->in, y = (uintptr_t)b->out;

    if ((b->rows <= 1 && b->out_rows <= 1 && !b->rounds) || x + in <= y || y + out <= x)
        return WF_OK;
    if (b->rounds)
        return wf_error_set(error, WF_EINVAL,
                            "%s over %s: in and out overlap, and the sum is rounded to bf16; "
                            "give it memory of its own",
                            wf_collective_name(w->kind), c->name);
    return wf_error_set(error, WF_EINVAL,
                        "%s over %s: in and out overlap, and the parts lie in %lld rows; give "
                        "them memory of their own",
                        wf_collective_name(w->kind), c->name,
                        (long long)(b->rows > 1 ? b->rows : b->out_rows));
}

wf_status wf_collective_check(const wf_comm *c, const wf_collective *w, wf_error *error)
{
    const char *op = wf_collective_name(w->kind);
    wf_status status = WF_OK;

    if ((unsigned)w->kind >= WF_COLLECTIVE_KINDS || w->n_buffers < 0)
        return wf_error_set(error, WF_EINVAL, "%s of %lld buffers over %s", op,
                            (long long)w->n_buffers, c->name);
    if (w->device && c->transport->moves && !c->transport->device_memory)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s over %s: transport %s moves the host's memory, and tensors lie "
                            "on device %s; use .transport nccl, or threads, or .device cpu",
                            op, c->name, c->transport->name, w->device->name);
    if (wf_collective_reduces(w) && (!reducible(w) || !(c->reduce.sum || w->device)))
        return wf_error_set(
            error, WF_EINVAL, "%s over %s: %s", op, c->name,
            c->reduce.sum || w->device
                ? "reductions take floats (element 4), sums bf16 too (element 2)"
                : "the group has no arithmetic (wf_comm_set_reduce)");
    if (has_peer(w) &&
        (w->peer < 0 || w->peer >= c->size || (w->peer == c->rank && w->kind != WF_BROADCAST)))
        return wf_error_set(error, WF_EINVAL,
                            "%s over %s: member %d is not another one of its %d (this is %d)",
                            op, c->name, w->peer, c->size, c->rank);
    for (int64_t b = 0; status == WF_OK && b < w->n_buffers; b++) {
        if (wf_collective_has_cuts(w))
            status = check_cuts(c, op, w->buffers[b].cuts, w->buffers[b].rows, error);
        else if (w->buffers[b].count < 0)
            status = wf_error_set(error, WF_EINVAL, "%s over %s of %lld elements", op, c->name,
                                  (long long)w->buffers[b].count);
        if (status == WF_OK && w->kind == WF_ALL_TO_ALL)
            status = check_cuts(c, op, w->buffers[b].out_cuts, w->buffers[b].out_rows, error);
        if (status == WF_OK)
            status = check_rounding(c, w, &w->buffers[b], error);
        if (status == WF_OK && wf_collective_has_cuts(w))
            status = check_no_overlap(c, w, &w->buffers[b], error);
    }
    return status;
}
