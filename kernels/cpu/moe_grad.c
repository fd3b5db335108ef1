/*
 * kernels/cpu/moe_grad.c - gradients of experts on the CPU. Forward's h is recomputed, and its
 * gate and up where they are not kept; with c = dy down_e in floats,
 *
 *     dw = sum of c h in 16 lanes    dh = w c    dgate, dup = swiglu_grad(gate, up, dh)
 *     dx = tree over experts of dgate gate_e + dup up_e, a chain through both for each chunk
 *     ddown_e, dgate_e, dup_e: a chain for each chunk of a sequence through its rows of (w dy)
 *     and h, of dgate or dup and x
 *
 * What a product takes is rounded to the operands' type first.
 */
#include "core/numerics/tree.h"
#include "kernels/cpu/moe_internal.h"
#include <string.h>

/* n numbers of row r as floats, in room where they are stored as bf16. */
static const float *widened(const wf_moe_job *j, const void *rows, int64_t r, int64_t n,
                            float *room)
{
    const void *row = wf_moe_row(j, rows, r, n);

    if (!j->bf16)
        return row;
    j->cpu->simd->widen(row, room, n);
    return room;
}

static void stored(const wf_moe_job *j, const float *from, void *rows, int64_t r, int64_t n)
{
    void *row = wf_moe_row(j, rows, r, n);

    if (j->bf16)
        j->cpu->simd->narrow(from, row, n);
    else
        memcpy(row, from, (size_t)n * sizeof *from);
}

/* Puts out c and h of a choice, whose dot product over all features is its weight's
   gradient. */
static void keep_terms(const wf_moe_job *j, int64_t choice, const float *c, const float *h)
{
    const size_t bytes = (size_t)j->s.f * sizeof *c;

    memcpy(j->terms[0] + choice * j->s.f, c, bytes);
    memcpy(j->terms[1] + choice * j->s.f, h, bytes);
}

/* Computes of a row of an expert its weight's gradient, dgate, dup, and w dy. */
static void grad_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_moe_job *j = arg;
    const wf_simd *simd = j->cpu->simd;
    const int32_t *choice = j->choice + j->first;
    float *dweights = j->call->out[j->call->n_out - 1]->data;
    const float *weights = j->call->in[WF_MOE_WEIGHTS]->data;
    float *room = j->scratch + worker * j->scratch_size;
    int64_t f = j->s.f, d = j->s.d;

    for (int64_t r = begin; r < end; r++) {
        float w = weights[choice[r]], *c = j->c + r * f, *dgate = room + 2 * f,
              *dup = room + 3 * f;
        const float *gate = widened(j, j->gate, r, f, room), *up, *h;

        h = widened(j, j->h, r, f, room + f);
        if (j->terms[0])
            keep_terms(j, choice[r], c, h);
        else
            dweights[choice[r]] = simd->dot(c, h, f) + 0.0f;
        up = widened(j, j->up, r, f, room + f);
        simd->scale(c, w, c, f);
        simd->swiglu_grad(gate, up, c, dgate, dup, f);
        stored(j, dgate, j->dgate, r, f);
        stored(j, dup, j->dup, r, f);
        simd->scale(widened(j, j->dy, r, d, room), w, room, d);
        stored(j, room, j->wdy, r, d);
        if (j->factors) {
            simd->scale(widened(j, j->v_out, r, j->rank, room), w, room, j->rank);
            stored(j, room, j->wv_out, r, j->rank);
        }
    }
}

/* dW[m, n] of the expert at work = sum over its rows, those of chunks first .. first + chunks -
   1 of tokens, of a[r, m] b[r, n], a chain for each chunk. */
static void weights_gradient(wf_moe_job *j, const wf_moe_outer *w, int64_t first,
                             int64_t chunks, float *dw)
{
    const int32_t *token = j->token + j->first;
    int64_t r = 0;
    wf_gemm g = {.m = w->m,
                 .n = w->n,
                 .c = dw,
                 .c_row = w->n,
                 .bf16 = j->bf16,
                 .parts = j->parts,
                 .n_parts = chunks,
                 .each = j->s.cuts.chunks};

    for (int64_t i = 0; i < chunks; i++) {
        const int64_t begin = r, end = wf_token_chunk_at(&j->s.cuts, first + i) +
                                       wf_token_chunk_rows(&j->s.cuts, first + i);

        while (r < j->count && token[r] < end)
            r++;
        j->parts[i] = (wf_gemm_part){.a = wf_moe_row(j, w->a, begin, w->m),
                                     .a_row = 1,
                                     .a_k = w->m,
                                     .b = wf_moe_row(j, w->b, begin, w->n),
                                     .b_k = w->n,
                                     .b_col = 1,
                                     .k = r - begin,
                                     .chunk = true};
    }
    wf_moe_gemm(j, &g);
}

