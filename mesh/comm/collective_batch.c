/*
 * mesh/comm/collective_batch.c - copies and sums of all buffers of a collective, which a device
 * makes together, and parts that may lie in rows, packed side by side and brought back.
 */
#include "mesh/comm/collective_internal.h"
#include <string.h>

void wf_moves_begin(wf_moves *b, const wf_pending *p, bool side_stream)
{
    b->p = p;
    b->side_stream = side_stream;
    b->copies = b->sums = b->buffers = 0;
}

static wf_status end_copies(wf_moves *b, wf_error *error)
{
    wf_device *device = wf_on_device(b->p);
    const int n = b->copies;

    b->copies = 0;
    return n ? device->memory->copy_all(device, b->copy, n, b->side_stream, error) : WF_OK;
}

static wf_status end_sums(wf_moves *b, wf_error *error)
{
    wf_device *device = wf_on_device(b->p);
    const int n = b->sums;

    b->sums = b->buffers = 0;
    return n ? device->memory->reduce(device, b->sum, n, b->side_stream, error) : WF_OK;
}

wf_status wf_moves_end(wf_moves *b, wf_error *error)
{
    wf_status status = end_copies(b, error);

    return status == WF_OK ? end_sums(b, error) : status;
}

wf_status wf_moves_copy(wf_moves *b, const wf_copy *copy, wf_error *error)
{
    wf_status status = WF_OK;

    if (!wf_on_device(b->p)) {
        wf_copy_rows(b->p, copy);
        return WF_OK;
    }
    if (b->copies == WF_MOVES_COPIES)
        status = end_copies(b, error);
    b->copy[b->copies++] = *copy;
    return status;
}

wf_status wf_moves_sum(wf_moves *b, int n_targets, size_t out, int64_t n, wf_error *error)
{
    const wf_pending *p = b->p;
    const int size = p->comm->size, more = size + n_targets;
    const bool alike = !b->sums || b->sum[0].n_dst == n_targets;
    wf_status status = WF_OK;
    wf_reduce *sum;

    if (!alike || b->sums == WF_MOVES_SUMS || b->buffers + more > WF_MOVES_BUFFERS)
        status = end_sums(b, error);
    sum = &b->sum[b->sums++];
    *sum = (wf_reduce){.src = p->source,
                       .dst = p->target,
                       .n_src = size,
                       .n_dst = n_targets,
                       .element = p->what.element,
                       .out_element = out,
                       .tree = !p->comm->reduce.chain,
                       .maximum = p->what.reduction == WF_REDUCE_MAX,
                       .n = n};
    if (more > WF_MOVES_BUFFERS) /* more than a device takes; it says so */
        return status == WF_OK ? end_sums(b, error) : status;
    memcpy(b->buffer + b->buffers, p->source, (size_t)size * sizeof *b->buffer);
    memcpy(b->buffer + b->buffers + size, p->target, (size_t)n_targets * sizeof *b->buffer);
    sum->src = (const void *const *)b->buffer + b->buffers;
    sum->dst = b->buffer + b->buffers + size;
    b->buffers += more;
    return status;
}

/* Adds the copy of a member's part of buffer k between `whole`, which is cut in `rows`, and a
   dense copy of it; returns its bytes. A device keeps a failure, and reports it. */
static size_t copy_part(wf_moves *b, const int64_t *cuts, int64_t rows, int64_t k, int member,
                        char *whole, char *dense, bool pack)
{
    const wf_pending *p = b->p;
    int64_t first = wf_part(p, cuts, k, member), n = wf_part(p, cuts, k, member + 1) - first;
    size_t bytes = (size_t)n * p->what.element, step;
    wf_copy copy = {.rows = rows > 1 ? rows : 1};

    if (!bytes)
        return 0;
    copy.bytes = bytes / (size_t)copy.rows;
    step = (size_t)(wf_part(p, cuts, k, p->comm->size) / copy.rows) * p->what.element;
    whole += (size_t)(first / copy.rows) * p->what.element;
    copy.from = pack ? whole : dense;
    copy.to = pack ? dense : whole;
    copy.from_step = pack ? step : copy.bytes;
    copy.to_step = pack ? copy.bytes : step;
    wf_moves_copy(b, &copy, NULL);
    return bytes;
}

char *wf_pack_parts(const wf_pending *p, char *to)
{
    wf_moves batch;

    wf_moves_begin(&batch, p, false);
    for (int i = 0; i < p->comm->size; i++)
        for (int64_t k = 0; k < p->what.n_buffers; k++)
            to += copy_part(&batch, p->cuts, p->buffer[k].rows, k, i, (void *)p->buffer[k].in,
                            to, true);
    wf_moves_end(&batch, NULL);
    return to;
}

void wf_unpack_parts(const wf_pending *p, const int64_t *cuts, const char *from)
{
    wf_moves batch;

    wf_moves_begin(&batch, p, false);
    for (int i = 0; i < p->comm->size; i++)
        for (int64_t k = 0; k < p->what.n_buffers; k++) {
            const wf_comm_buffer *buffer = &p->buffer[k];
            int64_t rows = p->what.kind == WF_ALL_TO_ALL ? buffer->out_rows : buffer->rows;

            from += copy_part(&batch, cuts, rows, k, i, buffer->out, (char *)from, false);
        }
    wf_moves_end(&batch, NULL);
}
