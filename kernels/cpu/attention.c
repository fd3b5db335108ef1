/*
 * kernels/cpu/attention.c - flash attention on the CPU: forward over (sequence, head) pairs,
 * backward over (sequence, group) pairs.
 *
 * dk and dv of a group are the midpoint tree over the 8 chunks of the (global) query heads; a
 * chunk is the chain over its heads that belong to the group. A chunk or node without any is +0
 * and is left out: adding it could only make +0 of -0, and all zeros become +0 at the end. So a
 * group of one head needs no sum, and no group has more than 5 open buffers.
 *
 * A sequence goes part by part, cut where no token sees one before the cut: a document is a
 * part, with the blocks and the bits that it has alone. Where `first` is no document's, blocks
 * count from the last cut.
 *
 * In a context that computes in bf16, operands that are all stored so come as they are, and
 * products are bf16 products (kernels/cpu/simd/attention_product.c). The sums over heads are of
 * floats either way.
 */
#include "kernels/attention_internal.h"
#include "kernels/cpu/attention_parts_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <math.h>
#include <string.h>

enum { SMALL = 65536, MOST_BUFFERS = 5, LINE = 64 }; /* below SMALL scores no thread is woken */

typedef struct job {
    const wf_call *call;
    const wf_simd *simd;
    bool bf16; /* operands are, but first and lse, and so is out or dq */
    int64_t tokens, keys, dim, heads, groups; /* this rank's */
    int64_t per_group;                        /* query heads of a group, globally */
    size_t block, bytes;                      /* one head's scratch; a worker's whole space */
    int64_t packed;                           /* floats of one head's packed dk, or dv */
    int buffers;                              /* they hold dk and dv, packed, dv after dk */
    int chunks;
    int64_t chunk[WF_MAX_CHUNKS + 1]; /* local heads */
    size_t parts;                     /* offset of a worker's list of a sequence's parts */
    char *workspace;
} job;

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Plans a worker's memory: the head's scratch, its lse, and (backward) buffers of dk and dv. */
static job plan(const wf_call *call, bool backward, void *workspace)
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

    if (wf_attention_first(call)) /* the last part's padding lies after the last key */
        j.packed += WF_ATTENTION_GRAIN * wf_attention_padded(j.dim);
    j.block = lines(backward ? simd->attention_grad_workspace(j.keys, j.dim)
                             : simd->attention_workspace(j.keys, j.dim));
    j.bytes = j.block + lines((size_t)j.tokens * sizeof(float));
    if (backward) {
        j.buffers = j.per_group < MOST_BUFFERS ? (int)j.per_group : MOST_BUFFERS;
        j.bytes += (size_t)j.buffers * lines((size_t)(2 * j.packed) * sizeof(float));
        j.chunks = wf_chunk_cuts(q, 2, j.chunk);
    }
    j.parts = j.bytes;
    if (wf_attention_first(call))
        j.bytes += lines((size_t)(j.tokens + 1) * sizeof(int32_t));
    return j;
}

static float *lse_of(const job *j, int worker)
{
    return (float *)(j->workspace + (size_t)worker * j->bytes + j->block);
}

static float *buffer_of(const job *j, int worker, int i)
{
    size_t skip = lines((size_t)j->tokens * sizeof(float));
    size_t buffer = lines((size_t)(2 * j->packed) * sizeof(float));

    return (float *)((char *)lse_of(j, worker) + skip + (size_t)i * buffer);
}

/* Offsets of token 0 of a head in [b, s, h, d], and of its element in [b, s, h]. */
static int64_t head_at(const job *j, int64_t b, int64_t head)
{
    return (b * j->tokens * j->heads + head) * j->dim;
}

static int64_t lse_at(const job *j, int64_t b, int64_t head)
{
    return b * j->tokens * j->heads + head;
}

/* Returns the number at an index of a tensor's data */
static void *number_at(const wf_tensor *t, int64_t index)
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

static wf_attention_head describe(const job *j, int64_t b, int64_t head)
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
        .q = number_at(q, head_at(j, b, head)),
        .k = number_at(k, k_at),
        .v = number_at(v, k_at),
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

    add_general(j, b, head, &h);
    if (first)
        h.from = (const int32_t *)first->data + b * j->tokens;
    h.window = a->window;
    wf_attention_counter(a, global, q->start[0] + b, h.dropout_counter);
    return h;
}

/* Returns a head's first row in q, k, v and whatever has their shape. */
static const void *first_row(const job *j, const wf_tensor *t, int64_t b, int64_t head)
{
    const wf_tensor *q = j->call->in[0], *k = j->call->in[1];
    int64_t group = (q->start[2] + head) / j->per_group - k->start[2];
    int64_t here = t->dim[2].size == q->dim[2].size ? head : group;

    return number_at(t, (b * t->local[1] * t->local[2] + here) * j->dim);
}

/* Returns the rows of a head, where each token has one of each; `more`: the one after it is
   this worker's as well. */
