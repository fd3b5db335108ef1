/*
 * kernels/cuda/norm_grad.cu - the rows of kernels/norm_grad.c: by one pass over x and dy
 * (norm_lanes_internal.h), or, where lanes are too few for a GPU or a row too long for a block,
 * by the two kernels of *_dx and *_dw. That shows in no bit.
 */
#include "kernels/cuda/norm_lanes_internal.h"

namespace
{
bool is_centred(const wf_call *call)
{
    return call->n_out == 3;
}

/* Returns the job of a call, but for its workspace; no threads where the two kernels run. */
template <class T> lanes_job job_of(const wf_call *call)
{
    const wf_tensor *x = call->in[0];
    lanes_job a = {};
    int64_t chunks = 0;

    a.of = wf_norm_gradient_of(call, is_centred(call), wf_norm_grad_adds(call));
    a.chunks = wf_row_chunks_of(x, x->ndim - 1);
    a.sequences = x->local[0];
    a.width = wf_ceil(a.of.d, wf_pack<T>::N) * wf_pack<T>::N;
    for (int l = 0; l < a.chunks.eights * WF_MAX_CHUNKS; l++)
        chunks += a.chunks.at[l + 1] > a.chunks.at[l];
    if (wf_row_threads<T>(a.of.d) <= GRAD_BLOCK && a.of.d > 0 &&
        a.sequences * chunks * WF_SUM_LANES >= GRAD_LANES)
        a.threads = (int)wf_row_threads<T>(a.of.d);
    return a;
}

template <class T> size_t sum_bytes(const wf_call *call)
{
    const lanes_job a = job_of<T>(call);

    return a.threads ? (size_t)((call->n_out - 1) * a.sequences * a.chunks.eights *
                                WF_SUM_ROWS * a.width) *
                           sizeof(float)
                     : 0;
}

size_t workspace_bytes(const wf_call *call)
{
    return call->in[0]->dtype == WF_BF16 ? sum_bytes<wf_bf16>(call) : sum_bytes<float>(call);
}

/* Makes rows and vectors by the kernels of other rows of ops.def. */
wf_status run_apart(const wf_call *call)
{
    static const wf_kernel *const of_rows[2][2] = {
        {&wf_cuda_rmsnorm_dx, &wf_cuda_add_rmsnorm_dx},
        {&wf_cuda_layernorm_dx, &wf_cuda_add_layernorm_dx}};
    static const int row_id[2][2] = {{WF_ID_rmsnorm_dx, WF_ID_add_rmsnorm_dx},
                                     {WF_ID_layernorm_dx, WF_ID_add_layernorm_dx}};
    const bool centred = is_centred(call), adds = wf_norm_grad_adds(call);
    wf_call rows = wf_norm_grad_rows(call), vectors = wf_norm_grad_vectors(call);
    wf_op row_op = *call->op, vector_op = *call->op; /* failures name the whole */
    wf_status status;

    row_op.id = row_id[centred][adds];
    vector_op.id = centred ? WF_ID_layernorm_dw : WF_ID_rmsnorm_dw;
    rows.op = &row_op;
    vectors.op = &vector_op;
    status = of_rows[centred][adds]->run(&rows, NULL);
    if (status != WF_OK)
        return status;
    return (centred ? wf_cuda_layernorm_dw : wf_cuda_rmsnorm_dw).run(&vectors, NULL);
}

template <class T> cudaError_t launch(const wf_call *call, lanes_job a)
{
    auto *kernel = a.of.mean ? lanes_kernel<T, true> : lanes_kernel<T, false>;
    const int out = call->n_out - 1, groups = GRAD_BLOCK / a.threads;
    const size_t bytes = (size_t)(a.width / wf_pack<T>::N) * groups * 2 * sizeof(wf_pack<T>) +
                         (size_t)(a.width * out) * sizeof(float);
    cudaStream_t stream = wf_cuda_of(call)->stream;
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    a.of.wide = wf_norm_is_wide<T>(a.of);
    if (code == cudaSuccess)
        code = wf_launch(kernel, wf_grid(a.sequences * a.chunks.eights * WF_SUM_ROWS, 1),
                         (unsigned)(groups * a.threads), bytes, stream, a);
    if (code != cudaSuccess)
        return code;
    return wf_launch(
        lane_sum_kernel,
        dim3((unsigned)wf_ceil(a.of.d, SUM_BLOCK), wf_grid(a.sequences, 1), (unsigned)out),
        SUM_BLOCK, 0, stream, a, (float *)call->out[1]->data,
        out == 2 ? (float *)call->out[2]->data : NULL);
}

wf_status norm_grad(const wf_call *call, void *workspace)
{
    if (workspace_bytes(call) == 0)
        return run_apart(call);
    return wf_run(call, [&](auto zero) {
        typedef decltype(zero) T;
        lanes_job a = job_of<T>(call);

        a.sums = (float *)workspace;
        return launch<T>(call, a);
    });
}
} // namespace

const wf_kernel wf_cuda_layernorm_grad = {norm_grad, workspace_bytes, WF_IN(1),
                                          WF_IN(0) | WF_IN(4) | WF_OUT(0)};
const wf_kernel wf_cuda_rmsnorm_grad = {norm_grad, workspace_bytes, WF_IN(1),
                                        WF_IN(0) | WF_IN(3) | WF_OUT(0)};
const wf_kernel wf_cuda_add_layernorm_grad = {norm_grad, workspace_bytes, WF_IN(1),
                                              WF_IN(0) | WF_IN(4) | WF_IN(5) | WF_OUT(0)};
const wf_kernel wf_cuda_add_rmsnorm_grad = {norm_grad, workspace_bytes, WF_IN(1),
                                            WF_IN(0) | WF_IN(3) | WF_IN(4) | WF_OUT(0)};
