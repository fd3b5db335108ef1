/*
 * kernels/cuda/moe.c - experts on the GPU: the products and rows of a call, one after the
 * other, each of all experts at once, as kernels/cpu/moe.c has them expert by expert.
 */
#include "kernels/cuda/moe_job_internal.h"
#include "kernels/cuda/wgmma_internal.h"
#include <inttypes.h>

enum { LINE = 256 };

static void *take(char *base, size_t *used, int64_t count, size_t size)
{
    void *at = base ? base + *used : NULL;

    *used += ((size_t)count * size + LINE - 1) / LINE * LINE;
    return at;
}

static bool is_gradient(const wf_call *call)
{
    const int id = call->op->id;

    return id != WF_ID_experts && id != WF_ID_experts_adapted && id != WF_ID_experts_part &&
           id != WF_ID_experts_part_u && id != WF_ID_experts_part_y;
}

/* Returns true for ops that give gradients of matrices. */
static bool has_matrices(const wf_call *call)
{
    const int id = call->op->id;

    return is_gradient(call) && id != WF_ID_experts_dx && id != WF_ID_experts_part_dx &&
           id != WF_ID_experts_part_v;
}

static void take_lists(wf_cuda_moe_job *j, char *base, size_t *used)
{
    wf_moe_lists *l = &j->lists;
    int **const rows[] = {&l->expert, &l->row, &l->token, &l->choice};

    *l = (wf_moe_lists){.index = j->call->in[WF_MOE_INDEX]->data,
                        .choices = j->s.tokens * j->s.k,
                        .k = j->s.k,
                        .experts = j->s.experts,
                        .first = j->s.first,
                        .all = j->s.all};
    for (int i = 0; i < 4; i++)
        *rows[i] = take(base, used, l->choices, sizeof(int));
    l->begin = take(base, used, l->experts + 1, sizeof(int));
    if (!has_matrices(j->call))
        return;
    l->leaves = wf_token_chunks_of(&j->s.cuts);
    for (int64_t n = 1; n < l->leaves; n *= 2)
        l->levels++;
    l->leaf = take(base, used, l->experts * (l->leaves + 1), sizeof(int));
    l->merges = take(base, used, l->leaves, sizeof(int));
    if (j->type == WF_BF16)
        j->aside = take(base, used, wf_moe_aside(l->levels), sizeof(float));
}

static void take_low(wf_cuda_moe_job *j, char *base, size_t *used, size_t size)
{
    void **const rows[] = {&j->u_in, &j->u_out, &j->v_out, &j->wv_out, &j->v_in};

    for (int i = 0; i < (is_gradient(j->call) ? 5 : 2); i++)
        *rows[i] = take(base, used, j->lists.choices * j->rank, size);
}

/* Lays a job's rows out in the workspace; *used: its bytes. */
wf_cuda_moe_job wf_cuda_moe_job_of(const wf_call *call, void *workspace, size_t *used)
{
    wf_cuda_moe_job j = {
        .call = call,
        .s = wf_moe_sizes_at(call, wf_cuda_host_table->context_exact(call->ctx)),
        .type = call->in[WF_MOE_X]->dtype,
        .stream = wf_cuda_of(call)->stream,
        .processors = wf_cuda_of(call)->processors};
    const size_t size = j.type == WF_BF16 ? 2 : sizeof(float);
    wf_tensor *const *kept = wf_moe_kept(call);
    const int64_t rows = j.s.tokens * j.s.k;

    *used = 0;
    j.products = j.type == WF_F32                                ? &wf_cuda_moe_floats
                 : wf_cuda_multiplies_by_wgmma(wf_cuda_of(call)) ? &wf_cuda_moe_wgmma
                                                                 : &wf_cuda_moe_mma;
    j.part = wf_moe_is_part(call->op);
    if ((j.factors = wf_moe_factors(call))) {
        j.rank = wf_moe_rank(j.factors);
        j.last = !j.part || wf_moe_has_last(call->in[WF_MOE_GATE]);
        j.scale = ((const wf_moe_attr *)call->attr)->scale;
    }
    j.cuts = wf_cuda_host_table->chunk_cuts(call->in[WF_MOE_GATE], 1, j.cut);
    take_lists(&j, workspace, used);
    j.gate = kept ? kept[0]->data : take(workspace, used, rows * j.s.f, size);
    j.up = kept ? kept[1]->data : take(workspace, used, rows * j.s.f, size);
    j.dgate = kept && is_gradient(call) ? take(workspace, used, rows * j.s.f, size) : j.gate;
    j.dup = kept && is_gradient(call) ? take(workspace, used, rows * j.s.f, size) : j.up;
    j.h = take(workspace, used, rows * j.s.f, size);
    j.rows = take(workspace, used, rows * j.s.d, size);
    if (is_gradient(call)) {
        j.wdy = take(workspace, used, rows * j.s.d, size);
        j.c = take(workspace, used, rows * j.s.f, sizeof(float));
    }
    if (j.factors)
        take_low(&j, workspace, used, size);
    return j;
}

/* Refuses what has no kernel here: of a plan, too. */
static void refuse(const wf_call *call)
{
    const wf_moe_attr *attr = call->attr;

    if (attr && attr->buffer > 0)
        wf_cuda_host_table->fail(call->ctx, WF_EUNSUPPORTED,
                                 "%s: a buffer of %g times the rows of equal loads: a GPU has "
                                 "room for the rows of any choice alone: leave .moe_buffer out",
                                 call->op->name, (double)attr->buffer);
}

size_t wf_cuda_moe_workspace(const wf_call *call)
{
    size_t used;

    refuse(call);
    wf_cuda_moe_job_of(call, NULL, &used);
    return used;
}