static wf_attention_rows rows_of(const job *j, int64_t b, int64_t head, bool more)
{
    const wf_call *call = j->call;
    int64_t last = head + 1 == j->heads;
    wf_attention_rows r = {.n = 0};

    for (int i = 0; i < call->n_in + call->n_out && j->keys == j->tokens; i++) {
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

/* Returns where the parts of a sequence begin, and its end. */
static const int32_t *parts_of(const job *j, int64_t b, int worker)
{
    const wf_tensor *first = wf_attention_first(j->call);
    int32_t *room = (int32_t *)(j->workspace + (size_t)worker * j->bytes + j->parts);

    return wf_attention_parts((const int32_t *)first->data + b * j->tokens, j->tokens, room);
}

/* Attends part by part. */
static void head_forward(const job *j, const wf_attention_head *whole, void *out, float *lse,
                         int64_t b, int worker)
{
    const int32_t one[] = {0, (int32_t)j->tokens};
    const int32_t *part = whole->from ? parts_of(j, b, worker) : one;

    for (; *part < j->tokens; part++) {
        wf_attention_head h = wf_attention_part_of(whole, part[0], part[1]);

        j->simd->attention(&h, (void *)wf_attention_token_at(&h, out, h.start, h.q_stride),
                           h.q_stride, lse + h.start, j->workspace + (size_t)worker * j->bytes);
    }
}

static void heads_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    float *scratch = lse_of(j, worker);

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->heads, head = i % j->heads;
        wf_attention_head h = describe(j, b, head);
        float *lse = (float *)j->call->out[1]->data + lse_at(j, b, head);

        h.rows = rows_of(j, b, head, i + 1 < end);
        head_forward(j, &h, number_at(j->call->out[0], head_at(j, b, head)), scratch, b,
                     worker);
        for (int64_t t = 0; t < j->tokens; t++)
            lse[t * j->heads] = scratch[t];
    }
}

static wf_status run(job *j, int64_t tasks, void (*fn)(void *, int64_t, int64_t, int))
{
    wf_thread_pool *pool = wf_cpu_of(j->call)->pool;
    double scores = (double)j->call->in[0]->local[0] * (double)j->heads * (double)j->tokens *
                    (double)j->keys / 2;

    wf_thread_pool_run(scores < SMALL ? NULL : pool, tasks, 1, fn, j);
    return WF_OK;
}

static size_t workspace_bytes(const wf_call *call)
{
    return plan(call, false, NULL).bytes * (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention(const wf_call *call, void *workspace)
{
    job j = plan(call, false, workspace);
    return run(&j, call->in[0]->local[0] * j.heads, heads_of);
}

/* One group on its way through the tree: buffers that are free, and where heads go. */
typedef struct group_sum {
    const job *j;
    int worker;
    int64_t b, first, end; /* local heads of the group that this rank holds */
    bool more;             /* another group comes after this one */
    float *spare[MOST_BUFFERS];
    int n_spare;
} group_sum;

/* Writes dk and dv of a part of a head, whose numbers begin at `head_first`, and dq. Parts come
   in ascending order: the padding of one lies where the next begins. */
static void part_grad(const group_sum *s, const wf_attention_head *h, int64_t head_first,
                      float *dkv)
{
    const job *j = s->j;
    const wf_call *call = j->call;
    int64_t at = head_first + h->start * h->q_stride;
    float *dk = dkv + h->start * wf_attention_padded(j->dim);

    j->simd->attention_grad(h, number_at(call->in[3], at), h->q_stride,
                            lse_of(j, s->worker) + h->start, number_at(call->in[5], at),
                            h->q_stride, number_at(call->out[0], at), h->q_stride, dk,
                            dk + j->packed, j->workspace + (size_t)s->worker * j->bytes);
}

/* dk and dv of one head, into a buffer; dq goes where it belongs. */
static void head_grad(const group_sum *s, int64_t head, float *dkv)
{
    const job *j = s->j;
    wf_attention_head whole = describe(j, s->b, head);
    const float *lse = (const float *)j->call->in[4]->data + lse_at(j, s->b, head);
    const int32_t one[] = {0, (int32_t)j->tokens};
    const int32_t *part = whole.from ? parts_of(j, s->b, s->worker) : one;
    float *scratch = lse_of(j, s->worker);

    if (j->tokens == 0) /* no block of queries writes them */
        memset(dkv, 0, (size_t)(2 * j->packed) * sizeof *dkv);
    for (int64_t t = 0; t < j->tokens; t++)
        scratch[t] = lse[t * j->heads];
    whole.rows = rows_of(j, s->b, head, s->more || head + 1 < wf_least(s->end, j->heads));
    for (; *part < j->tokens; part++) {
        wf_attention_head h = wf_attention_part_of(&whole, part[0], part[1]);

        part_grad(s, &h, head_at(j, s->b, head), dkv);
    }
}

/* a + b, in a; either may be NULL, an empty sum. */
static float *join(group_sum *s, float *a, float *b)
{
    if (!a || !b)
        return a ? a : b;
    s->j->simd->add(a, b, a, 2 * s->j->packed);
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

static void groups_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_tensor *q = j->call->in[0], *k = j->call->in[1];

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->groups, group = i % j->groups;
        int64_t first = (k->start[2] + group) * j->per_group - q->start[2];
        int64_t at = (b * j->keys * j->groups + group) * j->dim;
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
        j->simd->attention_unpack(open[0], j->keys, j->dim, number_at(j->call->out[1], at),
                                  j->groups * j->dim, j->call->out[1]->dtype == WF_BF16);
        j->simd->attention_unpack(open[0] ? open[0] + j->packed : NULL, j->keys, j->dim,
                                  number_at(j->call->out[2], at), j->groups * j->dim,
                                  j->call->out[2]->dtype == WF_BF16);
    }
}

static size_t grad_workspace_bytes(const wf_call *call)
{
    return plan(call, true, NULL).bytes * (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention_grad(const wf_call *call, void *workspace)
{
    job j = plan(call, true, workspace);
    return run(&j, call->in[0]->local[0] * j.groups, groups_of);
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
const wf_kernel wf_cpu_attention_general = {FORWARD};
const wf_kernel wf_cpu_attention_general_grad = {GRADIENT};
