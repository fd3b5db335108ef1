/*
 * kernels/cpu/attention_cached.c - attention to a cache on the CPU. A few tokens go one by one,
 * the query heads of a group together; more go in blocks, as in training. Both have the same
 * bits. As there, what is all stored as bf16 comes as it is where the context computes in bf16.
 */
#include "kernels/attention_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <math.h>
#include <string.h>

/* FEW tokens of a sequence, and fewer, go one by one. Below SMALL products no thread is
   woken. */
enum { FEW = 4, SMALL = 65536, BLOCK = 64, LINE = 64 };

typedef struct job {
    const wf_call *call;
    const wf_simd *simd;
    bool bf16;                                /* queries, caches and outputs are stored so */
    size_t size;                              /* bytes of a number of theirs */
    int64_t tokens, dim, heads, groups, room; /* this rank's; positions of the cache */
    int64_t per_group;                        /* query heads of a group, globally */
    int64_t together;                         /* groups of a task */
    int64_t rows;                             /* queries, and those before them in a block */
    int64_t window;                           /* as wf_attention_from takes it */
    float cap;                                /* 0: none */
    size_t block, bytes;                      /* the kernel's scratch; a worker's whole space */
    char *workspace;
} job;

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static job plan(const wf_call *call, void *workspace)
{
    const wf_tensor *q = call->in[0], *cache = call->in[1];
    job j = {.call = call,
             .simd = wf_cpu_of(call)->simd,
             .bf16 = q->dtype == WF_BF16,
             .size = wf_dtype_size(q->dtype),
             .tokens = q->local[1],
             .dim = q->local[3],
             .heads = q->local[2],
             .groups = cache->local[2],
             .room = cache->local[1],
             .per_group = q->dim[2].size / cache->dim[2].size,
             .rows = BLOCK - 1 + q->local[1],
             .window = ((const wf_cached_attr *)call->attr)->window,
             .cap = (float)((const wf_cached_attr *)call->attr)->cap,
             .workspace = workspace};

    if (j.tokens <= FEW) {
        j.bytes = lines(j.simd->attention_row_workspace(j.groups, j.per_group, j.dim));
        return j;
    }
    j.block = lines(j.simd->attention_workspace(j.room, j.dim));
    j.bytes = j.block + 2 * lines((size_t)(j.rows * j.dim) * j.size) +
              lines((size_t)j.rows * sizeof(float));
    return j;
}

static void *number_at(const job *j, const wf_tensor *t, int64_t index)
{
    return (char *)t->data + (size_t)index * j->size;
}

/* Returns the first token of the chunk that a token is in; 0: there are none. */
static int64_t chunk_of(const job *j, int64_t token)
{
    return wf_attention_from(NULL, wf_attention_chunks(j->window), token);
}

/* Keys and values of a local group, those of the tokens [begin, end) of a sequence, before
   which none of them sees any. */
static wf_attention_head head_of(const job *j, int64_t b, int64_t group, int64_t begin,
                                 int64_t end)
{
    const int32_t *slot = j->call->in[4]->data;
    int64_t at = (slot[b] * j->room + begin) * j->groups * j->dim + group * j->dim;

    return (wf_attention_head){.seq = end - begin,
                               .keys = end - begin,
                               .dim = j->dim,
                               .bf16 = j->bf16,
                               .k = number_at(j, j->call->in[1], at),
                               .v = number_at(j, j->call->in[2], at),
                               .k_stride = j->groups * j->dim,
                               .v_stride = j->groups * j->dim,
                               .window = j->window > 0 ? j->window : 0,
                               .cap = j->cap,
                               .scale = 1.0f / sqrtf((float)j->dim)};
}

/* Returns the sink of a local query head, and those after it; NULL: there is none. */
static const float *sink_of(const job *j, int64_t head)
{
    return j->call->n_in > 5 ? (const float *)j->call->in[5]->data + head : NULL;
}

static int64_t row_at(const job *j, int64_t b, int64_t token, int64_t head)
{
    return ((b * j->tokens + token) * j->heads + head) * j->dim;
}

/* Returns how many groups a task has: one thread reads those of a token together, which lie
   side by side, if all of them have all their heads here. */
static int64_t groups_together(const job *j, const wf_thread_pool *pool)
{
    const wf_tensor *q = j->call->in[0], *cache = j->call->in[1];
    bool whole =
        j->heads == j->groups * j->per_group && q->start[2] == cache->start[2] * j->per_group;

    return whole && j->groups > 0 && wf_thread_pool_size(pool) == 1 ? j->groups : 1;
}

