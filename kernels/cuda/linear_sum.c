/* kernels/cuda/linear_sum.c - sums of products on the GPU: runs of pairs of operands, and
   x W^T + u B^T, a product of chunks with two members (product.c). */
#include "kernels/cuda/linear_internal.h"
#include "kernels/shared_internal.h"

/* y[rows, n] = x[rows, k] W[n, k]^T: columns of x and of W. */
static wf_cuda_piece piece(const wf_call *call, int64_t chunk, int member)
{
    const wf_tensor *x = call->in[2 * member], *w = call->in[2 * member + 1];
    int last = x->ndim - 1;
    int64_t k = x->local[last], cut[WF_MAX_CHUNKS + 1];

    wf_cuda_host_table->chunk_cuts(x, last, cut);
    return (wf_cuda_piece){.a = {wf_cuda_element(x, cut[chunk]), k, true, NULL},
                           .b = wf_cuda_weight(w, 0, cut[chunk], true),
                           .depth = cut[chunk + 1] - cut[chunk]};
}

static wf_cuda_product product(const wf_call *call)
{
    const wf_tensor *y = call->out[0], *x = call->in[0];
    int last = y->ndim - 1;
    int64_t cut[WF_MAX_CHUNKS + 1];

    return (wf_cuda_product){.call = call,
                             .type = x->dtype,
                             .c_type = y->dtype,
                             .m = wf_extent(y, 0, last),
                             .n = y->local[last],
                             .c = y->data,
                             .add = wf_linear_adds(call),
                             .chunks = wf_cuda_host_table->chunk_cuts(x, last, cut),
                             .members = call->n_in / 2,
                             .piece = piece};
}

size_t wf_cuda_runs_workspace(const wf_call *call, wf_cuda_run_product *of)
{
    size_t most = 0;
    wf_call run;

    for (int p = 0; p < call->n_in / 2;) {
        wf_cuda_product one;
        size_t bytes;

        p = wf_linear_run(call, p, &run);
        one = of(&run);
        bytes = wf_cuda_product_workspace(&one);
        most = bytes > most ? bytes : most;
    }
    return most;
}

wf_status wf_cuda_runs(const wf_call *call, wf_cuda_run_product *of, void *workspace)
{
    wf_status status = wf_cuda_check_factors(call);
    wf_call run;

    for (int p = 0; p < call->n_in / 2 && status == WF_OK;) {
        wf_cuda_product one;

        p = wf_linear_run(call, p, &run);
        one = of(&run);
        status = wf_cuda_product_run(&one, workspace);
    }
    return status;
}

static size_t workspace_of(const wf_call *call)
{
    return wf_cuda_runs_workspace(call, product);
}

static wf_status forward(const wf_call *call, void *workspace)
{
    return wf_cuda_runs(call, product, workspace);
}

const wf_kernel wf_cuda_linear2_sum = {forward, workspace_of, .mixed_ok = WF_OUT(0),
                                       .all_bf16 = WF_IN(0) | WF_IN(1) | WF_IN(2) | WF_IN(3),
                                       .nf4_ok = wf_cuda_pairs_nf4};
