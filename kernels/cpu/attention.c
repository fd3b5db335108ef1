/*
 * kernels/cpu/attention.c - flash attention on the CPU: forward over (sequence, head) pairs,
 * backward over (sequence, group) pairs.
 *
 * dk and dv of a group are the midpoint tree over the 8 chunks of the (global) query heads; a
 * chunk is the chain over its heads that belong to the group. A chunk or node without any is +0
 * and is left out: adding it could only make +0 of -0, and all zeros become +0 at the end. So a
 * group of one head needs no sum, and no group has more than 5 open buffers.
 *
 * A sequence goes part by part, cut where no token sees one before the cut: a document, or a
 * chunk, is a part, with the blocks and the bits that it has alone. Where `first` is no
 * document's, blocks count from the last cut.
 *
 * In a context that computes in bf16, operands that are all stored so come as they are, and
 * products are bf16 products (kernels/cpu/simd/attention_product.c). The sums over heads are of
 * floats either way.
 */
#include "kernels/attention_internal.h"
#include "kernels/cpu/attention_job_internal.h"
#include "kernels/cpu/attention_parts_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/rows_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <math.h>
#include <string.h>

typedef wf_attention_job job;

static float *buffer_of(const job *j, int worker, int i)
{
    size_t skip = wf_attention_lines((size_t)j->tokens * sizeof(float));
    size_t buffer = wf_attention_lines((size_t)(2 * j->packed) * sizeof(float));

    return (float *)((char *)wf_attention_lse_of(j, worker) + skip + (size_t)i * buffer);
}

/* Returns the offset of token 0 of a head in [b, s, h]. */
static int64_t lse_at(const job *j, int64_t b, int64_t head)
{
    return b * j->tokens * j->heads + head;
}

/* Returns a head's first row in q, k, v and whatever has their shape. */
static const void *first_row(const job *j, const wf_tensor *t, int64_t b, int64_t head)
{
    const wf_tensor *q = j->call->in[0], *k = j->call->in[1];
    int64_t group = (q->start[2] + head) / j->per_group - k->start[2];
    int64_t here = t->dim[2].size == q->dim[2].size ? head : group;

    return wf_attention_number_at(t, (b * t->local[1] * t->local[2] + here) * j->dim);
}

/* Returns the rows of a head, where each token has one of each; `more`: the one after it is
   this worker's as well. */
static wf_attention_rows rows_of(const job *j, int64_t b, int64_t head, bool more)
{
    const wf_call *call = j->call;
    int64_t last = head + 1 == j->heads;
    wf_attention_rows r = {.n = 0};

    for (int i = 0; i < call->n_in + call->n_out && j->keys == j->tokens && !j->own_end; i++) {
        const wf_tensor *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];

        if (t->ndim != 4 || t == wf_attention_bias(call) || t == wf_attention_dbias(call))
            continue;
        r.at[r.n] = first_row(j, t, b, head);
        r.next[r.n] = more ? first_row(j, t, b + last, last ? 0 : head + 1) : NULL;
        r.bytes[r.n] = j->dim * (int64_t)wf_dtype_size(t->dtype);
        r.stride[r.n] = t->local[2] * r.bytes[r.n];
        r.n++;
    }
    return r;
}

/* Attends part by part. */
static void head_forward(const job *j, const wf_attention_head *whole, void *out, float *lse,
                         int64_t b, int worker)
{
    const int32_t one[] = {0, (int32_t)j->tokens};
    const int32_t *part =
        wf_attention_is_cut(whole) ? wf_attention_parts_of(j, b, worker) : one;

    for (; *part < j->tokens; part++) {
        wf_attention_head h = wf_attention_part_of(whole, part[0], part[1]);

        j->simd->attention(&h, (void *)wf_attention_token_at(&h, out, h.start, h.q_stride),
                           h.q_stride, lse + h.start, j->workspace + (size_t)worker * j->bytes);
    }
}

static void heads_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *scratch = wf_attention_lse_of(j, worker);

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->heads, head = i % j->heads;
        wf_attention_head h = wf_attention_describe(j, b, head);
        float *lse = (float *)j->call->out[1]->data + lse_at(j, b, head);

        h.rows = rows_of(j, b, head, i + 1 < end);
        head_forward(j, &h,
                     wf_attention_number_at(j->call->out[0], wf_attention_head_at(j, b, head)),
                     scratch, b, worker);
        for (int64_t t = 0; t < j->tokens; t++)
            lse[t * j->heads] = scratch[t];
    }
}

