/* kernels/cpu/moe.c - experts forward on the CPU; see the header. */
#include "kernels/cpu/moe_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- products ---- */

int wf_moe_lay_parts(const wf_moe_job *j, const wf_moe_product *p, wf_gemm_part *parts)
{
    const int64_t size = j->bytes, one[] = {0, p->k}, *at = p->features ? j->cut : one;
    const int cuts = p->features ? j->cuts : 1, pairs = p->a2 ? 2 : 1;

    for (int l = 0; l < cuts; l++)
        for (int i = 0; i < pairs; i++)
            parts[l * pairs + i] =
                (wf_gemm_part){.a = (const char *)(i ? p->a2 : p->a) + at[l] * size,
                               .a_row = p->k,
                               .a_k = 1,
                               .b = (const char *)(i ? p->b2 : p->b) + at[l] * p->b_k * size,
                               .b_k = p->b_k,
                               .b_col = p->b_col,
                               .k = at[l + 1] - at[l],
                               .chunk = i == 0};
    if (!p->low_a)
        return cuts * pairs;
    parts[cuts * pairs] = (wf_gemm_part){.a = p->low_a,
                                         .a_row = j->rank,
                                         .a_k = 1,
                                         .b = p->low_b,
                                         .b_k = p->low_b_k,
                                         .b_col = p->low_b_col,
                                         .k = j->rank};
    return cuts * pairs + 1;
}

void wf_moe_gemm(wf_moe_job *j, wf_gemm *g)
{
    const size_t size = g->c_bf16 ? sizeof(uint16_t) : sizeof(float);
    const int64_t in = g->bf16 ? sizeof(uint16_t) : sizeof(float), m = g->m, half = m / 2;
    const size_t need = j->cpu->simd->gemm_workspace(g, wf_thread_pool_size(j->cpu->pool));
    wf_gemm rest;

    if (need <= j->gemm_bytes) {
        j->cpu->simd->gemm(j->cpu->pool, g, j->gemm);
        return;
    }
    if (m <= 1) {
        wf_fail(j->call->ctx, WF_EINTERNAL,
                "%s: a product of one row needs %zu bytes, and %zu were counted",
                j->call->op->name, need, j->gemm_bytes);
        return;
    }
    g->m = half;
    wf_moe_gemm(j, g);
    rest = *g;
    rest.m = m - half;
    rest.c = (char *)g->c + (size_t)(half * g->c_row) * size;
    for (int64_t i = 0; i < g->n_parts; i++)
        j->parts[i].a = (const char *)j->parts[i].a + half * j->parts[i].a_row * in;
    wf_moe_gemm(j, &rest);
    for (int64_t i = 0; i < g->n_parts; i++)
        j->parts[i].a = (const char *)j->parts[i].a - half * j->parts[i].a_row * in;
    g->m = m;
}

void wf_moe_multiply(wf_moe_job *j, const wf_moe_product *p)
{
    wf_gemm g = {.m = p->m,
                 .n = p->n,
                 .c = p->c,
                 .c_row = p->n,
                 .bf16 = j->bf16,
                 .c_bf16 = j->bf16 && !p->floats,
                 .parts = j->parts,
                 .n_parts = wf_moe_lay_parts(j, p, j->parts)};

    wf_moe_gemm(j, &g);
}

typedef struct scaling {
    const wf_moe_job *j;
    void *to;
} scaling;

static void scale_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const scaling *s = arg;
    const wf_moe_job *j = s->j;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *row = j->low + r * j->rank;

        j->cpu->simd->scale(row, j->scale, row, j->rank);
        if (j->bf16)
            j->cpu->simd->narrow(row, wf_moe_row(j, s->to, r, j->rank), j->rank);
        else
            memcpy(wf_moe_row(j, s->to, r, j->rank), row, (size_t)j->rank * sizeof *row);
    }
}

void wf_moe_multiply_low(wf_moe_job *j, wf_moe_product p, void *to)
{
    scaling s = {j, to};

    p.m = j->count;
    p.n = j->rank;
    p.c = j->low;
    p.floats = true;
    wf_moe_multiply(j, &p);
    wf_thread_pool_run(j->cpu->pool, p.m, wf_task_rows(j->rank), scale_task, &s);
}

wf_moe_product wf_moe_u_of_down(const wf_moe_job *j)
{
    return (wf_moe_product){.m = j->count,
                            .n = j->rank,
                            .k = j->s.f,
                            .a = j->h,
                            .b = wf_moe_factor(j, WF_MOE_DOWN_A),
                            .b_k = 1,
                            .b_col = j->s.f,
                            .c = j->low,
                            .floats = true,
                            .features = true};
}

