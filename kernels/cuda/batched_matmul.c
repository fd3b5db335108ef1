/*
 * kernels/cuda/batched_matmul.c - matmul on the GPU: one product of chunks (product.c) after
 * the other, for each of a batch.
 */
#include "kernels/cuda/linear_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/shared_internal.h"

static int summed_dim(const wf_call *call)
{
    const wf_matmul_attr *attr = call->attr;

    return call->in[0]->ndim - (attr->transpose_a ? 2 : 1);
}

static bool sums_each(const wf_call *call)
{
    return wf_is_batch(call->in[0], summed_dim(call)) &&
           wf_cuda_host_table->context_exact(call->ctx);
}

static wf_cuda_piece matmul_piece(const wf_call *call, int64_t chunk, int member)
{
    const wf_matmul_attr *attr = call->attr;
    const wf_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    int dim = summed_dim(call);
    int64_t m = y->local[y->ndim - 2], n = y->local[y->ndim - 1], k = a->local[dim];
    int64_t cut[WF_MAX_CHUNKS + 1], first = chunk, depth = 1;

    (void)member;
    if (!sums_each(call)) {
        wf_cuda_host_table->chunk_cuts(a, dim, cut);
        first = cut[chunk];
        depth = cut[chunk + 1] - first;
    }
    return (wf_cuda_piece){.a = {wf_cuda_element(a, attr->transpose_a ? first * m : first),
                                 attr->transpose_a ? m : k, !attr->transpose_a, NULL},
                           .b = {wf_cuda_element(b, attr->transpose_b ? first : first * n),
                                 attr->transpose_b ? k : n, attr->transpose_b, NULL},
                           .depth = depth};
}

/* A call of one of the batch's products: its own data, and what does not change. */
typedef struct matmul_call {
    wf_call call;
    wf_tensor a, b, y;
} matmul_call;

static int64_t matmul_batch(const wf_call *call, int64_t index, matmul_call *one)
{
    int last = call->out[0]->ndim - 1;
    int64_t m, n, k = call->in[0]->local[summed_dim(call)];

    *one = (matmul_call){.call = *call, .a = *call->in[0], .b = *call->in[1]};
    one->y = *call->out[0];
    m = one->y.local[last - 1];
    n = one->y.local[last];
    one->a.data = (void *)(uintptr_t)wf_cuda_element(&one->a, index * m * k);
    one->b.data = (void *)(uintptr_t)wf_cuda_element(&one->b, index * k * n);
    one->y.data = (void *)(uintptr_t)wf_cuda_element(&one->y, index * m * n);
    one->call.in[0] = &one->a;
    one->call.in[1] = &one->b;
    one->call.out[0] = &one->y;
    return wf_extent(&one->y, 0, last - 1);
}

static wf_cuda_product matmul_product(const wf_call *one)
{
    const wf_tensor *a = one->in[0], *y = one->out[0];
    int dim = summed_dim(one);
    int64_t cut[WF_MAX_CHUNKS + 1];

    return (wf_cuda_product){
        .call = one,
        .type = a->dtype,
        .c_type = y->dtype,
        .m = y->local[y->ndim - 2],
        .n = y->local[y->ndim - 1],
        .c = y->data,
        .chunks = sums_each(one) ? a->local[dim] : wf_cuda_host_table->chunk_cuts(a, dim, cut),
        .members = 1,
        .piece = matmul_piece};
}

static size_t matmul_workspace(const wf_call *call)
{
    size_t most = 0;
    matmul_call one;

    for (int64_t i = 0; i < matmul_batch(call, i, &one) && i < 2; i++) {
        wf_cuda_product p = matmul_product(&one.call);
        size_t bytes = wf_cuda_product_workspace(&p);

        most = bytes > most ? bytes : most;
    }
    return most;
}

static wf_status matmul(const wf_call *call, void *workspace)
{
    wf_status status = wf_cuda_check_factors(call);
    matmul_call one;

    for (int64_t i = 0; status == WF_OK && i < matmul_batch(call, i, &one); i++) {
        wf_cuda_product p = matmul_product(&one.call);

        status = wf_cuda_product_run(&p, workspace);
    }
    return status;
}

/* The result is rounded after its sum, or stays f32 where it is partial. */
const wf_kernel wf_cuda_matmul = {matmul, matmul_workspace, .mixed_ok = WF_OUT(0),
                                  .all_bf16 = WF_IN(0) | WF_IN(1)};
