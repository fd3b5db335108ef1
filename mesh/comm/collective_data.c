/*
 * mesh/comm/collective_data.c - what collectives do to data: copies of parts that may lie in
 * rows, and reductions over members, in the host's memory or by the device that has them.
 */
#include "core/numerics/bf16.h"
#include "mesh/comm/collective_internal.h"
#include <string.h>

static void copy_rows(const wf_pending *p, const wf_copy *copy)
{
    wf_device *device = wf_on_device(p);

    if (!copy->bytes || copy->rows < 1)
        return;
    if (device) {
        /* it keeps a failure, and reports it */
        device->memory->copy(device, copy, false, NULL);
        return;
    }
    for (int64_t r = 0; r < copy->rows; r++)
        memmove((char *)copy->to + (size_t)r * copy->to_step,
                (const char *)copy->from + (size_t)r * copy->from_step, copy->bytes);
}

void wf_copy_part(const wf_pending *p, void *to, const void *from, size_t bytes)
{
    if (to != from)
        copy_rows(p, &(wf_copy){.from = from, .to = to, .bytes = bytes, .rows = 1});
}

/* Fills in one side of a part's copy: the bytes from where a row begins to where the next one
   does. */
static size_t copy_part(const wf_pending *p, const int64_t *cuts, int64_t rows, int64_t b,
                        int rank, wf_copy *copy, bool pack)
{
    int64_t first = wf_part(p, cuts, b, rank), n = wf_part(p, cuts, b, rank + 1) - first;
    size_t bytes = (size_t)n * p->what.element, at, step;

    if (!bytes)
        return 0;
    copy->rows = rows > 1 ? rows : 1;
    copy->bytes = bytes / (size_t)copy->rows;
    at = (size_t)(first / copy->rows) * p->what.element;
    step = (size_t)(wf_part(p, cuts, b, p->comm->size) / copy->rows) * p->what.element;
    copy->from_step = pack ? step : copy->bytes;
    copy->to_step = pack ? copy->bytes : step;
    if (pack)
        copy->from = (const char *)copy->from + at;
    else
        copy->to = (char *)copy->to + at;
    copy_rows(p, copy);
    return bytes;
}

size_t wf_pack_part(const wf_pending *p, const int64_t *cuts, int64_t rows, int64_t b, int rank,
                    const void *whole, void *dense)
{
    return copy_part(p, cuts, rows, b, rank, &(wf_copy){.from = whole, .to = dense}, true);
}

size_t wf_unpack_part(const wf_pending *p, const int64_t *cuts, int64_t rows, int64_t b,
                      int rank, const void *dense, void *whole)
{
    return copy_part(p, cuts, rows, b, rank, &(wf_copy){.from = dense, .to = whole}, false);
}

enum { BF16_BLOCK = 256 };

static void widen(const uint16_t *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_value(from[i]);
}

/* Sums elements that are stored as bf16, as floats. */
static void sum_widened(const wf_reduce_ops *ops, const void *const *source, int count,
                        int64_t at, int64_t n, float *sum)
{
    int left = ops->chain ? count - 1 : count / 2;
    float more[BF16_BLOCK];

    if (count == 1) {
        widen((const uint16_t *)source[0] + at, sum, n);
        return;
    }
    sum_widened(ops, source, left, at, n, sum);
    sum_widened(ops, source + left, count - left, at, n, more);
    ops->sum((const float *const[]){sum, more}, 2, !ops->chain, sum, n);
}

static void narrow(const wf_reduce_ops *ops, const float *from, uint16_t *to, int64_t n)
{
    if (ops->narrow) {
        ops->narrow(from, to, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_of(from[i]);
}

/* Sums the first n floats of all sources, which then begin after them. */
static void sum_floats(const wf_pending *p, int64_t n, float *sum)
{
    const wf_reduce_ops *ops = &p->comm->reduce;

    ops->sum((const float *const *)p->source, p->comm->size, !ops->chain, sum, n);
    for (int i = 0; i < p->comm->size; i++)
        p->source[i] = (const float *)p->source[i] + n;
}

/* Sums by blocks that stay in the caches, each rounded once. */
static void reduce_to_bf16(const wf_pending *p, uint16_t *y, int64_t n)
{
    float sum[BF16_BLOCK];

    for (int64_t at = 0; at < n; at += BF16_BLOCK) {
        int64_t length = n - at < BF16_BLOCK ? n - at : BF16_BLOCK;

        if (p->what.element == sizeof(uint16_t))
            sum_widened(&p->comm->reduce, p->source, p->comm->size, at, length, sum);
        else
            sum_floats(p, length, sum);
        narrow(&p->comm->reduce, sum, y + at, length);
    }
}

wf_status wf_reduce_on_device(const wf_pending *p, int n_targets, size_t out, int64_t n,
                              bool side_stream, wf_error *error)
{
    wf_device *device = wf_on_device(p);
    wf_reduce reduce = {.src = p->source,
                        .dst = p->target,
                        .n_src = p->comm->size,
                        .n_dst = n_targets,
                        .element = p->what.element,
                        .out_element = out,
                        .tree = !p->comm->reduce.chain,
                        .maximum = p->what.reduction == WF_REDUCE_MAX,
                        .n = n};

    return device->memory->reduce(device, &reduce, side_stream, error);
}

void wf_reduce_members(const wf_pending *p, void *y, size_t out, int64_t n)
{
    const wf_reduce_ops *ops = &p->comm->reduce;

    if (out == sizeof(uint16_t)) {
        reduce_to_bf16(p, y, n);
        return;
    }
    if (p->what.reduction == WF_REDUCE_SUM) {
        ops->sum((const float *const *)p->source, p->comm->size, !ops->chain, y, n);
        return;
    }
    wf_copy_part(p, y, p->source[0], (size_t)n * sizeof(float));
    for (int i = 1; i < p->comm->size; i++)
        ops->maximum(y, p->source[i], y, n);
}
