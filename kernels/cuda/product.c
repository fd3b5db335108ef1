/*
 * kernels/cuda/product.c - a product whose sum is cut in chunks: cuBLASLt makes the chunks, and a
 * kernel of ours adds them in the midpoint tree (core/numerics/tree.h), up to eight in one pass.
 *
 * Chunks are floats in buffers of the workspace, for so many rows of the result at a time that the
 * buffers stay in the second level cache. Where there are more than eight, a node's left half
 * waits in a buffer of its own. What is not aligned as pinned algorithms need it, or not of a
 * whole depth, is copied before with zeros behind it: they add nothing, in any layout.
 *
 * Whether the one product of a sum without chunks goes to the result directly depends on the
 * shape alone (`direct`), since cuBLAS may round to bf16 in another way than our kernel does.
 */
#include "kernels/cuda/matmul_internal.h"

enum { BUFFER = 8 << 20, ROWS = 128, LINE = 256, FLOATS = 4 };

/* How a product is laid out in its workspace; nothing of it shows in a result. */
typedef struct plan {
    int64_t rows, ld;    /* a buffer's */
    int buffers;         /* for chunks, then one per level of the tree above eight */
    size_t buffer, pack; /* bytes of a buffer, of a copy of both factors */
    size_t pack_b;       /* where the copy of b begins */
} plan;

typedef struct product_run {
    const wf_cuda_product *p;
    const plan *plan;
    char *workspace;
    int64_t row, rows; /* rows of the result */
} product_run;

/* Where a node of the tree goes. */
typedef struct target {
    void *to;
    int64_t ld;
    wf_dtype type;
    bool add;
    bool last; /* the result itself: what is joined to the product happens here */
    void *gelu;
} target;

static size_t size_of(wf_dtype type)
{
    return type == WF_BF16 ? 2 : 4;
}

