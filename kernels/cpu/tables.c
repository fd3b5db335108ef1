/*
 * kernels/cpu/tables.c - rows of tables on the CPU.
 *
 * The gradient of an embedding is made row by row: tokens are sorted by what they are
 * (counting, so equal ones stay in order), and the sum of a row is the midpoint tree over
 * sequences of chains over its tokens, or of trees over chunks of them. Sequences without the
 * token would add +0, which changes nothing: they, and whole subtrees of them, are skipped.
 */
#include "kernels/cpu/rows_internal.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"
#include <string.h>

/* Returns t's elements from i on; NULL where there is none. */
static float *at(const wf_tensor *t, int64_t i)
{
    float *data = t->data;

    return data ? data + i : NULL;
}

static void copy(float *to, const wf_tensor *from, int64_t n)
{
    if (n)
        memcpy(to, from->data, (size_t)n * sizeof(float));
}

enum { EMBEDDED = WF_IN(1) | WF_OUT(0) };

static void embedding_rows(const wf_row_run *r)
{
    const wf_tensor *table = r->call->in[0];
    const int32_t *token = (const int32_t *)r->call->in[1]->data + r->first;
    int64_t d = table->local[1];

    for (int64_t i = 0; i < r->n; i++) {
        int64_t row = token[i] - table->start[0];
        float *y = r->out[0] + i * d;

        if (row < 0 || row >= table->local[0]) {
            memset(y, 0, (size_t)d * sizeof(float));
            continue;
        }
        if (table->dtype == WF_BF16)
            r->simd->widen((const uint16_t *)table->data + row * d, y, d);
        else
            memcpy(y, at(table, row * d), (size_t)d * sizeof(float));
        for (int64_t j = 0; j < d; j++)
            y[j] += 0.0f; /* -0 would become +0 over ranks */
    }
}

static wf_status embedding(const wf_call *call, void *workspace)
{
    wf_status status = wf_check_tokens(call, call->in[1], 0, call->in[0]->dim[0].size);

    if (status == WF_OK && wf_tensor_local_count(call->out[0]))
        wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->in[1]), EMBEDDED,
                        embedding_rows);
    return status;
}

static size_t embedding_workspace(const wf_call *call)
{
    return wf_cpu_rows_bytes(call, call->in[0]->local[1]);
}

typedef struct dw_job {
    const wf_simd *simd;
    const wf_tensor *dy;
    float *dtable;
    int64_t d, rows;    /* rows: those of this part of the table */
    int64_t tokens;     /* here */
    wf_token_cuts cuts; /* chunks of tokens */
    int64_t depth;      /* open nodes a tree over them may need besides its result */
    int64_t *first;     /* [rows + 1]: row r's tokens are order[first[r] .. first[r + 1]) */
    int64_t *order;     /* [tokens] */
    float *scratch;     /* [workers, depth + 1, d]; the last one is room for a row of dy */
} dw_job;

static float *scratch_of(const dw_job *j, int worker)
{
    return j->scratch + worker * (j->depth + 1) * j->d;
}

static dw_job dw_job_of(const wf_call *call, void *workspace)
{
    const wf_tensor *table = call->out[0], *tokens = call->in[1];
    dw_job j = {.simd = wf_cpu_of(call)->simd,
                .dy = call->in[2],
                .dtable = table->data,
                .d = table->local[1],
                .rows = table->local[0],
                .tokens = wf_tensor_local_count(tokens),
                .cuts = wf_token_cuts_of(tokens, tokens->ndim, wf_context_exact(call->ctx))};

    for (int64_t n = wf_token_chunks_of(&j.cuts); n > 1; n -= wf_tree_left(n, j.cuts.chunks))
        j.depth++;
    if (workspace) {
        j.first = workspace;
        j.order = j.first + j.rows + 1;
        j.scratch = (float *)(j.order + j.tokens);
    }
    return j;
}

static size_t dw_workspace(const wf_call *call)
{
    wf_sequence_call s;
    int64_t scratch;
    dw_job j;

    if (wf_linear_in_rows(call))
        wf_sequence_call_of(call, 1, 0, &s);
    j = dw_job_of(wf_linear_in_rows(call) ? &s.call : call, NULL);
    scratch = wf_thread_pool_size(wf_cpu_of(call)->pool) * (j.depth + 1) * j.d;

    return (size_t)(j.rows + 1 + j.tokens) * sizeof(int64_t) + (size_t)scratch * sizeof(float);
}