void wf_moe_down_low(wf_moe_job *j)
{
    wf_moe_multiply_low(j, wf_moe_u_of_down(j), j->u_out);
}

static const float *floats_of(const wf_moe_job *j, const void *rows, int64_t r, int64_t n,
                              float *to)
{
    const void *row = wf_moe_row(j, rows, r, n);

    if (!j->bf16)
        return row;
    j->cpu->simd->widen(row, to, n);
    return to;
}

static void act_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_moe_job *j = arg;
    float *room = j->scratch + worker * j->scratch_size;
    int64_t f = j->s.f;

    for (int64_t r = begin; r < end; r++) {
        const float *gate = floats_of(j, j->gate, r, f, room);
        const float *up = floats_of(j, j->up, r, f, room + f);
        float *h = j->bf16 ? room : wf_moe_row(j, j->h, r, f);

        j->cpu->simd->swiglu(gate, up, h, f);
        if (j->bf16)
            j->cpu->simd->narrow(h, wf_moe_row(j, j->h, r, f), f);
    }
}

void wf_moe_act(wf_moe_job *j)
{
    wf_thread_pool_run(j->cpu->pool, j->count, wf_task_rows(j->s.f), act_task, j);
}

void wf_moe_gate_up_low(wf_moe_job *j)
{
    wf_moe_multiply_low(j,
                        (wf_moe_product){.k = j->s.d,
                                         .a = j->x,
                                         .b = wf_moe_factor(j, WF_MOE_GATE_UP_A),
                                         .b_k = 1,
                                         .b_col = j->s.d},
                        j->u_in);
}

void wf_moe_gate_up(wf_moe_job *j)
{
    wf_moe_product p = {.m = j->count,
                        .n = j->s.f,
                        .k = j->s.d,
                        .a = j->x,
                        .b = wf_moe_matrix(j, WF_MOE_GATE),
                        .b_k = 1,
                        .b_col = j->s.d,
                        .c = j->gate};

    if (j->factors) {
        wf_moe_gate_up_low(j);
        p.low_a = j->u_in;
        p.low_b = wf_moe_factor(j, WF_MOE_GATE_B);
        p.low_b_k = 1;
        p.low_b_col = j->rank;
    }
    wf_moe_multiply(j, &p);
    p.b = wf_moe_matrix(j, WF_MOE_UP);
    p.c = j->up;
    if (j->factors)
        p.low_b = wf_moe_factor(j, WF_MOE_UP_B);
    wf_moe_multiply(j, &p);
}

/* ---- the sum over experts ---- */

/* Sums rows [low, high), whose experts are of [first, first + count), as the midpoint tree
   over all experts; row[low] is the sum then, in `room` of a row for each where there are
   several. */
static void add_tree(const wf_moe_job *j, const float **row, float *room, const int64_t *expert,
                     int64_t low, int64_t high, int64_t first, int64_t count)
{
    int64_t middle = low, half = first + count / 2;

    if (high - low < 2)
        return;
    while (middle < high && expert[middle] < half)
        middle++;
    add_tree(j, row, room, expert, low, middle, first, count / 2);
    add_tree(j, row, room, expert, middle, high, half, count - count / 2);
    if (low == middle || middle == high)
        return;
    j->cpu->simd->add(row[low], row[middle], room + low * j->s.d, j->s.d);
    row[low] = room + low * j->s.d;
}

/* Returns a row of floats as bf16 has them, in `to`. */
static const float *rounded(const wf_moe_job *j, const float *row, float *room, float *to)
{
    j->cpu->simd->narrow(row, (uint16_t *)room, j->s.d);
    j->cpu->simd->widen((const uint16_t *)room, to, j->s.d);
    return to;
}

/* Combines by a tree without a zero sum of its own sign: -0 becomes +0, as where another rank
   adds +0. */
void wf_moe_combine_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_moe_combination *c = arg;
    const wf_moe_job *j = c->j;
    const float *row[WF_ROUTE_MOST];
    float *room = j->scratch + worker * j->scratch_size;
    int64_t d = j->s.d, k = j->s.k, expert[WF_ROUTE_MOST];
    bool bf16 = c->y->dtype == WF_BF16;

    for (int64_t t = c->first + begin; t < c->first + end; t++) {
        float *sum = bf16 ? room : (float *)c->y->data + t * d;
        int64_t n = 0;

        for (int64_t i = t * k; i < (t + 1) * k; i++) {
            if ((j->row && j->row[i] < 0) || c->index[i] >= (float)j->s.all)
                continue;
            row[n] = floats_of(j, j->rows, j->row ? j->row[i] : i, d, room + n * d);
            if (c->round)
                row[n] = rounded(j, row[n], room + k * d, room + n * d);
            if (c->weights) {
                j->cpu->simd->scale(row[n], c->weights[i], room + n * d, d);
                row[n] = room + n * d;
            }
            expert[n++] = (int64_t)c->index[i];
        }
        add_tree(j, row, room, expert, 0, n, 0, j->s.all);
        for (int64_t i = 0; i < d; i++)
            sum[i] = n > 0 ? row[0][i] + 0.0f : 0.0f;
        if (bf16)
            j->cpu->simd->narrow(room, (uint16_t *)c->y->data + t * d, d);
    }
}