/* Tasks are pairs of a sequence and of groups that go together. */
static void rows_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_tensor *q = j->call->in[0], *cache = j->call->in[1];
    const int32_t *at = j->call->in[3]->data;
    char *workspace = j->workspace + (size_t)worker * j->bytes;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i * j->together / j->groups, group = i * j->together % j->groups;
        int64_t first = (cache->start[2] + group) * j->per_group - q->start[2];
        int64_t last = wf_least(first + j->per_group, j->heads);

        first = first > 0 ? first : 0;
        for (int64_t t = 0; t < j->tokens && first < last; t++) {
            int64_t last_key = at[b] + t;
            wf_attention_head h = head_of(j, b, group, chunk_of(j, last_key), last_key + 1);
            int64_t row = row_at(j, b, t, first);

            h.q = number_at(j, q, row);
            h.sink = sink_of(j, first);
            j->simd->attention_row(&h, j->together, last - first,
                                   number_at(j, j->call->out[0], row), workspace);
        }
    }
}

/* Attends from tokens [begin, end) of a call's, which are in one chunk. Queries begin with a
   block of keys: zeros fill it up. */
static void attend(const job *j, int64_t b, int64_t head, int64_t begin, int64_t end,
                   char *workspace)
{
    const wf_tensor *in = j->call->in[0], *cache = j->call->in[1];
    int64_t at = ((const int32_t *)j->call->in[3]->data)[b], chunk = chunk_of(j, at + begin);
    int64_t group = (in->start[2] + head) / j->per_group - cache->start[2];
    int64_t ahead = (at + begin - chunk) % BLOCK;
    size_t row = (size_t)j->dim * j->size, all = lines((size_t)j->rows * row);
    char *q = workspace + j->block, *out = q + all;
    wf_attention_head h = head_of(j, b, group, chunk, at + end);

    h.q = q;
    h.sink = sink_of(j, head);
    h.q_stride = j->dim;
    h.first = at + begin - chunk - ahead;
    memset(q, 0, (size_t)ahead * row);
    for (int64_t t = begin; t < end; t++)
        memcpy(q + (size_t)(ahead + t - begin) * row, number_at(j, in, row_at(j, b, t, head)),
               row);
    j->simd->attention(&h, out, j->dim, (float *)(void *)(out + all), workspace);
    for (int64_t t = begin; t < end; t++)
        memcpy(number_at(j, j->call->out[0], row_at(j, b, t, head)),
               out + (size_t)(ahead + t - begin) * row, row);
}

/* Tasks are (sequence, head) pairs. */
static void blocks_of(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const int32_t *at = j->call->in[3]->data;
    char *workspace = j->workspace + (size_t)worker * j->bytes;

    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / j->heads, head = i % j->heads;

        for (int64_t t = 0, next; t < j->tokens; t = next) {
            for (next = t + 1; next < j->tokens && chunk_of(j, at[b] + next) < at[b] + next;)
                next++;
            attend(j, b, head, t, next, workspace);
        }
    }
}

static size_t workspace_bytes(const wf_call *call)
{
    return plan(call, NULL).bytes * (size_t)wf_thread_pool_size(wf_cpu_of(call)->pool);
}

static wf_status attention_cached(const wf_call *call, void *workspace)
{
    job j = plan(call, workspace);
    bool few = j.tokens <= FEW;
    const int32_t *at = call->in[3]->data;
    wf_thread_pool *pool;
    double scores = 0;

    if (wf_cache_rows_check(call, call->in[1], call->in[0], call->in[3], call->in[4]) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t b = 0; b < call->in[0]->local[0]; b++)
        scores += (double)(j.heads * j.tokens) *
                  (double)(at[b] + j.tokens - wf_attention_from(NULL, j.window, at[b]));
    pool = scores * (double)j.dim < SMALL ? NULL : wf_cpu_of(call)->pool;
    j.together = groups_together(&j, pool);
    wf_thread_pool_run(pool, call->in[0]->local[0] * (few ? j.groups / j.together : j.heads), 1,
                       few ? rows_of : blocks_of, &j);
    return WF_OK;
}

static wf_status cache_write(const wf_call *call, void *workspace)
{
    const wf_tensor *cache = call->in[0], *k = call->in[2];
    const int32_t *first = call->in[4]->data, *slot = call->in[5]->data;
    int64_t tokens = k->local[1];
    size_t row = (size_t)(k->local[2] * k->local[3]) * wf_dtype_size(k->dtype);

    (void)workspace;
    if (wf_cache_rows_check(call, cache, k, call->in[4], call->in[5]) != WF_OK)
        return wf_context_status(call->ctx);
    for (int i = 0; i < 2 && row > 0; i++)
        for (int64_t b = 0; b < k->local[0]; b++)
            memcpy((char *)call->in[i]->data +
                       (size_t)(slot[b] * cache->local[1] + first[b]) * row,
                   (const char *)call->in[2 + i]->data + (size_t)(b * tokens) * row,
                   (size_t)tokens * row);
    return WF_OK;
}

const wf_kernel wf_cpu_attention_cached = {.run = attention_cached,
                                           .workspace = workspace_bytes,
                                           .all_bf16 =
                                               WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_OUT(0)};
const wf_kernel wf_cpu_cache_write = {.run = cache_write,
                                      .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3)};
