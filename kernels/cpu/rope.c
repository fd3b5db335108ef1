/*
 * kernels/cpu/rope.c - rotary embedding on the CPU: cosines and sines of this rank's tokens are
 * made in double (a float angle of token 10000 is off by 1e-3) and rounded to float, and serve
 * every sequence and head; those of consecutive tokens also every call of every rank
 * (rope_table.c).
 */
#include "core/numerics/math.h"
#include "kernels/attention_internal.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/rope_table_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include <string.h>

enum { SINE_COST = 16 }; /* rotated elements that cost as much as a sine and a cosine */

typedef struct job {
    const wf_call *call;
    /* tokens: rows of the tables; half: pairs that are rotated */
    int64_t tokens, heads, dim, half;
    bool shared; /* the tables are those of all ranks */
    wf_rope_angles angles;
    /* [2][half]: radians per token; the second row is that of long texts */
    double *angle;
    const float *cosine, *sine; /* [tokens][half] */
    float *made;                /* both, where they are made here; NULL where they are shared */
} job;

static job plan(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0];
    job j = {.call = call,
             .tokens = call->n_in > 1 ? x->local[0] * x->local[1] : x->local[1],
             .heads = x->local[2],
             .dim = x->local[3]};
    const wf_rope_attr *a = call->attr;

    j.half = wf_rope_features(&a->options, j.dim) / 2;
    j.shared = call->n_in == 1 &&
               j.tokens * j.half <= WF_ROPE_TABLE_BYTES / (int64_t)(2 * sizeof(float));
    if (workspace) {
        j.angle = workspace;
        j.made = j.shared ? NULL : (float *)(j.angle + 2 * j.half);
        j.cosine = j.made;
        j.sine = j.made ? j.made + j.tokens * j.half : NULL;
    }
    return j;
}

/* The tensors of a call have tokens and features in common, and so all that a table needs. */
static size_t workspace_bytes(const wf_call *call)
{
    const wf_call part = wf_rope_part(call, 0);
    job j = plan(&part, NULL);
    size_t tables = j.shared ? 0 : 2 * (size_t)j.tokens * sizeof(float);

    return (size_t)j.half * (2 * sizeof(double) + tables);
}

/* Finds the frequencies of WF_ROPE_DYNAMIC, where a token at `position` rotates. */
static void find_stretched(const job *j, int64_t position, double *angle)
{
    const wf_rope_attr *a = j->call->attr;
    const double stretch = wf_rope_stretch(&a->options.scaling, position);

    for (int64_t i = 0; i < j->half; i++)
        angle[i] = wf_powd(a->options.base, -2.0 * (double)i / (double)(2 * j->half)) /
                   wf_powd(stretch, wf_rope_slowed(i, 2 * j->half));
}

static void find_angles(job *j)
{
    const wf_rope_attr *a = j->call->attr;
    wf_rope_range range = wf_rope_range_of(&a->options, 2 * j->half, wf_logd);

    for (int64_t i = 0; i < j->half; i++) {
        double angle = wf_powd(a->options.base, -2.0 * (double)i / (double)(2 * j->half));

        for (int is_long = 0; is_long < 2; is_long++)
            j->angle[is_long * j->half + i] = wf_rope_scaled(
                &a->options.scaling, range, wf_rope_factor(&a->options, i, is_long), i, angle);
    }
    if (a->options.scaling.kind == WF_ROPE_DYNAMIC)
        find_stretched(j, 0, j->angle);
    j->angles = (wf_rope_angles){.first = j->call->in[0]->start[1],
                                 .tokens = j->tokens,
                                 .half = j->half,
                                 .angle = j->angle + (a->is_long ? j->half : 0),
                                 .attention = range.attention,
                                 .scaling = a->options.scaling};
}

