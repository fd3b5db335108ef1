/* kernels/cpu/linear.c - products on the CPU: a row of parts for one GEMM each. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/shared_internal.h"
#include <stdlib.h>

enum { MEMBERS = 3, MAX_PARTS = MEMBERS * WF_MAX_CHUNKS, DW_PARTS = 64 };

/* From that element on; NULL where only the workspace is asked for. */
static const float *elements(const wf_tensor *t, int64_t first)
{
    const float *data = t->data;

    return data ? data + first : NULL;
}

/* y_m[rows, n] = x[rows, k] W_m[n, k]^T; k is cut in its chunks. weights: W_m's floats, or NULL. */
static wf_gemm forward_product(const wf_call *call, int m, const float *weights,
                               wf_gemm_part *parts)
{
    const wf_tensor *x = call->in[0], *w = call->in[m + 1];
    int last = x->ndim - 1;
    int64_t k = x->local[last], n = w->local[0], at[WF_MAX_CHUNKS + 1];
    int chunks = wf_chunk_cuts(x, last, at);

    for (int l = 0; l < chunks; l++)
        parts[l] = (wf_gemm_part){.a = elements(x, at[l]),
                                  .a_row = k,
                                  .a_k = 1,
                                  .b = weights ? weights + at[l] : NULL,
                                  .b_k = 1,
                                  .b_col = k,
                                  .k = at[l + 1] - at[l],
                                  .chunk = true};
    return (wf_gemm){.m = wf_extent(x, 0, last),
                     .n = n,
                     .c = call->out[m]->data,
                     .c_row = n,
                     .parts = parts,
                     .n_parts = chunks};
}

/* dx[rows, k] of a run: chunk l is one chain through chunk l of every member's n. */
static wf_gemm dx_product(const wf_call *call, wf_gemm_part *parts)
{
    int members = call->n_in / 2, chunks = 0, n_parts = 0;
    int64_t at[MEMBERS][WF_MAX_CHUNKS + 1];
    const wf_tensor *dx = call->out[0];
    int last = dx->ndim - 1;
    int64_t k = dx->local[last];

    for (int m = 0; m < members; m++)
        chunks = wf_chunk_cuts(call->in[2 * m], last, at[m]);
    for (int l = 0; l < chunks; l++)
        for (int m = 0; m < members; m++) {
            const wf_tensor *dy = call->in[2 * m], *w = call->in[2 * m + 1];
            int64_t n = dy->local[last];

            parts[n_parts++] = (wf_gemm_part){.a = elements(dy, at[m][l]),
                                              .a_row = n,
                                              .a_k = 1,
                                              .b = elements(w, at[m][l] * k),
                                              .b_k = k,
                                              .b_col = 1,
                                              .k = at[m][l + 1] - at[m][l],
                                              .chunk = m == 0};
        }
    return (wf_gemm){.m = wf_extent(dx, 0, last),
                     .n = k,
                     .c = dx->data,
                     .c_row = k,
                     .add = wf_linear_adds(call),
                     .parts = parts,
                     .n_parts = n_parts};
}

/* Few rows read the weights as they are stored, at the speed of memory. */
static bool is_skinny(const wf_call *call, int m)
{
    const wf_tensor *x = call->in[0];

    return wf_extent(x, 0, x->ndim - 1) <= WF_SKINNY_ROWS &&
           call->in[m + 1]->local[0] >= WF_SKINNY_COLUMNS;
}

static void run_skinny(const wf_call *call, int m)
{
    const wf_tensor *x = call->in[0], *w = call->in[m + 1];
    int last = x->ndim - 1;
    int64_t at[WF_MAX_CHUNKS + 1];
    wf_skinny s = {.m = wf_extent(x, 0, last),
                   .n = w->local[0],
                   .k = x->local[last],
                   .x = x->data,
                   .w = w->data,
                   .bf16 = w->dtype == WF_BF16,
                   .y = call->out[m]->data,
                   .chunks = wf_chunk_cuts(x, last, at),
                   .at = at};

    wf_cpu_of(call)->simd->gemm_skinny(wf_cpu_of(call)->team, &s);
}

/* Weights that are stored as bf16 and are not read as such, in floats: bytes for them. */
static size_t wide_bytes(const wf_call *call, int m)
{
    const wf_tensor *w = call->in[m + 1];

    if (w->dtype != WF_BF16 || is_skinny(call, m))
        return 0;
    return ((size_t)wf_tensor_local_count(w) * sizeof(float) + 63) / 64 * 64;
}

