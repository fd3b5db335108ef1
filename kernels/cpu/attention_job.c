/* kernels/cpu/attention_job.c - calls of attention on the CPU, as their tasks see them. */
#include "kernels/cpu/attention_job_internal.h"
#include "kernels/cpu/attention_parts_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <math.h>

enum { SMALL = 65536 }; /* below as many scores no thread is woken */

typedef wf_attention_job job;

/* Returns true where sequences may be cut in parts. */
static bool is_cut(const wf_call *call)
{
    return wf_attention_first(call) || ((const wf_attention_attr *)call->attr)->window < 0;
}

job wf_attention_job_of(const wf_call *call, bool backward, void *workspace)
{
    const wf_tensor *q = call->in[0], *k = call->in[1];
    const wf_simd *simd = wf_cpu_of(call)->simd;
    job j = {.call = call,
             .simd = simd,
             .bf16 = q->dtype == WF_BF16,
             .tokens = q->local[1],
             .keys = k->local[1],
             .dim = q->local[3],
             .heads = q->local[2],
             .groups = k->local[2],
             .per_group = q->dim[2].size / k->dim[2].size,
             .packed = wf_attention_padded(k->local[1]) * wf_attention_padded(q->local[3]),
             .workspace = workspace};
    const wf_tensor *own = wf_attention_own(call);

    if (own) {
        j.own = own->start[1];
        j.own_end = own->start[1] + own->local[1];
    }
    if (is_cut(call)) /* the last part's padding lies after the last key */
        j.packed += WF_ATTENTION_GRAIN * wf_attention_padded(j.dim);
    j.block = wf_attention_lines(backward ? simd->attention_grad_workspace(j.keys, j.dim)
                                          : simd->attention_workspace(j.keys, j.dim));
    j.bytes = j.block + wf_attention_lines((size_t)j.tokens * sizeof(float));
    if (backward) {
        j.buffers =
            j.per_group < WF_ATTENTION_BUFFERS ? (int)j.per_group : WF_ATTENTION_BUFFERS;
        j.bytes +=
            (size_t)j.buffers * wf_attention_lines((size_t)(2 * j.packed) * sizeof(float));
        j.chunks = wf_chunk_cuts(q, 2, j.chunk);
    }
    j.parts = j.bytes;
    if (is_cut(call))
        j.bytes += wf_attention_lines((size_t)(j.keys + 1) * sizeof(int32_t));
    return j;
}

float *wf_attention_lse_of(const job *j, int worker)
{
    return (float *)(j->workspace + (size_t)worker * j->bytes + j->block);
}

int64_t wf_attention_head_at(const job *j, int64_t b, int64_t head)
{
    return (b * j->tokens * j->heads + head) * j->dim;
}

void *wf_attention_number_at(const wf_tensor *t, int64_t index)
{
    return (char *)t->data + (size_t)index * wf_dtype_size(t->dtype);
}

/* Adds the mask and the bias of a head, where there are some. */
static void add_general(const job *j, int64_t b, int64_t head, wf_attention_head *h)
{
    const wf_tensor *mask = wf_attention_mask(j->call), *bias = wf_attention_bias(j->call);
    const wf_tensor *dbias = wf_attention_dbias(j->call);
    int64_t scores = j->tokens * j->keys;

    if (mask)
        h->mask = (const float *)mask->data + b * j->keys;
    if (bias)
        h->bias = (const float *)bias->data + wf_attention_bias_matrix(bias, b, head) * scores;
    if (dbias)
        h->dbias = (float *)dbias->data + (b * j->heads + head) * scores;
}

wf_attention_head wf_attention_describe(const job *j, int64_t b, int64_t head)
{
    const wf_attention_attr *a = j->call->attr;
    const wf_tensor *q = j->call->in[0], *k = j->call->in[1], *v = j->call->in[2];
    int64_t global = q->start[2] + head, group = global / j->per_group - k->start[2];
    int64_t k_at = (b * j->keys * j->groups + group) * j->dim;
    wf_attention_head h = {
        .seq = j->tokens,
        .keys = j->keys,
        .dim = j->dim,
        .bf16 = j->bf16,
        .q = wf_attention_number_at(q, wf_attention_head_at(j, b, head)),
        .k = wf_attention_number_at(k, k_at),
        .v = wf_attention_number_at(v, k_at),
        .q_stride = j->heads * j->dim,
        .k_stride = j->groups * j->dim,
        .v_stride = j->groups * j->dim,
        .scale = 1.0f / sqrtf((float)j->dim),
        .sequence_keys = j->keys,
        .cap = a->cap,
        .dropout_key = a->key,
        .dropout = a->dropout,
        .bidirectional = a->bidirectional,
    };
    const wf_tensor *first = wf_attention_first(j->call);
    const wf_tensor *sinks = wf_attention_sinks(j->call);

    if (sinks)
        h.sink = (const float *)sinks->data + head;
    add_general(j, b, head, &h);
    if (first)
        h.from = (const int32_t *)first->data + b * j->keys;
    h.window = a->window;
    wf_attention_counter(a, global, q->start[0] + b, h.dropout_counter);
    return h;
}

const int32_t *wf_attention_parts_of(const job *j, int64_t b, int worker)
{
    const wf_tensor *first = wf_attention_first(j->call);
    int32_t *room = (int32_t *)(j->workspace + (size_t)worker * j->bytes + j->parts);

    return wf_attention_parts(first ? (const int32_t *)first->data + b * j->keys : NULL,
                              ((const wf_attention_attr *)j->call->attr)->window, j->keys,
                              room);
}

wf_status wf_attention_job_run(job *j, int64_t tasks, void (*fn)(void *, int64_t, int64_t, int))
{
    wf_thread_pool *pool = wf_cpu_of(j->call)->pool;
    double scores = (double)j->call->in[0]->local[0] * (double)j->heads * (double)j->tokens *
                    (double)j->keys / 2;

    wf_thread_pool_run(scores < SMALL ? NULL : pool, tasks, 1, fn, j);
    return WF_OK;
}
