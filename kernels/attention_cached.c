/*
 * kernels/attention_cached.c - causal attention to keys and values that a cache keeps, for
 * generation: the tokens of a sequence that were there before are not recomputed.
 *
 *     cache_write       cache[slot[b], first[b] + t] = k[b, t], and v alike
 *     attention_cached  y[b, t] = attention of q[b, t] to the tokens 0 .. first[b] + t of
 *     slot[b],
 *                       or to the last of them that a window or a chunk leaves
 *
 * The bits are those of wf_attention over the whole sequence. Neither has a gradient. The CPU's
 * kernels are in kernels/cpu/attention_cached.c.
 */
#include "core/numerics/math.h"
#include "kernels/attention_cached.h"
#include "kernels/attention_internal.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

wf_status wf_cache_write(wf_tensor *k_cache, wf_tensor *v_cache, wf_tensor *k, wf_tensor *v,
                         wf_tensor *first, wf_tensor *slot)
{
    wf_call call = {
        .op = &wf_op_cache_write, .n_in = 6, .in = {k_cache, v_cache, k, v, first, slot}};

    return wf_dispatch(&call);
}

wf_dtype wf_cache_dtype(const wf_tensor *k)
{
    const wf_device *device = wf_context_device(k->ctx);
    const wf_kernel *kernel = device->kernel(device, &wf_op_attention_cached);
    bool bf16 = k->dtype == WF_BF16 && wf_context_compute(k->ctx) == WF_BF16 && kernel &&
                (kernel->all_bf16 & WF_IN(1));

    return bf16 ? WF_BF16 : device->dtype;
}

wf_tensor *wf_attention_cached(wf_tensor *q, wf_tensor *k_cache, wf_tensor *v_cache,
                               wf_tensor *first, wf_tensor *slot,
                               const wf_attention_options *options)
{
    const wf_attention_options o = options ? *options : (wf_attention_options){.cap = 0};
    const wf_cached_attr a = {.window = wf_attention_window(&o), .cap = (double)o.cap};

    if (q && (o.window < 0 || o.chunk < 0 || (o.window && o.chunk))) {
        wf_fail(q->ctx, WF_EINVAL,
                "attention_cached: a window of %" PRId64 " tokens and chunks of %" PRId64
                "; one of them is at least 1, or both are 0",
                o.window, o.chunk);
        return NULL;
    }
    if (q && !(o.cap >= 0)) {
        wf_fail(q->ctx, WF_EINVAL,
                "attention_cached: a cap of scores of %g; it must be above 0, or 0 for none",
                (double)o.cap);
        return NULL;
    }
    return wf_apply(&wf_op_attention_cached, &a, sizeof a, o.sinks ? 6 : 5, q, k_cache, v_cache,
                    first, slot, o.sinks);
}

wf_status wf_cache_rows_check(const wf_call *call, const wf_tensor *cache,
                              const wf_tensor *tokens, const wf_tensor *first,
                              const wf_tensor *slot)
{
    const int32_t *at = first->data, *row = slot->data;
    int64_t slots = cache->local[0], room = cache->local[1], s = tokens->local[1];

    for (int64_t b = 0; b < tokens->local[0]; b++) {
        if (row[b] < 0 || row[b] >= slots)
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: slot %" PRId32 " of sequence %" PRId64
                           " is outside the cache's %" PRId64,
                           call->op->name, row[b], tokens->start[0] + b, slots);
        if (at[b] < 0 || at[b] + s > room)
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: tokens [%" PRId32 ", %" PRId64 ") of sequence %" PRId64
                           " are outside the cache's %" PRId64 " positions",
                           call->op->name, at[b], at[b] + s, tokens->start[0] + b, room);
    }
    return WF_OK;
}

/* Writes the signature: sinks may be missing. */
static const char *write_signature(const wf_call *call, char *text)
{
    (void)text;
    return call->n_in > 5 ? "bs!hd!,c!t!gd!,c!t!gd!,b,b,h->bs!hd!"
                          : "bs!hd!,c!t!gd!,c!t!gd!,b,b->bs!hd!";
}