typedef struct widening {
    const wf_simd *simd;
    const uint16_t *from;
    float *to;
} widening;

static void widen_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const widening *w = arg;

    (void)worker;
    w->simd->widen(w->from + begin, w->to + begin, end - begin);
}

static wf_status run(const wf_call *call, const wf_gemm *g, void *workspace)
{
    wf_cpu *cpu = wf_cpu_of(call);

    cpu->simd->gemm(cpu->team, g, workspace);
    return WF_OK;
}

static size_t bytes_for(const wf_call *call, const wf_gemm *g)
{
    wf_cpu *cpu = wf_cpu_of(call);

    return cpu->simd->gemm_workspace(g, wf_team_size(cpu->team));
}

static size_t forward_workspace(const wf_call *call)
{
    wf_gemm_part parts[MAX_PARTS];
    size_t most = 0;

    for (int m = 0; m < call->n_out; m++) {
        wf_gemm g;
        size_t bytes;

        if (is_skinny(call, m))
            continue;
        g = forward_product(call, m, NULL, parts);
        bytes = bytes_for(call, &g) + wide_bytes(call, m);
        if (bytes > most)
            most = bytes;
    }
    return most;
}

static wf_status forward(const wf_call *call, void *workspace)
{
    wf_gemm_part parts[MAX_PARTS];

    for (int m = 0; m < call->n_out; m++) {
        const wf_tensor *w = call->in[m + 1];
        size_t wide = wide_bytes(call, m);
        widening widen = {wf_cpu_of(call)->simd, w->data, workspace};
        wf_gemm g;

        if (is_skinny(call, m)) {
            run_skinny(call, m);
            continue;
        }
        if (wide)
            wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(w), WF_TASK_ELEMENTS,
                        widen_task, &widen);
        g = forward_product(call, m, wide ? workspace : w->data, parts);
        run(call, &g, wide ? (char *)workspace + wide : workspace);
    }
    return WF_OK;
}

