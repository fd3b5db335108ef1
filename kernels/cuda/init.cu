/*
 * kernels/cuda/init.cu - the rows of kernels/init.c: every number from its index in the whole,
 * with the bits of the CPU (core/numerics/draw.h). What an application's own function makes is
 * init_host.c's.
 */
#include "core/numerics/draw.h"
#include "kernels/cuda/operands_internal.h"

namespace
{
struct init_job {
    wf_tensor t;
    uint64_t key, stream;
    float arg[WF_INIT_ARGS];
    wf_truncated truncated;
    int64_t n;
};

__device__ __forceinline__ void words_at(const init_job &a, uint64_t index, uint32_t word[4])
{
    uint64_t block = index / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)a.stream,
                           (uint32_t)(a.stream >> 32)};

    wf_draw_words(counter, a.key, word);
}

struct fill_with {
    __device__ float operator()(const init_job &a, uint64_t, float) const
    {
        return a.arg[0];
    }
};

struct scale_by {
    __device__ float operator()(const init_job &a, uint64_t, float was) const
    {
        return was * a.arg[0];
    }
};

struct draw_normal {
    __device__ float operator()(const init_job &a, uint64_t index, float) const
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
    __device__ float operator()(const init_job &a, uint64_t index, float) const
    {
        uint32_t word[4];

        words_at(a, index, word);
        return a.arg[0] + (a.arg[1] - a.arg[0]) * wf_draw_uniform(word[index % 4]);
    }
};

struct draw_truncated {
    __device__ float operator()(const init_job &a, uint64_t index, float) const
    {
        uint32_t word[4];

        words_at(a, index, word);
        return wf_draw_truncated(&a.truncated, word[index % 4]);
    }
};

template <class T, class F>
__global__ void __launch_bounds__(WF_BLOCK) init_kernel(F make, init_job a)
{
    const int64_t step = (int64_t)gridDim.x * WF_BLOCK;
    T *x = (T *)a.t.data;

    for (int64_t i = (int64_t)blockIdx.x * WF_BLOCK + threadIdx.x; i < a.n; i += step) {
        int64_t run, index = wf_global_index(&a.t, 0, i, &run);

        wf_put(x + i, make(a, (uint64_t)index, wf_get(x[i])));
    }
}

init_job job_of(const wf_call *call)
{
    const wf_init_attr *attr = (const wf_init_attr *)call->attr;
    init_job a = {};

    a.t = *call->in[0];
    a.key = attr->key;
    a.stream = attr->stream;
    a.n = wf_count(&a.t);
    for (int i = 0; i < WF_INIT_ARGS; i++)
        a.arg[i] = attr->arg[i];
    return a;
}

template <class F> wf_status run_job(const wf_call *call, const init_job &a, F make)
{
    return wf_run(call, [&](auto zero) {
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
    init_job a = job_of(call);

    wf_cuda_host_table->truncate(&a.truncated, a.arg[0], a.arg[1], a.arg[2], a.arg[3]);
    return run_job(call, a, draw_truncated{});
}

wf_status init_scale(const wf_call *call, void *)
{
    return run_job(call, job_of(call), scale_by{});
}
} // namespace

const wf_kernel wf_cuda_init_fill = {init_fill, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_init_normal = {init_normal, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_init_uniform = {init_uniform, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_init_truncated = {init_truncated, NULL, 0, WF_IN(0)};
const wf_kernel wf_cuda_init_scale = {init_scale, NULL, 0, WF_IN(0)};