/* Sorts the tokens of this part by row: counts, adds up, distributes. */
static void sort_tokens(const dw_job *j, const int32_t *token, int64_t start)
{
    memset(j->first, 0, (size_t)(j->rows + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < j->tokens; i++) {
        int64_t row = token[i] - start;

        if (row >= 0 && row < j->rows)
            j->first[row + 1]++;
    }
    for (int64_t r = 0; r < j->rows; r++)
        j->first[r + 1] += j->first[r];
    for (int64_t i = 0; i < j->tokens; i++) {
        int64_t row = token[i] - start;

        if (row >= 0 && row < j->rows)
            j->order[j->first[row]++] = i;
    }
    for (int64_t r = j->rows; r > 0; r--) /* placing moved every first to the next row's */
        j->first[r] = j->first[r - 1];
    j->first[0] = 0;
}

/* Sums the node over `count` chunks from `chunk` on, whose tokens are [begin, end): at least
   one. */
static void sum_node(const dw_job *j, const int64_t *begin, const int64_t *end, int64_t chunk,
                     int64_t count, float *sum, float *scratch, float *room)
{
    const int64_t *middle = begin;
    int64_t left = wf_tree_left(count, j->cuts.chunks);

    if (count == 1) {
        memset(sum, 0, (size_t)j->d * sizeof(float));
        for (; begin < end; begin++)
            j->simd->add(sum, wf_as_floats(j->simd, j->dy, *begin * j->d, j->d, room), sum,
                         j->d);
        return;
    }
    while (middle < end && *middle < wf_token_chunk_at(&j->cuts, chunk + left))
        middle++;
    if (middle > begin)
        sum_node(j, begin, middle, chunk, left, sum, scratch, room);
    if (middle < end) {
        float *right = middle > begin ? scratch : sum;

        sum_node(j, middle, end, chunk + left, count - left, right, scratch + j->d, room);
        if (right == scratch)
            j->simd->add(sum, scratch, sum, j->d);
    }
}

static void dw_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const dw_job *j = arg;

    for (int64_t r = begin; r < end; r++) {
        float *sum = j->dtable + r * j->d;

        if (j->first[r] < j->first[r + 1])
            sum_node(j, j->order + j->first[r], j->order + j->first[r + 1], 0,
                     wf_token_chunks_of(&j->cuts), sum, scratch_of(j, worker),
                     scratch_of(j, worker) + j->depth * j->d);
        else
            memset(sum, 0, (size_t)j->d * sizeof(float));
    }
}

static wf_status embedding_dw_whole(const wf_call *call, void *workspace)
{
    dw_job j = dw_job_of(call, workspace);
    wf_status status = wf_check_tokens(call, call->in[1], 0, call->out[0]->dim[0].size);
    int64_t per_row = j.d * (j.tokens / (j.rows + 1) + 1);

    if (status != WF_OK)
        return status;
    sort_tokens(&j, call->in[1]->data, call->out[0]->start[0]);
    wf_thread_pool_run(wf_cpu_of(call)->pool, j.rows, wf_task_rows(per_row), dw_task, &j);
    return WF_OK;
}

static wf_status embedding_dw(const wf_call *call, void *workspace)
{
    return wf_linear_in_rows(call) ? wf_run_by_sequence(call, 1, embedding_dw_whole, workspace)
                                   : embedding_dw_whole(call, workspace);
}

static wf_status rows(const wf_call *call, void *workspace)
{
    (void)workspace;
    copy(call->out[0]->data, call->in[0], wf_tensor_local_count(call->out[0]));
    return WF_OK;
}

static wf_status rows_grad(const wf_call *call, void *workspace)
{
    int64_t n = wf_tensor_local_count(call->in[1]), all = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    copy(call->out[0]->data, call->in[1], n);
    if (all > n)
        memset(at(call->out[0], n), 0, (size_t)(all - n) * sizeof(float));
    return WF_OK;
}

enum { POSITION = WF_IN(0) | WF_OUT(0) };

static void position_add_rows(const wf_row_run *r)
{
    int64_t period = wf_tensor_local_count(r->call->in[1]), n;

    for (int64_t i = 0; i < r->n; i += n) {
        int64_t at = (r->first + i) % period;

        n = wf_least(period - at, r->n - i);
        r->simd->add(r->in[0] + i, r->in[1] + at, r->out[0] + i, n);
    }
}

static wf_status position_add(const wf_call *call, void *workspace)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->out[0]), POSITION,
                           position_add_rows);
}

const wf_kernel wf_cpu_embedding = {
    .run = embedding, .workspace = embedding_workspace, .mixed_ok = WF_IN(0) | WF_OUT(0)};
const wf_kernel wf_cpu_embedding_dw = {
    .run = embedding_dw, .workspace = dw_workspace, .mixed_ok = WF_IN(2)};
const wf_kernel wf_cpu_rows = {.run = rows};
const wf_kernel wf_cpu_rows_grad = {.run = rows_grad};
const wf_kernel wf_cpu_position_add = WF_ROWS_KERNEL(position_add, POSITION);
