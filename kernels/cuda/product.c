/*
 * kernels/cuda/product.c - a product whose sum is cut in chunks, and the midpoint tree over them
 * (core/numerics/tree.h).
 *
 * In exact mode products of bf16 are made by kernels of our own (tensor_product.c): one launch makes
 * all chunks of a node of the tree and adds them. All others are cuBLASLt's: it makes the chunks,
 * and a kernel of ours adds up to eight in one pass.
 *
 * Nodes that are not the result are floats in buffers of the workspace, for so many rows at a time
 * that the buffers stay in the second level cache. A node of many chunks has its left half wait in a
 * buffer of its own. What is not aligned as exact products need it, or not of a whole depth, is
 * copied before with zeros behind it: they add nothing, in any layout.
 *
 * Whether the one product of a sum without chunks goes to the result directly depends on the
 * shape alone (`direct`), since cuBLAS may round to bf16 in another way than our kernel does.
 */
#include "kernels/cuda/tensor_product_internal.h"

enum { BUFFER = 8 << 20, PACKED = 32 << 20, ROWS = 128, LINE = 256, FLOATS = 4 };
enum { PAIRS = 66 }; /* of blocks that an H100 runs at once; of all GPUs, so that plans are the same */
static const double WORTH = 0.9;

/* How a product is laid out in its workspace; nothing of it shows in a result. */
typedef struct plan {
    int64_t rows, ld;    /* a buffer's */
    int levels;          /* of a node that tensor cores make: 1 << levels halves of it at once */
    int buffers;         /* for parts of a node, then one per level of the tree above that */
    size_t buffer, pack; /* bytes of a buffer, of copies of factors */
    size_t pack_b;       /* where the copy of b begins, of cuBLASLt's one product */
} plan;

typedef struct product_run {
    const wf_cuda_product *p;
    const plan *plan;
    char *workspace;
    int64_t row, rows; /* rows of the result */
} product_run;

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

    return p->chunks == 1 && !p->tree && floats && typed && !wf_cuda_is_tensor_product(p) &&
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

/* Chunks of a node that is made at once. */
static int64_t node_chunks(const wf_cuda_product *p)
{
    return wf_cuda_is_tensor_product(p) ? WF_TENSOR_PIECES / p->members : WF_CUDA_CHUNKS;
}

/* Nodes that wait while the other half of theirs is made. */
static int waiting(const wf_cuda_product *p)
{
    int n = 0;

    for (int64_t chunks = p->chunks; chunks > node_chunks(p); chunks -= chunks / 2)
        n++;
    return n;
}

/* So many levels of the tree below a node as leave no part too long, and as let a GPU make the parts in
   the shortest time: as many rounds of all its pairs of blocks as it takes, each for a part. */
static int part_levels(const wf_cuda_product *p, int64_t count)
{
    int64_t pairs = multiple(p->m, 2 * WF_TENSOR_TILE) / (2 * WF_TENSOR_TILE) *
                    (multiple(p->n, WF_TENSOR_TILE) / WF_TENSOR_TILE);
    int best = 0;
    double least = 0;

    for (int n = 0; 1 << n <= WF_TENSOR_PARTS && (n == 0 || 1 << n <= count); n++) {
        double time = (double)(((pairs << n) + PAIRS - 1) / PAIRS) / (1 << n);

        if (count > (int64_t)WF_TENSOR_CHUNKS << n)
            continue;
        if (least == 0 || time < WORTH * least) { /* more parts are more to add */
            best = n;
            least = time;
        }
    }
    return best;
}

static int64_t at_most(int64_t rows, int64_t most)
{
    most = most / ROWS * ROWS;
    most = most < ROWS ? ROWS : most;
    return rows < most ? rows : most;
}

/* Copies of factors for a node that tensor cores make: all at once. */
static void plan_copies(const wf_cuda_product *p, plan *l)
{
    int64_t count = p->chunks < node_chunks(p) ? p->chunks : node_chunks(p), depth = 0;
    size_t most = 0;

    for (int64_t chunk = 0; chunk < p->chunks; chunk++)
        for (int m = 0; m < p->members; m++) {
            wf_cuda_piece x = p->piece(p->call, chunk, m);

            if (is_copied(p, &x.a, x.depth) && whole_depth(p, x.depth) > depth)
                depth = whole_depth(p, x.depth);
        }
    if (depth > 0)
        l->rows = at_most(l->rows, PACKED / (count * p->members * depth * (int64_t)size_of(p->type)));
    for (int64_t chunk = 0; chunk < p->chunks; chunk++)
        for (int m = 0; m < p->members; m++) {
            wf_cuda_piece x = p->piece(p->call, chunk, m);
            size_t bytes =
                copy_bytes(p, &x.a, l->rows, x.depth) + copy_bytes(p, &x.b, p->n, x.depth);

            most = bytes > most ? bytes : most;
        }
    l->pack = most * (size_t)(count * p->members);
}

