/* kernels/cpu/moe.c - experts forward on the CPU; see the header. */
#include "kernels/cpu/moe_internal.h"
#include "core/numerics/tree.h"
#include <stdlib.h>
#include <string.h>

/* ---- the workspace ---- */

typedef struct arena {
    char *base;
    size_t used;
} arena;

static void *take(arena *r, int64_t count, size_t size)
{
    void *at = r->base ? r->base + r->used : NULL;

    r->used += ((size_t)(count > 0 ? count : 0) * size + 63) / 64 * 64;
    return at;
}

/* Sets up the parts of a product: of each chunk of k a chain through one pair of operands, or
   through two. Returns their number. */
static int lay_parts(const wf_moe_job *j, const wf_moe_product *p, wf_gemm_part *parts)
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
    return cuts * pairs;
}

/* Returns the most that a product with these columns needs, for any number of rows: that of
   all tokens, or of one block of rows. */
static size_t rows_bytes(const wf_moe_job *j, wf_moe_product p, bool two)
{
    enum { BLOCK = 512 };
    static const char any[1]; /* never read */
    wf_gemm_part parts[2 * WF_MAX_CHUNKS];
    size_t most = 0;

    p.a = p.b = any;
    p.a2 = p.b2 = two ? any : NULL;
    for (int all = 0; all < 2; all++) {
        wf_gemm g = {.m = all ? j->s.tokens : wf_least(BLOCK, j->s.tokens),
                     .n = p.n,
                     .bf16 = j->bf16,
                     .c_row = p.n,
                     .parts = parts,
                     .n_parts = lay_parts(j, &p, parts)};
        size_t bytes = j->cpu->simd->gemm_workspace(&g, wf_thread_pool_size(j->cpu->pool));

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Returns what a gradient of weights needs: of sequences so long that blocks of the long
   dimension are as long as they become, since a routing may fill any of them. */
static size_t weights_bytes(const wf_moe_job *j, int64_t m, int64_t n)
{
    enum { SOME = 64, LONG = 1024 };
    wf_gemm_part few[SOME], *parts = few; /* not the workspace: a plan's has no memory */
    wf_gemm g = {.m = m,
                 .n = n,
                 .c_row = n,
                 .bf16 = j->bf16,
                 .n_parts = wf_token_chunks_of(&j->s.cuts),
                 .each = j->s.cuts.chunks};
    size_t bytes = 0;

    if (g.n_parts > SOME)
        parts = malloc((size_t)g.n_parts * sizeof *parts);
    if (!parts) {
        wf_fail(j->call->ctx, WF_ENOMEM, "%s: no memory for a list of %lld chunks of tokens",
                j->call->op->name, (long long)g.n_parts);
        return 0;
    }
    g.parts = parts;
    for (int64_t i = 0; i < g.n_parts; i++)
        parts[i] = (wf_gemm_part){.a_row = 1,
                                  .a_k = m,
                                  .b_k = n,
                                  .b_col = 1,
                                  .k = wf_least(LONG, j->s.tokens),
                                  .chunk = true};
    bytes = j->cpu->simd->gemm_workspace(&g, wf_thread_pool_size(j->cpu->pool));
    if (parts != few)
        free(parts);
    return bytes;
}

static size_t gemm_bytes(const wf_moe_job *j, bool gradient)
{
    const int64_t d = j->s.d, f = j->s.f;
    size_t bytes[6] = {0}, most = 0;

    bytes[0] = rows_bytes(j, (wf_moe_product){.n = f, .k = d, .b_k = 1, .b_col = d}, false);
    bytes[1] = rows_bytes(
        j, (wf_moe_product){.n = d, .k = f, .b_k = 1, .b_col = f, .features = true}, false);
    if (gradient) {
        bytes[2] = rows_bytes(j, (wf_moe_product){.n = f, .k = d, .b_k = f, .b_col = 1}, false);
        bytes[3] = rows_bytes(
            j, (wf_moe_product){.n = d, .k = f, .b_k = d, .b_col = 1, .features = true}, true);
        bytes[4] = weights_bytes(j, f, d);
        bytes[5] = weights_bytes(j, d, f);
    }
    for (int i = 0; i < 6; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

wf_moe_job wf_moe_job_of(const wf_call *call, void *workspace, size_t *used)
{
    wf_cpu *cpu = wf_cpu_of(call);
    wf_moe_job j = {.call = call, .cpu = cpu, .s = wf_moe_sizes_of(call)};
    const int64_t rows = j.s.tokens * j.s.k, d = j.s.d, f = j.s.f;
    const bool gradient = call->op->id != WF_ID_experts;
    const int64_t chunks = wf_token_chunks_of(&j.s.cuts);
    const int64_t wide = d > f ? d : f, most = j.s.k * d > 4 * wide ? j.s.k * d : 4 * wide;
    arena r = {workspace, 0};
    size_t size;

    j.bf16 = call->in[WF_MOE_X]->dtype == WF_BF16;
    size = j.bf16 ? sizeof(uint16_t) : sizeof(float);
    j.bytes = (int64_t)size;
    j.begin = take(&r, j.s.experts + 1, sizeof *j.begin);
    j.token = take(&r, rows, sizeof *j.token);
    j.choice = take(&r, rows, sizeof *j.choice);
    j.row = take(&r, rows, sizeof *j.row);
    j.cuts = wf_chunk_cuts(call->in[WF_MOE_GATE], 1, j.cut);
    j.parts =
        take(&r, chunks > 2 * WF_MAX_CHUNKS ? chunks : 2 * WF_MAX_CHUNKS, sizeof *j.parts);
    j.x = take(&r, j.s.tokens * d, size);
    j.gate = take(&r, j.s.tokens * f, size);
    j.up = take(&r, j.s.tokens * f, size);
    j.h = take(&r, j.s.tokens * f, size);
    j.rows = take(&r, rows * d, size);
    j.scratch_size = (most + 15) / 16 * 16;
    j.scratch = take(&r, wf_thread_pool_size(cpu->pool) * j.scratch_size, sizeof(float));
    if (gradient) {
        j.dy = take(&r, j.s.tokens * d, size);
        j.wdy = take(&r, j.s.tokens * d, size);
        j.dgate = take(&r, j.s.tokens * f, size);
        j.dup = take(&r, j.s.tokens * f, size);
        j.c = take(&r, j.s.tokens * f, sizeof(float));
    }
    j.gemm_bytes = gemm_bytes(&j, gradient);
    j.gemm = take(&r, (int64_t)j.gemm_bytes, 1);
    *used = r.used;
    return j;
}

/* ---- products ---- */

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
                 .n_parts = lay_parts(j, p, j->parts)};

    wf_moe_gemm(j, &g);
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

void wf_moe_up(wf_moe_job *j)
{
    wf_moe_product p = {.m = wf_moe_rows(j),
                        .n = j->s.f,
                        .k = j->s.d,
                        .a = j->x,
                        .b = wf_moe_matrix(j, WF_MOE_GATE),
                        .b_k = 1,
                        .b_col = j->s.d,
                        .c = j->gate};

    wf_moe_multiply(j, &p);
    p.b = wf_moe_matrix(j, WF_MOE_UP);
    p.c = j->up;
    wf_moe_multiply(j, &p);
    wf_thread_pool_run(j->cpu->pool, p.m, wf_task_rows(j->s.f), act_task, j);
}

/* ---- the sum over experts ---- */

typedef struct combination {
    const wf_moe_job *j;
    const float *weights;
    wf_tensor *y;
} combination;

/* Sums rows [low, high) of [.., d], whose experts are of [first, first + count), as the
   midpoint tree over all experts; the result is the first of them. */
static void add_tree(const wf_moe_job *j, float *rows, const int64_t *expert, int64_t low,
                     int64_t high, int64_t first, int64_t count)
{
    int64_t middle = low, half = first + count / 2;

    if (high - low < 2)
        return;
    while (middle < high && expert[middle] < half)
        middle++;
    add_tree(j, rows, expert, low, middle, first, count / 2);
    add_tree(j, rows, expert, middle, high, half, count - count / 2);
    if (low < middle && middle < high)
        j->cpu->simd->add(rows + low * j->s.d, rows + middle * j->s.d, rows + low * j->s.d,
                          j->s.d);
}

/* Combines by a tree without a zero sum of its own sign: -0 becomes +0, as where another rank
   adds +0. */
static void combine_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const combination *c = arg;
    const wf_moe_job *j = c->j;
    const float *index = j->call->in[WF_MOE_INDEX]->data;
    float *rows = j->scratch + worker * j->scratch_size;
    int64_t d = j->s.d, k = j->s.k, expert[WF_ROUTE_MOST];

    for (int64_t t = begin; t < end; t++) {
        int64_t n = 0;

        for (int64_t i = t * k; i < (t + 1) * k; i++) {
            const float *row;

            if (j->row[i] < 0)
                continue;
            row = floats_of(j, j->rows, j->row[i], d, rows + n * d);
            if (c->weights)
                j->cpu->simd->scale(row, c->weights[i], rows + n * d, d);
            else if (row != rows + n * d)
                memcpy(rows + n * d, row, (size_t)d * sizeof *rows);
            expert[n++] = (int64_t)index[i];
        }
        if (n == 0)
            memset(rows, 0, (size_t)d * sizeof *rows);
        add_tree(j, rows, expert, 0, n, 0, j->s.all);
        for (int64_t i = 0; i < d; i++)
            rows[i] += 0.0f;
        if (c->y->dtype == WF_BF16)
            j->cpu->simd->narrow(rows, (uint16_t *)c->y->data + t * d, d);
        else
            memcpy((float *)c->y->data + t * d, rows, (size_t)d * sizeof *rows);
    }
}

void wf_moe_combine(wf_moe_job *j, const float *weights, wf_tensor *y)
{
    combination c = {j, weights, y};

    wf_thread_pool_run(j->cpu->pool, j->s.tokens, wf_task_rows(j->s.k * j->s.d), combine_task,
                       &c);
}

/* ---- the kernel ---- */

static size_t workspace_of(const wf_call *call)
{
    size_t used;

    wf_moe_job_of(call, NULL, &used);
    return used;
}

static wf_status forward(const wf_call *call, void *workspace)
{
    size_t used;
    wf_moe_job j = wf_moe_job_of(call, workspace, &used);

    if (wf_moe_list(&j) != WF_OK)
        return WF_EINVAL;
    for (j.expert = 0; j.expert < j.s.experts; j.expert++) {
        if (wf_moe_rows(&j) == 0)
            continue;
        wf_moe_take(&j, call->in[WF_MOE_X], j.x);
        wf_moe_up(&j);
        wf_moe_multiply(
            &j, &(wf_moe_product){.m = wf_moe_rows(&j),
                                  .n = j.s.d,
                                  .k = j.s.f,
                                  .a = j.h,
                                  .b = wf_moe_matrix(&j, WF_MOE_DOWN),
                                  .b_k = 1,
                                  .b_col = j.s.f,
                                  .features = true,
                                  .c = wf_moe_row(&j, j.rows, j.begin[j.expert], j.s.d)});
    }
    wf_moe_combine(&j, call->in[WF_MOE_WEIGHTS]->data, call->out[0]);
    return wf_context_status(call->ctx);
}

enum { OPERANDS = WF_IN(WF_MOE_X + 1) - 1 };

const wf_kernel wf_cpu_experts = {
    .run = forward, .workspace = workspace_of, .mixed_ok = WF_OUT(0), .all_bf16 = OPERANDS};
