/*
 * kernels/cpu/experts_part_adapted.c - experts with adapters of a part of their features on the
 * CPU: forward and gradients are the products of kernels/cpu/moe.c and moe_grad.c, in halves.
 * Between these, rows of choices are floats; those that a product takes are numbers of its
 * type, so that nothing is rounded twice.
 */
#include "kernels/cpu/moe_internal.h"
#include <string.h>

/* Rows of the expert at work, of n numbers, and those of all choices. */
typedef struct rows_copy {
    const wf_moe_job *j;
    const void *rows;
    const float *from;
    void *to;
    int64_t n;
    float scale;
    bool floats; /* rows are floats, not of the type of products */
} rows_copy;

static void put_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const rows_copy *c = arg;
    const wf_moe_job *j = c->j;
    const int32_t *choice = j->choice + j->first;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *to = (float *)c->to + choice[r] * c->n;

        if (c->floats || !j->bf16)
            memcpy(to, (const float *)c->rows + r * c->n, (size_t)c->n * sizeof *to);
        else
            j->cpu->simd->widen(wf_moe_row(j, c->rows, r, c->n), to, c->n);
    }
}

/* Puts rows of the expert at work out, each where its choice is. */
static void put_rows(wf_moe_job *j, const void *rows, bool floats, wf_tensor *out)
{
    rows_copy c = {.j = j,
                   .rows = rows,
                   .to = out->data,
                   .n = out->local[out->ndim - 1],
                   .floats = floats};

    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(c.n), put_task, &c);
}

static void load_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const rows_copy *c = arg;
    const wf_moe_job *j = c->j;
    const int32_t *choice = j->choice + j->first;
    float *room = j->scratch + worker * j->scratch_size;

    for (int64_t r = begin; r < end; r++) {
        const float *from = c->from + choice[r] * c->n;
        void *to = wf_moe_row(j, c->to, r, c->n);

        if (c->scale != 1) {
            j->cpu->simd->scale(from, c->scale, room, c->n);
            from = room;
        }
        if (j->bf16)
            j->cpu->simd->narrow(from, to, c->n);
        else
            memcpy(to, from, (size_t)c->n * sizeof *from);
    }
}

/* Takes the expert's rows of those of all choices, times scale, as products take them. */
static void load_rows(wf_moe_job *j, const wf_tensor *from, float scale, void *to)
{
    rows_copy c = {
        .j = j, .from = from->data, .to = to, .n = from->local[from->ndim - 1], .scale = scale};

    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(c.n), load_task, &c);
}

static void scale_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const rows_copy *c = arg;
    const wf_moe_job *j = c->j;
    const float *weights = j->call->in[WF_MOE_WEIGHTS]->data;
    float *room = j->scratch + worker * j->scratch_size;

    for (int64_t r = begin; r < end; r++) {
        const void *row = wf_moe_row(j, c->rows, r, c->n);
        void *to = wf_moe_row(j, c->to, r, c->n);

        if (j->bf16)
            j->cpu->simd->widen(row, room, c->n);
        else
            memcpy(room, row, (size_t)c->n * sizeof *room);
        j->cpu->simd->scale(room, weights[j->choice[j->first + r]], room, c->n);
        if (j->bf16)
            j->cpu->simd->narrow(room, to, c->n);
        else
            memcpy(to, room, (size_t)c->n * sizeof *room);
    }
}

/* Multiplies rows of the expert at work by their choices' weights. */
static void weigh(wf_moe_job *j, const void *rows, int64_t n, void *to)
{
    rows_copy c = {.j = j, .rows = rows, .to = to, .n = n};

    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(n), scale_task, &c);
}

/* A job whose operands have their positions, and the rows that it takes. */
typedef struct staged {
    wf_moe_job j; /* the first field, for functions of rows at work */
    wf_moe_arranged arranged;
} staged;

static const wf_tensor *rows_of(const wf_moe_job *j, int position)
{
    return ((const staged *)(const void *)j)->arranged.rows[position - WF_MOE_H];
}

static wf_status begin(staged *s, const wf_call *call, void *workspace)
{
    size_t used;

    s->arranged = wf_moe_arrange(call);
    s->j = wf_moe_job_of(&s->arranged.call, workspace, &used);
    return wf_moe_list(&s->j);
}

static size_t workspace_of(const wf_call *call)
{
    const wf_moe_arranged arranged = wf_moe_arrange(call);

    return wf_moe_workspace(&arranged.call);
}

/* Runs a function with all rows at work, those of an expert at a time; it puts rows out, but
   for results that go to `rows`. */
static wf_status each_expert(staged *s, void (*run)(wf_moe_job *j), wf_tensor *rows)
{
    const wf_call *call = s->j.call;
    wf_moe_wave w = {0};

    for (int o = 0; o < call->n_out && !rows; o++) /* other ranks' choices are zeros */
        memset(call->out[o]->data, 0, wf_tensor_bytes(call->out[o]));
    while (wf_moe_next(&s->j, &w)) {
        for (int64_t e = 0; e < s->j.s.experts; e++)
            wf_moe_pieces(&s->j, &w, e, run);
        if (rows)
            wf_moe_spread(&s->j, &w, rows);
    }
    return wf_context_status(call->ctx);
}

