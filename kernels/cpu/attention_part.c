/*
 * kernels/cpu/attention_part.c - attention of some tokens of each sequence on the CPU: the rows
 * that they have in attention of all, with the same blocks of queries.
 *
 * A block of queries that begins before the first own token has zeros there, whose rows are
 * left out: a row of a block is a function of its own query and of keys.
 */
#include "kernels/cpu/attention_job_internal.h"
#include "kernels/cpu/attention_parts_internal.h"
#include <string.h>

enum { BLOCK = 64 }; /* queries: wf_attention_head.first is a multiple of it */

/* A worker's rows of queries, results and their lse, from the beginning of a block on. */
typedef struct room {
    char *q, *out;
    float *lse;
} room;

static size_t rows_bytes(const wf_attention_job *j)
{
    return (size_t)((j->tokens + BLOCK) * j->dim) * (j->bf16 ? 2 : sizeof(float)) / BLOCK *
               BLOCK +
           2 * BLOCK;
}

static size_t room_bytes(const wf_attention_job *j)
{
    return 2 * rows_bytes(j) + (size_t)(j->tokens + 2 * BLOCK) * sizeof(float);
}

static room room_of(const wf_attention_job *j, int workers, int worker)
{
    char *at = j->workspace + (size_t)workers * j->bytes + (size_t)worker * room_bytes(j);

    return (room){at, at + rows_bytes(j), (float *)(void *)(at + 2 * rows_bytes(j))};
}

/* Copies n rows of a head. */
static void copy_rows(const wf_attention_job *j, char *to, int64_t to_stride, const char *from,
                      int64_t from_stride, int64_t n)
{
    size_t size = j->bf16 ? 2 : sizeof(float);

    for (int64_t t = 0; t < n; t++)
        memcpy(to + (size_t)(t * to_stride) * size, from + (size_t)(t * from_stride) * size,
               (size_t)j->dim * size);
}

/* Attends for the own queries [begin, end) of a part of a head; out, lse: where the first of
   them goes. */
static void attend(const wf_attention_job *j, wf_attention_head *h, int64_t begin, int64_t end,
                   const room *r, int worker, char *out, float *lse)
{
    int64_t skip = begin % BLOCK, stride = h->q_stride;
    size_t size = j->bf16 ? 2 : sizeof(float);
    const char *q = h->q;

    memset(r->q, 0, (size_t)(skip * j->dim) * size);
    copy_rows(j, r->q + (size_t)(skip * j->dim) * size, j->dim, q, stride, end - begin);
    h->q = r->q;
    h->q_stride = j->dim;
    h->first = begin - skip;
    h->seq = end;
    h->keys = h->bidirectional ? h->keys : end;
    j->simd->attention(h, r->out, j->dim, r->lse, j->workspace + (size_t)worker * j->bytes);
    copy_rows(j, out, stride, r->out + (size_t)(skip * j->dim) * size, j->dim, end - begin);
    for (int64_t t = 0; t < end - begin; t++)
        lse[t * j->heads] = r->lse[skip + t];
}

/* Attends part by part, where they have own queries. */
static void one_head(const wf_attention_job *j, int64_t b, int64_t head, const room *r,
                     int worker)
{
    const int32_t one[] = {0, (int32_t)j->keys};
    wf_attention_head whole = wf_attention_describe(j, b, head);
    const int32_t *part =
        wf_attention_is_cut(&whole) ? wf_attention_parts_of(j, b, worker) : one;
    const char *q = whole.q;
    char *out = wf_attention_number_at(j->call->out[0], wf_attention_head_at(j, b, head));
    float *lse = (float *)j->call->out[1]->data + b * j->tokens * j->heads + head;

    whole.seq = j->keys;
    for (; *part < j->keys; part++) {
        int64_t begin = part[0] > j->own ? part[0] : j->own;
        int64_t end = part[1] < j->own_end ? part[1] : j->own_end, at = begin - j->own;
        size_t skip = (size_t)(at * whole.q_stride) * (j->bf16 ? 2 : sizeof(float));
        wf_attention_head h;

        if (begin >= end)
            continue;
        h = wf_attention_part_of(&whole, part[0], part[1]);
        h.q = q + skip;
        attend(j, &h, begin - part[0], end - part[0], r, worker, out + skip,
               lse + at * j->heads);
    }
}

static void heads_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_attention_job *j = arg;
    const room r = room_of(j, wf_thread_pool_size(wf_cpu_of(j->call)->pool), worker);

    for (int64_t i = begin; i < end; i++)
        one_head(j, i / j->heads, i % j->heads, &r, worker);
}

static size_t workspace_bytes(const wf_call *call)
{
    wf_attention_job j = wf_attention_job_of(call, false, NULL);

    return (j.bytes + room_bytes(&j)) * (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention_part(const wf_call *call, void *workspace)
{
    wf_attention_job j = wf_attention_job_of(call, false, workspace);

    if (j.tokens == 0) /* own_end might be 0, which means all */
        return WF_OK;
    return wf_attention_job_run(&j, call->in[0]->local[0] * j.heads, heads_of);
}

#define FORWARD                                                                                \
    .run = attention_part, .workspace = workspace_bytes,                                       \
    .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0)

const wf_kernel wf_cpu_attention_part = {FORWARD};
const wf_kernel wf_cpu_attention_part_sinks = {FORWARD};
