/*
 * mesh/comm/collective_data.c - what collectives do to data: copies, in the host's memory or by
 * the device that has it, and reductions over members in the host's.
 */
#include "core/numerics/bf16.h"
#include "mesh/comm/collective_internal.h"
#include <string.h>

void wf_copy_rows(const wf_pending *p, const wf_copy *copy)
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
        wf_copy_rows(p, &(wf_copy){.from = from, .to = to, .bytes = bytes, .rows = 1});
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