static void make_tables(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_rope_attr *a = j->call->attr;
    const int32_t *at = j->call->n_in > 1 ? j->call->in[1]->data : NULL;
    double own[WF_ROPE_PAIRS];

    (void)worker;
    for (int64_t t = begin; t < end; t++) {
        wf_rope_angles angles = j->angles;

        if (at && at[t] < 0)
            angles.angle = j->angle + j->half;
        if (at && a->options.scaling.kind == WF_ROPE_DYNAMIC &&
            (double)at[t] >= a->options.scaling.length) {
            find_stretched(j, at[t], own);
            angles.angle = own;
        }
        wf_rope_fill(&angles, at ? wf_rope_position(at[t]) : angles.first + t,
                     j->made + t * j->half, j->made + (j->tokens + t) * j->half);
    }
}

/* Turns a head whose pairs are neighbours: some pairs at a time, as two halves. */
static void rotate_neighbours(const job *j, const float *x, const float *cosine,
                              const float *sine, bool inverse, float *y)
{
    enum { PAIRS = 64 };
    const wf_simd *simd = wf_cpu_of(j->call)->simd;
    float halves[2 * PAIRS];

    for (int64_t i = 0; i < j->half; i += PAIRS) {
        const int64_t n = wf_least(j->half - i, PAIRS);

        for (int64_t k = 0; k < 2 * n; k++)
            halves[k % 2 * n + k / 2] = x[2 * i + k];
        simd->rope(halves, cosine + i, sine + i, inverse, halves, 1, 2 * n, 2 * n);
        for (int64_t k = 0; k < 2 * n; k++)
            y[2 * i + k] = halves[k % 2 * n + k / 2];
    }
    if (y != x)
        memcpy(y + 2 * j->half, x + 2 * j->half, (size_t)(j->dim - 2 * j->half) * sizeof *y);
}

static void rotate_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_rope_attr *a = j->call->attr;
    const wf_simd *simd = wf_cpu_of(j->call)->simd;
    const float *x = j->call->in[0]->data;
    float *y = j->call->out[0]->data;
    int64_t row = j->dim * j->heads;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        int64_t table = r % j->tokens * j->half;

        for (int64_t h = 0; a->options.neighbours && h < j->heads; h++)
            rotate_neighbours(j, x + r * row + h * j->dim, j->cosine + table, j->sine + table,
                              a->inverse, y + r * row + h * j->dim);
        if (a->options.neighbours)
            continue;
        simd->rope(x + r * row, j->cosine + table, j->sine + table, a->inverse, y + r * row,
                   j->heads, j->dim, 2 * j->half);
    }
}

static wf_status rope(const wf_call *call, void *workspace)
{
    const wf_call first = wf_rope_part(call, 0);
    wf_thread_pool *pool = wf_cpu_of(call)->pool;
    job j = plan(&first, workspace);
    int64_t rows = call->in[0]->local[0] * call->in[0]->local[1];
    const wf_rope_table *table = NULL;

    if (!workspace)
        return WF_OK; /* heads of no size: no tables, and nothing to rotate */
    find_angles(&j);
    if (j.shared) {
        table = wf_rope_table_take(&j.angles);
        if (!table)
            return wf_fail(call->ctx, WF_ENOMEM, "no memory for the angles of rope");
        j.cosine = table->cosine;
        j.sine = table->sine;
    } else {
        wf_thread_pool_run(pool, j.tokens, wf_task_rows(SINE_COST * j.half), make_tables, &j);
    }
    for (int i = 0; i < wf_rope_count(call); i++) {
        const wf_call part = wf_rope_part(call, i);

        j.call = &part;
        j.heads = call->in[i]->local[2];
        wf_thread_pool_run(pool, rows, wf_task_rows(j.dim * j.heads), rotate_rows, &j);
    }
    if (table)
        wf_rope_table_give(table);
    return WF_OK;
}

const wf_kernel wf_cpu_rope = {.run = rope, .workspace = workspace_bytes};
const wf_kernel wf_cpu_rope_at = {.run = rope, .workspace = workspace_bytes};
const wf_kernel wf_cpu_rope_pair = {.run = rope, .workspace = workspace_bytes};
const wf_kernel wf_cpu_rope_pair_at = {.run = rope, .workspace = workspace_bytes};
