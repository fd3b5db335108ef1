/*
 * kernels/cuda/init.cu - the rows of kernels/init.c: every number from its index in the whole, with
 * the bits of the CPU (core/draw.h). What a user's own function makes is made on the host.
 */
#include "core/draw.h"
#include "kernels/cuda/operands.h"
#include <stdlib.h>

namespace
{
struct job {
    wf_tensor t;
    uint64_t key, stream;
    float arg[WF_INIT_ARGS];
    wf_truncated truncated;
    int64_t n;
};

__device__ __forceinline__ void words_at(const job &a, uint64_t index, uint32_t word[4])
{
    uint64_t block = index / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)a.stream,
                           (uint32_t)(a.stream >> 32)};

    wf_draw_words(counter, a.key, word);
}

struct fill_with {
    __device__ float operator()(const job &a, uint64_t, float) const
    {
        return a.arg[0];
    }
};

struct scale_by {
    __device__ float operator()(const job &a, uint64_t, float was) const
    {
        return was * a.arg[0];
    }
};

struct draw_normal {
    __device__ float operator()(const job &a, uint64_t index, float) const
    {
        uint32_t word[4];
        float pair[2];
        int of = index % 4 < 2 ? 0 : 2;

        words_at(a, index, word);
        wf_draw_normals(word[of], word[of + 1], pair);
        return a.arg[0] + a.arg[1] * pair[index % 2];
    }
};

struct draw_uniform {
    __device__ float operator()(const job &a, uint64_t index, float) const
    {
        uint32_t word[4];

        words_at(a, index, word);
        return a.arg[0] + (a.arg[1] - a.arg[0]) * wf_draw_uniform(word[index % 4]);
    }
};

struct draw_truncated {
    __device__ float operator()(const job &a, uint64_t index, float) const
    {
        uint32_t word[4];

        words_at(a, index, word);
        return wf_draw_truncated(&a.truncated, word[index % 4]);
    }
};

template <class T, class F>
__global__ void __launch_bounds__(WF_BLOCK) init_kernel(F make, job a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    T *x = (T *)a.t.data;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < a.n; i += step) {
        int64_t run, index = wf_global_index(&a.t, 0, i, &run);

        wf_put(x + i, make(a, (uint64_t)index, wf_get(x[i])));
    }
}

job job_of(const wf_call *call)
{
    const wf_init_attr *attr = (const wf_init_attr *)call->attr;
    job a = {};

    a.t = *call->in[0];
    a.key = attr->key;
    a.stream = attr->stream;
    a.n = wf_count(&a.t);
    for (int i = 0; i < WF_INIT_ARGS; i++)
        a.arg[i] = attr->arg[i];
    return a;
}

template <class F> wf_status run_job(const wf_call *call, const job &a, F make)
{
    return wf_run(call, {1, 0, 0}, [&](auto zero) {
        return wf_launch(init_kernel<decltype(zero), F>, wf_grid(a.n, WF_BLOCK), WF_BLOCK, 0,
                         wf_cuda_of(call)->stream, make, a);
    });
}

wf_status init_fill(const wf_call *call, void *)
{
    return run_job(call, job_of(call), fill_with{});
}

wf_status init_normal(const wf_call *call, void *)
{
    return run_job(call, job_of(call), draw_normal{});
}

wf_status init_uniform(const wf_call *call, void *)
{
    return run_job(call, job_of(call), draw_uniform{});
}

wf_status init_truncated(const wf_call *call, void *)
{
    job a = job_of(call);

    wf_cuda_host_table->truncate(&a.truncated, a.arg[0], a.arg[1], a.arg[2], a.arg[3]);
    return run_job(call, a, draw_truncated{});
}

wf_status init_scale(const wf_call *call, void *)
{
    return run_job(call, job_of(call), scale_by{});
}

/* ---- on the host ---- */

wf_status need_floats(const wf_call *call)
{
    if (call->in[0]->dtype == WF_F32)
        return WF_OK;
    return wf_refuse_dtype(call, call->in[0], false, 0, "f32");
}

wf_status no_memory(const wf_call *call, size_t bytes)
{
    return wf_cuda_host_table->fail(call->ctx, WF_ENOMEM, "%s: no host memory for %zu bytes",
                                    call->op->name, bytes);
}

/* The tensor's local part to the host or back, and wait. */
wf_status carry(const wf_call *call, float *host, bool back)
{
    void *data = call->in[0]->data;
    size_t bytes = (size_t)wf_count(call->in[0]) * sizeof(float);
    cudaStream_t stream = wf_cuda_of(call)->stream;
    cudaError_t error =
        back ? cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream)
             : cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream);

    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    return wf_cuda_check(call->ctx, error, call->op->name);
}

wf_status init_elements(const wf_call *call, void *)
{
    const wf_init_attr *attr = (const wf_init_attr *)call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const wf_tensor *t = call->in[0];
    int64_t n = wf_count(t), run;
    float *x = (float *)malloc((size_t)n * sizeof(float) + 1);
    wf_status status = x ? need_floats(call) : no_memory(call, (size_t)n * sizeof(float));

    if (status == WF_OK)
        status = carry(call, x, false);
    for (int64_t i = 0; status == WF_OK && i < n; i += run) {
        int64_t first = wf_global_index(t, 0, i, &run);

        attr->elements(x + i, run, first, &site);
    }
    if (status == WF_OK)
        status = carry(call, x, true);
    free(x);
    return status;
}

wf_status init_whole(const wf_call *call, void *)
{
    const wf_init_attr *attr = (const wf_init_attr *)call->attr;
    const wf_init_site site = wf_init_site_of(attr);
    const wf_tensor *t = call->in[0];
    int64_t n = wf_count(t), all = 1, run;
    wf_status status;
    float *whole;

    for (int d = 0; d < t->ndim; d++)
        all *= t->dim[d].size;
    whole = (float *)malloc((size_t)all * sizeof(float) + 1);
    status = whole ? need_floats(call) : no_memory(call, (size_t)all * sizeof(float));
    if (status == WF_OK)
        status = attr->whole(whole, t, &site);
    /* The part is moved to the front: it never overtakes what it still has to read. */
    for (int64_t i = 0; status == WF_OK && i < n; i += run) {
        int64_t first = wf_global_index(t, 0, i, &run);

        memmove(whole + i, whole + first, (size_t)run * sizeof(float));
    }
    if (status == WF_OK)
        status = carry(call, whole, true);
    free(whole);
    return status;
}
} // namespace

const wf_kernel wf_cuda_init_fill = {init_fill, NULL};
const wf_kernel wf_cuda_init_normal = {init_normal, NULL};
const wf_kernel wf_cuda_init_uniform = {init_uniform, NULL};
const wf_kernel wf_cuda_init_truncated = {init_truncated, NULL};
const wf_kernel wf_cuda_init_scale = {init_scale, NULL};
const wf_kernel wf_cuda_init_elements = {init_elements, NULL};
const wf_kernel wf_cuda_init_whole = {init_whole, NULL};
