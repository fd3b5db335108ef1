/*
 * kernels/cuda/product.c - a product whose sum is cut in chunks, and the midpoint tree over
 * them (core/numerics/tree.h).
 *
 * In exact mode kernels of our own (tensor_product.c) make it: one launch makes all chunks of a
 * node of the tree and adds them. With exact off cuBLASLt makes the products, one of them
 * mostly, and a kernel of ours adds up to eight in one pass where they do not go to the result
 * directly.
 *
 * Nodes that are not the result are floats in buffers of the workspace, for as many rows at a
 * time as keep the buffers in the second level cache. A node of many chunks has its left half
 * wait in a buffer of its own. What is not aligned as exact products need it, or not of a whole
 * depth, is copied before with zeros after it: they add nothing, in any layout.
 */
#include "kernels/cuda/linear_internal.h"
#include "kernels/cuda/product_internal.h"

typedef struct product_run {
    const wf_cuda_product *p;
    const wf_cuda_plan *plan;
    char *workspace;
    int64_t row, rows; /* rows of the result */
} product_run;

/* Returns the output of rows of the product from `row` on. */
static wf_cuda_result result_of(const wf_cuda_product *p, int64_t row)
{
    const size_t at = (size_t)(row * p->n) * wf_cuda_size_of(p->c_type);
    const wf_tensor *residual = p->residual;
    const void *added = residual ? wf_cuda_element(residual, row * p->n) : NULL;
    wf_cuda_rotation rotation = p->rotation;

    rotation.row = (int32_t)row;
    return (wf_cuda_result){.to = (char *)p->c + at,
                            .to_ld = p->n,
                            .type = p->c_type,
                            .add = p->add,
                            .fours = p->n % 4 == 0 && ((uintptr_t)p->c | (uintptr_t)p->gelu |
                                                       (uintptr_t)p->gate | (uintptr_t)added) %
                                                              16 ==
                                                          0,
                            .bias = p->bias ? p->bias->data : NULL,
                            .bias_bf16 = p->bias && p->bias->dtype == WF_BF16,
                            .gelu = p->gelu ? (char *)p->gelu + at : NULL,
                            .gate = p->gate ? (const char *)p->gate + at : NULL,
                            .residual = added,
                            .residual_bf16 = residual && residual->dtype == WF_BF16,
                            .rotation = rotation};
}

/* Returns the address `bytes` bytes on; where that is 0, the workspace may be NULL. */
static char *memory_after(char *workspace, size_t bytes)
{
    return bytes > 0 ? workspace + bytes : workspace;
}

static float *buffer_of(const product_run *r, int64_t i)
{
    return (float *)(r->workspace + (size_t)i * r->plan->buffer);
}

static char *after_buffers(const product_run *r)
{
    return memory_after(r->workspace, (size_t)r->plan->buffers * r->plan->buffer);
}

/* Moves a factor to a later first row. */
static void skip_rows(const wf_cuda_product *p, wf_cuda_factor *f, int64_t rows)
{
    f->data = (const char *)f->data +
              (size_t)(f->along ? rows * f->ld : rows) * wf_cuda_size_of(p->type);
}

/* Copies a factor that has to be copied, with zeros after its depth. */
static wf_status make_whole(const wf_cuda_product *p, wf_cuda_factor *f, int64_t rows,
                            int64_t depth, char *room)
{
    wf_cuda *cuda = wf_cuda_of(p->call);
    int64_t whole = wf_cuda_whole_depth(p, depth);
    wf_cuda_padding pad = {.from = f->data,
                           .to = room,
                           .from_ld = f->ld,
                           .to_ld = f->along ? whole : wf_cuda_whole_depth(p, rows),
                           .rows = f->along ? rows : depth,
                           .columns = f->along ? depth : rows,
                           .to_rows = f->along ? rows : whole,
                           .size = wf_cuda_size_of(p->type)};

    if (wf_cuda_copy_bytes(p, f, rows, depth) == 0)
        return WF_OK;
    f->data = room;
    f->ld = pad.to_ld;
    return wf_cuda_check(p->call->ctx, wf_cuda_launch_pad(cuda->stream, &pad),
                         p->call->op->name);
}

/* Computes one product of a chunk's chain by cuBLASLt, to c or added to it. */
static wf_status multiply(const product_run *r, int64_t chunk, int member,
                          const wf_cuda_result *c)
{
    const wf_cuda_product *p = r->p;
    wf_cuda_piece x = p->piece(p->call, chunk, member);
    wf_cuda_gemm mm = {.type = p->type,
                       .c_type = c->type,
                       .m = r->rows,
                       .n = p->n,
                       .depth = x.depth,
                       .c = c->to,
                       .c_ld = c->to_ld,
                       .add = c->add,
                       .bias = c->bias,
                       .workspace = after_buffers(r)};

    skip_rows(p, &x.a, r->row);
    mm.a = x.a;
    mm.b = x.b;
    return wf_cuda_gemm_run(p->call, &mm);
}

