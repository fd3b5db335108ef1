/*
 * kernels/cuda/product_plan.c - how a product of chunks is laid out in its workspace: buffers
 * for nodes of its tree, copies of factors that are not aligned, and how many rows of the
 * result they are of.
 */
#include "kernels/cuda/product_internal.h"

enum { BUFFER = 8 << 20, PACKED = 32 << 20, ROWS = 128, LINE = 256, FLOATS = 4 };

/* Pairs of blocks that an H100 runs at once; taken for all GPUs, so that plans are the same. */
enum { PAIRS = 66 };

/* More parts are more to add: they must be worth it. */
static const double WORTH = 0.9;

size_t wf_cuda_size_of(wf_dtype type)
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

bool wf_cuda_is_exact(const wf_cuda_product *p)
{
    return wf_cuda_host_table->context_exact(p->call->ctx);
}

/* Returns whether cuBLASLt's products go straight to the result: one, or several where they add
   up in float. It multiplies no f32 to bf16. */
bool wf_cuda_is_direct(const wf_cuda_product *p)
{
    bool floats = p->members == 1 || p->c_type == WF_F32;
    bool typed = p->c_type == WF_F32 || p->type == WF_BF16;

    return p->chunks == 1 && floats && typed && !wf_cuda_is_exact(p);
}

int64_t wf_cuda_whole_depth(const wf_cuda_product *p, int64_t depth)
{
    return multiple(depth, WF_CUDA_ALIGNED / (int64_t)wf_cuda_size_of(p->type));
}

static bool is_copied(const wf_cuda_product *p, const wf_cuda_factor *f, int64_t depth)
{
    uint64_t bits = (uint64_t)(uintptr_t)f->data | (uint64_t)f->ld * wf_cuda_size_of(p->type);

    return wf_cuda_is_exact(p) && !f->nf4 &&
           (depth != wf_cuda_whole_depth(p, depth) || bits % WF_CUDA_ALIGNED);
}

size_t wf_cuda_copy_bytes(const wf_cuda_product *p, const wf_cuda_factor *f, int64_t rows,
                          int64_t depth)
{
    if (!is_copied(p, f, depth))
        return 0;
    return lines((size_t)(wf_cuda_whole_depth(p, depth) * wf_cuda_whole_depth(p, rows)) *
                 wf_cuda_size_of(p->type));
}

/* The most chunks of a node that is made at once. */
static int64_t node_chunks(const wf_cuda_product *p)
{
    return wf_cuda_is_exact(p) ? WF_TENSOR_PIECES / p->members : WF_CUDA_CHUNKS;
}

static int64_t each_of(const wf_cuda_product *p)
{
    return p->each > 0 ? p->each : 1;
}

int64_t wf_cuda_left_half(const wf_cuda_product *p, int64_t count)
{
    return wf_tree_left(count, each_of(p));
}

/* Kernels halve a node plainly, which gives the tree over sequences where there is a power of
   two of these, or where each has one chunk. */
bool wf_cuda_is_one_node(const wf_cuda_product *p, int64_t count)
{
    int64_t sequences = count / each_of(p);

    return count <= node_chunks(p) && (each_of(p) == 1 || !(sequences & (sequences - 1)));
}

/* Nodes that wait while the other half of theirs is made. */
int wf_cuda_waiting_nodes(const wf_cuda_product *p)
{
    int n = 0;

    for (int64_t chunks = p->chunks; !wf_cuda_is_one_node(p, chunks); n++)
        chunks -= wf_cuda_left_half(p, chunks);
    return n;
}

/* Returns the levels of the tree below a node that leave no part too long, and with which a GPU
   makes the parts in the shortest time: as many rounds of all its pairs of blocks as it takes,
   each for a part. */
