/*
 * kernels/cuda/linear.c - products with weights on the GPU: the rows of ops.def as products of
 * chunks (product.c).
 *
 *     linear     y_m = x W_m^T     chunks of k; a piece is a block of columns of x and of W
 *     linear_dx  dx = dy_m W_m     chunks of n, each the chain of its members' products; a
 *                                  product for every run of members with the same chunks
 *     linear_dw  dW = dy^T x       a chunk per sequence, or several
 */
#include "kernels/cuda/linear_internal.h"
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"

enum { EIGHT = 8 }; /* numbers of nf4 that a kernel widens at a time */

const void *wf_cuda_element(const wf_tensor *t, int64_t element)
{
    /* by integers: a plan's tensors have no data */
    return (const void *)((uintptr_t)t->data + (size_t)element * (t->dtype == WF_BF16 ? 2 : 4));
}

wf_cuda_factor wf_cuda_weight(const wf_tensor *w, int64_t row, int64_t column, bool along)
{
    const int64_t k = w->local[1];

    if (w->dtype == WF_NF4)
        return (wf_cuda_factor){NULL, along ? column : row, along, w};
    return (wf_cuda_factor){wf_cuda_element(w, row * k + column), k, along, NULL};
}

bool wf_cuda_takes_nf4(const wf_call *call, const wf_tensor *x, const wf_tensor *w, bool bf16)
{
    const wf_nf4_part part = wf_cuda_host_table->nf4_part_of(w);
    int64_t cut[WF_MAX_CHUNKS + 1], bits = part.width | part.first_column | part.columns;
    int last = x->ndim - 1, chunks = wf_cuda_host_table->chunk_cuts(x, last, cut);

    for (int l = 0; l <= chunks; l++)
        bits |= cut[l];
    return w->ndim == 2 && bits % EIGHT == 0 && wf_cuda_host_table->context_exact(call->ctx) &&
           wf_cuda_tensor_product_takes_nf4(call, bf16 ? WF_BF16 : WF_F32,
                                            wf_extent(x, 0, last));
}

unsigned wf_cuda_forward_nf4(const wf_call *call, bool bf16)
{
    unsigned mask = 0;

    for (int i = 1; i < call->n_in; i++)
        if (call->in[i]->dtype == WF_NF4 &&
            wf_cuda_takes_nf4(call, call->in[0], call->in[i], bf16))
            mask |= WF_IN(i);
    return mask;
}

unsigned wf_cuda_pairs_nf4(const wf_call *call, bool bf16)
{
    unsigned mask = 0;

    for (int i = 1; i < call->n_in && call->n_in <= 2 * WF_TENSOR_CODED; i += 2)
        if (call->in[i]->dtype == WF_NF4 &&
            wf_cuda_takes_nf4(call, call->in[i - 1], call->in[i], bf16))
            mask |= WF_IN(i);
    return mask;
}

wf_status wf_cuda_check_factors(const wf_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i]->dtype == WF_NF4 && wf_cuda_row(call->op->id)->nf4_ok)
            continue; /* it was asked for as it is stored */
        else if (call->in[i]->dtype != call->in[0]->dtype ||
                 (call->in[i]->dtype != WF_F32 && call->in[i]->dtype != WF_BF16))
            return wf_cuda_host_table->fail(
                call->ctx, WF_EDTYPE,
                "%s: operand %d and operand 0 must both be f32 or both bf16: wf_cast one",
                call->op->name, i);
    return WF_OK;
}

/* y[rows, n] = x[rows, k] W[n, k]^T; the call is that of one member. */
static wf_cuda_piece forward_piece(const wf_call *call, int64_t chunk, int member)
{
    const wf_tensor *x = call->in[0], *w = call->in[1];
    int last = x->ndim - 1;
    int64_t k = x->local[last], cut[WF_MAX_CHUNKS + 1];

    (void)member;
    wf_cuda_host_table->chunk_cuts(x, last, cut);
    return (wf_cuda_piece){.a = {wf_cuda_element(x, cut[chunk]), k, true, NULL},
                           .b = wf_cuda_weight(w, 0, cut[chunk], true),
                           .depth = cut[chunk + 1] - cut[chunk]};
}