void wf_moe_down_v(wf_moe_job *j)
{
    wf_moe_multiply_low(j,
                        (wf_moe_product){.k = j->s.d,
                                         .a = j->dy,
                                         .b = wf_moe_factor(j, WF_MOE_DOWN_B),
                                         .b_k = j->rank,
                                         .b_col = 1},
                        j->v_out);
}

/* c = dy down of the expert at work. */
static void down_gradient(wf_moe_job *j)
{
    wf_moe_product p = {.m = j->count,
                        .n = j->s.f,
                        .k = j->s.d,
                        .a = j->dy,
                        .b = wf_moe_matrix(j, WF_MOE_DOWN),
                        .b_k = j->s.f,
                        .b_col = 1,
                        .c = j->c,
                        .floats = true};

    if (j->factors) {
        wf_moe_down_v(j);
        p.low_a = j->v_out;
        p.low_b = wf_moe_factor(j, WF_MOE_DOWN_A);
        p.low_b_k = j->s.f;
        p.low_b_col = 1;
    }
    wf_moe_multiply(j, &p);
}

wf_moe_product wf_moe_v_of_gate_up(const wf_moe_job *j)
{
    return (wf_moe_product){.m = j->count,
                            .n = j->rank,
                            .k = j->s.f,
                            .a = j->dgate,
                            .b = wf_moe_factor(j, WF_MOE_GATE_B),
                            .b_k = j->rank,
                            .b_col = 1,
                            .a2 = j->dup,
                            .b2 = wf_moe_factor(j, WF_MOE_UP_B),
                            .c = j->low,
                            .floats = true,
                            .features = true};
}

/* Rows of dx of the expert at work. */
static void x_gradient(wf_moe_job *j)
{
    const int64_t d = j->s.d;
    wf_moe_product p = {.m = j->count,
                        .n = d,
                        .k = j->s.f,
                        .a = j->dgate,
                        .b = wf_moe_matrix(j, WF_MOE_GATE),
                        .b_k = d,
                        .b_col = 1,
                        .a2 = j->dup,
                        .b2 = wf_moe_matrix(j, WF_MOE_UP),
                        .features = true,
                        .floats = j->part,
                        .c = wf_moe_results(j)};

    if (j->last) {
        p.low_a = j->v_in;
        p.low_b = wf_moe_factor(j, WF_MOE_GATE_UP_A);
        p.low_b_k = d;
        p.low_b_col = 1;
    }
    wf_moe_multiply(j, &p);
}

void wf_moe_make_gradients(wf_moe_job *j)
{
    const wf_call *call = j->call;

    if (!j->kept[0] || j->matrices > 0)
        wf_moe_take(j, call->in[WF_MOE_X], j->x);
    wf_moe_take(j, call->in[WF_MOE_DY], j->dy);
    if (!j->kept[0])
        wf_moe_gate_up(j);
    wf_moe_act(j);
    down_gradient(j);
    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(j->s.f), grad_task, j);
}

/* Makes all rows of the expert at work that its gradients are made of. */
static void make_rows(wf_moe_job *j)
{
    wf_moe_make_gradients(j);
    if (j->factors) {
        wf_moe_down_low(j);
        wf_moe_multiply_low(j, wf_moe_v_of_gate_up(j), j->v_in);
    }
}

/* Gradients of tokens from the rows at work. */
static void tokens_gradient(wf_moe_job *j)
{
    j->make(j);
    x_gradient(j);
}

/* Sums over the rows at work, those of some chunks of tokens, for all matrices that are
   trained: into their gradients, or one after the other into `sums`. */
static void sum_rows(wf_moe_job *j, int64_t first, int64_t chunks, float *sums)
{
    for (int o = 0; o < j->matrices; o++) {
        const wf_moe_outer *w = &j->outer[o];
        const int64_t size = w->m * w->n;
        float *dw = (float *)j->call->out[w->out]->data + j->expert * size;

        weights_gradient(j, w, first, chunks, sums ? sums : dw);
        sums = sums ? sums + size : NULL;
    }
}

/* Adds sums to the gradients of the expert at work, or to other sums. */
static void add_sums(wf_moe_job *j, float *to, const float *sums)
{
    for (int o = 0; o < j->matrices; o++) {
        const wf_tensor *dw = j->call->out[o];
        const int64_t size = dw->local[1] * dw->local[2];
        float *into = to ? to : (float *)dw->data + j->expert * size;

        j->cpu->simd->add(into, sums, into, size);
        sums += size;
        to = to ? to + size : NULL;
    }
}

/* Returns the first row of an expert, from `row` on, whose token is not below `token`. */
static int64_t row_of(const wf_moe_job *j, int64_t expert, int64_t row, int64_t token)
{
    while (row < j->begin[expert + 1] && j->token[row] < token)
        row++;
    return row;
}

/* Sums over an expert's rows of some chunks of tokens, from row `row` on, in pieces of their
   tree that fit, each made by `make`; to: as of add_sums; open: sums that are. False: there are
   no rows. */
