/* kernels/cpu/moe_workspace.c - the memory that a call of experts takes while it runs: sizes
   that no routing changes. */
#include "core/numerics/tree.h"
#include "kernels/cpu/moe_internal.h"
#include <stdlib.h>

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

/* Returns the most that a product with these columns needs, for any number of rows: that of
   the most, or of one block of rows. */
static size_t rows_bytes(const wf_moe_job *j, wf_moe_product p, bool two)
{
    enum { BLOCK = 512 };
    static const char any[1]; /* never read */
    wf_gemm_part parts[WF_MOE_PARTS];
    size_t most = 0;

    p.a = p.b = any;
    p.low_a = p.low_b = j->factors ? any : NULL;
    p.a2 = p.b2 = two ? any : NULL;
    for (int all = 0; all < 2; all++) {
        wf_gemm g = {.m = all ? j->most : wf_least(BLOCK, j->most),
                     .n = p.n,
                     .bf16 = j->bf16,
                     .c_row = p.n,
                     .parts = parts,
                     .n_parts = wf_moe_lay_parts(j, &p, parts)};
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

/* Returns what products of factors need, beside those of matrices that they end. */
static size_t low_bytes(const wf_moe_job *j, bool gradient)
{
    const int64_t d = j->s.d, f = j->s.f, r = j->rank;
    size_t bytes[8] = {0}, most = 0;

    bytes[0] = rows_bytes(j, (wf_moe_product){.n = r, .k = d, .b_k = 1, .b_col = d}, false);
    bytes[1] = rows_bytes(
        j, (wf_moe_product){.n = r, .k = f, .b_k = 1, .b_col = f, .features = true}, false);
    if (gradient) {
        bytes[2] = rows_bytes(j, (wf_moe_product){.n = r, .k = d, .b_k = r, .b_col = 1}, false);
        bytes[3] = rows_bytes(
            j, (wf_moe_product){.n = r, .k = f, .b_k = r, .b_col = 1, .features = true}, true);
        bytes[4] = weights_bytes(j, r, d);
        bytes[5] = weights_bytes(j, f, r);
        bytes[6] = weights_bytes(j, r, f);
        bytes[7] = weights_bytes(j, d, r);
    }
    for (int i = 0; i < 8; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

static size_t gemm_bytes(const wf_moe_job *j, bool gradient)
{
    const int64_t d = j->s.d, f = j->s.f;
    size_t bytes[6] = {0}, most = j->factors ? low_bytes(j, gradient) : 0;

    bytes[0] = rows_bytes(j, (wf_moe_product){.n = f, .k = d, .b_k = 1, .b_col = d}, false);
    bytes[1] = rows_bytes(
        j, (wf_moe_product){.n = d, .k = f, .b_k = 1, .b_col = f, .features = true}, false);
    if (gradient) {
        bytes[2] = rows_bytes(j, (wf_moe_product){.n = f, .k = d, .b_k = f, .b_col = 1}, false);
        bytes[3] = rows_bytes(
            j, (wf_moe_product){.n = d, .k = f, .b_k = d, .b_col = 1, .features = true}, true);
    }
    if (gradient && !j->factors) {
        bytes[4] = weights_bytes(j, f, d);
        bytes[5] = weights_bytes(j, d, f);
    }
    for (int i = 0; i < 6; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

/* Takes room for rows of as many numbers as adapters have ranks. */
static void take_low(wf_moe_job *j, arena *r, bool gradient)
{
    const int64_t count = j->most * j->rank;
    void **rows[] = {&j->u_in, &j->u_out, &j->v_out, &j->wv_out, &j->v_in};

    j->low = take(r, count, sizeof *j->low);
    for (int i = 0; i < (gradient ? 5 : 2); i++)
        *rows[i] = take(r, count, (size_t)j->bytes);
}

/* Counts the rows that are at work at a time: those of any choice, or as many as the buffer
   says, and at least those of any choice of a chunk of tokens. */
static void count_room(wf_moe_job *j)
{
    const wf_moe_attr *attr = j->call->attr;
    const double buffer = attr ? (double)attr->buffer : 0;
    wf_experts_rows rows = {.tokens = j->s.tokens,
                            .k = j->s.k,
                            .mine = j->s.experts,
                            .all = j->s.all,
                            .sequences = j->call->in[WF_MOE_X]->local[0],
                            .taken = attr ? attr->taken : 0};

    for (int l = 0; l < j->s.cuts.chunks && j->s.tokens > 0; l++)
        if (wf_token_chunk_rows(&j->s.cuts, l) > rows.together)
            rows.together = wf_token_chunk_rows(&j->s.cuts, l);
    j->room = wf_experts_room(&rows, buffer);
    rows.mine = 1;
    j->most = wf_experts_room(&rows, buffer);
    j->one = wf_experts_room(&rows, 0);
}

/* Takes room for sums of gradients of matrices that are open at a time, where an expert's rows
   may be too many to be at work together: one for each level of the tree over chunks. */
static void take_sums(wf_moe_job *j, arena *r)
{
    const wf_call *call = j->call;
    int64_t levels = 0;

    for (int64_t n = wf_token_chunks_of(&j->s.cuts); n > 1;
         n -= wf_tree_left(n, j->s.cuts.chunks))
        levels++;
    for (int o = 0; o < j->matrices; o++)
        j->sums_size += call->out[o]->local[1] * call->out[o]->local[2];
    if (j->most < j->one)
        j->sums = take(r, levels * j->sums_size, sizeof *j->sums);
}

static bool is_forward(const wf_call *call)
{
    const int id = call->op->id;

    return id == WF_ID_experts || id == WF_ID_experts_adapted || id == WF_ID_experts_part ||
           id == WF_ID_experts_part_u || id == WF_ID_experts_part_y;
}

/* Returns the number of outputs that are gradients of matrices. */
static int matrices_of(const wf_call *call)
{
    if (is_forward(call) || call->op->id == WF_ID_experts_part_v)
        return 0;
    if (wf_moe_is_staged(call->op))
        return call->op->id == WF_ID_experts_part_whole ? 2 : 3;
    return call->n_out - (wf_moe_is_part(call->op) ? 3 : 2);
}

/* Says where terms of gradients of weights go, and whether products end with those of adapters:
   of a part of the features, where the last ones are. */
static void set_part(wf_moe_job *j)
{
    wf_tensor *const *out = j->call->out;
    const int id = j->call->op->id, at = id == WF_ID_experts_part_v ? 0 : j->matrices + 1;
    const bool terms = id == WF_ID_experts_part_v || id == WF_ID_experts_part_dx ||
                       id == WF_ID_experts_part_grad;

    for (int i = 0; i < 2 && terms; i++)
        j->terms[i] = out[at + i]->data;
    j->last = j->factors && (!j->part || wf_moe_has_last(j->call->in[WF_MOE_GATE]));
}

wf_moe_job wf_moe_job_of(const wf_call *call, void *workspace, size_t *used)
{
    wf_cpu *cpu = wf_cpu_of(call);
    wf_moe_job j = {.call = call, .cpu = cpu, .s = wf_moe_sizes_of(call)};
    const int64_t rows = j.s.tokens * j.s.k, d = j.s.d, f = j.s.f;
    const bool gradient = !is_forward(call);
    const int64_t chunks = wf_token_chunks_of(&j.s.cuts);
    const int64_t both = d > f ? d : f, wide = both > j.rank ? both : j.rank;
    const int64_t most = j.s.k * d > 4 * wide ? j.s.k * d : 4 * wide;
    wf_tensor *const *kept = wf_moe_kept(call);
    arena r = {workspace, 0};
    size_t size;

    j.part = wf_moe_is_part(call->op);
    j.matrices = matrices_of(call);
    j.bf16 = call->in[WF_MOE_X]->dtype == WF_BF16;
    size = j.bf16 ? sizeof(uint16_t) : sizeof(float);
    j.bytes = (int64_t)size;
    if ((j.factors = wf_moe_factors(call))) {
        j.rank = wf_moe_rank(j.factors);
        j.scale = ((const wf_moe_attr *)call->attr)->scale;
    }
    set_part(&j);
    count_room(&j);
    j.begin = take(&r, j.s.experts + 1, sizeof *j.begin);
    j.next = take(&r, j.s.experts, sizeof *j.next);
    j.load = take(&r, chunks, sizeof *j.load);
    j.token = take(&r, rows, sizeof *j.token);
    j.choice = take(&r, rows, sizeof *j.choice);
    j.row = take(&r, rows, sizeof *j.row);
    j.cuts = wf_chunk_cuts(call->in[WF_MOE_GATE], 1, j.cut);
    j.parts = take(&r, chunks > WF_MOE_PARTS ? chunks : WF_MOE_PARTS, sizeof *j.parts);
    j.x = take(&r, j.most * d, size);
    if (kept) {
        for (int i = 0; i < WF_MOE_KEPT; i++)
            j.kept[i] = kept[i]->data;
    } else {
        j.gate = take(&r, j.most * f, size);
        j.up = take(&r, j.most * f, size);
    }
    j.h = take(&r, j.most * f, size);
    j.rows = take(&r, j.room * d, j.part ? sizeof(float) : size);
    j.scratch_size = (most + 15) / 16 * 16;
    j.scratch = take(&r, wf_thread_pool_size(cpu->pool) * j.scratch_size, sizeof(float));
    if (gradient) {
        j.dy = take(&r, j.most * d, size);
        j.wdy = take(&r, j.most * d, size);
        j.dgate = take(&r, j.most * f, size);
        j.dup = take(&r, j.most * f, size);
        j.c = take(&r, j.most * f, sizeof(float));
        take_sums(&j, &r);
    }
    if (j.factors)
        take_low(&j, &r, gradient);
    j.gemm_bytes = gemm_bytes(&j, gradient);
    j.gemm = take(&r, (int64_t)j.gemm_bytes, 1);
    *used = r.used;
    return j;
}

size_t wf_moe_workspace(const wf_call *call)
{
    size_t used;

    wf_moe_job_of(call, NULL, &used);
    return used;
}