wf_call wf_cuda_linear_member(const wf_call *call, int m)
{
    wf_call one = *call;

    one.in[1] = call->in[m + 1];
    one.out[0] = call->out[m];
    return one;
}

wf_cuda_product wf_cuda_linear_product(const wf_call *call)
{
    const wf_tensor *x = call->in[0];
    int last = x->ndim - 1;
    int64_t cut[WF_MAX_CHUNKS + 1];

    return (wf_cuda_product){.call = call,
                             .type = x->dtype,
                             .c_type = call->out[0]->dtype,
                             .m = wf_extent(x, 0, last),
                             .n = call->in[1]->local[0],
                             .c = call->out[0]->data,
                             .chunks = wf_cuda_host_table->chunk_cuts(x, last, cut),
                             .members = 1,
                             .piece = forward_piece};
}

size_t wf_cuda_linear_workspace(const wf_call *call)
{
    size_t most = 0;

    for (int m = 0; m < call->n_out; m++) {
        wf_call one = wf_cuda_linear_member(call, m);
        wf_cuda_product p = wf_cuda_linear_product(&one);
        size_t bytes = wf_cuda_product_workspace(&p);

        most = bytes > most ? bytes : most;
    }
    return most;
}

static wf_status forward(const wf_call *call, void *workspace)
{
    wf_status status = wf_cuda_check_factors(call);

    for (int m = 0; m < call->n_out && status == WF_OK; m++) {
        wf_call one = wf_cuda_linear_member(call, m);
        wf_cuda_product p = wf_cuda_linear_product(&one);

        status = wf_cuda_product_run(&p, workspace);
    }
    return status;
}

/* dx[rows, k] = dy[rows, n] W[n, k]: columns of dy, rows of W. */
static wf_cuda_piece dx_piece(const wf_call *call, int64_t chunk, int member)
{
    const wf_tensor *dy = call->in[2 * member], *w = call->in[2 * member + 1];
    int last = dy->ndim - 1;
    int64_t n = dy->local[last], cut[WF_MAX_CHUNKS + 1];

    wf_cuda_host_table->chunk_cuts(dy, last, cut);
    return (wf_cuda_piece){.a = {wf_cuda_element(dy, cut[chunk]), n, true, NULL},
                           .b = wf_cuda_weight(w, cut[chunk], 0, false),
                           .depth = cut[chunk + 1] - cut[chunk]};
}

static wf_cuda_product dx_product(const wf_call *call)
{
    const wf_tensor *dx = call->out[0], *dy = call->in[0];
    int last = dx->ndim - 1;
    int64_t cut[WF_MAX_CHUNKS + 1];

    return (wf_cuda_product){.call = call,
                             .type = dy->dtype,
                             .c_type = dx->dtype,
                             .m = wf_extent(dx, 0, last),
                             .n = dx->local[last],
                             .c = dx->data,
                             .add = wf_linear_adds(call),
                             .chunks = wf_cuda_host_table->chunk_cuts(dy, last, cut),
                             .members = call->n_in / 2,
                             .piece = dx_piece};
}

static size_t dx_workspace(const wf_call *call)
{
    return wf_cuda_runs_workspace(call, dx_product);
}

static wf_status dx(const wf_call *call, void *workspace)
{
    return wf_cuda_runs(call, dx_product, workspace);
}

/* Returns the chunks of each pass, of which the call has a pair of operands: those of
   sequences; of any other leading dim all rows are one. */
static wf_token_cuts dw_cuts(const wf_call *call)
{
    const wf_tensor *dy = call->in[0];

    return wf_token_cuts_of(dy, dy->ndim - 1, wf_cuda_host_table->context_exact(call->ctx));
}