/* Makes the chain of a chunk's products, in order; *any: whether there was one. */
static wf_status make_chunk(const product_run *r, int64_t chunk, wf_cuda_result c, bool *any)
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

/* Takes a member's matrix of nf4, which is that of all chunks. */
static wf_status take_nf4(const wf_cuda_product *p, const wf_cuda_factor *f,
                          wf_tensor_product *t, int member)
{
    if (t->nf4[member].bytes)
        return WF_OK;
    t->nf4[member] = wf_cuda_nf4_matrix(wf_cuda_of(p->call), f->nf4, p->type);
    t->code_levels = t->nf4[member].levels;
    t->coded = true;
    return wf_cuda_check(p->call->ctx, t->code_levels ? cudaSuccess : cudaErrorMemoryAllocation,
                         p->call->op->name);
}

/* Takes the pieces of a node as its kernel has them. */
static wf_status take_pieces(const product_run *r, int64_t first, wf_tensor_product *t)
{
    const wf_cuda_product *p = r->p;
    char *room = after_buffers(r);
    wf_status status = WF_OK;

    for (int i = 0; i < t->chunks * t->members && status == WF_OK; i++) {
        wf_cuda_piece x = p->piece(p->call, first + i / t->members, i % t->members);
        size_t a = wf_cuda_copy_bytes(p, &x.a, r->rows, x.depth);
        size_t b = wf_cuda_copy_bytes(p, &x.b, p->n, x.depth);

        skip_rows(p, &x.a, r->row);
        status = make_whole(p, &x.a, r->rows, x.depth, room);
        if (status == WF_OK)
            status = make_whole(p, &x.b, p->n, x.depth, memory_after(room, a));
        room = memory_after(room, a + b);
        if (status == WF_OK && x.b.nf4)
            status = take_nf4(p, &x.b, t, i % t->members);
        t->piece[i] = (wf_tensor_piece){x.a.data, x.b.data, x.a.ld, x.b.ld,
                                        wf_cuda_whole_depth(p, x.depth)};
        t->a_along = x.a.along;
        t->b_along = x.b.along;
    }
    return status;
}

/* Makes a node of exact mode: to the result at once, or by parts that are joined. */
static wf_status exact_node(const product_run *r, int64_t first, int64_t count,
                            const wf_cuda_result *to)
{
    const wf_cuda_product *p = r->p;
    wf_tensor_product t = {.type = p->type,
                           .chunks = (int)count,
                           .members = p->members,
                           .levels = wf_cuda_part_levels(p, count),
                           .m = r->rows,
                           .n = p->n,
                           .stride = (int64_t)(r->plan->buffer / sizeof(float)),
                           .result = *to};
    wf_cuda_join j = {.n_from = 1 << t.levels};
    wf_status status = take_pieces(r, first, &t);

    if (t.levels)
        t.result = float_target(r, 0);
    for (int i = 0; t.levels && i < j.n_from; i++)
        j.from[i] = buffer_of(r, i);
    if (status == WF_OK)
        status = wf_cuda_tensor_product_run(p->call, &t);
    return status == WF_OK && t.levels ? join(r, &j, to) : status;
}

/* Adds up to eight chunks of cuBLASLt's in one pass. */
static wf_status free_node(const product_run *r, int64_t first, int64_t count,
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

/* Makes the node over `count` chunks; that of a right half is left in buffer 0. */
static wf_status make_node(const product_run *r, int64_t first, int64_t count, int level,
                           const wf_cuda_result *to)
{
    int64_t left = wf_cuda_left_half(r->p, count);
    int wait = r->plan->buffers - wf_cuda_waiting_nodes(r->p) + level;
    wf_cuda_join j = {.n_from = 2};
    wf_cuda_result half;
    wf_status status;

    if (wf_cuda_is_one_node(r->p, count))
        return wf_cuda_is_exact(r->p) ? exact_node(r, first, count, to)
                                      : free_node(r, first, count, to);
    half = float_target(r, wait);
    status = make_node(r, first, left, level + 1, &half);
    half = float_target(r, 0);
    if (status == WF_OK)
        status = make_node(r, first + left, count - left, level + 1, &half);
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
        status = wf_cuda_check(
            call->ctx,
            cudaMemsetAsync(c->to, 0, (size_t)(r->rows * c->to_ld) * wf_cuda_size_of(c->type),
                            wf_cuda_of(call)->stream),
            call->op->name);
    return status;
}

wf_status wf_cuda_product_run(const wf_cuda_product *p, void *workspace)
{
    wf_cuda_plan l = wf_cuda_plan_of(p);
    product_run r = {.p = p, .plan = &l, .workspace = workspace};
    wf_status status = WF_OK;

    if (p->m == 0 || p->n == 0)
        return WF_OK;
    for (; r.row < p->m && status == WF_OK; r.row += l.rows) {
        wf_cuda_result c = result_of(p, r.row);

        r.rows = p->m - r.row < l.rows ? p->m - r.row : l.rows;
        status = wf_cuda_is_direct(p) ? run_direct(&r, &c) : make_node(&r, 0, p->chunks, 0, &c);
    }
    return status;
}