static int64_t multiple(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static bool exact(const wf_cuda_product *p)
{
    return wf_cuda_host_table->context_exact(p->call->ctx);
}

/* One product, straight to the result; several only where they add up in float. cuBLASLt multiplies
   no f32 to bf16. */
static bool is_direct(const wf_cuda_product *p)
{
    bool floats = p->members == 1 || p->c_type == WF_F32;
    bool typed = p->c_type == WF_F32 || p->type == WF_BF16;

    return p->chunks == 1 && !p->tree && floats && typed &&
           (exact(p) ? p->direct && !p->bias : true);
}

/* Depths are whole rows of 16 bytes; so is the step of a copy. */
static int64_t whole_depth(const wf_cuda_product *p, int64_t depth)
{
    return multiple(depth, WF_CUDA_ALIGNED / (int64_t)size_of(p->type));
}

static bool is_copied(const wf_cuda_product *p, const wf_cuda_factor *f, int64_t depth)
{
    uint64_t bits = (uint64_t)(uintptr_t)f->data | (uint64_t)f->ld * size_of(p->type);

    return exact(p) && (depth != whole_depth(p, depth) || bits % WF_CUDA_ALIGNED);
}

static size_t copy_bytes(const wf_cuda_product *p, const wf_cuda_factor *f, int64_t rows,
                         int64_t depth)
{
    if (!is_copied(p, f, depth))
        return 0;
    return lines((size_t)(whole_depth(p, depth) * whole_depth(p, rows)) * size_of(p->type));
}

/* Nodes that wait while the other half of theirs is made. */
static int levels(int64_t chunks)
{
    int n = 0;

    for (; chunks > WF_CUDA_CHUNKS; chunks -= chunks / 2)
        n++;
    return n;
}

static plan plan_of(const wf_cuda_product *p)
{
    plan l = {.rows = p->m, .ld = multiple(p->n, FLOATS)};
    size_t most_a = 0, most_b = 0;

    if (!is_direct(p)) {
        int64_t fit = BUFFER / (4 * (l.ld > 0 ? l.ld : 1)) / ROWS * ROWS;
        int64_t chunks = p->chunks < WF_CUDA_CHUNKS ? p->chunks : WF_CUDA_CHUNKS;

        fit = fit < ROWS ? ROWS : fit;
        l.rows = l.rows < fit ? l.rows : fit;
        l.buffers = (int)chunks + levels(p->chunks);
        l.buffer = lines((size_t)(l.rows * l.ld) * sizeof(float));
    }
    for (int64_t chunk = 0; chunk < p->chunks; chunk++)
        for (int m = 0; m < p->members; m++) {
            wf_cuda_piece x = p->piece(p->call, chunk, m);
            size_t a = copy_bytes(p, &x.a, l.rows, x.depth);
            size_t b = copy_bytes(p, &x.b, p->n, x.depth);

            most_a = a > most_a ? a : most_a;
            most_b = b > most_b ? b : most_b;
        }
    l.pack = most_a + most_b;
    l.pack_b = most_a;
    return l;
}

size_t wf_cuda_product_workspace(const wf_cuda_product *p)
{
    plan l = plan_of(p);
    size_t free_choice = exact(p) ? 0 : WF_CUDA_BLAS_WORKSPACE;

    return (size_t)l.buffers * l.buffer + l.pack + free_choice;
}

/* So many bytes on; where there are none, the workspace may be NULL. */
static char *behind(char *workspace, size_t bytes)
{
    return bytes > 0 ? workspace + bytes : workspace;
}

static float *buffer_of(const product_run *r, int64_t i)
{
    return (float *)(r->workspace + (size_t)i * r->plan->buffer);
}

static char *behind_buffers(const product_run *r)
{
    return behind(r->workspace, (size_t)r->plan->buffers * r->plan->buffer);
}

/* The factor from a row on. */
static void skip_rows(const wf_cuda_product *p, wf_cuda_factor *f, int64_t rows)
{
    f->data =
        (const char *)f->data + (size_t)(f->along ? rows * f->ld : rows) * size_of(p->type);
}

/* A copy with zeros behind its depth, where the factor has to be copied. */
static wf_status make_whole(const wf_cuda_product *p, wf_cuda_factor *f, int64_t rows,
                            int64_t depth, char *room)
{
    wf_cuda *cuda = wf_cuda_of(p->call);
    int64_t whole = whole_depth(p, depth);
    wf_cuda_pad pad = {.from = f->data,
                       .to = room,
                       .from_ld = f->ld,
                       .to_ld = f->along ? whole : whole_depth(p, rows),
                       .rows = f->along ? rows : depth,
                       .columns = f->along ? depth : rows,
                       .to_rows = f->along ? rows : whole,
                       .size = size_of(p->type)};

    if (!is_copied(p, f, depth))
        return WF_OK;
    f->data = room;
    f->ld = pad.to_ld;
    return wf_cuda_check(p->call->ctx, wf_cuda_launch_pad(cuda->stream, &pad),
                         p->call->op->name);
}

/* One product of a chunk's chain to c, or added to it. */
static wf_status multiply(const product_run *r, int64_t chunk, int member, const target *c)
{
    const wf_cuda_product *p = r->p;
    wf_cuda_piece x = p->piece(p->call, chunk, member);
    char *room = behind_buffers(r);
    wf_cuda_gemm mm = {.type = p->type,
                       .c_type = c->type,
                       .m = r->rows,
                       .n = p->n,
                       .depth = exact(p) ? whole_depth(p, x.depth) : x.depth,
                       .c = c->to,
                       .c_ld = c->ld,
                       .add = c->add,
                       .bias = c->last && p->bias ? p->bias->data : NULL,
                       .pinned = exact(p),
                       .workspace = behind(room, r->plan->pack)};
    wf_status status;

    skip_rows(p, &x.a, r->row);
    status = make_whole(p, &x.a, r->rows, x.depth, room);
    if (status == WF_OK)
        status = make_whole(p, &x.b, p->n, x.depth, behind(room, r->plan->pack_b));
    mm.a = x.a;
    mm.b = x.b;
    return status == WF_OK ? wf_cuda_gemm_run(p->call, &mm) : status;
}

/* The chain of a chunk's products, in order; *any: whether there was one. */
static wf_status make_chunk(const product_run *r, int64_t chunk, target c, bool *any)
{
    wf_status status = WF_OK;

    *any = false;
    for (int m = 0; m < r->p->members && status == WF_OK; m++) {
        if (r->p->piece(r->p->call, chunk, m).depth == 0)
            continue;
        status = multiply(r, chunk, m, &c);
        c.add = *any = true;
    }
    return status;
}

static wf_status join(const product_run *r, wf_cuda_join *j, const target *to)
{
    const wf_call *call = r->p->call;

    j->from_ld = r->plan->ld;
    j->to = to->to;
    j->to_ld = to->ld;
    j->type = to->type;
    j->add = to->add;
    if (to->last && r->p->bias) {
        j->bias = r->p->bias->data;
        j->bias_bf16 = r->p->bias->dtype == WF_BF16;
        j->gelu = to->gelu;
    }
    j->rows = r->rows;
    j->columns = r->p->n;
    return wf_cuda_check(call->ctx, wf_cuda_launch_join(wf_cuda_of(call)->stream, j),
                         call->op->name);
}

static target float_target(const product_run *r, int64_t buffer)
{
    return (target){.to = buffer_of(r, buffer), .ld = r->plan->ld, .type = WF_F32};
}

/* Up to eight chunks, in one pass. */
static wf_status small_node(const product_run *r, int64_t first, int64_t count,
                            const target *to)
{
    wf_cuda_join j = {.n_from = (int)count};
    wf_status status = WF_OK;

    for (int64_t l = 0; l < count && status == WF_OK; l++) {
        bool any;

        status = make_chunk(r, first + l, float_target(r, l), &any);
        j.from[l] = any ? buffer_of(r, l) : NULL;
    }
    return status == WF_OK ? join(r, &j, to) : status;
}

/* The node over `count` chunks; of a right half it comes to lie in buffer 0. */
static wf_status make_node(const product_run *r, int64_t first, int64_t count, int level,
                           const target *to)
{
    int waiting = WF_CUDA_CHUNKS + level;
    wf_cuda_join j = {.n_from = 2};
    target half;
    wf_status status;

    if (count <= WF_CUDA_CHUNKS)
        return small_node(r, first, count, to);
    half = float_target(r, waiting);
    status = make_node(r, first, count / 2, level + 1, &half);
    half = float_target(r, 0);
    if (status == WF_OK)
        status = make_node(r, first + count / 2, count - count / 2, level + 1, &half);
    j.from[0] = buffer_of(r, waiting);
    j.from[1] = buffer_of(r, 0);
    return status == WF_OK ? join(r, &j, to) : status;
}

static wf_status run_direct(const product_run *r, const target *c)
{
    const wf_call *call = r->p->call;
    wf_status status;
    bool any;

    status = make_chunk(r, 0, *c, &any);
    if (status == WF_OK && !any && !c->add)
        status = wf_cuda_check(call->ctx,
                               cudaMemsetAsync(c->to, 0,
                                               (size_t)(r->rows * c->ld) * size_of(c->type),
                                               wf_cuda_of(call)->stream),
                               call->op->name);
    return status;
}

wf_status wf_cuda_product_run(const wf_cuda_product *p, void *workspace)
{
    plan l = plan_of(p);
    product_run r = {.p = p, .plan = &l, .workspace = workspace};
    wf_status status = WF_OK;

    if (p->m == 0 || p->n == 0)
        return WF_OK;
    for (; r.row < p->m && status == WF_OK; r.row += l.rows) {
        size_t at = (size_t)(r.row * p->n) * size_of(p->c_type);
        target c = {(char *)p->c + at, p->n, p->c_type, p->add, .last = true};

        if (p->gelu)
            c.gelu = (char *)p->gelu + at;

        r.rows = p->m - r.row < l.rows ? p->m - r.row : l.rows;
        status = is_direct(p) ? run_direct(&r, &c) : make_node(&r, 0, p->chunks, 0, &c);
    }
    return status;
}