void wf_cuda_moe_gate_up_low(wf_cuda_moe_job *j)
{
    multiply_low(j, product_of(j, of_tokens(j, WF_MOE_X), factor(j, WF_MOE_GATE_UP_A, false),
                               j->s.d, j->rank, j->u_in));
}

static void make_gate_up(wf_cuda_moe_job *j)
{
    const wf_moe_matrix x = of_tokens(j, WF_MOE_X);
    wf_moe_row_product p =
        product_of(j, x, operand(j, WF_MOE_GATE, false), j->s.d, j->s.f, j->gate);

    if (j->factors) {
        wf_cuda_moe_gate_up_low(j);
        ends_with(j, &p, j->u_in, factor(j, WF_MOE_GATE_B, false));
    }
    multiply(j, &p);
    p.pair[0].b = operand(j, WF_MOE_UP, false);
    p.c = j->up;
    if (j->factors)
        p.pair[WF_MOE_LOW].b = factor(j, WF_MOE_UP_B, false);
    multiply(j, &p);
}

void wf_cuda_moe_h(wf_cuda_moe_job *j)
{
    if (!is_gradient(j->call) || !wf_moe_kept(j->call))
        make_gate_up(j);
    if (j->error == cudaSuccess)
        j->error =
            wf_cuda_launch_moe_act(j->stream, j->type, j->gate, j->up, j->h, &j->lists, j->s.f);
}

wf_moe_row_product wf_cuda_moe_u(wf_cuda_moe_job *j, void *to)
{
    wf_moe_row_product p = product_of(j, of_rows(j->h, j->s.f), factor(j, WF_MOE_DOWN_A, false),
                                      j->s.f, j->rank, to);

    over_features(j, &p);
    return p;
}

/* u_out = scale down_a h */
void wf_cuda_moe_down_low(wf_cuda_moe_job *j)
{
    multiply_low(j, wf_cuda_moe_u(j, j->u_out));
}

void wf_cuda_moe_down(wf_cuda_moe_job *j)
{
    wf_moe_row_product p = product_of(j, of_rows(j->h, j->s.f), operand(j, WF_MOE_DOWN, false),
                                      j->s.f, j->s.d, j->rows);

    over_features(j, &p);
    if (j->last)
        ends_with(j, &p, j->u_out, factor(j, WF_MOE_DOWN_B, false));
    if (j->part)
        put_out(j, &p, j->call->out[0]->data);
    multiply(j, &p);
}

/* Checks types and sizes. */
static wf_status check(const wf_cuda_moe_job *j)
{
    if (!wf_moe_is_staged(j->call->op) && wf_cuda_moe_check_types(j->call) != WF_OK)
        return WF_EDTYPE;
    if (j->s.k > WF_ROUTE_MOST)
        return wf_cuda_host_table->fail(j->call->ctx, WF_ESHAPE,
                                        "%s: %" PRId64 " experts of a token, at most %d",
                                        j->call->op->name, j->s.k, WF_ROUTE_MOST);
    if (j->lists.choices > INT32_MAX || j->s.experts > 65535 ||
        j->lists.levels + 1 > WF_MOE_LEVELS)
        return wf_cuda_host_table->fail(
            j->call->ctx, WF_ESHAPE,
            "%s: %" PRId64 " choices of a rank's tokens in %" PRId64 " sequences, of %" PRId64
            " experts here; a GPU takes less than 2^31, 2^15 and 2^16 "
            "of them: take smaller micro-batches",
            j->call->op->name, j->lists.choices, j->s.cuts.sequences, j->s.experts);
    return WF_OK;
}

wf_status wf_cuda_moe_begin(wf_cuda_moe_job *j)
{
    wf_status status = check(j);

    if (status == WF_OK)
        j->error = wf_cuda_launch_moe_lists(j->stream, &j->lists);
    if (status == WF_OK && j->lists.leaf && j->error == cudaSuccess)
        j->error = wf_cuda_launch_moe_leaves(j->stream, &j->lists, &j->s.cuts);
    return status;
}

void wf_cuda_moe_combine(wf_cuda_moe_job *j, const float *weights, const wf_tensor *y)
{
    if (j->error == cudaSuccess)
        j->error =
            wf_cuda_launch_moe_combine(j->stream, j->type, &j->lists, j->rows, weights, y);
}

wf_status wf_cuda_moe_forward(const wf_call *call, void *workspace)
{
    size_t used;
    wf_cuda_moe_job j = wf_cuda_moe_job_of(call, workspace, &used);
    wf_status status = wf_cuda_moe_begin(&j);

    if (status != WF_OK)
        return status;
    if (j.part)
        wf_cuda_moe_clear(&j, call->out[0]);
    wf_cuda_moe_h(&j);
    if (j.factors)
        wf_cuda_moe_down_low(&j);
    wf_cuda_moe_down(&j);
    if (!j.part)
        wf_cuda_moe_combine(&j, call->in[WF_MOE_WEIGHTS]->data, call->out[0]);
    return wf_cuda_check(call->ctx, j.error, call->op->name);
}

const wf_kernel wf_cuda_experts = {wf_cuda_moe_forward, wf_cuda_moe_workspace,
                                   .mixed_ok = WF_OUT(0),
                                   .all_bf16 = WF_MOE_FORWARD | WF_MOE_FORWARD_KEPT};
const wf_kernel wf_cuda_experts_adapted = {wf_cuda_moe_forward, wf_cuda_moe_workspace,
                                           .mixed_ok = WF_OUT(0),
                                           .all_bf16 = WF_MOE_FORWARD | WF_MOE_FORWARD_FACTORS};
