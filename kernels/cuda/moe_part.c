/*
 * kernels/cuda/moe_part.c - experts of a part of their features on the GPU
 * (kernels/experts_part.h), with adapters in halves, and what is made of complete rows; the
 * products are those of moe.c and moe_grad.c.
 */
#include "kernels/cuda/moe_job_internal.h"
#include <inttypes.h>

/* ---- rows of choices ---- */

void wf_cuda_moe_clear(wf_cuda_moe_job *j, const wf_tensor *rows)
{
    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_clear(j->stream, &j->lists, rows->data,
                                            rows->local[rows->ndim - 1]);
}

static wf_moe_row_copy copy_of(const wf_cuda_moe_job *j, int64_t n)
{
    return (wf_moe_row_copy){.rows = j->lists.begin + j->lists.experts,
                             .choice = j->lists.choice,
                             .type = j->type,
                             .n = n};
}

void wf_cuda_moe_put(wf_cuda_moe_job *j, const void *rows, wf_tensor *to)
{
    wf_moe_row_copy c = copy_of(j, to->local[to->ndim - 1]);

    wf_cuda_moe_clear(j, to);
    c.matrix = of_rows(rows, c.n);
    c.of_choices = to->data;
    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_put(j->stream, &c, &j->lists);
}

void wf_cuda_moe_get(wf_cuda_moe_job *j, const wf_tensor *from, float factor, void *rows)
{
    wf_moe_row_copy c = copy_of(j, from->local[from->ndim - 1]);

    c.of_choices = from->data;
    c.out = rows;
    c.factor = factor;
    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_get(j->stream, &c, &j->lists);
}