static size_t dx_workspace(const wf_call *call)
{
    wf_gemm_part parts[MAX_PARTS];
    size_t most = 0;
    wf_call one;

    for (int m = 0; m < call->n_in / 2;) {
        wf_gemm g;
        size_t bytes;

        m = wf_linear_run(call, m, &one);
        g = dx_product(&one, parts);
        bytes = bytes_for(&one, &g);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static wf_status dx(const wf_call *call, void *workspace)
{
    wf_gemm_part parts[MAX_PARTS];
    wf_call one;

    for (int m = 0; m < call->n_in / 2;) {
        wf_gemm g;

        m = wf_linear_run(call, m, &one);
        g = dx_product(&one, parts);
        run(&one, &g, workspace);
    }
    return WF_OK;
}

/* dW[n, k]: a chunk per index of a batch dim (the rows of one sequence are its chain), one chunk
   of all rows for any other leading dim. The parts live at the start of the workspace. */
static bool chunk_each(const wf_call *call)
{
    return call->in[0]->dim[0].chunks == WF_CHUNKS_EACH && wf_context_exact(call->ctx);
}

/* The chunks of each pass, of which the call has a pair of operands. */
static int64_t dw_chunks(const wf_call *call)
{
    return chunk_each(call) ? call->in[0]->local[0] : 1;
}

static size_t dw_parts_bytes(const wf_call *call)
{
    int64_t chunks = call->n_in / 2 * dw_chunks(call);
    size_t n = chunks > 0 ? (size_t)chunks : 1; /* a rank without sequences has dW = 0 */

    return (n * sizeof(wf_gemm_part) + 63) / 64 * 64;
}

static wf_gemm dw_product(const wf_call *call, wf_gemm_part *parts)
{
    const wf_tensor *dy = call->in[0], *x = call->in[1];
    int last = dy->ndim - 1;
    int64_t each = dw_chunks(call), chunks = call->n_in / 2 * each;
    int64_t rows = wf_extent(dy, chunk_each(call) ? 1 : 0, last);
    int64_t n = dy->local[last], k = x->local[last];

    for (int64_t l = 0; l < chunks; l++) {
        const wf_tensor *const *pair = (const wf_tensor *const *)&call->in[2 * (l / each)];

        parts[l] = (wf_gemm_part){.a = elements(pair[0], l % each * rows * n),
                                  .a_row = 1,
                                  .a_k = n,
                                  .b = elements(pair[1], l % each * rows * k),
                                  .b_k = k,
                                  .b_col = 1,
                                  .k = rows,
                                  .chunk = true};
    }
    return (wf_gemm){.m = n,
                     .n = k,
                     .c = call->out[0]->data,
                     .c_row = k,
                     .add = wf_linear_adds(call),
                     .parts = parts,
                     .n_parts = chunks};
}

static size_t dw_workspace(const wf_call *call)
{
    size_t bytes = dw_parts_bytes(call), more;
    wf_gemm_part few[DW_PARTS], *parts = few; /* not the pool's memory: a plan's has none */
    wf_gemm g;

    if (bytes > sizeof few)
        parts = malloc(bytes);
    if (!parts) {
        wf_fail(call->ctx, WF_ENOMEM, "%s: no memory for the list of %zu bytes of sequences",
                call->op->name, bytes);
        return 0;
    }
    g = dw_product(call, parts);
    more = bytes_for(call, &g);
    if (parts != few)
        free(parts);
    return bytes + more;
}

static wf_status dw(const wf_call *call, void *workspace)
{
    wf_gemm g = dw_product(call, workspace);

    return run(call, &g, (char *)workspace + dw_parts_bytes(call));
}

/* The products, then biases where they lie: a sum over ranks' parts is not part of these ops. */
static wf_call product_of(const wf_call *call)
{
    wf_call product = *call;

    product.n_out = wf_linear_joined(call);
    return product;
}

typedef struct rounding {
    const wf_simd *simd;
    float *x;
} rounding;

static size_t joined_workspace(const wf_call *call)
{
    wf_call product = product_of(call);

    return forward_workspace(&product);
}

static void round_task(void *arg, int64_t begin, int64_t end, int worker)
{
    enum { BLOCK = 256 };
    const rounding *r = arg;
    uint16_t half[BLOCK];

    (void)worker;
    for (int64_t n; begin < end; begin += n) {
        n = wf_least(BLOCK, end - begin);
        r->simd->narrow(r->x + begin, half, n);
        r->simd->widen(half, r->x + begin, n);
    }
}

/* Where results are stored as bf16 a bias is added to what the product would be stored as: a layer
   whose product is a sum over ranks rounds it then, and has the same bits so. */
static void round_product(const wf_call *call, const wf_tensor *y)
{
    rounding r = {wf_cpu_of(call)->simd, y->data};

    if (y->rounds_to == WF_BF16)
        wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(y), WF_TASK_ELEMENTS,
                    round_task, &r);
}

static wf_status joined(const wf_call *call, void *workspace)
{
    wf_call product = product_of(call);
    int count = product.n_out;
    bool gelu = call->n_out > count;
    wf_status status = forward(&product, workspace);

    for (int m = 0; m < count && status == WF_OK; m++) {
        const wf_call then = {.op = call->op,
                              .ctx = call->ctx,
                              .n_in = 2,
                              .in = {call->out[m], call->in[1 + count + m]},
                              .n_out = 1,
                              .out = {call->out[gelu ? 1 : m]}};

        round_product(call, call->out[m]);
        status = (gelu ? wf_cpu_bias_gelu : wf_cpu_bias_add).run(&then, NULL);
    }
    return status;
}

/* Weights come as they are stored. */
enum { W1 = WF_IN(1), W2 = W1 | WF_IN(2), W3 = W2 | WF_IN(3) };

const wf_kernel wf_cpu_linear1 = {
    .run = forward, .workspace = forward_workspace, .mixed_ok = W1};
const wf_kernel wf_cpu_linear2 = {
    .run = forward, .workspace = forward_workspace, .mixed_ok = W2};
const wf_kernel wf_cpu_linear3 = {
    .run = forward, .workspace = forward_workspace, .mixed_ok = W3};
const wf_kernel wf_cpu_linear1_dx = {.run = dx, .workspace = dx_workspace};
const wf_kernel wf_cpu_linear2_dx = {.run = dx, .workspace = dx_workspace};
const wf_kernel wf_cpu_linear3_dx = {.run = dx, .workspace = dx_workspace};
const wf_kernel wf_cpu_linear_dw = {.run = dw, .workspace = dw_workspace};
const wf_kernel wf_cpu_linear1_bias = {
    .run = joined, .workspace = joined_workspace, .mixed_ok = W1};
const wf_kernel wf_cpu_linear3_bias = {
    .run = joined, .workspace = joined_workspace, .mixed_ok = W3};
const wf_kernel wf_cpu_linear1_bias_gelu = {
    .run = joined, .workspace = joined_workspace, .mixed_ok = W1};