static size_t workspace_bytes(const wf_call *call)
{
    return wf_attention_job_of(call, false, NULL).bytes *
           (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention(const wf_call *call, void *workspace)
{
    job j = wf_attention_job_of(call, false, workspace);
    return wf_attention_job_run(&j, call->in[0]->local[0] * j.heads, heads_of);
}

/* One group on its way through the tree: buffers that are free, and where heads go. */
typedef struct group_sum {
    const job *j;
    int worker;
    int64_t b, first, end; /* local heads of the group that this rank holds */
    bool more;             /* another group comes after this one */
    float *spare[WF_ATTENTION_BUFFERS];
    int n_spare;
} group_sum;

/* Writes dk and dv of a part of a head, whose numbers begin at `head_first`, and dq. Parts come
   in ascending order: the padding of one lies where the next begins. */
static void part_grad(const group_sum *s, const wf_attention_head *h, int64_t head_first,
                      float *dkv)
{
    const job *j = s->j;
    const wf_call *call = j->call;
    int64_t at = head_first + h->start * h->q_stride, dq_at = at;
    float *dk = dkv + h->start * wf_attention_padded(j->dim);

    if (h->own_end) { /* dq has rows of own tokens alone */
        int64_t sequence = s->b * (j->own_end - j->own - j->tokens);

        dq_at = at + (sequence + h->own - j->own) * h->q_stride;
    }
    j->simd->attention_grad(h, wf_attention_number_at(call->in[3], at), h->q_stride,
                            wf_attention_lse_of(j, s->worker) + h->start,
                            wf_attention_number_at(call->in[5], at), h->q_stride,
                            wf_attention_number_at(call->out[0], dq_at), h->q_stride, dk,
                            dk + j->packed, j->workspace + (size_t)s->worker * j->bytes);
}

/* Narrows the gradients of a part of a sequence to its own tokens; false where it has none. */
static bool narrow(const job *j, wf_attention_head *h)
{
    if (!j->own_end)
        return true;
    h->own = j->own > h->start ? j->own - h->start : 0;
    h->own_end = wf_least(j->own_end - h->start, h->seq);
    return h->own < h->own_end;
}

/* dk and dv of one head, into a buffer; dq goes where it belongs. */
static void head_grad(const group_sum *s, int64_t head, float *dkv)
{
    const job *j = s->j;
    wf_attention_head whole = wf_attention_describe(j, s->b, head);
    const float *lse = (const float *)j->call->in[4]->data + lse_at(j, s->b, head);
    const int32_t one[] = {0, (int32_t)j->tokens};
    const int32_t *part =
        wf_attention_is_cut(&whole) ? wf_attention_parts_of(j, s->b, s->worker) : one;
    float *scratch = wf_attention_lse_of(j, s->worker);

    if (j->tokens == 0) /* no block of queries writes them */
        memset(dkv, 0, (size_t)(2 * j->packed) * sizeof *dkv);
    for (int64_t t = 0; t < j->tokens; t++)
        scratch[t] = lse[t * j->heads];
    whole.rows = rows_of(j, s->b, head, s->more || head + 1 < wf_least(s->end, j->heads));
    for (; *part < j->tokens; part++) {
        wf_attention_head h = wf_attention_part_of(&whole, part[0], part[1]);

        if (narrow(j, &h))
            part_grad(s, &h, wf_attention_head_at(j, s->b, head), dkv);
    }
}

/* a + b, in a; either may be NULL, an empty sum. */
static float *join(group_sum *s, float *a, float *b)
{
    const job *j = s->j;
    int64_t width = wf_attention_padded(j->dim), at = j->own * width;
    int64_t n = (j->own_end - j->own) * width;

    if (!a || !b)
        return a ? a : b;
    if (j->own_end) {
        j->simd->add(a + at, b + at, a + at, n);
        j->simd->add(a + j->packed + at, b + j->packed + at, a + j->packed + at, n);
    } else {
        j->simd->add(a, b, a, 2 * j->packed);
    }
    s->spare[s->n_spare++] = b;
    return a;
}

/* Returns the chain over the group's heads in one chunk; NULL where there is none. */
static float *chunk_sum(group_sum *s, int chunk)
{
    int64_t first = s->j->chunk[chunk], end = s->j->chunk[chunk + 1];
    float *sum = NULL;

    first = first > s->first ? first : s->first;
    end = end < s->end ? end : s->end;
    for (int64_t head = first; head < end; head++) {
        float *one = s->spare[--s->n_spare];

        head_grad(s, head, one);
        sum = join(s, sum, one);
    }
    return sum;
}

/* Writes dk and dv of a group, whose sum is packed; NULL is 0. */
static void give_keys(const group_sum *s, const float *sum, int64_t b, int64_t group)
{
    const job *j = s->j;
    int64_t n = j->own_end ? j->own_end - j->own : j->keys;
    int64_t at = (b * n * j->groups + group) * j->dim;
    int64_t first = j->own * wf_attention_padded(j->dim);

    for (int o = 1; o <= 2; o++)
        j->simd->attention_unpack(sum ? sum + (o - 1) * j->packed + first : NULL, n, j->dim,
                                  wf_attention_number_at(j->call->out[o], at),
                                  j->groups * j->dim, j->call->out[o]->dtype == WF_BF16);
}

static void groups_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_tensor *q = j->call->in[0], *k = j->call->in[1];

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->groups, group = i % j->groups;
        int64_t first = (k->start[2] + group) * j->per_group - q->start[2];
        group_sum s = {.j = j, .worker = worker, .b = b, .first = first, .more = i + 1 < end};
        float *open[WF_MAX_CHUNKS];
        int n = 0;

        s.end = first + j->per_group;
        for (; s.n_spare < j->buffers; s.n_spare++)
            s.spare[s.n_spare] = buffer_of(j, worker, s.n_spare);
        for (int l = 0; l < j->chunks; l++) {
            open[n++] = chunk_sum(&s, l);
            for (int m = wf_tree_merges(j->chunks, l); m > 0; m--, n--)
                open[n - 2] = join(&s, open[n - 2], open[n - 1]);
        }
        give_keys(&s, open[0], b, group);
    }
}