/* ---- forward ---- */

static void run_u(wf_moe_job *j)
{
    wf_moe_product p;

    wf_moe_take(j, j->call->in[WF_MOE_X], j->x);
    wf_moe_gate_up(j);
    wf_moe_act(j);
    p = wf_moe_u_of_down(j);
    wf_moe_multiply(j, &p);
    put_rows(j, j->h, false, j->call->out[0]);
    put_rows(j, j->low, true, j->call->out[1]);
}

static wf_status part_u(const wf_call *call, void *workspace)
{
    staged s;

    return begin(&s, call, workspace) == WF_OK ? each_expert(&s, run_u, NULL) : WF_EINVAL;
}

static void run_y(wf_moe_job *j)
{
    load_rows(j, rows_of(j, WF_MOE_H), 1, j->h);
    if (j->last)
        load_rows(j, rows_of(j, WF_MOE_U), j->scale, j->u_out);
    wf_moe_run_down(j);
}

static wf_status part_y(const wf_call *call, void *workspace)
{
    staged s;

    return begin(&s, call, workspace) == WF_OK ? each_expert(&s, run_y, call->out[0])
                                               : WF_EINVAL;
}

/* ---- gradients ---- */

static void run_v(wf_moe_job *j)
{
    wf_moe_product p;

    wf_moe_make_gradients(j);
    p = wf_moe_v_of_gate_up(j);
    wf_moe_multiply(j, &p);
    put_rows(j, j->dgate, false, j->call->out[2]);
    put_rows(j, j->dup, false, j->call->out[3]);
    put_rows(j, j->low, true, j->call->out[4]);
}

static wf_status part_v(const wf_call *call, void *workspace)
{
    staged s;

    return begin(&s, call, workspace) == WF_OK ? each_expert(&s, run_v, NULL) : WF_EINVAL;
}

/* Makes rows of u of x, and of w v of dy; those of features are there. */
static void make_factors(wf_moe_job *j)
{
    wf_moe_take(j, j->call->in[WF_MOE_X], j->x);
    wf_moe_take(j, j->call->in[WF_MOE_DY], j->dy);
    wf_moe_gate_up_low(j);
    wf_moe_down_v(j);
    weigh(j, j->v_out, j->rank, j->wv_out);
    load_rows(j, rows_of(j, WF_MOE_H), 1, j->h);
    load_rows(j, rows_of(j, WF_MOE_DGATE), 1, j->dgate);
    load_rows(j, rows_of(j, WF_MOE_DUP), 1, j->dup);
    if (j->last)
        load_rows(j, rows_of(j, WF_MOE_V), j->scale, j->v_in);
}

static wf_status part_factors(const wf_call *call, void *workspace)
{
    staged s;
    wf_moe_job *j = &s.j;

    if (begin(&s, call, workspace) != WF_OK)
        return WF_EINVAL;
    j->outer[0] = (wf_moe_outer){j->dgate, j->u_in, j->s.f, j->rank, 0};
    j->outer[1] = (wf_moe_outer){j->dup, j->u_in, j->s.f, j->rank, 1};
    j->outer[2] = (wf_moe_outer){j->wv_out, j->h, j->rank, j->s.f, 2};
    j->make = make_factors;
    return wf_moe_run_gradient(j, call->out[3]);
}

/* Makes rows of w dy; u and v are there. */
static void make_whole(wf_moe_job *j)
{
    wf_moe_take(j, j->call->in[WF_MOE_X], j->x);
    wf_moe_take(j, j->call->in[WF_MOE_DY], j->dy);
    weigh(j, j->dy, j->s.d, j->wdy);
    load_rows(j, rows_of(j, WF_MOE_U), j->scale, j->u_out);
    load_rows(j, rows_of(j, WF_MOE_V), j->scale, j->v_in);
}

static wf_status part_whole(const wf_call *call, void *workspace)
{
    staged s;
    wf_moe_job *j = &s.j;

    if (begin(&s, call, workspace) != WF_OK)
        return WF_EINVAL;
    j->outer[0] = (wf_moe_outer){j->v_in, j->x, j->rank, j->s.d, 0};
    j->outer[1] = (wf_moe_outer){j->wdy, j->u_out, j->s.d, j->rank, 1};
    j->make = make_whole;
    return wf_moe_run_gradient(j, NULL);
}

#define KERNEL(function, types)                                                                \
    {                                                                                          \
        .run = (function), .workspace = workspace_of, .all_bf16 = (types)                      \
    }

const wf_kernel wf_cpu_experts_part_u = KERNEL(part_u, WF_MOE_TYPES_U);
const wf_kernel wf_cpu_experts_part_y = KERNEL(part_y, WF_MOE_TYPES_Y);
const wf_kernel wf_cpu_experts_part_v = KERNEL(part_v, WF_MOE_TYPES_V);
const wf_kernel wf_cpu_experts_part_factors = KERNEL(part_factors, WF_MOE_TYPES_FACTORS);
const wf_kernel wf_cpu_experts_part_whole = KERNEL(part_whole, WF_MOE_TYPES_WHOLE);