/* dW[n, k] = dy[rows, n]^T x[rows, k]: rows of both. */
static wf_cuda_piece dw_piece(const wf_call *call, int64_t chunk, int member)
{
    const wf_token_cuts cuts = dw_cuts(call);
    int64_t pass = chunk / wf_token_chunks_of(&cuts);
    const wf_tensor *dy = call->in[2 * pass], *x = call->in[2 * pass + 1];
    int last = dy->ndim - 1;
    int64_t n = dy->local[last], k = x->local[last], row;

    (void)member;
    chunk %= wf_token_chunks_of(&cuts);
    row = wf_token_chunk_at(&cuts, chunk);
    return (wf_cuda_piece){.a = {wf_cuda_element(dy, row * n), n, false, NULL},
                           .b = {wf_cuda_element(x, row * k), k, false, NULL},
                           .depth = wf_token_chunk_rows(&cuts, chunk)};
}

static wf_cuda_product dw_product(const wf_call *call)
{
    const wf_tensor *dw = call->out[0], *dy = call->in[0];
    const wf_token_cuts cuts = dw_cuts(call);

    return (wf_cuda_product){.call = call,
                             .type = dy->dtype,
                             .c_type = dw->dtype,
                             .m = dw->local[0],
                             .n = dw->local[1],
                             .c = dw->data,
                             .add = wf_linear_adds(call),
                             .chunks = call->n_in / 2 * wf_token_chunks_of(&cuts),
                             .each = cuts.chunks,
                             .members = 1,
                             .piece = dw_piece};
}

static size_t dw_workspace(const wf_call *call)
{
    wf_sequence_call s;
    wf_cuda_product p;

    if (wf_linear_in_rows(call))
        wf_sequence_call_of(call, 0, 0, &s);
    p = dw_product(wf_linear_in_rows(call) ? &s.call : call);
    return wf_cuda_product_workspace(&p);
}

static wf_status dw_whole(const wf_call *call, void *workspace)
{
    wf_cuda_product p = dw_product(call);

    return wf_cuda_product_run(&p, workspace);
}

static wf_status dw(const wf_call *call, void *workspace)
{
    wf_status status = wf_cuda_check_factors(call);

    if (status != WF_OK)
        return status;
    return wf_linear_in_rows(call) ? wf_run_by_sequence(call, 0, dw_whole, workspace)
                                   : dw_whole(call, workspace);
}

/* Factors are of one type; a result is rounded after its sum, or stays f32 where it is
   partial. */
enum { FACTORS = WF_IN(WF_MAX_INPUTS) - 1, RESULTS = WF_OUT(0) | WF_OUT(1) | WF_OUT(2) };

#define PRODUCT(run, workspace, nf4)                                                           \
    {                                                                                          \
        run, workspace, .mixed_ok = RESULTS, .all_bf16 = FACTORS, .nf4_ok = nf4                \
    }

const wf_kernel wf_cuda_linear1 =
    PRODUCT(forward, wf_cuda_linear_workspace, wf_cuda_forward_nf4);
const wf_kernel wf_cuda_linear1_fp32 =
    PRODUCT(forward, wf_cuda_linear_workspace, wf_cuda_forward_nf4);
const wf_kernel wf_cuda_linear2 =
    PRODUCT(forward, wf_cuda_linear_workspace, wf_cuda_forward_nf4);
const wf_kernel wf_cuda_linear3 =
    PRODUCT(forward, wf_cuda_linear_workspace, wf_cuda_forward_nf4);
const wf_kernel wf_cuda_linear1_dx = PRODUCT(dx, dx_workspace, wf_cuda_pairs_nf4);
const wf_kernel wf_cuda_linear2_dx = PRODUCT(dx, dx_workspace, wf_cuda_pairs_nf4);
const wf_kernel wf_cuda_linear3_dx = PRODUCT(dx, dx_workspace, wf_cuda_pairs_nf4);
const wf_kernel wf_cuda_linear_dw = PRODUCT(dw, dw_workspace, NULL);