int wf_cuda_part_levels(const wf_cuda_product *p, int64_t count)
{
    int64_t pairs = multiple(p->m, 2 * WF_TENSOR_TILE) / (2 * WF_TENSOR_TILE) *
                    (multiple(p->n, WF_TENSOR_TILE) / WF_TENSOR_TILE);
    int best = 0;
    double least = 0;

    for (int n = 0; 1 << n <= WF_TENSOR_PARTS && (n == 0 || 1 << n <= count); n++) {
        double time = (double)(((pairs << n) + PAIRS - 1) / PAIRS) / (1 << n);

        if (count > (int64_t)WF_TENSOR_CHUNKS << n)
            continue;
        if (least == 0 || time < WORTH * least) {
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

/* Chunks of the largest node that is made at once, at most. */
static int64_t largest_node(const wf_cuda_product *p)
{
    return p->chunks < node_chunks(p) ? p->chunks : node_chunks(p);
}

/* The most levels that any node of a product has. */
static int most_levels(const wf_cuda_product *p, int64_t count)
{
    int64_t left;
    int a, b;

    if (wf_cuda_is_one_node(p, count))
        return wf_cuda_part_levels(p, count);
    left = wf_cuda_left_half(p, count);
    a = most_levels(p, left);
    b = most_levels(p, count - left);
    return a > b ? a : b;
}

/* Copies of factors for a node that is made at once. */
static void plan_copies(const wf_cuda_product *p, wf_cuda_plan *l)
{
    int64_t count = largest_node(p), depth = 0;
    size_t most = 0;

    for (int64_t chunk = 0; chunk < p->chunks; chunk++)
        for (int m = 0; m < p->members; m++) {
            wf_cuda_piece x = p->piece(p->call, chunk, m);

            if (is_copied(p, &x.a, x.depth) && wf_cuda_whole_depth(p, x.depth) > depth)
                depth = wf_cuda_whole_depth(p, x.depth);
        }
    if (depth > 0)
        l->rows = at_most(
            l->rows, PACKED / (count * p->members * depth * (int64_t)wf_cuda_size_of(p->type)));
    for (int64_t chunk = 0; chunk < p->chunks; chunk++)
        for (int m = 0; m < p->members; m++) {
            wf_cuda_piece x = p->piece(p->call, chunk, m);
            size_t bytes = wf_cuda_copy_bytes(p, &x.a, l->rows, x.depth) +
                           wf_cuda_copy_bytes(p, &x.b, p->n, x.depth);

            most = bytes > most ? bytes : most;
        }
    l->pack = most * (size_t)(count * p->members);
}

wf_cuda_plan wf_cuda_plan_of(const wf_cuda_product *p)
{
    wf_cuda_plan l = {.rows = p->m, .ld = multiple(p->n, FLOATS)};
    bool exact = wf_cuda_is_exact(p);
    int64_t parts = largest_node(p); /* cuBLASLt's: a buffer for each chunk */

    if (exact) {
        int levels = wf_cuda_part_levels(p, parts), nodes = most_levels(p, p->chunks);

        levels = nodes > levels ? nodes : levels;

        parts = levels || wf_cuda_waiting_nodes(p) ? 1 << levels : 0;
    }
    if (exact ? parts > 0 : !wf_cuda_is_direct(p)) {
        l.rows = at_most(l.rows, (exact ? PACKED : BUFFER) / (4 * (l.ld > 0 ? l.ld : 1)));
        l.buffers = (int)parts + wf_cuda_waiting_nodes(p);
    }
    if (exact)
        plan_copies(p, &l);
    l.buffer = l.buffers ? lines((size_t)(l.rows * l.ld) * sizeof(float)) : 0;
    return l;
}

size_t wf_cuda_product_workspace(const wf_cuda_product *p)
{
    wf_cuda_plan l = wf_cuda_plan_of(p);
    size_t free_choice = wf_cuda_is_exact(p) ? 0 : WF_CUDA_BLAS_WORKSPACE;

    return (size_t)l.buffers * l.buffer + l.pack + free_choice;
}
