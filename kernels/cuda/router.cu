/*
 * kernels/cuda/router.cu - the router's rows on the GPU: a thread for each, with the CPU's
 * bits.
 *
 * What the CPU refuses, a GPU would have to be waited for: the weights of a row that has a NaN
 * are NaN, and so is a row of dlogits whose indices are none of wf_route's.
 */
#include "kernels/cuda/operands_internal.h"
#include "kernels/cuda/row_exponentials_internal.h"
#include "kernels/moe_internal.h"

namespace
{
#define T           float
#define ROUTER_LOOP __device__ inline
#include "kernels/router_rows_internal.h"
#undef ROUTER_LOOP
#undef T

struct router_job {
    wf_route_options options;
    const float *logits, *bias, *index, *dweights;
    float *scratch, *out, *out_index; /* scratch: [rows, n] */
    int64_t rows, n;
};

__global__ void __launch_bounds__(WF_BLOCK) route_kernel(router_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t r = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; r < j.rows; r += step) {
        const float *logits = j.logits + r * j.n;
        float *weights = j.out + r * j.options.k, any = 0.0f;

        route_row(&j.options, NULL, logits, j.bias, j.n, j.scratch + r * j.n, weights,
                  j.out_index + r * j.options.k);
        for (int64_t e = 0; e < j.n; e++) {
            const float score = logits[e] + (j.bias ? j.bias[e] : 0.0f);

            any = score != score ? score : any;
        }
        for (int64_t i = 0; i < j.options.k && any != any; i++)
            weights[i] = any;
    }
}

__global__ void __launch_bounds__(WF_BLOCK) route_grad_kernel(router_job j)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;

    for (int64_t r = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; r < j.rows; r += step) {
        const float *index = j.index + r * j.options.k;
        float *dlogits = j.out + r * j.n;
        bool valid = true;

        for (int64_t i = 0; i < j.options.k; i++)
            valid = valid && wf_moe_is_expert(index[i], j.n);
        if (valid)
            route_grad_row(&j.options, NULL, j.logits + r * j.n, index,
                           j.dweights + r * j.options.k, j.n, dlogits, dlogits);
        for (int64_t e = 0; e < j.n && !valid; e++)
            dlogits[e] = NAN;
    }
}

router_job router_job_of(const wf_call *call)
{
    const wf_tensor *x = call->in[0];
    router_job j = {};

    j.options = *(const wf_route_options *)call->attr;
    j.logits = (const float *)x->data;
    j.rows = wf_rows(x);
    j.n = wf_width(x);
    j.out = (float *)call->out[0]->data;
    return j;
}

size_t route_workspace(const wf_call *call)
{
    return (size_t)wf_count(call->in[0]) * sizeof(float);
}

wf_status route(const wf_call *call, void *workspace)
{
    router_job j = router_job_of(call);

    j.bias = (const float *)wf_route_bias(call);
    j.out_index = (float *)call->out[1]->data;
    j.scratch = (float *)workspace;
    return wf_run(call, [&](auto) {
        return wf_launch(route_kernel, wf_grid(j.rows, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, j);
    });
}

wf_status route_grad(const wf_call *call, void *)
{
    const wf_route_options *o = (const wf_route_options *)call->attr;
    const int64_t k = wf_width(call->in[1]), n = wf_width(call->in[0]);
    router_job j;

    if (!o || o->k != k || k < 1 || k > n || k > WF_ROUTE_MOST)
        return wf_cuda_host_table->fail(call->ctx, WF_ESHAPE,
                                        "route_grad: indices of %lld experts a row, of %lld: "
                                        "give it those of wf_route, with "
                                        "its options",
                                        (long long)k, (long long)n);
    j = router_job_of(call);
    j.index = (const float *)call->in[1]->data;
    j.dweights = (const float *)call->in[2]->data;
    return wf_run(call, [&](auto) {
        return wf_launch(route_grad_kernel, wf_grid(j.rows, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, j);
    });
}
} // namespace

const wf_kernel wf_cuda_route = {route, route_workspace, 0, 0};
const wf_kernel wf_cuda_route_grad = {route_grad, NULL, 0, 0};