static size_t grad_workspace_bytes(const wf_call *call)
{
    return wf_attention_job_of(call, true, NULL).bytes *
           (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention_grad(const wf_call *call, void *workspace)
{
    const wf_tensor *own = wf_attention_own(call);
    job j = wf_attention_job_of(call, true, workspace);

    if (own && own->local[1] == 0) /* own_end might be 0, which means all */
        return WF_OK;
    return wf_attention_job_run(&j, call->in[0]->local[0] * j.groups, groups_of);
}

/* Rows are heads of a token. */
static void sinks_loop(const wf_row_run *r)
{
    const wf_tensor *y = r->call->in[0];

    r->simd->attention_sinks(r->n, r->first, y->local[2], y->local[3], r->in[0], r->in[1],
                             r->in[2], r->in[3], r->out[0]);
}

static wf_status attention_sinks_rows(const wf_call *call, void *workspace)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->in[2]),
                           WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0), sinks_loop);
}

/* Logarithms of sums, operand 4 of a gradient and output 1, are always f32. Gradients of keys
   and values are, where they are parts of sums over ranks. */
#define FORWARD                                                                                \
    .run = attention, .workspace = workspace_bytes,                                            \
    .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0)
#define GRADIENT                                                                               \
    .run = attention_grad, .workspace = grad_workspace_bytes,                                  \
    .mixed_ok = WF_OUT(1) | WF_OUT(2),                                                         \
    .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3) | WF_IN(5) | WF_OUT(0)

const wf_kernel wf_cpu_attention = {FORWARD};
const wf_kernel wf_cpu_attention_grad = {GRADIENT};
const wf_kernel wf_cpu_attention_from = {FORWARD};
const wf_kernel wf_cpu_attention_from_grad = {GRADIENT};
const wf_kernel wf_cpu_attention_sinks = {FORWARD};
const wf_kernel wf_cpu_attention_sinks_rows =
    WF_ROWS_KERNEL(attention_sinks_rows, WF_IN(0) | WF_IN(1));
const wf_kernel wf_cpu_attention_general = {FORWARD};
const wf_kernel wf_cpu_attention_general_grad = {GRADIENT};
const wf_kernel wf_cpu_attention_part_grad = {GRADIENT};