void wf_moe_combine(wf_moe_job *j, const wf_moe_wave *w, const float *weights, wf_tensor *y)
{
    wf_moe_combination c = {.j = j,
                            .weights = weights,
                            .index = j->call->in[WF_MOE_INDEX]->data,
                            .y = y,
                            .first = wf_moe_token(j, w->first)};

    wf_thread_pool_run(j->cpu->pool, wf_moe_token(j, w->end) - c.first,
                       wf_task_rows(j->s.k * j->s.d), wf_moe_combine_task, &c);
}

typedef struct spreading {
    const wf_moe_job *j;
    wf_tensor *y;
    int64_t first; /* the first choice */
} spreading;

static void spread_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const spreading *s = arg;
    const wf_moe_job *j = s->j;
    const int64_t d = j->s.d;
    const size_t size = wf_dtype_size(s->y->dtype);

    (void)worker;
    for (int64_t i = s->first + begin; i < s->first + end; i++) {
        char *y = (char *)s->y->data + (size_t)(i * d) * size;
        const float *row = j->row[i] < 0 ? NULL : (const float *)j->rows + j->row[i] * d;

        if (!row)
            memset(y, 0, (size_t)d * size);
        else if (s->y->dtype == WF_BF16)
            j->cpu->simd->narrow(row, (uint16_t *)(void *)y, d);
        else
            memcpy(y, row, (size_t)d * size);
    }
}

void wf_moe_spread(wf_moe_job *j, const wf_moe_wave *w, wf_tensor *y)
{
    spreading s = {j, y, wf_moe_token(j, w->first) * j->s.k};

    wf_thread_pool_run(j->cpu->pool, wf_moe_token(j, w->end) * j->s.k - s.first,
                       wf_task_rows(j->s.d), spread_task, &s);
}

/* ---- the kernel ---- */

void wf_moe_run_down(wf_moe_job *j)
{
    wf_moe_product p = {.m = j->count,
                        .n = j->s.d,
                        .k = j->s.f,
                        .a = j->h,
                        .b = wf_moe_matrix(j, WF_MOE_DOWN),
                        .b_k = 1,
                        .b_col = j->s.f,
                        .features = true,
                        .floats = j->part,
                        .c = wf_moe_results(j)};

    if (j->last) {
        p.low_a = j->u_out;
        p.low_b = wf_moe_factor(j, WF_MOE_DOWN_B);
        p.low_b_k = 1;
        p.low_b_col = j->rank;
    }
    wf_moe_multiply(j, &p);
}

/* Computes what the expert at work gives for its rows. */
static void run_expert(wf_moe_job *j)
{
    wf_moe_take(j, j->call->in[WF_MOE_X], j->x);
    wf_moe_gate_up(j);
    wf_moe_act(j);
    if (j->factors)
        wf_moe_down_low(j);
    wf_moe_run_down(j);
}

wf_status wf_moe_forward(const wf_call *call, void *workspace)
{
    size_t used;
    wf_moe_job j = wf_moe_job_of(call, workspace, &used);
    wf_moe_wave w = {0};

    if (wf_moe_list(&j) != WF_OK)
        return WF_EINVAL;
    while (wf_moe_next(&j, &w)) {
        for (int64_t e = 0; e < j.s.experts; e++)
            wf_moe_pieces(&j, &w, e, run_expert);
        if (j.part)
            wf_moe_spread(&j, &w, call->out[0]);
        else
            wf_moe_combine(&j, &w, call->in[WF_MOE_WEIGHTS]->data, call->out[0]);
    }
    return wf_context_status(call->ctx);
}

const wf_kernel wf_cpu_experts = {.run = wf_moe_forward,
                                  .workspace = wf_moe_workspace,
                                  .mixed_ok = WF_OUT(0),
                                  .all_bf16 = WF_MOE_FORWARD | WF_MOE_FORWARD_KEPT};
const wf_kernel wf_cpu_experts_adapted = {.run = wf_moe_forward,
                                          .workspace = wf_moe_workspace,
                                          .mixed_ok = WF_OUT(0),
                                          .all_bf16 = WF_MOE_FORWARD | WF_MOE_FORWARD_FACTORS};