static bool sum_tree(wf_moe_job *j, void (*make)(wf_moe_job *j), int64_t expert, int64_t row,
                     int64_t first, int64_t chunks, float *to, int64_t open)
{
    const int64_t end = row_of(j, expert, row, wf_moe_token(j, first + chunks));
    float *other = j->sums ? j->sums + open * j->sums_size : NULL;
    int64_t left, middle;

    if (end == row)
        return false;
    if (end - row <= j->most) {
        wf_moe_begin(j, expert, row, end - row);
        make(j);
        sum_rows(j, first, chunks, to);
        return true;
    }
    left = wf_tree_left(chunks, j->s.cuts.chunks);
    middle = row_of(j, expert, row, wf_moe_token(j, first + left));
    if (!sum_tree(j, make, expert, row, first, left, to, open))
        return sum_tree(j, make, expert, middle, first + left, chunks - left, to, open);
    if (sum_tree(j, make, expert, middle, first + left, chunks - left, other, open + 1))
        add_sums(j, to, other);
    return true;
}

/* Fills the gradient of an expert without rows with +0. */
static void no_gradient(const wf_moe_job *j, int64_t expert)
{
    for (int o = 0; o < j->matrices; o++) {
        const wf_tensor *dw = j->call->out[o];
        size_t count = (size_t)(dw->local[1] * dw->local[2]);

        memset((float *)dw->data + (size_t)expert * count, 0, count * sizeof(float));
    }
}

wf_status wf_moe_run_gradient(wf_moe_job *j, wf_tensor *dx)
{
    const int64_t chunks = wf_token_chunks_of(&j->s.cuts);
    const bool trained = j->matrices > 0;
    wf_moe_wave w = {0};
    bool summed = false;

    while (dx && wf_moe_next(j, &w)) {
        summed = trained && w.first == 0 && w.end == chunks; /* one wave has all */
        for (int64_t e = 0; e < j->s.experts; e++)
            if (!summed)
                wf_moe_pieces(j, &w, e, tokens_gradient);
            else if (wf_moe_slots(j, &w, e) > 0)
                sum_tree(j, tokens_gradient, e, j->begin[e], 0, chunks, NULL, 0);
        if (j->part)
            wf_moe_spread(j, &w, dx);
        else
            wf_moe_combine(j, &w, NULL, dx);
    }
    for (int64_t e = 0; e < j->s.experts && trained; e++)
        if (j->begin[e] == j->begin[e + 1])
            no_gradient(j, e);
        else if (!summed)
            sum_tree(j, j->make, e, j->begin[e], 0, chunks, NULL, 0);
    return wf_context_status(j->call->ctx);
}

wf_status wf_moe_gradient(const wf_call *call, void *workspace)
{
    size_t used;
    wf_moe_job j = wf_moe_job_of(call, workspace, &used);
    const int64_t d = j.s.d, f = j.s.f, r = j.rank;
    const wf_moe_outer of_experts[] = {{j.dgate, j.x, f, d, WF_MOE_GATE},
                                       {j.dup, j.x, f, d, WF_MOE_UP},
                                       {j.wdy, j.h, d, f, WF_MOE_DOWN}};
    const wf_moe_outer of_factors[] = {{j.v_in, j.x, r, d, WF_MOE_GATE_UP_A},
                                       {j.dgate, j.u_in, f, r, WF_MOE_GATE_B},
                                       {j.dup, j.u_in, f, r, WF_MOE_UP_B},
                                       {j.wv_out, j.h, r, f, WF_MOE_DOWN_A},
                                       {j.wdy, j.u_out, d, r, WF_MOE_DOWN_B}};

    if (wf_moe_list(&j) != WF_OK)
        return WF_EINVAL;
    if (j.factors)
        memcpy(j.outer, of_factors, sizeof of_factors);
    else
        memcpy(j.outer, of_experts, sizeof of_experts);
    j.make = make_rows;
    for (int o = j.matrices + 1; o < call->n_out; o++)
        memset(call->out[o]->data, 0, wf_tensor_bytes(call->out[o]));
    return wf_moe_run_gradient(&j, call->out[j.matrices]);
}

const wf_kernel wf_cpu_experts_dx = {.run = wf_moe_gradient,
                                     .workspace = wf_moe_workspace,
                                     .mixed_ok = WF_MOE_DX,
                                     .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cpu_experts_grad = {.run = wf_moe_gradient,
                                       .workspace = wf_moe_workspace,
                                       .mixed_ok = WF_MOE_DX_OF_ALL,
                                       .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_KEPT};
const wf_kernel wf_cpu_experts_adapted_grad = {.run = wf_moe_gradient,
                                               .workspace = wf_moe_workspace,
                                               .mixed_ok = WF_MOE_DX_ADAPTED,
                                               .all_bf16 = WF_MOE_GRAD | WF_MOE_GRAD_FACTORS};