static wf_status shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *q = call->in[0], *k = call->in[1];

    (void)out;
    if (k->dim[2].size < 1 || q->dim[2].size % k->dim[2].size != 0)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "%s: %" PRId64 " query heads can't share %" PRId64
                       " key-value heads alike; make the first a multiple of the second",
                       call->op->name, q->dim[2].size, k->dim[2].size);
    *ndim = q->ndim;
    memcpy(dims, q->dim, (size_t)q->ndim * sizeof *dims);
    return WF_OK;
}

static wf_status write_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *cache = call->in[0], *k = call->in[2];
    const int32_t *first = call->in[4]->data, *slot = call->in[5]->data;
    int64_t row = k->local[2] * k->local[3], tokens = k->local[1];

    (void)workspace;
    if (wf_cache_rows_check(call, cache, k, call->in[4], call->in[5]) != WF_OK)
        return wf_context_status(call->ctx);
    for (int i = 0; i < 2; i++)
        for (int64_t b = 0; b < k->local[0]; b++)
            memcpy((double *)call->in[i]->data + (slot[b] * cache->local[1] + first[b]) * row,
                   (const double *)call->in[2 + i]->data + b * tokens * row,
                   (size_t)(tokens * row) * sizeof(double));
    return WF_OK;
}

static size_t reference_workspace(const wf_call *call)
{
    return (size_t)call->in[1]->local[1] * sizeof(double);
}

/* Computes the row of query `q` over `count` keys, rows of k and v that are `stride` apart;
   sink: NULL for none. */
static void reference_row(const double *q, const double *k, const double *v, int64_t count,
                          int64_t stride, int64_t dim, double cap, const double *sink,
                          double *score, double *y)
{
    double max = sink ? *sink : -INFINITY, sum;

    for (int64_t j = 0; j < count; j++) {
        score[j] = 0;
        for (int64_t d = 0; d < dim; d++)
            score[j] += q[d] * k[j * stride + d];
        score[j] = wf_attention_capped(score[j] / sqrt((double)dim), cap);
        max = score[j] > max ? score[j] : max;
    }
    sum = sink ? wf_expd(*sink - max) : 0;
    for (int64_t j = 0; j < count; j++)
        sum += score[j] = wf_expd(score[j] - max);
    for (int64_t d = 0; d < dim; d++) {
        y[d] = 0;
        for (int64_t j = 0; j < count; j++)
            y[d] += score[j] / sum * v[j * stride + d];
    }
}

static wf_status reference(const wf_call *call, void *workspace)
{
    const wf_tensor *q = call->in[0], *cache = call->in[1];
    const int32_t *first = call->in[3]->data, *slot = call->in[4]->data;
    const double *sinks = call->n_in > 5 ? (const double *)call->in[5]->data : NULL;
    int64_t per_group = q->dim[2].size / cache->dim[2].size, dim = q->local[3];
    int64_t stride = cache->local[2] * dim,
            window = ((const wf_cached_attr *)call->attr)->window;

    if (wf_cache_rows_check(call, cache, q, call->in[3], call->in[4]) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < q->local[0]; b++)
        for (int64_t t = 0; t < q->local[1]; t++)
            for (int64_t h = 0; h < q->local[2]; h++) {
                int64_t group = (q->start[2] + h) / per_group - cache->start[2];
                int64_t from = wf_attention_from(NULL, window, first[b] + t);
                int64_t at = (slot[b] * cache->local[1] + from) * stride + group * dim;
                int64_t row = ((b * q->local[1] + t) * q->local[2] + h) * dim;

                reference_row((const double *)q->data + row, (const double *)cache->data + at,
                              (const double *)call->in[2]->data + at, first[b] + t + 1 - from,
                              stride, dim, ((const wf_cached_attr *)call->attr)->cap,
                              sinks ? sinks + h : NULL, workspace,
                              (double *)call->out[0]->data + row);
            }
    return WF_OK;
}

const wf_op wf_op_cache_write = {WF_OP_ROW(cache_write), .writes = WF_IN(1),
                                 .integers = 1 << 4 | 1 << 5,
                                 .reference = {.run = write_reference}};
const wf_op wf_op_attention_cached = {
    WF_OP_ROW(attention_cached), .write_signature = write_signature,
    .integers = 1 << 3 | 1 << 4, .shape = shape,
    .reference = {.run = reference, .workspace = reference_workspace}};