void wf_cuda_moe_weigh(wf_cuda_moe_job *j, wf_moe_matrix from, int64_t n, void *rows)
{
    wf_moe_row_copy c = copy_of(j, n);

    c.matrix = from;
    c.of_choices = j->call->in[WF_MOE_WEIGHTS]->data;
    c.out = rows;
    if (j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_weigh(j->stream, &c, &j->lists);
}

/* ---- halves ---- */

/* Puts a product's rows out, of which the op has a sum over all features made. */
static void multiply_out(wf_cuda_moe_job *j, wf_moe_row_product p, wf_tensor *to)
{
    wf_cuda_moe_clear(j, to);
    put_out(j, &p, to->data);
    multiply(j, &p);
}

static void part_u(wf_cuda_moe_job *j, const wf_tensor *const *rows)
{
    (void)rows;
    wf_cuda_moe_h(j);
    wf_cuda_moe_put(j, j->h, j->call->out[0]);
    multiply_out(j, wf_cuda_moe_u(j, NULL), j->call->out[1]);
}

static void part_y(wf_cuda_moe_job *j, const wf_tensor *const *rows)
{
    wf_cuda_moe_clear(j, j->call->out[0]);
    wf_cuda_moe_get(j, rows[0], 1, j->h);
    if (j->last)
        wf_cuda_moe_get(j, rows[WF_MOE_U - WF_MOE_H], j->scale, j->u_out);
    wf_cuda_moe_down(j);
}

static void part_v(wf_cuda_moe_job *j, const wf_tensor *const *rows)
{
    wf_tensor *const *out = j->call->out;

    (void)rows;
    wf_cuda_moe_h(j);
    wf_cuda_moe_row_gradients(j, out);
    wf_cuda_moe_put(j, j->dgate, out[2]);
    wf_cuda_moe_put(j, j->dup, out[3]);
    multiply_out(j, wf_cuda_moe_v(j, NULL), out[4]);
}

static void part_factors(wf_cuda_moe_job *j, const wf_tensor *const *rows)
{
    wf_tensor *const *out = j->call->out;
    const wf_moe_matrix u = of_rows(j->u_in, j->rank);

    wf_cuda_moe_gate_up_low(j);
    wf_cuda_moe_down_v(j);
    wf_cuda_moe_weigh(j, of_rows(j->v_out, j->rank), j->rank, j->wv_out);
    wf_cuda_moe_get(j, rows[0], 1, j->h);
    wf_cuda_moe_get(j, rows[WF_MOE_DGATE - WF_MOE_H], 1, j->dgate);
    wf_cuda_moe_get(j, rows[WF_MOE_DUP - WF_MOE_H], 1, j->dup);
    if (j->last)
        wf_cuda_moe_get(j, rows[WF_MOE_V - WF_MOE_H], j->scale, j->v_in);
    wf_cuda_moe_weights_gradient(j, of_rows(j->dgate, j->s.f), u, out[0]);
    wf_cuda_moe_weights_gradient(j, of_rows(j->dup, j->s.f), u, out[1]);
    wf_cuda_moe_weights_gradient(j, of_rows(j->wv_out, j->rank), of_rows(j->h, j->s.f), out[2]);
    wf_cuda_moe_x_gradient(j, out[3]);
}

static void part_whole(wf_cuda_moe_job *j, const wf_tensor *const *rows)
{
    wf_tensor *const *out = j->call->out;

    wf_cuda_moe_weigh(j, of_tokens(j, WF_MOE_DY), j->s.d, j->wdy);
    wf_cuda_moe_get(j, rows[WF_MOE_U - WF_MOE_H], j->scale, j->u_out);
    wf_cuda_moe_get(j, rows[WF_MOE_V - WF_MOE_H], j->scale, j->v_in);
    wf_cuda_moe_weights_gradient(j, of_rows(j->v_in, j->rank), of_tokens(j, WF_MOE_X), out[0]);
    wf_cuda_moe_weights_gradient(j, of_rows(j->wdy, j->s.d), of_rows(j->u_out, j->rank),
                                 out[1]);
}

static wf_status halves(const wf_call *call, void *workspace)
{
    static void (*const of[])(wf_cuda_moe_job *, const wf_tensor *const *) = {
        part_u, part_y, part_v, part_factors, part_whole};
    const wf_moe_arranged arranged = wf_moe_arrange(call);
    size_t used;
    wf_cuda_moe_job j = wf_cuda_moe_job_of(&arranged.call, workspace, &used);
    wf_status status = wf_cuda_moe_check_types(call);

    if (status == WF_OK)
        status = wf_cuda_moe_begin(&j);
    if (status != WF_OK)
        return status;
    of[call->op->id - WF_ID_experts_part_u](&j, arranged.rows);
    return wf_cuda_check(call->ctx, j.error, call->op->name);
}

static size_t halves_workspace(const wf_call *call)
{
    const wf_moe_arranged arranged = wf_moe_arrange(call);

    return wf_cuda_moe_workspace(&arranged.call);
}

/* ---- complete rows ---- */

/* Describes rows of choices as those of all experts; used: bytes of the workspace. */
static wf_cuda_moe_job sum_job(const wf_call *call, char *workspace, size_t *used)
{
    const wf_experts_sum_attr *a = call->attr;
    const wf_tensor *index = call->in[1], *rows = call->in[2];
    wf_cuda_moe_job j = {.call = call, .type = rows->dtype, .stream = wf_cuda_of(call)->stream};
    int64_t choices = 1;
    size_t bytes;

    for (int d = 0; d < index->ndim; d++)
        choices *= index->local[d];
    bytes = ((size_t)choices * sizeof(int) + 255) / 256 * 256;
    j.lists = (wf_moe_lists){.index = index->data,
                             .choices = choices,
                             .k = index->local[index->ndim - 1],
                             .experts = a->experts,
                             .all = a->experts,
                             .expert = (int *)(void *)workspace,
                             .row = (int *)(void *)(workspace ? workspace + bytes : NULL)};
    j.s.d = rows->local[rows->ndim - 1];
    j.rows = rows->data;
    *used = 2 * bytes;
    if (a->rounds && rows->dtype == WF_F32) {
        j.rows = workspace ? workspace + *used : NULL;
        *used += (size_t)(choices * j.s.d) * 2;
    }
    return j;
}

static size_t sum_workspace(const wf_call *call)
{
    size_t used;

    sum_job(call, NULL, &used);
    return used;
}

static wf_status sum(const wf_call *call, void *workspace)
{
    const wf_experts_sum_attr *a = call->attr;
    size_t used;
    wf_cuda_moe_job j = sum_job(call, workspace, &used);

    if (j.lists.k > WF_ROUTE_MOST || j.lists.choices > INT32_MAX)
        return wf_cuda_host_table->fail(
            call->ctx, WF_ESHAPE,
            "%s: %" PRId64 " choices of a rank's tokens, %" PRId64
            " of each; a GPU takes less than 2^31, and at most %d of a token",
            call->op->name, j.lists.choices, j.lists.k, WF_ROUTE_MOST);
    j.error = wf_cuda_launch_moe_identity(j.stream, &j.lists);
    if (j.error == cudaSuccess && j.rows != call->in[2]->data) {
        j.error = wf_cuda_launch_moe_round(j.stream, call->in[2]->data, j.rows,
                                           j.lists.choices * j.s.d);
        j.type = WF_BF16;
    }
    wf_cuda_moe_combine(&j, a->unweighted ? NULL : call->in[0]->data, call->out[0]);
    return wf_cuda_check(call->ctx, j.error, call->op->name);
}

static wf_status dot(const wf_call *call, void *workspace)
{
    const wf_tensor *c = call->in[0];
    int64_t rows = 1;

    (void)workspace;
    for (int d = 0; d < c->ndim - 1; d++)
        rows *= c->local[d];
    return wf_cuda_check(call->ctx,
                         wf_cuda_launch_moe_dot(wf_cuda_of(call)->stream, c->data,
                                                call->in[1]->data, call->out[0]->data, rows,
                                                c->local[c->ndim - 1]),
                         call->op->name);
}

/* ---- kernels ---- */

const wf_kernel wf_cuda_experts_part = {wf_cuda_moe_forward, wf_cuda_moe_workspace,
                                        .all_bf16 = WF_MOE_FORWARD};
const wf_kernel wf_cuda_experts_part_dx = {wf_cuda_moe_gradient, wf_cuda_moe_workspace,
                                           .all_bf16 = WF_MOE_GRAD};
const wf_kernel wf_cuda_experts_part_grad = {wf_cuda_moe_gradient, wf_cuda_moe_workspace,
                                             .all_bf16 = WF_MOE_GRAD};

#define HALVES(types)                                                                          \
    {                                                                                          \
        halves, halves_workspace, .all_bf16 = (types)                                          \
    }

const wf_kernel wf_cuda_experts_part_u = HALVES(WF_MOE_TYPES_U);
const wf_kernel wf_cuda_experts_part_y = HALVES(WF_MOE_TYPES_Y);
const wf_kernel wf_cuda_experts_part_v = HALVES(WF_MOE_TYPES_V);
const wf_kernel wf_cuda_experts_part_factors = HALVES(WF_MOE_TYPES_FACTORS);
const wf_kernel wf_cuda_experts_part_whole = HALVES(WF_MOE_TYPES_WHOLE);
const wf_kernel wf_cuda_experts_sum = {sum, sum_workspace, .mixed_ok = WF_IN(2) | WF_OUT(0)};
const wf_kernel wf_cuda_experts_dot = {.run = dot};