static plan plan_of(const wf_cuda_product *p)
{
    plan l = {.rows = p->m, .ld = multiple(p->n, FLOATS)};
    bool tensor = wf_cuda_is_tensor_product(p);
    size_t most_a = 0, most_b = 0;
    int64_t parts = p->chunks < WF_CUDA_CHUNKS ? p->chunks : WF_CUDA_CHUNKS;

    if (tensor) {
        int64_t count = p->chunks < node_chunks(p) ? p->chunks : node_chunks(p);

        l.levels = part_levels(p, count);
        parts = l.levels || waiting(p) ? 1 << l.levels : 0;
    }
    if (tensor ? parts > 0 : !is_direct(p)) {
        l.rows = at_most(l.rows, (tensor ? PACKED : BUFFER) / (4 * (l.ld > 0 ? l.ld : 1)));
        l.buffers = (int)parts + waiting(p);
    }
    if (tensor)
        plan_copies(p, &l);
    l.buffer = l.buffers ? lines((size_t)(l.rows * l.ld) * sizeof(float)) : 0;
    if (tensor)
        return l;
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

/* Where rows of the product begin so many bytes behind its first. */
static wf_cuda_result result_of(const wf_cuda_product *p, size_t at)
{
    return (wf_cuda_result){.to = (char *)p->c + at,
                            .to_ld = p->n,
                            .type = p->c_type,
                            .add = p->add,
                            .fours = p->n % 4 == 0 && ((uintptr_t)p->c | (uintptr_t)p->gelu) % 16 == 0,
                            .bias = p->bias ? p->bias->data : NULL,
                            .bias_bf16 = p->bias && p->bias->dtype == WF_BF16,
                            .gelu = p->gelu ? (char *)p->gelu + at : NULL};
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
static wf_status multiply(const product_run *r, int64_t chunk, int member, const wf_cuda_result *c)
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
                       .c_ld = c->to_ld,
                       .add = c->add,
                       .bias = c->bias,
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
static wf_status make_chunk(const product_run *r, int64_t chunk, wf_cuda_result c,
                            bool *any)
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

static wf_status join(const product_run *r, wf_cuda_join *j, const wf_cuda_result *to)
{
    const wf_call *call = r->p->call;

    j->from_ld = r->plan->ld;
    j->result = *to;
    j->rows = r->rows;
    j->columns = r->p->n;
    return wf_cuda_check(call->ctx, wf_cuda_launch_join(wf_cuda_of(call)->stream, j),
                         call->op->name);
}

static wf_cuda_result float_target(const product_run *r, int64_t buffer)
{
    return (wf_cuda_result){
        .to = buffer_of(r, buffer), .to_ld = r->plan->ld, .type = WF_F32, .fours = true};
}

/* The pieces of a node as tensor cores take them. */
static wf_status take_pieces(const product_run *r, int64_t first, wf_tensor_product *t)
{
    const wf_cuda_product *p = r->p;
    char *room = behind_buffers(r);
    wf_status status = WF_OK;

    for (int i = 0; i < t->chunks * t->members && status == WF_OK; i++) {
        wf_cuda_piece x = p->piece(p->call, first + i / t->members, i % t->members);
        size_t a = copy_bytes(p, &x.a, r->rows, x.depth);
        size_t b = copy_bytes(p, &x.b, p->n, x.depth);

        skip_rows(p, &x.a, r->row);
        status = make_whole(p, &x.a, r->rows, x.depth, room);
        if (status == WF_OK)
            status = make_whole(p, &x.b, p->n, x.depth, behind(room, a));
        room = behind(room, a + b);
        t->piece[i] = (wf_tensor_piece){x.a.data, x.b.data, x.a.ld, x.b.ld, whole_depth(p, x.depth)};
        t->a_along = x.a.along;
        t->b_along = x.b.along;
    }
    return status;
}

/* A node by tensor cores: to the result at once, or by parts that are joined. */
static wf_status tensor_node(const product_run *r, int64_t first, int64_t count,
                             const wf_cuda_result *to)
{
    const wf_cuda_product *p = r->p;
    wf_tensor_product t = {.chunks = (int)count,
                           .members = p->members,
                           .levels = part_levels(p, count),
                           .m = r->rows,
                           .n = p->n,
                           .apart = (int64_t)(r->plan->buffer / sizeof(float)),
                           .result = *to};
    wf_cuda_join j = {.n_from = 1 << t.levels};
    wf_status status = take_pieces(r, first, &t);

    if (t.levels)
        t.result = float_target(r, 0);
    for (int i = 0; i < j.n_from; i++)
        j.from[i] = buffer_of(r, i);
    if (status == WF_OK)
        status = wf_cuda_tensor_product_run(p->call, &t);
    return status == WF_OK && t.levels ? join(r, &j, to) : status;
}

/* Up to eight chunks, in one pass. */
static wf_status small_node(const product_run *r, int64_t first, int64_t count,
                            const wf_cuda_result *to)
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
                           const wf_cuda_result *to)
{
    int wait = r->plan->buffers - waiting(r->p) + level;
    wf_cuda_join j = {.n_from = 2};
    wf_cuda_result half;
    wf_status status;

    if (count <= node_chunks(r->p))
        return wf_cuda_is_tensor_product(r->p) ? tensor_node(r, first, count, to)
                                               : small_node(r, first, count, to);
    half = float_target(r, wait);
    status = make_node(r, first, count / 2, level + 1, &half);
    half = float_target(r, 0);
    if (status == WF_OK)
        status = make_node(r, first + count / 2, count - count / 2, level + 1, &half);
    j.from[0] = buffer_of(r, wait);
    j.from[1] = buffer_of(r, 0);
    return status == WF_OK ? join(r, &j, to) : status;
}

static wf_status run_direct(const product_run *r, const wf_cuda_result *c)
{
    const wf_call *call = r->p->call;
    wf_status status;
    bool any;

    status = make_chunk(r, 0, *c, &any);
    if (status == WF_OK && !any && !c->add)
        status = wf_cuda_check(call->ctx,
                               cudaMemsetAsync(c->to, 0,
                                               (size_t)(r->rows * c->to_ld) * size_of(c->type),
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
        wf_cuda_result c = result_of(p, at);

        r.rows = p->m - r.row < l.rows ? p->m - r.row : l.rows;
        status = is_direct(p) ? run_direct(&r, &c) : make_node(&r, 0, p->chunks, 0, &c);
    }
    return status;
}
